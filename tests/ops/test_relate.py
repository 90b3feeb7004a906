"""Relations of entries: reference and compiled kernel against sets of pairs, and against SciPy's matrices."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from musegnn import ops
from musegnn.ops.relate.reference import column_dtype

both = pytest.mark.parametrize("compiled", [False, True], ids=["reference", "numba"])


def matrix(rng, num_nodes, share):
    """Random entries, columns ascending, with a code for each."""
    rows, columns = np.nonzero(rng.random((num_nodes, num_nodes)) < share)
    indptr = np.searchsorted(rows, np.arange(num_nodes + 1)).astype(np.int64)
    codes = rng.integers(0, 16, len(columns)).astype(np.uint8)
    return indptr, columns.astype(np.int32), codes


@both
@given(seed=st.integers(0, 1000), num_nodes=st.integers(1, 30))
def test_each_entry_has_the_code_that_it_has_in_the_graph(compiled, seed, num_nodes):
    rng = np.random.default_rng(seed)
    indptr, indices, codes = matrix(rng, num_nodes, 0.3)
    told = {(i, int(indices[e])): codes[e] for i in range(num_nodes) for e in range(indptr[i], indptr[i + 1])}
    node_ids = rng.permutation(num_nodes)[: rng.integers(0, num_nodes + 1)]
    inside = [
        [j for j, v in enumerate(node_ids) if (int(u), int(v)) in told and rng.random() < 0.7]
        for u in node_ids
    ]
    sample_indptr = np.cumsum([0, *map(len, inside)]).astype(np.int64)
    sample_indices = np.array([j for row in inside for j in row], dtype=np.int32)
    found = ops.look_up_codes(
        indptr, indices, codes, node_ids, sample_indptr, sample_indices, compiled=compiled
    )
    assert found.dtype == codes.dtype
    pairs = [(int(node_ids[i]), int(node_ids[j])) for i, row in enumerate(inside) for j in row]
    assert found.tolist() == [told[pair] for pair in pairs]


@both
@given(seed=st.integers(0, 1000), num_nodes=st.integers(0, 30), bit=st.integers(0, 4))
def test_the_entries_with_a_bit_are_kept_in_their_order(compiled, seed, num_nodes, bit):
    indptr, indices, codes = matrix(np.random.default_rng(seed), num_nodes, 0.3)
    bounds, kept = ops.split_by_bit(indptr, indices, codes, bit, compiled=compiled)
    assert (bounds.dtype, kept.dtype) == (np.int64, indices.dtype)
    assert (bounds[0], bounds[-1], len(bounds)) == (0, len(kept), num_nodes + 1)
    for i in range(num_nodes):
        row = slice(indptr[i], indptr[i + 1])
        wanted = indices[row][(codes[row] >> bit) & 1 == 1]
        assert kept[bounds[i] : bounds[i + 1]].tolist() == wanted.tolist()


@both
@given(
    seed=st.integers(0, 1000),
    num_nodes=st.integers(0, 12),
    num_matrices=st.integers(1, 5),
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_matrices_come_to_stand_side_by_side(compiled, seed, num_nodes, num_matrices, dtype):
    """Some of them are full, and some have no entries."""
    rng = np.random.default_rng(seed)
    shares = rng.choice([0, 0.3, 1], num_matrices)
    blocks = [scipy.sparse.csr_array(rng.random((num_nodes, num_nodes)) < share) for share in shares]
    below, beside = scipy.sparse.vstack(blocks, format="csr"), scipy.sparse.hstack(blocks, format="csr")
    indptr, indices = below.indptr.astype(np.int64), below.indices.astype(dtype)
    before = indptr.tobytes() + indices.tobytes()
    bounds, columns = ops.side_by_side(indptr, indices, num_matrices, compiled=compiled)
    assert (bounds.dtype, columns.dtype) == (np.int64, np.int32)
    assert bounds.tolist() == beside.indptr.tolist()
    assert columns.tolist() == beside.indices.tolist()
    assert indptr.tobytes() + indices.tobytes() == before


@both
def test_entries_of_a_row_stay_in_their_order_side_by_side(compiled):
    """Some of them twice."""
    indptr, indices = np.array([0, 3, 4, 6, 8]), np.array([1, 0, 1, 0, 1, 0, 1, 1], dtype=np.int32)
    bounds, columns = ops.side_by_side(indptr, indices, 2, compiled=compiled)
    assert (bounds.tolist(), columns.tolist()) == ([0, 5, 8], [1, 0, 1, 3, 2, 0, 3, 3])
    assert [column_dtype(n) for n in (0, 2**31 - 1, 2**31)] == [np.int32, np.int32, np.int64]
