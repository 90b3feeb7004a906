"""Penalties zeta on the rows of Y: each has its value and its proximal operator."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import inf
from numbers import Real

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from musegnn.errors import InputError
from musegnn.ops import Clip

Rows = Float[Tensor, "nodes dim"]
SeedRows = Float[Tensor, "seeds dim"]
Scalar = Float[Tensor, ""]
Step = float | Float[Tensor, "nodes 1"]
"""The step of a prox: one number, or one for each row (with a preconditioner)."""


class Penalty(ABC):
    """zeta, a convex function of one row of Y. A user's own is a class with these two methods.

    One with parameters to be learned is an `nn.Module` too: `class Mine(musegnn.Penalty, torch.nn.Module)`.
    """

    @abstractmethod
    def value(self, Y: Rows) -> Scalar:
        """sum_i zeta(Y_i); inf where a constraint is violated."""

    @abstractmethod
    def prox(self, X: Rows, step: Step) -> Rows:
        """argmin_Y |Y - X|^2 / 2 + step * sum_i zeta(Y_i), differentiable in X."""


class EntrywisePenalty(Penalty):
    """zeta(y) = sum_f weight |y_f| where low <= y_f <= high, inf elsewhere.

    The derivative of its prox is 0 or 1 in each entry, so that a bit is all the backward pass needs to know.
    """

    @property
    @abstractmethod
    def clip(self) -> Clip:
        """weight, low and high."""

    def value(self, Y: Rows) -> Scalar:
        """weight |Y|_1, or inf."""
        weight, low, high = self.clip
        is_inside = bool(((low <= Y) & (Y <= high)).all())
        if not is_inside:
            return Y.new_full((), inf)
        return weight * Y.abs().sum() if weight else Y.new_zeros(())

    def prox(self, X: Rows, step: Step) -> Rows:
        """Shrink by step * weight, then clip to [low, high]."""
        weight, low, high = self.clip
        if weight:
            threshold = torch.as_tensor(step * weight, dtype=X.dtype, device=X.device)
            X = X - torch.clamp(X, -threshold, threshold)
        # Unlike clamp, threshold has derivative 0 at the edge itself, as the bits do.
        if low > -inf:
            X = F.threshold(X, low, low)
        if high < inf:
            X = -F.threshold(-X, -high, -high)
        return X

    def passed(self, Y: Rows | None, G: Rows) -> Rows:
        """G where an entry of Y = prox(X) moves with its entry of X, zeros elsewhere; Y if not all do."""
        weight, low, high = self.clip
        if self.clip.is_free:
            return G
        assert Y is not None
        is_free = (low < Y) & (Y < high)
        return torch.where(is_free & (Y != 0) if weight else is_free, G, 0)


@dataclass(frozen=True)
class NoPenalty(EntrywisePenalty):
    """zeta = 0: every step is linear."""

    @property
    def clip(self) -> Clip:
        """No bounds."""
        return Clip()


@dataclass(frozen=True)
class Nonnegative(EntrywisePenalty):
    """zeta(y) = 0 if y >= 0, else inf. Its prox is ReLU."""

    @property
    def clip(self) -> Clip:
        """low = 0."""
        return Clip(low=0.0)


@dataclass(frozen=True)
class Box(EntrywisePenalty):
    """zeta(y) = 0 if low <= y <= high in every entry, else inf. Its prox clips."""

    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise InputError(f"A box needs low < high, got low={self.low} and high={self.high}.")

    @property
    def clip(self) -> Clip:
        """low and high."""
        return Clip(low=self.low, high=self.high)


@dataclass(frozen=True)
class L1(EntrywisePenalty):
    """zeta(y) = weight |y|_1, and inf where an entry is negative if `nonnegative`. Its prox shrinks."""

    weight: float = 0.1
    nonnegative: bool = False

    def __post_init__(self) -> None:
        _check_weight(self.weight)

    @property
    def clip(self) -> Clip:
        """weight, and low = 0 if nonnegative."""
        return Clip(weight=self.weight, low=0.0 if self.nonnegative else -inf)


@dataclass(frozen=True)
class GroupNorm(Penalty):
    """zeta(y) = weight |y|_2: whole rows are shrunk, and set to zero when they are short."""

    weight: float = 0.1

    def __post_init__(self) -> None:
        _check_weight(self.weight)

    def value(self, Y: Rows) -> Scalar:
        """Weight times the sum of the row norms."""
        total: Tensor = self.weight * Y.norm(dim=1).sum()
        return total

    def prox(self, X: Rows, step: Step) -> Rows:
        """X max(1 - step * weight / |X_i|, 0), row by row."""
        squared = X.square().sum(dim=1, keepdim=True)
        # A row of zeros stays, and so do those around it: the least number in place of its norm says both.
        norm = torch.where(squared > 0, squared, torch.finfo(X.dtype).tiny).sqrt()
        return X * F.relu(1 - step * self.weight / norm)


def _check_weight(weight: float) -> None:
    if not isinstance(weight, Real) or not 0 <= float(weight) < inf:
        raise InputError(f"The weight of a penalty must be a finite number, 0 or more; got {weight}.")


PENALTIES: dict[str, Penalty] = {
    "none": NoPenalty(),
    "relu": Nonnegative(),
    "l1": L1(),
    "nonnegative_l1": L1(nonnegative=True),
    "group": GroupNorm(),
    "box": Box(),
}
"""By name, as `Energy(prox=...)` takes them; others are passed as objects, such as `L1(weight=0.01)`."""


def penalty_of(prox: "str | Penalty") -> Penalty:
    """A penalty by its name, or the penalty itself."""
    if isinstance(prox, Penalty):
        return prox
    if prox not in PENALTIES:
        raise InputError(
            f"prox must be a musegnn.Penalty or one of {', '.join(PENALTIES)}; got {prox!r}. "
            "Take 'relu', the default."
        )
    return PENALTIES[prox]
