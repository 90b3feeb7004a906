"""USP: descent steps on the energy, each with a random part of the edges, right in the mean."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from musegnn import models
from musegnn.baselines.contract import Baseline, Shape
from musegnn.baselines.propagation import network
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.unfolding import Energy, unfold
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.propagate import propagate

_BLOCKS = 8
"""Blocks of nodes, in the order of their ids; the edges between two of them, or in one, are a group."""


class USP(Baseline):
    """An unbiased stochastic proximal solver: MuseGNN's energy without means, with gradients of some edges.

        E(Y) = |Y - Z|^2 + lambda sum_e |s_u Y_u - s_v Y_v|^2 + zeta(Y),   e = (u, v),   s = (d + 1)^-1/2
        Y <- relu(Y - a (Y - Z + (lambda / p) sum_{e in kept groups} ...)),   a = 1 / (1 + lambda / p)

    Each step keeps each group of edges with probability p, weighs it by 1 / p, and is short enough for the
    worst draw. p is the setting `momentum`, lambda = 1 / restart - 1, by which a full step is APPNP's with a
    ReLU behind it. Evaluation keeps all groups, which is `musegnn.unfold`. There is no public code of USP:
    this is its idea, without variance reduction.
    """

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        if not (0 < shape.momentum <= 1 and 0 < shape.restart <= 1):
            raise InputError(
                "momentum (the share of edges) and restart (1 / (1 + lambda)) of USP must be above 0 and at "
                f"most 1; got {shape.momentum} and {shape.restart}. Take 0.5 and 0.1."
            )
        self.energy = Energy(1 / shape.restart - 1)
        self.f = network(shape, self.in_dim, shape.hidden)
        self.g = models.MLP([shape.hidden, out_dim], input_dropout=shape.dropout)

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """The seeds' logits."""
        Z: Tensor = self.f(features).to(features.dtype)
        if self.training and self.shape.momentum < 1:
            Y = self.descend(Z, sample)
        else:
            Y = unfold(Z, sample, self.energy, self.shape.steps)
        result: Tensor = self.g(Y[: sample.num_seeds])
        return result

    def descend(self, Z: Rows, sample: Sample) -> Rows:
        """K steps, each with its own draw."""
        alpha = 1 / (1 + float(self.energy.lambda_) / self.shape.momentum)
        groups, Y = edge_groups(sample), Z
        for _ in range(self.shape.steps):
            draw = torch.rand(_BLOCKS, _BLOCKS).numpy() < self.shape.momentum
            half = self.half_gradient(Y, Z, sample, draw.ravel()[groups])
            Y = self.energy.penalty.prox(Y - alpha * half, alpha / 2)
        return Y

    def half_gradient(self, Y: Rows, Z: Rows, sample: Sample, is_kept: np.ndarray) -> Rows:
        """That of the kept edges, weighed by 1 / p; over all draws its mean is the energy's."""
        kept = _kept(sample, is_kept)
        degree, left = (
            torch.from_numpy(np.diff(part.indptr)).to(Y.device, Y.dtype)[:, None] for part in (sample, kept)
        )
        scale = (degree + 1).rsqrt()
        apart = left / (degree + 1) * Y - scale * propagate(kept, scale * Y)
        return Y - Z + float(self.energy.lambda_) / self.shape.momentum * apart


def edge_groups(sample: Sample) -> Integer[np.ndarray, " entries"]:
    """The group of each entry, the same for both directions of an edge."""
    order = np.empty(sample.num_nodes, dtype=np.int64)
    order[np.argsort(sample.node_ids)] = np.arange(sample.num_nodes)
    block = order * _BLOCKS // max(sample.num_nodes, 1)
    source, target = block[sample.edge_index()]
    groups: np.ndarray = np.minimum(source, target) * _BLOCKS + np.maximum(source, target)
    return groups


def _kept(sample: Sample, is_kept: np.ndarray) -> Sample:
    """The sample with some of its entries."""
    before = np.concatenate([[0], np.cumsum(is_kept)])
    return replace(sample, indptr=before[sample.indptr], indices=sample.indices[is_kept], relation=None)
