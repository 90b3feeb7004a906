"""Cora, CiteSeer and PubMed with their public split: from one `.npz` each, or from PyG's download.

The `.npz` has the symmetric adjacency `indptr`, `indices`, sparse feature rows `x_data`, `x_indices`,
`x_indptr`, `x_shape`, `labels` and `split`. The original files `ind.<name>.*` are pickles: we never load
them, PyG reads its own files with its own function. It gives the 15 CiteSeer nodes that have no label the
class 0; none of them is in the split.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from musegnn.datasets.base import Dataset, find_files, find_folder, provenance
from musegnn.datasets.raw.npy import NpzMember
from musegnn.errors import InputError
from musegnn.extras import require
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource, checks, interop

BLOCK_ROWS = 1024
PYG_NAMES = {"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed"}
NUM_CLASSES = {"cora": 7, "citeseer": 6, "pubmed": 3}
PYG_PARTS = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")


def read(name: str, root: Path, features: bool = True) -> GraphSource:
    """One of the three; `root` holds `<name>.npz`, or is or holds the folder that PyG downloaded into.

    From PyG's files the features are read in any case, and dropped if not asked for.
    """
    if (root / f"{name}.npz").is_file():
        return _read_npz(name, root, features)
    return _read_pyg(name, root, features)


def _read_npz(name: str, root: Path, features: bool) -> GraphSource:
    path = root / f"{name}.npz"
    indptr, indices, labels, split = (
        NpzMember(path, member).read() for member in ("indptr", "indices", "labels", "split")
    )
    num_nodes = len(indptr) - 1
    ones = np.ones(len(indices), dtype=np.int8)
    rows, columns = _matrix(path, ones, indices, indptr, (num_nodes, num_nodes)).nonzero()
    return GraphSource(
        name=name,
        edges=lambda: [EdgeChunk(rows, columns)],
        num_nodes=num_nodes,
        num_edges=len(rows),
        features=_sparse_features(path) if features else None,
        labels=labels,
        split=split,
        num_classes=NUM_CLASSES[name],
        provenance=provenance(name, root, [path], features=features),
    )


def _sparse_features(path: Path) -> FeatureSource:
    data, indices, indptr, shape = (
        NpzMember(path, f"x_{member}").read() for member in ("data", "indices", "indptr", "shape")
    )
    matrix = _matrix(path, data, indices, indptr, tuple(shape.tolist()))

    def blocks(topology: object) -> Iterator[np.ndarray]:
        for start in range(0, matrix.shape[0], BLOCK_ROWS):
            yield matrix[start : start + BLOCK_ROWS].toarray()

    return FeatureSource(dim=matrix.shape[1], dtype=np.float32, blocks=blocks)


def _matrix(
    path: Path, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, ...]
) -> csr_array:
    try:
        matrix = csr_array((data, indices, indptr), shape=shape)
        matrix.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"{path} holds no valid CSR matrix ({error}). Write it again.") from error
    return matrix


def _read_pyg(name: str, root: Path, features: bool) -> GraphSource:
    # The function behind PyG's Planetoid class: the class would write into the folder, and download.
    reader = require("torch_geometric.io", f"Reading ind.{name}.*").read_planetoid_data
    folders = (f"{PYG_NAMES[name]}/raw", f"{name}/raw", "raw")
    folder = find_folder(root, folders, f"ind.{name}.x", _get(name))
    files = find_files(folder, (f"ind.{name}.{part}" for part in PYG_PARTS), _get(name))
    try:
        parts = interop.from_pyg(reader(str(folder), name))
    except Exception as error:
        # What a damaged pickle raises is anything.
        raise InputError(f"PyG cannot read {folder}/ind.{name}.* ({error}). {_get(name)}") from error
    rows, columns = checks.edge_index(parts["edge_index"])
    return GraphSource(
        name=name,
        edges=lambda: [EdgeChunk(rows, columns)],
        num_nodes=parts["num_nodes"],
        num_edges=len(rows),
        features=FeatureSource.of(checks.as_array(parts["features"], "features")) if features else None,
        labels=parts["labels"],
        split=parts["split"],
        num_classes=NUM_CLASSES[name],
        provenance=provenance(name, folder, files, features=features),
    )


def _get(name: str) -> str:
    return (
        f"Put {name}.npz there, or download the original files with "
        f"torch_geometric.datasets.Planetoid(root, {PYG_NAMES[name]!r})."
    )


DATASETS = tuple(
    Dataset(name=name, about=about, read=partial(read, name), raw=f"{name}.npz", get=_get(name))
    for name, about in {
        "cora": "papers on machine learning: 2.7 k nodes, 5 k citations, 7 topics",
        "citeseer": "papers on computer science: 3.3 k nodes, 4.6 k citations, 6 topics",
        "pubmed": "papers on diabetes: 20 k nodes, 44 k citations, 3 types",
    }.items()
)
