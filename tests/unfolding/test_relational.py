"""Relational and predictive energies: against dense matrices, with learned H, empty relations and hubs."""

import os
from dataclasses import replace
from math import inf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import refused

from musegnn import Energy, Graph, MuseGNN, Predictive, Relational, solve, unfold
from musegnn.errors import DivergenceError, InputError
from musegnn.unfolding.mixing import Mixings, _norm
from musegnn.unfolding.nearer import tightened
from musegnn.unfolding.subgraph import as_sample

DIM = 3
KINDS = {
    "row": lambda **how: Predictive(DIM, average="row", **how),
    "symmetric": lambda **how: Predictive(DIM, average="symmetric", **how),
    "normalized": lambda **how: Relational(DIM, laplacian="normalized", **how),
    "combinatorial": lambda **how: Relational(DIM, laplacian="combinatorial", **how),
}
kinds = pytest.mark.parametrize("kind", KINDS)
ranks = pytest.mark.parametrize("rank", [None, 0, 2])


def graph(seed=0, nodes=9, relations=2, empty=(), hub=False):
    """Directed edges of several relations, some of them parallel."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, nodes, (2, 3 * nodes))
    if hub:
        edges[0, : 2 * nodes] = 0
    relation = rng.integers(0, relations, 3 * nodes)
    kept = ~np.isin(relation, empty) & (edges[0] != edges[1])
    return Graph.from_edges(
        edges[:, kept], num_nodes=nodes, relation=relation[kept],
        relation_names=[f"r{r}" for r in range(relations)],
    )  # fmt: skip


def learned(energy, seed=0, size=1.0):
    """As if it had been trained: any H, lambdas apart."""
    made = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for part in energy.parameters():
            part.copy_(size * torch.randn(part.shape, generator=made, dtype=torch.float64))
    return energy.double()


def rows(num_nodes, seed=0):
    made = torch.Generator().manual_seed(100 + seed)
    return tuple(torch.randn(num_nodes, DIM, generator=made, dtype=torch.float64) for _ in range(3))


def dense_ties(g, relations):
    """A_r of each relation, i -> j."""
    found = np.zeros((relations, g.num_nodes, g.num_nodes))
    for i in range(g.num_nodes):
        for e in range(g.indptr[i], g.indptr[i + 1]):
            for r in range(relations):
                found[r, i, g.indices[e]] = (int(g.relation[e]) >> 2 * r) & 1
    return [torch.from_numpy(A) for A in found]


def slow_value(energy, g, Y, Z, mu, seen):
    """The sum that the docstrings have, edge by edge or node by node."""
    total = (Y - Z).square().sum() + energy.gamma * (seen[:, None] * (Y - mu).square()).sum()
    ties = dense_ties(g, energy.num_relations)
    ways = [way for A in ties for way in (A, A.T)[: energy.ways]]
    degree = torch.from_numpy(np.diff(g.indptr)).double()
    for lambda_, H, A in zip(energy.lambdas, energy.mixings.matrices(), ways, strict=True):
        if isinstance(energy, Predictive):
            to, of = A.sum(1), A.sum(0)
            for i in np.flatnonzero(to):
                weights = A[i] / to[i] if energy.average == "row" else A[i] / (to[i] * of.clamp(min=1)).sqrt()
                total = total + (lambda_ * (Y[i] - weights @ Y @ H).square()).sum()
        else:
            s = (degree + 1).rsqrt() if energy.laplacian == "normalized" else torch.ones_like(degree)
            for i, j in zip(*np.nonzero(A.numpy()), strict=True):
                total = total + (lambda_ * (s[i] * Y[i] @ H - s[j] * Y[j]).square()).sum()
    return total


def dense(problem, num_nodes):
    """H as a matrix of all entries of Y."""
    columns = []
    for k in range(num_nodes * DIM):
        unit = torch.zeros(num_nodes * DIM, dtype=torch.float64)
        unit[k] = 1
        columns.append(problem.product(unit.view(num_nodes, DIM)).detach().flatten())
    return torch.stack(columns, dim=1)


@kinds
@ranks
@pytest.mark.parametrize("lambda_per", ["graph", "relation", "channel"])
def test_value_and_gradient_are_those_of_the_formula(kind, rank, lambda_per):
    g = graph(hub=True)
    how = {"rank": rank, "lambda_per": lambda_per}
    energy = learned(KINDS[kind](num_relations=2, gamma=0.5, prox="none", **how))
    (Y, Z, mu), seen = rows(g.num_nodes), torch.arange(g.num_nodes) % 3 > 0
    Y.requires_grad_()
    expected = slow_value(energy, g, Y, Z, mu, seen)
    problem = energy.problem(Z, g, mu=mu, seen=seen)
    torch.testing.assert_close(problem.value(Y, Z), expected)
    (gradient,) = torch.autograd.grad(expected, Y)
    torch.testing.assert_close(problem.half_gradient(Y, Z), gradient / 2)


@kinds
@settings(max_examples=200 if "MUSEGNN_PROOF" in os.environ else 20)
@given(
    seed=st.integers(0, 1000),
    nodes=st.integers(1, 9),
    relations=st.integers(1, 4),
    knows=st.booleans(),
    empty=st.sampled_from([(), (0,), (0, 1)]),
    hub=st.booleans(),
    size=st.floats(0.1, 5),
    how=st.fixed_dictionaries(
        {
            "gamma": st.sampled_from([0.0, 0.3]),
            "rank": st.sampled_from([None, 0, 2]),
            "prox": st.sampled_from(["none", "relu", "l1", "box", "group"]),
            "lambda_per": st.sampled_from(["graph", "relation", "channel"]),
            "limit": st.sampled_from([0.5, 2.0, inf]),
        }
    ),
)
def test_the_curvature_is_within_its_bounds_and_steps_descend(
    kind, seed, nodes, relations, knows, empty, hub, size, how
):
    """Of any graph: one node, no edges, relations that are empty, hubs, and relations that do not count."""
    g = graph(seed, nodes, relations, empty, hub)
    energy = learned(KINDS[kind](num_relations=knows * relations, **how), seed, size)
    (start, Z, mu), seen = rows(g.num_nodes, seed), torch.arange(g.num_nodes) % 3 > 0
    problem = energy.problem(Z, g, mu=mu, seen=seen)
    H = dense(problem, g.num_nodes)
    torch.testing.assert_close(H, H.T)
    most = (1 / problem.majorizer()).expand(-1, DIM).flatten().detach()
    rounded = 1e-9 * float(most.max())
    assert torch.linalg.eigvalsh(torch.diag(most) - H)[0] >= -rounded
    assert torch.linalg.eigvalsh(H)[0] >= problem.tau - rounded
    assert torch.linalg.eigvalsh(H)[-1] <= problem.sigma + rounded
    assert problem.is_proven
    # From anywhere, as behind another stage.
    trace = unfold(Z, g, energy, 6, mu=mu, init=start, seen=seen, trace=True)
    energies = trace.energies[1:]
    assert (energies[1:] <= energies[:-1] * (1 + 1e-12)).all()


@kinds
@pytest.mark.parametrize("prox", ["none", "relu"])
def test_the_error_bound_is_never_below_the_distance(kind, prox):
    g = graph(3)
    energy = learned(KINDS[kind](num_relations=2, gamma=0.3, prox=prox))
    _, Z, mu = rows(g.num_nodes)
    problem = energy.problem(Z, g, mu=mu)
    H, b = dense(problem, g.num_nodes), problem.target(Z).flatten()
    star = torch.linalg.solve(H, b)
    if prox == "relu":
        step = problem.rows.detach().expand(-1, DIM).flatten()
        for _ in range(3000):
            star = (star - step * (H @ star - b)).clamp(min=0)
    star = star.view_as(Z)
    for steps in (1, 3, 10):
        trace = unfold(Z, g, energy, steps, mu=mu, trace=True)
        away = float((trace.Y - star).norm().detach())
        assert away <= trace.error_bound + 1e-6
        assert trace.error_bound <= 50 * away + 1e-6


@ranks
@pytest.mark.parametrize("size", [0.0, 0.1, 1.0, 30.0])
def test_the_norms_of_h_are_bounded_tightly_and_held(rank, size):
    made = learned(Mixings(3, 8, rank, limit=1.5), size=size)
    (factors, norms), matrices = made(), made.matrices()
    X = rows(4)[0] @ torch.ones(DIM, 8, dtype=torch.float64)
    weight = torch.arange(1, 9).to(X)
    for norm, H in zip(norms, matrices, strict=True):
        exact = float(torch.linalg.matrix_norm(H, 2))
        assert exact <= float(norm) <= 1.5 * (1 + 1e-12)
        if rank is None:
            assert float(norm) <= 1.01 * exact + 1e-12
    many, back, weights = X.expand(3, -1, -1), matrices.mT, weight.expand(3, -1)
    torch.testing.assert_close(factors.times(many), X @ matrices)
    torch.testing.assert_close(factors.taken_from(2 * many, many), 2 * X - X @ matrices)
    torch.testing.assert_close(factors.transposed().times(many), X @ back)
    torch.testing.assert_close(factors.transposed().weighed(weights).times(many), (weight * X) @ back)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [1, 7, 64])
@pytest.mark.parametrize("size", [1e-30, 1e-23, 1e-3, 1.0, 1e15])
def test_norms_are_bounded_whatever_their_size(dim, size, dtype):
    made = torch.Generator().manual_seed(0)
    H = size * torch.randn(9, dim, dim, generator=made, dtype=dtype)
    H[0] = 0
    H[1] = torch.outer(H[1, 0], H[1, :, 0])
    exact = torch.linalg.matrix_norm(H.double(), 2)
    assert (_norm(H) >= exact * (1 - 1e-15)).all()
    assert (_norm(H)[2:] <= 1.05 * exact[2:]).all()


@pytest.mark.parametrize("limit", [1e-3, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrices_are_held_or_are_no_numbers(limit, dtype):
    """However large what is learned, one direction of it far larger than the others."""
    made = Mixings(1, 64, limit=limit).to(dtype)
    generator = torch.Generator().manual_seed(0)
    u, v = torch.nn.functional.normalize(torch.randn(2, 64, generator=generator, dtype=torch.float64))
    Q = torch.linalg.qr(torch.randn(64, 64, generator=generator, dtype=torch.float64)).Q
    told = set()
    for size in 10.0 ** np.arange(0, 13, 0.5):
        with torch.no_grad():
            made.W.copy_(size * torch.outer(u, v) + 3 * Q)
            (factors, norms), held = made(), made.matrices()[0].double()
        told.add(bool(held.isfinite().all()))
        if held.isfinite().all():
            exact = float(torch.linalg.matrix_norm(held, 2))
            assert exact <= float(norms[0])
            assert float(norms[0]) <= limit * 1.01
            assert factors.H is not None
    assert told == {False, True}


@ranks
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_slopes_of_h_are_those_of_autograd(rank, dtype):
    made = learned(Mixings(3, 8, rank)).to(dtype)
    X, Y = torch.randn(2, 3, 5, 8, generator=torch.Generator().manual_seed(3), dtype=dtype)
    weight = torch.arange(1, 25).view(3, 8).to(X)
    parts = [part for part in made.raw if part is not None]
    expected = torch.autograd.grad((made.raw.times(X) * weight[:, None] * Y).sum(), parts)
    with torch.no_grad():
        found = [part for part in made.raw.slopes(X, Y, weight) if part is not None]
    torch.testing.assert_close(found, list(expected))


@ranks
@pytest.mark.parametrize("limits", [(1.5, 1.5), (1.5, 2.0)])
def test_several_sets_are_made_together_as_each_alone(rank, limits):
    several = [
        learned(Mixings(count, 8, rank, limit), count) for count, limit in zip((2, 3), limits, strict=True)
    ]
    for mixings, (factors, norms) in zip(several, Mixings.together(several), strict=True):
        alone, own_norms = mixings()
        torch.testing.assert_close(factors.dense(), alone.dense())
        torch.testing.assert_close(norms, own_norms)


@pytest.mark.parametrize("limit", [0.5, 1.0, 2.0, inf])
def test_each_singular_value_has_its_own_limit_and_left_vectors_stay(limit):
    made = learned(Mixings(2, 6, limit=limit), size=2.0)
    for W, H in zip(made.W.detach(), made.matrices(), strict=True):
        values = torch.linalg.svdvals(W)
        torch.testing.assert_close(torch.linalg.svdvals(H), values / (1 + values**2 / limit**2).sqrt())
        # H H' = W (I + W'W / limit^2)^-1 W' has the left vectors of W.
        U = torch.linalg.svd(W).U
        turned = U.T @ H @ H.T @ U
        torch.testing.assert_close(turned, turned.diag().diag())
    assert torch.autograd.gradcheck(lambda W: torch.func.functional_call(made, {"W": W}, ())[0].H, made.W)


@ranks
@pytest.mark.parametrize("limit", [1.5, inf])
def test_h_begins_as_the_identity(rank, limit):
    torch.testing.assert_close(Mixings(2, 5, rank, limit).matrices(), torch.eye(5).repeat(2, 1, 1))


@ranks
@pytest.mark.parametrize("limit", [1e-3, 0.8, 1.0, 1.5, inf])
def test_where_h_begins_is_known(rank, limit):
    made = Mixings(2, 5, rank, limit)
    torch.testing.assert_close(made.matrices(), made.begins_at * torch.eye(5).repeat(2, 1, 1))


@kinds
def test_what_an_optimizer_changes_unseen_is_seen(kind):
    """Fused optimizers write into parameters without a sign that torch would count."""
    g, (_, Z, _) = graph(hub=True), rows(9)
    energy = learned(KINDS[kind](num_relations=2))
    before = unfold(Z, g, energy, 4).detach()
    for part in energy.parameters():
        part.data.numpy()[:] *= 7
    fresh = KINDS[kind](num_relations=2).double()
    fresh.load_state_dict(energy.state_dict())
    after = unfold(Z, g, energy, 4, trace=True)
    torch.testing.assert_close(after.Y, unfold(Z, g, fresh, 4))
    assert not torch.allclose(before, after.Y)
    assert (after.energies[2:] <= after.energies[1:-1] * (1 + 1e-12)).all()


@kinds
@ranks
def test_gradients_are_those_of_a_tape_over_all_steps(kind, rank):
    g = graph(1)
    energy = learned(KINDS[kind](num_relations=2, gamma=0.3, rank=rank))
    weights, Z, mu = rows(g.num_nodes)
    Z.requires_grad_()
    (weights * unfold(Z, g, energy, 5, mu=mu)).sum().backward()
    found = {name: part.grad.clone() for name, part in energy.named_parameters()} | {"Z": Z.grad.clone()}
    for part in [*energy.parameters(), Z]:
        part.grad = None
    U = Z
    for _ in range(5):
        problem = energy.problem(Z, g, mu=mu)
        U = (U - problem.rows * (problem.product(U) - problem.target(Z))).clamp(min=0)
    (weights * U).sum().backward()
    for name, part in [*energy.named_parameters(), ("Z", Z)]:
        torch.testing.assert_close(found[name], part.grad, msg=lambda text, name=name: f"{name}: {text}")


def by_tape(energy, Z, g, steps):
    """All steps on one tape of autograd."""
    U = Z
    for _ in range(steps):
        U = energy.problem(Z, g).descend(U, Z)
    return U


def test_who_is_learned_and_how_often_is_not_mixed_up():
    """A parameter of one's own, one that is frozen, and two descents before one way back."""

    class Louder(Predictive):
        def __init__(self):
            super().__init__(DIM, 2)
            self.gain = torch.nn.Parameter(torch.tensor(0.3))

        @property
        def lambdas(self):
            return super().lambdas * self.gain.exp()

    g, energy = graph(2), Louder().double()
    energy.mixings.W.requires_grad_(False)
    _, Z, other = rows(g.num_nodes)
    wanted = [energy.gain, energy.raw_lambda]
    found = torch.autograd.grad(sum(unfold(X, g, energy, 3).square().sum() for X in (Z, other)), wanted)
    expected = torch.autograd.grad(sum(by_tape(energy, X, g, 3).square().sum() for X in (Z, other)), wanted)
    torch.testing.assert_close(found, expected)
    assert all(part.abs().min() > 1e-6 for part in found)
    assert energy.mixings.W.grad is None


