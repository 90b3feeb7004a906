"""The exact minimizer: dense solves without a penalty, long naive descent with one."""

import problems
import pytest
import torch
from problems import LAPLACIANS, PENALTIES, PRECONDITIONS, ZOO
from torch import nn

from musegnn import Energy, solve
from musegnn.errors import DivergenceError
from musegnn.unfolding import minimum
from musegnn.unfolding.penalty import L1, Box


@pytest.fixture
def conjugate(monkeypatch):
    """No matrix is factorized."""
    monkeypatch.setattr(minimum, "DIRECT", 0)


def dense(Z, s, name, lambda_, gamma, mu, seen):
    rows = (torch.ones(len(Z)) if seen is None else seen).double()[:, None]
    return torch.linalg.solve(problems.hessian(s, name, lambda_, gamma, seen), Z + gamma * rows * mu)


def check_linear(precondition="none", atol=1e-11):
    for name in LAPLACIANS:
        for s in (ZOO["random"], ZOO["star"], ZOO["one node"], problems.sample()):
            Z, mu = problems.normal(s, 5, count=2)
            for gamma, seen in ((0.0, None), (0.7, None), (0.7, torch.arange(len(Z)) % 2 == 0)):
                Y = solve(Z, s, Energy(3.0, gamma, name, "none", precondition=precondition), mu, seen=seen)
                expected = dense(Z, s, name, 3.0, gamma, mu, seen)
                torch.testing.assert_close(Y, expected, rtol=0, atol=atol)


def test_without_a_penalty_it_is_the_dense_solve():
    check_linear()


def test_conjugate_gradients_find_the_same(conjugate):
    check_linear(atol=2e-9)


@pytest.mark.parametrize("precondition", PRECONDITIONS)
def test_a_preconditioner_does_not_change_the_minimum(precondition):
    check_linear(precondition)


@pytest.mark.parametrize("name", LAPLACIANS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("precondition", ["none", "jacobi"])
def test_with_a_penalty_it_is_where_descent_ends(name, penalty, precondition):
    s = ZOO["random"]
    Z, mu = problems.normal(s, 5, count=2)
    seen = torch.arange(len(Z)) % 3 > 0
    settings = {"precondition": "jacobi", "steps": 300, "mu": mu, "seen": seen}
    expected = problems.descend(Z, s, penalty, name, 3.0, 0.6, **settings)[-1]
    Y = solve(Z, s, Energy(3.0, 0.6, name, penalty, precondition=precondition), mu, seen=seen)
    torch.testing.assert_close(Y, expected, rtol=0, atol=1e-9 * (1 + float(expected.norm())))


@pytest.mark.parametrize("prox", ["none", "relu", L1(0.5), Box(-0.2, 0.3), "group"])
def test_the_tolerance_is_kept_and_not_wasted(conjugate, prox):
    s = ZOO["random"]
    Z = problems.normal(s)
    energy = Energy(5.0, 0.0, "combinatorial", prox)
    with problems.unchecked():
        best = solve(Z, s, energy, tolerance=1e-11)
        for tolerance in (1e-2, 1e-4, 1e-7):
            Y = solve(Z, s, energy, tolerance=tolerance)
            assert float((Y - best).norm()) <= tolerance * (1 + float(Y.norm()))
        assert count(energy, Z, s, 1e-2) < count(energy, Z, s, 1e-7)


def count(energy, Z, s, tolerance):
    """How many products a solution costs."""
    made, problem = [], type(energy.problem(Z, s))
    product = problem.product
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(problem, "product", lambda self, Y: made.append(0) or product(self, Y))
        solve(Z, s, energy, tolerance=tolerance)
    return len(made)


def test_momentum_pays():
    """Combinatorial, a path: the condition number is 4 lambda, and plain descent needs as many steps."""
    s = problems.path(30)
    Z = problems.normal(s)
    energy = Energy(40.0, 0.0, "combinatorial", "relu")
    with problems.unchecked():
        steps = count(energy, Z, s, 1e-6)
        best, found = (solve(Z, s, energy, tolerance=share) for share in (1e-10, 1e-6))
    settings = {"steps": steps, "init": torch.relu(Z)}
    plain = problems.descend(Z, s, "relu", "combinatorial", 40.0, **settings)[-1]
    assert float((plain - best).norm()) > 10 * float((found - best).norm())


def test_the_dtype_is_that_of_z_and_float64_inside():
    s = ZOO["random"]
    Z, mu = (part.float() for part in problems.normal(s, count=2))
    expected = dense(Z.double(), s, "combinatorial", 50.0, 0.3, mu.double(), None)
    Y = solve(Z, s, Energy(50.0, 0.3, "combinatorial", "none"), mu)
    assert Y.dtype == torch.float32
    assert torch.equal(Y, expected.float())


def test_learned_weights_and_inputs_that_want_a_gradient():
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2, grad=True)
    weights = (nn.Parameter(torch.tensor(x, dtype=torch.float64)) for x in (3.0, 0.7))
    energy = Energy(*weights, prox="none")
    Y = solve(Z, s, energy, mu)
    assert not Y.requires_grad
    expected = dense(Z.detach(), s, "normalized", 3.0, 0.7, mu.detach(), None)
    torch.testing.assert_close(Y, expected, rtol=0, atol=1e-11)


