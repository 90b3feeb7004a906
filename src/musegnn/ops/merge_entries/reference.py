"""Entries -> CSR rows, by sorting the keys. Slow, obvious."""

import numpy as np
from jaxtyping import Int64, UInt32, UInt64


def merge_entries(
    keys: UInt64[np.ndarray, " entries"],
    codes: UInt32[np.ndarray, " entries"] | None,
    first_row: int,
    num_rows: int,
) -> tuple[Int64[np.ndarray, " rows"], UInt32[np.ndarray, " merged"], UInt32[np.ndarray, " merged"] | None]:
    """See `musegnn.ops.merge_entries`."""
    order = np.argsort(keys, kind="stable") if codes is not None else None
    keys = np.sort(keys) if order is None else keys[order]
    is_first = np.ones(len(keys), dtype=bool)
    is_first[1:] = keys[1:] != keys[:-1]
    merged = keys[is_first]
    rows = (merged >> np.uint64(32)).astype(np.int64) - first_row
    lengths = np.bincount(rows, minlength=num_rows)
    columns = merged.astype(np.uint32)
    if codes is None or order is None:
        return lengths, columns, None
    joined = np.bitwise_or.reduceat(codes[order], np.flatnonzero(is_first)) if len(keys) else codes
    return lengths, columns, joined
