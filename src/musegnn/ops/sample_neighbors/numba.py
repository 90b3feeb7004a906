"""Neighbors without replacement: Floyd's algorithm with the places taken so far in a small array.

The array is searched for each draw, so that a node costs fanout^2 / 2 comparisons: nothing for the fanouts
people use, 0.1 s for a hub at a fanout of 50,000.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.ops.kernel import kernel
from musegnn.ops.random_bits.numba import below, bits_at

ALL = -1
_FEW = 4096


def sample_neighbors(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    nodes: Integer[np.ndarray, " n"],
    fanout: int | None,
    key: int,
) -> Integer[np.ndarray, "2 drawn"]:
    """See `musegnn.ops.sample_neighbors`."""
    return _sample(indptr, indices, nodes, limit(fanout, len(indices)), np.uint64(key))  # type: ignore[no-any-return]


def limit(fanout: int | None, num_entries: int) -> int:
    """The fanout as kernels take it; one that no row can exceed is none."""
    return ALL if fanout is None or fanout >= num_entries else fanout


@kernel
@no_type_check
def places(indptr, nodes, fanout):
    """Room for the places taken of a node: `fanout`, or its degree if that is less."""
    size = max(0, fanout)
    # Huge fanouts are looked at twice: more places than the largest degree are never taken.
    if size > _FEW:
        size = 0
        for v in nodes:
            size = max(size, min(fanout, indptr[v + 1] - indptr[v]))
    return np.empty(size, dtype=np.int64)


@kernel
@no_type_check
def place(key, t, degree, fanout, taken):
    """The t-th of `fanout` places out of `degree` > `fanout`; `taken` holds those before it."""
    last = degree - fanout + t
    r = np.int64(below(bits_at(key, np.uint64(t)), np.uint64(last + 1)))
    # Without an early exit the search is a few vector instructions.
    is_taken = False
    for q in range(t):
        is_taken |= taken[q] == r
    taken[t] = last if is_taken else r
    return taken[t]


@kernel
@no_type_check
def _sample(indptr, indices, nodes, fanout, key):
    total = 0
    for v in nodes:
        degree = indptr[v + 1] - indptr[v]
        total += degree if fanout < 0 or degree < fanout else fanout
    drawn = np.empty((2, total), dtype=indices.dtype)
    taken = places(indptr, nodes, fanout)
    count = 0
    for v in nodes:
        begin, degree = indptr[v], indptr[v + 1] - indptr[v]
        is_whole = fanout < 0 or degree <= fanout
        node_key = bits_at(key, np.uint64(v))
        for t in range(degree if is_whole else fanout):
            position = t if is_whole else place(node_key, t, degree, fanout, taken)
            drawn[0, count] = v
            drawn[1, count] = indices[begin + position]
            count += 1
    return drawn
