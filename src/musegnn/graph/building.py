"""A source -> the arrays of a graph, each written as it is read: in memory, or straight into a store."""

import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from musegnn.errors import InputError
from musegnn.graph import checks
from musegnn.graph.csr import csr_rows
from musegnn.graph.names import Names
from musegnn.graph.relation import MAX_RELATIONS, code_dtype
from musegnn.graph.source import EdgeChunk, FeatureSource, GraphSource, Topology
from musegnn.graph.threads import in_order
from musegnn.progress import progress

INDEX_LIMIT = 1 << 31
"""Node ids are int32 below this many nodes, int64 above."""
SPARSE_IDS = 10_000_000
"""Ids from here on, with a hundredth as many edges, are no numbers from 0; each would cost 8 bytes."""


@runtime_checkable
class ArraySink(Protocol):
    """Takes the rows of one array."""

    def append(self, rows: np.ndarray) -> None:
        """Add rows behind those taken so far."""
        ...

    def written(self) -> np.ndarray:
        """The rows taken so far."""
        ...


@runtime_checkable
class GraphSink(Protocol):
    """Where a graph's arrays go: a `FolderWriter`, or a `MemoryWriter`."""

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArraySink:
        """Begin an array."""
        ...

    def finish(self, name: str) -> np.ndarray:
        """End an array and return it."""
        ...


class _MemoryArray:
    def __init__(self, dtype: DTypeLike, row_shape: tuple[int, ...]) -> None:
        self._empty = np.empty((0, *row_shape), dtype)
        self._blocks: list[np.ndarray] = []

    def append(self, rows: np.ndarray) -> None:
        assert rows.shape[1:] == self._empty.shape[1:], (rows.shape, self._empty.shape)
        self._blocks.append(rows.astype(self._empty.dtype, copy=False))

    def written(self) -> np.ndarray:
        # One block is passed on as it is: what the caller holds in memory, or has mapped, is not copied.
        if len(self._blocks) != 1:
            self._blocks = [np.concatenate([self._empty, *self._blocks])]
        return self._blocks[0]


class MemoryWriter:
    """Keeps a graph's arrays in memory."""

    def __init__(self) -> None:
        self._begun: dict[str, _MemoryArray] = {}
        self.arrays: dict[str, np.ndarray] = {}

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArraySink:
        """Begin an array."""
        return self._begun.setdefault(name, _MemoryArray(dtype, row_shape))

    def finish(self, name: str) -> np.ndarray:
        """End an array and return it."""
        self.arrays[name] = self._begun.pop(name).written()
        return self.arrays[name]


def build(
    source: GraphSource, sink: GraphSink, *, scratch: Path | None, memory: int, workers: int
) -> dict[str, Any]:
    """Read, check and write every part of a graph; returns the facts about it that are no arrays."""
    source = replace(source, num_nodes=_count_nodes(source))
    num_nodes = source.num_nodes
    assert num_nodes is not None

    # What is short comes first: a wrong label is found before hours of sorting, not after.
    num_classes = checks.num_classes(source.num_classes, source.class_names)
    values = source.labels() if callable(source.labels) else source.labels
    labels = _write_labels(values, sink, num_nodes, num_classes)
    split = None
    if source.split is not None:
        split = checks.split(source.split() if callable(source.split) else source.split, num_nodes)
        sink.array("split", np.int8).append(split)
        sink.finish("split")
    checks.train_is_labeled(labels, split)
    if source.node_names is not None:
        checks.names(source.node_names, num_nodes, "node_names")
        names = Names.of(source.node_names)
        for name, values in (("node_names", names.text), ("node_name_offsets", names.offsets)):
            sink.array(name, values.dtype).append(values)
            sink.finish(name)
    type_names = _write_node_types(source, sink, num_nodes)
    if num_classes is None:
        num_classes = 0 if labels is None else int(labels.max()) + 1
    attributes: dict[str, Any] = {
        "num_nodes": num_nodes,
        "num_classes": num_classes,
        "class_names": checks.texts(source.class_names, "class_names"),
        "relation_names": checks.texts(source.relation_names, "relation_names"),
    }
    # Only of graphs that have types: all others keep the digest that samples were drawn from.
    if type_names is not None:
        attributes["node_type_names"] = type_names

    indptr, indices = _write_adjacency(
        source, sink, num_nodes, scratch=scratch, memory=memory, workers=workers
    )
    if source.features is not None:
        _write_features(source.features, sink, num_nodes, indptr, indices, workers)
    return attributes


def _count_nodes(source: GraphSource) -> int:
    if source.num_nodes is not None:
        return checks.num_nodes(source.num_nodes)
    largest = -1
    num_edges = 0
    with progress("Counting nodes", source.num_edges or 0) as advance:
        for item in source.edges():
            chunk = item if isinstance(item, EdgeChunk) else item()
            for ends in (chunk.source, chunk.target):
                checks.node_ids(ends)
                largest = max(largest, int(ends.max())) if len(ends) else largest
            num_edges += len(chunk.source)
            advance(len(chunk.source))
    if num_edges == 0:
        raise InputError("The graph is empty: it has no edges and num_nodes is not given. Pass num_nodes.")
    if largest >= max(SPARSE_IDS, 100 * num_edges):
        raise InputError(
            f"The largest node id is {largest}, but there are only {num_edges} edges: these ids seem to be "
            "names. Pass num_nodes if they are numbers from 0, or import them as names (named=True, --named)."
        )
    return checks.num_nodes(max(largest, 0) + 1)


