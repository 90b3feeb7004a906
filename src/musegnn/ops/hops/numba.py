"""Distances from the seeds: first come, first served."""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, Integer, UInt8

from musegnn.ops.hops.reference import FARTHEST
from musegnn.ops.kernel import kernel


def hops(
    indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Integer[np.ndarray, " entries"], num_seeds: int
) -> UInt8[np.ndarray, " nodes"]:
    """See `musegnn.ops.hops`."""
    levels = np.full(len(indptr) - 1, FARTHEST, dtype=np.uint8)
    _hops(indptr, indices, num_seeds, levels)
    return levels


@kernel
@no_type_check
def _hops(indptr, indices, num_seeds, levels):
    queue = np.empty(len(levels), dtype=np.int64)
    queue[:num_seeds] = np.arange(num_seeds)
    levels[:num_seeds] = 0
    first, last = 0, num_seeds
    while first < last:
        node = queue[first]
        first += 1
        beyond = levels[node] + 1
        if beyond >= FARTHEST:
            return
        for e in range(indptr[node], indptr[node + 1]):
            neighbor = indices[e]
            if levels[neighbor] == FARTHEST:
                levels[neighbor] = beyond
                queue[last] = neighbor
                last += 1
