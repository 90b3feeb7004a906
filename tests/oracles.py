"""What the code must compute, by the most obvious means: SciPy, Python dictionaries, brute force."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import scipy.sparse

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
