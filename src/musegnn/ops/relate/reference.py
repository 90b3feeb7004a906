"""Codes of entries, by looking through the graph's row; entries with a bit, one by one. Slow, obvious."""

import numpy as np
from jaxtyping import Int64, Integer, UInt


def look_up_codes(
    indptr: Int64[np.ndarray, " graph_plus_1"],
    indices: Integer[np.ndarray, " graph_entries"],
    codes: UInt[np.ndarray, " graph_entries"],
    node_ids: Integer[np.ndarray, " nodes"],
    sample_indptr: Int64[np.ndarray, " nodes_plus_1"],
    sample_indices: Integer[np.ndarray, " entries"],
) -> UInt[np.ndarray, " entries"]:
    """See `musegnn.ops.look_up_codes`."""
    found = []
    for i, node in enumerate(node_ids.tolist()):
        row = indices[indptr[node] : indptr[node + 1]].tolist()
        for j in sample_indices[sample_indptr[i] : sample_indptr[i + 1]]:
            found.append(codes[indptr[node] + row.index(node_ids[j])])
    return np.array(found, dtype=codes.dtype)


def split_by_bit(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    codes: UInt[np.ndarray, " entries"],
    bit: int,
) -> tuple[Int64[np.ndarray, " nodes_plus_1"], Integer[np.ndarray, " kept"]]:
    """See `musegnn.ops.split_by_bit`."""
    bounds, kept = [0], []
    for begin, end in zip(indptr[:-1], indptr[1:], strict=True):
        kept += [indices[e] for e in range(begin, end) if int(codes[e]) >> bit & 1]
        bounds.append(len(kept))
    return np.array(bounds, dtype=np.int64), np.array(kept, dtype=indices.dtype)


def side_by_side(
    indptr: Int64[np.ndarray, " rows_plus_1"], indices: Integer[np.ndarray, " entries"], num_matrices: int
) -> tuple[Int64[np.ndarray, " nodes_plus_1"], Integer[np.ndarray, " entries"]]:
    """See `musegnn.ops.side_by_side`."""
    n = (len(indptr) - 1) // num_matrices
    bounds, columns = [0], []
    for i in range(n):
        for t in range(num_matrices):
            row = t * n + i
            columns += [t * n + int(j) for j in indices[indptr[row] : indptr[row + 1]]]
        bounds.append(len(columns))
    return np.array(bounds, dtype=np.int64), np.array(columns, dtype=column_dtype(len(indptr) - 1))


def column_dtype(num_columns: int) -> type[np.integer]:
    """int32 where it suffices."""
    return np.int32 if num_columns < 2**31 else np.int64