def test_matrices_beyond_what_can_be_held_are_told():
    g, (_, Z, _) = graph(0), rows(9)
    energy = Predictive(DIM, 2).double()
    with torch.no_grad():
        energy.mixings.W.fill_(1e12)
    with pytest.raises(DivergenceError):
        unfold(Z, g, energy, 2)


@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
def test_with_identities_and_each_edge_once_it_is_the_smoothness(laplacian):
    rng = np.random.default_rng(0)
    upper = np.unique(np.sort(rng.integers(0, 12, (2, 30)), axis=0), axis=1)
    upper = upper[:, upper[0] != upper[1]]
    g = Graph.from_edges(
        upper, num_nodes=12, relation=np.zeros(upper.shape[1], dtype=int), relation_names=["r"]
    )
    energy = Relational(DIM, 1, lambda_=0.7, laplacian=laplacian).double()
    Y, Z, _ = rows(12)
    usual = Energy(0.7, 0.0, laplacian, "relu")
    Y = Y.clamp(min=0)
    torch.testing.assert_close(energy.value(Y, Z, g).detach(), usual.value(Y, Z, g))
    torch.testing.assert_close(energy.half_gradient(Y, Z, g).detach(), usual.half_gradient(Y, Z, g))


def test_a_graph_without_relations_has_one_without_a_direction():
    g = graph(0, relations=1)
    plain = Graph.from_edges(np.stack([np.repeat(np.arange(9), np.diff(g.indptr)), g.indices]), num_nodes=9)
    energy = learned(Predictive(DIM, prox="none"))
    sample = as_sample(plain, 9)
    Y, Z, _ = rows(9)
    assert sample.relation is None
    A = torch.zeros(9, 9, dtype=torch.float64)
    A[np.repeat(np.arange(9), np.diff(g.indptr)), g.indices] = 1
    P = A / A.sum(1, keepdim=True).clamp(min=1)
    expected = (Y - Z).square().sum()
    ((lambda_,),), (H,) = energy.lambdas, energy.mixings.matrices()
    has = (A.sum(1, keepdim=True) > 0).double()
    expected = expected + lambda_ * (has * (Y - P @ Y @ H)).square().sum()
    torch.testing.assert_close(energy.value(Y, Z, plain), expected)


