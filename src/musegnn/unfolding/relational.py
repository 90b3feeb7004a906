"""Energies for graphs whose neighbors differ: a learned matrix for each relation, convex in Y for any."""

from abc import ABC, abstractmethod
from functools import cached_property
from math import expm1, log
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from musegnn.errors import InputError
from musegnn.sampling.record import Laplacian, Sample
from musegnn.unfolding.contract import AbstractEnergy, AbstractProblem, Alpha, Seen
from musegnn.unfolding.mixing import Mixing
from musegnn.unfolding.penalty import Penalty, Rows, Scalar, penalty_of
from musegnn.unfolding.ties import Tie, along, ties

Columns = Float[Tensor, "nodes 1"]
Average = Literal["row", "symmetric"]


class Term(ABC):
    """E_r on one subgraph: a convex quadratic."""

    @abstractmethod
    def value(self, Y: Rows) -> Scalar:
        """E_r(Y)."""

    @abstractmethod
    def half_gradient(self, Y: Rows) -> Rows:
        """Half of its gradient."""

    @abstractmethod
    def size(self) -> Columns:
        """Lambda_r, a number for each row, with E_r(Y) <= 2 <Y, Lambda_r Y>."""


class TypedEnergy(AbstractEnergy):
    """E(Y) = |Y - Z|^2 + sum_r lambda_r E_r(Y; H_r) + gamma |Y - mu|^2 + sum_i zeta(Y_i); lambda, H learned.

    Args:
        dim: d.
        num_relations: R, of the graph; 0 where it has none: then there is one, each edge of it both ways.
        lambda_: Where each lambda_r begins.
        gamma: Weight of the means.
        prox: The penalty zeta.
        rank: Of H_r = diag(h_r) + U_r V_r'; None: any d x d matrix, 0: diagonal.
    """

    ways = 1
    """How often a relation counts: 2 if also against its direction, with a matrix of its own."""

    def __init__(
        self,
        dim: int,
        num_relations: int = 0,
        lambda_: float = 1.0,
        gamma: float = 0.0,
        prox: str | Penalty = "relu",
        *,
        rank: int | None = None,
    ) -> None:
        super().__init__()
        if lambda_ <= 0 or gamma < 0 or num_relations < 0:
            raise InputError(
                "lambda_ must be above 0, gamma and num_relations 0 or more; "
                f"got {lambda_}, {gamma} and {num_relations}."
            )
        self.gamma, self.num_relations = float(gamma), num_relations
        self.penalty = penalty_of(prox)
        count = self.ways * max(1, num_relations)
        self.mixings = nn.ModuleList(Mixing(dim, rank) for _ in range(count))
        self.raw_lambda = nn.Parameter(torch.full((count,), lambda_ + log(-expm1(-lambda_))))

    @property
    def uses_relations(self) -> bool:
        """Whether samples must tell the relation of each entry."""
        return self.num_relations > 0

    @property
    def lambdas(self) -> Float[Tensor, " terms"]:
        """lambda_r = softplus(raw_lambda_r) > 0."""
        return F.softplus(self.raw_lambda)

    @abstractmethod
    def term(self, tie: Tie, mixing: Mixing, sample: Sample, like: Tensor) -> Term:
        """E_r."""

    def on(
        self, sample: Sample, mu: Rows | None, seen: Seen | None, *, like: Tensor, alpha: Alpha = "auto"
    ) -> "TypedProblem":
        """The energy on a sample; rows that are not `seen` have no term of the means."""
        if self.gamma > 0 and mu is None:
            raise InputError(
                f"gamma={self.gamma:g} needs mu, the means to agree with. Pass mu=..., or gamma=0."
            )
        if alpha != "auto" and not alpha > 0:
            raise InputError(f"alpha must be a positive number or 'auto', got {alpha!r}.")
        there = ties(sample, self.num_relations)
        ways = [way for tie in there for way in (tie, tie.back)[: self.ways]]
        pairs = zip(ways, self.mixings, strict=True)
        terms = [self.term(way, mixing, sample, like) for way, mixing in pairs]  # type: ignore[arg-type]
        return TypedProblem(self, terms, mu, seen, like, 1.0 if alpha == "auto" else float(alpha))


