"""Energies for graphs whose neighbors differ: a learned matrix for each relation, convex in Y for any."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from math import expm1, log
from typing import Any, Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from musegnn.errors import InputError
from musegnn.graph.relation import MAX_RELATIONS
from musegnn.sampling.record import Laplacian, Sample
from musegnn.unfolding.acceleration import check_acceleration
from musegnn.unfolding.contract import (
    AbstractEnergy,
    AbstractProblem,
    Acceleration,
    Alpha,
    Seen,
)
from musegnn.unfolding.mixing import Factors, Mixings
from musegnn.unfolding.penalty import Penalty, Rows, Scalar, penalty_of
from musegnn.unfolding.propagate import Weights, weighed
from musegnn.unfolding.resident import degree_of
from musegnn.unfolding.ties import Columns, Tie, along, kept, ties

Average = Literal["row", "symmetric"]
LambdaPer = Literal["graph", "relation", "channel"]
Channels = Float[Tensor, " channels"]


class Mixed(NamedTuple):
    """H_r in float32 or more, and at least |H_r|_2, also when it is rounded to what rows are kept in."""

    H: Factors
    norm: Float[Tensor, ""]


class Term(ABC):
    """E_r on one subgraph: a convex quadratic."""

    @abstractmethod
    def value(self, Y: Rows) -> Channels:
        """E_r(Y), channel by channel of what is squared."""

    @abstractmethod
    def add_half_gradient(self, total: Rows, Y: Rows) -> Rows:
        """total + half of the gradient of <lambda_r, E_r>; `total` may be written to."""

    @abstractmethod
    def size(self) -> Columns:
        """Lambda_r, a number for each row, with E_r(Y) <= 2 <Y, Lambda_r Y>, if no weight is above 1."""


class TypedEnergy(AbstractEnergy):
    """E(Y) = |Y - Z|^2 + sum_r lambda_r E_r(Y; H_r) + gamma |Y - mu|^2 + sum_i zeta(Y_i); lambda, H learned.

    Args:
        dim: d.
        num_relations: R, of the graph; 0 where it has none: then there is one, without a direction.
        lambda_: Where each lambda_r begins.
        lambda_per: Whether all terms share a lambda ("graph"), each has one ("relation"), or one for each of
            its channels ("channel").
        gamma: Weight of the means.
        prox: The penalty zeta.
        rank: Of H_r = diag(h_r) + U_r V_r'; None: any d x d matrix, 0: diagonal.
        limit: Of |H_r|_2; the larger it is, the smaller are the steps.
        acceleration: "none", "momentum" or, without a penalty, "chebyshev".
    """

    directions = 1
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
        limit: float = 2.0,
        lambda_per: LambdaPer = "relation",
        acceleration: Acceleration = "none",
    ) -> None:
        super().__init__()
        if not limit > 0 or (rank is not None and rank < 0):
            raise InputError(f"limit must be above 0, and rank 0 or more or None; got {limit} and {rank}.")
        if lambda_ <= 0 or gamma < 0 or not 0 <= num_relations <= MAX_RELATIONS:
            raise InputError(
                f"lambda_ must be above 0, gamma 0 or more, and num_relations in 0..{MAX_RELATIONS}; "
                f"got {lambda_}, {gamma} and {num_relations}."
            )
        self.gamma, self.num_relations = float(gamma), num_relations
        self.begins_at, self.rank = float(lambda_), rank
        self.penalty = penalty_of(prox)
        self.limit = float(limit)
        self.acceleration = check_acceleration(acceleration, prox)
        # Without relations an edge has no direction.
        self.ways = self.directions if num_relations else 1
        count = self.ways * max(1, num_relations)
        self.mixings, self._count = Mixings(count, dim, rank, self.limit), count
        shape = {"graph": (1, 1), "relation": (count, 1), "channel": (count, dim)}
        if lambda_per not in shape:
            raise InputError(f"lambda_per must be one of {', '.join(shape)}; got {lambda_per!r}.")
        self.lambda_per: LambdaPer = lambda_per
        self.raw_lambda = nn.Parameter(torch.full(shape[lambda_per], lambda_ + log(-expm1(-lambda_))))

    def extra_repr(self) -> str:
        """The settings."""
        rank = "" if self.rank is None else f", rank={self.rank}"
        return f"num_relations={self.num_relations}, lambda_={self.begins_at:g}, gamma={self.gamma:g}{rank}"

    def learned(self) -> list[Tensor | None]:
        """lambda, |H|_2, and H or its parts, of all relations; then what else is learned, as by a penalty."""
        factors, norms = self.mixings()
        used = {id(part) for part in (self.raw_lambda, *self.mixings.parameters())}
        return [self.lambdas, norms, *factors, *(part for part in self.parameters() if id(part) not in used)]

    @property
    def lambdas(self) -> Float[Tensor, "terms channels"]:
        """lambda_r = softplus(raw_lambda_r) > 0; one channel stands for all."""
        return F.softplus(self.raw_lambda).expand(self._count, -1)

    @abstractmethod
    def term(self, tie: Tie, H: Mixed, weight: Channels, sample: Sample, like: Tensor) -> Term:
        """E_r, and how much it counts: lambda_r."""

    def on(
        self, sample: Sample, mu: Rows | None, seen: Seen | None, *, like: Tensor, alpha: Alpha = "auto"
    ) -> "TypedProblem":
        """The energy on a sample; rows that are not `seen` have no term of the means."""
        return self.of(self.learned(), sample, mu, seen, like=like, alpha=alpha)

    def of(
        self,
        learned: Sequence[Tensor | None],
        sample: Sample,
        mu: Rows | None,
        seen: Seen | None,
        *,
        like: Tensor,
        alpha: Alpha = "auto",
    ) -> "TypedProblem":
        """The same, of lambda, |H|_2 and H as they are given."""
        if self.gamma > 0 and mu is None:
            raise InputError(
                f"gamma={self.gamma:g} needs mu, the means to agree with. Pass mu=..., or gamma=0."
            )
        if alpha != "auto" and not alpha > 0:
            raise InputError(f"alpha must be a positive number or 'auto', got {alpha!r}.")
        lambdas, norms, *parts = learned[:6]
        assert lambdas is not None
        assert norms is not None
        exact = torch.promote_types(like.dtype, torch.float32)
        lambdas, there = lambdas.to(like.device, exact), ties(sample, self.num_relations)
        ways = [way for tie in there for way in (tie, tie.back)[: self.ways]]
        factors = Factors(*parts).to(exact)
        if like.dtype != exact:
            norms = norms + factors.growth(like.dtype, lambdas)
        mixed = map(Mixed, factors.each(), norms)
        terms = [self.term(*part, sample, like) for part in zip(ways, mixed, lambdas, strict=True)]
        return TypedProblem(self, terms, lambdas, mu, seen, like, 1.0 if alpha == "auto" else float(alpha))


class TypedProblem(AbstractProblem):
    """A typed energy on one subgraph: 1 + gamma <= H <= 1 + gamma + 2 Lambda.

    Lambda = sum_r lambda_r Lambda_r;
    a_i = 1 / (1 + gamma_i + Lambda_i), so that 2 / a > H: the steps descend, whatever was learned.

    Rows may be in bfloat16, and so are H and lambda H', each rounded by itself: steps descend but for what
    rounding adds to a row. Sums over neighbors, step sizes and all that is one number for a row or a term
    stay in float32.
    """

    def __init__(
        self,
        energy: TypedEnergy,
        terms: list[Term],
        lambdas: Float[Tensor, "terms channels"],
        mu: Rows | None,
        seen: Seen | None,
        like: Tensor,
        alpha: float,
    ) -> None:
        self.energy, self._terms, self._lambdas = energy, terms, lambdas
        self._mu = None if mu is None or energy.gamma == 0 else mu.to(like.device, like.dtype)
        exact = torch.promote_types(like.dtype, torch.float32)
        ones = torch.ones(len(like), 1, dtype=exact, device=like.device)
        self._gamma = energy.gamma * (ones if seen is None else seen[:, None].to(ones))
        with torch.no_grad():
            self._size = 0 * ones
            for weight, term in zip(self._lambdas, terms, strict=True):
                self._size += weight.max() * term.size()
        rows = alpha / (1 + self._gamma + self._size)
        super().__init__(energy.penalty, alpha, rows, proven=alpha <= 1)
        if self.is_proven:
            # Not what is watched: an energy of rounded rows says little.
            self.dtypes = self.dtypes | {torch.bfloat16}

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
        return self._add_terms(((1 + self._gamma) * Y).to(Y.dtype), Y)

    def half_gradient(self, Y: Rows, Z: Rows) -> Rows:
        """H Y - b(Z), in a pass less than one by one."""
        apart = Y - self.target(Z)
        return self._add_terms(apart.addcmul_(self._gamma, Y) if self.energy.gamma else apart, Y)

    def _add_terms(self, total: Rows, Y: Rows) -> Rows:
        for term in self._terms:
            total = term.add_half_gradient(total, Y)
        return total

    def target(self, Z: Rows) -> Rows:
        """Z + gamma mu."""
        return Z if self._mu is None else (Z + self._gamma * self._mu).to(Z.dtype)

    def move(self, U: Rows, Z: Rows) -> Rows:
        """A gradient step; rows in bfloat16 are never made wider."""
        if U.dtype == self.rows.dtype:
            return super().move(U, Z)
        return self.half_gradient(U, Z).mul_(-self.rows).add_(U)

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

    directions = 2

    def __init__(self, dim: int, *given: Any, average: Average = "row", **settings: Any) -> None:
        super().__init__(dim, *given, **settings)
        if average not in ("row", "symmetric"):
            raise InputError(f"average must be 'row' or 'symmetric', got {average!r}.")
        self.average = average

    def term(self, tie: Tie, H: Mixed, weight: Channels, sample: Sample, like: Tensor) -> Term:
        """|h * (Y - P Y H)|^2."""
        return _Prediction(tie, H, weight, self.average, like)


class _Prediction(Term):
    def __init__(self, tie: Tie, H: Mixed, weight: Channels, average: Average, like: Tensor) -> None:
        self._tie, self._average, self._weight = tie, average, weight
        self._H, self._norm = H.H.to(like.dtype), H.norm
        self._back = H.H.transposed().weighed(weight).to(like.dtype)
        left, right, self._has, self._load = kept(tie, average, like, self._weights)
        self._there, self._again = Weights(-left, right, self._has), Weights(-right, left, 1)

    def value(self, Y: Rows) -> Channels:
        return self._residual(Y).square().sum(dim=0)

    def add_half_gradient(self, total: Rows, Y: Rows) -> Rows:
        R = self._residual(Y)
        total = total.addcmul_(R, self._weight)
        return weighed(*self._tie.back, self._again, self._back.times(R), total)

    def size(self) -> Columns:
        """(1 + |H|) (h + |H| P'1) / 2, by |u - v|^2 <= (1 + |H|) (|u|^2 + |v|^2 / |H|) and Jensen.

        Where |P|_2 <= 1, (1 + |H|)^2 / 2.
        """
        norm = self._norm.to(self._has)
        if self._average == "symmetric":
            return ((1 + norm) ** 2 / 2).expand_as(self._has)
        return (1 + norm) * (self._has + norm * self._load) / 2

    def _residual(self, Y: Rows) -> Rows:
        """h * (Y - P Y H); a row of P without neighbors is 0."""
        return weighed(*self._tie, self._there, self._H.times(Y), Y)

    def _weights(self, leaving: Columns, arriving: Columns) -> tuple[Columns, ...]:
        """P = diag(left) A diag(right); h; P'1."""
        to, of = leaving.clamp(min=1), arriving.clamp(min=1)
        left, right = (1 / to, torch.ones_like(of)) if self._average == "row" else (to.rsqrt(), of.rsqrt())
        return left, right, (leaving > 0).to(left), right * along(self._tie.back, left)


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

    def term(self, tie: Tie, H: Mixed, weight: Channels, sample: Sample, like: Tensor) -> Term:
        """Sum over edges of |s_i Y_i H - s_j Y_j|^2."""
        return _Agreement(tie, H, weight, sample, self.laplacian, like)


class _Agreement(Term):
    def __init__(
        self, tie: Tie, H: Mixed, weight: Channels, sample: Sample, laplacian: Laplacian, like: Tensor
    ) -> None:
        self._tie, self._sample, self._weight = tie, sample, weight
        self._H, self._norm = H.H.to(like.dtype), H.norm
        self._back = H.H.transposed().weighed(weight).to(like.dtype)
        make = self._normalized if laplacian == "normalized" else self._plain
        scale, self._out, self._into = kept(tie, laplacian, like, make)
        self._scales, self._own = Weights(scale, scale), Weights(-scale, scale, self._out)

    def value(self, Y: Rows) -> Channels:
        said = self._H.times(Y)
        across = said * weighed(*self._tie, self._scales, Y)
        return (self._out * said.square() + self._into * Y.square() - 2 * across).sum(dim=0)

    def add_half_gradient(self, total: Rows, Y: Rows) -> Rows:
        own = weighed(*self._tie, self._own, Y, self._H.times(Y))
        others = self._H.times(weighed(*self._tie.back, self._scales, Y))
        apart = others.addcmul_(self._into, Y, value=-1)
        return total.addcmul_(apart, self._weight, value=-1).add_(self._back.times(own))

    def size(self) -> Columns:
        """|H|^2 s^2 d_out + s^2 d_in, since |u - v|^2 <= 2 |u|^2 + 2 |v|^2."""
        return self._norm.to(self._out) ** 2 * self._out + self._into

    def _normalized(self, leaving: Columns, arriving: Columns) -> tuple[Columns, ...]:
        """s, s^2 d_out, s^2 d_in."""
        degree = degree_of(self._sample, leaving.device).double()[:, None]
        return (degree + 1).rsqrt(), leaving / (degree + 1), arriving / (degree + 1)

    def _plain(self, leaving: Columns, arriving: Columns) -> tuple[Columns, ...]:
        return torch.ones_like(leaving), leaving, arriving