def test_a_sample_that_does_not_tell_its_relations_is_refused():
    g = graph(0)
    told = as_sample(g, g.num_nodes)
    silent = replace(told, relation=None)
    Z = rows(g.num_nodes)[1]
    with pytest.raises(InputError, match="does not tell them"):
        unfold(Z, silent, Predictive(DIM, 2).double(), 2)
    with pytest.raises(InputError, match="has 1 relations, but the subgraph has more"):
        unfold(Z, told, Relational(DIM, 1).double(), 2)


@kinds
@pytest.mark.parametrize("prox", ["none", "relu"])
def test_a_bound_is_tightened_by_steps_past_the_last_one(kind, prox):
    """Never below the distance, and at most three times as large, where a hub makes the plain one useless."""
    g = graph(3, nodes=60, hub=True)
    energy = learned(KINDS[kind](num_relations=2, lambda_=3.0, prox=prox))
    _, Z, _ = rows(g.num_nodes)
    problem, star = energy.problem(Z, g), solve(Z, g, energy)
    trace = unfold(Z, g, energy, 1, trace=True)
    away, plain = float((trace.Y - star).norm().detach()), trace.error_bound
    tight = float(tightened(problem, trace.Y.detach(), Z, torch.tensor(plain, dtype=torch.float64)))
    assert away <= tight + 1e-9
    assert tight <= min(plain, 3.1 * away)
    assert float(tightened(problem, trace.Y.detach(), Z, torch.tensor(1e-9))) == pytest.approx(1e-9)


