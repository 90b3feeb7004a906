"""Unfold an energy: K proximal steps, differentiable, watched, and with an error bound."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal, overload

import torch
from jaxtyping import Float64
from torch import Tensor

from musegnn.errors import InputError
from musegnn.sampling.record import Sample
from musegnn.unfolding.acceleration import Pace, pace_of
from musegnn.unfolding.backward import Focus, Fused, Make, Recomputed, as_they_are
from musegnn.unfolding.checks import check_falling, check_finite, check_given, warn
from musegnn.unfolding.contract import (
    AbstractEnergy,
    Alpha,
    Seen,
    Stage,
    Subgraph,
)
from musegnn.unfolding.penalty import Rows, SeedRows
from musegnn.unfolding.snapshot import as_it_is
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
    check_given(Z, steps, energy, mu=mu, init=init, seen=seen)
    subgraph = as_sample(sample, len(Z))
    stage, init = last_stage(Z, subgraph, energy, steps, alpha, mu, init, seen=seen)
    start = Z if init is None else init
    with as_they_are(Z):
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
        check_given(Z, steps, energy, mu=mu, init=None, seen=seen)
    subgraph = as_sample(sample, len(Z))
    stage, init = last_stage(Z, subgraph, energy, steps, alpha, mu, seen=seen, check=check)
    with as_they_are(Z):
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
    with as_they_are(Z):
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
        energy, self.steps, self.learned = as_it_is(stage.energy), stage.steps, stage.learned
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
        known = {id(part) for part in self.energy.parameters()}
        own = [part if id(part) in known else None for part in self.learned]
        make = _Making(self.energy, self.sample, self.seen, like, self.alpha, own)
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
        check_finite(Y, self.problem, self.Z.to(exact), self.start.to(exact), self.steps)
        if self.energies is not None:
            warn(self.energy, self.problem)
            check_falling(self.energies, self.problem, self.Z, self.start)


@dataclass(frozen=True)
class _Making(Make):
    """A problem at its pace, as `_Descent` has made it, for one step back."""

    energy: AbstractEnergy
    sample: Sample
    seen: Seen | None
    like: Tensor
    alpha: Alpha
    own: Sequence[Tensor | None]

    def __call__(self, mu: Rows | None, learned: Sequence[Tensor | None]) -> Pace:
        problem = self.energy.of(learned, self.sample, mu, self.seen, like=self.like, alpha=self.alpha)
        return pace_of(problem, self.energy.acceleration)


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


def _to(part: Rows | None, dtype: torch.dtype) -> Rows | None:
    return None if part is None else part.to(dtype)
