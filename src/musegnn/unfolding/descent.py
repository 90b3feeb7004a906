"""Unfold an energy: K proximal steps, differentiable, watched, and with an error bound."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import inf, isfinite
from numbers import Integral
from typing import Literal, overload

import torch
from jaxtyping import Float64
from torch import Tensor

from musegnn.errors import DivergenceError, InputError
from musegnn.sampling.record import Sample
from musegnn.unfolding.acceleration import Pace, pace_of
from musegnn.unfolding.backward import Focus, Fused, Recomputed
from musegnn.unfolding.contract import AbstractEnergy, AbstractProblem, Alpha, Seen, Stage, Subgraph
from musegnn.unfolding.penalty import Rows, SeedRows
from musegnn.unfolding.subgraph import as_sample


@dataclass(frozen=True)
class Trace:
    """What K steps did; of several stages (`Staged`), those of the last, and Y^0 is where it starts."""

    Y: Rows
    energies: Float64[Tensor, " steps_plus_1"]
    """E(Y^0), ..., E(Y^K); the first is inf where the start violates the penalty."""
    error_bounds: Float64[Tensor, " steps"]
    """After each step at least |Y^k - Y*|_F."""
    alpha: float

    @property
    def error_bound(self) -> float:
        """At least |Y - Y*|_F, the distance to the exact minimizer; inf if there were no steps."""
        return float(self.error_bounds[-1]) if len(self.error_bounds) else inf


@overload
def unfold(
    Z: Rows,
    sample: Subgraph,
    energy: AbstractEnergy,
    steps: int = ...,
    alpha: Alpha = ...,
    mu: Rows | None = ...,
    trace: Literal[False] = ...,
    *,
    init: Rows | None = ...,
    seen: Seen | None = ...,
) -> Rows: ...
@overload
def unfold(
    Z: Rows,
    sample: Subgraph,
    energy: AbstractEnergy,
    steps: int = ...,
    alpha: Alpha = ...,
    mu: Rows | None = ...,
    *,
    trace: Literal[True],
    init: Rows | None = ...,
    seen: Seen | None = ...,
) -> Trace: ...
@torch.compiler.disable  # type: ignore[untyped-decorator]
def unfold(
    Z: Rows,
    sample: Subgraph,
    energy: AbstractEnergy,
    steps: int = 8,
    alpha: Alpha = "auto",
    mu: Rows | None = None,
    trace: bool = False,
    *,
    init: Rows | None = None,
    seen: Seen | None = None,
) -> Rows | Trace:
    """K steps of proximal descent on an energy, from Z or from `init`.

        Y^0 = Z,   Y^k = prox_{(alpha / 2) zeta}(Y^{k-1} - alpha (H Y^{k-1} - b))

    Differentiable in Z, init, mu and the energy's parameters, once; alpha is a constant.

    Args:
        Z: f(X), a row for each node of the sample.
        sample: A `Sample`, a whole `Graph`, or an `edge_index` with both directions of each edge.
        energy: Whose steps these are.
        steps: K.
        alpha: A step size, or "auto": one that descends. What provably diverges is refused; where that is not
            known, one warning is given, and an energy that rises raises `DivergenceError`.
        mu: The rows of M that belong to the nodes.
        trace: Return a `Trace`, with energies and error bounds; costs a few products more for each step.
        init: Another start than Z.
        seen: Rows whose means exist; the others have no term of the means.
    """
    _check(Z, steps, energy, mu=mu, init=init, seen=seen)
    subgraph = as_sample(sample, len(Z))
    stage, init = last_stage(Z, subgraph, energy, steps, alpha, mu, init, seen=seen)
    start = Z if init is None else init
    observer = _Observer(stage.energy, subgraph, Z, mu, seen, alpha, start) if trace else None
    descent = _Descent(Z, subgraph, stage, alpha, mu, init, seen)
    Y = descent.run(observer)
    descent.check(Y)
    Y = Y.to(Z.dtype)
    return Y if observer is None else observer.trace(Y)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def unfold_seeds(
    Z: Rows,
    sample: Sample,
    energy: AbstractEnergy,
    steps: int = 8,
    alpha: Alpha = "auto",
    mu: Rows | None = None,
    *,
    seen: Seen | None = None,
    keeps_all: bool = False,
    check: bool = True,
) -> tuple[SeedRows, Rows | None]:
    """As `unfold`, where only the seeds' rows are asked for, or have a gradient.

    What they do not depend on is left out: the last steps of nodes far away, and the first steps back.

    Args:
        keeps_all: Return all rows of Y beside the seeds', without a gradient, as M needs them.
        check: Look for NaN and inf, and watch the energy where alpha is not known to descend. Each look waits
            until the GPU has done its work.
    """
    if check:
        _check(Z, steps, energy, mu=mu, init=None, seen=seen)
    subgraph = as_sample(sample, len(Z))
    stage, init = last_stage(Z, subgraph, energy, steps, alpha, mu, seen=seen, check=check)
    descent = _Descent(Z, subgraph, stage, alpha, mu, init, seen, watch=check)
    seeds, Y = descent.run_seeds(Focus(sample.num_seeds, keeps_all))
    if check:
        descent.check(seeds if Y is None else Y)
    return seeds.to(Z.dtype), None if Y is None else Y.to(Z.dtype)


def last_stage(
    Z: Rows,
    sample: Subgraph,
    energy: AbstractEnergy,
    steps: int,
    alpha: Alpha,
    mu: Rows | None = None,
    init: Rows | None = None,
    *,
    seen: Seen | None = None,
    check: bool = True,
) -> tuple[Stage, Rows | None]:
    """The last steps, and where they start; None: at Z."""
    *earlier, last = energy.stages(steps)
    for stage in earlier:
        descent = _Descent(Z, as_sample(sample, len(Z)), stage, alpha, mu, init, seen, watch=check)
        init = descent.run()
        if check:
            descent.check(init)
        init = init.to(Z.dtype)
    return last, init


class _Descent:
    """K steps, by a kernel where there is one."""

    def __init__(
        self,
        Z: Rows,
        sample: Sample,
        stage: Stage,
        alpha: Alpha,
        mu: Rows | None,
        init: Rows | None,
        seen: Seen | None,
        *,
        watch: bool = True,
    ) -> None:
        energy, self.steps, self.learned = stage
        if energy.acceleration != "none" and alpha != "auto":
            raise InputError(
                f"acceleration='{energy.acceleration}' has its own step sizes; got alpha={alpha}. "
                "Leave it at 'auto'."
            )
        exact = torch.promote_types(Z.dtype, torch.float32)
        like = Z.new_empty((), dtype=exact).expand(Z.shape)
        self.energy, self.sample, self.alpha, self.seen = energy, sample, alpha, seen
        with torch.no_grad():
            self.problem = energy.of(self.learned, sample, mu, seen, like=like, alpha=alpha)
        self.kernel = self.problem.fused()
        if Z.dtype not in (self.problem if self.kernel is None else self.kernel).dtypes:
            Z, mu, init = Z.to(exact), _to(mu, exact), _to(init, exact)
        elif self.kernel is None:
            mu, init = _to(mu, Z.dtype), _to(init, Z.dtype)
        self.Z, self.mu, self.init = Z, mu, init
        self.start = Z if init is None else init
        self.energies: list[float] | None = [] if watch and not self.problem.is_proven else None

    def run(self, observer: "_Observer | None" = None) -> Rows:
        """Y^K."""
        given = self.steps, observer, self.energies
        if self.kernel is not None:
            Y: Rows = Fused.apply(self.Z, self.init, self.mu, self.kernel, *given)
            return Y
        like = self.Z.detach()
        make = partial(_make, self.energy, self.sample, self.seen, like, self.alpha)
        if like.dtype == self.problem.rows.dtype:
            pace = pace_of(self.problem, self.energy.acceleration)
        else:
            with torch.no_grad():
                pace = make(self.mu, self.learned)
        Y = Recomputed.apply(self.Z, self.start, self.mu, pace, make, *given, *self.learned)
        return Y

    def run_seeds(self, focus: Focus) -> tuple[SeedRows, Rows | None]:
        """The seeds' rows of Y^K, and all of it without a gradient if it is kept."""
        # The energy is that of all rows.
        if self.kernel is None or self.energies is not None:
            Y = self.run()
            return Y[: focus.num_seeds], Y.detach() if focus.keeps_all else None
        given = self.kernel, self.steps, None, None, focus
        seeds, rest = Fused.apply(self.Z, self.init, self.mu, *given)
        return seeds, rest

    def check(self, Y: SeedRows) -> None:
        """It is finite, and the energy has fallen."""
        exact = self.problem.rows.dtype
        _check_finite(Y, self.problem, self.Z.to(exact), self.start.to(exact), self.steps)
        if self.energies is not None:
            _warn(self.energy, self.problem)
            _check_falling(self.energies, self.problem, self.Z, self.start)


