"""reach: the union of the nodes and of what sample_neighbors draws; without a fanout, SciPy's ball."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from musegnn import ops
from musegnn.ops.reach import numba, reference
from musegnn.ops.sample_neighbors import reference as sample_neighbors
from strategies import FANOUTS, KEYS, csrs, node_lists

IMPLEMENTATIONS = [
    pytest.param(partial(ops.reach, compiled=False), id="reference"),
    pytest.param(partial(ops.reach, compiled=True), id="numba"),
]


@pytest.mark.parametrize("reach", IMPLEMENTATIONS)
@given(csr=csrs(), fanout=FANOUTS, key=KEYS, data=st.data())
def test_the_nodes_and_their_drawn_neighbors(reach, csr, fanout, key, data):
    nodes = data.draw(node_lists(csr.num_nodes))
    _, neighbors = sample_neighbors.sample_neighbors(*csr, nodes, fanout, key)
    reached = reach(*csr, nodes, fanout, key)
    assert reached.dtype == csr.indices.dtype
    assert reached.tolist() == sorted({*nodes.tolist(), *neighbors.tolist()})
    if fanout is None:
        assert reached.tolist() == oracles.ball(*csr, nodes, hops=1)


@pytest.mark.parametrize("reach", IMPLEMENTATIONS)
@pytest.mark.parametrize("num_nodes", [1, 2, 63, 64, 65, 127, 128, 129, 1000])
@pytest.mark.parametrize("fanout", [1, 5, None])
def test_graphs_at_the_borders_of_a_word(reach, num_nodes, fanout):
    """A ring, from its last node, its first, and all of them."""
    ring = np.arange(num_nodes)
    matrix = oracles.symmetric_csr(ring, np.roll(ring, 1), num_nodes)
    csr = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    for nodes in (ring[-1:], ring[:1], ring, ring[::-7]):
        _, neighbors = sample_neighbors.sample_neighbors(*csr, nodes, fanout, 6)
        reached = reach(*csr, nodes, fanout, 6)
        assert reached.tolist() == sorted({*nodes.tolist(), *neighbors.tolist()})
    assert reach(*csr, ring, fanout, 6).tolist() == ring.tolist()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("fanout", [2, None])
@pytest.mark.parametrize("num_nodes", [0, 3])
def test_no_nodes_reach_nothing(compiled, fanout, num_nodes):
    nothing = np.empty(0, dtype=np.int32)
    indptr = np.zeros(num_nodes + 1, dtype=np.int64)
    reached = ops.reach(indptr, nothing, nothing, fanout, 0, compiled=compiled)
    assert (reached.dtype, reached.shape) == (np.int32, (0,))


def test_mapped_and_read_only_arrays_reach_as_others_do_and_keep_their_flags(tmp_path):
    indptr, indices = np.array([0, 3, 4, 5, 6]), np.array([1, 2, 3, 0, 0, 0], dtype=np.int32)
    nodes = np.array([0, 2])
    expected = ops.reach(indptr, indices, nodes, 2, 8)
    assert indptr.flags.writeable
    assert indices.flags.writeable
    assert nodes.flags.writeable
    indices.tofile(tmp_path / "indices")
    mapped = np.memmap(tmp_path / "indices", dtype=np.int32, mode="r")
    assert ops.reach(indptr, mapped, nodes, 2, 8).tolist() == expected.tolist()


@pytest.mark.parametrize("fanout", [2, None])
def test_the_kernel_writes_all_of_its_memory(on_poison, fanout):
    # From Python a kernel gives an int back, which would not stay unsigned.
    reach = on_poison(numba._reach, bits_at=lambda *place: np.uint64(numba.bits_at(*place)))
    indptr, indices = np.array([0, 3, 4, 5, 6]), np.array([1, 2, 3, 0, 0, 0], dtype=np.int32)
    nodes = np.array([0, 2])
    limit = -1 if fanout is None else fanout
    reached = reach(indptr, indices, nodes, limit, np.uint64(3))
    assert reached.tolist() == reference.reach(indptr, indices, nodes, fanout, 3).tolist()


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    made = calls(numba, "reach")
    indptr, indices = np.array([0, 3, 4, 5, 6]), np.array([1, 2, 3, 0, 0, 0], dtype=np.int32)
    reached = ops.reach(indptr, indices, np.array([0]), 2, 5, compiled=compiled)
    assert reached.tolist() == reference.reach(indptr, indices, np.array([0]), 2, 5).tolist()
    assert len(made) == compiled
