"""Small folders in the exact layout of the official downloads: names, dtypes, shapes, compression, sentinels.

Each writer returns the arrays it wrote. Graphs have loops, repeated edges and a node without any edge.
"""

import gzip
import pickle
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix

from musegnn import Graph
from musegnn.graph import GraphSource

Arrays = dict[str, np.ndarray]


def built_both_ways(source: GraphSource, out: Path) -> Graph:
    """The graph built in memory, once the one built out of core with little memory is equal to it."""
    graph = Graph.from_source(source)
    stored = Graph.from_source(source, out, memory=1 << 14, workers=2)
    assert stored.digest == graph.digest
    stored.verify()
    return graph


def random_edges(rng: np.random.Generator, num_edges: int, num_sources: int, num_targets: int) -> np.ndarray:
    """(2, num_edges) int64; the first edge is repeated, the third is a loop, the last ids stay unused."""
    ends = np.stack(
        [rng.integers(num_sources - 1, size=num_edges), rng.integers(num_targets - 1, size=num_edges)]
    )
    ends[:, 1] = ends[:, 0]
    ends[:, 2] = 0
    return ends


def write_csv(path: Path, rows: np.ndarray, fmt: str = "%d") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        np.savetxt(file, np.atleast_1d(rows), fmt=fmt, delimiter=",")


def save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def write_ogb_csv(folder: Path, *, dim: int, num_classes: int, split: str, num_nodes: int = 40) -> Arrays:
    """arxiv (128 columns, 40 classes, "time") or products (100, 47, "sales_ranking")."""
    rng = np.random.default_rng(0)
    order = rng.permutation(num_nodes)
    arrays = {
        "edge_index": random_edges(rng, 150, num_nodes, num_nodes),
        "features": rng.normal(size=(num_nodes, dim)).round(6),
        "labels": rng.integers(num_classes, size=num_nodes),
        "train": order[:20],
        "valid": order[20:28],
        "test": order[28:],
    }
    raw = folder / "raw"
    write_csv(raw / "edge.csv.gz", arrays["edge_index"].T)
    write_csv(raw / "num-node-list.csv.gz", np.array([num_nodes]))
    write_csv(raw / "num-edge-list.csv.gz", np.array([150]))
    write_csv(raw / "node-feat.csv.gz", arrays["features"], fmt="%.6f")
    write_csv(raw / "node-label.csv.gz", arrays["labels"])
    if split == "time":
        write_csv(raw / "node_year.csv.gz", rng.integers(1971, 2021, size=num_nodes))
    _finish_ogb(folder, split, arrays)
    return arrays


def write_papers100m(
    folder: Path,
    *,
    compressed: bool = True,
    fortran: bool = False,
    num_nodes: int = 40,
    features: bool = True,
) -> Arrays:
    """papers100M-bin: float32 labels of shape (nodes, 1), NaN for all but the arXiv papers."""
    rng = np.random.default_rng(1)
    labels = np.full((num_nodes, 1), np.nan, dtype=np.float32)
    labeled = rng.permutation(num_nodes)[:20]
    labels[labeled, 0] = rng.integers(172, size=20)
    arrays = {
        "edge_index": random_edges(rng, 150, num_nodes, num_nodes),
        "features": rng.normal(size=(num_nodes, 128)).astype(np.float32),
        "labels": labels,
        "train": labeled[:10],
        "valid": labeled[10:14],
        "test": labeled[14:],
    }
    (folder / "raw").mkdir(parents=True)
    write = np.savez_compressed if compressed else np.savez
    order = "F" if fortran else "C"
    members = {
        "edge_index": np.asarray(arrays["edge_index"], order=order),
        "num_nodes_list": np.array([num_nodes]),
        "num_edges_list": np.array([150]),
        "node_year": rng.integers(1900, 2020, size=(num_nodes, 1)),
        **({"node_feat": arrays["features"]} if features else {}),
    }
    write(folder / "raw" / "data.npz", **members)
    write(folder / "raw" / "node-label.npz", node_label=labels)
    _finish_ogb(folder, "time", arrays)
    return arrays


def _finish_ogb(folder: Path, split: str, arrays: Arrays) -> None:
    for part in ("train", "valid", "test"):
        write_csv(folder / "split" / split / f"{part}.csv.gz", arrays[part])
    (folder / "processed").mkdir()
    (folder / "RELEASE_v1.txt").touch()


MAG_FILES = {
    "writes": "processed/author___writes___paper/edge_index.npy",
    "affiliated_with": "processed/author___affiliated_with___institution/edge_index.npy",
    "cites": "processed/paper___cites___paper/edge_index.npy",
}


