"""MAG240M of the OGB Large-Scale Challenge as one graph: authors, then institutions, then papers.

Which of the three a node is, is its type. An author's features are the mean of its papers' rows, an
institution's the mean of its authors' rows as stored; who has no such neighbor gets zeros. Only papers have
labels and a split.

`meta.pt` and `split_dict.pt` are pickles and are never read. The numbers of authors and institutions are the
largest ids + 1. The split is by year over the labeled papers: until 2018, 2019, 2020 (test labels are
hidden, so the last part is empty). The official split, with its unlabeled test papers, is taken from a file
`split_dict.npz` beside `split_dict.pt`. To make it, run there (it loads the pickle, so trust that first):

    python -c "import numpy, torch; numpy.savez('split_dict', **torch.load('split_dict.pt', weights_only=0))"
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from musegnn.datasets.base import Dataset, find_files, find_folder, place_labels, provenance
from musegnn.datasets.neighbor_means import neighbor_means
from musegnn.datasets.raw.npy import NpzMember, npz_names, open_npy
from musegnn.errors import InputError
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource, Topology
from musegnn.graph.source import stored_dtype

FOLDER = "mag240m_kddcup2021"
GET = f"Download https://dgl-data.s3-accelerate.amazonaws.com/dataset/OGB-LSC/{FOLDER}.zip and unpack it."
RELATIONS = {
    "writes": ("author", "paper"),
    "affiliated_with": ("author", "institution"),
    "cites": ("paper", "paper"),
}
NUM_CLASSES = 153
CHUNK_EDGES = 1 << 22


def read(root: Path, features: bool = True) -> GraphSource:
    """`root` is the folder `mag240m_kddcup2021` or the folder around it."""
    label_file, year_file, feature_file = (
        f"processed/paper/node_{what}.npy" for what in ("label", "year", "feat")
    )
    folder = find_folder(root, (FOLDER,), label_file, GET)
    names = [label_file, year_file, *map(_edge_file, RELATIONS), *([feature_file] if features else [])]
    files = find_files(folder, names, GET)

    paper_labels = open_npy(folder / label_file)
    edges = {relation: _edge_index(folder / _edge_file(relation)) for relation in RELATIONS}
    nodes = _number_nodes(edges, len(paper_labels))
    first_paper, num_nodes = nodes["paper"].start, nodes["paper"].stop
    labels = place_labels(paper_labels, NUM_CLASSES, num_nodes, first=first_paper)
    split: dict[str, ArrayLike] | np.ndarray
    split_file = folder / "split_dict.npz"
    if split_file.is_file():
        split = _official_split(split_file, nodes)
    else:
        split = np.full(num_nodes, -1, dtype=np.int8)
        split[first_paper:] = _split_by_year(folder / year_file, labels[first_paper:])
    return GraphSource(
        name="MAG240M",
        edges=lambda: _edges(edges, nodes),
        num_nodes=num_nodes,
        num_edges=sum(ends.shape[1] for ends in edges.values()),
        features=_features(folder / feature_file, nodes) if features else None,
        labels=labels,
        split=split,
        num_classes=NUM_CLASSES,
        node_type=lambda: np.repeat(np.arange(len(nodes), dtype=np.uint8), [len(n) for n in nodes.values()]),
        node_type_names=tuple(nodes),
        relation_names=tuple(RELATIONS),
        provenance=provenance("MAG240M", folder, [*files, split_file], features=features),
    )


def _edge_file(relation: str) -> str:
    source, target = RELATIONS[relation]
    return f"processed/{source}___{relation}___{target}/edge_index.npy"


def _edge_index(path: Path) -> np.ndarray:
    ends = open_npy(path)
    if ends.ndim != 2 or ends.shape[0] != 2 or ends.dtype.kind not in "iu":
        raise InputError(
            f"{path} must hold integers of shape (2, edges), got {ends.dtype} of shape {ends.shape}. {GET}"
        )
    return ends


def _number_nodes(edges: dict[str, np.ndarray], num_papers: int) -> dict[str, range]:
    """The node numbers of each kind."""
    num_authors = 1 + max(int(edges[name][0].max(initial=-1)) for name in ("writes", "affiliated_with"))
    num_institutions = 1 + int(edges["affiliated_with"][1].max(initial=-1))
    num_edges = sum(ends.shape[1] for ends in edges.values())
    first_paper = num_authors + num_institutions
    if first_paper > max(1_000_000, 10 * num_edges):
        raise InputError(
            f"The edge files name {first_paper} authors and institutions, but have {num_edges} edges: one of "
            f"them is damaged. {GET}"
        )
    return {
        "author": range(num_authors),
        "institution": range(num_authors, first_paper),
        "paper": range(first_paper, first_paper + num_papers),
    }


def _edges(edges: dict[str, np.ndarray], nodes: dict[str, range]) -> Iterator[EdgeChunk]:
    for number, (relation, kinds) in enumerate(RELATIONS.items()):
        what = _edge_file(relation)
        for start in range(0, edges[relation].shape[1], CHUNK_EDGES):
            chunk = edges[relation][:, start : start + CHUNK_EDGES]
            source, target = (_renumber(chunk[end], nodes, kinds[end], what) for end in (0, 1))
            yield EdgeChunk(source, target, np.full(len(source), number, dtype=np.uint8))


def _renumber(ids: np.ndarray, nodes: dict[str, range], kind: str, what: str) -> np.ndarray:
    """Ids among their kind -> node numbers; out of range, they would become nodes of another kind."""
    count = len(nodes[kind])
    if len(ids) and not 0 <= ids.min() <= ids.max() < count:
        bad = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(f"{what} has the {kind} {bad}; ids must lie in [0, {count - 1}]. {GET}")
    return ids.astype(np.int64) + nodes[kind].start


def _split_by_year(path: Path, labels: np.ndarray) -> np.ndarray:
    year = open_npy(path)
    if year.shape != labels.shape:
        raise InputError(f"{path} has shape {year.shape}, but there are {len(labels)} papers. {GET}")
    split = np.full(len(labels), -1, dtype=np.int8)
    for part, is_in in enumerate((year <= 2018, year == 2019, year == 2020)):
        split[is_in & (labels >= 0)] = part
    return split


def _official_split(path: Path, nodes: dict[str, range]) -> dict[str, ArrayLike]:
    test = "test-dev" if "test-dev" in npz_names(path) else "test"
    members = {"train": "train", "valid": "valid", "test": test}
    return {
        part: _renumber(NpzMember(path, member).read(), nodes, "paper", str(path))
        for part, member in members.items()
    }


def _features(path: Path, nodes: dict[str, range]) -> FeatureSource:
    papers = open_npy(path)
    if papers.ndim != 2 or len(papers) != len(nodes["paper"]):
        raise InputError(
            f"{path} has shape {papers.shape}, but there are {len(nodes['paper'])} papers. {GET}"
        )

    def blocks(topology: Topology) -> Iterator[np.ndarray]:
        yield from neighbor_means(topology, nodes["author"], nodes["paper"], papers)
        yield from neighbor_means(topology, nodes["institution"], nodes["author"], topology.written())
        yield papers

    return FeatureSource(dim=papers.shape[1], dtype=stored_dtype(papers.dtype), blocks=blocks)


DATASETS = (
    Dataset(
        name="MAG240M",
        about="Microsoft Academic Graph: 244 M authors, institutions, papers, 1.7 B edges, 153 subjects",
        read=read,
        raw=FOLDER,
        get=GET,
    ),
)
