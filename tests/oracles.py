"""What the code must compute, by the most obvious means: SciPy, Python dictionaries, brute force."""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import scipy.sparse
import scipy.stats

from musegnn.ops.sample_neighbors import reference as sample_neighbors
from musegnn.ops.shuffle import reference as shuffle

MASK = (1 << 32) - 1


def symmetric_csr(source, target, num_nodes: int) -> scipy.sparse.csr_array:
    """A + A^T without its diagonal, in float64, columns sorted; the values count the edges."""
    source, target = np.asarray(source, dtype=np.int64), np.asarray(target, dtype=np.int64)
    keep = source != target
    ones = np.ones(int(keep.sum()))
    directed = scipy.sparse.coo_array((ones, (source[keep], target[keep])), (num_nodes, num_nodes))
    both = (directed + directed.T).tocsr()
    both.sum_duplicates()
    both.sort_indices()
    return both


def relation_bits(source, target, relation) -> dict[tuple[int, int], int]:
    """Entry -> bit 2r for an edge row -> column of relation r, bit 2r + 1 for column -> row."""
    bits: dict[tuple[int, int], int] = defaultdict(int)
    for u, v, r in zip(map(int, source), map(int, target), map(int, relation), strict=True):
        if u != v:
            bits[u, v] |= 1 << 2 * r
            bits[v, u] |= 1 << 2 * r + 1
    return dict(bits)


def entries(indptr, indices) -> list[tuple[int, int]]:
    """All (row, column) pairs in the order they are stored."""
    return [(i, int(j)) for i in range(len(indptr) - 1) for j in indices[indptr[i] : indptr[i + 1]]]


def is_sound(indptr, indices) -> bool:
    """Brute force: sorted, without repeats and loops, in range, and symmetric."""
    pairs = entries(indptr, indices)
    in_range = all(0 <= j < len(indptr) - 1 and i != j for i, j in pairs)
    return in_range and pairs == sorted(set(pairs)) and all((j, i) in set(pairs) for i, j in pairs)


def partitioned(source, target, code, shift: int, num_buckets: int) -> list[list[tuple[int, int]]]:
    """Per bucket, the sorted (key, code) of both directions of each edge that is no loop."""
    buckets: list[list[tuple[int, int]]] = [[] for _ in range(num_buckets)]
    for u, v, c in zip(map(int, source), map(int, target), map(int, code), strict=True):
        if u != v:
            # From the other end, bits 2r and 2r + 1 change places.
            back = sum(1 << (b ^ 1) for b in range(32) if c >> b & 1)
            buckets[u >> shift].append((u << 32 | v, c))
            buckets[v >> shift].append((v << 32 | u, back))
    return [sorted(bucket) for bucket in buckets]


def merged(keys: Iterable[int], codes: Iterable[int], first_row: int, num_rows: int):
    """Row lengths, columns and codes of unordered entries; repeats are joined by or."""
    joined: dict[int, int] = defaultdict(int)
    for key, code in zip(map(int, keys), map(int, codes), strict=True):
        joined[key] |= code
    lengths = [0] * num_rows
    for key in joined:
        lengths[(key >> 32) - first_row] += 1
    order = sorted(joined)
    return lengths, [key & MASK for key in order], [joined[key] for key in order]


def dense(indptr, indices) -> np.ndarray:
    """The adjacency matrix A, in float64."""
    n = len(indptr) - 1
    matrix = np.zeros((n, n))
    matrix[np.repeat(np.arange(n), np.diff(indptr)), indices] = 1
    return matrix


def ball(indptr, indices, seeds, hops: int) -> list[int]:
    """The nodes at most so many edges away from a seed, by SciPy's shortest paths."""
    if len(seeds) == 0:
        return []
    n = len(indptr) - 1
    matrix = scipy.sparse.csr_array((np.ones(len(indices)), indices, indptr), (n, n))
    away = scipy.sparse.csgraph.dijkstra(matrix, indices=seeds, unweighted=True, min_only=True)
    return np.flatnonzero(away <= hops).tolist()


def laplacians(indptr, indices) -> tuple[np.ndarray, np.ndarray]:
    """L = I - D'^-1/2 (A + I) D'^-1/2 with D' = D + I, and L = D - A."""
    adjacency = dense(indptr, indices)
    eye, degree = np.eye(len(adjacency)), adjacency.sum(axis=1)
    root = np.diag((degree + 1) ** -0.5)
    return eye - root @ (adjacency + eye) @ root, np.diag(degree) - adjacency


