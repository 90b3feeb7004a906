"""One hop into a bitmap; the nodes come out ascending without a sort."""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.ops.bitmap import add, bitmap, members
from musegnn.ops.kernel import kernel
from musegnn.ops.random_bits.numba import bits_at
from musegnn.ops.sample_neighbors.numba import limit, place, places


def reach(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    nodes: Integer[np.ndarray, " n"],
    fanout: int | None,
    key: int,
) -> Integer[np.ndarray, " reached"]:
    """See `musegnn.ops.reach`."""
    return _reach(indptr, indices, nodes, limit(fanout, len(indices)), np.uint64(key))  # type: ignore[no-any-return]


@kernel
@no_type_check
def _reach(indptr, indices, nodes, fanout, key):
    reached = bitmap(len(indptr) - 1, nodes)
    taken = places(indptr, nodes, fanout)
    for v in nodes:
        begin, degree = indptr[v], indptr[v + 1] - indptr[v]
        if fanout < 0 or degree <= fanout:
            for e in range(begin, begin + degree):
                add(reached, indices[e])
        else:
            node_key = bits_at(key, np.uint64(v))
            for t in range(fanout):
                add(reached, indices[begin + place(node_key, t, degree, fanout, taken)])
    return members(reached, indices.dtype)
