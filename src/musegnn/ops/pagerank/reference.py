"""Forward push on dicts and a queue. Slow, obvious, in the order of the kernel, so that no bit differs."""

from collections import defaultdict, deque

import numpy as np
from jaxtyping import Float64, Int64, Integer


def pagerank(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    seeds: Integer[np.ndarray, " n"],
    top_k: int,
    teleport: float,
    tolerance: float,
) -> Integer[np.ndarray, " chosen"]:
    """See `musegnn.ops.pagerank`."""
    chosen = set(seeds.tolist())
    for seed in seeds.tolist():
        ids, p, _ = push(indptr, indices, seed, teleport, tolerance)
        scores = [(-score, node) for node, score in zip(ids.tolist(), p.tolist(), strict=True) if score > 0]
        chosen.update(node for _, node in sorted(scores)[:top_k])
    return np.array(sorted(chosen), dtype=indices.dtype)


def push(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    seed: int,
    teleport: float,
    tolerance: float,
) -> tuple[Integer[np.ndarray, " m"], Float64[np.ndarray, " m"], Float64[np.ndarray, " m"]]:
    """The nodes that one seed has touched, in the order in which it did, and their p and r."""
    p: dict[int, float] = defaultdict(float)
    r: dict[int, float] = defaultdict(float)
    r[seed] = 1.0
    queue = deque([seed] if _is_due(indptr, seed, 1.0, tolerance) else [])
    while queue:
        u = queue.popleft()
        mass, r[u] = r[u], 0.0
        neighbors = indices[indptr[u] : indptr[u + 1]].tolist()
        if not neighbors:
            p[u] += mass
            continue
        p[u] += teleport * mass
        share = (1 - teleport) * mass / len(neighbors)
        for v in neighbors:
            r[v] += share
            if v not in queue and _is_due(indptr, v, r[v], tolerance):
                queue.append(v)
    nodes = np.array(list(r), dtype=indices.dtype)
    return nodes, np.array([p[u] for u in r]), np.array([r[u] for u in r])


def _is_due(indptr: Int64[np.ndarray, " nodes_plus_1"], node: int, residual: float, tolerance: float) -> bool:
    return residual >= tolerance * int(indptr[node + 1] - indptr[node])
