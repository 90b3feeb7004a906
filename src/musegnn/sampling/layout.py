"""How a sample lies in a shard: its arrays one after the other, so that one read fetches all of it.

indptr     int64  (n_s + 1)      at a multiple of 64 bytes
node_ids   int32  (n_s)          int64 from 2**31 + 1 nodes on
indices    int32  (entries)
zeros up to the next multiple of 64 bytes
"""

from typing import NamedTuple

import numpy as np

from musegnn.sampling.record import Sample
from musegnn.store import ArrayWriter

ALIGNMENT = 64


class Sizes(NamedTuple):
    """A row of the table `<split>_sizes`: where a sample begins in its shard, and how large it is."""

    offset: int
    num_nodes: int
    num_entries: int
    num_seeds: int


def num_bytes(num_nodes: int, num_entries: int, id_dtype: np.dtype) -> int:
    """Bytes of a sample in its shard."""
    content = 8 * (num_nodes + 1) + id_dtype.itemsize * num_nodes + 4 * num_entries
    return -(-content // ALIGNMENT) * ALIGNMENT


def size_of(sample: Sample) -> int:
    """Bytes of a sample in its shard."""
    return num_bytes(sample.num_nodes, sample.num_entries, sample.node_ids.dtype)


def parts(sample: Sample) -> list[np.ndarray]:
    """The bytes of a sample in its shard."""
    arrays = (sample.indptr, sample.node_ids, sample.indices)
    pieces = [
        np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).view(np.uint8) for array in arrays
    ]
    padding = size_of(sample) - sum(len(piece) for piece in pieces)
    return [*pieces, np.zeros(padding, dtype=np.uint8)]


def append(shard: ArrayWriter, sample: Sample) -> Sizes:
    """Write a sample behind those in the shard."""
    offset = shard.num_rows
    for piece in parts(sample):
        shard.append(piece)
    return Sizes(offset, sample.num_nodes, sample.num_entries, sample.num_seeds)


def read(shard: np.ndarray, sizes: Sizes, bounds: np.ndarray, id_dtype: np.dtype) -> Sample:
    """The sample at a place of a mapped shard; nothing is copied."""
    n, node_ids_at = sizes.num_nodes, sizes.offset + 8 * (sizes.num_nodes + 1)
    indices_at = node_ids_at + id_dtype.itemsize * n
    return Sample(
        node_ids=np.frombuffer(shard, id_dtype, n, node_ids_at),
        indptr=np.frombuffer(shard, "<i8", n + 1, sizes.offset),
        indices=np.frombuffer(shard, "<i4", sizes.num_entries, indices_at),
        num_seeds=sizes.num_seeds,
        bounds=bounds,
    )
