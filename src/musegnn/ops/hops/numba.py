"""Distances from the seeds, level by level: from the last level outwards, or from all that is left inwards.

Outwards every neighbor of the last level is looked at; inwards a node looks for one neighbor in it and stops
at the first. Where the last level has many neighbors, most nodes find one at once.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, Integer, UInt8

from musegnn.ops.hops.reference import FARTHEST
from musegnn.ops.kernel import kernel

_FEW = 4
"""Outwards as long as the last level has less than one in so many of the entries."""


def hops(
    indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Integer[np.ndarray, " entries"], num_seeds: int
) -> UInt8[np.ndarray, " nodes"]:
    """See `musegnn.ops.hops`."""
    levels = np.full(len(indptr) - 1, FARTHEST, dtype=np.uint8)
    # Ids are not negative; as unsigned numbers they need no test for an index from the end.
    unsigned = indices.view(np.uint32 if indices.dtype == np.int32 else np.uint64)
    _hops(indptr, unsigned, num_seeds, levels)
    return levels


@kernel
@no_type_check
def _hops(indptr, indices, num_seeds, levels):
    queue = np.empty(len(levels), dtype=np.int64)
    queue[:num_seeds] = np.arange(num_seeds)
    levels[:num_seeds] = 0
    first, last, level = 0, num_seeds, 1
    while first < last < len(levels) and level < FARTHEST:
        entries = 0
        for k in range(first, last):
            entries += indptr[queue[k] + 1] - indptr[queue[k]]
        if _FEW * entries < len(indices):
            found = _outwards(indptr, indices, queue[first:last], level, levels, queue[last:])
        else:
            found = _inwards(indptr, indices, level, levels, queue[last:])
        first, last, level = last, last + found, level + 1


@kernel
@no_type_check
def _outwards(indptr, indices, nodes, level, levels, reached):
    found = 0
    for node in nodes:
        for e in range(indptr[node], indptr[node + 1]):
            neighbor = indices[e]
            if levels[neighbor] == FARTHEST:
                levels[neighbor] = level
                reached[found] = neighbor
                found += 1
    return found


@kernel
@no_type_check
def _inwards(indptr, indices, level, levels, reached):
    found, before = 0, np.uint8(level - 1)
    for node in range(len(levels)):
        if levels[node] == FARTHEST:
            for e in range(indptr[node], indptr[node + 1]):
                if levels[indices[e]] == before:
                    levels[node] = level
                    reached[found] = node
                    found += 1
                    break
    return found
