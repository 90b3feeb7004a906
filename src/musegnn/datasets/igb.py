"""The homogeneous graphs of the Illinois Graph Benchmark: papers, and the citations among them.

The split is by index: the first 60 %, the next 20 % and the last 20 % of the labeled papers. For `full`
this is the official one. For the smaller sets the official loader shuffles with a permutation that has no
seed, so there is no one official split, and published figures come from as many splits as there were runs.

In `large` and `full`, `node_feat.npy` and the labels are plain float32 without the header that their names
promise; either form is recognized for every size. In downloads of `full` older than 7 November 2023 the
features of the last five million papers are missing.
"""

from functools import partial
from pathlib import Path

import numpy as np

from musegnn.datasets.base import Dataset, find_files, find_folder, place_labels, provenance
from musegnn.datasets.raw.npy import open_npy
from musegnn.errors import InputError
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource

DIM = 1024
EDGES = "processed/paper__cites__paper/edge_index.npy"
FEATURES = "processed/paper/node_feat.npy"
LABELS = {19: "processed/paper/node_label_19.npy", 2983: "processed/paper/node_label_2K.npy"}
"""File of the labels by number of classes."""
LABELED_IN_FULL = {19: 227_130_858, 2983: 157_675_969}
"""Of `full`, only so many of the first papers are labeled, by number of classes; what follows is padding."""
NPY_MAGIC = b"\x93NUMPY"

SIZES = {
    "tiny": "100 k nodes, 0.5 M edges",
    "small": "1 M nodes, 12 M edges",
    "medium": "10 M nodes, 120 M edges",
    "large": "100 M nodes, 1.2 B edges",
    "full": "269 M nodes, 4.0 B edges",
}
FOLDERS = {"large": ("large", "igb_large"), "full": ("full", "IGBH")}
"""Names of the folder where it is not only the size: what the official download scripts call it."""


def read(size: str, root: Path, features: bool = True, num_classes: int = 19) -> GraphSource:
    """One of the five; `root` is the folder of that size or the folder around it."""
    if num_classes not in LABELS:
        raise InputError(f"num_classes is {num_classes}; IGB has labels in 19 or in 2983 classes. Pass one.")
    get = _get(size)
    folder = find_folder(root, FOLDERS.get(size, (size,)), EDGES, get)
    if folder.name in SIZES and folder.name != size:
        raise InputError(f"{folder} is IGB-{folder.name}, not IGB-{size}. Pass the folder around it.")
    files = find_files(folder, (EDGES, LABELS[num_classes], *((FEATURES,) if features else ())), get)

    edge_index = open_npy(folder / EDGES)
    if edge_index.ndim != 2 or edge_index.shape[1] != 2:
        raise InputError(f"{folder / EDGES} must have shape (edges, 2), got {edge_index.shape}. {get}")
    labels = _map(folder / LABELS[num_classes])
    num_nodes = len(labels)
    num_labeled = min(num_nodes, LABELED_IN_FULL[num_classes]) if size == "full" else num_nodes
    return GraphSource(
        name=f"IGB-{size}",
        edges=lambda: [EdgeChunk(edge_index[:, 0], edge_index[:, 1])],
        num_nodes=num_nodes,
        num_edges=len(edge_index),
        features=_features(folder / FEATURES, num_nodes) if features else None,
        labels=place_labels(labels[:num_labeled], num_classes, num_nodes),
        split=_split(num_nodes, num_labeled),
        num_classes=num_classes,
        keep_direction=True,
        provenance=provenance(f"IGB-{size}", folder, files, features=features, num_classes=num_classes),
    )


def _map(path: Path, row_shape: tuple[int, ...] = ()) -> np.ndarray:
    """Map an `.npy`, or a headless float32 file whose size says how many rows it has."""
    with path.open("rb") as file:
        if file.read(len(NPY_MAGIC)) == NPY_MAGIC:
            return open_npy(path)
    num_bytes = path.stat().st_size
    row = np.dtype((np.float32, row_shape))
    if num_bytes == 0 or num_bytes % row.itemsize:
        raise InputError(
            f"{path} has {num_bytes:,} bytes, which are no whole number of rows of {row.itemsize} bytes: "
            "it is cut off. Download it again."
        )
    return np.memmap(path, dtype=np.float32, mode="r", shape=(num_bytes // row.itemsize, *row_shape))


def _features(path: Path, num_nodes: int) -> FeatureSource:
    rows = _map(path, (DIM,))
    if rows.ndim != 2 or len(rows) != num_nodes:
        raise InputError(
            f"{path} has shape {rows.shape}, but there are {num_nodes} labels. Download both files again."
        )
    return FeatureSource.of(rows)


def _split(num_nodes: int, num_labeled: int) -> np.ndarray:
    num_train, num_valid = int(num_labeled * 0.6), int(num_labeled * 0.2)
    split = np.full(num_nodes, -1, dtype=np.int8)
    split[:num_train] = 0
    split[num_train : num_train + num_valid] = 1
    split[num_train + num_valid : num_labeled] = 2
    return split


def _get(size: str) -> str:
    if size in FOLDERS:
        script = "download_igb_large.sh" if size == "large" else "download_igb260m.sh"
        return f"Download it with igb/{script} of github.com/IllinoisGraphBenchmark/IGB-Datasets."
    archive = f"igb-homogeneous/igb_homogeneous_{size}.tar.gz"
    return f"Download https://igb-public-awsopen.s3.amazonaws.com/{archive} and unpack it."


DATASETS = tuple(
    Dataset(
        name=f"IGB-{size}",
        about=f"Illinois Graph Benchmark, papers: {about}, 19 or 2983 subjects",
        read=partial(read, size),
        raw=size,
        get=_get(size),
    )
    for size, about in SIZES.items()
)
