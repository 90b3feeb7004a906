"""Is this adjacency what it must be? One pass over it, in blocks, whoever wrote it."""

import numpy as np
from jaxtyping import Int64, Integer, UInt

from musegnn.errors import StoreError
from musegnn.ops.partition_edges.reference import reverse
from musegnn.progress import progress

_BLOCK = 1 << 22


def check_structure(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    relation: UInt[np.ndarray, " entries"] | None = None,
    *,
    shown: bool = True,
) -> None:
    """Columns in range, ascending and never the row itself; every entry (i, j) has its (j, i).

    Symmetry is checked without a transpose: a 64-bit hash of {i, j} is added for entries above the diagonal
    and subtracted for those below, so that in a symmetric matrix all of them cancel.
    """
    num_nodes = len(indptr) - 1
    _check_indptr(indptr, len(indices))
    balance = 0
    with progress("Checking the adjacency", num_nodes if shown else 0) as advance:
        first = 0
        while first < num_nodes:
            # Whole rows, about _BLOCK entries at a time.
            stop = int(np.searchsorted(indptr, int(indptr[first]) + _BLOCK, side="right")) - 1
            stop = min(max(stop, first + 1), num_nodes)
            rows = np.repeat(np.arange(first, stop), np.diff(indptr[first : stop + 1]))
            columns = np.asarray(indices[indptr[first] : indptr[stop]], dtype=np.int64)
            _check_block(rows, columns, num_nodes)
            above = rows < columns
            hashes = _hash(np.minimum(rows, columns), np.maximum(rows, columns))
            if relation is not None:
                # Both ends must hold the same bits, each from its own side.
                code = np.asarray(relation[indptr[first] : indptr[stop]], dtype=np.uint32)
                hashes = _mix(hashes + np.where(above, code, reverse(code)).astype(np.uint64))
            sign = np.where(above, np.uint64(1), ~np.uint64(0))
            balance += int((hashes * sign).sum(dtype=np.uint64))
            advance(stop - first)
            first = stop
    if balance % (1 << 64):
        raise StoreError(
            "The adjacency is not symmetric: some edge is stored, or has its relations, at one end only, so "
            "there is no energy. Build the graph with Graph.from_edges or `muse import`, which add the other."
        )


def _check_indptr(indptr: np.ndarray, num_entries: int) -> None:
    # Before any row is read: between two wild values a row would have 2**60 entries.
    for first in range(0, len(indptr), _BLOCK):
        block = np.asarray(indptr[first : first + _BLOCK + 1])
        falls = np.flatnonzero(block[1:] < block[:-1])
        if len(falls):
            raise StoreError(f"indptr falls at row {first + falls[0]}: the graph is damaged. Write it again.")
    if indptr[0] != 0 or indptr[-1] != num_entries:
        raise StoreError(
            f"indptr runs from {indptr[0]} to {indptr[-1]} instead of from 0 to {num_entries}, the number of "
            "entries: the graph is damaged. Write it again."
        )


def _check_block(rows: np.ndarray, columns: np.ndarray, num_nodes: int) -> None:
    same_row = rows[1:] == rows[:-1]
    faults = (
        ("is out of range", (columns < 0) | (columns >= num_nodes)),
        ("is a loop", columns == rows),
        ("is out of order or repeated", np.concatenate([[False], same_row & (columns[1:] <= columns[:-1])])),
    )
    for fault, where in faults:
        if where.any():
            at = int(np.flatnonzero(where)[0])
            raise StoreError(
                f"The entry ({rows[at]}, {columns[at]}) {fault}: the graph is damaged, or was written by a "
                "program that does not follow docs/formats.md. Write it again."
            )


def _hash(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """splitmix64's finalizer on the key of a pair: a one-directional edge cancels by chance once in 2**64."""
    return _mix(low.astype(np.uint64) << np.uint64(32) | high.astype(np.uint64))


def _mix(key: np.ndarray) -> np.ndarray:
    key = (key ^ (key >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    key = (key ^ (key >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: np.ndarray = key ^ (key >> np.uint64(31))
    return mixed
