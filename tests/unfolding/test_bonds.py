"""What energies want of edges, told edge by edge: against the formulas, one edge after the other."""

import numpy as np
import pytest
import torch
from test_relational import DIM, KINDS, dense_ties, graph, kinds, learned, rows
from test_robust import RHOS
from torch.nn.functional import cosine_similarity

from musegnn import AbstractEnergy, Energy, Robust
from musegnn.unfolding.weighed_edges import apart

lambda_pers = pytest.mark.parametrize("lambda_per", ["graph", "relation", "channel"])
laplacians = pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])


def ways_of(energy, g):
    """A_w, dense, of each relation and direction."""
    return [way for A in dense_ties(g, energy.num_relations) for way in (A, A.T)[: energy.ways]]


def scales(g, laplacian):
    degree = torch.from_numpy(np.diff(g.indptr)).double()[:, None]
    return (degree + 1).rsqrt() if laplacian == "normalized" else torch.ones_like(degree)


def contrast(one, other):
    return 1 - float(cosine_similarity(one, other, dim=0))


@kinds
@lambda_pers
def test_a_typed_energy_way_by_way(kind, lambda_per):
    g = graph(2, hub=True)
    energy = learned(KINDS[kind](num_relations=2, gamma=0.4, lambda_per=lambda_per))
    (Y, Z, mu), is_relational = rows(g.num_nodes), kind in ("normalized", "combinatorial")
    problem, s = energy.problem(Z, g, mu=mu), scales(g, kind)
    with torch.no_grad():
        bonds, lambdas, Hs = list(problem.bonds(Y, ["a", "b"])), energy.lambdas, energy.mixings.matrices()
        names = ["a", "b"] if is_relational else ["a forward", "a backward", "b forward", "b backward"]
        assert [bond.name for bond in bonds] == names
        assert [bond.is_along for bond in bonds] == [not name.endswith("backward") for name in names]
        for bond, A, H, lambda_ in zip(bonds, ways_of(energy, g), Hs, lambdas, strict=True):
            assert bond.edges.T.tolist() == A.nonzero().tolist()
            for (i, j), found in zip(bond.edges.T.tolist(), bond.contrast().tolist(), strict=True):
                one, other = (Y[i] @ H, Y[j]) if is_relational else (Y[i], Y[j] @ H)
                assert found == pytest.approx(contrast(one, other))
            if is_relational:
                assert bond.by_node is None
                costs = [
                    float((lambda_ * (s[i] * Y[i] @ H - s[j] * Y[j]).square()).sum()) for i, j in A.nonzero()
                ]
                np.testing.assert_allclose(bond.by_edge, costs)
            else:
                assert bond.by_edge is None
                to, of = A.sum(1, keepdim=True).clamp(min=1), A.sum(0).clamp(min=1)
                P = A / to if kind == "row" else A / (to * of).sqrt()
                there = A.sum(1) > 0
                costs = there * (lambda_ * (Y - P @ Y @ H).square()).sum(1)
                torch.testing.assert_close(bond.by_node, costs)
        paid = sum((bond.by_edge if is_relational else bond.by_node).sum() for bond in bonds)
        torch.testing.assert_close(paid, problem.terms(Y, Z)["relations"])


@kinds
@lambda_pers
def test_what_typed_neighbors_say(kind, lambda_per):
    g = graph(2, hub=True)
    energy = learned(KINDS[kind](num_relations=2, lambda_per=lambda_per))
    Y, Z, _ = rows(g.num_nodes)
    expected, s = torch.zeros_like(Y), scales(g, kind)
    with torch.no_grad():
        given = zip(ways_of(energy, g), energy.mixings.matrices(), energy.lambdas, strict=True)
        for A, H, lambda_ in given:
            if kind in ("normalized", "combinatorial"):
                # Minus half the gradient of -2 lambda <s_i Y_i H, s_j Y_j>, from both ends.
                expected += s * (A.T @ (s * (lambda_ * (Y @ H))) + (A @ (s * Y)) @ (lambda_[:, None] * H.T))
            else:
                to, of = A.sum(1, keepdim=True).clamp(min=1), A.sum(0).clamp(min=1)
                P = A / to if kind == "row" else A / (to * of).sqrt()
                expected += lambda_ * (P @ Y @ H)
        torch.testing.assert_close(energy.problem(Z, g).heard(Y), expected)