def _write_adjacency(
    source: GraphSource, sink: GraphSink, num_nodes: int, *, scratch: Path | None, memory: int, workers: int
) -> tuple[np.ndarray, np.ndarray]:
    coded = source.keep_direction or source.relation_names is not None
    indptr = sink.array("indptr", np.int64)
    indices = sink.array("indices", np.int32 if num_nodes <= INDEX_LIMIT else np.int64)
    codes = sink.array("relation", code_dtype(_num_relations(source))) if coded else None

    indptr.append(np.zeros(1, dtype=np.int64))
    num_entries = 0
    for block in csr_rows(
        source.edges(),
        num_nodes,
        coded=coded,
        num_relations=_num_relations(source),
        scratch=scratch,
        memory=memory,
        workers=workers,
        num_edges=source.num_edges,
    ):
        offsets = num_entries + np.cumsum(block.lengths)
        num_entries = int(offsets[-1])
        indptr.append(offsets)
        indices.append(block.columns)
        if codes is not None and block.codes is not None:
            codes.append(block.codes)
    if codes is not None:
        sink.finish("relation")
    return sink.finish("indptr"), sink.finish("indices")


def _num_relations(source: GraphSource) -> int:
    if source.relation_names is None:
        return 1
    if not 1 <= len(source.relation_names) <= MAX_RELATIONS:
        raise InputError(
            f"relation_names has {len(source.relation_names)} names; between 1 and {MAX_RELATIONS} are "
            "allowed. Merge some relations."
        )
    return len(source.relation_names)


def _write_features(
    source: FeatureSource,
    sink: GraphSink,
    num_nodes: int,
    indptr: np.ndarray,
    indices: np.ndarray,
    workers: int,
) -> None:
    writer = sink.array("features", source.dtype, (source.dim,))
    num_rows = 0
    topology = Topology(indptr, indices, writer.written)
    with progress("Writing features", num_nodes) as advance, ThreadPoolExecutor(workers) as pool:
        for block in _row_blocks(in_order(pool, source.blocks(topology), workers), source.dim):
            with np.errstate(over="ignore"):
                # Before the check: what is finite in the raw file may be infinite in the store's type.
                block = block.astype(source.dtype, copy=False)
            checks.finite(block, num_rows)
            writer.append(block)
            num_rows += len(block)
            advance(len(block))
    if num_rows != num_nodes:
        raise InputError(
            f"features has {num_rows} rows, but the graph has {num_nodes} nodes. Give each node one row."
        )
    sink.finish("features")


def _row_blocks(blocks: Iterable[np.ndarray], dim: int) -> Iterator[np.ndarray]:
    """Cut large arrays into blocks of 64 MiB, so that a mapped one is checked and written while it is hot."""
    step = max(1, (1 << 26) // (4 * max(1, dim)))
    for block in blocks:
        for start in range(0, len(block), step):
            yield block[start : start + step]


def _write_labels(
    values: ArrayLike | None, sink: GraphSink, num_nodes: int, num_classes: int | None
) -> np.ndarray | None:
    if values is None:
        return None
    writer = sink.array("labels", np.int32)
    for block in checks.labels(values, num_nodes, num_classes):
        writer.append(block)
    return sink.finish("labels")


def _write_node_types(source: GraphSource, sink: GraphSink, num_nodes: int) -> list[str] | None:
    """Write the type of each node; returns the names of the types."""
    if source.node_type is None:
        if source.node_type_names is not None:
            raise InputError("node_type_names is given without node_type. Pass the type of each node, too.")
        return None
    names = checks.node_type_names(source.node_type_names)
    values = source.node_type() if callable(source.node_type) else source.node_type
    writer = sink.array("node_type", np.uint8)
    for block in checks.node_types(values, num_nodes, len(names or range(checks.MAX_NODE_TYPES))):
        writer.append(block)
    types = sink.finish("node_type")
    return [f"type {t}" for t in range(1 + int(types.max()))] if names is None else names


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What importing a source will take, before it starts."""

    store_bytes: int
    """Bytes of the finished store without node names, at most: repeated edges make it smaller."""
    peak_bytes: int
    """Bytes of disk at the worst moment, at most: what is laid aside is gone before features are written."""
    seconds: float
    """At the speed of two cores and a disk that writes 300 MB/s."""


def estimate(source: GraphSource) -> Estimate | None:
    """Disk and time an import will take; None if the source does not know its sizes beforehand."""
    if source.num_edges is None:
        return None
    # Where nodes are yet to be counted, at most one for each edge is likely.
    num_nodes = source.num_edges if source.num_nodes is None else source.num_nodes
    coded = source.keep_direction or source.relation_names is not None
    entries = 2 * source.num_edges
    id_bytes = 4 if num_nodes <= INDEX_LIMIT else 8
    code_bytes = code_dtype(_num_relations(source)).itemsize if coded else 0
    known = 4 + 1 + (source.node_type is not None)
    sorted_ = entries * (id_bytes + code_bytes) + 8 * (num_nodes + 1) + num_nodes * known
    features = 0
    if source.features is not None:
        features = num_nodes * source.features.dim * np.dtype(source.features.dtype).itemsize
    scratch = entries * (8 + 4 * coded)
    return Estimate(
        store_bytes=sorted_ + features,
        peak_bytes=sorted_ + max(scratch, features),
        # 10 M edges a second through both passes where the disk is no limit: benchmarks/import.py.
        seconds=source.num_edges / 10e6 + (sorted_ + scratch + features) / 300e6,
    )


def edges_of(source: np.ndarray, target: np.ndarray, relation: np.ndarray | None) -> Iterator[EdgeChunk]:
    """All edges of arrays that are in memory or mapped, as one chunk."""
    yield EdgeChunk(source, target, relation)


def free_bytes(folder: Path) -> int:
    """Free disk space where a folder is, or will be."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free
