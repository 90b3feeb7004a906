"""Positions of ids, by looking each up in a dict. Slow, obvious."""

import numpy as np
from jaxtyping import Int64, Integer


def local_ids(
    node_ids: Integer[np.ndarray, " n"], ids: Integer[np.ndarray, " m"], num_nodes: int
) -> Int64[np.ndarray, " m"]:
    """See `musegnn.ops.local_ids`."""
    local = {node: i for i, node in enumerate(node_ids.tolist())}
    return np.array([local[node] for node in ids.tolist()], dtype=np.int64)
