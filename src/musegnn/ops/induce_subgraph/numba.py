"""All edges among some nodes: every adjacency row is read once, each neighbor looked up in a bitmap.

First the neighbors inside are kept, without a branch that could be mispredicted; then they become local ids.
Rows lie far apart, so those to come are prefetched (a third of the time on a graph that exceeds the caches).
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Int32, Int64, Integer

from musegnn.ops.bitmap import add, bitmap, has, rank, ranks
from musegnn.ops.kernel import kernel
from musegnn.ops.prefetch import prefetch

_AHEAD = 4
"""Rows between the one that is read and the one that is fetched."""
_LINE = 64
_FETCHED = 2048
"""Bytes of a row to fetch; the processor goes on by itself in longer ones."""


def induce_subgraph(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    node_ids: Integer[np.ndarray, " n"],
    num_seeds: int,
) -> tuple[Int64[np.ndarray, " n_plus_1"], Int32[np.ndarray, " kept"]]:
    """See `musegnn.ops.induce_subgraph`."""
    # Ids are not negative; as unsigned numbers they need no test for an index from the end.
    unsigned = indices.view(np.uint32 if indices.dtype == np.int32 else np.uint64)
    # Room for all; the pages of what is not kept are never touched. NumPy asks for huge pages here, Numba
    # would not: a sixth of the time of large samples. Ids are below 2**32 (`MAX_NODES`).
    kept = np.empty(_num_entries(indptr, node_ids), dtype=np.uint32)
    return _induce(indptr, unsigned, node_ids, num_seeds, kept)  # type: ignore[no-any-return]


@kernel
@no_type_check
def _prefetch_row(indptr, indices, node):
    step = np.uint64(_LINE // indices.itemsize)
    begin, end = np.uint64(indptr[node]), np.uint64(indptr[node + 1])
    end = min(end, begin + np.uint64(_FETCHED // indices.itemsize))
    while begin < end:
        prefetch(indices, begin)
        begin += step


@kernel
@no_type_check
def _num_entries(indptr, node_ids):
    total = 0
    for v in node_ids:
        total += indptr[v + 1] - indptr[v]
    return total


@kernel
@no_type_check
def _induce(indptr, indices, node_ids, num_seeds, kept):
    inside = bitmap(len(indptr) - 1, node_ids)
    bounds = np.empty(len(node_ids) + 1, dtype=np.int64)
    bounds[0] = 0
    k = np.uint64(0)
    for i in range(len(node_ids)):
        if i + _AHEAD < len(node_ids):
            _prefetch_row(indptr, indices, node_ids[i + _AHEAD])
        for e in range(np.uint64(indptr[node_ids[i]]), np.uint64(indptr[node_ids[i] + 1])):
            # Written first, kept only if it is inside: k never passes the number of entries seen before.
            kept[k] = indices[e]
            k += has(inside, indices[e])
        bounds[i + 1] = k
    _relabel(kept, bounds, inside, node_ids[:num_seeds])
    return bounds, kept[:k].view(np.int32)


@kernel
@no_type_check
def _relabel(columns, bounds, inside, seeds):
    """Global ids become local ones, ascending in each row: seeds first, then in the order of the graph."""
    num_seeds = np.uint64(len(seeds))
    is_seed = np.zeros(len(inside), dtype=np.uint64)
    for seed in seeds:
        add(is_seed, seed)
    others = inside & ~is_seed
    others_before, seeds_before = ranks(others), ranks(is_seed)
    waiting = np.empty(len(seeds), dtype=np.uint32)
    for i in range(len(bounds) - 1):
        found = np.uint64(0)
        behind = np.uint64(bounds[i])
        for e in range(np.uint64(bounds[i]), np.uint64(bounds[i + 1])):
            node = columns[e]
            if has(others, node):
                columns[behind] = num_seeds + rank(others, others_before, node)
                behind += np.uint64(1)
            else:
                # A few of a hundred entries; they wait aside.
                waiting[found] = rank(is_seed, seeds_before, node)
                found += np.uint64(1)
        if found > 0:
            for e in range(bounds[i + 1] - 1, bounds[i] + np.int64(found) - 1, -1):
                columns[e] = columns[e - np.int64(found)]
            for q in range(found):
                columns[bounds[i] + q] = waiting[q]
