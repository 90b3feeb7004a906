"""Which rows are read most often, counted over the stored samples, and those rows in memory."""

from collections.abc import Callable, Mapping

import numpy as np
from jaxtyping import Integer, Shaped

from musegnn.progress import progress
from musegnn.sampling import SampleStore

MAX_COUNT = 1 << 24
"""Counts stay below it, so that a histogram of them is small."""
_BLOCK = 1 << 22
_CHUNK = 4096
"""Rows that are moved at a time: they stay in the processor's cache."""


def appearances(store: SampleStore, num_nodes: int, reads: Mapping[str, int]) -> Shaped[np.ndarray, " nodes"]:
    """How often each node's row will be read, if each sample of a split is read `reads[split]` times.

    Numbers of reads that would count beyond `MAX_COUNT` are made smaller in proportion.
    """
    sizes = {split: len(store[split]) for split in store if reads.get(split)}
    total = sum(reads[split] * size for split, size in sizes.items())
    weights = {split: max(1, reads[split] * MAX_COUNT // max(total, MAX_COUNT)) for split in sizes}
    largest = sum(weights[split] * size for split, size in sizes.items())
    counts = np.zeros(num_nodes, dtype=np.min_scalar_type(largest))
    with progress("Counting appearances", sum(sizes.values()), unit="samples") as advance:
        for split, weight in weights.items():
            for sample in store[split]:
                # No node is in a sample twice.
                counts[sample.node_ids] += counts.dtype.type(weight)
                advance(1)
    return counts


def most_read(counts: Shaped[np.ndarray, " nodes"], num_rows: int) -> Integer[np.ndarray, " hot"]:
    """The nodes with the largest counts, ascending; of equal ones the first, and none that is never read."""
    blocks = [slice(begin, begin + _BLOCK) for begin in range(0, len(counts), _BLOCK)]
    histogram = np.zeros(int(counts.max(initial=0)) + 1, dtype=np.int64)
    for block in blocks:
        histogram += np.bincount(counts[block], minlength=len(histogram))
    # above[c]: how many nodes have a larger count than c.
    above = histogram.sum() - np.cumsum(histogram)
    least = int(np.argmax(above <= num_rows))
    left = num_rows - int(above[least]) if least else 0
    chosen = []
    for block in blocks:
        ties = np.flatnonzero(counts[block] == least)[:left]
        left -= len(ties)
        chosen.append(np.sort(np.append(np.flatnonzero(counts[block] > least), ties)) + block.start)
    nodes: np.ndarray = np.concatenate(chosen) if chosen else np.empty(0, dtype=np.int64)
    return nodes.astype(np.int32 if len(counts) < 1 << 31 else np.int64)


class HotRows:
    """Some rows in memory, and where each lies: 4 bytes for each node of the graph."""

    def __init__(
        self,
        num_nodes: int,
        nodes: Integer[np.ndarray, " hot"],
        rows: Shaped[np.ndarray, "hot in_dim"],
    ) -> None:
        self.rows = rows
        self.slots = slots_of(num_nodes, nodes)

    def fill(
        self,
        node_ids: Integer[np.ndarray, " nodes"],
        out: Shaped[np.ndarray, "nodes in_dim"],
        read_cold: Callable[[np.ndarray, np.ndarray], None],
    ) -> None:
        """out[i] <- row of `node_ids[i]`; those that are not here are read by `read_cold(ids, into)`."""
        slots = self.slots[node_ids]
        is_cold = slots < 0
        cold, hot = np.flatnonzero(is_cold), np.flatnonzero(~is_cold)
        tail = out[len(hot) :]
        read_cold(node_ids[cold], tail)
        # Row k of the tail belongs to cold[k] <= len(hot) + k: in turn, none is overwritten before it moves.
        if len(hot):
            for begin in range(0, len(cold), _CHUNK):
                out[cold[begin : begin + _CHUNK]] = tail[begin : begin + _CHUNK].copy()
        for begin in range(0, len(hot), _CHUNK):
            here = hot[begin : begin + _CHUNK]
            out[here] = self.rows[slots[here]]


def slots_of(num_nodes: int, nodes: Integer[np.ndarray, " hot"]) -> Integer[np.ndarray, " nodes"]:
    """Node -> its number among the hot ones, -1 for the others."""
    slots = np.full(num_nodes, -1, dtype=np.int32)
    slots[nodes] = np.arange(len(nodes), dtype=np.int32)
    return slots
