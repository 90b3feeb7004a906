"""LazyGNN (Xue et al., 2023): few steps, each time from where the last time ended, forward and backward."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from musegnn.baselines.contract import Baseline, Shape
from musegnn.baselines.propagation import network, spread
from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows

Ids = Int64[Tensor, " nodes"]


class LazyGNN(Baseline):
    """APPNP, whose L steps go on from those of the last visit to the same nodes.

        Z = f(X),    Y_0 = (1 - b) Y_L^prev + b Z,   Y_{l+1} = (1 - t) S Y_l + t Z
        G = dl/dY_L, V_L = (1 - b) V_0^prev + b G,   V_l = (1 - t) S V_{l+1} + t G,   dl/dZ = V_0

    b, the setting `momentum`, is 1 for APPNP and its exact gradient; with b = 0 visits to the same sample end
    at Y* = t (I - (1 - t) S)^-1 Z. A node's first visit has no past and takes b = 1. Evaluation reads the
    past and leaves it alone, so that twice gives the same.
    """

    past: Tensor
    past_gradient: Tensor
    is_seen: Tensor
    is_traced: Tensor

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        self.f = network(shape, self.in_dim, out_dim)
        for past, seen in (("past", "is_seen"), ("past_gradient", "is_traced")):
            self.register_buffer(past, torch.zeros(graph.num_nodes, out_dim))
            self.register_buffer(seen, torch.zeros(graph.num_nodes, 1, dtype=torch.bool))

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """Y_L of the seeds."""
        ids = torch.from_numpy(sample.node_ids.astype(np.int64)).to(self.past.device)
        Y: Tensor = _Lazy.apply(self.f(features).to(self.past.dtype), self, sample, ids)
        return Y[: sample.num_seeds]

    def steps(self, sample: Sample, ids: Ids, Z: Rows, past: Tensor, is_seen: Tensor) -> Rows:
        """L steps from the past, for Y and V alike; in training they become the past."""
        start = torch.where(is_seen[ids], torch.lerp(past[ids], Z, self.shape.momentum), Z)
        Y = spread(sample, start, Z, self.shape.restart, self.shape.steps)
        if self.training:
            past[ids], is_seen[ids] = Y, True
        return Y


class _Lazy(Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, model: LazyGNN, sample: Sample, ids: Ids) -> Tensor:
        ctx.given = model, sample, ids
        return model.steps(sample, ids, Z.detach(), model.past, model.is_seen)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        model, sample, ids = ctx.given
        V = model.steps(sample, ids, grads[0], model.past_gradient, model.is_traced)
        return V, None, None, None
