"""Features that are means over neighbors, for kinds of nodes that have none of their own."""

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from musegnn.graph import Topology, checks

BLOCK_BYTES = 1 << 27
"""Of float32 rows in one array; a handful of such arrays are held at once."""


def neighbor_means(
    topology: Topology, rows: range, neighbors: range, values: np.ndarray
) -> Iterator[np.ndarray]:
    """The means of consecutive rows, in float32, in blocks.

        mean of values[j - neighbors.start] over the neighbors j of a row that lie in the range `neighbors`

    Zeros where there is none. `values` may be mapped: a piece fetches its rows in ascending order, each once.
    """
    step = max(1, BLOCK_BYTES // (4 * max(1, values.shape[1])))
    for start in range(rows.start, rows.stop, step):
        indptr = topology.indptr[start : min(start + step, rows.stop) + 1]
        sums = np.zeros((len(indptr) - 1, values.shape[1]), dtype=np.float32)
        counts = np.zeros(len(sums), dtype=np.float32)
        # A university has more authors than may be gathered at once, so a piece may end inside a row.
        for first in range(int(indptr[0]), int(indptr[-1]), step):
            last = min(first + step, int(indptr[-1]))
            lengths = np.diff(np.clip(indptr, first, last))
            columns = topology.indices[first:last].astype(np.int64)
            _add_piece(sums, counts, lengths, columns, neighbors, values)
        yield sums / np.maximum(counts, 1)[:, None]


def _add_piece(
    sums: np.ndarray,
    counts: np.ndarray,
    lengths: np.ndarray,
    columns: np.ndarray,
    neighbors: range,
    values: np.ndarray,
) -> None:
    is_in = (columns >= neighbors.start) & (columns < neighbors.stop)
    row = np.repeat(np.arange(len(lengths)), lengths)[is_in]
    if not len(row):
        return
    ids, position = np.unique(columns[is_in], return_inverse=True)
    gathered = values[ids - neighbors.start].astype(np.float32, copy=False)
    touched = slice(row[0], row[-1] + 1)
    ones = csr_array(
        (np.ones(len(row), dtype=np.float32), (row - row[0], position)),
        shape=(int(row[-1] - row[0]) + 1, len(ids)),
    )
    total = ones @ gathered
    if not np.isfinite(total).all():
        for node, values_of_node in zip(ids, gathered, strict=True):
            checks.finite(values_of_node[None], int(node))
    sums[touched] += total
    counts += np.bincount(row, minlength=len(counts)).astype(np.float32)
