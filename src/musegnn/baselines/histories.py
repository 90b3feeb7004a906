"""What convolutions remember of earlier steps: GNNAutoScale's and GraphFM's histories, FreshGNN's cache.

Each layer hands its rows to a memory and gets back the rows that the next layer reads. Memories are moved by
training alone: an evaluation reads them, so that evaluating twice gives the same answer.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Integer
from torch import Tensor, nn

from musegnn import ops
from musegnn.baselines.contract import Shape, edges
from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.propagate import propagate

AGE_LIMIT = 200
"""Steps after which FreshGNN computes a cached row anew."""

Wider = Float[Tensor, "more dim"]
"""Rows of the sample, and of nodes behind them."""
Finish = Callable[..., Rows]
"""What comes behind a convolution; `quiet=True` for rows that must not move its statistics."""


@dataclass(frozen=True, eq=False)
class Block:
    """The matrix that all layers of one pass share."""

    sample: Sample
    degree: Integer[np.ndarray, " nodes"]
    """By which GCN scales: in the sample, or in the graph where rows outside of it are remembered."""
    inside: int
    """Rows that are computed; those behind them are remembered."""
    like: Tensor
    """Whose device and dtype the numbers below have."""

    @cached_property
    def ids(self) -> Int64[Tensor, " nodes"]:
        """Of the nodes in the graph."""
        return torch.from_numpy(self.sample.node_ids).long().to(self.like.device)

    @cached_property
    def edges(self) -> Int64[Tensor, "2 entries"]:
        """As PyG takes them."""
        return edges(self.sample, self.like.device)

    @cached_property
    def _scale(self) -> Float[Tensor, "nodes 1"]:
        return torch.from_numpy((self.degree + 1.0) ** -0.5).to(self.like)[:, None]

    @cached_property
    def _share(self) -> Float[Tensor, "nodes 1"]:
        lengths = np.maximum(np.diff(self.sample.indptr), 1)
        return torch.from_numpy(1 / lengths).to(self.like)[:, None]

    def smooth(self, X: Rows) -> Rows:
        """D'^-1/2 (A + I) D'^-1/2 X, D' = D + I."""
        X = self._scale * X
        return self._scale * (propagate(self.sample, X) + X)

    def average(self, X: Rows) -> Rows:
        """The mean of the neighbors' rows, 0 without neighbors."""
        return self._share * propagate(self.sample, X)


class Memory(nn.Module, ABC):
    """Between the layers."""

    @abstractmethod
    def open(self, sample: Sample, features: Rows) -> tuple[Block, Wider]:
        """What the layers work on, and the features of its nodes."""

    @abstractmethod
    def exchange(self, number: int, block: Block, h: Rows, finish: Finish) -> Rows:
        """The rows that layer `number + 1` reads, from what the convolution of layer `number` left."""


class NoMemory(Memory):
    """Every row is computed, from the sample alone."""

    def open(self, sample: Sample, features: Rows) -> tuple[Block, Wider]:
        """The sample."""
        return _alone(sample, features), features

    def exchange(self, number: int, block: Block, h: Rows, finish: Finish) -> Rows:
        """The same rows."""
        return finish(h)


class History(Memory):
    """GNNAutoScale: neighbors outside of the sample take part with the rows that they had when last inside.

        inside:  x_v = finish(h_v),   H_v <- x_v          outside:  x_u = H_u

    The first layer reads the true features of both, so nothing but the age of H is approximate, whatever
    edges the sample itself has: the graph's count. GraphFM's feature momentum beta moves the rows outside
    by the messages that they get from inside, which are not all of theirs; beta = 0 is GNNAutoScale:

        outside:  H_u <- (1 - beta) H_u + beta finish(h_u),   x_u = H_u

    Here h_u hears u itself as well, which the authors' GCN leaves out.
    """

    def __init__(self, graph: Graph, shape: Shape, momentum: float) -> None:
        super().__init__()
        self.graph, self.momentum = graph, momentum
        self.table: Tensor
        self.register_buffer("table", torch.zeros(shape.layers - 1, graph.num_nodes, shape.hidden))

    def open(self, sample: Sample, features: Rows) -> tuple[Block, Wider]:
        """The sample and, behind it, the neighbors outside."""
        wide = _widened(self.graph, sample)
        assert self.graph.features is not None
        rows = np.array(self.graph.features[wide.node_ids[sample.num_nodes :]])
        features = torch.cat([features, torch.from_numpy(rows).to(features)])
        ids = wide.node_ids.astype(np.int64)
        degree = self.graph.indptr[ids + 1] - self.graph.indptr[ids]
        return Block(wide, degree, sample.num_nodes, features), features

    def exchange(self, number: int, block: Block, h: Rows, finish: Finish) -> Rows:
        """Push the rows inside, pull those outside."""
        own, table = finish(h[: block.inside]), self.table[number]
        inside, outside = block.ids[: block.inside], block.ids[block.inside :]
        pulled = table[outside]
        if self.training:
            with torch.no_grad():
                if self.momentum > 0:
                    heard = finish(h[block.inside :], quiet=True).to(table)
                    pulled = torch.lerp(pulled, heard, self.momentum)
                    table[outside] = pulled
                table[inside] = own.to(table)
        return torch.cat([own, pulled.to(own)])


