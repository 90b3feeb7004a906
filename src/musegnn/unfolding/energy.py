"""The energy of the paper (eq. 4; eq. 2 on a whole graph; eq. 6 and 7 are its limits)."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from math import inf, isfinite
from numbers import Real
from typing import Literal

import numpy as np
import scipy.sparse
import torch
from jaxtyping import Float
from torch import Tensor, nn

from musegnn.errors import InputError
from musegnn.extras import has_triton
from musegnn.ops import Step
from musegnn.sampling.record import Laplacian, Sample
from musegnn.unfolding.acceleration import check_acceleration
from musegnn.unfolding.bonds import Bond, edges_of
from musegnn.unfolding.contract import AbstractEnergy, AbstractProblem, Acceleration, Alpha, Seen
from musegnn.unfolding.kernel import CpuKernel, GpuKernel, Kernel
from musegnn.unfolding.penalty import EntrywisePenalty, Penalty, Rows, Scalar, penalty_of
from musegnn.unfolding.propagate import propagate
from musegnn.unfolding.resident import degree_of, resident
from musegnn.unfolding.weighed_edges import apart

Precondition = Literal["none", "jacobi", "authors"]
Columns = Float[Tensor, "nodes 1"]


class Energy(AbstractEnergy):
    """Stay near Z, be smooth along the edges, agree with the means.

        E(Y) = |Y - Z|^2 + lambda tr(Y' L Y) + gamma |Y - mu|^2 + sum_i zeta(Y_i)             (eq. 4)
        H = (1 + gamma) I + lambda L,   half the gradient: H Y - Z - gamma mu

    Args:
        lambda_: Weight of the smoothness; a number, or an `nn.Parameter` to be learned.
        gamma: Weight of the means; likewise. 0 is eq. 6, for which no mu is needed; inf is eq. 7, Y = mu, for
            analysis (`musegnn.consensus`).
        laplacian: "normalized", L = I - D'^-1/2 (A + I) D'^-1/2 with D' = D + I, or "combinatorial", D - A.
        prox: The penalty zeta: "none", "relu", "l1", "nonnegative_l1", "group", "box", or a `Penalty`.
        precondition: "none"; "jacobi", which divides the step of a row by the diagonal of H, so that graphs
            with hubs move; or "authors", the variant of the authors' code. Its steps are the same for both
            Laplacians, its fixed point is the minimum of neither energy, and at lambda = 1 or with a large
            gamma it does not descend. It is here to repeat their ogbn-products run; else take "jacobi".
        acceleration: "none", "momentum" or, without a penalty, "chebyshev": best for the worst graph, where
            they lead nearer to the minimum in as many steps (`musegnn.unfolding.acceleration`). On one with
            few small eigenvalues plain steps do; on one with a hub, "combinatorial" needs "jacobi" more.
    """

    def __init__(
        self,
        lambda_: float | nn.Parameter = 1.0,
        gamma: float | nn.Parameter = 0.0,
        laplacian: Laplacian = "normalized",
        prox: str | Penalty = "relu",
        *,
        precondition: Precondition = "none",
        acceleration: Acceleration = "none",
    ) -> None:
        super().__init__()
        if laplacian not in ("normalized", "combinatorial"):
            raise InputError(f"laplacian must be 'normalized' or 'combinatorial', got {laplacian!r}.")
        if precondition not in ("none", "jacobi", "authors"):
            raise InputError(f"precondition must be 'none', 'jacobi' or 'authors', got {precondition!r}.")
        self.lambda_ = _weight("lambda_", lambda_)
        self.gamma = _weight("gamma", gamma)
        _check_weight("lambda_", number(lambda_), limit=False)
        _check_weight("gamma", number(gamma), limit=True)
        self.laplacian: Laplacian = laplacian
        self.penalty = penalty_of(prox)
        self.precondition = precondition
        self.acceleration = check_acceleration(acceleration, prox)
        if precondition == "authors" and acceleration != "none":
            raise InputError(
                f"precondition='authors' has steps of its own; got acceleration={acceleration!r}."
            )

    def on(
        self, sample: Sample, mu: Rows | None, seen: Seen | None, *, like: Tensor, alpha: Alpha = "auto"
    ) -> "Smoothness":
        """The energy on a sample; rows that are not `seen` have no term of the means."""
        _check_weight("lambda_", number(self.lambda_), limit=False)
        _check_weight("gamma", number(self.gamma), limit=True)
        return Smoothness(self, sample, mu, seen, like, alpha)

    @torch.no_grad()
    def confine(self) -> None:
        """lambda and gamma at 0 or more."""
        for weight in (self.lambda_, self.gamma):
            if isinstance(weight, nn.Parameter):
                weight.clamp_(min=0)

    def extra_repr(self) -> str:
        """The settings."""
        return (
            f"lambda_={number(self.lambda_):g}, gamma={number(self.gamma):g}, laplacian={self.laplacian!r}, "
            f"prox={self.penalty}, precondition={self.precondition!r}, acceleration={self.acceleration!r}"
        )


class Smoothness(AbstractProblem):
    """`Energy` on one subgraph. H = diag(h) - lambda diag(s) A diag(s) for both Laplacians:

    normalized      s = (d + 1)^-1/2     h = 1 + gamma + lambda d / (d + 1)
    combinatorial   s = 1                h = 1 + gamma + lambda d
    """

    def __init__(
        self, energy: Energy, sample: Sample, mu: Rows | None, seen: Seen | None, like: Tensor, alpha: Alpha
    ) -> None:
        self.energy, self.sample, self.like = energy, sample, like
        self._given_mu = _checked_means(mu, energy.gamma, like)
        self._exact = torch.promote_types(like.dtype, torch.float32)
        degree = degree_of(sample, like.device).double()[:, None]
        is_normalized = energy.laplacian == "normalized"
        self._scale = self._as_like((degree + 1).rsqrt() if is_normalized else torch.ones_like(degree))
        self._loop = self._as_like(degree / (degree + 1) if is_normalized else degree)
        """The diagonal of L."""
        self._degree = self._as_like(degree)
        self._seen = None if seen is None else self._as_like(seen[:, None].double())
        chosen, rows, proven = self._step_sizes(alpha)
        super().__init__(energy.penalty, chosen, rows, proven=proven)

    @property
    def gamma(self) -> "float | Tensor":
        """gamma, for each row where some are not seen."""
        gamma = self.energy.gamma
        return gamma if self._seen is None else gamma * self._seen

    @cached_property
    def tau(self) -> float:
        """1 + gamma, or 1 if a row is not seen: L has the eigenvalue 0, or nearly. A GPU is waited for."""
        gamma = number(self.energy.gamma)
        return 1 + gamma * (1.0 if self._seen is None or not len(self._seen) else float(self._seen.min()))

    @property
    def sigma(self) -> float:
        """1 + gamma + lambda lmax, with the rigorous bound of lmax, whichever rows are seen."""
        _, bound = self.sample.spectrum(self.energy.laplacian)
        return 1 + number(self.energy.gamma) + number(self.energy.lambda_) * bound

    def terms(self, Y: Rows, Z: Rows) -> dict[str, Scalar]:
        """fidelity, smoothness, consensus, penalty."""
        smoothness = self._loop * Y.square() - Y * (self._scale * self._neighbors(self._scale * Y))
        return {
            "fidelity": (Y - Z).square().sum(),
            "smoothness": (self.energy.lambda_ * smoothness).sum(),
            "consensus": self.consensus(Y).sum(),
            "penalty": self.penalty.value(Y),
        }

    def consensus(self, Y: Rows) -> Float[Tensor, " nodes"]:
        """gamma |Y_v - mu_v|^2, by node."""
        if self._mu is None:
            return Y.new_zeros(len(Y))
        squares = (Y - self._mu).square()
        if number(self.energy.gamma) == inf:
            is_there = self._seen is None or self._seen.bool()
            return torch.where((squares > 0) & is_there, inf, 0.0).sum(dim=1).to(Y.dtype)
        return (self.gamma * squares).sum(dim=1)

    def bonds(self, Y: Rows, relation_names: Sequence[str] | None = None) -> Iterator[Bond]:
        """lambda |s_i Y_i - s_j Y_j|^2."""
        said, edges = self._scale * Y, edges_of(self.sample, Y.device)
        yield Bond("smoothness", edges, said, said, number(self.energy.lambda_) * apart(said, said, edges))

    def heard(self, Y: Rows) -> Rows:
        """sum_j s_j Y_j."""
        return self._neighbors(self._scale * Y)

    def product(self, Y: Rows) -> Rows:
        """H Y."""
        return self._diagonal * Y - self.energy.lambda_ * self._scale * self._neighbors(self._scale * Y)

    def target(self, Z: Rows) -> Rows:
        """Z + gamma mu."""
        if number(self.energy.gamma) == inf:
            raise InputError(
                "gamma=inf has no steps: Y = mu (eq. 7). Take musegnn.consensus, or a finite gamma."
            )
        if self._mu is None:
            return Z
        # One pass, where gamma is a number.
        gamma = self.gamma
        return Z + gamma * self._mu if isinstance(gamma, Tensor) else torch.add(Z, self._mu, alpha=gamma)

    def descend(self, U: Rows, Z: Rows) -> Rows:
        """One step, or what the authors' code does in its place.

        "authors": (1 - a) U + a lambda E (A + I) E U + a E^2 (Z - gamma (U - mu)),   E = (1 + lambda D)^-1/2
        """
        if self.energy.precondition != "authors":
            return super().descend(U, Z)
        lambda_ = self.energy.lambda_
        E = (1 + lambda_ * self._degree).rsqrt()
        neighbors = E * self._neighbors(E * U) + E.square() * U
        pull = self.target(Z) - self.gamma * U
        moved = (1 - self.alpha) * U + self.alpha * (lambda_ * neighbors + E.square() * pull)
        return self.penalty.prox(moved, self.rows / 2)

    def fused(self) -> Kernel | None:
        """`musegnn.ops.descend`, for fixed lambda and gamma and an entrywise penalty."""
        if self.energy.learned() or not isinstance(self.penalty, EntrywisePenalty):
            return None
        if self.energy.acceleration != "none":
            return None
        if number(self.energy.gamma) == inf:
            return None
        is_on_cpu = self.like.device.type == "cpu"
        if is_on_cpu and self.like.dtype not in (torch.float32, torch.float64):
            return None
        if not is_on_cpu and not (self.like.device.type == "cuda" and has_triton()):
            return None
        lambda_ = self.energy.lambda_
        if self.energy.precondition == "authors":
            E = (1 + lambda_ * self._degree).rsqrt()
            keep = 1 - self.alpha + self.alpha * E.square() * (lambda_ - self.gamma)
            columns = keep, self.alpha * lambda_ * E, E, self.rows
        else:
            columns = (
                1 - self.rows * self._diagonal,
                self.rows * lambda_ * self._scale,
                self._scale,
                self.rows,
            )
        vectors = [column.expand(len(self.rows), 1)[:, 0].contiguous() for column in columns]
        clip = self.penalty.clip
        if is_on_cpu:
            return CpuKernel(self.sample, Step(*(vector.numpy() for vector in vectors)), clip, self.gamma)
        graph, has_edges = resident(self.sample, self.like.device), number(lambda_) > 0
        return GpuKernel(graph, vectors, clip, self.gamma, has_edges=has_edges)

    def majorizer(self) -> Columns:
        """1 / (2 h): D + A >= 0, so that H <= 2 h, whatever the preconditioner."""
        return 0.5 / self._diagonal

    def matrix(self) -> scipy.sparse.csr_array:
        """H in float64."""
        n = self.sample.num_nodes
        A = scipy.sparse.csr_array(
            (np.ones(self.sample.num_entries), self.sample.indices, self.sample.indptr), (n, n)
        )
        scale, diagonal = (
            scipy.sparse.diags_array(column.detach().double().expand(n, 1)[:, 0].cpu().numpy())
            for column in (self._scale, self._diagonal)
        )
        return (diagonal - number(self.energy.lambda_) * (scale @ A @ scale)).tocsr()

    @property
    def _mu(self) -> Rows | None:
        return None if self._given_mu is None else self._given_mu.to(self.like.device, self.like.dtype)

    @property
    def _diagonal(self) -> Columns:
        """h."""
        return 1 + self.gamma + self.energy.lambda_ * self._loop

    def _neighbors(self, X: Rows) -> Rows:
        return propagate(self.sample, X)

    def _as_like(self, column: Float[Tensor, "nodes 1"]) -> Columns:
        return column.to(self.like.device, self._exact)

    def _step_sizes(self, alpha: Alpha) -> tuple[float, Columns, bool]:
        """alpha, a_i, and whether they are known to descend."""
        if self.sigma == inf:
            return 1.0, torch.ones_like(self._scale), True
        lambda_, ones = number(self.energy.lambda_), torch.ones_like(self._scale)
        if self.energy.precondition == "authors":
            chosen = 1.0 if alpha == "auto" else _inside(alpha, inf, self.energy)
            # It is known not to descend: nobody watches for that.
            return chosen, chosen / (1 + lambda_ * self._degree), True
        if self.energy.precondition == "jacobi":
            diagonal = self._diagonal.detach()
            if alpha == "auto":
                return 1.0, 1 / diagonal, True
            # D + A >= 0, so that H <= 2 h - (1 + gamma), and P H <= 1 + share < 2; its mean eigenvalue is 1.
            share = float((lambda_ * self._loop / diagonal).max()) if len(diagonal) else 0.0
            chosen = _inside(alpha, 2.0, self.energy)
            return chosen, chosen / diagonal, chosen < 2 / (1 + share)
        if alpha != "auto":
            theta, _ = self.sample.spectrum(self.energy.laplacian)
            chosen = _inside(alpha, 2 / (self.tau + lambda_ * theta), self.energy)
        elif self.energy.laplacian == "normalized":
            chosen = 1 / (1 + number(self.energy.gamma) + lambda_)
        else:
            chosen = 1 / self.sigma
        return chosen, chosen * ones, chosen < 2 / self.sigma


def _weight(name: str, weight: object) -> float | nn.Parameter:
    """A number, or a parameter of one number; another tensor would lose its gradient on the way."""
    if isinstance(weight, Real) or (isinstance(weight, nn.Parameter) and weight.numel() == 1):
        return weight  # type: ignore[return-value]
    got = f"{type(weight).__name__}{list(weight.shape)}" if isinstance(weight, Tensor) else repr(weight)
    raise InputError(f"{name} must be a number, or an nn.Parameter of one number to be learned; got {got}.")


def number(weight: float | Tensor) -> float:
    """The value of a weight that may be learned."""
    return float(weight.detach() if isinstance(weight, Tensor) else weight)


def _inside(alpha: object, limit: float, energy: Energy) -> float:
    """A step size that does not provably diverge."""
    if isinstance(alpha, bool) or not isinstance(alpha, Real) or not float(alpha) > 0:
        raise InputError(f"alpha must be a positive number or 'auto', got {alpha!r}.")
    if not float(alpha) < limit:
        raise InputError(
            f"alpha={float(alpha):g} diverges: with lambda_={number(energy.lambda_):g}, "
            f"gamma={number(energy.gamma):g} and the {energy.laplacian} Laplacian of this subgraph it must "
            f"lie in (0, {limit:.4g}). Leave it at 'auto' to descend for certain."
        )
    return float(alpha)


def _checked_means(mu: Rows | None, gamma: float | Tensor, like: Tensor) -> Rows | None:
    # A learned gamma may be 0 now; its gradient depends on mu all the same.
    if number(gamma) == 0 and not (isinstance(gamma, Tensor) and gamma.requires_grad):
        return None
    if mu is None:
        raise InputError(
            f"gamma={number(gamma):g} needs mu, the means to agree with. Pass mu=..., or take gamma=0."
        )
    if mu.shape != like.shape:
        raise InputError(f"mu must have the shape of Z, {tuple(like.shape)}; got {tuple(mu.shape)}.")
    return mu


def _check_weight(name: str, value: float, *, limit: bool) -> None:
    if value >= 0 and (isfinite(value) or limit):
        return
    raise InputError(
        f"{name} must be a number, 0 or more{' (inf for eq. 7)' if limit else ''}; got {value}. "
        "If it is learned, call energy.confine() behind each optimizer step."
    )
