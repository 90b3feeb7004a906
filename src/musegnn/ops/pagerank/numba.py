"""Forward push on a hash table: memory and time follow what a seed touches, not the size of the graph.

Touched nodes are numbered as they come. Node number i has its id, p, r, the residual `limit` from which it
is pushed, and its follower in the queue; an open table of slots (linear probing, a power of two) leads from
an id to its number. So a table that grows moves no queue.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Float64, Int64, Integer

from musegnn.ops.bitmap import add, bitmap, members
from musegnn.ops.kernel import kernel

_FREE = -1
"""A slot without a node."""
_IDLE = -2
"""The follower of a node that is not in the queue."""
_LAST = -1
"""The follower of the queue's last node."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST_CAPACITY = 64


def pagerank(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    seeds: Integer[np.ndarray, " n"],
    top_k: int,
    teleport: float,
    tolerance: float,
) -> Integer[np.ndarray, " chosen"]:
    """See `musegnn.ops.pagerank`."""
    return _pagerank(indptr, indices, seeds, top_k, float(teleport), float(tolerance))  # type: ignore[no-any-return]


def push(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    seed: int,
    teleport: float,
    tolerance: float,
) -> tuple[Integer[np.ndarray, " m"], Float64[np.ndarray, " m"], Float64[np.ndarray, " m"]]:
    """The nodes that one seed has touched, in the order in which it did, and their p and r."""
    table = _table(_FIRST_CAPACITY)
    count, (_, ids, p, r, _, _) = _push(indptr, indices, seed, float(teleport), float(tolerance), table)
    return ids[:count].astype(indices.dtype), p[:count], r[:count]


@kernel
@no_type_check
def _pagerank(indptr, indices, seeds, top_k, teleport, tolerance):
    chosen = bitmap(len(indptr) - 1, seeds)
    table = _table(_FIRST_CAPACITY)
    for seed in seeds:
        count, table = _push(indptr, indices, np.int64(seed), teleport, tolerance, table)
        _choose(table[1][:count], table[2][:count], top_k, chosen)
    return members(chosen, indices.dtype)


@kernel
@no_type_check
def _table(capacity):
    """Slots, and half as many nodes: ids, p, r, limit, follower. Only the slots are read before written."""
    slots = np.full(capacity, _FREE, dtype=np.int32)
    ids = np.empty(capacity >> 1, dtype=np.int64)
    p, r, limit = np.empty(len(ids)), np.empty(len(ids)), np.empty(len(ids))
    return slots, ids, p, r, limit, np.empty(len(ids), dtype=np.int32)


@kernel
@no_type_check
def _push(indptr, indices, seed, teleport, tolerance, table):
    slots, ids, p, r, limit, follower = table
    slots[:] = _FREE
    count = _number(seed, 0, table, indptr, tolerance) + 1
    r[0] = 1.0
    head = tail = _LAST
    if r[0] >= limit[0]:
        head = tail = 0
        follower[0] = _LAST
    while head != _LAST:
        u = head
        head = follower[u]
        follower[u] = _IDLE
        mass = r[u]
        r[u] = 0.0
        begin, degree = indptr[ids[u]], indptr[ids[u] + 1] - indptr[ids[u]]
        if degree == 0:
            p[u] += mass
            continue
        p[u] += teleport * mass
        share = (1 - teleport) * mass / degree
        # Room for a whole row, so that the table stays where it is while the row is read.
        if count + degree > len(ids):
            table = _grown(table, count, count + degree)
            slots, ids, p, r, limit, follower = table
        for e in range(begin, begin + degree):
            v = _number(np.int64(indices[e]), count, table, indptr, tolerance)
            count = max(count, v + 1)
            r[v] += share
            if follower[v] == _IDLE and r[v] >= limit[v]:
                follower[v] = _LAST
                if head == _LAST:
                    head = v
                else:
                    follower[tail] = v
                tail = v
    return count, table


@kernel
@no_type_check
def _number(node, count, table, indptr, tolerance):
    """The number of a node: `count` for a new one, which starts with p = r = 0 outside the queue."""
    slots, ids, p, r, limit, follower = table
    slot = _slot(node, slots, ids)
    if slots[slot] == _FREE:
        slots[slot] = count
        ids[count], p[count], r[count] = node, 0.0, 0.0
        limit[count] = tolerance * (indptr[node + 1] - indptr[node])
        follower[count] = _IDLE
    return np.int64(slots[slot])


@kernel
@no_type_check
def _slot(node, slots, ids):
    """The slot of a node, or the free one where it belongs."""
    last = np.uint64(len(slots) - 1)
    # The low bits of a product depend on the low bits of the id alone; the high word on all of them.
    slot = (np.uint64(node) * _GOLDEN >> np.uint64(32)) & last
    while slots[slot] != _FREE and ids[slots[slot]] != node:
        slot = (slot + np.uint64(1)) & last
    return slot


@kernel
@no_type_check
def _grown(table, count, needed):
    """A table with room for `needed` nodes, the first `count` as they were."""
    capacity = len(table[0])
    while capacity >> 1 < needed:
        capacity <<= 1
    new = _table(capacity)
    slots, ids, p, r, limit, follower = new
    _, old_ids, old_p, old_r, old_limit, old_follower = table
    ids[:count], p[:count], r[:count] = old_ids[:count], old_p[:count], old_r[:count]
    limit[:count], follower[:count] = old_limit[:count], old_follower[:count]
    for i in range(count):
        slots[_slot(ids[i], slots, ids)] = i
    return new


@kernel
@no_type_check
def _choose(ids, p, top_k, chosen):
    """Add the `top_k` nodes of largest p > 0; of equal ones those with smaller ids."""
    least = 0.0
    if len(p) > top_k:
        least = np.partition(p, len(p) - top_k)[len(p) - top_k]
    num_above = 0
    for i in range(len(p)):
        if p[i] > least:
            add(chosen, ids[i])
            num_above += 1
    if least > 0:
        tied = np.sort(ids[p == least])
        for node in tied[: top_k - num_above]:
            add(chosen, node)
