"""Each node should be predictable from its neighbors."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from musegnn.errors import InputError
from musegnn.sampling.record import Sample
from musegnn.unfolding.bonds import Bond
from musegnn.unfolding.contract import Acceleration
from musegnn.unfolding.mixing import Factors, WayRows
from musegnn.unfolding.penalty import Penalty, Rows
from musegnn.unfolding.stacks import (
    Channels,
    Stack,
    WayColumns,
    edges_of_ways,
    spread,
    weighed,
)
from musegnn.unfolding.typed import Form, LambdaPer, Look, Mixed, TypedEnergy

Average = Literal["row", "symmetric"]


class Predictive(TypedEnergy):
    """Each node should be predictable from its neighbors of relation r, and from those against it.

        E_r(Y) = |h_r * (Y - P_r Y H_r)|^2,   h_r = 1 where a node has such a neighbor, else 0
        half the gradient:  R - P_r' R H_r',   R = h_r * (Y - P_r Y H_r)

    Args:
        average: P_r takes the mean over the neighbors ("row"), or is D_i^-1/2 A_r D_j^-1/2 ("symmetric").

    The others are those of `TypedEnergy`: d, the number of relations of the graph, where each lambda_r
    begins, gamma, the penalty, the rank of H_r, the limit of |H_r|_2, who has a lambda, how steps follow.
    """

    directions = 2

    def __init__(
        self,
        dim: int,
        num_relations: int = 0,
        lambda_: float = 1.0,
        gamma: float = 0.0,
        prox: str | Penalty = "relu",
        *,
        average: Average = "row",
        rank: int | Literal["full"] | None = None,
        limit: float = 2.0,
        lambda_per: LambdaPer = "relation",
        acceleration: Acceleration = "none",
    ) -> None:
        shared: dict[str, Any] = {"rank": rank, "limit": limit, "lambda_per": lambda_per}
        super().__init__(dim, num_relations, lambda_, gamma, prox, **shared, acceleration=acceleration)
        if average not in ("row", "symmetric"):
            raise InputError(f"average must be 'row' or 'symmetric', got {average!r}.")
        self.average = average

    def form(self, stack: Stack, mixed: Mixed, sample: Sample, like: Tensor) -> Form:
        """sum_r lambda_r |h_r * (Y - P_r Y H_r)|^2."""
        return _Prediction(stack, mixed, self.average, like)


class _Prediction(Form):
    def __init__(self, stack: Stack, mixed: Mixed, average: Average, like: Tensor) -> None:
        make = _means if average == "row" else _symmetric
        self.mixed, self.scale, self._average = mixed, mixed.lambdas, average
        self.P, (self._has,) = weighed(stack, average, like, make)

    def look(self, Y: Rows) -> Look:
        """P Y, and R = h * (Y - P Y H); a row of P without neighbors is 0."""
        PY = spread(self.P, Y)
        return [PY, self.mixed.H.taken_from(self._has.to(Y.dtype) * Y, PY)]

    def fold(self, Y: Rows, seen: Look) -> tuple[WayRows, WayRows]:
        """R, and R lambda H'."""
        R = seen[1]
        seen.clear()
        return R, self.mixed.back.times(R)

    def value(self, Y: Rows) -> Channels:
        """|R|^2."""
        return self.look(Y)[1].square().sum(dim=1)

    def bonds(self, Y: Rows, names: Sequence[str]) -> Iterator[Bond]:
        """Y_i is Y_j H, the message that its prediction is made of; lambda |R_i|^2 is paid by the node."""
        said = self.mixed.H.times(Y.expand(len(names), -1, -1))
        costs = (self.mixed.lambdas[:, None] * self.look(Y)[1].square()).sum(dim=2)
        given = zip(names, edges_of_ways(self.P, Y.device), said, costs, strict=True)
        for way, (name, edges, there, cost) in enumerate(given):
            yield Bond(name, edges, Y, there, by_node=cost, is_along=way % 2 == 0)

    def heard(self, Y: Rows) -> Rows:
        """sum_w lambda_w P_w Y H_w."""
        predicted = self._has.to(Y.dtype) * Y - self.look(Y)[1]
        return (self.mixed.lambdas[:, None] * predicted).sum(dim=0).to(Y.dtype)

    def slopes(self, U: Rows, of_U: Look, V: Rows, of_V: Look) -> tuple[Channels, Factors]:
        """Of -<R(V), lambda R(U)>:  by lambda its terms,  by H  (P V)' lambda R(U) + (P U)' lambda R(V)."""
        (PU, R), (PV, T), lambdas = of_U, of_V, self.mixed.lambdas
        # Way by way: a product of all would be as large as they are.
        by_lambda = torch.stack(
            [-torch.sum(r * t, dim=0, dtype=lambdas.dtype) for r, t in zip(R, T, strict=True)]
        )
        by_V, by_U = (self.mixed.H.slopes(*pair, lambdas) for pair in ((PV, R), (PU, T)))
        return by_lambda, by_V.plus(by_U)

    def size(self) -> WayColumns:
        """(1 + |H|) (h + |H| P'1) / 2, by |u - v|^2 <= (1 + |H|) (|u|^2 + |v|^2 / |H|) and Jensen.

        Where |P|_2 <= 1, (1 + |H|)^2 / 2; 0 of a way without edges.
        """
        norms = self.mixed.norms.to(self._has)[:, None, None]
        if self._average == "symmetric":
            return self._has.any(dim=1, keepdim=True) * ((1 + norms) ** 2 / 2).expand_as(self._has)
        return (1 + norms) * (self._has + norms * self.P.load) / 2


def _means(leaving: WayColumns, arriving: WayColumns) -> tuple[WayColumns, ...]:
    """P = D_i^-1 A; h."""
    return 1 / leaving.clamp(min=1), torch.ones_like(arriving), (leaving > 0).to(leaving)


def _symmetric(leaving: WayColumns, arriving: WayColumns) -> tuple[WayColumns, ...]:
    """P = D_i^-1/2 A D_j^-1/2; h."""
    return leaving.clamp(min=1).rsqrt(), arriving.clamp(min=1).rsqrt(), (leaving > 0).to(leaving)
