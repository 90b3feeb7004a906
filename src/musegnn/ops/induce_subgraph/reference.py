"""All edges among some nodes, by looking each neighbor up in a dict. Slow, obvious."""

import numpy as np
from jaxtyping import Int32, Int64, Integer


def induce_subgraph(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    node_ids: Integer[np.ndarray, " n"],
    num_seeds: int,
) -> tuple[Int64[np.ndarray, " n_plus_1"], Int32[np.ndarray, " kept"]]:
    """See `musegnn.ops.induce_subgraph`."""
    local = {node: i for i, node in enumerate(node_ids.tolist())}
    rows = []
    for v in node_ids.tolist():
        neighbors = indices[indptr[v] : indptr[v + 1]].tolist()
        rows.append(sorted(local[neighbor] for neighbor in neighbors if neighbor in local))
    lengths = [len(row) for row in rows]
    kept = [column for row in rows for column in row]
    return np.cumsum([0, *lengths], dtype=np.int64), np.array(kept, dtype=np.int32)
