"""Steps past the last one, towards the exact minimizer: for bounds, not for models."""

from collections.abc import Iterator
from itertools import islice
from math import sqrt

import torch
from torch import Tensor

from musegnn.unfolding.contract import AbstractProblem
from musegnn.unfolding.penalty import Rows, Scalar

_STEPS, _CHECK_EVERY = 40, 4


def nearer(problem: AbstractProblem, Y: Rows, Z: Rows) -> Iterator[tuple[Rows, Rows]]:
    """Points on the way from Y to Y*, and where the step to each of them started.

    Accelerated proximal descent (FISTA); the momentum begins anew whenever it points uphill.
    """
    a, U, weight = problem.majorizer(), Y, 1.0
    while True:
        before, Y = Y, problem.stepped(U, Z, a)
        yield Y, U
        if _points_uphill(U, Y, before, a):
            weight = 1.0
        grown = (1 + sqrt(1 + 4 * weight**2)) / 2
        U, weight = Y + (weight - 1) / grown * (Y - before), grown


def _points_uphill(U: Rows, Y: Rows, before: Rows, a: Tensor) -> bool:
    return float(((U - Y) * (Y - before) / a).sum()) > 0


@torch.no_grad()
def tightened(problem: AbstractProblem, Y: Rows, Z: Rows, bound: Scalar) -> Scalar:
    """A bound of |Y - Y*|, no larger than the one that is known, by a point W nearer to Y*.

    |Y - Y*| <= |Y - W| + |W - Y*|,   W up to 40 steps on, until the second is no more than the first.
    The problem should have float64, and `has_one_minimum`.
    """
    for W, U in islice(nearer(problem, Y, Z), _CHECK_EVERY - 1, _STEPS, _CHECK_EVERY):
        apart, rest = (Y - W).norm(), problem.error_bound(W, Z, U)
        bound = torch.minimum(bound, apart + rest)
        if bool(rest <= apart):
            break
    return bound