def test_an_edge_index_is_a_subgraph_too():
    s = problems.sample()
    Z = problems.normal(s)
    edges = torch.from_numpy(s.edge_index())
    expected = dense(Z, s, "normalized", 2.0, 0.0, Z, None)
    torch.testing.assert_close(solve(Z, edges, Energy(2.0, prox="none")), expected, rtol=0, atol=1e-11)


def test_too_few_steps(conjugate):
    s = ZOO["random"]
    Z = problems.normal(s)
    problem = Energy(20.0, prox="none").problem(Z, s)
    H = problems.hessian(s, "normalized", 20.0, 0.0)
    # One step of conjugate gradients, by hand.
    residual = Z - H @ Z
    size = residual.square().sum() / (residual * (H @ residual)).sum()
    bound = float((residual - size * (H @ residual)).norm()) / problem.tau
    message = (
        f"After 1 steps the minimizer is known to {bound:.3g} only. Allow more (max_steps) or a larger "
        "tolerance; the paper's energy may have precondition='jacobi'."
    )
    with problems.refused(message, DivergenceError) as caught:
        solve(Z, s, Energy(20.0, prox="none"), max_steps=1)
    assert caught.value.step == 1
    match = r"^After 1,000 steps the minimizer is known to .* only"
    with problems.unchecked(), pytest.raises(DivergenceError, match=match):
        solve(Z, problems.path(len(Z)), Energy(1e7, 0.0, "combinatorial", "relu"), max_steps=1000)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, -1e-3, float("nan")])
def test_a_tolerance_that_cannot_be(tolerance):
    s = ZOO["path"]
    with problems.refused(f"tolerance must lie between 0 and 1, got {tolerance}."):
        solve(problems.normal(s), s, Energy(), tolerance=tolerance)


@pytest.mark.parametrize("name", LAPLACIANS)
@pytest.mark.parametrize("precondition", PRECONDITIONS)
def test_the_majorizer_is_above_the_hessian(name, precondition):
    """H <= diag(1 / a), which momentum needs; the authors' steps do not have it."""
    for s in (ZOO["bipartite"], ZOO["random"], ZOO["no edges"]):
        Z = problems.normal(s)
        for gamma in (0.0, 50.0):
            energy = Energy(30.0, gamma, name, precondition=precondition)
            root = energy.problem(Z, s, mu=Z).majorizer().sqrt()
            H = problems.hessian(s, name, 30.0, gamma)
            assert float(torch.linalg.eigvalsh(root * H * root.T)[-1]) <= 1 + 1e-12


def test_the_authors_variant_has_a_minimum_too():
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2)
    expected = problems.descend(Z, s, "relu", lambda_=1.0, gamma=9.0, steps=200, mu=mu)[-1]
    Y = solve(Z, s, Energy(1.0, 9.0, precondition="authors"), mu)
    torch.testing.assert_close(Y, expected, rtol=0, atol=1e-9)


def test_a_solution_that_is_wrong_is_not_handed_out(monkeypatch):
    s = ZOO["random"]
    energy = Energy(3.0, prox="none")
    kind = type(energy.problem(problems.normal(s), s))
    right = kind.matrix
    monkeypatch.setattr(kind, "matrix", lambda self: right(self) * 1.0001)
    with pytest.raises(DivergenceError, match="the minimizer is known to .* only"):
        solve(problems.normal(s), s, energy)


@pytest.mark.parametrize("prox", ["none", "relu"])
def test_rows_that_cannot_be(prox):
    s = ZOO["path"]
    Z, mu = problems.normal(s, count=2)
    message = "has entries that are not finite. Look for NaN and inf where it is computed."
    for name, rows in (("Z", (Z * torch.nan, mu)), ("mu", (Z, mu * torch.inf))):
        with problems.refused(f"{name} {message}", DivergenceError):
            solve(rows[0], s, Energy(1.0, 0.5, prox=prox), rows[1])
    with problems.refused("mu must have the shape of Z, (6, 3); got (6, 2)."):
        solve(Z, s, Energy(1.0, 0.5, prox=prox), mu[:, :2])


def test_conjugate_gradients_need_a_step_for_each_eigenvalue(conjugate):
    """K_{3,3}: those of D - A are 0, 3 and 6. A product is for the start, and two for the error bound."""
    s = ZOO["bipartite"]
    assert count(Energy(30.0, 0.0, "combinatorial", "none"), problems.normal(s), s, 1e-9) <= 3 + 1 + 2