@pytest.mark.parametrize("kind", [Predictive, Relational])
def test_settings_that_cannot_be_are_refused(kind):
    for setting, words in (
        (
            {"rank": "diag"},
            "rank must be a whole number in 0..3, or None (or 'full') for any matrix; got 'diag'.",
        ),
        (
            {"rank": DIM + 1},
            "rank must be a whole number in 0..3, or None (or 'full') for any matrix; got 4.",
        ),
        ({"dim": 12.5}, "dim must be a whole number, 1 or more, the width of Y; got 12.5."),
        ({"dim": 0}, "dim must be a whole number, 1 or more, the width of Y; got 0."),
        ({"limit": 0}, "limit must be a number in 1e-06..1e+06, or inf; got 0."),
        ({"limit": "2"}, "limit must be a number in 1e-06..1e+06, or inf; got '2'."),
        (
            {"lambda_": float("nan")},
            "lambda_ must be a number in 1e-30..1e+30, from where it is learned, and gamma one of 0 or more; "
            "got nan and 0.0.",
        ),
        (
            {"gamma": inf},
            "lambda_ must be a number in 1e-30..1e+30, from where it is learned, and gamma one of 0 or more; "
            "got 1.0 and inf.",
        ),
        (
            {"num_relations": 1.5},
            "num_relations must be a whole number in 0..16, as graph.num_relations has it; got 1.5.",
        ),
    ):
        with refused(words):
            kind(**{"dim": DIM, **setting})
    assert kind(DIM, rank="full").rank is None


