"""Cluster: the parts that METIS finds."""

import dataclasses
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymetis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draw_checks
import strategies
from musegnn.errors import InputError, MissingExtraError
from musegnn.graph import Graph
from musegnn.sampling import Cluster, Draws
from musegnn.sampling.base import describe


def cliques(count, size, order=None):
    """Cliques in a ring, neighbors joined by one edge; `order` renames the nodes."""
    edges = [(c * size + u, c * size + v) for c in range(count) for u in range(size) for v in range(u)]
    edges += [(c * size, (c + 1) % count * size + 1) for c in range(count)]
    edges = np.array(edges).T
    return Graph.from_edges(edges if order is None else order[edges], num_nodes=count * size)


@pytest.fixture
def calls(monkeypatch):
    """The arguments with which METIS is called; it takes its time, so that threads meet."""
    calls, part_graph = [], pymetis.part_graph

    def recording(parts, adjacency, options):
        calls.append((parts, adjacency, options))
        time.sleep(0.05)
        return part_graph(parts, adjacency, options=options)

    monkeypatch.setattr(pymetis, "part_graph", recording)
    return calls


@settings(max_examples=30)
@given(edges=strategies.edge_lists(), data=st.data())
def test_each_node_is_in_one_part_with_all_edges_inside(edges, data):
    n = edges.num_nodes
    split = (np.arange(n) % 4 - 1).astype(np.int8)
    graph = Graph.from_edges(edges.index, num_nodes=n, labels=np.zeros(n, int), split=split)
    draws = Draws(graph, Cluster(data.draw(st.integers(1, n))), "train")
    samples = list(draws)
    assert len(samples) == len(draws) == draws.sampler.parts
    for sample in samples:
        draw_checks.check_induced(graph, sample)
        draw_checks.check_seeds(sample, np.flatnonzero(split == 0))
    assert sorted(np.concatenate([sample.node_ids for sample in samples]).tolist()) == list(range(n))


@pytest.mark.parametrize("count", [2, 5, 12])
def test_cliques_are_found(count):
    """Recursive bisection up to 8 parts, k-way above: the least cut is one edge between two cliques."""
    order = np.random.default_rng(0).permutation(count * 10)
    draws = Draws(cliques(count, 10, order), Cluster(count), "none")
    found = {tuple(sorted(sample.node_ids.tolist())) for sample in draws}
    assert found == {tuple(sorted(order[c * 10 : c * 10 + 10].tolist())) for c in range(count)}


def test_parts_depend_on_neither_order_nor_threads_nor_seed():
    graph = Graph.from_edges(np.random.default_rng(0).integers(0, 400, (2, 900)), num_nodes=500)
    draw_checks.check_order_and_threads(lambda: Draws(graph, Cluster(9), "none"))
    contents = [
        [draw_checks.content(s) for s in Draws(graph, Cluster(9), "none", seed=seed)] for seed in (0, 1)
    ]
    assert contents[0] == contents[1]


def test_the_nodes_of_a_part_ascend():
    graph, sampler = cliques(4, 50, np.random.default_rng(0).permutation(200)), Cluster(4)
    for index in range(4):
        nodes = sampler.draw(graph, index, np.random.default_rng(0))
        assert (len(nodes), nodes.dtype) == (50, graph.indices.dtype)
        assert (np.diff(nodes) > 0).all()


def test_a_graph_is_cut_once_even_by_threads_that_meet(calls):
    sampler = Cluster(4)
    one, other = cliques(4, 6), cliques(4, 7)
    for graph in (one, other, one, other):
        with ThreadPoolExecutor(4) as pool:
            samples = list(pool.map(Draws(graph, sampler, "none").__getitem__, range(4)))
        assert [sample.num_nodes for sample in samples] == [graph.num_nodes // 4] * 4
    assert len(calls) == 2
    assert list(Draws(one, Cluster(4), "none"))
    assert len(calls) == 3


def test_objects_do_not_cut_at_the_same_time(monkeypatch):
    """METIS takes its random numbers from the C library, which has one stream for all threads."""
    inside, overlaps, part_graph = [], [], pymetis.part_graph

    def recording(parts, adjacency, options):
        inside.append(parts)
        time.sleep(0.05)
        overlaps.append(len(inside) > 1)
        inside.pop()
        return part_graph(parts, adjacency, options=options)

    monkeypatch.setattr(pymetis, "part_graph", recording)
    graph = cliques(4, 6)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda parts: Cluster(parts).draw(graph, 0, np.random.default_rng(0)), [2, 3, 4]))
    assert overlaps == [False] * 3


