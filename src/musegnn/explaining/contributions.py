"""Where a node's logits come from: an exact sum over the base predictions and the means of its sample.

With ReLU or without a penalty a step is linear wherever no entry changes its sign, so that on the pattern
of signs which the K steps went through, and on the pattern of g,

    Y_v = sum_j P_vj Z_j + Q_vj mu_j,     logits = J Y_v + c = sum_j J P_vj Z_j + J Q_vj mu_j + c

P and Q are the derivatives of Y_v, which the backward pass computes without a matrix: with
dB = sum_k a (S_k * G_k) it gives dZ = G_0 + dB, and dmu = gamma dB, since Z and mu enter each step together,
as Z + gamma mu, and Z is also where the steps begin. A share is derivative times input.
"""

from collections.abc import Callable, Mapping
from math import inf
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from musegnn.errors import InputError
from musegnn.explaining.explanation import Explanation, Hops
from musegnn.models import MuseGNN
from musegnn.progress import progress
from musegnn.sampling.record import Sample
from musegnn.unfolding import unfold
from musegnn.unfolding.contract import Seen
from musegnn.unfolding.descent import last_stage
from musegnn.unfolding.penalty import EntrywisePenalty, Rows

Features = Float[Tensor, "nodes in_dim"]
Directions = Float[Tensor, "out dim"]


class Split(NamedTuple):
    """J Y_v, as a sum over the nodes of the sample: the sum of all three, row by row of J."""

    base: Float[Tensor, "nodes out"]
    """J P_vj Z_j, by node j."""
    means: Float[Tensor, "nodes out"]
    """J Q_vj mu_j, by node j."""
    rest: Float[Tensor, " out"]
    """What a penalty leaves that is not homogeneous, such as L1 or a box; without one, rounding."""


@torch.inference_mode(mode=False)
def explain(
    model: MuseGNN,
    sample: Sample,
    features: Features,
    mu: Rows | None = None,
    *,
    seen: Seen | None = None,
    node: int | None = None,
    predicted: int | None = None,
    runner_up: int | None = None,
    node_name: Callable[[int], str] = str,
    class_name: Callable[[int], str] = str,
    relations: Mapping[int, str] | None = None,
) -> Explanation:
    """The logits of a node as a sum of exact shares.

    Args:
        model: In evaluation mode; its parameters are not touched.
        sample: Drawn around the node.
        features: A row for each node of the sample.
        mu: The rows of M that belong to them, where gamma is not 0.
        seen: Rows whose means exist.
        node: Its id in the graph; the first seed unless given.
        predicted: The class to explain; that of the largest logit unless given.
        runner_up: The class it is compared with; the next largest unless given.
        node_name, class_name: From a number to what a person calls it.
        relations: How the node and each of its neighbors are joined, in words.
    """
    row = row_of(sample, node)
    steps = _Steps(model, sample, features, mu, seen, row)
    logits, J = _linearized(model.g, steps.y)
    parts = steps.split(J)
    first, second = _classes(logits, predicted, runner_up)
    return Explanation(
        node=int(sample.node_ids[row]),
        predicted=first,
        runner_up=second,
        logits=_array(logits),
        nodes=sample.node_ids,
        hops=hops_from(sample, row),
        shares=_array(parts.base),
        means=_array(parts.means),
        bias=_array(logits - J @ steps.y),
        rest=_array(parts.rest),
        error_bound=steps.error_bound,
        node_name=node_name,
        class_name=class_name,
        relations=relations or {},
    )


@torch.inference_mode(mode=False)
def split_embedding(
    model: MuseGNN,
    sample: Sample,
    features: Features,
    mu: Rows | None = None,
    *,
    seen: Seen | None = None,
    node: int | None = None,
) -> Split:
    """Y_v itself, channel by channel: `base` and `means` have a row for each node of the sample."""
    steps = _Steps(model, sample, features, mu, seen, row_of(sample, node))
    return steps.split(torch.eye(len(steps.y), dtype=steps.y.dtype, device=steps.y.device))


def row_of(sample: Sample, node: int | None) -> int:
    """Where a node is in the sample; the first seed unless given."""
    rows = np.arange(1) if node is None else np.flatnonzero(sample.node_ids == node)
    if not len(rows) or not sample.num_nodes:
        raise InputError(
            f"Node {node} is not among the {sample.num_nodes:,} nodes of the sample. Draw one around it."
        )
    return int(rows[0])


def hops_from(sample: Sample, row: int) -> Hops:
    """How many edges of the sample each node is away; -1 if no path leads there."""
    hops, nearest, hop = np.full(sample.num_nodes, -1), np.array([row]), 0
    while len(nearest):
        hops[nearest] = hop
        rows = [sample.indices[sample.indptr[i] : sample.indptr[i + 1]] for i in nearest]
        around = np.unique(np.concatenate(rows))
        nearest, hop = around[hops[around] < 0], hop + 1
    return hops


