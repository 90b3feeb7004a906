"""What a node says, seen through its relation, is what its neighbor says."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from musegnn.errors import InputError
from musegnn.sampling.record import Laplacian, Sample
from musegnn.unfolding.bonds import Bond
from musegnn.unfolding.contract import Acceleration
from musegnn.unfolding.mixing import Factors, WayRows, scaled
from musegnn.unfolding.penalty import Penalty, Rows
from musegnn.unfolding.resident import Matrix, degree_of
from musegnn.unfolding.stacks import (
    Channels,
    Stack,
    WayColumns,
    edges_of_ways,
    gathered,
    spread,
    weighed,
)
from musegnn.unfolding.typed import Form, LambdaPer, Look, Mixed, TypedEnergy
from musegnn.unfolding.weighed_edges import apart


class Relational(TypedEnergy):
    """What a node says, seen through its relation, is what its neighbor says (after HALO).

        E_r(Y) = sum over edges i -> j of r of |s_i Y_i H_r - s_j Y_j|^2,   s = (d + 1)^-1/2, or 1
        half the gradient:  s^2 d_out Y H H' + s^2 d_in Y - s A (s Y) H' - s A' (s Y) H

    With H = I and each edge once it is the smoothness of that Laplacian.

    Args:
        laplacian: s is (d + 1)^-1/2 of "normalized", 1 of "combinatorial".

    The others are those of `TypedEnergy`, as of `Predictive`.
    """

    def __init__(
        self,
        dim: int,
        num_relations: int = 0,
        lambda_: float = 1.0,
        gamma: float = 0.0,
        prox: str | Penalty = "relu",
        *,
        laplacian: Laplacian = "normalized",
        rank: int | Literal["full"] | None = None,
        limit: float = 2.0,
        lambda_per: LambdaPer = "relation",
        acceleration: Acceleration = "none",
    ) -> None:
        shared: dict[str, Any] = {"rank": rank, "limit": limit, "lambda_per": lambda_per}
        super().__init__(dim, num_relations, lambda_, gamma, prox, **shared, acceleration=acceleration)
        if laplacian not in ("normalized", "combinatorial"):
            raise InputError(f"laplacian must be 'normalized' or 'combinatorial', got {laplacian!r}.")
        self.laplacian: Laplacian = laplacian

    def matrices(self, sample: Sample) -> list[Matrix]:
        """And all edges, where s is made of their number."""
        own = super().matrices(sample)
        return own if self.laplacian == "combinatorial" else [sample, *own]

    def form(self, stack: Stack, mixed: Mixed, sample: Sample, like: Tensor) -> Form:
        """Of each relation, lambda times the sum over edges of |s_i Y_i H - s_j Y_j|^2."""
        return _Agreement(stack, mixed, sample, self.laplacian, like)


class _Agreement(Form):
    def __init__(
        self, stack: Stack, mixed: Mixed, sample: Sample, laplacian: Laplacian, like: Tensor
    ) -> None:
        make = partial(_normalized, sample) if laplacian == "normalized" else _plain
        # Lambda counts before H', and so is in R already.
        self.mixed, self.scale = mixed, torch.ones_like(mixed.lambdas)
        self.P, (self._out, self._into, self._s) = weighed(stack, laplacian, like, make)

    def look(self, Y: Rows) -> Look:
        """Y H, P Y, and what neighbors say beyond a node, P Y - s^2 d_out Y H;  P = s A s."""
        said, heard = self.mixed.H.times(Y.expand(len(self.mixed.lambdas), -1, -1)), spread(self.P, Y)
        return [said, heard, scaled(self._out, said, heard)]

    def fold(self, Y: Rows, seen: Look) -> tuple[WayRows, WayRows]:
        """What a node hears from itself, with lambda; and lambda Y H."""
        said, beyond = seen[0], seen[2]
        seen.clear()
        lambdas = self.mixed.lambdas[:, None]
        own = scaled(lambdas * self._into, Y)
        return self.mixed.back.taken_from(own, beyond), scaled(lambdas, said)

    def value(self, Y: Rows) -> Channels:
        """The sum over edges, as s^2 d_out |Y H|^2 + s^2 d_in |Y|^2 - 2 <Y H, P Y>."""
        said, heard, beyond = self.look(Y)
        return (self._into * Y.square() - said * (beyond + heard)).sum(dim=1)

    def bonds(self, Y: Rows, names: Sequence[str]) -> Iterator[Bond]:
        """lambda |s_i Y_i H - s_j Y_j|^2."""
        said = self._s * self.mixed.H.times(Y.expand(len(names), -1, -1))
        heard, weight = self._s * Y, self.mixed.lambdas.sqrt()[:, None]
        given = zip(names, edges_of_ways(self.P, Y.device), said, heard, weight, strict=True)
        for name, edges, here, there, w in given:
            yield Bond(name, edges, here, there, apart(w * here, w * there, edges))

    def heard(self, Y: Rows) -> Rows:
        """sum_w lambda_w (P_w' Y H_w + P_w Y H_w')."""
        said, heard, _ = self.look(Y)
        along = gathered(self.P, scaled(self.mixed.lambdas[:, None], said))
        return along + self.mixed.back.times(heard).sum(dim=0)

    def slopes(self, U: Rows, of_U: Look, V: Rows, of_V: Look) -> tuple[Channels, Factors]:
        """Of -<s_i V_i H - s_j V_j, lambda (s_i U_i H - s_j U_j)>, summed over edges."""
        (said, _, beyond), (said_by_V, heard_by_V, beyond_V) = of_U, of_V
        lambdas, of_both = self.mixed.lambdas, V * U
        given = zip(said_by_V, beyond, heard_by_V, said, self._into, strict=True)
        # Way by way: products of all would be as large as they are.
        by_lambda = torch.stack(
            [
                torch.sum(sV * b + hV * s - (into * of_both).to(U.dtype), dim=0, dtype=lambdas.dtype)
                for sV, b, hV, s, into in given
            ]
        )
        by_V, by_U = (
            self.mixed.H.slopes(X.expand_as(Y), Y, lambdas) for X, Y in ((V, beyond), (U, beyond_V))
        )
        return by_lambda, by_V.plus(by_U)

    def size(self) -> WayColumns:
        """|H|^2 s^2 d_out + s^2 d_in, since |u - v|^2 <= 2 |u|^2 + 2 |v|^2."""
        return self.mixed.norms.to(self._out)[:, None, None] ** 2 * self._out + self._into


def _normalized(sample: Sample, leaving: WayColumns, arriving: WayColumns) -> tuple[WayColumns, ...]:
    """s twice, s^2 d_out, s^2 d_in, s."""
    degree = degree_of(sample, leaving.device).double()[:, None]
    s = (degree + 1).rsqrt().expand_as(leaving)
    return s, s, leaving / (degree + 1), arriving / (degree + 1), s


def _plain(leaving: WayColumns, arriving: WayColumns) -> tuple[WayColumns, ...]:
    """1 twice, d_out, d_in, 1."""
    ones = torch.ones_like(leaving)
    return ones, ones, leaving, arriving, ones
