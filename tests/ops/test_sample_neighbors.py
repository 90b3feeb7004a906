"""sample_neighbors: every subset with the same chance, each node for itself, the kernel as the reference."""

from functools import partial
from itertools import combinations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from musegnn import ops
from musegnn.ops.sample_neighbors import numba, reference
from strategies import FANOUTS, KEYS, csrs, node_lists

IMPLEMENTATIONS = [
    pytest.param(partial(ops.sample_neighbors, compiled=False), id="reference"),
    pytest.param(partial(ops.sample_neighbors, compiled=True), id="numba"),
]


def check(drawn, indptr, indices, nodes, fanout):
    """For each node in its turn min(fanout, degree) of its neighbors, none twice."""
    assert drawn.dtype == indices.dtype
    expected = []
    for node in nodes.tolist():
        degree = int(indptr[node + 1] - indptr[node])
        expected += [node] * (degree if fanout is None else min(fanout, degree))
    assert drawn[0].tolist() == expected
    for node in nodes.tolist():
        neighbors = drawn[1][drawn[0] == node].tolist()
        row = indices[indptr[node] : indptr[node + 1]].tolist()
        assert len(set(neighbors)) == len(neighbors)
        assert set(neighbors) <= set(row)
        if fanout is None or len(row) <= fanout:
            assert neighbors == row


def rows(num_rows, degree):
    """Many nodes, each with the neighbors 0, ..., degree - 1."""
    return np.arange(num_rows + 1) * degree, np.tile(np.arange(degree, dtype=np.int32), num_rows)


def subsets(drawn, degree, fanout):
    """For each row the number of its subset."""
    number = {subset: i for i, subset in enumerate(combinations(range(degree), fanout))}
    return np.array([number[tuple(sorted(row))] for row in drawn[1].reshape(-1, fanout).tolist()])


@given(csr=csrs(), fanout=FANOUTS, key=KEYS, data=st.data())
def test_the_kernel_does_what_the_reference_does(csr, fanout, key, data):
    nodes = data.draw(node_lists(csr.num_nodes))
    drawn = ops.sample_neighbors(*csr, nodes, fanout, key)
    check(drawn, *csr, nodes, fanout)
    expected = reference.sample_neighbors(*csr, nodes, fanout, key)
    assert expected.dtype == drawn.dtype
    assert drawn.tolist() == expected.tolist()


@pytest.mark.parametrize("sample_neighbors", IMPLEMENTATIONS)
@pytest.mark.parametrize(("degree", "fanout"), [(5, 2), (7, 3), (4, 1), (4, 3)])
def test_every_subset_has_the_same_chance(sample_neighbors, degree, fanout):
    """Over the nodes at one key, and over the keys at one node."""
    num_subsets = comb(degree, fanout)
    num_draws = 100 * num_subsets
    nodes = np.arange(num_draws)
    drawn = sample_neighbors(*rows(num_draws, degree), nodes, fanout, 1)
    assert oracles.p_value(np.bincount(subsets(drawn, degree, fanout), minlength=num_subsets)) > 1e-3

    one = np.array([3])
    row = rows(4, degree)
    by_key = [sample_neighbors(*row, one, fanout, key) for key in range(num_draws)]
    counts = np.bincount(subsets(np.concatenate(by_key, axis=1), degree, fanout), minlength=num_subsets)
    assert oracles.p_value(counts) > 1e-3


@pytest.mark.parametrize("sample_neighbors", IMPLEMENTATIONS)
def test_nodes_and_keys_draw_independently(sample_neighbors):
    """The pair (a node's subset, another's) takes all 100 values equally often, and so over two keys."""
    csr, nodes = rows(8000, 5), np.arange(8000)
    first = subsets(sample_neighbors(*csr, nodes, 2, 1), 5, 2)
    second = subsets(sample_neighbors(*csr, nodes, 2, 2), 5, 2)
    for left, right in ((first[::2], first[1::2]), (first, second)):
        assert oracles.p_value(np.bincount(10 * left + right, minlength=100)) > 1e-3