def test_the_seed_is_set_and_no_more_is_copied_than_must_be(calls, tmp_path):
    cliques(3, 5).save(tmp_path / "graph")
    graph = Graph.open(tmp_path / "graph")
    assert len(Draws(graph, Cluster(3), "none")[0].node_ids) == 5
    (parts, adjacency, options), *others = calls
    assert (parts, options.seed, others) == (3, 0, [])
    dtype = pymetis.zero_copy_dtype()
    for given_array, own in ((adjacency.adj_starts, graph.indptr), (adjacency.adjacent, graph.indices)):
        assert given_array.dtype == dtype
        assert np.shares_memory(given_array, own) == (own.dtype == dtype)


def test_what_is_kept_cannot_be_overwritten():
    nodes = Cluster(2).draw(cliques(2, 4), 0, np.random.default_rng(0))
    with pytest.raises(ValueError, match="read-only"):
        nodes[0] = 3


def test_an_empty_part_is_an_empty_sample(monkeypatch):
    """METIS may leave a part empty, the last one, too."""
    answer = pymetis.GraphPartition(0, [1, 1, 3, 1, 3, 3])
    monkeypatch.setattr(pymetis, "part_graph", lambda *args, **options: answer)
    samples = list(Draws(cliques(2, 3), Cluster(5), "none"))
    assert [sample.node_ids.tolist() for sample in samples] == [[], [0, 1, 3], [], [2, 4, 5], []]
    assert [sample.num_entries for sample in samples[::2]] == [0, 0, 0]


def test_one_part_is_everything_and_needs_no_metis(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    (sample,) = Draws(cliques(3, 4), Cluster(1), "none")
    assert sample.node_ids.tolist() == list(range(12))


def test_without_pymetis_the_command_that_installs_it_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    draws = Draws(cliques(3, 4), Cluster(2), "none")
    with pytest.raises(
        MissingExtraError, match=r"The sampler Cluster needs .*pip install 'musegnn\[cluster\]'"
    ):
        draws[0]


def test_more_parts_than_nodes_are_refused():
    assert len(list(Draws(cliques(2, 3), Cluster(6), "none"))) == 6
    with pytest.raises(InputError, match=r"at most the number of nodes, 6 in graph; got 7. Ask for fewer"):
        Draws(cliques(2, 3), Cluster(7), "none")[0]


def test_a_graph_beyond_the_indices_of_metis_is_refused(monkeypatch):
    monkeypatch.setattr(pymetis, "zero_copy_dtype", lambda: np.dtype(np.int8))
    many_entries, many_nodes = cliques(8, 5), Graph.from_edges([[0], [1]], num_nodes=128)
    for graph in (many_entries, many_nodes):
        with pytest.raises(
            InputError, match=r"too large for METIS: .* 8-bit indices, which end at 127. Install"
        ):
            Draws(graph, Cluster(2), "none")[0]


@pytest.mark.parametrize("parts", [0, -1, True])
def test_parts_is_a_positive_integer(parts):
    with pytest.raises(
        InputError, match=rf"parts of Cluster must be a positive integer below 2\*\*63, got {parts!r}"
    ):
        Cluster(parts)


def test_settings_are_the_parts_alone():
    graph, sampler = cliques(3, 4), Cluster(3)
    for _ in range(2):
        assert describe(sampler) == {"name": "Cluster", "settings": {"parts": 3}}
        assert sampler == Cluster(3)
        Draws(graph, sampler, "none")[0]
    assert dataclasses.replace(sampler, parts=2).num_samples == 2
