"""Entries -> CSR rows: count the rows, place the entries, sort each row by itself.

Rows are short, so this sorts in log(row length) instead of log(entries); and a bucket of rows stays in cache.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, UInt32, UInt64

from musegnn.ops.kernel import kernel


def merge_entries(
    keys: UInt64[np.ndarray, " entries"],
    codes: UInt32[np.ndarray, " entries"] | None,
    first_row: int,
    num_rows: int,
) -> tuple[Int64[np.ndarray, " rows"], UInt32[np.ndarray, " merged"], UInt32[np.ndarray, " merged"] | None]:
    """See `musegnn.ops.merge_entries`."""
    if codes is None:
        lengths, columns = _merge(keys, first_row, num_rows)
        return lengths, columns, None
    return _merge_coded(keys, codes, first_row, num_rows)  # type: ignore[no-any-return]


# Left alone by jaxtyping's import hook in tests: Numba compiles the function itself, not a wrapper.
@kernel
@no_type_check
def _sort(values):
    # Most rows are short; there insertion is 3x faster than the general sort.
    if len(values) > 48:
        values.sort()
        return
    for i in range(1, len(values)):
        value = values[i]
        j = i
        while j > 0 and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@kernel
@no_type_check
def _row_bounds(keys, first_row, num_rows):
    bounds = np.zeros(num_rows + 1, dtype=np.int64)
    for key in keys:
        bounds[np.int64(key >> np.uint64(32)) - first_row + 1] += 1
    for i in range(num_rows):
        bounds[i + 1] += bounds[i]
    return bounds


@kernel
@no_type_check
def _merge(keys, first_row, num_rows):
    bounds = _row_bounds(keys, first_row, num_rows)
    place = bounds[:-1].copy()
    columns = np.empty(len(keys), dtype=np.uint32)
    for key in keys:
        row = np.int64(key >> np.uint64(32)) - first_row
        columns[place[row]] = np.uint32(key)
        place[row] += 1

    lengths = np.zeros(num_rows, dtype=np.int64)
    kept = 0
    for i in range(num_rows):
        _sort(columns[bounds[i] : bounds[i + 1]])
        begin = kept
        for e in range(bounds[i], bounds[i + 1]):
            # kept never passes e, so compacting in place overwrites nothing that is still to be read.
            if kept == begin or columns[e] != columns[kept - 1]:
                columns[kept] = columns[e]
                kept += 1
        lengths[i] = kept - begin
    return lengths, columns[:kept].copy()


@kernel
@no_type_check
def _merge_coded(keys, codes, first_row, num_rows):
    bounds = _row_bounds(keys, first_row, num_rows)
    place = bounds[:-1].copy()
    # Column and code in one word: sorting the words sorts the columns and carries the codes along.
    words = np.empty(len(keys), dtype=np.uint64)
    for k in range(len(keys)):
        row = np.int64(keys[k] >> np.uint64(32)) - first_row
        words[place[row]] = keys[k] << np.uint64(32) | np.uint64(codes[k])
        place[row] += 1

    lengths = np.zeros(num_rows, dtype=np.int64)
    columns = np.empty(len(keys), dtype=np.uint32)
    joined = np.empty(len(keys), dtype=np.uint32)
    kept = 0
    for i in range(num_rows):
        _sort(words[bounds[i] : bounds[i + 1]])
        begin = kept
        for e in range(bounds[i], bounds[i + 1]):
            column, code = np.uint32(words[e] >> np.uint64(32)), np.uint32(words[e])
            if kept > begin and column == columns[kept - 1]:
                joined[kept - 1] |= code
            else:
                columns[kept], joined[kept] = column, code
                kept += 1
        lengths[i] = kept - begin
    return lengths, columns[:kept].copy(), joined[:kept].copy()
