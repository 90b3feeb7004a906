"""Codes of entries by binary search, since columns of a row ascend; entries with a bit; matrices in a row."""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, Integer, UInt

from musegnn.ops.kernel import kernel
from musegnn.ops.relate.reference import column_dtype


def look_up_codes(
    indptr: Int64[np.ndarray, " graph_plus_1"],
    indices: Integer[np.ndarray, " graph_entries"],
    codes: UInt[np.ndarray, " graph_entries"],
    node_ids: Integer[np.ndarray, " nodes"],
    sample_indptr: Int64[np.ndarray, " nodes_plus_1"],
    sample_indices: Integer[np.ndarray, " entries"],
) -> UInt[np.ndarray, " entries"]:
    """See `musegnn.ops.look_up_codes`."""
    return _look_up(indptr, indices, codes, node_ids, sample_indptr, sample_indices)  # type: ignore[no-any-return]


def split_by_bit(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    codes: UInt[np.ndarray, " entries"],
    bit: int,
) -> tuple[Int64[np.ndarray, " nodes_plus_1"], Integer[np.ndarray, " kept"]]:
    """See `musegnn.ops.split_by_bit`."""
    return _split(indptr, indices, codes, codes.dtype.type(1 << bit))  # type: ignore[no-any-return]


def side_by_side(
    indptr: Int64[np.ndarray, " rows_plus_1"], indices: Integer[np.ndarray, " entries"], num_matrices: int
) -> tuple[Int64[np.ndarray, " nodes_plus_1"], Integer[np.ndarray, " entries"]]:
    """See `musegnn.ops.side_by_side`."""
    columns = np.empty(len(indices), dtype=column_dtype(len(indptr) - 1))
    return _side_by_side(indptr, indices, num_matrices, columns), columns


@kernel
@no_type_check
def _look_up(indptr, indices, codes, node_ids, sample_indptr, sample_indices):
    found = np.empty(len(sample_indices), dtype=codes.dtype)
    for i in range(len(node_ids)):
        node = node_ids[i]
        for e in range(sample_indptr[i], sample_indptr[i + 1]):
            wanted = node_ids[sample_indices[e]]
            low, high = indptr[node], indptr[node + 1]
            while low < high:
                middle = (low + high) // 2
                if indices[middle] < wanted:
                    low = middle + 1
                else:
                    high = middle
            found[e] = codes[low]
    return found


@kernel
@no_type_check
def _split(indptr, indices, codes, bit):
    bounds = np.zeros(len(indptr), dtype=np.int64)
    for i in range(len(indptr) - 1):
        count = 0
        for e in range(indptr[i], indptr[i + 1]):
            count += (codes[e] & bit) != 0
        bounds[i + 1] = bounds[i] + count
    kept = np.empty(bounds[-1], dtype=indices.dtype)
    at = 0
    for e in range(len(indices)):
        if (codes[e] & bit) != 0:
            kept[at] = indices[e]
            at += 1
    return bounds, kept


@kernel
@no_type_check
def _side_by_side(indptr, indices, num_matrices, columns):
    n = (len(indptr) - 1) // num_matrices
    bounds, at = np.zeros(n + 1, dtype=np.int64), 0
    for i in range(n):
        for first in range(0, num_matrices * n, n):
            for e in range(indptr[first + i], indptr[first + i + 1]):
                columns[at] = first + indices[e]
                at += 1
        bounds[i + 1] = at
    return bounds
