"""Random walks into a bitmap; the nodes come out ascending without a sort."""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.ops.bitmap import add, members
from musegnn.ops.kernel import kernel
from musegnn.ops.random_bits.numba import below, bits_at


def random_walk(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    roots: int,
    length: int,
    key: int,
) -> Integer[np.ndarray, " visited"]:
    """See `musegnn.ops.random_walk`."""
    return _random_walk(indptr, indices, roots, length, np.uint64(key))  # type: ignore[no-any-return]


@kernel
@no_type_check
def _random_walk(indptr, indices, roots, length, key):
    num_nodes = len(indptr) - 1
    visited = np.zeros((num_nodes + 63) >> 6, dtype=np.uint64)
    for w in range(roots):
        stream = bits_at(key, np.uint64(w))
        node = np.int64(below(bits_at(stream, np.uint64(0)), np.uint64(num_nodes)))
        add(visited, node)
        for t in range(1, length + 1):
            degree = indptr[node + 1] - indptr[node]
            if degree == 0:
                break
            place = below(bits_at(stream, np.uint64(t)), np.uint64(degree))
            node = np.int64(indices[indptr[node] + np.int64(place)])
            add(visited, node)
    return members(visited, indices.dtype)
