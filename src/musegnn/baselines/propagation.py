"""Peers that smooth without weights: before the network (SGC, SIGN), behind it (APPNP), or never (MLP)."""

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from musegnn import models
from musegnn.baselines.contract import Baseline, Shape
from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.propagate import propagate
from musegnn.unfolding.subgraph import as_sample

_BAND = 32
"""Columns that are smoothed at once: what is held beside the result is a few times n of them."""


def smooth(sample: Sample, X: Rows) -> Rows:
    """S X, S = D'^-1/2 (A + I) D'^-1/2, D' = D + I; differentiable, and S is its own transpose."""
    scale = torch.from_numpy(np.diff(sample.indptr) + 1).to(X.device, X.dtype).rsqrt()[:, None]
    X = scale * X
    return scale * (propagate(sample, X) + X)


def spread(sample: Sample, start: Rows, source: Rows, restart: float, steps: int) -> Rows:
    """Y <- (1 - t) S Y + t Z, `steps` times; in the end t (I - (1 - t) S)^-1 Z, wherever it started."""
    Y = start
    for _ in range(steps):
        Y = torch.lerp(smooth(sample, Y), source, restart)
    return Y


def hops(
    graph: Graph, powers: range, dtype: torch.dtype, *, normalize: bool
) -> Float[Tensor, "nodes powers dim"]:
    """S^k X of the whole graph for some k, in memory; the features may be mapped, and are read in bands."""
    assert graph.features is not None
    n, dim = graph.features.shape
    sample, out = as_sample(graph, n), torch.empty(n, len(powers), dim, dtype=dtype)
    # As the MLP normalizes: rows of zeros stay.
    sizes = [band.abs().sum(dim=1) for _, band in _bands(graph, dtype)] if normalize else []
    size = torch.stack(sizes).sum(dim=0).clamp(min=1e-12)[:, None] if normalize else torch.ones(1)
    for columns, band in _bands(graph, dtype):
        X = band / size
        for k in range(powers.stop):
            X = smooth(sample, X) if k else X
            if k in powers:
                out[:, k - powers.start, columns] = X
    return out


def _bands(graph: Graph, dtype: torch.dtype) -> Iterator[tuple[slice, Float[Tensor, "nodes band"]]]:
    assert graph.features is not None
    for first in range(0, graph.features.shape[1], _BAND):
        columns = slice(first, first + _BAND)
        yield columns, torch.from_numpy(graph.features[:, columns].astype(np.float32)).to(dtype)


class NodeBaseline(Baseline):
    """One that asks for no neighbors: a node's id and features are enough. Correct-and-smooth needs such."""

    @abstractmethod
    def logits(
        self, node_ids: Integer[np.ndarray, " seeds"], features: Float[Tensor, "seeds in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """Of any nodes."""

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """Of the seeds."""
        return self.logits(sample.seeds, features[: sample.num_seeds])


class MLP(NodeBaseline):
    """Features alone: f(x)."""

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        self.f = network(shape, self.in_dim, out_dim)

    def logits(
        self, node_ids: Integer[np.ndarray, " seeds"], features: Float[Tensor, "seeds in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """f(x)."""
        result: Tensor = self.f(features)
        return result


class _Smoothed(NodeBaseline):
    """A network on rows of S^k X, which are made when the first is asked for and kept in host memory."""

    f: models.MLP
    powers: range

    def logits(
        self, node_ids: Integer[np.ndarray, " seeds"], features: Float[Tensor, "seeds in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """f of a row of all powers."""
        # One in place of two tables, where the model is moved to another dtype.
        if self._table is None or self._table.dtype != features.dtype:
            self._table = hops(self.graph, self.powers, features.dtype, normalize=self.shape.normalize)
        rows = self._table[torch.from_numpy(node_ids.astype(np.int64))].flatten(1)
        result: Tensor = self.f(rows.to(features.device))
        return result

    _table: Tensor | None = None


class SGC(_Smoothed):
    """Simple graph convolution (Wu et al., 2019): a linear classifier, W S^K x + b."""

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        self.powers = range(shape.steps, shape.steps + 1)
        self.f = models.MLP([self.in_dim, out_dim], input_dropout=shape.input_dropout)


class SIGN(_Smoothed):
    """Inception-like (Frasca et al., 2020): f([x, S x, ..., S^K x])."""

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        self.powers = range(shape.steps + 1)
        self.f = network(replace(shape, normalize=False), len(self.powers) * self.in_dim, out_dim)


class APPNP(Baseline):
    """Predict, then propagate (Gasteiger et al., 2019): Z = f(X), K times Y <- (1 - t) S Y + t Z."""

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        self.f = network(shape, self.in_dim, out_dim)

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """Y^(K) of the seeds; S is that of the sample."""
        Z: Tensor = self.f(features).to(features.dtype)
        return spread(sample, Z, Z, self.shape.restart, self.shape.steps)[: sample.num_seeds]


def network(shape: Shape, in_dim: int, out_dim: int) -> models.MLP:
    """`layers` layers of width `hidden`; `residual` is a Linear past them all."""
    return models.MLP(
        [in_dim, *[shape.hidden] * (shape.layers - 1), out_dim],
        dropout=shape.dropout,
        input_dropout=shape.input_dropout,
        skip=shape.residual,
        normalize=shape.normalize,
    )
