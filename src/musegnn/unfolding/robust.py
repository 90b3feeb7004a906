"""An energy that does not trust every edge (after TWIRLS): large disagreements count for less."""

from collections.abc import Iterator, Sequence
from math import inf
from numbers import Real

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from musegnn import ops
from musegnn.errors import InputError
from musegnn.sampling.record import Laplacian, Sample
from musegnn.unfolding.bonds import Bond, edges_of
from musegnn.unfolding.contract import (
    AbstractEnergy,
    AbstractProblem,
    Alpha,
    Seen,
    Subgraph,
)
from musegnn.unfolding.energy import Energy, Smoothness, number
from musegnn.unfolding.penalty import Penalty, Rows, Scalar
from musegnn.unfolding.resident import degree_of
from musegnn.unfolding.snapshot import as_it_is
from musegnn.unfolding.subgraph import as_sample
from musegnn.unfolding.weighed_edges import Entries, apart, differences, distances, has_kernel, weighed_sum


def _value(rho: ops.Rho, t: Entries) -> Entries:
    """rho(t)."""
    logarithm, half = t.clamp(max=rho.cutoff).log1p(), rho.power / 2
    return (half * logarithm).expm1() / half if half else logarithm


def _slope(rho: ops.Rho, t: Entries) -> Entries:
    """rho'(t)."""
    return (1 + t) ** (rho.power / 2 - 1) * (t < rho.cutoff)