def p_value(counts, expected=None) -> float:
    """Chance of counts this far or farther from the expected ones (all equal if None), by chi-square."""
    return float(scipy.stats.chisquare(counts, expected).pvalue)


def sample_key(graph, name: str, settings: dict, seed: int, split: str, index: int | str) -> int:
    """128 bits out of all that a sample is a function of. Stored samples depend on it: never change it."""
    cause = ["musegnn sample", 1, graph.digest, {"name": name, "settings": settings}, seed, split, index]
    digest = hashlib.sha256(json.dumps(cause, sort_keys=True).encode()).digest()
    return int.from_bytes(digest[:16], "little")


def keys_of(key: int, count: int) -> list[int]:
    """The first 64-bit keys that a sampler takes from its generator."""
    rng = np.random.Philox(key=key)
    return [int(rng.random_raw()) for _ in range(count)]


def batches(ids, batch_size: int, key: int) -> list[list[int]]:
    """A split's nodes in random order, cut; each batch ascends."""
    order = np.array(ids)
    shuffle.shuffle(order, key & (1 << 64) - 1)
    cuts = [*range(0, len(order), batch_size), len(order)]
    return [sorted(order[begin:end].tolist()) for begin, end in pairwise(cuts)]


def hops(graph, seeds, fanouts, keys) -> tuple[list[set[int]], list[set[tuple[int, int]]]]:
    """V_0, ..., V_H and the pairs drawn at each hop, one node at a time: every node reached so far draws."""
    reached, drawn = [set(map(int, seeds))], []
    for fanout, key in zip(fanouts, keys, strict=True):
        pairs = set()
        for node in reached[-1]:
            one = sample_neighbors.sample_neighbors(
                graph.indptr, graph.indices, np.array([node]), fanout, key
            )
            pairs |= set(zip(*one.tolist(), strict=True))
        drawn.append(pairs)
        reached.append(reached[-1] | {neighbor for _, neighbor in pairs})
    return reached, drawn


def induced(graph, nodes) -> set[tuple[int, int]]:
    """All entries (u, v) of the graph with both ends among the nodes."""
    inside = set(map(int, nodes))
    return {(u, v) for u, v in entries(graph.indptr, graph.indices) if u in inside and v in inside}


def check_sample(sample, graph, seeds, nodes, edges) -> None:
    """Seeds first, then the other nodes, both ascending; these edges and no others, in local ids."""
    first = sorted(map(int, seeds))
    behind = sorted(set(map(int, nodes)) - set(first))
    assert sample.node_ids.tolist() == first + behind
    assert (sample.num_seeds, sample.num_nodes) == (len(first), len(first) + len(behind))
    assert sample.seeds.tolist() == first
    assert sample.node_ids.dtype == graph.indices.dtype
    assert (sample.indptr.dtype, sample.indices.dtype) == (np.int64, np.int32)
    assert sample.indptr[0] == 0
    assert len(sample.indptr) == sample.num_nodes + 1
    assert sample.num_entries == len(sample.indices) == sample.indptr[-1]
    assert is_sound(sample.indptr, sample.indices)
    assert edges_of(sample) == edges
    check_bounds(sample.indptr, sample.indices, sample.bounds)


def edges_of(sample) -> set[tuple[int, int]]:
    """The entries of a sample, in the graph's ids."""
    ids = sample.node_ids.tolist()
    return {(ids[i], ids[j]) for i, j in entries(sample.indptr, sample.indices)}


def check_bounds(indptr, indices, bounds) -> None:
    """theta <= lmax <= bound for both Laplacians, by dense eigenvalues."""
    assert bounds.dtype == np.float64
    assert bounds.shape == (4,)
    if len(indptr) == 1:
        assert bounds.tolist() == [0, 0, 0, 0]
        return
    for laplacian, (theta, bound) in zip(laplacians(indptr, indices), bounds.reshape(2, 2), strict=True):
        lmax = np.linalg.eigvalsh(laplacian)[-1]
        # Rounding of the dense eigenvalues; the bounds are rigorous.
        assert 0 <= theta <= lmax * (1 + 1e-12) + 1e-15
        assert lmax <= bound * (1 + 1e-12) + 1e-15
