"""One hop: the nodes, and what `sample_neighbors` draws for them."""

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.ops.sample_neighbors.reference import sample_neighbors


def reach(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    nodes: Integer[np.ndarray, " n"],
    fanout: int | None,
    key: int,
) -> Integer[np.ndarray, " reached"]:
    """See `musegnn.ops.reach`."""
    _, neighbors = sample_neighbors(indptr, indices, nodes, fanout, key)
    return np.union1d(nodes, neighbors).astype(indices.dtype)