def _make(
    energy: AbstractEnergy,
    sample: Sample,
    seen: Seen | None,
    like: Tensor,
    alpha: Alpha,
    mu: Rows | None,
    learned: Sequence[Tensor | None],
) -> Pace:
    """As `_Descent` has made it, for one step back."""
    problem = energy.of(learned, sample, mu, seen, like=like, alpha=alpha)
    return pace_of(problem, energy.acceleration)


class _Observer:
    """Writes down what the steps do, with exact coefficients, whatever they are computed in."""

    def __init__(
        self,
        energy: AbstractEnergy,
        sample: Sample,
        Z: Rows,
        mu: Rows | None,
        seen: Seen | None,
        alpha: Alpha,
        start: Rows,
    ) -> None:
        with torch.no_grad():
            self._Z = Z.detach().double()
            self._problem = energy.on(sample, _to(mu, torch.float64), seen, like=self._Z, alpha=alpha)
            self._energies = [self._problem.value(start.detach().double(), self._Z)]
        self._error_bounds: list[Tensor] = []
        self._last = self._Z

    @torch.no_grad()
    def __call__(self, k: int, U: Rows, Y: Rows) -> None:
        start, result = U.detach().double(), Y.detach().double()
        # Rounding may have put an entry past the edge of a constraint, by less than it can be blamed for.
        nearest = result if Y.dtype == torch.float64 else self._problem.penalty.prox(result, 0.0)
        self._energies.append(self._problem.value(nearest, self._Z))
        self._error_bounds.append(self._problem.error_bound(result, self._Z, start))
        self._last = result

    def trace(self, Y: Rows) -> Trace:
        bounds = torch.stack(self._error_bounds) if self._error_bounds else self._Z.new_empty(0)
        # What is returned was rounded once more if Z is in half precision.
        bounds[-1:] += (Y.detach().double() - self._last).norm() if len(bounds) else 0
        return Trace(Y, torch.stack(self._energies).detach().cpu(), bounds.cpu(), self._problem.alpha)


