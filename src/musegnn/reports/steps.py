"""The energy step by step, term by term, with the bound of what is left to go."""

from typing import Any

import torch

from musegnn.models import MuseGNN
from musegnn.training.batches import Batch
from musegnn.training.forward import Asked, transform
from musegnn.unfolding import unfold
from musegnn.unfolding.descent import last_stage
from musegnn.unfolding.nearer import tightened
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.robust import RobustProblem

_DISTRUSTED = 0.1
"""The weight below which an edge counts for next to nothing."""
_LARGEST = 1 << 22
"""Numbers of a sample's Y for which some steps more in float64 take no more than a minute or so."""


@torch.no_grad()
def steps_of(model: MuseGNN, batch: Batch, asked: Asked, precision: str = "float32") -> dict[str, Any]:
    """Of Y^0, ..., Y^K on one sample: the terms of E(Y^k) in float64, and a bound of |Y^k - Y*| / |Y^k|.

    Of several stages the last one, from where it starts. A term is infinite where Y^0 violates the penalty;
    there is no bound before the first step. If the last is above 1, so that it says nothing, there is a tight
    one beside it, for which some steps more are taken. Of a robust energy also how much its edges count for.
    """
    model.eval()
    Z = transform(model, batch, precision=precision).float()
    mu, seen, exact = asked.mu, asked.seen, Z.double()
    known = {"mu": None if mu is None else mu.to(Z.device).double(), "seen": seen}
    given = batch.sample, model.energy, model.steps, model.alpha, mu
    (energy, steps, _), init = last_stage(Z, *given, seen=seen)
    Y = Z if init is None else init
    problem = energy.problem(exact, batch.sample, alpha=model.alpha, **known)
    stages = _earlier_stages(model, batch, Z, asked, known)
    terms, bounds = [problem.terms(Y.double(), exact)], list[float]()
    is_plain = energy.acceleration == "none"
    for k in range(1, steps + 1):
        start = Y.double()
        # Momentum does not begin in the middle.
        how = {"steps": 1, "init": Y} if is_plain else {"steps": k, "init": init}
        Y = unfold(Z, batch.sample, energy, alpha=model.alpha, mu=mu, seen=seen, **how)
        start = start if is_plain else Y.double()
        size = max(float(Y.norm()), 1e-30)
        bounds.append(float(problem.error_bound(Y.double(), exact, start)) / size)
        # Rounding may have put an entry past the edge of a constraint, by less than it can be blamed for.
        terms.append(problem.terms(problem.penalty.prox(Y.double(), 0.0), exact))
    found: dict[str, Any] = {
        "nodes": len(Z),
        "terms": {name: [float(one[name]) for one in terms] for name in terms[0]},
        "error_bounds": bounds,
        "stages": [*stages, [sum(float(value) for value in one.values()) for one in (terms[0], terms[-1])]],
    }
    if bounds and bounds[-1] > 1 and problem.has_one_minimum and Z.numel() <= _LARGEST:
        known_so_far = exact.new_tensor(bounds[-1] * size)
        found["tight_bound"] = float(tightened(problem, Y.double(), exact, known_so_far)) / size
    if isinstance(problem, RobustProblem) and len(w := problem.weights(Y.double())):
        share = float((w < _DISTRUSTED).double().mean())
        found["trust"] = {"median": float(w.median()), "below": _DISTRUSTED, "share_below": share}
    return found


def _earlier_stages(
    model: MuseGNN, batch: Batch, Z: Rows, asked: Asked, known: dict[str, Any]
) -> list[list[float]]:
    """The energy of each stage but the last, where it starts and where it ends; that of Z may be infinite."""
    Y, found, sample = Z, list[list[float]](), batch.sample
    for energy, steps, _ in model.energy.stages(model.steps)[:-1]:
        problem, start = energy.problem(Z.double(), sample, alpha=model.alpha, **known), Y
        Y = unfold(Z, sample, energy, steps, model.alpha, asked.mu, init=start, seen=asked.seen)
        ends = start.double(), problem.penalty.prox(Y.double(), 0.0)
        found.append([float(problem.value(end, Z.double())) for end in ends])
    return found
