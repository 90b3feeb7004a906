"""The graph record: a symmetric adjacency in CSR form, and what is known about its nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int8, Int32, Int64, Integer, UInt, UInt8
from numpy.typing import ArrayLike

from musegnn.errors import InputError, StoreError
from musegnn.graph import building, checks, interop
from musegnn.graph.csr import default_memory
from musegnn.graph.names import Names
from musegnn.graph.relation import check as check_relations
from musegnn.graph.source import FeatureSource, GraphSource
from musegnn.graph.structure import check_structure
from musegnn.graph.threads import default_workers
from musegnn.store import ArraySpec, FolderWriter, Header, StoredFolder, digest_array
from musegnn.store.arrays import dtype_name
from musegnn.store.provenance import provenance

if TYPE_CHECKING:
    from networkx import Graph as NetworkXGraph
    from scipy.sparse import sparray, spmatrix
    from torch_geometric.data import Data

KIND = "graph"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Graph:
    """A graph: the columns of row i, `indices[indptr[i] : indptr[i + 1]]`, are the neighbors of node i.

    Every edge is stored in both directions, once; no node is its own neighbor; columns ascend in each row.
    Make one with `from_edges`, `open`, or `musegnn.datasets.load`. What is opened from disk is memory-mapped.
    """

    indptr: Int64[np.ndarray, " nodes_plus_1"]
    indices: Integer[np.ndarray, " entries"]
    """Neighbors, int32 below 2**31 nodes."""
    features: Float[np.ndarray, "nodes dim"] | None = None
    labels: Int32[np.ndarray, " nodes"] | None = None
    """Class numbers, -1 where unlabeled."""
    split: Int8[np.ndarray, " nodes"] | None = None
    """0 train, 1 valid, 2 test, -1 none."""
    relation: UInt[np.ndarray, " entries"] | None = None
    """Relation and original direction of each entry, as bits (`musegnn.graph.relation`)."""
    node_type: UInt8[np.ndarray, " nodes"] | None = None
    """The number of each node's type: its place in `node_type_names`, which is given if this is."""
    num_classes: int = 0
    class_names: tuple[str, ...] | None = None
    relation_names: tuple[str, ...] | None = None
    node_type_names: tuple[str, ...] | None = None
    node_names: Names | None = None
    name: str = "graph"
    provenance: dict[str, Any] = field(default_factory=dict)
    """Where the graph came from; no part of its digest."""
    stored: StoredFolder | None = None
    """The store it was opened from."""

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.indptr) - 1

    @property
    def num_relations(self) -> int:
        """Of the edges; one where they have only directions, 0 where they have neither."""
        return 0 if self.relation is None else len(self.relation_names or ("directed",))

    @property
    def num_edges(self) -> int:
        """Number of stored entries: each undirected edge counts twice, once from either end."""
        return len(self.indices)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content, equal for equal graphs; an unsaved graph is hashed when first asked."""
        if self._is_stored():
            return self.stored.header.digest  # type: ignore[union-attr]
        arrays = {
            name: ArraySpec(dtype=dtype_name(values.dtype), shape=values.shape, digest=digest_array(values))
            for name, values in sorted(self._arrays().items())
        }
        return Header(kind=KIND, attributes=self._attributes(), arrays=arrays, provenance={}).digest

    @classmethod
    def from_edges(
        cls,
        edge_index: ArrayLike,
        *,
        num_nodes: int | None = None,
        features: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        split: ArrayLike | dict[str, ArrayLike] | None = None,
        relation: ArrayLike | None = None,
        node_type: ArrayLike | None = None,
        keep_direction: bool = False,
        num_classes: int | None = None,
        class_names: Sequence[str] | None = None,
        node_names: Sequence[str] | None = None,
        relation_names: Sequence[str] | None = None,
        node_type_names: Sequence[str] | None = None,
        name: str = "graph",
    ) -> "Graph":
        """A graph in memory from arrays or tensors: made symmetric, rid of repeats and loops, and checked.

        Args:
            edge_index: (2, edges) integers, sources and targets, in any order.
            num_nodes: taken from features, labels or the largest id when not given.
            features: (nodes, dim); float16 stays, other numbers become float32.
            labels: one class number per node, -1 or NaN where there is none.
            split: 0 train, 1 valid, 2 test, -1 none per node; or ids or masks as `{"train": ..., ...}`.
            relation: the number of each edge's relation, from 0 to 15.
            node_type: the number of each node's type, from 0 to 254.
            keep_direction: remember which way each edge pointed, without relations.
            num_classes: the largest label + 1 when not given.
            class_names: one per class.
            node_names: one per node.
            relation_names: one per relation.
            node_type_names: one per type of nodes; "type 0", "type 1", ... when not given.
            name: what the graph calls itself.
        """
        sources, targets = checks.edge_index(edge_index)
        numbers, relation_names = _relations(relation, relation_names, len(sources))
        if num_nodes is None:
            parts = {"features": features, "labels": labels, "node_names": node_names, "node_type": node_type}
            known = next((part for part, values in parts.items() if values is not None), None)
            num_nodes = None if known is None else checks.num_rows(parts[known], known)
        rows = None
        if features is not None:
            rows = checks.features(features, checks.num_nodes(num_nodes))
        source = GraphSource(
            name=name,
            edges=lambda: building.edges_of(sources, targets, numbers),
            num_nodes=num_nodes,
            num_edges=len(sources),
            features=None if rows is None else FeatureSource.of(rows),
            labels=labels,
            split=split,
            num_classes=num_classes,
            class_names=class_names,
            node_names=node_names,
            node_type=node_type,
            node_type_names=node_type_names,
            relation_names=relation_names,
            keep_direction=keep_direction,
        )
        return cls.from_source(source)

    @classmethod
    def from_source(
        cls,
        source: GraphSource,
        out: str | Path | None = None,
        *,
        overwrite: bool = False,
        memory: int | None = None,
        workers: int | None = None,
    ) -> "Graph":
        """Build a graph from a description of raw files: into a store at `out`, or in memory without it.

        With `out`, at most about `memory` bytes are held at once, however many edges and features there are:
        1 GiB, or 256 MiB for each thread if that is more, when not given.
        """
        workers = default_workers() if workers is None else checks.num_workers(workers)
        memory = default_memory(workers) if memory is None else checks.memory(memory)
        if out is None:
            sink = building.MemoryWriter()
            attributes = building.build(source, sink, scratch=None, memory=memory, workers=workers)
            return cls._assemble(sink.arrays, attributes, name=source.name, provenance=source.provenance)
        with FolderWriter(Path(out), KIND, overwrite=overwrite) as writer:
            _check_disk(source, writer.folder)
            attributes = building.build(
                source, writer, scratch=writer.scratch, memory=memory, workers=workers
            )
            writer.publish(attributes, provenance(source.name, source.provenance))
        return cls.open(out)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a graph store: complete under `folder`, or not at all."""
        with FolderWriter(Path(folder), KIND, overwrite=overwrite) as writer:
            for name, values in self._arrays().items():
                writer.write(name, values)
            writer.publish(self._attributes(), provenance(self.name, self.provenance))

    @classmethod
    def open(cls, folder: str | Path) -> "Graph":
        """Map a graph store. Takes the time of reading its header, whatever its size."""
        stored = StoredFolder(Path(folder), KIND)
        header = stored.header
        try:
            name = str(header.provenance["name"])
            consistent = _is_consistent(stored.arrays, header.attributes)
        except KeyError as error:
            raise StoreError(f"{stored.folder} lacks {error}: not a graph store. Write it again.") from error
        if not consistent:
            raise StoreError(f"{stored.folder} is damaged: its arrays do not fit each other. Write it again.")
        return cls._assemble(stored.arrays, header.attributes, name, header.provenance, stored)

    def verify_topology(self) -> None:
        """Compare the bytes of adjacency and split with their digests, if the graph was opened from disk."""
        if self._is_stored():
            self.stored.verify({"indptr", "indices", "split"})  # type: ignore[union-attr]

    def verify(self) -> None:
        """Read everything: digests against the header, then what must hold of the values of each array."""
        if self._is_stored():
            self.stored.verify()  # type: ignore[union-attr]
        check_structure(self.indptr, self.indices, self.relation)
        checks.parts(self.features, self.labels, self.split, self.num_nodes, self.num_classes)
        if self.node_type is not None:
            for _ in checks.node_types(self.node_type, self.num_nodes, len(self.node_type_names or ())):
                pass
        if self.node_names is not None:
            self.node_names.verify()

    @classmethod
    def from_pyg(cls, data: "Data", *, name: str = "graph") -> "Graph":
        """From a PyG `Data`: `edge_index`, and where present `x`, `y`, types of edges and nodes, masks."""
        return cls.from_edges(**interop.from_pyg(data), name=name)

    def to_pyg(self) -> "Data":
        """A PyG `Data` with both directions of each edge; copies everything into memory."""
        return interop.to_pyg(self)

    @classmethod
    def from_scipy(cls, matrix: "sparray | spmatrix", *, name: str = "graph", **parts: Any) -> "Graph":
        """From the nonzero pattern of a square SciPy matrix; `parts` as in `from_edges`."""
        return cls.from_edges(**{**interop.from_scipy(matrix), **parts}, name=name)

    @classmethod
    def from_networkx(cls, graph: "NetworkXGraph[Any]", *, name: str = "graph", **parts: Any) -> "Graph":
        """From a NetworkX graph; its nodes become 0, 1, ... in their order and keep their names."""
        return cls.from_edges(**{**interop.from_networkx(graph), **parts}, name=name)

    def __repr__(self) -> str:
        parts = [f"num_nodes={self.num_nodes}", f"num_edges={self.num_edges}"]
        if self.features is not None:
            parts.append(f"features={self.features.dtype}[{self.features.shape[1]}]")
        if self.num_classes:
            parts.append(f"num_classes={self.num_classes}")
        return f"Graph({self.name!r}, {', '.join(parts)})"

    @classmethod
    def _assemble(
        cls,
        arrays: dict[str, np.ndarray],
        attributes: dict[str, Any],
        name: str,
        provenance: dict[str, Any],
        stored: StoredFolder | None = None,
    ) -> "Graph":
        classes, relations = attributes["class_names"], attributes["relation_names"]
        types = attributes.get("node_type_names")
        return cls(
            indptr=arrays["indptr"],
            indices=arrays["indices"],
            features=arrays.get("features"),
            labels=arrays.get("labels"),
            split=arrays.get("split"),
            relation=arrays.get("relation"),
            node_type=arrays.get("node_type"),
            num_classes=attributes["num_classes"],
            class_names=None if classes is None else tuple(classes),
            relation_names=None if relations is None else tuple(relations),
            node_type_names=None if types is None else tuple(types),
            node_names=Names(arrays["node_names"], arrays["node_name_offsets"])
            if "node_names" in arrays
            else None,
            name=name,
            provenance=provenance,
            stored=stored,
        )

    def _is_stored(self) -> bool:
        """Whether this is the graph in `stored`, and not one made from it by `dataclasses.replace`."""
        if self.stored is None or self._attributes() != self.stored.header.attributes:
            return False
        arrays = self._arrays()
        same_names = arrays.keys() == self.stored.arrays.keys()
        return same_names and all(arrays[name] is values for name, values in self.stored.arrays.items())

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {
            "indptr": self.indptr,
            "indices": self.indices,
            "features": self.features,
            "labels": self.labels,
            "split": self.split,
            "relation": self.relation,
            "node_type": self.node_type,
            "node_names": None if self.node_names is None else self.node_names.text,
            "node_name_offsets": None if self.node_names is None else self.node_names.offsets,
        }
        return {name: values for name, values in arrays.items() if values is not None}

    def _attributes(self) -> dict[str, Any]:
        types = self.node_type_names
        return {
            "num_nodes": self.num_nodes,
            "num_classes": self.num_classes,
            "class_names": None if self.class_names is None else list(self.class_names),
            "relation_names": None if self.relation_names is None else list(self.relation_names),
            **({} if types is None else {"node_type_names": list(types)}),
        }


