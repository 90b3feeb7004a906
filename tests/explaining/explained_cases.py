"""Models and samples to explain, and what must come out: dense matrices, one step after the other."""

from dataclasses import dataclass, field

import numpy as np
import problems
import torch
from torch import Tensor

from musegnn import Energy, MuseGNN, Sample
from musegnn.unfolding.energy import Smoothness

IN, OUT, HIDDEN = 5, 4, 6
CONES = ["none", "relu"]
"""Penalties with a homogeneous prox, which leave no constant."""


class Tilted(Energy):
    """The energy of the paper and |Y C|^2: columns of Y know of each other."""

    def on(self, sample, mu, seen, *, like, alpha="auto"):
        return TiltedProblem(self, sample, mu, seen, like, alpha)


class TiltedProblem(Smoothness):
    def __init__(self, energy, sample, mu, seen, like, alpha):
        super().__init__(energy, sample, mu, seen, like, alpha)
        generator = torch.Generator().manual_seed(5)
        self.C = torch.randn(like.shape[1], 2, generator=generator, dtype=torch.float64).to(like.dtype) / 2

    def product(self, Y):
        return super().product(Y) + Y @ self.C @ self.C.T

    def fused(self):
        return None

    def matrix(self):
        return None


@dataclass
class Case:
    """One random setting."""

    seed: int
    penalty: str = "relu"
    laplacian: str = "normalized"
    precondition: str = "none"
    lambda_: float = 2.0
    gamma: float = 0.6
    steps: int = 5
    dtype: torch.dtype = torch.float64
    kind: type[Energy] = Energy
    skip: bool = True
    masked: bool = True
    sample: Sample = field(init=False)
    model: MuseGNN = field(init=False)

    def __post_init__(self):
        torch.manual_seed(self.seed)
        self.sample = problems.sample(self.seed % 5)
        energy = self.kind(
            self.lambda_,
            self.gamma,
            self.laplacian,
            self.penalty,
            precondition=self.precondition,
        )
        settings = {"layers": 2, "output_layers": 3, "dropout": 0.4, "skip": self.skip}
        self.model = MuseGNN(IN, OUT, HIDDEN, energy, self.steps, **settings)
        with torch.no_grad():
            for part in self.model.parameters():
                # MLPs begin without biases, which would leave g no constant.
                part += 0.3 * torch.randn_like(part)
        self.model.to(self.dtype).eval()
        n = self.sample.num_nodes
        # So large that both sides of a box are touched.
        self.features = 2 * torch.randn(n, IN, dtype=self.dtype)
        self.Z = self.model.f(self.features).detach()
        self.mu = torch.randn(n, HIDDEN, dtype=self.dtype) if self.gamma else None
        self.seen = torch.arange(n) % 3 != 0 if self.masked and self.gamma else None

    @property
    def given(self):
        return self.model, self.sample, self.features, self.mu

    def steps_of(self, Z: Tensor, mu: Tensor | None) -> list[Tensor]:
        """Y^0, ..., Y^K, with dense matrices."""
        return problems.descend(
            Z,
            self.sample,
            self.penalty,
            self.laplacian,
            self.lambda_,
            self.gamma,
            precondition=self.precondition,
            steps=self.steps,
            mu=mu,
            seen=self.seen,
        )


def random_case(seed: int, **fixed) -> Case:
    """Any of the settings that leave no constant."""
    draw = np.random.default_rng(seed)
    settings = {
        "penalty": CONES[draw.integers(2)],
        "laplacian": problems.LAPLACIANS[draw.integers(2)],
        "precondition": ["none", "jacobi", "authors"][draw.integers(3)],
        "lambda_": float(draw.choice([0.0, 0.5, 2.0, 6.0])),
        "gamma": float(draw.choice([0.0, 0.3, 1.5])),
        "steps": int(draw.integers(0, 9)),
        "skip": bool(draw.integers(2)),
        "masked": bool(draw.integers(2)),
    }
    return Case(seed=seed, **(settings | fixed))


def dense_split(case: Case, row: int) -> tuple[Tensor, Tensor, Tensor]:
    """P_vj Z_j, Q_vj mu_j and the constant of Y_v, from the matrices of each step on its frozen pattern.

    Column by column: Y^k = S (T Y^{k-1} + a Z + a gamma mu) + shift, T = I - a H.
    """
    s, (lambda_, gamma) = case.sample, (case.lambda_, case.gamma)
    H = problems.hessian(s, case.laplacian, lambda_, gamma, case.seen)
    a = problems.step_sizes(s, case.laplacian, case.precondition, lambda_, gamma, case.seen)
    n, Z, mu = s.num_nodes, case.Z, torch.zeros(s.num_nodes, HIDDEN) if case.mu is None else case.mu
    eye = torch.eye(n, dtype=torch.float64)
    pull = gamma * (torch.ones(n) if case.seen is None else case.seen).double()[:, None]
    made, T = case.steps_of(Z, case.mu), eye - a * H
    base, means, rest = (torch.empty(shape, dtype=torch.float64) for shape in ((n, 6), (n, 6), 6))
    for column in range(HIDDEN):
        P, Q, constant = eye, torch.zeros_like(eye), torch.zeros(n, dtype=torch.float64)
        for U, Y in zip(made, made[1:], strict=False):
            X = U - a * (H @ U - Z - pull * mu)
            S, shift = _slope(X, Y, case.penalty)[:, column], (Y - _slope(X, Y, case.penalty) * X)[:, column]
            P = S[:, None] * (T @ P + torch.diag(a[:, 0]))
            Q = S[:, None] * (T @ Q + torch.diag((a * pull)[:, 0]))
            constant = S * (T @ constant) + shift
        base[:, column], means[:, column] = P[row] * Z[:, column], Q[row] * mu[:, column]
        rest[column] = constant[row]
    return base, means, rest


def _slope(X: Tensor, Y: Tensor, penalty: str) -> Tensor:
    """1 where an entry moves with its argument, else 0."""
    if penalty == "none":
        return torch.ones_like(X)
    if penalty == "box":
        return (X == Y).double()
    return (Y != 0).double()


def constant_of_g(g, y: Tensor) -> Tensor:
    """c of g(y) = J y + c: what g says of zeros when each ReLU keeps the pattern it has at y."""
    at, frozen = y, torch.zeros_like(y)
    for layer in g.layers:
        if isinstance(layer, torch.nn.Linear):
            at, frozen = layer(at), layer(frozen)
        else:
            frozen, at = frozen * (at > 0), torch.relu(at)
    return (frozen if g.skip is None else frozen + g.skip.bias).detach()