class Robust(AbstractEnergy):
    """Neighbors are alike, but for some edges.

        E(Y) = |Y - Z|^2 + lambda sum_edges c rho(t_ij / c) + gamma |Y - mu|^2 + sum_i zeta(Y_i)
        t_ij = |s_i Y_i - s_j Y_j|^2,   s = (d + 1)^-1/2 or 1;   c = scale
        rho(t) = (2 / p) ((1 + t)^(p/2) - 1),   p = power; log(1 + t) of 0; constant from t = cutoff on

    p = -2 is Geman-McClure, t / (1 + t); 0 Cauchy; 1 Charbonnier. A cutoff and a p in (0, 1] is the truncated
    p-norm of TWIRLS, rounded off near 0; a cutoff of 1 and p = 2 counts min(t, 1).

    rho is concave: with the weights w_ij = rho'(t_ij / c) of the current Y it lies below
    sum_edges w_ij |s_i Y_i - s_j Y_j|^2 plus a constant, and touches it there. A step descends on that, and
    so on E; since w <= 1, the steps of `Energy` are small enough. With c to infinity it is `Energy`.

    E is not convex: an error bound is that of the distance to the minimum of the quadratic with the weights
    where the last step began, and an explanation is exact with the weights of each step held.

    Args:
        lambda_, gamma, laplacian, prox: As of `Energy`.
        power: p, at most 2; the smaller it is, the less a large disagreement counts. With 2, and no cutoff,
            it is `Energy`.
        cutoff: Where disagreement counts no further, in units of the scale.
        scale: c, the squared distance from which on it counts for less.
    """

    def __init__(
        self,
        lambda_: float | nn.Parameter = 1.0,
        gamma: float | nn.Parameter = 0.0,
        laplacian: Laplacian = "normalized",
        prox: str | Penalty = "relu",
        *,
        power: float = -2.0,
        cutoff: float = inf,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        are_numbers = all(isinstance(one, Real) for one in (power, cutoff, scale))
        if not are_numbers or not -inf < power <= 2 or not cutoff > 0 or not 0 < scale < inf:
            raise InputError(
                "power must be a number of at most 2, so that rho is concave, cutoff and scale above 0, and "
                f"scale finite; got {power!r}, {cutoff!r} and {scale!r}."
            )
        self.smooth = Energy(lambda_, gamma, laplacian, prox)
        self.laplacian: Laplacian = laplacian
        self.penalty, self.rho = self.smooth.penalty, ops.Rho(float(power), float(cutoff), float(scale))
        self._is_frozen = False

    @property
    def lambda_(self) -> float | Tensor:
        """That of `Energy`."""
        return self.smooth.lambda_

    @property
    def gamma(self) -> float | Tensor:
        """That of `Energy`."""
        return self.smooth.gamma

    def on(
        self, sample: Sample, mu: Rows | None, seen: Seen | None, *, like: Tensor, alpha: Alpha = "auto"
    ) -> "RobustProblem":
        """The energy on a sample."""
        return RobustProblem(self, self.smooth.on(sample, mu, seen, like=like, alpha=alpha))

    def confine(self) -> None:
        """As `Energy`."""
        self.smooth.confine()

    def linearized(self) -> "Robust":
        """The weights of each step are constants, too."""
        made = as_it_is(self, learns=False)
        made._is_frozen = True
        return made

    @torch.no_grad()
    def trust(self, Y: Rows, sample: Subgraph) -> Entries:
        """w of each edge: 1 where its ends agree, towards 0 where they do not. No means count here.

        Of a `Sample` or a `Graph` in the order of its entries, of an `edge_index` in its own (loops have 1).
        """
        if not isinstance(Y, Tensor) or Y.ndim != 2 or not Y.is_floating_point():
            raise InputError(
                f"Y must be a floating-point tensor of shape (nodes, dim), got {type(Y).__name__}."
            )
        given = as_sample(sample, len(Y))
        w = self.on(given, Y, None, like=Y).weights(Y)
        return _in_order_of(sample, given, w) if isinstance(sample, Tensor) else w

    def extra_repr(self) -> str:
        """The settings."""
        return f"power={self.rho.power:g}, cutoff={self.rho.cutoff:g}, scale={self.rho.scale:g}"


def _in_order_of(edge_index: Tensor, sample: Sample, w: Entries) -> Entries:
    """Of entries that lie row by row."""
    there, wanted = (
        rows.astype(np.int64) << 32 | columns
        for rows, columns in (sample.edge_index(), edge_index.cpu().numpy())
    )
    at = torch.from_numpy(np.searchsorted(there, wanted)).to(w.device)
    is_loop = (edge_index[0] == edge_index[1]).to(w.device)
    return torch.where(is_loop, 1.0, torch.cat([w, w.new_ones(1)])[at])


class RobustProblem(AbstractProblem):
    """`Robust` on one subgraph: at each Y another quadratic; `product` has the weights of its argument."""

    has_one_minimum = False

    def __init__(self, energy: Robust, smooth: Smoothness) -> None:
        self.energy, self.smooth = energy, smooth
        degree = degree_of(smooth.sample, smooth.like.device).double()[:, None]
        scale = (degree + 1).rsqrt() if energy.laplacian == "normalized" else torch.ones_like(degree)
        self._scale = scale.to(smooth.rows)
        super().__init__(energy.penalty, smooth.alpha, smooth.rows, proven=smooth.is_proven)

    def weights(self, Y: Rows) -> Entries:
        """w_ij = rho'(t_ij / c)."""
        rho = self.energy.rho
        w = _slope(rho, distances(self.smooth.sample, self._scale * Y) / rho.scale)
        return w.detach() if self.energy._is_frozen else w

    def terms(self, Y: Rows, Z: Rows) -> dict[str, Scalar]:
        """fidelity, robust, consensus, penalty."""
        rho, found = self.energy.rho, self.smooth.terms(Y, Z)
        t = distances(self.smooth.sample, self._scale * Y) / rho.scale
        # Each edge has two entries.
        robust = self.energy.lambda_ * rho.scale * _value(rho, t).sum() / 2
        return {"fidelity": found["fidelity"], "robust": robust} | {
            name: found[name] for name in ("consensus", "penalty")
        }

    def consensus(self, Y: Rows) -> Float[Tensor, " nodes"]:
        """That of `Energy`."""
        return self.smooth.consensus(Y)

    def bonds(self, Y: Rows, relation_names: Sequence[str] | None = None) -> Iterator[Bond]:
        """lambda c rho(t_ij / c), and the weights w_ij."""
        said, edges, rho = self._scale * Y, edges_of(self.smooth.sample, Y.device), self.energy.rho
        t = apart(said, said, edges) / rho.scale
        cost = number(self.energy.lambda_) * rho.scale * _value(rho, t)
        yield Bond("robust", edges, said, said, cost, trust=_slope(rho, t))

    def heard(self, Y: Rows) -> Rows:
        """sum_j w_ij s_j Y_j."""
        return weighed_sum(self.smooth.sample, self.weights(Y), self._scale * Y)

    def product(self, Y: Rows) -> Rows:
        """(1 + gamma) Y + lambda L_w Y, with the weights of Y: in one pass over the edges by a kernel."""
        if not has_kernel(Y):
            return self.frozen(self.weights(Y), Y)
        energy, sample = self.energy, self.smooth.sample
        sums = differences(sample, self._scale * Y, energy.rho, frozen=energy._is_frozen)
        return torch.addcmul((1 + self.smooth.gamma) * Y, energy.lambda_ * self._scale, sums)

    def frozen(self, w: Entries, Y: Rows) -> Rows:
        """The same with any weights: linear in Y.  (L_w Y)_i = s_i sum_j w_ij (s_i Y_i - s_j Y_j)."""
        X, sample = self._scale * Y, self.smooth.sample
        total = weighed_sum(sample, w, torch.ones_like(X[:, :1]))
        return (1 + self.smooth.gamma) * Y + self.energy.lambda_ * self._scale * (
            total * X - weighed_sum(sample, w, X)
        )

    def target(self, Z: Rows) -> Rows:
        """Z + gamma mu."""
        return self.smooth.target(Z)

    @property
    def tau(self) -> float:
        """That of `Energy`: L_w >= 0."""
        return self.smooth.tau

    @property
    def sigma(self) -> float:
        """That of `Energy`: w <= 1."""
        return self.smooth.sigma

    def majorizer(self) -> Float[Tensor, "nodes 1"]:
        """That of `Energy`."""
        return self.smooth.majorizer()

    def curved(self, at: Rows, Y: Rows) -> Rows:
        """H Y of the quadratic with the weights of `at`, so that error bounds are those of its minimum."""
        return self.frozen(self.weights(at), Y)
