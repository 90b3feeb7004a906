"""check_structure: accepts what is built, and finds every way an adjacency can be broken."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import oracles
from musegnn import Graph
from musegnn.errors import StoreError
from musegnn.graph import structure
from musegnn.graph.structure import check_structure
from strategies import edge_lists


@pytest.fixture(params=[1, 3, 1 << 22], ids="block of {}".format)
def blocks(request, monkeypatch):
    """Blocks of one entry, of a few, and the real ones."""
    monkeypatch.setattr(structure, "_BLOCK", request.param)


def a_graph():
    """A path 0-1-2-3-4, a chord 1-4, and 5 alone."""
    return Graph.from_edges([[0, 1, 2, 3, 1], [1, 2, 3, 4, 4]], num_nodes=6)


def assert_found(message, indptr, indices):
    with pytest.raises(StoreError, match=message) as caught:
        check_structure(np.asarray(indptr, dtype=np.int64), np.asarray(indices, dtype=np.int32))
    assert "\n" not in str(caught.value)


def csr(num_nodes, pairs):
    """Rows in order, columns as they come."""
    lengths = np.bincount([i for i, _ in pairs], minlength=num_nodes)
    indices = [j for _, j in sorted(pairs, key=lambda pair: pair[0])]
    return np.concatenate([[0], np.cumsum(lengths)]), indices


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize("removed", range(10))
def test_a_removed_direction_is_found(removed):
    graph = a_graph()
    pairs = oracles.entries(graph.indptr, graph.indices)
    del pairs[removed]
    assert_found("The adjacency is not symmetric: .* Build the graph with", *csr(6, pairs))


@pytest.mark.usefixtures("blocks")
def test_directions_removed_from_both_ends_are_found():
    """0-1 kept from 0 only, 3-4 from 4 only: as many entries above the diagonal as below."""
    graph = a_graph()
    pairs = [pair for pair in oracles.entries(graph.indptr, graph.indices) if pair not in ((1, 0), (3, 4))]
    assert_found("is not symmetric", *csr(6, pairs))


@pytest.mark.usefixtures("blocks")
def test_an_edge_with_its_ends_exchanged_for_others_is_found():
    assert_found("is not symmetric", *csr(4, [(0, 1), (1, 2), (2, 3), (3, 0)]))
    assert_found("is not symmetric", *csr(4, [(0, 1), (2, 0)]))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(0, 2), (0, 1), (1, 0), (2, 0)], r"entry \(0, 1\) is out of order or repeated"),
        ([(0, 1), (0, 1), (1, 0), (1, 0)], r"entry \(0, 1\) is out of order or repeated"),
        ([(0, 1), (1, 0), (2, 2)], r"entry \(2, 2\) is a loop"),
        ([(0, 1), (1, 0), (2, 3)], r"entry \(2, 3\) is out of range"),
        ([(0, 1), (1, 0), (2, -1)], r"entry \(2, -1\) is out of range"),
        ([(0, 1), (1, 0), (2, 2**31 - 1)], r"entry \(2, 2147483647\) is out of range"),
    ],
)
def test_a_wrong_entry_is_named(pairs, message):
    assert_found(message + ": the graph is damaged, or was written by a program that", *csr(3, pairs))


@pytest.mark.usefixtures("blocks")
@pytest.mark.parametrize(
    ("indptr", "message"),
    [
        ([0, 2, 1, 4], "indptr falls at row 1: the graph is damaged"),
        ([0, 4, 3, 4], "indptr falls at row 1"),
        ([0, 2**60, 4, 4], "indptr falls at row 1"),
        ([0, -1, 4, 4], "indptr falls at row 0"),
        ([0, 1, 4, 3], "indptr falls at row 2"),
        ([0, 2, -(2**63), 2**63 - 1], "indptr falls at row 1"),
        ([0, 1, 2, 3], "indptr runs from 0 to 3 instead of from 0 to 4"),
        ([0, 1, 2, 9], "indptr runs from 0 to 9 instead of from 0 to 4"),
        ([1, 2, 3, 4], "indptr runs from 1 to 4 instead of from 0 to 4"),
        ([0, 1, 2, 2**62], "indptr runs from 0 to 4611686018427387904"),
    ],
)
def test_a_wrong_indptr_is_found(indptr, message):
    assert_found(message, indptr, [1, 2, 0, 0])


def test_a_graph_that_is_not_saved_is_verified_too():
    graph = a_graph()
    graph.verify()
    graph.indices[0] = 5
    with pytest.raises(StoreError, match="not symmetric"):
        graph.verify()


@given(edges=edge_lists(), block=st.sampled_from([1, 3, 1 << 22]))
def test_every_graph_that_is_built_is_sound(edges, block):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "_BLOCK", block)
        check_structure(graph.indptr, graph.indices)


@given(data=st.data(), edges=edge_lists(), block=st.sampled_from([1, 3, 1 << 22]))
def test_a_changed_column_is_found_as_brute_force_finds_it(data, edges, block):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    assume(graph.num_edges)
    indices = graph.indices.copy()
    indices[data.draw(st.integers(0, len(indices) - 1))] = data.draw(st.integers(-1, edges.num_nodes))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(structure, "_BLOCK", block)
        if oracles.is_sound(graph.indptr, indices):
            check_structure(graph.indptr, indices)
        else:
            with pytest.raises(StoreError):
                check_structure(graph.indptr, indices)


@given(data=st.data(), edges=edge_lists(max_nodes=12))
def test_a_moved_boundary_is_found_as_brute_force_finds_it(data, edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    indptr = graph.indptr.copy()
    indptr[data.draw(st.integers(0, edges.num_nodes))] += data.draw(st.sampled_from([-1, 1]))
    rises = (np.diff(indptr) >= 0).all() and (indptr[0], indptr[-1]) == (0, len(graph.indices))
    if rises and oracles.is_sound(indptr, graph.indices):
        check_structure(indptr, graph.indices)
    else:
        with pytest.raises(StoreError):
            check_structure(indptr, graph.indices)
