"""The files of a user's graph -> a `GraphSource`: which nodes there are, and what belongs to each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from musegnn.datasets.own.columns import Column
from musegnn.datasets.own.features import FeatureTable, array_features
from musegnn.datasets.own.numbering import Numbering, check_numbers, number_names
from musegnn.datasets.own.parts import Parts
from musegnn.datasets.own.values import Labels, read_labels, read_split, read_types, word_labels
from musegnn.datasets.raw.table import suffix
from musegnn.graph import FeatureSource, GraphSource, checks


def read(
    edges: Path,
    *,
    nodes: Path | None = None,
    features: Path | None = None,
    labels: Path | None = None,
    split: Path | None = None,
    num_nodes: int | None = None,
    named: bool = False,
    relations: Sequence[str] | None = None,
    keep_direction: bool = True,
    name: str | None = None,
) -> GraphSource:
    """Describe a graph that lies in files of one's own: `.npy`, `.npz`, `.csv`, `.tsv`, `.txt`, `.parquet`.

    Ids are node numbers from 0 if those of the first edge are whole numbers, else names. A table has a row
    for each node in order, or a column `id` (`node`, `node_id`, `name`). Names are numbered in the order of
    the first table that has them: nodes, features, labels, split, else the edges. They take about 50 bytes of
    memory each beside their text, and one more pass over the edges if there is no nodes table. Edges are
    never held in memory.

    Text may be packed (`.csv.gz`). Its columns are separated by commas, tabs, semicolons or blanks; blanks
    may be part of names in a `.csv` or `.tsv`. Leading lines that begin with # or % are comments; write a
    header first where names begin so.

    Args:
        edges: two ids in each line. A header `source,target` (or src/dst, from/to, u/v, head/tail, id1/id2,
            node1/node2) may name a column `relation` of numbers or words. A `.npy` has the shape (2, edges)
            or (edges, 2); an `.npz` has `edge_index`, or `indptr` and `indices`, and may have `relation`,
            `num_nodes`, `features`, `labels` and `split`.
        nodes: every node's id, one in each line, or a table with the columns id, label, split and
            type: the types of the nodes, at most 255 words or numbers, in sorted order.
        features: one row of numbers for each node. Streamed where the rows are in node order; rows that have
            to be sorted by their id are gathered in memory.
        labels: whole numbers from 0, or words, which are numbered in sorted order; empty, -1 or nan: none.
        split: train, valid (val, validation, dev), test and none, or 0, 1, 2 and -1.
        num_nodes: as many as the nodes, features or labels, or the largest id + 1, when not given.
        named: ids are names, even if they look like numbers.
        relations: names of all relations, in order: for numbers 0, 1, ..., or for words of which this file
            may lack some that another one has. Sorted words, or `relation 0`, ..., when not given.
        keep_direction: keep which way each edge pointed.
        name: what the graph calls itself; the name of the file of edges when not given.
    """
    given = {"edges": edges, "nodes": nodes, "features": features, "labels": labels, "split": split}
    files = {role: path for role, path in given.items() if path is not None}
    parts = Parts.open(files, relations)
    count = None if num_nodes is None else checks.num_nodes(num_nodes)
    number = number_names if parts.edges.has_names(named=named) else check_numbers
    nodes_of = number(parts, count)
    relation_names = None if nodes_of.survey is None else nodes_of.survey.relation_names
    class_numbers, class_names = _labels(parts, nodes_of)
    types, type_names = _types(parts, nodes_of)
    return GraphSource(
        name=name or _stem(edges),
        edges=lambda: parts.edges.chunks(nodes_of.ids, relation_names),
        num_nodes=nodes_of.num_nodes,
        num_edges=nodes_of.survey.num_edges if nodes_of.survey else parts.edges.table.estimate_rows(),
        features=_features(parts, nodes_of),
        labels=class_numbers,
        split=_split(parts, nodes_of),
        class_names=class_names,
        node_names=nodes_of.names,
        node_type=types,
        node_type_names=type_names,
        relation_names=relation_names,
        keep_direction=keep_direction,
        provenance={
            "source": "own files",
            "options": {"named": named, "keep_direction": keep_direction},
            "raw_files": {str(path): path.stat().st_size for path in files.values()},
        },
    )


def _labels(parts: Parts, nodes: Numbering) -> Labels | tuple[np.ndarray | None, None]:
    if isinstance(parts.labels, Column):
        return read_labels(parts.labels, nodes.ids, nodes.count())
    if parts.labels is not None and parts.labels.dtype.kind in "US":
        return word_labels(parts.labels)
    return parts.labels, None


def _types(parts: Parts, nodes: Numbering) -> tuple[np.ndarray, list[str]] | tuple[None, None]:
    if parts.nodes is None or parts.nodes.type is None:
        return None, None
    return read_types(parts.nodes.type, nodes.ids, nodes.count())


def _split(parts: Parts, nodes: Numbering) -> np.ndarray | None:
    if isinstance(parts.split, Column):
        return read_split(parts.split, nodes.ids, nodes.count())
    return parts.split


def _features(parts: Parts, nodes: Numbering) -> FeatureSource | None:
    features = parts.features
    if features is None:
        return None
    if not isinstance(features, FeatureTable):
        return array_features(features, "features")
    # Without a nodes table, a table of features is the first to name nodes, so its order is theirs.
    is_ordered = nodes.names is not None and parts.nodes is None
    if features.key is None or is_ordered:
        return features.stream()
    return features.gather(nodes.ids, nodes.count())


def _stem(path: Path) -> str:
    name = path.name[:-3] if path.name.lower().endswith(".gz") else path.name
    return name[: -len(suffix(path))]
