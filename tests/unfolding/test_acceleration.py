"""Momentum and Chebyshev: what they are by definition, how far they come, and the way back through them."""

from functools import partial

import numpy as np
import pytest
import torch
from numpy.polynomial import chebyshev

from machine import unchecked as unchecked
from musegnn import Energy, Graph, Predictive, solve, unfold
from musegnn.errors import InputError

PACES = ["momentum", "chebyshev"]
paces = pytest.mark.parametrize("acceleration", PACES)


def graph(seed=0, nodes=40, relations=False):
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, nodes, (2, 3 * nodes))
    # A hub.
    edges[0, :nodes] = 0
    edges = edges[:, edges[0] != edges[1]]
    told = {"relation": np.arange(edges.shape[1]) % 2, "relation_names": ["a", "b"]} if relations else {}
    return Graph.from_edges(edges, num_nodes=nodes, **told)


def rows(num_nodes, dim=3, seed=1):
    made = torch.Generator().manual_seed(seed)
    return torch.randn(num_nodes, dim, generator=made, dtype=torch.float64)


def dense(problem, num_nodes):
    """H and D^-1, of one column."""
    H = torch.stack([problem.product(unit[:, None])[:, 0] for unit in torch.eye(num_nodes).double()], dim=1)
    return H, problem.majorizer()


@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
def test_chebyshev_is_the_polynomial_of_that_name(laplacian):
    """Y^k - Y* = T_k((1 + q - 2 D^-1 H) / (1 - q)) (Y^0 - Y*) / T_k((1 + q) / (1 - q))."""
    g = graph()
    energy = Energy(5.0, 0.0, laplacian, "none", acceleration="chebyshev")
    Z = rows(40)
    problem = energy.problem(Z, g)
    H, a = dense(problem, 40)
    star = torch.linalg.solve(H, problem.target(Z))
    q = problem.tau * float(a.min())
    M = ((1 + q) * torch.eye(40).double() - 2 * a * H) / (1 - q)
    for steps in (0, 1, 2, 5, 9):
        T = [torch.eye(40).double(), M]
        for _ in range(steps):
            T.append(2 * M @ T[-1] - T[-2])
        at_one = chebyshev.chebval((1 + q) / (1 - q), [0] * steps + [1])
        expected = star + T[steps] @ (Z - star) / at_one
        torch.testing.assert_close(unfold(Z, g, energy, steps), expected)


def test_momentum_is_a_step_from_where_it_would_come_to():
    g, Z = graph(), rows(40)
    energy = Energy(5.0, 0.0, prox="relu", acceleration="momentum")
    problem = energy.problem(Z, g)
    H, a = dense(problem, 40)
    q = problem.tau * float(a.min())
    # Y^0 counts as where the penalty lets it be.
    before, Y = Z.clamp(min=0), (Z - a * (H @ Z - Z)).clamp(min=0)
    for _ in range(6):
        U = Y + (1 - q**0.5) / (1 + q**0.5) * (Y - before)
        before, Y = Y, (U - a * (H @ U - Z)).clamp(min=0)
    torch.testing.assert_close(unfold(Z, g, energy, 7), Y)


@pytest.mark.parametrize(
    ("acceleration", "prox"), [("momentum", "none"), ("momentum", "relu"), ("chebyshev", "none")]
)
def test_twenty_steps_lead_nearer_than_forty_plain_ones(acceleration, prox):
    """On a ring, whose slow waves plain steps hardly see."""
    ring = np.stack([np.arange(300), (np.arange(300) + 1) % 300])
    g, Z = Graph.from_edges(ring, num_nodes=300), rows(300).cumsum(0)
    plain = Energy(20.0, 0.0, prox=prox)
    star = solve(Z, g, plain)

    def away(energy, steps):
        return float((unfold(Z, g, energy, steps) - star).norm() / star.norm())

    fast = Energy(20.0, 0.0, prox=prox, acceleration=acceleration)
    assert away(fast, 20) < away(plain, 40)
    assert away(fast, 20) < 0.01
    errors = [away(fast, steps) for steps in (5, 10, 20, 40)]
    assert errors == sorted(errors, reverse=True)


@paces
@pytest.mark.parametrize("typed", [False, True])
def test_the_error_bound_is_never_below_the_distance(acceleration, typed):
    g, Z = graph(relations=typed), rows(40)
    energy = (
        Predictive(3, 2, prox="none", acceleration=acceleration).double().requires_grad_(False)
        if typed
        else Energy(8.0, 0.0, prox="none", acceleration=acceleration)
    )
    star = solve(Z, g, energy)
    for steps in (1, 4, 12):
        trace = unfold(Z, g, energy, steps, trace=True)
        distance = float((trace.Y - star).norm())
        assert distance <= trace.error_bound + 1e-8
        assert trace.error_bound <= 60 * distance + 1e-6


@paces
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_gradients_are_those_of_a_tape_over_all_steps(acceleration, steps):
    g = graph(nodes=12, relations=True)
    Z, start, mu, weights = (rows(12, seed=seed).requires_grad_(seed < 4) for seed in (1, 2, 3, 4))
    energy = Predictive(3, 2, gamma=0.4, prox="none", acceleration=acceleration).double()
    with torch.no_grad():
        for part in energy.parameters():
            part += 0.3 * torch.randn(part.shape, generator=torch.Generator().manual_seed(0))
    inputs = [Z, start, mu, *energy.parameters()]
    found = torch.autograd.grad((weights * unfold(Z, g, energy, steps, mu=mu, init=start)).sum(), inputs)

    problem = energy.problem(Z, g, mu=mu)
    a = problem.majorizer().detach()
    q = problem.tau * float(a.min())
    before = Y = start
    last = r = (1 - q) / (1 + q)
    for k in range(steps):
        if acceleration == "momentum":
            U = Y + (1 - q**0.5) / (1 + q**0.5) * (Y - before)
            before, Y = Y, U - a * problem.half_gradient(U, Z)
            continue
        if k:
            last, r = r, 1 / (2 * (1 + q) / (1 - q) - r)
        rate, push = (4 * r / (1 - q), r * last) if k else (2 / (1 + q), 0.0)
        before, Y = Y, Y - rate * a * problem.half_gradient(Y, Z) + push * (Y - before)
    expected = torch.autograd.grad((weights * Y).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_what_cannot_be_is_refused_in_one_line(unchecked):
    g, Z = graph(), rows(40)
    for make in (Energy, partial(Predictive, 4)):
        with pytest.raises(InputError, match="needs prox='none'; got prox='relu'. Take 'momentum'"):
            make(prox="relu", acceleration="chebyshev")
    with pytest.raises(
        InputError, match="acceleration must be 'none', 'momentum' or 'chebyshev', got 'fast'"
    ):
        Energy(acceleration="fast")
    with pytest.raises(InputError, match="steps of its own"):
        Energy(precondition="authors", acceleration="momentum")
    with pytest.raises(InputError, match="its own step sizes"):
        unfold(Z, g, Energy(acceleration="momentum"), 3, alpha=0.1)