def write_mag240m(root: Path, *, fortran: bool = False) -> Arrays:
    """23 authors, 5 institutions, 30 papers; author 22 has no paper, institution 3 no author.

    Features are whole numbers, so that their sums are exact in float32; above 2048 their means are rounded
    when they become float16.
    """
    rng = np.random.default_rng(2)
    labels = rng.integers(153, size=30).astype(np.float32)
    year = rng.integers(2016, 2021, size=30)
    labels[(year == 2020) | (rng.random(30) < 0.3)] = np.nan
    affiliated = np.stack([rng.integers(23, size=40), rng.choice([0, 1, 2, 4], size=40)])
    affiliated[:, :2] = [[22, 0], [4, 4]]
    arrays = {
        "features": rng.integers(-200, 2400, size=(30, 768)).astype(np.float16),
        "labels": labels,
        "year": year.astype(np.int16),
        "writes": random_edges(rng, 60, 23, 30),
        "affiliated_with": affiliated,
        "cites": random_edges(rng, 90, 30, 30),
    }
    folder = root / "mag240m_kddcup2021"
    for what in ("features", "labels", "year"):
        file = {"features": "node_feat", "labels": "node_label", "year": "node_year"}[what]
        save(folder / "processed" / "paper" / f"{file}.npy", arrays[what])
    for relation, file in MAG_FILES.items():
        save(folder / file, np.asarray(arrays[relation], order="F" if fortran else "C"))
    (folder / "RELEASE_v1.txt").touch()
    for pickled in ("meta.pt", "split_dict.pt"):
        (folder / pickled).write_bytes(b"not even a pickle")
    return arrays


def write_igb(root: Path, size: str, num_nodes: int = 47) -> Arrays:
    """One size; features and labels of large and full have no .npy header, as their official files."""
    rng = np.random.default_rng(3)
    arrays = {
        "edge_index": random_edges(rng, 150, num_nodes, num_nodes).T,
        "features": rng.normal(size=(num_nodes, 1024)).astype(np.float32),
        "labels_19": rng.integers(19, size=num_nodes).astype(np.float32),
        "labels_2983": rng.integers(2983, size=num_nodes).astype(np.float32),
    }
    folder = root / size / "processed"
    save(folder / "paper__cites__paper" / "edge_index.npy", np.ascontiguousarray(arrays["edge_index"]))
    files = {"features": "node_feat", "labels_19": "node_label_19", "labels_2983": "node_label_2K"}
    for what, file in files.items():
        path = folder / "paper" / f"{file}.npy"
        path.parent.mkdir(exist_ok=True)
        if size in ("large", "full"):
            arrays[what].tofile(path)
        else:
            save(path, arrays[what])
    return arrays


def write_planetoid_npz(root: Path, name: str, *, num_nodes: int = 50) -> Arrays:
    """The dtypes of the published files: int32 structure, float32 data, int8 labels (-1: none) and split."""
    rng = np.random.default_rng(4)
    ends = random_edges(rng, 120, num_nodes, num_nodes)
    ends = ends[:, ends[0] != ends[1]]
    adjacency = csr_matrix((np.ones(ends.shape[1]), ends), shape=(num_nodes, num_nodes))
    adjacency = (adjacency + adjacency.T).tocsr()
    x = csr_matrix(
        np.where(rng.random((num_nodes, 33)) < 0.2, rng.random((num_nodes, 33)), 0).astype(np.float32)
    )
    labels = rng.integers(3, size=num_nodes).astype(np.int8)
    labels[-1] = -1
    split = np.repeat(np.array([0, 1, 2, -1], dtype=np.int8), [12, 15, 20, 3])
    arrays = {
        "indptr": adjacency.indptr.astype(np.int32),
        "indices": adjacency.indices.astype(np.int32),
        "x_data": x.data,
        "x_indices": x.indices.astype(np.int32),
        "x_indptr": x.indptr.astype(np.int32),
        "x_shape": np.array(x.shape),
        "labels": labels,
        "split": split,
    }
    root.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(root / f"{name}.npz", **arrays)
    return arrays


def write_planetoid_pickles(raw: Path, name: str) -> None:
    """The original files `ind.<name>.*` of 580 nodes: PyG validates on the 500 behind the train nodes.

    Two ids are missing among the test nodes of citeseer, as in the original.
    """
    rng = np.random.default_rng(5)
    num_classes = {"cora": 7, "citeseer": 6, "pubmed": 3}[name]
    x = csr_matrix((rng.random((580, 12)) < 0.3).astype(np.float32))
    y = np.eye(num_classes, dtype=np.int32)[rng.integers(num_classes, size=580)]
    test = 550 + rng.permutation(30)
    if name == "citeseer":
        test = test[~np.isin(test, [560, 571])]
    graph = {node: rng.integers(580, size=3).tolist() for node in range(580)}
    parts = {
        "x": x[:20],
        "y": y[:20],
        "allx": x[:550],
        "ally": y[:550],
        "tx": x[550 : 550 + len(test)],
        "ty": y[550 : 550 + len(test)],
        "graph": graph,
    }
    raw.mkdir(parents=True, exist_ok=True)
    for part, values in parts.items():
        (raw / f"ind.{name}.{part}").write_bytes(pickle.dumps(values, protocol=2))
    (raw / f"ind.{name}.test.index").write_text("".join(f"{node}\n" for node in test))
