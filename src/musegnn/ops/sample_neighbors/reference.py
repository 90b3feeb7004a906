"""Neighbors without replacement, by Floyd's algorithm on Python sets. Slow, obvious."""

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.ops.random_bits.reference import below, bits_at


def sample_neighbors(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    nodes: Integer[np.ndarray, " n"],
    fanout: int | None,
    key: int,
) -> Integer[np.ndarray, "2 drawn"]:
    """See `musegnn.ops.sample_neighbors`."""
    drawn = [
        (node, int(indices[indptr[node] + position]))
        for node in nodes.tolist()
        for position in positions(int(indptr[node + 1] - indptr[node]), fanout, bits_at(key, node))
    ]
    return np.array(drawn, dtype=indices.dtype).reshape(-1, 2).T.copy()


def positions(degree: int, fanout: int | None, key: int) -> list[int]:
    """A uniform subset of `fanout` places out of `degree`, all of them where there are no more.

    Floyd: for j = degree - fanout, ..., degree - 1 draw r from 0 to j; take r, or j if r is taken already.
    """
    if fanout is None or degree <= fanout:
        return list(range(degree))
    taken: list[int] = []
    for t, j in enumerate(range(degree - fanout, degree)):
        r = below(bits_at(key, t), j + 1)
        taken.append(j if r in taken else r)
    return taken