def _warn(energy: AbstractEnergy, problem: AbstractProblem) -> None:
    warnings.warn(
        f"alpha={problem.alpha:g} is larger than what is known to descend for {energy}. "
        "The energy is watched; alpha='auto' descends for certain.",
        # Three frames are ours, or four of an earlier stage, and one is that of `torch.compiler.disable`.
        stacklevel=5,
    )


@torch.no_grad()
def _check_falling(energies: list[float], problem: AbstractProblem, Z: Rows, start: Rows) -> None:
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
def _check_finite(Y: SeedRows, problem: AbstractProblem, Z: Rows, start: Rows, steps: int) -> None:
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


def _to(part: Rows | None, dtype: torch.dtype) -> Rows | None:
    return None if part is None else part.to(dtype)


def _check(
    Z: Rows,
    steps: int,
    energy: AbstractEnergy,
    *,
    mu: Rows | None,
    init: Rows | None,
    seen: Seen | None,
) -> None:
    if not isinstance(Z, Tensor) or Z.ndim != 2 or not Z.is_floating_point():
        got = f"{Z.dtype}{list(Z.shape)}" if isinstance(Z, Tensor) else type(Z).__name__
        raise InputError(f"Z must be a floating-point tensor of shape (nodes, dim), got {got}.")
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
