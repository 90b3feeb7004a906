"""NeighborSampling: the nodes of ShadowKHop, with the drawn edges and no others."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import Graph, InputError
from musegnn.sampling import Draws, NeighborSampling, ShadowKHop
from strategies import graph_parts, seed_lists

FANOUT_LISTS = st.lists(st.integers(1, 4), min_size=1, max_size=3)


def both_ways(pairs):
    return set(pairs) | {(v, u) for u, v in pairs}


@settings(max_examples=50)
@given(parts=graph_parts(), fanouts=FANOUT_LISTS, seed=st.integers(0, 9), data=st.data())
def test_a_sample_has_the_drawn_edges_both_ways(parts, fanouts, seed, data):
    graph = parts.graph()
    seeds = data.draw(seed_lists(graph.num_nodes))
    draws = Draws(graph, NeighborSampling(fanouts=fanouts), seeds, seed=seed)
    key = oracles.sample_key(graph, "NeighborSampling", {"fanouts": fanouts}, seed, draws.split, 0)
    reached, drawn = oracles.hops(graph, seeds, fanouts, oracles.keys_of(key, len(fanouts)))
    sample, edges = draws[0], oracles.edges_of(draws[0])
    oracles.check_sample(sample, graph, seeds, reached[-1], both_ways(set().union(*drawn)))

    assert edges <= set(oracles.entries(graph.indptr, graph.indices))
    for before, after in zip(reached, reached[1:], strict=False):
        # Whoever is new at a hop has an edge to someone who was there before.
        assert all(any((u, v) in edges for u in before) for v in after - before)


@settings(max_examples=50)
@given(parts=graph_parts(), fanouts=FANOUT_LISTS, key=st.integers(0, 2**128 - 1), data=st.data())
def test_the_nodes_are_those_of_shadow_khop(parts, fanouts, key, data):
    graph = parts.graph()
    seeds = data.draw(seed_lists(graph.num_nodes))

    def drawn(sampler):
        rng = np.random.Generator(np.random.Philox(key=key))
        return set(sampler.draw(graph, seeds, rng).reshape(-1).tolist())

    isolated = {int(v) for v in seeds if graph.indptr[v] == graph.indptr[v + 1]}
    assert drawn(NeighborSampling(fanouts=fanouts)) | isolated == drawn(ShadowKHop(fanouts=fanouts))


@settings(max_examples=50)
@given(parts=graph_parts(), hops=st.integers(1, 4), data=st.data())
def test_without_a_limit_it_has_every_edge_of_those_reached_before_the_last_hop(parts, hops, data):
    graph = parts.graph()
    seeds = data.draw(seed_lists(graph.num_nodes))
    sample = Draws(graph, NeighborSampling(fanouts=[graph.num_nodes] * hops), seeds)[0]
    nodes = oracles.ball(graph.indptr, graph.indices, seeds, hops)
    inner = set(oracles.ball(graph.indptr, graph.indices, seeds, hops - 1))
    edges = {(u, v) for u, v in oracles.induced(graph, nodes) if u in inner or v in inner}
    oracles.check_sample(sample, graph, seeds, nodes, edges)


def test_an_edge_that_was_not_drawn_is_not_there():
    """From one corner of K8, three edges of the 28."""
    graph = Graph.from_edges(np.array(np.triu_indices(8, 1)))
    sample = Draws(graph, NeighborSampling(fanouts=[3]), [0])[0]
    assert (sample.num_nodes, sample.num_entries) == (4, 6)


def test_the_edges_of_all_hops_are_kept():
    """From the hub of a star with a thousand leaves: ten, then one, then one."""
    graph = Graph.from_edges([np.zeros(1000, int), np.arange(1, 1001)])
    sample = Draws(graph, NeighborSampling(fanouts=[10, 1, 1]), [0])[0]
    assert sample.num_nodes in (11, 12, 13)
    assert sample.num_entries == 2 * (sample.num_nodes - 1)


def test_isolated_seeds_stay_without_edges():
    graph = Graph.from_edges([[1], [2]], num_nodes=5)
    sample = Draws(graph, NeighborSampling(fanouts=[2, 2]), [0, 4])[0]
    oracles.check_sample(sample, graph, [0, 4], [0, 4], set())
    sample = Draws(graph, NeighborSampling(fanouts=[2, 2]), [0, 2, 4])[0]
    oracles.check_sample(sample, graph, [0, 2, 4], [0, 1, 2, 4], {(1, 2), (2, 1)})


@pytest.mark.parametrize("fanouts", [[], [0], [1.5], None], ids=repr)
def test_other_fanouts_are_refused(unchecked, fanouts):
    with pytest.raises(
        InputError, match=r"^fanouts of NeighborSampling must be positive integers, one for each"
    ):
        NeighborSampling(fanouts=fanouts)


def test_ten_and_five_unless_told():
    assert NeighborSampling().fanouts == [10, 5]
