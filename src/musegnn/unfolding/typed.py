"""Energies for graphs whose neighbors differ: a learned matrix for each relation, convex in Y for any."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import expm1, inf, log
from numbers import Integral, Real
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from musegnn.errors import InputError
from musegnn.graph.relation import MAX_RELATIONS, NO_RELATIONS, names_of_ways
from musegnn.sampling.record import Sample
from musegnn.unfolding.acceleration import check_acceleration
from musegnn.unfolding.bonds import Bond
from musegnn.unfolding.contract import (
    AbstractEnergy,
    AbstractProblem,
    Acceleration,
    Alpha,
    Back,
    Seen,
    Wanted,
)
from musegnn.unfolding.mixing import Factors, Mixings, WayRows
from musegnn.unfolding.penalty import EntrywisePenalty, Penalty, Rows, Scalar, penalty_of
from musegnn.unfolding.resident import Matrix
from musegnn.unfolding.stacks import (
    Channels,
    Columns,
    Spread,
    Stack,
    WayColumns,
    gathered,
    settled,
    stacked,
)

LambdaPer = Literal["graph", "relation", "channel"]
Look = list[WayRows]


class Mixed(NamedTuple):
    """H of all ways as rows are multiplied with it, and what goes with it."""

    H: Factors
    back: Factors
    """lambda H'."""
    norms: Float[Tensor, " ways"]
    """At least |H_w|_2, also of the rounded ones."""
    lambdas: Channels


class Form(ABC):
    """sum_w lambda_w E_w on one subgraph: a convex quadratic, half its gradient sum_w scale_w R_w - P_w' M_w.

    A way is a relation, or one against its direction. `look` makes what all the rest is made of.
    """

    P: Spread
    mixed: Mixed
    scale: Channels

    @abstractmethod
    def look(self, Y: Rows) -> Look:
        """What each way makes of Y."""

    @abstractmethod
    def fold(self, Y: Rows, seen: Look) -> tuple[WayRows, WayRows]:
        """R and M, from a look, which is emptied, so that what is no longer needed makes room."""

    @abstractmethod
    def value(self, Y: Rows) -> Channels:
        """E_w(Y), channel by channel of what is squared."""

    @abstractmethod
    def bonds(self, Y: Rows, names: Sequence[str]) -> Iterator[Bond]:
        """See `AbstractProblem.bonds`; a name for each way."""

    @abstractmethod
    def heard(self, Y: Rows) -> Rows:
        """See `AbstractProblem.heard`."""

    @abstractmethod
    def slopes(self, U: Rows, of_U: Look, V: Rows, of_V: Look) -> tuple[Channels, Factors]:
        """The gradients by lambda and H of -<V, half the gradient at U>, from a look at each."""

    @abstractmethod
    def size(self) -> WayColumns:
        """Lambda_w, a number for each row, with E_w(Y) <= 2 <Y, Lambda_w Y>, if no weight is above 1."""


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return _is_number(value) and isinstance(value, Integral)