class Cache(Memory):
    """FreshGNN: rows that hardly change the loss are kept, and read in place of computed ones while fresh.

    After each step, the given share of the rows that reach a seed, those with the smallest |dL / dx_v|, are
    stable: computed ones among them go into the cache, cached ones that are not leave it, and so do those
    older than `AGE_LIMIT` steps. A share of 0 is no cache. What the authors save is reading the features
    below a cached row; a stored sample has read them already, so this is their estimate, not their speed.
    """

    def __init__(self, graph: Graph, shape: Shape) -> None:
        super().__init__()
        self.share = shape.momentum
        size = shape.layers - 1, graph.num_nodes
        self.table: Tensor
        self.born: Tensor
        self.clock: Tensor
        self.register_buffer("table", torch.zeros(*size, shape.hidden))
        self.register_buffer("born", torch.full(size, -1))
        self.register_buffer("clock", torch.zeros((), dtype=torch.int64))

    def open(self, sample: Sample, features: Rows) -> tuple[Block, Wider]:
        """The sample; a step of training is one more on the clock."""
        if self.training:
            self.clock += 1
        return _alone(sample, features), features

    def exchange(self, number: int, block: Block, h: Rows, finish: Finish) -> Rows:
        """Cached rows in the place of computed ones; the gradient tells later which are stable."""
        x = finish(h)
        if not self.training or self.share == 0:
            return x
        born = self.born[number, block.ids]
        is_cached = (born >= 0) & (self.clock - born <= AGE_LIMIT)
        x = torch.where(is_cached[:, None], self.table[number, block.ids].to(x), x)
        if x.requires_grad:
            x.register_hook(partial(self._sift, number, block.ids, x.detach(), is_cached))
        return x

    @torch.no_grad()
    def _sift(
        self,
        number: int,
        ids: Int64[Tensor, " nodes"],
        x: Rows,
        is_cached: Bool[Tensor, " nodes"],
        gradient: Rows,
    ) -> None:
        norm = gradient.norm(dim=1)
        # Farther from the seeds than there are layers left, a row is none of this layer's.
        reaching = norm.nonzero()[:, 0]
        order = reaching[norm[reaching].argsort(stable=True)]
        stable = order[: int(self.share * len(order))]
        is_stable = torch.zeros_like(is_cached).index_fill_(0, stable, True)
        kept, gone = is_stable & ~is_cached, is_cached & ~is_stable & (norm > 0)
        self.table[number, ids[kept]] = x[kept].to(self.table)
        self.born[number, ids[kept]] = self.clock
        self.born[number, ids[gone]] = -1


def memory_of(graph: Graph, shape: Shape) -> Memory:
    """The memory that a config asks for."""
    if shape.history == "freshgnn":
        return Cache(graph, shape)
    if shape.history == "none":
        return NoMemory()
    return History(graph, shape, shape.momentum if shape.history == "graphfm" else 0.0)


def _alone(sample: Sample, features: Rows) -> Block:
    return Block(sample, np.diff(sample.indptr), sample.num_nodes, features)


def _widened(graph: Graph, sample: Sample) -> Sample:
    """The sample's nodes, behind them all other neighbors of these, and every edge with an end inside.

    The matrix stays symmetric: rows outside hold what comes from inside.
    """
    pairs = ops.sample_neighbors(graph.indptr, graph.indices, sample.node_ids, None, 0)
    node_ids = np.concatenate([sample.node_ids, np.setdiff1d(pairs[1], sample.node_ids)])
    source, target = (ops.local_ids(node_ids, ends, graph.num_nodes) for ends in pairs)
    keys, _, _ = ops.partition_edges(source, target, None, shift=32, num_buckets=1)
    lengths, columns, _ = ops.merge_entries(keys, None, 0, len(node_ids))
    return Sample(
        node_ids=node_ids,
        indptr=np.concatenate([[0], np.cumsum(lengths)]),
        indices=columns.view(np.int32),
        num_seeds=sample.num_seeds,
        bounds=np.zeros(4),
    )
