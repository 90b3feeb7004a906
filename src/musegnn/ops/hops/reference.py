"""Distances from the seeds, one power of a dense matrix after the other. Slow and obvious."""

import numpy as np
from jaxtyping import Int64, Integer, UInt8

FARTHEST = 255


def hops(
    indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Integer[np.ndarray, " entries"], num_seeds: int
) -> UInt8[np.ndarray, " nodes"]:
    """See `musegnn.ops.hops`."""
    n = len(indptr) - 1
    A = np.eye(n, dtype=bool)
    A[np.repeat(np.arange(n), np.diff(indptr)), indices] = True
    levels, is_reached = np.full(n, FARTHEST, dtype=np.uint8), np.arange(n) < num_seeds
    for level in range(FARTHEST):
        levels[is_reached & (levels == FARTHEST)] = level
        is_reached = A @ is_reached
    return levels
