"""A second energy: not a Laplacian, with nothing but the abstract methods, with the library as it is.

    E(Y) = |Y - Z|^2 + |Y C|^2 + zeta,   H Y = Y (I + C C'),   b(Z) = Z          C learned

It does not look at the edges at all, and H is not a matrix for all columns alike.
"""

import problems
import pytest
import torch
from problems import CLOSE, PENALTIES, ZOO
from torch import nn

from musegnn import AbstractEnergy, AbstractProblem, MuseGNN, solve, unfold
from musegnn.errors import DivergenceError
from musegnn.unfolding import minimum
from musegnn.unfolding.penalty import penalty_of

DIM = 4


class Mixing(AbstractEnergy):
    def __init__(self, C, prox="none", *, proven=True):
        super().__init__()
        self.C = nn.Parameter(C)
        self.penalty = penalty_of(prox)
        self.proven = proven

    def on(self, sample, mu, seen, *, like, alpha="auto"):
        return Mixed(self, like, alpha)


class Mixed(AbstractProblem):
    def __init__(self, energy, like, alpha):
        self.C = energy.C.to(like.dtype)
        self._sigma = 1 + float(torch.linalg.matrix_norm(self.C.detach().double(), 2)) ** 2
        chosen = 1 / self._sigma if alpha == "auto" else alpha
        rows = torch.full((len(like), 1), chosen, dtype=like.dtype)
        super().__init__(energy.penalty, chosen, rows, proven=energy.proven)

    def terms(self, Y, Z):
        return {
            "fidelity": (Y - Z).square().sum(),
            "mixing": (Y @ self.C).square().sum(),
            "penalty": self.penalty.value(Y),
        }

    def product(self, Y):
        return Y + Y @ self.C @ self.C.T

    def target(self, Z):
        return Z

    @property
    def tau(self):
        return 1.0

    @property
    def sigma(self):
        return self._sigma


