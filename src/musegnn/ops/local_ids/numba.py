"""Positions of ids: the rank in a bitmap, then a table as long as the list."""

from typing import no_type_check

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.ops.bitmap import bitmap, rank, ranks
from musegnn.ops.kernel import kernel


def local_ids(
    node_ids: Integer[np.ndarray, " n"], ids: Integer[np.ndarray, " m"], num_nodes: int
) -> Int64[np.ndarray, " m"]:
    """See `musegnn.ops.local_ids`."""
    return _local_ids(node_ids, ids, num_nodes)  # type: ignore[no-any-return]


@kernel
@no_type_check
def _local_ids(node_ids, ids, num_nodes):
    inside = bitmap(num_nodes, node_ids)
    before = ranks(inside)
    place = np.empty(len(node_ids), dtype=np.int64)
    for i in range(len(node_ids)):
        place[rank(inside, before, node_ids[i])] = i
    local = np.empty(len(ids), dtype=np.int64)
    for i in range(len(ids)):
        local[i] = place[rank(inside, before, ids[i])]
    return local
