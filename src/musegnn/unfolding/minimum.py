"""The exact minimizer, for analysis and as an oracle: all in float64, stopped by the error bound."""

from itertools import islice

import numpy as np
import scipy.sparse.linalg
import torch

from musegnn.errors import DivergenceError, InputError
from musegnn.unfolding.checks import check_rows
from musegnn.unfolding.contract import AbstractEnergy, AbstractProblem, Seen, Subgraph
from musegnn.unfolding.nearer import nearer
from musegnn.unfolding.penalty import EntrywisePenalty, Rows
from musegnn.unfolding.subgraph import as_sample

DIRECT = 20_000
"""Up to this many nodes a sparse matrix is factorized."""
_CHECK_EVERY = 10


@torch.no_grad()
def solve(
    Z: Rows,
    sample: Subgraph,
    energy: AbstractEnergy,
    mu: Rows | None = None,
    *,
    seen: Seen | None = None,
    tolerance: float = 1e-10,
    max_steps: int = 100_000,
) -> Rows:
    """Y* = argmin E(Y): |Y - Y*|_F <= tolerance * (1 + |Y|_F), by the error bound, before it has Z's dtype.

    Without a penalty H Y = b is solved, by SciPy's `splu` or by conjugate gradients; with one, or where H is
    not the same everywhere (`Robust`: then Y* is a stationary point), descent is continued, with momentum.
    """
    if not 0 < tolerance < 1:
        raise InputError(f"tolerance must lie between 0 and 1, got {tolerance}.")
    check_rows(Z, mu=mu)
    exact = Z.detach().double()
    means = None if mu is None else mu.detach().double()
    problem = energy.on(as_sample(sample, len(Z)), means, seen, like=exact)
    is_free = isinstance(problem.penalty, EntrywisePenalty) and problem.penalty.clip.is_free
    if is_free and problem.has_one_minimum:
        Y = _solve_linear(problem, exact, tolerance, max_steps)
    else:
        Y = _continue(problem, exact, tolerance, max_steps)
    bound = float(problem.error_bound(Y, exact, Y))
    if not bound <= tolerance * (1 + float(Y.norm())):
        raise _unsolved(max_steps, bound)
    return Y.to(Z.dtype)


def _solve_linear(problem: AbstractProblem, Z: Rows, tolerance: float, max_steps: int) -> Rows:
    matrix, B = problem.matrix(), problem.target(Z)
    if matrix is not None and len(Z) <= DIRECT:
        solved = scipy.sparse.linalg.splu(matrix.tocsc()).solve(B.cpu().numpy())
        return torch.from_numpy(np.ascontiguousarray(solved)).to(Z.device)
    Y = Z.clone()
    residual = B - problem.product(Y)
    direction, squared = residual.clone(), residual.square().sum()
    for _ in range(max_steps):
        if float(squared.sqrt()) / problem.tau <= tolerance * (1 + float(Y.norm())):
            return Y
        product = problem.product(direction)
        size = squared / (direction * product).sum()
        Y, residual = Y + size * direction, residual - size * product
        before, squared = squared, residual.square().sum()
        direction = residual + squared / before * direction
    raise _unsolved(max_steps, float(squared.sqrt()) / problem.tau)


def _continue(problem: AbstractProblem, Z: Rows, tolerance: float, max_steps: int) -> Rows:
    bound, start = float("inf"), problem.penalty.prox(Z, problem.majorizer() / 2)
    for Y, U in islice(nearer(problem, start, Z), _CHECK_EVERY - 1, max_steps, _CHECK_EVERY):
        bound = float(problem.error_bound(Y, Z, U))
        if bound <= tolerance * (1 + float(Y.norm())):
            return Y
    raise _unsolved(max_steps, bound)


def _unsolved(steps: int, bound: float) -> DivergenceError:
    return DivergenceError(
        f"After {steps:,} steps the minimizer is known to {bound:.3g} only. Allow more (max_steps) or a "
        "larger tolerance; the paper's energy may have precondition='jacobi'.",
        step=steps,
    )