class TypedProblem(AbstractProblem):
    """A typed energy on one subgraph: 1 + gamma <= H <= 1 + gamma + 2 Lambda.

    Lambda = sum_r lambda_r Lambda_r;
    a_i = 1 / (1 + gamma_i + Lambda_i), so that 2 / a > H: the steps descend, whatever was learned.
    """

    def __init__(
        self,
        energy: TypedEnergy,
        terms: list[Term],
        mu: Rows | None,
        seen: Seen | None,
        like: Tensor,
        alpha: float,
    ) -> None:
        self.energy, self._terms = energy, terms
        self._mu = None if mu is None or energy.gamma == 0 else mu.to(like.device, like.dtype)
        ones = torch.ones(len(like), 1, dtype=like.dtype, device=like.device)
        self._gamma = energy.gamma * (ones if seen is None else seen[:, None].to(ones))
        self._lambdas = energy.lambdas.to(like.device, like.dtype)
        with torch.no_grad():
            self._size = 0 * ones
            for weight, term in zip(self._lambdas, terms, strict=True):
                self._size += weight * term.size()
        rows = alpha / (1 + self._gamma + self._size)
        super().__init__(energy.penalty, alpha, rows, proven=alpha <= 1)

    def terms(self, Y: Rows, Z: Rows) -> dict[str, Scalar]:
        """fidelity, relations, consensus, penalty."""
        apart = torch.zeros_like(Y) if self._mu is None else self._gamma * (Y - self._mu).square()
        return {
            "fidelity": (Y - Z).square().sum(),
            "relations": (self._lambdas * torch.stack([term.value(Y) for term in self._terms])).sum(),
            "consensus": apart.sum(),
            "penalty": self.penalty.value(Y),
        }

    def product(self, Y: Rows) -> Rows:
        """H Y = (1 + gamma) Y + sum_r lambda_r half the gradient of E_r."""
        total = (1 + self._gamma) * Y
        for weight, term in zip(self._lambdas, self._terms, strict=True):
            total = total + weight * term.half_gradient(Y)
        return total

    def target(self, Z: Rows) -> Rows:
        """Z + gamma mu."""
        return Z if self._mu is None else Z + self._gamma * self._mu

    @cached_property
    def tau(self) -> float:
        """1 + gamma, or 1 if a row is not seen: each E_r is 0 or more."""
        return 1 + (float(self._gamma.min()) if len(self._gamma) else 0.0)

    @cached_property
    def sigma(self) -> float:
        """The largest of 1 + gamma + 2 Lambda."""
        return 1 / float(self.majorizer().min()) if len(self._size) else 1 + self.energy.gamma

    def majorizer(self) -> Columns:
        """1 / (1 + gamma + 2 Lambda)."""
        return 1 / (1 + self._gamma + 2 * self._size)


class Predictive(TypedEnergy):
    """Each node should be predictable from its neighbors of relation r, and from those against it.

        E_r(Y) = |h_r * (Y - P_r Y H_r)|^2,   h_r = 1 where a node has such a neighbor, else 0
        half the gradient:  R - P_r' R H_r',   R = h_r * (Y - P_r Y H_r)

    P_r takes the mean over the neighbors (`average="row"`), or is D_i^-1/2 A_r D_j^-1/2 ("symmetric").
    """

    ways = 2

    def __init__(self, dim: int, *given: Any, average: Average = "row", **settings: Any) -> None:
        super().__init__(dim, *given, **settings)
        if average not in ("row", "symmetric"):
            raise InputError(f"average must be 'row' or 'symmetric', got {average!r}.")
        self.average = average

    def term(self, tie: Tie, mixing: Mixing, sample: Sample, like: Tensor) -> Term:
        """|h * (Y - P Y H)|^2."""
        return _Prediction(tie, mixing, self.average, like)


