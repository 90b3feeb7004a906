"""induce_subgraph: the reference and the compiled kernel against A[ids, ids] of the dense matrix."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from musegnn import ops
from musegnn.ops.induce_subgraph import numba
from strategies import csrs, node_lists

IMPLEMENTATIONS = [
    pytest.param(partial(ops.induce_subgraph, compiled=False), id="reference"),
    pytest.param(partial(ops.induce_subgraph, compiled=True), id="numba"),
]


def check(induce_subgraph, indptr, indices, node_ids, num_seeds):
    kept_indptr, kept = induce_subgraph(indptr, indices, node_ids, num_seeds)
    assert (kept_indptr.dtype, kept.dtype) == (np.int64, np.int32)
    assert len(kept_indptr) == len(node_ids) + 1
    assert len(kept) == kept_indptr[-1]
    rows, columns = np.nonzero(oracles.dense(indptr, indices)[np.ix_(node_ids, node_ids)])
    assert kept_indptr.tolist() == np.searchsorted(rows, np.arange(len(node_ids) + 1)).tolist()
    # Row by row, ascending.
    assert kept.tolist() == columns.tolist()
    return kept_indptr, kept


def seeds_first(seeds, others, dtype=np.int64):
    return np.array([*sorted(seeds), *sorted(set(others) - set(seeds))], dtype=dtype)


def with_hub(num_nodes, hub, dtype):
    """A hub beside every node of a ring, with chords."""
    ring = np.arange(num_nodes)
    source = np.concatenate([ring, ring, np.full(num_nodes, hub)])
    target = np.concatenate([np.roll(ring, 1), (ring * 7) % num_nodes, ring])
    matrix = oracles.symmetric_csr(source, target, num_nodes)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(dtype)


@pytest.mark.parametrize("induce_subgraph", IMPLEMENTATIONS)
@given(csr=csrs(), data=st.data())
def test_any_nodes_keep_the_edges_of_the_dense_matrix(induce_subgraph, csr, data):
    """The seeds lie anywhere among the ids; both loop-free and symmetric, as the graph is."""
    nodes = data.draw(node_lists(csr.num_nodes))
    num_seeds = data.draw(st.integers(0, len(nodes)))
    node_ids = seeds_first(nodes[:num_seeds].tolist(), nodes.tolist(), nodes.dtype)
    kept = check(induce_subgraph, *csr, node_ids, num_seeds)
    assert oracles.is_sound(*kept)


@pytest.mark.parametrize("induce_subgraph", IMPLEMENTATIONS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("hub", [0, 3, 700, 1299])
@pytest.mark.parametrize("num_seeds", [0, 1, 5, 650, 1300])
def test_hub_rows_longer_than_what_is_fetched_ahead(induce_subgraph, dtype, hub, num_seeds):
    """2048 bytes are fetched of a row: 512 neighbors in int32, 256 in int64."""
    indptr, indices = with_hub(1300, hub, dtype)
    assert indices.itemsize * np.diff(indptr)[hub] > 2 * numba._FETCHED
    order = np.random.default_rng(num_seeds).permutation(1300)
    check(induce_subgraph, indptr, indices, seeds_first(order[:num_seeds], order), num_seeds)
    half = order[:650]
    few = min(num_seeds, 650)
    check(induce_subgraph, indptr, indices, seeds_first(half[:few], half), few)


@pytest.mark.parametrize("induce_subgraph", IMPLEMENTATIONS)
@pytest.mark.parametrize("num_nodes", [1, 63, 64, 65, 129])
def test_all_nodes_keep_the_whole_graph(induce_subgraph, num_nodes):
    indptr, indices = with_hub(num_nodes, num_nodes // 2, np.int32)
    kept = check(induce_subgraph, indptr, indices, np.arange(num_nodes), 0)
    assert kept[0].tolist() == indptr.tolist()
    assert kept[1].tolist() == indices.tolist()
    for num_seeds in (1, num_nodes):
        check(induce_subgraph, indptr, indices, np.arange(num_nodes), num_seeds)


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("num_nodes", [0, 5])
def test_no_nodes_keep_nothing(compiled, num_nodes):
    indptr, indices = with_hub(num_nodes, 0, np.int32) if num_nodes else (np.zeros(1, int), np.empty(0, int))
    kept_indptr, kept = ops.induce_subgraph(indptr, indices, np.empty(0, int), 0, compiled=compiled)
    assert (kept_indptr.tolist(), kept.tolist()) == ([0], [])
    assert (kept_indptr.dtype, kept.dtype) == (np.int64, np.int32)


@pytest.mark.parametrize("num_seeds", [0, 2, 6])
def test_the_kernels_write_all_of_their_memory(on_poison, num_seeds):
    csr = with_hub(11, 4, np.int32)
    node_ids = seeds_first([9, 1, 4, 0, 6, 10][:num_seeds], [0, 1, 3, 4, 6, 9, 10])

    def induce_subgraph(indptr, indices, node_ids, num_seeds):
        induce = on_poison(numba._induce, _relabel=on_poison(numba._relabel))
        kept = np.full(len(indices), np.iinfo(np.uint32).max, dtype=np.uint32)
        return induce(indptr, indices.view(np.uint32), node_ids, num_seeds, kept)

    check(induce_subgraph, *csr, node_ids, num_seeds)


def test_the_input_is_left_as_it_is():
    indptr, indices = with_hub(30, 3, np.int32)
    node_ids = seeds_first([29, 3], range(30))
    before = [array.copy() for array in (indptr, indices, node_ids)]
    _, kept = ops.induce_subgraph(indptr, indices, node_ids, 2)
    assert all(np.array_equal(*pair) for pair in zip(before, (indptr, indices, node_ids), strict=True))
    assert kept.flags.writeable


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    made = calls(numba, "induce_subgraph")
    node_ids = seeds_first([20, 3], range(0, 30, 2))
    check(partial(ops.induce_subgraph, compiled=compiled), *with_hub(30, 3, np.int32), node_ids, 2)
    assert len(made) == compiled