def check_mode(model: MuseGNN) -> None:
    """Dropout would make each answer another one."""
    if model.training:
        raise InputError("The model is in training mode, with dropout. Call model.eval() first.")


class _Steps:
    """Y_v as a function of Z and mu, and the way back."""

    @torch.enable_grad()
    def __init__(
        self,
        model: MuseGNN,
        sample: Sample,
        features: Features,
        mu: Rows | None,
        seen: Seen | None,
        row: int,
    ) -> None:
        check_mode(model)
        Z = base_predictions(model, sample, features).requires_grad_()
        mu = None if mu is None else mu.detach().to(Z).clone().requires_grad_()
        self._inputs = [Z] if mu is None else [Z, mu]
        whole, alpha = model.energy.linearized(), model.alpha
        (energy, K, _), init = last_stage(Z, sample, whole, model.steps, alpha, mu, seen=seen)
        if energy.acceleration == "none":
            before = unfold(Z, sample, energy, max(K - 1, 0), alpha, mu, init=init, seen=seen)
            Y = unfold(Z, sample, energy, min(K, 1), alpha, mu, init=before, seen=seen)
        else:
            Y = before = unfold(Z, sample, energy, K, alpha, mu, init=init, seen=seen)
        self._Y_v = Y[row]
        with torch.no_grad():
            exact = [part.detach().double() for part in (Y, Z, before)]
            means = None if mu is None else mu.double()
            problem = energy.problem(exact[1], sample, mu=means, seen=seen, alpha=alpha)
            size = max(float(exact[0].norm()), 1e-30)
            self.error_bound = float(problem.error_bound(*exact)) / size if K else inf
        # A kernel treats all columns alike, and apart from each other; so does a matrix.
        is_alone = energy is whole and isinstance(energy.penalty, EntrywisePenalty)
        self._is_by_column = is_alone and (problem.fused() is not None or problem.matrix() is not None)

    @property
    def y(self) -> Float[Tensor, " dim"]:
        """Y_v."""
        return self._Y_v.detach()

    def split(self, J: Directions) -> Split:
        """J Y_v by node. Where columns of Y do not know of each other, one way back serves all rows of J."""
        if self._is_by_column:
            parts = [part @ J.T for part in self._times_input(torch.ones_like(self.y))]
        else:
            ways = []
            with progress("Explaining", len(J), "classes") as advance:
                for direction in J:
                    ways.append([part.sum(dim=1) for part in self._times_input(direction)])
                    advance(1)
            parts = [torch.stack(part, dim=1) for part in zip(*ways, strict=True)]
        base, means = parts if len(parts) == 2 else (parts[0], torch.zeros_like(parts[0]))
        return Split(base, means, J @ self.y - base.sum(dim=0) - means.sum(dim=0))

    def _times_input(self, G: Float[Tensor, " dim"]) -> list[Rows]:
        """Derivatives of <G, Y_v> times Z, and times mu."""
        slopes = torch.autograd.grad(self._Y_v, self._inputs, G, retain_graph=True)
        return [slope * part.detach() for slope, part in zip(slopes, self._inputs, strict=True)]


@torch.no_grad()
def base_predictions(model: MuseGNN, sample: Sample, features: Features) -> Rows:
    """Z = f(X)."""
    if len(features) != sample.num_nodes:
        raise InputError(
            f"There are {len(features):,} rows of features, but {sample.num_nodes:,} nodes. "
            "Pass a row for each node, g.features[s.node_ids]."
        )
    Z: Tensor = model.f(features)
    return Z.detach()


@torch.enable_grad()
def _linearized(g: nn.Module, y: Float[Tensor, " dim"]) -> tuple[Float[Tensor, " out"], Directions]:
    """g(y) and J, with g = J y + c around y: a row for each logit, so that one way back gives all of J."""
    with torch.no_grad():
        logits: Tensor = g(y[None])[0]
    rows = y.expand(len(logits), -1).clone().requires_grad_()
    (J,) = torch.autograd.grad(g(rows).diagonal().sum(), rows)
    return logits, J


def _classes(logits: Tensor, predicted: int | None, runner_up: int | None) -> tuple[int, int | None]:
    """The class to explain and the one to compare it with; of a single logit there is no other."""
    for name, number in (("predicted", predicted), ("runner_up", runner_up)):
        if number is not None and not 0 <= number < len(logits):
            raise InputError(f"{name} must be a class in 0..{len(logits) - 1}, got {number}.")
    order = logits.argsort(descending=True, stable=True).tolist()
    first = order[0] if predicted is None else predicted
    if runner_up == first:
        raise InputError(f"predicted and runner_up are the same class, {first}. Leave one of them out.")
    return first, next((c for c in order if c != first), None) if runner_up is None else runner_up


def _array(values: Tensor) -> Float[np.ndarray, "..."]:
    array: np.ndarray = values.detach().double().cpu().numpy()
    return array
