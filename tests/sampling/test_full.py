"""FullKHop: SciPy's ball around the seeds, with all its edges."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import Graph, InputError, ops
from musegnn.sampling import Draws, FullKHop
from strategies import graph_parts, seed_lists


@settings(max_examples=50)
@given(parts=graph_parts(), hops=st.integers(1, 5), data=st.data())
def test_the_ball_around_the_seeds(parts, hops, data):
    graph = parts.graph()
    seeds = data.draw(seed_lists(graph.num_nodes))
    sample = Draws(graph, FullKHop(hops=hops), seeds)[0]
    nodes = oracles.ball(graph.indptr, graph.indices, seeds, hops)
    oracles.check_sample(sample, graph, seeds, nodes, oracles.induced(graph, nodes))


@pytest.mark.parametrize("hops", [1, 2, 3, 9, 10, 50])
def test_each_hop_is_one_edge(hops):
    path = Graph.from_edges([np.arange(9), np.arange(1, 10)])
    sample = Draws(path, FullKHop(hops=hops), [0])[0]
    assert sample.node_ids.tolist() == list(range(min(hops, 9) + 1))


def test_two_hops_unless_told():
    path = Graph.from_edges([np.arange(9), np.arange(1, 10)])
    assert Draws(path, FullKHop(), [4])[0].node_ids.tolist() == [4, 2, 3, 5, 6]


def test_nothing_is_random():
    graph = Graph.from_edges(np.array(np.triu_indices(30, 1)))
    samples = [Draws(graph, FullKHop(hops=1), [3, 17], seed=seed)[0] for seed in range(3)]
    assert len({(*sample.node_ids.tolist(), *sample.indices.tolist()) for sample in samples}) == 1


@pytest.mark.parametrize("hops", [0, -1, 1.5, True, "2", None, [1], 1 << 63], ids=repr)
def test_other_hops_are_refused(unchecked, hops):
    with pytest.raises(
        InputError, match=r"^hops of FullKHop must be a positive integer below 2\*\*63, got "
    ) as it:
        FullKHop(hops=hops)
    assert str(it.value).endswith(f"got {hops!r}.")


@pytest.mark.parametrize("hops", [10**9, (1 << 63) - 1])
def test_it_stops_when_nothing_new_is_reached(monkeypatch, hops):
    """Nine hops reach the end of a path of ten nodes; the tenth finds nothing new."""
    reach, calls = ops.reach, []

    def counted(*args):
        calls.append(args)
        return reach(*args)

    monkeypatch.setattr(ops, "reach", counted)
    path = Graph.from_edges([np.arange(9), np.arange(1, 10)])
    assert Draws(path, FullKHop(hops=hops), [0])[0].node_ids.tolist() == list(range(10))
    assert len(calls) == 10


def test_the_first_hop_is_taken_whatever_the_number_of_seeds(unchecked):
    """A node without neighbors, and seeds that have all nodes among them."""
    graph = Graph.from_edges([[0], [1]], num_nodes=3)
    assert Draws(graph, FullKHop(hops=3), [2])[0].node_ids.tolist() == [2]
    assert Draws(graph, FullKHop(hops=3), [0])[0].node_ids.tolist() == [0, 1]
    assert Draws(graph, FullKHop(hops=3), [0, 1, 2])[0].node_ids.tolist() == [0, 1, 2]