def _relations(
    relation: ArrayLike | None, names: Sequence[str] | None, num_edges: int
) -> tuple[np.ndarray | None, Sequence[str] | None]:
    if relation is None:
        if names is not None:
            raise InputError("relation_names is given without relation. Pass the relation of each edge, too.")
        return None, None
    numbers = checks.as_array(relation, "relation")
    checks.relations(numbers, num_edges)
    if names is None:
        check_relations(numbers)
        names = [f"relation {r}" for r in range(1 + int(numbers.max(initial=0)))]
    elif len(numbers) and numbers.max() >= len(names):
        raise InputError(
            f"relation has the number {numbers.max()}, but relation_names has {len(names)} names. "
            "Name each relation."
        )
    return numbers, names


_DTYPES = {
    "indptr": ("<i8",),
    "indices": ("<i4", "<i8"),
    "features": ("<f2", "<f4"),
    "labels": ("<i4",),
    "split": ("<i1",),
    "relation": ("<u1", "<u2", "<u4"),
    "node_type": ("<u1",),
    "node_names": ("<u1",),
    "node_name_offsets": ("<i8",),
}
"""What docs/formats.md allows."""


def _is_consistent(arrays: dict[str, np.ndarray], attributes: dict[str, Any]) -> bool:
    """Types and shapes fit each other and offsets end right; the values between are `verify`'s."""
    num_nodes, indptr, indices = attributes["num_nodes"], arrays["indptr"], arrays["indices"]
    if type(num_nodes) is not int or num_nodes < 1:
        return False
    lengths = {"indptr": num_nodes + 1, "indices": len(indices), "relation": len(indices)}
    if "node_names" in arrays:
        text, offsets = arrays["node_names"], arrays["node_name_offsets"]
        lengths |= {"node_names": len(text), "node_name_offsets": num_nodes + 1}
    return (
        all(
            dtype_name(values.dtype) in _DTYPES[name]
            and values.ndim == (2 if name == "features" else 1)
            and len(values) == lengths.get(name, num_nodes)
            for name, values in arrays.items()
            if name in _DTYPES
        )
        and (indptr[0], indptr[-1]) == (0, len(indices))
        and ("node_names" not in arrays or (offsets[0], offsets[-1]) == (0, len(text)))
        and _names_fit(attributes)
        and _types_fit(arrays, attributes)
    )


def _names_fit(attributes: dict[str, Any]) -> bool:
    num_classes, classes = attributes["num_classes"], attributes["class_names"]
    for names in (classes, attributes["relation_names"]):
        if names is not None and not _are_names(names):
            return False
    return type(num_classes) is int and num_classes >= 0 and (classes is None or num_classes == len(classes))


def _types_fit(arrays: dict[str, np.ndarray], attributes: dict[str, Any]) -> bool:
    """Types and their names are both there, or neither."""
    if "node_type" not in arrays:
        return "node_type_names" not in attributes
    names = attributes["node_type_names"]
    return _are_names(names) and 1 <= len(names) == len(set(names)) <= checks.MAX_NODE_TYPES


def _are_names(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _check_disk(source: GraphSource, folder: Path) -> None:
    needs = building.estimate(source)
    if needs is None:
        return
    free = building.free_bytes(folder)
    if needs.peak_bytes > free:
        raise StoreError(
            f"Importing {source.name} may take {needs.peak_bytes / 1e9:.1f} GB of disk "
            f"({needs.store_bytes / 1e9:.1f} GB stay), but {folder.parent} has {free / 1e9:.1f} GB free. "
            "Free some space or choose another folder."
        )
