"""What is checked before the steps and behind them: inputs, finite rows, an energy that falls."""

import warnings
from math import isfinite
from numbers import Integral

import torch
from torch import Tensor

from musegnn.errors import DivergenceError, InputError
from musegnn.unfolding.contract import AbstractEnergy, AbstractProblem, Seen
from musegnn.unfolding.penalty import Rows, SeedRows


def warn(energy: AbstractEnergy, problem: AbstractProblem) -> None:
    """Once, of a step size that is not known to descend."""
    warnings.warn(
        f"alpha={problem.alpha:g} is larger than what is known to descend for {energy}. "
        "The energy is watched; alpha='auto' descends for certain.",
        # Three frames are ours, or four of an earlier stage, and one is that of `torch.compiler.disable`.
        stacklevel=5,
    )


@torch.no_grad()
def check_falling(energies: list[float], problem: AbstractProblem, Z: Rows, start: Rows) -> None:
    """The energies of Y^0, Y^1, ... must fall; Y^0 may violate the penalty, for which it has no number."""
    values = torch.tensor(energies, dtype=torch.float64)
    if not bool(torch.isfinite(problem.penalty.value(start.detach()))):
        values = values[1:]
    first = len(energies) - len(values)
    # Sums of this many numbers are known up to a few units of sigma |Y|^2; a smaller rise says nothing.
    size = problem.sigma * (start.square().sum() + (problem.target(Z) / problem.tau).square().sum())
    slack = 8 * torch.finfo(start.dtype).eps * (values[:-1].abs().cummax(0).values + float(size))
    rises = torch.nonzero(values[1:] > values[:-1] + slack)
    if len(rises):
        at, U = int(rises[0]), start
        for _ in range(first + at):
            U = problem.descend(U, Z)
        raise DivergenceError(
            f"The energy rises at step {first + at + 1}: alpha={problem.alpha:g} is too large for this "
            "subgraph. Take alpha='auto', which descends for certain.",
            step=first + at + 1,
            energy=float(problem.value(U, Z)),
        )


@torch.no_grad()
def check_finite(Y: SeedRows, problem: AbstractProblem, Z: Rows, start: Rows, steps: int) -> None:
    """Look for NaN and inf; only then is it found out where they came from."""
    if _is_finite(Y):
        return
    U, energy = start.detach(), float(problem.value(start.detach(), Z))
    for k in range(1, steps + 1):
        U = problem.descend(U, Z)
        value = float(problem.value(U, Z))
        if not _is_finite(U):
            raise DivergenceError(
                f"The embeddings are not finite after step {k}; the last finite energy was {energy:.6g}. "
                f"Take alpha='auto' in place of {problem.alpha:g}, or scale the features down.",
                step=k,
                energy=energy,
            )
        energy = value if isfinite(value) else energy
    raise DivergenceError(
        "The embeddings are not finite. Scale the features down.", step=steps, energy=energy
    )


def _is_finite(X: Rows) -> bool:
    # One pass; the second only if the first is unsure, since a sum may overflow.
    return bool(torch.isfinite(X.sum())) or bool(torch.isfinite(X).all())


def check_given(
    Z: Rows,
    steps: int,
    energy: AbstractEnergy,
    *,
    mu: Rows | None,
    init: Rows | None,
    seen: Seen | None,
) -> None:
    """What a caller of `unfold` may have got wrong."""
    if not isinstance(Z, Tensor) or Z.ndim != 2 or not Z.is_floating_point() or not Z.shape[1]:
        got = f"{Z.dtype}{list(Z.shape)}" if isinstance(Z, Tensor) else type(Z).__name__
        raise InputError(
            f"Z must be a floating-point tensor of shape (nodes, dim), dim 1 or more; got {got}."
        )
    if isinstance(steps, bool) or not isinstance(steps, Integral) or steps < 0:
        raise InputError(f"steps must be a whole number, 0 or more; got {steps!r}.")
    check_rows(Z, mu=mu, init=init)
    if seen is not None and (seen.dtype != torch.bool or seen.shape != Z.shape[:1]):
        raise InputError(
            f"seen must be {len(Z)} booleans, one for each node; got {seen.dtype}{list(seen.shape)}."
        )
    if not isinstance(energy, AbstractEnergy):
        raise InputError(f"energy must be a musegnn.Energy or another AbstractEnergy, got {energy!r}.")


def check_rows(Z: Rows, **others: Rows | None) -> None:
    """Tensors of one shape, all finite."""
    for name, part in {"Z": Z, **others}.items():
        if part is None:
            continue
        if not isinstance(part, Tensor):
            raise InputError(f"{name} must be a tensor, got {type(part).__name__}. Take torch.as_tensor.")
        if part.shape != Z.shape:
            raise InputError(f"{name} must have the shape of Z, {tuple(Z.shape)}; got {tuple(part.shape)}.")
        if not _is_finite(part.detach()):
            raise DivergenceError(
                f"{name} has entries that are not finite. Look for NaN and inf where it is computed."
            )