_LEARNED = 6
"""lambda, |H|_2 and the four parts that H may have."""


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
        rank: Of H_r = diag(h_r) + U_r V_r'; None or "full": any d x d matrix, 0: diagonal.
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
        rank: int | Literal["full"] | None = None,
        limit: float = 2.0,
        lambda_per: LambdaPer = "relation",
        acceleration: Acceleration = "none",
    ) -> None:
        super().__init__()
        if not _is_whole(dim) or dim < 1:
            raise InputError(f"dim must be a whole number, 1 or more, the width of Y; got {dim!r}.")
        rank = None if rank == "full" else rank
        if rank is not None and not (_is_whole(rank) and 0 <= rank <= dim):
            raise InputError(
                f"rank must be a whole number in 0..{dim}, or None (or 'full') for any matrix; got {rank!r}."
            )
        if not _is_whole(num_relations) or not 0 <= num_relations <= MAX_RELATIONS:
            raise InputError(
                f"num_relations must be a whole number in 0..{MAX_RELATIONS}, as graph.num_relations has it; "
                f"got {num_relations!r}."
            )
        if not (_is_number(lambda_) and 1e-30 <= lambda_ <= 1e30 and _is_number(gamma) and 0 <= gamma < inf):
            raise InputError(
                "lambda_ must be a number in 1e-30..1e+30, from where it is learned, and gamma one of 0 or "
                f"more; got {lambda_!r} and {gamma!r}."
            )
        if not (_is_number(limit) and (1e-6 <= limit <= 1e6 or limit == inf)):
            raise InputError(f"limit must be a number in 1e-06..1e+06, or inf; got {limit!r}.")
        self.gamma, self.num_relations, self.dim = float(gamma), num_relations, int(dim)
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

    def learned(self, mixed: tuple[Factors, Float[Tensor, " ways"]] | None = None) -> list[Tensor | None]:
        """lambda, |H|_2, and H or its parts, of all ways; then what else is learned, as by a penalty."""
        factors, norms = self.mixings() if mixed is None else mixed
        used = {id(part) for part in (self.raw_lambda, *self.mixings.parameters())}
        return [self.lambdas, norms, *factors, *(part for part in self.parameters() if id(part) not in used)]

    @classmethod
    def learned_together(cls, energies: Sequence["TypedEnergy"]) -> list[list[Tensor | None]]:  # type: ignore[override]
        """All H at once."""
        mixed = Mixings.together([energy.mixings for energy in energies])
        return [energy.learned(each) for energy, each in zip(energies, mixed, strict=True)]

    def matrices(self, sample: Sample) -> list[Matrix]:
        """All ways one below the other, and the transpose."""
        stack = stacked(sample, self.num_relations, self.ways)
        return [stack.A, stack.At]

    def names_of_ways(self, relation_names: Sequence[str] | None = None) -> list[str]:
        """Of each relation, and where it counts twice, of each direction."""
        if not self.num_relations:
            return [NO_RELATIONS]
        names = relation_names
        if names is None or len(names) != self.num_relations:
            # The one relation of a graph whose edges have a direction, and no name.
            several = [f"relation {r}" for r in range(self.num_relations)]
            names = several if self.num_relations > 1 else ["directed"]
        return list(names) if self.ways == 1 else names_of_ways(names)

    @property
    def lambdas(self) -> Float[Tensor, "terms channels"]:
        """lambda_r = softplus(raw_lambda_r) > 0; one channel stands for all."""
        return F.softplus(self.raw_lambda).expand(self._count, -1)

    @abstractmethod
    def form(self, stack: Stack, mixed: Mixed, sample: Sample, like: Tensor) -> Form:
        """sum_w lambda_w E_w, of what is learned."""

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
        if like.shape[1] != self.dim:
            raise InputError(
                f"The energy is one of {self.dim} columns, but Z has {like.shape[1]}. Make it with as many."
            )
        if alpha != "auto" and not alpha > 0:
            raise InputError(f"alpha must be a positive number or 'auto', got {alpha!r}.")
        lambdas, norms, *parts = learned[:_LEARNED]
        assert lambdas is not None
        assert norms is not None
        exact = torch.promote_types(like.dtype, torch.float32)
        lambdas, factors = lambdas.to(like.device, exact), Factors(*parts).to(exact)
        if like.dtype != exact:
            norms = norms + factors.growth(like.dtype, lambdas)
        H, back = factors.to(like.dtype), factors.transposed().weighed(lambdas).to(like.dtype)
        stack = stacked(sample, self.num_relations, self.ways)
        form = self.form(stack, Mixed(H, back, norms, lambdas), sample, like)
        size = 1.0 if alpha == "auto" else float(alpha)
        return TypedProblem(self, form, mu, seen, like, size, has_more=len(learned) > _LEARNED)


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
        form: Form,
        mu: Rows | None,
        seen: Seen | None,
        like: Tensor,
        alpha: float,
        *,
        has_more: bool = False,
    ) -> None:
        self.energy, self._form, self._has_more = energy, form, has_more
        self._mu = None if mu is None or energy.gamma == 0 else mu.to(like.device, like.dtype)
        exact = torch.promote_types(like.dtype, torch.float32)
        ones = torch.ones(len(like), 1, dtype=exact, device=like.device)
        self._gamma = energy.gamma * (ones if seen is None else seen[:, None].to(ones))
        with torch.no_grad():
            most = form.mixed.lambdas.amax(dim=1)[:, None, None]
            self._size = (most * form.size()).sum(dim=0).to(exact)
        rows = alpha / (1 + self._gamma + self._size)
        super().__init__(energy.penalty, alpha, rows, proven=alpha <= 1)
        if self.is_proven:
            # Not what is watched: an energy of rounded rows says little.
            self.dtypes = self.dtypes | {torch.bfloat16}

    def terms(self, Y: Rows, Z: Rows) -> dict[str, Scalar]:
        """fidelity, relations, consensus, penalty."""
        return {
            "fidelity": (Y - Z).square().sum(),
            "relations": (self._form.mixed.lambdas * self._form.value(Y)).sum(),
            "consensus": self.consensus(Y).sum(),
            "penalty": self.penalty.value(Y),
        }

    def consensus(self, Y: Rows) -> Float[Tensor, " nodes"]:
        """gamma |Y_v - mu_v|^2, by node."""
        if self._mu is None:
            return Y.new_zeros(len(Y))
        return (self._gamma * (Y - self._mu).square()).sum(dim=1)

    def bonds(self, Y: Rows, relation_names: Sequence[str] | None = None) -> Iterator[Bond]:
        """E_w, way by way."""
        return self._form.bonds(Y, self.energy.names_of_ways(relation_names))

    def heard(self, Y: Rows) -> Rows:
        """What is said along all ways."""
        return self._form.heard(Y)

    def product(self, Y: Rows) -> Rows:
        """H Y = (1 + gamma) Y + half the gradient of sum_w lambda_w E_w."""
        if not torch.is_grad_enabled():
            return self._settled(Y, 1 + self._gamma, -torch.ones_like(self._gamma))
        form = self._form
        R, M = form.fold(Y, form.look(Y))
        apart = (form.scale[:, None] * R).sum(dim=0)
        return ((1 + self._gamma) * Y + apart).to(Y.dtype) - gathered(form.P, M)

    def half_gradient(self, Y: Rows, Z: Rows) -> Rows:
        """H Y - b(Z), in a pass less than one by one."""
        if torch.is_grad_enabled():
            return self.product(Y) - self.target(Z)
        return self._settled(Y, 1 + self._gamma, -torch.ones_like(self._gamma), self.target(Z))

    def target(self, Z: Rows) -> Rows:
        """Z + gamma mu."""
        return Z if self._mu is None else (Z + self._gamma * self._mu).to(Z.dtype)

    def stepped(self, U: Rows, Z: Rows, a: Columns) -> Rows:
        """A step in a pass behind the products, if no tape is wanted and the penalty goes by entries."""
        if torch.is_grad_enabled() or not isinstance(self.penalty, EntrywisePenalty):
            return super().stepped(U, Z, a)
        return self._settled(U, 1 - a * (1 + self._gamma), a, self.target(Z), self.penalty)

    def _settled(
        self,
        X: Rows,
        keep: Columns,
        take: Columns,
        B: Rows | None = None,
        penalty: EntrywisePenalty | None = None,
    ) -> Rows:
        """prox_{take/2}(keep X + take (B - half the gradient of all lambda_w E_w at X))."""
        R, M = self._form.fold(X, self._form.look(X))
        return settled(self._form.P, M, R, self._form.scale, keep, take, X, B, penalty)

    @property
    def goes_back(self) -> bool:
        """Where all that is learned is lambda and H, and the penalty goes by entries."""
        return isinstance(self.penalty, EntrywisePenalty) and not self._has_more

    @property
    def looks_at_end(self) -> bool:
        """Where it goes back by hand, and a penalty keeps some entries where they are."""
        return self.goes_back and not (
            isinstance(self.penalty, EntrywisePenalty) and self.penalty.clip.is_free
        )

    def back(self, U: Rows, Y: Rows | None, G: Rows, a: Columns, wanted: Wanted) -> Back:
        """Of Y = prox(U - a (H U - b)), S where an entry of Y moves with its argument:

        V = a S * G,   dU = S * G - H V,   db = V
        dH, dlambda: of -<V, H U>, which is symmetric in U and V
        """
        assert isinstance(self.penalty, EntrywisePenalty)
        form = self._form
        V = (a * self.penalty.passed(Y, G)).to(G.dtype)
        learned, of_V = list[Tensor | None](), form.look(V)
        if wanted.learned:
            lambdas, factors = form.slopes(U, form.look(U), V, of_V)
            if form.mixed.lambdas.shape[1] == 1:
                lambdas = lambdas.sum(dim=1, keepdim=True)
            learned = [lambdas, None, *factors]
        R, M = form.fold(V, of_V)
        keep, one = 1 / a - 1 - self._gamma, torch.ones_like(a)
        dU = settled(form.P, M, R, form.scale, keep, one, V)
        dmu = (self._gamma * V).to(V.dtype) if wanted.mu and self._mu is not None else None
        return Back(dU, V, dmu, learned)

    @cached_property
    def tau(self) -> float:
        """1 + gamma, or 1 if a row is not seen: each E_w is 0 or more."""
        return 1 + (float(self._gamma.min()) if len(self._gamma) else 0.0)

    @cached_property
    def sigma(self) -> float:
        """The largest of 1 + gamma + 2 Lambda."""
        return 1 / float(self.majorizer().min()) if len(self._size) else 1 + self.energy.gamma

    def majorizer(self) -> Columns:
        """1 / (1 + gamma + 2 Lambda)."""
        return 1 / (1 + self._gamma + 2 * self._size)
