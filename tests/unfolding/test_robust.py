"""The robust energy: its formula, descent, stationary points, the quadratic at a point, and its limit."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from machine import unchecked as unchecked
from musegnn import Energy, Graph, Robust, solve, unfold
from musegnn.errors import InputError
from musegnn.unfolding.subgraph import as_sample

RHOS = {
    "geman": ({}, lambda t: t / (1 + t)),
    "cauchy": ({"power": 0.0}, torch.log1p),
    "charbonnier": ({"power": 1.0}, lambda t: 2 * ((1 + t).sqrt() - 1)),
    "truncated": ({"power": 2.0, "cutoff": 1.0}, lambda t: t.clamp(max=1)),
    "truncated p-norm": ({"power": 0.5, "cutoff": 3.0}, lambda t: 4 * ((1 + t.clamp(max=3)) ** 0.25 - 1)),
}
"""What is asked for, and rho."""
rhos = pytest.mark.parametrize("rho", RHOS)
smooth_rhos = pytest.mark.parametrize("rho", ["geman", "cauchy", "charbonnier"])
laplacians = pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])


def graph(seed=0, nodes=14):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, nodes, (2, 2 * nodes))
    edges[0, :nodes] = 0
    return Graph.from_edges(edges[:, edges[0] != edges[1]], num_nodes=nodes)


def rows(num_nodes, seed=1, dim=3):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(num_nodes, dim, generator=made, dtype=torch.float64)


def slow_value(energy, rho, g, Y, Z, mu):
    total = (Y - Z).square().sum() + energy.gamma * (Y - mu).square().sum()
    degree = torch.from_numpy(np.diff(g.indptr)).double()
    s = (degree + 1).rsqrt() if energy.laplacian == "normalized" else torch.ones_like(degree)
    for i in range(g.num_nodes):
        for j in g.indices[g.indptr[i] : g.indptr[i + 1]]:
            if i < j:
                t = (s[i] * Y[i] - s[j] * Y[j]).square().sum()
                total = total + energy.lambda_ * 0.5 * rho(t / 0.5)
    return total


@rhos
@laplacians
def test_value_and_gradient_are_those_of_the_formula(rho, laplacian):
    g = graph()
    settings, value = RHOS[rho]
    energy = Robust(1.7, 0.4, laplacian, "none", **settings, scale=0.5)
    Y, Z, mu = (rows(14, seed) for seed in (1, 2, 3))
    Y.requires_grad_()
    problem = energy.problem(Z, g, mu=mu)
    expected = slow_value(energy, value, g, Y, Z, mu)
    torch.testing.assert_close(problem.value(Y, Z), expected)
    (gradient,) = torch.autograd.grad(expected, Y)
    torch.testing.assert_close(problem.half_gradient(Y, Z), gradient / 2)


@rhos
@given(seed=st.integers(0, 500), n=st.integers(1, 14), scale=st.floats(0.01, 10), lambda_=st.floats(0.1, 30))
def test_every_step_descends(rho, seed, n, scale, lambda_):
    """With a hub; of one node, without edges."""
    g, Z = graph(seed, n), rows(n, seed)
    energy = Robust(lambda_, 0.3, prox="relu", **RHOS[rho][0], scale=scale)
    trace = unfold(Z, g, energy, 8, mu=rows(n, seed + 1), trace=True)
    energies = trace.energies[1:]
    assert (energies[1:] <= energies[:-1] * (1 + 1e-12)).all()


@smooth_rhos
def test_where_the_steps_end_nothing_pulls(rho):
    g, Z = graph(), rows(14)
    energy = Robust(3.0, 0.0, prox="none", **RHOS[rho][0], scale=0.3)
    Y = unfold(Z, g, energy, 3000)
    assert float(energy.half_gradient(Y, Z, g).abs().max()) < 1e-9


@smooth_rhos
@pytest.mark.parametrize("prox", ["none", "relu"])
def test_a_stationary_point_is_solved_for(rho, prox):
    g, Z = graph(), rows(14)
    energy = Robust(3.0, 0.0, prox=prox, **RHOS[rho][0], scale=0.3)
    Y = solve(Z, g, energy)
    torch.testing.assert_close(unfold(Z, g, energy, 1, init=Y), Y, rtol=1e-8, atol=1e-8)


def test_trust_is_in_the_order_of_what_it_is_asked_for():
    g, Y = graph(), rows(14)
    energy, sample = Robust(2.0, scale=0.3), as_sample(g, 14)
    edges = torch.from_numpy(np.stack(sample.edge_index()))
    expected = energy.trust(Y, g)
    order = torch.randperm(len(expected), generator=torch.Generator().manual_seed(0))
    found = energy.trust(
        Y, torch.cat([edges[:, order], edges[:, order[:5]], edges.new_full((2, 1), 3)], dim=1)
    )
    torch.testing.assert_close(found, torch.cat([expected[order], expected[order[:5]], Y.new_ones(1)]))
    assert expected.min() < 0.9


@laplacians
def test_with_a_large_scale_it_is_the_smoothness(laplacian):
    g, Z = graph(), rows(14)
    plain, mild = Energy(2.0, 0.0, laplacian), Robust(2.0, 0.0, laplacian, scale=1e12)
    torch.testing.assert_close(unfold(Z, g, mild, 6), unfold(Z, g, plain, 6))
    torch.testing.assert_close(mild.value(Z.abs(), Z, g), plain.value(Z.abs(), Z, g))


@smooth_rhos
def test_gradients_are_those_of_a_tape_over_all_steps(rho):
    g = graph()
    Z, mu, weights = (rows(14, seed).requires_grad_(seed < 3) for seed in (1, 2, 3))
    energy = Robust(2.0, 0.5, **RHOS[rho][0], scale=0.4)
    found = torch.autograd.grad((weights * unfold(Z, g, energy, 5, mu=mu)).sum(), [Z, mu])
    s = (torch.from_numpy(np.diff(g.indptr)).double() + 1).rsqrt()[:, None]
    A = torch.zeros(14, 14, dtype=torch.float64)
    A[np.repeat(np.arange(14), np.diff(g.indptr)), g.indices] = 1
    a = energy.problem(Z, g, mu=mu).rows
    U = Z
    for _ in range(5):
        X = s * U
        t = (X[:, None] - X[None]).square().sum(dim=2) / 0.4
        W = A * {"geman": (1 + t) ** -2, "cauchy": 1 / (1 + t), "charbonnier": (1 + t).rsqrt()}[rho]
        half = 1.5 * U - Z - 0.5 * mu + 2.0 * s * (W.sum(1, keepdim=True) * X - W @ X)
        U = (U - a * half).clamp(min=0)
    expected = torch.autograd.grad((weights * U).sum(), [Z, mu])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@smooth_rhos
def test_lambda_and_gamma_can_be_learned(rho):
    g, (Z, mu, weights), size = graph(), (rows(14, seed) for seed in (1, 2, 3)), 1e-5

    def outcome(lambda_, gamma):
        energy = Robust(lambda_, gamma, **RHOS[rho][0], scale=0.4)
        return (weights * unfold(Z, g, energy, 5, 0.1, mu)).sum()

    at = [torch.nn.Parameter(torch.tensor(value, dtype=torch.float64)) for value in (2.0, 0.5)]
    found = torch.autograd.grad(outcome(*at), at)
    for number, one in enumerate(found):
        ends = [[v + sign * size * (i == number) for i, v in enumerate((2.0, 0.5))] for sign in (-1, 1)]
        low, high = (float(outcome(*end)) for end in ends)
        assert float(one) == pytest.approx((high - low) / (2 * size), rel=1e-6)
        assert abs(float(one)) > 1e-3


@rhos
def test_the_bound_is_that_of_the_quadratic_at_the_last_start(rho):
    g, Z = graph(), rows(14)
    energy = Robust(3.0, 0.0, prox="none", **RHOS[rho][0], scale=0.3)
    start = unfold(Z, g, energy, 4)
    trace = unfold(Z, g, energy, 1, init=start, trace=True)
    problem = energy.problem(Z, g)
    w = problem.weights(start)
    H = torch.stack([problem.frozen(w, unit[:, None])[:, 0] for unit in torch.eye(14).double()], dim=1)
    distance = float((trace.Y - torch.linalg.solve(H, Z)).norm())
    assert distance <= trace.error_bound <= 50 * distance


def test_planted_edges_are_trusted_less():
    rng = np.random.default_rng(0)
    block = np.arange(200) % 2
    within = rng.integers(0, 100, (2, 900)) * 2 + rng.integers(0, 2, 900)
    planted = np.stack([2 * rng.integers(0, 100, 60), 2 * rng.integers(0, 100, 60) + 1])
    g = Graph.from_edges(np.concatenate([within[:, within[0] != within[1]], planted], axis=1), num_nodes=200)
    Z = torch.from_numpy(np.eye(2)[block] * 3 + 0.3 * rng.standard_normal((200, 2)))
    energy = Robust(2.0, 0.0, scale=0.05)
    w = energy.trust(unfold(Z, g, energy, 10), g).numpy()
    rows_ = np.repeat(np.arange(200), np.diff(g.indptr))
    is_across = block[rows_] != block[g.indices]
    assert w[is_across].max() < np.quantile(w[~is_across], 0.05)


def test_what_cannot_be_is_refused_in_one_line(unchecked):
    for what in (
        {"power": 2.5},
        {"power": -np.inf},
        {"power": np.nan},
        {"cutoff": 0.0},
        {"scale": 0.0},
        {"scale": np.inf},
        {"power": "geman"},
    ):
        with pytest.raises(
            InputError, match="power must be a number of at most 2, so that rho is concave, cutoff and scale"
        ):
            Robust(**what)
