"""Graphs that the Weisfeiler-Lehman test takes for one: so does the whole energy, but not that of samples."""

from collections import Counter

import networkx as nx
import numpy as np
import pytest
import torch

import oracles
from machine import one_thread as one_thread
from machine import with_proof
from musegnn import Draws, Energy, FullKHop, Graph, solve, unfold

LAMBDA = 1.0


def cycle(*nodes):
    return list(zip(nodes, (*nodes[1:], nodes[0]), strict=True))


TRIANGLES = cycle(0, 1, 2) + cycle(3, 4, 5)
HEXAGON = cycle(0, 1, 2, 3, 4, 5)
DECALIN = [*cycle(0, 1, 2, 3, 4, 5), (5, 6), (6, 7), (7, 8), (8, 9), (9, 0)]
BICYCLOPENTYL = cycle(0, 1, 2, 3, 4) + cycle(5, 6, 7, 8, 9) + [(0, 5)]
PAIRS = {"hexagon": (TRIANGLES, HEXAGON), "decalin": (DECALIN, BICYCLOPENTYL)}


@pytest.fixture(params=PAIRS)
def pair(request):
    return [graph_of(edges) for edges in PAIRS[request.param]]


def graph_of(edges):
    return Graph.from_edges(np.array(edges).T, num_nodes=int(np.max(edges)) + 1)


def ones(num_nodes, dim=1):
    return torch.ones(num_nodes, dim, dtype=torch.float64)


def in_order(Y):
    """The rows as a multiset."""
    return np.array(sorted(np.asarray(Y).round(12).tolist()))


def minimizer_by_hand(L, Z, prox="none"):
    """(I + lambda L)^-1 Z; for Z = 1 and the normalized Laplacian, H is an M-matrix, so that relu is idle."""
    Y = np.linalg.solve(np.eye(len(L)) + LAMBDA * L, np.asarray(Z))
    assert prox == "none" or (Y >= 0).all()
    return Y


def colors(graph):
    """The stable coloring of the Weisfeiler-Lehman test, all features equal."""
    color = dict.fromkeys(range(graph.num_nodes), ())
    for _ in range(graph.num_nodes):
        around = {
            v: (color[v], sorted(color[int(u)] for u in graph.indices[graph.indptr[v] : graph.indptr[v + 1]]))
            for v in color
        }
        names = {repr(value): (i,) for i, value in enumerate(sorted(around.values(), key=repr))}
        color = {v: names[repr(value)] for v, value in around.items()}
    return Counter(color.values())


def seed_minimizers(graph, hops, laplacian="normalized", prox="relu"):
    """The embedding of each node in the sample of which it is the only seed."""
    energy, found = Energy(LAMBDA, 0.0, laplacian, prox), []
    for sample in Draws(graph, FullKHop(hops), "none", batch_size=1):
        found.append(solve(ones(sample.num_nodes), sample, energy)[0].numpy())
    return in_order(found)


def seed_minimizers_by_hand(graph, hops, laplacian=0, loops=True):
    """The same from balls by shortest paths, dense matrices and a dense solve."""
    found = []
    for seed in range(graph.num_nodes):
        nodes = oracles.ball(graph.indptr, graph.indices, [seed], hops)
        A = oracles.dense(graph.indptr, graph.indices)[np.ix_(nodes, nodes)]
        degree = A.sum(axis=1)
        if laplacian:
            L = np.diag(degree) - A
        else:
            B = A + loops * np.eye(len(A))
            root = np.diag(B.sum(axis=1) ** -0.5)
            L = np.eye(len(A)) - root @ B @ root
        found.append(minimizer_by_hand(L, ones(len(A)))[nodes.index(seed)])
    return in_order(found)


def test_the_pairs_are_not_isomorphic_but_equivalent_for_the_test(pair):
    first, second = (nx.Graph(oracles.entries(graph.indptr, graph.indices)) for graph in pair)
    assert not nx.is_isomorphic(first, second)
    assert colors(pair[0]) == colors(pair[1])


@pytest.mark.parametrize("prox", with_proof(["none", "relu"], ["l1", "group"]))
@pytest.mark.parametrize("laplacian", ["normalized", "combinatorial"])
def test_whole_graphs_have_the_same_minimizers_from_any_start(pair, laplacian, prox):
    rng = torch.Generator().manual_seed(0)
    f = torch.tensor([[1.0, -0.5, 2.0]], dtype=torch.float64)
    energy, found = Energy(LAMBDA, 0.0, laplacian, prox), []
    for graph in pair:
        Z = ones(graph.num_nodes) @ f
        found.append(in_order(solve(Z, graph, energy, tolerance=1e-13)))
        for scale in (1.0, 30.0):
            start = scale * torch.randn(Z.shape, dtype=Z.dtype, generator=rng)
            reached = unfold(Z, graph, energy, steps=200, init=start)
            np.testing.assert_allclose(in_order(reached), found[-1], atol=1e-10)
    np.testing.assert_allclose(found[0], found[1], atol=1e-10)


def test_whole_graphs_have_the_minimizers_of_a_dense_solve(pair):
    for graph in pair:
        L = oracles.laplacians(graph.indptr, graph.indices)[0]
        for prox in ("none", "relu"):
            Y = solve(ones(graph.num_nodes), graph, Energy(LAMBDA, 0.0, "normalized", prox), tolerance=1e-13)
            np.testing.assert_allclose(Y, minimizer_by_hand(L, ones(len(L)), prox), atol=1e-10)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("hops", [1, 2])
def test_samples_separate_the_first_pair_with_one_hop_and_the_second_with_two(name, hops):
    graphs = [graph_of(edges) for edges in PAIRS[name]]
    first, second = (seed_minimizers(graph, hops) for graph in graphs)
    for graph, found in zip(graphs, (first, second), strict=True):
        np.testing.assert_allclose(found, seed_minimizers_by_hand(graph, hops), atol=1e-9)
    apart = np.abs(first - second).max()
    if name == "hexagon" or hops == 2:
        assert apart > 0.01
    else:
        assert apart < 1e-9


def test_the_embeddings_of_the_seeds():
    """A triangle is regular, so that L 1 = 0 and Y* = 1; the middle of a path of three nodes, by hand."""
    path = np.linalg.solve(
        [[1.5, -(6**-0.5), 0], [-(6**-0.5), 5 / 3, -(6**-0.5)], [0, -(6**-0.5), 1.5]], np.ones(3)
    )
    np.testing.assert_allclose(seed_minimizers(graph_of(TRIANGLES), 1), 1, atol=1e-9)
    np.testing.assert_allclose(seed_minimizers(graph_of(HEXAGON), 1), path[1], atol=1e-9)


@pytest.mark.parametrize("hops", [1, 2])
def test_the_printed_laplacian_separates_nothing_when_features_are_uniform(pair, hops):
    """(D - A) 1 = 0, so that Y* = Z on every graph: the normalized Laplacian is needed, not a convenience."""
    for graph in pair:
        np.testing.assert_allclose(seed_minimizers(graph, hops, "combinatorial"), 1, atol=1e-9)
        np.testing.assert_allclose(seed_minimizers_by_hand(graph, hops, 1), 1, atol=1e-12)


@pytest.mark.parametrize(("name", "hops"), [("hexagon", 1), ("decalin", 2)])
def test_the_papers_laplacian_without_loops_separates_them_as_well(name, hops):
    first, second = (seed_minimizers_by_hand(graph_of(edges), hops, loops=False) for edges in PAIRS[name])
    assert np.abs(first - second).max() > 0.01
