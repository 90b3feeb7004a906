"""Random walks, one step at a time on Python lists. Slow, obvious."""

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.ops.random_bits.reference import below, bits_at


def random_walk(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    roots: int,
    length: int,
    key: int,
) -> Integer[np.ndarray, " visited"]:
    """See `musegnn.ops.random_walk`."""
    visited: set[int] = set()
    for w in range(roots):
        visited.update(walk(indptr, indices, length, bits_at(key, w)))
    return np.array(sorted(visited), dtype=indices.dtype)


def walk(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    length: int,
    stream: int,
) -> list[int]:
    """The root and the `length` nodes behind it."""
    node = below(bits_at(stream, 0), len(indptr) - 1)
    path = [node]
    for t in range(1, length + 1):
        neighbors = indices[indptr[node] : indptr[node + 1]]
        if len(neighbors):
            node = int(neighbors[below(bits_at(stream, t), len(neighbors))])
        path.append(node)
    return path
