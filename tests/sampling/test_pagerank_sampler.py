"""PersonalizedPageRank: batches of what matters most to their seeds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draw_checks
import strategies
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.ops.pagerank.reference import pagerank
from musegnn.sampling import Draws, PersonalizedPageRank
from musegnn.sampling.base import describe


@settings(max_examples=30)
@given(edges=strategies.edge_lists(), top_k=st.integers(1, 5), batch_size=st.integers(1, 9))
def test_a_sample_is_the_union_over_its_seeds_with_all_edges(edges, top_k, batch_size):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    draws = Draws(graph, PersonalizedPageRank(top_k, 0.2, 1e-3), "none", batch_size=batch_size)
    seen = []
    for i, sample in enumerate(draws):
        expected = pagerank(graph.indptr, graph.indices, draws.seeds(i), top_k, 0.2, 1e-3)
        assert sample.seeds.tolist() == draws.seeds(i).tolist()
        assert sorted(sample.node_ids.tolist()) == expected.tolist()
        draw_checks.check_induced(graph, sample)
        seen += sample.seeds.tolist()
    assert sorted(seen) == list(range(graph.num_nodes))


def test_a_sample_depends_on_neither_order_nor_threads():
    graph = Graph.from_edges(np.random.default_rng(0).integers(0, 400, (2, 900)), num_nodes=500)
    sampler = PersonalizedPageRank(6, tolerance=1e-3)
    draw_checks.check_order_and_threads(lambda: Draws(graph, sampler, "none", batch_size=40))


def test_nothing_is_random():
    graph = Graph.from_edges(np.random.default_rng(0).integers(0, 90, (2, 200)), num_nodes=90)
    one, other = (Draws(graph, PersonalizedPageRank(4), [1, 5, 80], seed=seed)[0] for seed in (0, 1))
    assert draw_checks.content(one) == draw_checks.content(other)


def test_two_communities_are_told_apart():
    """Two cliques of six with one edge between: the best six of a node are its own clique."""
    cliques = [(u + c, v + c) for c in (0, 6) for u in range(6) for v in range(u)]
    graph = Graph.from_edges(np.array([*cliques, (5, 6)]).T)
    sampler = PersonalizedPageRank(6)
    assert sorted(Draws(graph, sampler, [2])[0].node_ids.tolist()) == list(range(6))
    assert sorted(Draws(graph, sampler, [9])[0].node_ids.tolist()) == list(range(6, 12))


@pytest.mark.parametrize("top_k", [0, -3, True])
def test_top_k_is_a_positive_integer(top_k):
    with pytest.raises(InputError, match=f"top_k of PersonalizedPageRank must be a .* got {top_k!r}"):
        PersonalizedPageRank(top_k)


@pytest.mark.parametrize("name", ["teleport", "tolerance"])
@pytest.mark.parametrize("value", [0, 0.0, 1, 1.0, -0.1, 2.5, True, math.nan, math.inf])
def test_teleport_and_tolerance_lie_between_0_and_1(name, value):
    with pytest.raises(InputError, match=rf"{name} of PersonalizedPageRank must lie in \(0, 1\), got"):
        PersonalizedPageRank(16, **{name: value})


def test_work_for_a_seed_is_bounded():
    with pytest.raises(InputError, match=r"at least 1e-09, .* got 0.1 \* 1e-09. Raise the tolerance."):
        PersonalizedPageRank(16, teleport=0.1, tolerance=1e-9)
    assert PersonalizedPageRank(16, teleport=0.5, tolerance=4e-9).tolerance == 4e-9


def test_settings_are_told():
    settings = {"top_k": 3, "teleport": 0.15, "tolerance": 1e-4}
    assert describe(PersonalizedPageRank(3)) == {"name": "PersonalizedPageRank", "settings": settings}