@given(csr=csrs(), fanout=FANOUTS, key=KEYS, data=st.data())
def test_a_draw_does_not_depend_on_the_other_nodes(csr, fanout, key, data):
    nodes = data.draw(node_lists(csr.num_nodes))
    together = ops.sample_neighbors(*csr, nodes, fanout, key)
    alone = [ops.sample_neighbors(*csr, nodes[i : i + 1], fanout, key) for i in range(len(nodes))]
    empty = np.empty((2, 0), dtype=csr.indices.dtype)
    assert together.tolist() == np.concatenate([empty, *alone], axis=1).tolist()


@pytest.mark.parametrize("sample_neighbors", IMPLEMENTATIONS)
@pytest.mark.parametrize("fanout", [1, 59, 60, 61, 10**6, None])
def test_fanouts_around_the_degree(sample_neighbors, fanout):
    csr = rows(3, 60)
    nodes = np.array([2, 0])
    check(sample_neighbors(*csr, nodes, fanout, 4), *csr, nodes, fanout)


@pytest.mark.parametrize("fanout", [10**9, 10**12, 2**63 - 1, 2**63, 10**30])
def test_a_fanout_that_no_memory_could_hold_takes_all(fanout):
    csr = rows(3, 4)
    nodes = np.array([2, 0])
    assert ops.sample_neighbors(*csr, nodes, fanout, 4)[1].tolist() == [*range(4)] * 2
    assert ops.reach(*csr, nodes, fanout, 4).tolist() == [0, 1, 2, 3]


def test_a_hub_of_a_hundred_thousand_neighbors():
    csr, nodes = rows(2, 100_003), np.array([1])
    drawn = ops.sample_neighbors(*csr, nodes, 500, 11)
    check(drawn, *csr, nodes, 500)
    assert drawn.tolist() == reference.sample_neighbors(*csr, nodes, 500, 11).tolist()
    # From one end of the row to the other.
    assert drawn[1].min() < 1000
    assert drawn[1].max() > 99_000


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("fanout", [3, None])
def test_no_nodes_and_no_neighbors_draw_nothing(compiled, fanout):
    nothing = np.empty(0, dtype=np.int64)
    drawn = ops.sample_neighbors(*rows(4, 5), nothing, fanout, 0, compiled=compiled)
    assert (drawn.dtype, drawn.shape) == (np.int32, (2, 0))
    no_edges = np.zeros(5, dtype=np.int64)
    drawn = ops.sample_neighbors(no_edges, nothing, np.arange(4), fanout, 0, compiled=compiled)
    assert (drawn.dtype, drawn.shape) == (np.int64, (2, 0))


@pytest.mark.parametrize("fanout", [2, None])
def test_the_kernel_writes_all_of_its_memory(on_poison, fanout):
    # From Python a kernel gives an int back, which would not stay unsigned.
    sample_neighbors = on_poison(numba._sample, bits_at=lambda *place: np.uint64(numba.bits_at(*place)))
    indptr, indices = np.array([0, 3, 3, 5, 6]), np.array([1, 2, 3, 0, 3, 0], dtype=np.int32)
    nodes = np.array([3, 2, 1, 0])
    limit = numba.ALL if fanout is None else fanout
    drawn = sample_neighbors(indptr, indices, nodes, limit, np.uint64(2))
    assert drawn.tolist() == reference.sample_neighbors(indptr, indices, nodes, fanout, 2).tolist()


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    made = calls(numba, "sample_neighbors")
    csr, nodes = rows(9, 6), np.arange(9)
    drawn = ops.sample_neighbors(*csr, nodes, 2, 5, compiled=compiled)
    assert drawn.tolist() == reference.sample_neighbors(*csr, nodes, 2, 5).tolist()
    assert len(made) == compiled