def mixing(prox="none", **options):
    C = torch.randn(DIM, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Mixing(C, prox, **options)


def naive(Z, C, prox, steps):
    a = 1 / (1 + float(torch.linalg.matrix_norm(C.detach(), 2)) ** 2)
    made = [Z]
    for _ in range(steps):
        U = made[-1]
        X = U - a * (U + U @ (C @ C.T) - Z)
        made.append(problems.prox(X, torch.full((len(Z), 1), a / 2, dtype=torch.float64), prox))
    return made


@pytest.mark.parametrize("prox", PENALTIES)
def test_its_steps_and_gradients_are_those_of_the_naive_loop(prox):
    s, energy = ZOO["path"], mixing(prox)
    Z, C = problems.normal(s, DIM, grad=True), energy.C.detach().clone().requires_grad_()
    for steps in (0, 1, 5, 8):
        Y, expected = unfold(Z, s, energy, steps), naive(Z, C, prox, steps)[-1]
        torch.testing.assert_close(Y, expected, **CLOSE)
        found, slopes = (
            torch.autograd.grad(result.square().sum(), [Z, weight], allow_unused=True, materialize_grads=True)
            for result, weight in ((Y, energy.C), (expected, C))
        )
        for pair in zip(found, slopes, strict=True):
            torch.testing.assert_close(*pair, **CLOSE)


@pytest.mark.parametrize("prox", PENALTIES)
def test_its_trace_and_its_minimum(prox):
    s, energy = ZOO["path"], mixing(prox)
    Z, C = problems.normal(s, DIM), energy.C.detach()
    made, best = naive(Z, C, prox, 6), naive(Z, C, prox, 500)[-1]
    torch.testing.assert_close(solve(Z, s, energy), best, rtol=1e-8, atol=1e-8)
    trace = unfold(Z, s, energy, 6, trace=True)
    expected = [((Y - Z) ** 2).sum() + ((Y @ C) ** 2).sum() + problems.zeta(Y, prox) for Y in made]
    torch.testing.assert_close(trace.energies, torch.stack(expected), **CLOSE)
    errors = torch.stack([(Y - best).norm() for Y in made[1:]])
    assert bool((trace.error_bounds >= errors).all())
    # |V| / tau with V = (U - Y) / a - H (U - Y).
    moved = [U - Y for U, Y in zip(made[:-1], made[1:], strict=True)]
    bounds = torch.stack([(part / trace.alpha - part - part @ C @ C.T).norm() for part in moved])
    torch.testing.assert_close(trace.error_bounds, bounds, rtol=1e-6, atol=1e-9)


def test_without_a_matrix_conjugate_gradients_solve():
    s, energy = ZOO["random"], mixing()
    Z = problems.normal(s, DIM)
    assert energy.problem(Z, s).matrix() is None
    assert energy.problem(Z, s).fused() is None
    C = energy.C.detach()
    expected = torch.linalg.solve(torch.eye(DIM, dtype=torch.float64) + C @ C.T, Z.T).T
    torch.testing.assert_close(solve(Z, s, energy), expected, rtol=1e-9, atol=1e-9)
    with pytest.raises(DivergenceError, match="After 1 steps the minimizer is known to"):
        solve(Z, s, energy, max_steps=1)
    assert minimum.DIRECT > len(Z)


def test_its_value_terms_and_half_gradient():
    s, energy = ZOO["path"], mixing("l1")
    Y, Z = problems.normal(s, DIM, count=2)
    C = energy.C.detach()
    terms = energy.terms(Y, Z, s)
    assert list(terms) == ["fidelity", "mixing", "penalty"]
    torch.testing.assert_close(energy.value(Y, Z, s), sum(terms.values()), **CLOSE)
    torch.testing.assert_close(energy.half_gradient(Y, Z, s), Y + Y @ C @ C.T - Z, **CLOSE)


def test_a_model_is_trained_with_it():
    s, energy = problems.sample(), mixing("relu")
    torch.manual_seed(0)
    model = MuseGNN(5, 3, DIM, energy, 4, layers=2).double()
    X = problems.normal(s, 5)
    logits = model(s, X)
    expected = model.g(naive(model.f(X), energy.C, "relu", 4)[-1][: s.num_seeds])
    torch.testing.assert_close(logits, expected, **CLOSE)
    parameters = [*model.parameters()]
    assert any(parameter is energy.C for parameter in parameters)
    found, slopes = (torch.autograd.grad(part.square().sum(), parameters) for part in (logits, expected))
    for pair in zip(found, slopes, strict=True):
        torch.testing.assert_close(*pair, **CLOSE)


def test_what_it_cannot_prove_is_watched():
    s, energy = ZOO["path"], mixing(proven=False)
    Z = problems.normal(s, DIM)
    with pytest.warns(UserWarning, match="larger than what is known to descend for Mixing"):
        Y = unfold(Z, s, energy, 8)
    torch.testing.assert_close(Y, naive(Z, energy.C, "none", 8)[-1], **CLOSE)
    with (
        pytest.warns(UserWarning, match="larger"),
        pytest.raises(DivergenceError, match="rises at step 1:") as caught,
    ):
        unfold(Z, s, energy, 8, 2.0)
    assert caught.value.energy == pytest.approx(float(energy.value(Z, Z, s).detach()))


@pytest.mark.parametrize("missing", ["terms", "product", "target", "tau", "sigma"])
def test_every_abstract_method_is_asked_for(missing):
    methods = {name: getattr(Mixed, name) for name in ("terms", "product", "target", "tau", "sigma")}
    del methods[missing]
    Incomplete = type("Incomplete", (AbstractProblem,), {**methods, "__init__": Mixed.__init__})
    with pytest.raises(TypeError, match=rf"abstract method '?{missing}'?"):
        Incomplete(mixing(), torch.zeros(3, DIM), "auto")
    with pytest.raises(TypeError, match="abstract method '?on'?"):
        type("Without", (AbstractEnergy,), {})()


def test_momentum_takes_half_a_step_unless_the_energy_knows_better():
    """A step descends for a < 2 / sigma; H <= 1 / a is the same with half of it."""
    energy, Z = mixing("relu"), problems.normal(ZOO["path"], DIM)
    problem = energy.problem(Z, ZOO["path"])
    almost = energy.problem(Z, ZOO["path"], alpha=1.999 / problem.sigma)
    assert float(almost.majorizer().max()) <= 1 / problem.sigma
    torch.testing.assert_close(almost.majorizer(), almost.rows / 2)
