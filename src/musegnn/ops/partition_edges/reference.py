"""Edges -> grouped keys, by a stable sort. Slow, obvious."""

import numpy as np
from jaxtyping import Int64, UInt32, UInt64

_EVEN_BITS = np.uint32(0x55555555)


def partition_edges(
    source: Int64[np.ndarray, " edges"],
    target: Int64[np.ndarray, " edges"],
    code: UInt32[np.ndarray, " edges"] | None,
    *,
    shift: int,
    num_buckets: int,
) -> tuple[
    UInt64[np.ndarray, " entries"], UInt32[np.ndarray, " entries"] | None, Int64[np.ndarray, " bounds"]
]:
    """See `musegnn.ops.partition_edges`."""
    no_loop = source != target
    source, target = source[no_loop].astype(np.uint64), target[no_loop].astype(np.uint64)
    keys = np.concatenate([source << np.uint64(32) | target, target << np.uint64(32) | source])
    bucket = (keys >> np.uint64(32 + shift)).astype(np.int64)
    order = np.argsort(bucket, kind="stable")
    counts = np.bincount(bucket, minlength=num_buckets)
    bounds = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    if code is None:
        return keys[order], None, bounds
    code = code[no_loop]
    codes = np.concatenate([code, reverse(code)])
    return keys[order], codes[order], bounds


def reverse(code: UInt32[np.ndarray, " edges"]) -> UInt32[np.ndarray, " edges"]:
    """Swap bits 2r and 2r + 1: the same edges, seen from the other end."""
    return (code & _EVEN_BITS) << np.uint32(1) | (code >> np.uint32(1)) & _EVEN_BITS