def test_without_relations_every_edge_is_there_in_both_directions():
    g = graph(1, relations=1)
    bare = type(g).from_edges(np.stack([np.repeat(np.arange(9), np.diff(g.indptr)), g.indices]), num_nodes=9)
    Y, Z, _ = rows(9)
    for kind in KINDS:
        (bond,) = learned(KINDS[kind](num_relations=0)).problem(Z, bare).bonds(Y)
        assert bond.name == "all edges"
        assert bond.edges.shape[1] == len(bare.indices) > 0


@laplacians
@pytest.mark.parametrize("rho", [None, *RHOS])
def test_the_papers_energy_and_the_robust_one_edge_by_edge(laplacian, rho):
    g = graph(2, hub=True)
    Y, Z, mu = rows(g.num_nodes)
    energy = (
        Energy(1.7, 0.4, laplacian) if rho is None else Robust(1.7, 0.4, laplacian, **RHOS[rho][0], scale=0.5)
    )
    problem, s = energy.problem(Z, g, mu=mu), scales(g, laplacian)
    (bond,) = problem.bonds(Y)
    pairs = [(i, j) for i in range(g.num_nodes) for j in g.indices[g.indptr[i] : g.indptr[i + 1]] if i < j]
    assert bond.edges.T.tolist() == [list(map(int, pair)) for pair in pairs]
    t = torch.stack([(s[i] * Y[i] - s[j] * Y[j]).square().sum() for i, j in pairs])
    said = torch.zeros_like(Y)
    if rho is None:
        torch.testing.assert_close(bond.by_edge, 1.7 * t)
        assert bond.trust is None
        weights = torch.ones_like(t)
    else:
        torch.testing.assert_close(bond.by_edge, 1.7 * 0.5 * RHOS[rho][1](t / 0.5))
        everything = energy.trust(Y, g)
        first = torch.from_numpy(np.repeat(np.arange(g.num_nodes), np.diff(g.indptr)) < g.indices)
        torch.testing.assert_close(bond.trust, everything[first])
        weights = bond.trust
    for (i, j), weight, value in zip(pairs, weights, bond.contrast(), strict=True):
        assert float(value) == pytest.approx(contrast(Y[i], Y[j]))
        said[i] += weight * (s * Y)[j]
        said[j] += weight * (s * Y)[i]
    torch.testing.assert_close(problem.heard(Y), said)
    terms = problem.terms(Y, Z)
    torch.testing.assert_close(bond.by_edge.sum(), terms[bond.name])
    torch.testing.assert_close(problem.consensus(Y), 0.4 * (Y - mu).square().sum(dim=1))
    torch.testing.assert_close(problem.consensus(Y).sum(), terms["consensus"])


def test_distances_are_gathered_some_at_a_time(monkeypatch):
    X, edges = torch.randn(5, DIM), torch.tensor([[0, 1, 2, 4, 3], [1, 1, 0, 3, 2]])
    expected = (X[edges[0]] - 2 * X[edges[1]]).square().sum(dim=1)
    for chunk in (1, 2 * DIM, 1 << 20):
        monkeypatch.setattr("musegnn.unfolding.weighed_edges._CHUNK", chunk)
        torch.testing.assert_close(apart(X, 2 * X, edges), expected)
    assert apart(X, X, edges[:, :0]).shape == (0,)


def test_an_energy_of_ones_own_need_not_say():
    class Mine(AbstractEnergy):
        """As that of the paper, but for what it tells."""

        def on(self, sample, mu, seen, *, like, alpha="auto"):
            problem = Energy().on(sample, mu, seen, like=like, alpha=alpha)
            problem.bonds = lambda Y, names=None: super(type(problem), problem).bonds(Y, names)
            return problem

    g = graph()
    Y, Z, _ = rows(g.num_nodes)
    assert list(Mine().problem(Z, g).bonds(Y)) == []
