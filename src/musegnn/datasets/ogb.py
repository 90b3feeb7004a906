"""ogbn-arxiv, ogbn-products and ogbn-papers100M, as the Open Graph Benchmark ships them.

The first two are gzipped CSV, the third is two `.npz`. What the ogb package adds to the folder when it is
used (`processed/`, `split_dict.pt`) are pickles and are never opened.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from musegnn.datasets.base import Dataset, find_files, find_folder, provenance
from musegnn.datasets.raw.npy import NpzMember
from musegnn.datasets.raw.text import number_rows, open_text
from musegnn.errors import InputError
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource
from musegnn.graph.checks import SPLITS
from musegnn.graph.source import stored_dtype

NPZ_FILES = ("data.npz", "node-label.npz")
CSV_FILES = ("edge.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz", "node-label.csv.gz")
CSV_FEATURES = "node-feat.csv.gz"


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What tells one dataset's folder from another's."""

    name: str
    about: str
    folders: tuple[str, str]
    """The folder's name as the ogb package gives it, and inside the zip."""
    split: str
    """Folder of the official split."""
    num_classes: int
    directed: bool
    binary: bool = False

    @property
    def get(self) -> str:
        """How to get the raw files."""
        return f"Download http://snap.stanford.edu/ogb/data/nodeproppred/{self.folders[1]}.zip and unpack it."


class Content(NamedTuple):
    """What the files under `raw/` hold."""

    edges: Callable[[], Iterable[EdgeChunk]]
    num_nodes: int
    num_edges: int
    features: FeatureSource | None
    labels: np.ndarray


def read(layout: Layout, root: Path, features: bool = True) -> GraphSource:
    """One of the three; `root` is the dataset's folder or the folder around it."""
    names = NPZ_FILES if layout.binary else (*CSV_FILES, CSV_FEATURES) if features else CSV_FILES
    folder = find_folder(root, layout.folders, f"raw/{names[0]}", layout.get)
    raw_files = find_files(folder / "raw", names, layout.get)
    split_files = find_files(
        folder / "split" / layout.split, (f"{part}.csv.gz" for part in SPLITS), layout.get
    )
    content = (_read_npz if layout.binary else _read_csv)(folder / "raw", features)
    return GraphSource(
        name=layout.name,
        edges=content.edges,
        num_nodes=content.num_nodes,
        num_edges=content.num_edges,
        features=content.features,
        labels=content.labels,
        split={part: _column(path) for part, path in zip(SPLITS, split_files, strict=True)},
        num_classes=layout.num_classes,
        keep_direction=layout.directed,
        provenance=provenance(layout.name, folder, raw_files + split_files, features=features),
    )


def _read_csv(raw: Path, features: bool) -> Content:
    path = raw / "edge.csv.gz"
    num_edges = _single(_column(raw / "num-edge-list.csv.gz"), "num-edge-list.csv.gz")

    def edges() -> Iterator[EdgeChunk]:
        count = 0
        for rows in number_rows(path, np.int64, num_columns=2):
            count += len(rows)
            yield EdgeChunk(rows[:, 0], rows[:, 1])
        _check_count(path, count, num_edges)

    return Content(
        edges=edges,
        num_nodes=_single(_column(raw / "num-node-list.csv.gz"), "num-node-list.csv.gz"),
        num_edges=num_edges,
        features=_csv_features(raw / CSV_FEATURES) if features else None,
        labels=_column(raw / "node-label.csv.gz"),
    )


def _read_npz(raw: Path, features: bool) -> Content:
    path = raw / "data.npz"
    edge_index = NpzMember(path, "edge_index")
    if len(edge_index.shape) != 2 or edge_index.shape[0] != 2:
        raise InputError(f"{path}, member edge_index, must have shape (2, edges), got {edge_index.shape}.")
    num_edges = _single(NpzMember(path, "num_edges_list").read(), f"{path}, member num_edges_list,")
    _check_count(path, edge_index.shape[1], num_edges)
    return Content(
        edges=lambda: (EdgeChunk(source, target) for source, target in edge_index.pairs()),
        num_nodes=_single(NpzMember(path, "num_nodes_list").read(), f"{path}, member num_nodes_list,"),
        num_edges=num_edges,
        features=_npz_features(NpzMember(path, "node_feat")) if features else None,
        labels=NpzMember(raw / "node-label.npz", "node_label").read(),
    )


def _csv_features(path: Path) -> FeatureSource:
    with open_text(path) as file:
        dim = file.readline().count(b",") + 1
    return FeatureSource(
        dim=dim, dtype=np.float32, blocks=lambda topology: number_rows(path, np.float32, num_columns=dim)
    )


def _npz_features(member: NpzMember) -> FeatureSource:
    if len(member.shape) != 2:
        raise InputError(f"{member.path}, member {member.name}, must be a matrix, got shape {member.shape}.")
    return FeatureSource(
        dim=member.shape[1], dtype=stored_dtype(member.dtype), blocks=lambda topology: member.rows()
    )


def _column(path: Path) -> np.ndarray:
    """The whole numbers of a table with one column."""
    blocks = (rows[:, 0] for rows in number_rows(path, np.int64, num_columns=1))
    return np.concatenate([np.empty(0, np.int64), *blocks])


def _single(values: np.ndarray, what: str) -> int:
    if values.size != 1:
        raise InputError(f"{what} has {values.size} numbers; one graph has one. Download the dataset again.")
    return int(values.item())


def _check_count(path: Path, count: int, expected: int) -> None:
    if count != expected:
        raise InputError(
            f"{path} has {count} edges, but the files beside it say {expected}. Download the dataset again."
        )


LAYOUTS = (
    Layout(
        name="ogbn-arxiv",
        about="arXiv papers on computer science: 169 k nodes, 1.2 M citations, 40 subjects",
        folders=("ogbn_arxiv", "arxiv"),
        split="time",
        num_classes=40,
        directed=True,
    ),
    Layout(
        name="ogbn-products",
        about="Amazon products bought together: 2.4 M nodes, 62 M edges, 47 categories",
        folders=("ogbn_products", "products"),
        split="sales_ranking",
        num_classes=47,
        directed=False,
    ),
    Layout(
        name="ogbn-papers100M",
        about="papers of the Microsoft Academic Graph: 111 M nodes, 1.6 B citations, 172 arXiv subjects",
        folders=("ogbn_papers100M", "papers100M-bin"),
        split="time",
        num_classes=172,
        directed=True,
        binary=True,
    ),
)

DATASETS = tuple(
    Dataset(
        name=layout.name,
        about=layout.about,
        read=partial(read, layout),
        raw=layout.folders[0],
        get=layout.get,
    )
    for layout in LAYOUTS
)
