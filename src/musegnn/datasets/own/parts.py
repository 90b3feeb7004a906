"""The parts of a user's graph, opened: each a table, an array, or absent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from musegnn.datasets.own.columns import (
    LABEL,
    SPLIT,
    TYPE,
    Column,
    find,
    find_key,
    is_node_header,
    value_column,
    warn_unused,
)
from musegnn.datasets.own.edges import EdgeList
from musegnn.datasets.own.features import FeatureTable
from musegnn.datasets.raw.array_table import ArrayTable
from musegnn.datasets.raw.npy import NpzMember, npz_names, open_npy
from musegnn.datasets.raw.table import SUFFIXES, Table, open_table, suffix
from musegnn.errors import InputError

ARRAYS = (".npy", ".npz")
FEATURE_MEMBERS = ("features", "x")
LABEL_MEMBERS = ("labels", "y")
SPLIT_MEMBERS = ("split",)


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTable:
    """A table that lists every node."""

    table: Table
    key: int
    label: Column | None
    split: Column | None
    type: Column | None

    @classmethod
    def open(cls, path: Path, *, has_labels: bool = False) -> "NodeTable":
        """Ids, and labels, split and types where it has them; labels may be elsewhere."""
        if suffix(path) in ARRAYS:
            raise InputError(f"{path}: nodes must be a table. Allowed are {', '.join(SUFFIXES[2:])}.")
        table = open_table(path, is_node_header, blanks=False)
        if table.columns is None and table.num_columns > 1:
            raise InputError(
                f"{path} has {table.num_columns} columns and no header. Name them in the first line: "
                "id,label,split."
            )
        label, split, type_ = (find(table.columns, names) for names in (LABEL, SPLIT, TYPE))
        key = find_key(table, label, split, type_) or 0
        if key in (label, split, type_):
            raise InputError(f"{path} has no column id. Name the column of the node ids id.")
        is_missing = label is None and not has_labels
        hint = " If the class of the nodes is among them, rename that column to label." * is_missing
        warn_unused(table, [key, label, split, type_], hint)
        columns = [
            None if number is None else Column(table=table, key=key, number=number)
            for number in (label, split, type_)
        ]
        return cls(table=table, key=key, label=columns[0], split=columns[1], type=columns[2])


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What the user gave; types are a column of the nodes table."""

    edges: EdgeList
    nodes: NodeTable | None
    features: FeatureTable | np.ndarray | NpzMember | None
    labels: Column | np.ndarray | None
    split: Column | np.ndarray | None

    @classmethod
    def open(cls, files: dict[str, Path], relations: Sequence[str] | None = None) -> "Parts":
        """The files by the part they hold; an `.npz` of edges may hold others, too."""
        for role, path in files.items():
            _check_file(role, path)
        edges, nodes = files["edges"], files.get("nodes")
        node_table = None if nodes is None else NodeTable.open(nodes, has_labels="labels" in files)
        archive = edges if suffix(edges) == ".npz" else None
        label = None if node_table is None else node_table.label
        split = None if node_table is None else node_table.split
        return cls(
            edges=EdgeList(edges, relations),
            nodes=node_table,
            features=_features(files.get("features"), archive),
            labels=_values(files.get("labels"), LABEL, LABEL_MEMBERS, label, archive),
            split=_values(files.get("split"), SPLIT, SPLIT_MEMBERS, split, archive),
        )

    def tables(self) -> list[FeatureTable | Column]:
        """Features, labels and split that are tables of their own."""
        nodes = None if self.nodes is None else self.nodes.table
        parts = (self.features, self.labels, self.split)
        return [part for part in parts if isinstance(part, FeatureTable | Column) and part.table is not nodes]

    def has_plain_rows(self) -> bool:
        """Whether some part has its rows in node order, without ids."""
        parts = [part for part in (self.features, self.labels, self.split) if part is not None]
        return any(isinstance(part, np.ndarray | NpzMember) or part.key is None for part in parts)

    def num_nodes(self) -> int | None:
        """As many as the nodes table or the features have rows, or labels or a split in node order."""
        if self.nodes is not None:
            return self.nodes.table.num_rows()
        if isinstance(self.edges.table, ArrayTable) and self.edges.table.num_nodes is not None:
            return self.edges.table.num_nodes
        for part in (self.features, self.labels, self.split):
            if isinstance(part, np.ndarray | NpzMember):
                return len(part)
            if part is not None and (part.key is None or isinstance(part, FeatureTable)):
                return part.table.num_rows()
        return None


def _check_file(role: str, path: Path) -> None:
    if path.is_dir():
        raise InputError(f"{path} is a folder; {role} must be a file. Pass the file itself.")
    if not path.exists():
        raise InputError(f"{path} does not exist. Check the path of {role}.")
    suffix(path)


def _features(path: Path | None, archive: Path | None) -> FeatureTable | np.ndarray | NpzMember | None:
    if path is None:
        return None if archive is None else _find_member(archive, FEATURE_MEMBERS)
    if suffix(path) in ARRAYS:
        return _array(path, FEATURE_MEMBERS)
    return FeatureTable.open(path)


def _values(
    path: Path | None,
    names: Sequence[str],
    members: Sequence[str],
    of_nodes: Column | None,
    archive: Path | None,
) -> Column | np.ndarray | None:
    if path is None:
        member = None if archive is None or of_nodes is not None else _find_member(archive, members)
        return of_nodes if member is None else member.read()
    if of_nodes is not None:
        raise InputError(
            f"{of_nodes.table.path} has a column {names[0]}, and {path} is given, too. Leave one of them out."
        )
    if suffix(path) in ARRAYS:
        array = _array(path, members)
        return array if isinstance(array, np.ndarray) else array.read()
    return value_column(open_table(path, is_node_header, blanks=False), names)


def _array(path: Path, members: Sequence[str]) -> np.ndarray | NpzMember:
    """A `.npy`, or the member of an `.npz` that has one of some names or is alone."""
    if suffix(path) == ".npy":
        return open_npy(path)
    names = npz_names(path)
    member = NpzMember(path, names.pop()) if len(names) == 1 else _find_member(path, members)
    if member is None:
        raise InputError(
            f"{path} has the members {', '.join(sorted(names)) or '(none)'}, but none called "
            f"{' or '.join(members)}. Rename it, or save it alone."
        )
    return member


def _find_member(path: Path, members: Sequence[str]) -> NpzMember | None:
    names = npz_names(path)
    return next((NpzMember(path, member) for member in members if member in names), None)
