"""Edges -> grouped keys, by counting and placing: two passes over the edges, no sort."""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, UInt32, UInt64

from musegnn.ops.kernel import kernel


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
    given = np.empty(0, dtype=np.uint32) if code is None else code
    keys, codes, bounds = _partition(source, target, given, code is not None, shift, num_buckets)
    return keys, None if code is None else codes, bounds


# Left alone by jaxtyping's import hook in tests: Numba compiles the function itself, not a wrapper.
@kernel
@no_type_check
def _partition(source, target, code, has_code, shift, num_buckets):
    bounds = np.zeros(num_buckets + 1, dtype=np.int64)
    for e in range(len(source)):
        if source[e] != target[e]:
            bounds[(source[e] >> shift) + 1] += 1
            bounds[(target[e] >> shift) + 1] += 1
    for b in range(num_buckets):
        bounds[b + 1] += bounds[b]

    place = bounds[:-1].copy()
    keys = np.empty(bounds[-1], dtype=np.uint64)
    codes = np.empty(bounds[-1] if has_code else 0, dtype=np.uint32)
    for e in range(len(source)):
        u, v = source[e], target[e]
        if u != v:
            at_u = u >> shift
            keys[place[at_u]] = np.uint64(u) << np.uint64(32) | np.uint64(v)
            at_v = v >> shift
            back = place[at_v] + (1 if at_u == at_v else 0)
            keys[back] = np.uint64(v) << np.uint64(32) | np.uint64(u)
            if has_code:
                c = code[e]
                even = np.uint32(0x55555555)
                codes[place[at_u]] = c
                codes[back] = (c & even) << np.uint32(1) | (c >> np.uint32(1)) & even
            place[at_u] += 1
            place[at_v] += 1
    return keys, codes, bounds