@kinds
@pytest.mark.parametrize("num_relations", [3, 5, 16])
def test_relations_that_the_graph_does_not_have_change_nothing(kind, num_relations):
    """A code has bits for those of the graph, and no room for 16."""
    g, how = graph(3), {"gamma": 0.4, "prox": "none"}
    (_, Z, mu), few = rows(g.num_nodes), KINDS[kind](num_relations=2, **how)
    assert g.relation.itemsize == 1
    many = KINDS[kind](num_relations=num_relations, **how)
    found, expected = (unfold(Z, g, energy.double(), 5, mu=mu) for energy in (many, few))
    torch.testing.assert_close(found, expected)


def test_a_width_that_is_not_that_of_the_energy_is_refused():
    g, energy = graph(3), Predictive(DIM, 2)
    with refused(f"The energy is one of {DIM} columns, but Z has 5. Make it with as many."):
        unfold(torch.zeros(g.num_nodes, 5), g, energy)
    with refused(f"The energy is one of {DIM} columns, but hidden=8. Make both of one width."):
        MuseGNN(4, 2, 8, energy)
    assert MuseGNN(4, 2, DIM, energy).energy is energy
    assert MuseGNN(4, 2, 8, Energy()).energy.dim is None


def test_a_graph_with_directions_and_no_names_has_one_relation_of_that_name():
    assert Predictive(DIM, 1).names_of_ways() == ["directed forward", "directed backward"]
    assert Relational(DIM, 2).names_of_ways() == ["relation 0", "relation 1"]
    assert Relational(DIM, 2).names_of_ways(["a"]) == ["relation 0", "relation 1"]
    assert Predictive(DIM).names_of_ways(["a"]) == ["all edges"]
