"""Edges in any order -> CSR rows in order, in bounded memory.

Both directions of each edge become keys (`musegnn.ops`), grouped into buckets of neighboring rows and laid
aside, in memory or on disk. Then one bucket after the other is sorted, stripped of repeats, and handed on. An
edge list of any length passes through; what is held at once is a few chunks and a few buckets.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from musegnn import ops
from musegnn.graph import checks, relation
from musegnn.graph.source import EdgeChunk
from musegnn.graph.threads import in_order
from musegnn.progress import progress

MAX_BUCKETS = 1024
DEFAULT_MEMORY = 1 << 30
"""Bytes that building may hold at once, beside what the reader of the raw files needs."""
MEMORY_PER_WORKER = 1 << 28
"""If all threads together need more than the default, so that buckets stay large."""
BYTES_PER_EDGE = 96
"""Of a chunk while it is partitioned: int64 ends, the keys and codes of both directions, and a copy."""
BYTES_PER_ENTRY = 40
"""Of a bucket while it is merged: keys, codes, sorted words, columns and codes of the result."""


class RowBlock(NamedTuple):
    """Consecutive rows of the adjacency."""

    lengths: np.ndarray
    columns: np.ndarray
    codes: np.ndarray | None


def csr_rows(
    chunks: Iterable[EdgeChunk | Callable[[], EdgeChunk]],
    num_nodes: int,
    *,
    coded: bool,
    num_relations: int = relation.MAX_RELATIONS,
    scratch: Path | None = None,
    memory: int = DEFAULT_MEMORY,
    workers: int = 1,
    num_edges: int | None = None,
) -> Iterator[RowBlock]:
    """Yield the rows of the symmetric, loop-free adjacency without repeats, in order.

    `coded` keeps relation and direction (`musegnn.graph.relation`). Keys are laid aside in `scratch`, or in
    memory without it.
    """
    share = memory // (workers + 1)
    compiled = num_edges is None or 2 * num_edges > ops.SMALL
    spill = Spill(num_nodes, coded=coded, folder=scratch, max_entries=max(1, share // BYTES_PER_ENTRY))

    def partition(piece: _Piece) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        chunk = piece.make()
        checks.edge_lengths(chunk)
        source, target = checks.edge_chunk(chunk, num_nodes, piece.first_edge)
        code = None
        if coded:
            # Without relations, keeping the direction is keeping relation 0.
            zeros = np.zeros(len(source), dtype=np.uint32)
            code = relation.encode(zeros if chunk.relation is None else chunk.relation, num_relations)
        return ops.partition_edges(
            source, target, code, shift=spill.shift, num_buckets=spill.num_buckets, compiled=compiled
        )

    def merge(bucket: _Bucket) -> RowBlock:
        keys, codes = bucket.load()
        merged = ops.merge_entries(keys, codes, bucket.first_row, bucket.num_rows, compiled=compiled)
        return RowBlock(*merged)

    with ThreadPoolExecutor(workers) as pool:
        with progress("Reading edges", 2 * (num_edges or 0)) as advance:
            pieces = _pieces(chunks, max(1, share // BYTES_PER_EDGE))
            for keys, codes, bounds in in_order(
                pool, (partial(partition, piece) for piece in pieces), workers
            ):
                spill.append(keys, codes, bounds)
                advance(len(keys))
        with progress("Sorting rows", num_nodes) as advance:
            for block in in_order(pool, (partial(merge, bucket) for bucket in spill.buckets()), workers):
                yield block
                advance(len(block.lengths))


class _Piece(NamedTuple):
    make: Callable[[], EdgeChunk]
    first_edge: int


class _Bucket(NamedTuple):
    first_row: int
    num_rows: int
    load: Callable[[], tuple[np.ndarray, np.ndarray | None]]


class Spill:
    """Keys laid aside by bucket of rows, in lists or in files."""

    def __init__(
        self, num_nodes: int, *, coded: bool, folder: Path | None, max_entries: int, first_row: int = 0
    ) -> None:
        self.first_row = first_row
        self.num_rows = num_nodes
        self.coded = coded
        self.folder = folder
        self.max_entries = max_entries
        # Buckets of 2**shift rows, at most MAX_BUCKETS of them.
        self.shift = max(0, (max(1, num_nodes - 1) // MAX_BUCKETS).bit_length())
        self.num_buckets = ((num_nodes - 1) >> self.shift) + 1
        self.counts = np.zeros(self.num_buckets, dtype=np.int64)
        self._held: dict[str, list[np.ndarray]] = {}

    def append(self, keys: np.ndarray, codes: np.ndarray | None, bounds: np.ndarray) -> None:
        """Lay grouped keys aside (one thread)."""
        self.counts += np.diff(bounds)
        for b in np.flatnonzero(np.diff(bounds)):
            part = slice(bounds[b], bounds[b + 1])
            self._put(f"{b}.keys", keys[part])
            if codes is not None:
                self._put(f"{b}.codes", codes[part])

    def buckets(self) -> Iterator[_Bucket]:
        """All buckets in order of their rows; one too large for the memory is split first."""
        for b in range(self.num_buckets):
            first = b << self.shift
            rows = min(1 << self.shift, self.num_rows - first)
            if self.counts[b] > self.max_entries and rows > 1 and self.folder is not None:
                yield from self._split(b, first, rows)
            else:
                yield _Bucket(self.first_row + first, rows, partial(self._take, b))

    def _split(self, b: int, first: int, rows: int) -> Iterator[_Bucket]:
        assert self.folder is not None
        folder = self.folder / str(b)
        folder.mkdir()
        finer = Spill(
            rows,
            coded=self.coded,
            folder=folder,
            max_entries=self.max_entries,
            first_row=self.first_row + first,
        )
        for start in range(0, int(self.counts[b]), self.max_entries):
            keys, codes = self._take(b, start, self.max_entries)
            bucket = (keys >> np.uint64(32)).astype(np.int64) - finer.first_row >> finer.shift
            order = np.argsort(bucket, kind="stable")
            bounds = np.concatenate([[0], np.cumsum(np.bincount(bucket, minlength=finer.num_buckets))])
            finer.append(keys[order], None if codes is None else codes[order], bounds)
        self._drop(b)
        yield from finer.buckets()

    def _put(self, name: str, values: np.ndarray) -> None:
        if self.folder is None:
            self._held.setdefault(name, []).append(values)
        else:
            with (self.folder / name).open("ab") as file:
                file.write(values.tobytes())

    def _take(self, b: int, start: int = 0, count: int = -1) -> tuple[np.ndarray, np.ndarray | None]:
        keys = self._get(f"{b}.keys", np.uint64, start, count)
        codes = self._get(f"{b}.codes", np.uint32, start, count) if self.coded else None
        if count < 0:
            self._drop(b)
        return keys, codes

    def _get(self, name: str, dtype: type[np.generic], start: int, count: int) -> np.ndarray:
        if self.folder is None:
            return np.concatenate([np.empty(0, dtype), *self._held.get(name, [])])
        path = self.folder / name
        if not path.exists():
            return np.empty(0, dtype)
        return np.fromfile(path, dtype=dtype, count=count, offset=start * np.dtype(dtype).itemsize)

    def _drop(self, b: int) -> None:
        for name in (f"{b}.keys", f"{b}.codes"):
            self._held.pop(name, None)
            if self.folder is not None:
                (self.folder / name).unlink(missing_ok=True)


def _pieces(chunks: Iterable[EdgeChunk | Callable[[], EdgeChunk]], max_edges: int) -> Iterator[_Piece]:
    """Chunks cut to at most `max_edges` edges; one that is yet to be made is taken as it comes."""
    first_edge = 0
    for chunk in chunks:
        if not isinstance(chunk, EdgeChunk):
            yield _Piece(chunk, 0)
            continue
        checks.edge_lengths(chunk)
        for start in range(0, len(chunk.source), max_edges):
            yield _Piece(partial(_cut, chunk, slice(start, start + max_edges)), first_edge + start)
        first_edge += len(chunk.source)


def _cut(chunk: EdgeChunk, part: slice) -> EdgeChunk:
    numbers = None if chunk.relation is None else chunk.relation[part]
    return EdgeChunk(chunk.source[part], chunk.target[part], numbers)


def default_memory(workers: int) -> int:
    """What is held at once if the caller does not say."""
    return max(DEFAULT_MEMORY, workers * MEMORY_PER_WORKER)
