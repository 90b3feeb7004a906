"""What an energy must offer: the loop, the trainer and the explainer ask for nothing else."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import scipy.sparse
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.unfolding.bonds import Bond
from musegnn.unfolding.kernel import Kernel
from musegnn.unfolding.penalty import Penalty, Rows, Scalar
from musegnn.unfolding.resident import Matrix
from musegnn.unfolding.snapshot import as_it_is
from musegnn.unfolding.subgraph import as_sample

Alpha = float | Literal["auto"]
Subgraph = Sample | Graph | Tensor
"""A sample, a whole graph, or an `edge_index`."""
Seen = Bool[Tensor, " nodes"]
Acceleration = Literal["none", "momentum", "chebyshev"]


class Wanted(NamedTuple):
    """Which gradients are asked for beside those of U and Z."""

    mu: bool
    learned: bool


class Back(NamedTuple):
    """The gradients of what a step Y = prox(U - a (H U - b(Z))) is made of, from dY; None: not wanted."""

    U: Rows
    Z: Rows
    mu: Rows | None
    learned: list[Tensor | None]
    """Of what `AbstractEnergy.learned` names, in its order; none where they are not wanted."""


_ROUNDING = 16
"""Units in the last place that a step may be off."""


class AbstractProblem(ABC):
    """An energy on one subgraph: a convex quadratic and a penalty.

        E(Y) = <Y, H Y> - 2 <Y, b(Z)> + const + sum_i zeta(Y_i)        H symmetric, H >= tau > 0

    A step is U -> prox(U - a (H U - b(Z))), row i with its own step size a_i and the prox at a_i / 2, since
    H U - b(Z) is half the gradient. The Hessian of a function is symmetric: H is its own adjoint.
    Everything is computed with differentiable functions of torch unless `fused` says better.
    """

    has_one_minimum = True
    """Whether H is the same wherever Y is, so that every step comes nearer to one Y*."""
    dtypes = frozenset({torch.float32, torch.float64})
    """Of rows that steps are made of as they are; others are made wider first."""

    def __init__(
        self, penalty: Penalty, alpha: float, rows: Float[Tensor, "nodes 1"], *, proven: bool
    ) -> None:
        self.penalty = penalty
        self.alpha = alpha
        """The step size, as one number; a preconditioner makes it one for each row."""
        self.rows = rows
        """a_i."""
        self.is_proven = proven
        """Whether a_i is known to descend. If not, the energy is watched."""

    @abstractmethod
    def terms(self, Y: Rows, Z: Rows) -> dict[str, Scalar]:
        """The energy, term by term."""

    @abstractmethod
    def product(self, Y: Rows) -> Rows:
        """H Y."""

    @abstractmethod
    def target(self, Z: Rows) -> Rows:
        """b(Z); H Y = b(Z) at the minimum if there is no penalty."""

    @property
    @abstractmethod
    def tau(self) -> float:
        """A number below every eigenvalue of H, or equal to the least."""

    @property
    @abstractmethod
    def sigma(self) -> float:
        """A number above every eigenvalue of H."""

    def fused(self) -> Kernel | None:
        """The step as a kernel, if there is one and its bits suffice to go back: nothing else is learned."""
        return None

    def majorizer(self) -> Float[Tensor, "nodes 1"]:
        """a_i with H <= diag(1 / a), as momentum needs it; a step alone is content with H < diag(2 / a)."""
        return self.rows / 2

    def matrix(self) -> scipy.sparse.csr_array | None:
        """H as a sparse matrix for all columns of Y alike, if it is one."""
        return None

    def curved(self, at: Rows, Y: Rows) -> Rows:
        """H Y; of what is a quadratic only near a point, that of the one `at` it."""
        return self.product(Y)

    def stepped(self, U: Rows, Z: Rows, a: Float[Tensor, "nodes 1"]) -> Rows:
        """prox_{a/2}(U - a (H U - b(Z))), a step of any size."""
        return self.penalty.prox(torch.addcmul(U, a, self.half_gradient(U, Z), value=-1), a / 2)

    @property
    def goes_back(self) -> bool:
        """Whether `back` can be had. If not, autograd goes back through `stepped`."""
        return False

    @property
    def looks_at_end(self) -> bool:
        """Whether `back` asks where a step has led; if not, Y^K need not be kept for it."""
        return False

    def back(self, U: Rows, Y: Rows | None, G: Rows, a: Float[Tensor, "nodes 1"], wanted: Wanted) -> Back:
        """The way back of `stepped`, from U to Y, written out by hand; G is dY."""
        raise NotImplementedError(f"{type(self).__name__}.goes_back is true, so that it must have `back`.")

    def value(self, Y: Rows, Z: Rows) -> Scalar:
        """E(Y)."""
        return torch.stack(list(self.terms(Y, Z).values())).sum()

    def consensus(self, Y: Rows) -> Float[Tensor, " nodes"]:
        """gamma |Y_v - mu_v|^2, by node."""
        return Y.new_zeros(len(Y))

    def bonds(self, Y: Rows, relation_names: Sequence[str] | None = None) -> Iterator[Bond]:
        """What it wants of the ends of edges, term by term, for explanations; an energy need not say."""
        return iter(())

    def heard(self, Y: Rows) -> Rows | None:
        """What its neighbors say to each node, added up, if it says. Lengths are of no matter."""
        return None

    def half_gradient(self, Y: Rows, Z: Rows) -> Rows:
        """H Y - b(Z), half the gradient of all but the penalty."""
        return self.product(Y) - self.target(Z)

    def descend(self, U: Rows, Z: Rows) -> Rows:
        """One step."""
        return self.stepped(U, Z, self.rows)

    def error_bound(self, Y: Rows, Z: Rows, start: Rows) -> Scalar:
        """At least |Y - Y*|_F, best where Y is a step from `start`, and true for any two.

            |Y - Y*| <= |Y - S| + |V| / tau,   S = prox(U - a (H U - b)),   V = (U - S) / a - H (U - S)

        with U = start. By the prox, (U - S) / a - (H U - b) is half a subgradient of the penalty at S; with
        H S - b added, V is half a subgradient of E at S, and E is 2 tau-strongly convex. No bound on H is
        needed. Y and S differ by what was rounded. This problem should have float64; what it rounds itself
        is added.
        """
        a, gradient = self.rows, self.half_gradient(start, Z)
        stepped = self.penalty.prox(start - a * gradient, a / 2)
        moved = start - stepped
        V = moved / a - self.curved(start, moved)
        rounded = (
            _ROUNDING * torch.finfo(Y.dtype).eps * (start.abs() / a + gradient.abs() + self.target(Z).abs())
        )
        bound: Tensor = (Y - stepped).norm() + (V.norm() + rounded.norm()) / self.tau
        return bound


class Stage(NamedTuple):
    """Steps on one energy."""

    energy: "AbstractEnergy"
    steps: int
    learned: list[Tensor | None]
    """Made once for all of them."""


class AbstractEnergy(nn.Module, ABC):
    """An energy with all its settings, for any subgraph. Learned ones are its parameters."""

    penalty: Penalty
    acceleration: Acceleration = "none"
    """How its steps follow each other (`musegnn.unfolding.acceleration`)."""
    dim: int | None = None
    """The width of Y, of an energy that is made for one."""
    num_relations: int = 0
    """Of the graph, that samples must tell of each entry (`Sample.relation`); 0: it need not be told."""

    def __repr__(self) -> str:
        """Its settings, on one line: what it is made of is not told."""
        return f"{type(self).__name__}({self.extra_repr()})"

    @abstractmethod
    def on(
        self, sample: Sample, mu: Rows | None, seen: Seen | None, *, like: Tensor, alpha: Alpha = "auto"
    ) -> AbstractProblem:
        """The energy on one subgraph, computed as `like` is (dtype, device), with its step size."""

    def stages(self, steps: int) -> list[Stage]:
        """Which energy the steps descend on, one behind the other, and with how many: all on this one."""
        return [Stage(self, steps, self.learned())]

    def matrices(self, sample: Sample) -> list[Matrix]:
        """What its steps read of a subgraph, so that a loader may bring it to a GPU ahead of them."""
        return [sample]

    def linearized(self) -> "AbstractEnergy":
        """A copy whose derivatives take what it has learned, and what is not quadratic in Y, as constant.

        So shares add up.
        """
        return as_it_is(self, learns=False)

    def confine(self) -> None:
        """Put what is learned back to where it may be, behind a step of the optimizer."""

    def learned(self) -> list[Tensor | None]:
        """What `on` makes of parameters alone, and their gradients are made of: those that want one."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    @classmethod
    def learned_together(cls, energies: "Sequence[AbstractEnergy]") -> list[list[Tensor | None]]:
        """What each of several energies of this class has learned."""
        return [energy.learned() for energy in energies]

    def of(
        self,
        learned: Sequence[Tensor | None],
        sample: Sample,
        mu: Rows | None,
        seen: Seen | None,
        *,
        like: Tensor,
        alpha: Alpha = "auto",
    ) -> AbstractProblem:
        """As `on`, of what `learned` has made, where that is more than the parameters themselves."""
        return self.on(sample, mu, seen, like=like, alpha=alpha)

    def problem(
        self,
        Z: Rows,
        sample: Subgraph,
        *,
        mu: Rows | None = None,
        seen: Seen | None = None,
        alpha: Alpha = "auto",
    ) -> AbstractProblem:
        """The energy on whatever is a subgraph."""
        return self.on(as_sample(sample, len(Z)), mu, seen, like=Z, alpha=alpha)

    def value(
        self, Y: Rows, Z: Rows, sample: Subgraph, *, mu: Rows | None = None, seen: Seen | None = None
    ) -> Scalar:
        """The energy of Y."""
        return self.problem(Z, sample, mu=mu, seen=seen).value(Y, Z)

    def terms(
        self, Y: Rows, Z: Rows, sample: Subgraph, *, mu: Rows | None = None, seen: Seen | None = None
    ) -> dict[str, Scalar]:
        """The energy of Y, term by term."""
        return self.problem(Z, sample, mu=mu, seen=seen).terms(Y, Z)

    def half_gradient(
        self, Y: Rows, Z: Rows, sample: Subgraph, *, mu: Rows | None = None, seen: Seen | None = None
    ) -> Rows:
        """Half the gradient of all but the penalty."""
        return self.problem(Z, sample, mu=mu, seen=seen).half_gradient(Y, Z)
