"""ShadowKHop: the published operator, against sets in Python and SciPy's shortest paths."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import Graph, InputError
from musegnn.sampling import Draws, ShadowKHop
from strategies import graph_parts, seed_lists

FANOUT_LISTS = st.lists(st.integers(1, 4), min_size=1, max_size=3)
SEEDS = st.integers(-(2**70), 2**70)


def star(num_leaves):
    """A hub 0 and its leaves; the hub is the only train node."""
    n = num_leaves + 1
    edges = [np.zeros(num_leaves, int), np.arange(1, n)]
    return Graph.from_edges(edges, labels=np.zeros(n, int), split=[0] + [-1] * num_leaves)


@settings(max_examples=50)
@given(parts=graph_parts(), fanouts=FANOUT_LISTS, batch_size=st.integers(1, 9), seed=SEEDS)
def test_a_sample_is_what_the_definition_says(parts, fanouts, batch_size, seed):
    """V_0 = seeds, every node of V_(h-1) draws, V_h is the union; all edges among V_H; seeds first."""
    graph = parts.graph()
    draws = Draws(graph, ShadowKHop(fanouts=fanouts), batch_size=batch_size, seed=seed)
    cause = (graph, "ShadowKHop", {"fanouts": fanouts}, seed, "train")
    ids = np.flatnonzero(graph.split == 0)
    batches = oracles.batches(ids, batch_size, oracles.sample_key(*cause, "order")) if len(ids) else []
    assert len(draws) == len(batches)
    for i, seeds in enumerate(batches):
        keys = oracles.keys_of(oracles.sample_key(*cause, i), len(fanouts))
        nodes = oracles.hops(graph, seeds, fanouts, keys)[0][-1]
        oracles.check_sample(draws[i], graph, seeds, nodes, oracles.induced(graph, nodes))


@settings(max_examples=50)
@given(parts=graph_parts(), hops=st.integers(1, 4), data=st.data())
def test_fanouts_above_every_degree_give_the_ball(parts, hops, data):
    graph = parts.graph()
    seeds = data.draw(seed_lists(graph.num_nodes))
    sample = Draws(graph, ShadowKHop(fanouts=[graph.num_nodes] * hops), seeds)[0]
    nodes = oracles.ball(graph.indptr, graph.indices, seeds, hops)
    oracles.check_sample(sample, graph, seeds, nodes, oracles.induced(graph, nodes))


def test_every_node_reached_so_far_draws_again():
    """From the hub of a star, one leaf at each of two hops: the same leaf once in ten.

    With draws for the newest node only the second hop would lead back to the hub: one leaf, always.
    """
    graph = stars(2000, 10)
    sample = Draws(graph, ShadowKHop(fanouts=[1, 1]), np.arange(2000), batch_size=2000)[0]
    counts = np.bincount(leaves_by_star(sample, 2000), minlength=3)
    assert counts[0] == 0
    assert oracles.p_value(counts[1:], [200, 1800]) > 1e-3


def test_three_hops_are_drawn_anew_and_uniformly():
    """Leaves drawn by a hub at three hops, one each: how many differ is a birthday problem."""
    graph = stars(2000, 5)
    sample = Draws(graph, ShadowKHop(fanouts=[1, 1, 1]), np.arange(2000), batch_size=2000)[0]
    counts = np.bincount(leaves_by_star(sample, 2000), minlength=4)
    assert counts[0] == 0
    assert oracles.p_value(counts[1:], 2000 * np.array([1 / 25, 12 / 25, 12 / 25])) > 1e-3
    # By symmetry each leaf is in equally often.
    places = (sample.node_ids[2000:] - 2000) // 2000
    assert oracles.p_value(np.bincount(places, minlength=5)) > 1e-3


def stars(num_stars, num_leaves):
    """Hubs 0, 1, ...; the leaves of hub h are h + num_stars, h + 2 num_stars, ..."""
    hubs = np.tile(np.arange(num_stars), num_leaves)
    return Graph.from_edges([hubs, num_stars + np.arange(num_stars * num_leaves)])


def leaves_by_star(sample, num_stars):
    return np.bincount(sample.node_ids[num_stars:] % num_stars, minlength=num_stars)


def test_the_first_fanout_is_that_of_the_seeds():
    """A tree: seed 0, four children, each with three of its own."""
    children = np.arange(1, 5)
    edges = [[*np.zeros(4, int), *np.repeat(children, 3)], [*children, *range(5, 17)]]
    graph = Graph.from_edges(edges)
    for seed in range(20):
        sample = Draws(graph, ShadowKHop(fanouts=[4, 1]), [0], seed=seed)[0]
        assert set(children) <= set(sample.node_ids)
        assert sample.num_nodes <= 1 + 4 + 4


@pytest.mark.parametrize("fanouts", [[3], [10, 5], [100, 100, 100], [10**6]])
def test_one_node_and_no_edges(fanouts):
    for num_nodes in (1, 5):
        graph = Graph.from_edges(np.empty((2, 0), int), num_nodes=num_nodes)
        sample = Draws(graph, ShadowKHop(fanouts=fanouts), "none")[0]
        oracles.check_sample(sample, graph, range(num_nodes), range(num_nodes), set())


def test_no_hub_is_too_large():
    graph = star(300)
    sample = Draws(graph, ShadowKHop(fanouts=[299, 1]), batch_size=1)[0]
    nodes = sample.node_ids.tolist()
    assert sample.num_nodes in (300, 301)
    oracles.check_sample(sample, graph, [0], nodes, oracles.induced(graph, nodes))


@pytest.mark.parametrize("fanout", [10**9, 10**12, 2**63, 10**30])
def test_a_fanout_that_no_memory_could_hold_takes_all(fanout):
    assert Draws(star(4), ShadowKHop(fanouts=[fanout]))[0].num_nodes == 5


def test_all_edges_among_the_nodes_are_kept_and_not_only_the_drawn_ones():
    graph = Graph.from_edges(np.array(np.triu_indices(8, 1)))
    sample = Draws(graph, ShadowKHop(fanouts=[3]), [0])[0]
    assert sample.num_nodes == 4
    assert sample.num_entries == 4 * 3


def test_a_recipe_keeps_drawing_the_same_nodes():
    """Golden: stores on disk hold samples that must come out again. A ring of 40 with chords."""
    nodes = np.arange(40)
    graph = Graph.from_edges([[*nodes, *nodes], [*(nodes + 1) % 40, *(nodes * 7) % 40]])
    sample = Draws(graph, ShadowKHop(fanouts=[2, 1]), "none", batch_size=4, seed=3)[1]
    assert sample.node_ids.tolist() == [
        0,
        25,
        28,
        30,
        1,
        4,
        9,
        10,
        12,
        15,
        22,
        24,
        26,
        31,
        33,
        36,
        37,
        38,
        39,
    ]


def test_fanouts_may_be_a_tuple():
    assert ShadowKHop(fanouts=(4, 2)) == ShadowKHop(fanouts=[4, 2])
    assert ShadowKHop().fanouts == [10, 5]


@pytest.mark.parametrize(
    "fanouts", [[], 0, 4, [3, 0], [-1], [2.0], ["3"], "3", None, [True], [None]], ids=repr
)
def test_other_fanouts_are_refused(unchecked, fanouts):
    with pytest.raises(
        InputError, match=r"^fanouts of ShadowKHop must be positive integers, one for each"
    ) as it:
        ShadowKHop(fanouts=fanouts)
    assert f"got {fanouts!r}. For example fanouts=[10, 5]." in str(it.value)