class _Prediction(Term):
    def __init__(self, tie: Tie, mixing: Mixing, average: Average, like: Tensor) -> None:
        self._tie, self._mixing, self._average = tie, mixing, average
        to, of = (np.maximum(csr.degree, 1).astype(np.float64) for csr in tie)
        left, right = (1 / to, np.ones_like(of)) if average == "row" else (to**-0.5, of**-0.5)
        self._left, self._right = _column(left, like), _column(right, like)
        self._has = _column(tie.A.degree > 0, like)

    def value(self, Y: Rows) -> Scalar:
        return self._residual(Y).square().sum()

    def half_gradient(self, Y: Rows) -> Rows:
        R = self._residual(Y)
        return R - self._mixing.transposed(self._right * along(self._tie.back, self._left * R))

    def size(self) -> Columns:
        """h + |H|^2 P'1, by Cauchy and Schwarz; where |P|_2 <= 1, (1 + |H|)^2 / 2."""
        norm = self._mixing.norm()
        if self._average == "symmetric":
            return torch.full_like(self._has, (1 + norm) ** 2 / 2)
        return self._has + norm**2 * self._right * along(self._tie.back, self._left * self._has)

    def _residual(self, Y: Rows) -> Rows:
        """h * (Y - P Y H)."""
        return self._has * (Y - self._mixing.forward(self._left * along(self._tie, self._right * Y)))


class Relational(TypedEnergy):
    """What a node says, seen through its relation, is what its neighbor says (after HALO).

        E_r(Y) = sum over edges i -> j of r of |s_i Y_i H_r - s_j Y_j|^2,   s = (d + 1)^-1/2, or 1
        half the gradient:  s^2 d_out Y H H' + s^2 d_in Y - s A (s Y) H' - s A' (s Y) H

    With H = I and each edge once it is the smoothness of that Laplacian.
    """

    def __init__(self, dim: int, *given: Any, laplacian: Laplacian = "normalized", **settings: Any) -> None:
        super().__init__(dim, *given, **settings)
        if laplacian not in ("normalized", "combinatorial"):
            raise InputError(f"laplacian must be 'normalized' or 'combinatorial', got {laplacian!r}.")
        self.laplacian: Laplacian = laplacian

    def term(self, tie: Tie, mixing: Mixing, sample: Sample, like: Tensor) -> Term:
        """Sum over edges of |s_i Y_i H - s_j Y_j|^2."""
        degree = np.diff(sample.indptr).astype(np.float64)
        scale = (degree + 1) ** -0.5 if self.laplacian == "normalized" else np.ones_like(degree)
        return _Agreement(tie, mixing, scale, like)


class _Agreement(Term):
    def __init__(self, tie: Tie, mixing: Mixing, scale: Float[np.ndarray, " nodes"], like: Tensor) -> None:
        self._tie, self._mixing, self._scale = tie, mixing, _column(scale, like)
        self._out, self._into = (_column(scale**2 * csr.degree, like) for csr in tie)

    def value(self, Y: Rows) -> Scalar:
        said = self._mixing.forward(Y)
        across = said * self._sum(self._tie, Y)
        return (self._out * said.square() + self._into * Y.square() - 2 * across).sum()

    def half_gradient(self, Y: Rows) -> Rows:
        own = self._out * self._mixing.forward(Y) - self._sum(self._tie, Y)
        others = self._mixing.forward(self._sum(self._tie.back, Y))
        return self._mixing.transposed(own) + self._into * Y - others

    def size(self) -> Columns:
        """|H|^2 s^2 d_out + s^2 d_in, since |u - v|^2 <= 2 |u|^2 + 2 |v|^2."""
        return self._mixing.norm() ** 2 * self._out + self._into

    def _sum(self, tie: Tie, Y: Rows) -> Rows:
        return self._scale * along(tie, self._scale * Y)


def _column(values: np.ndarray, like: Tensor) -> Columns:
    return torch.from_numpy(np.ascontiguousarray(values)).to(like.device, like.dtype)[:, None]
