"""The embedded graph: packages of Debian, what they depend on, and the section each belongs to.

63,436 packages; an edge for each dependency, at run time or for building; 46 archive sections as classes.
Features are sentence embeddings of the package descriptions (MiniLM, reduced to 128 columns by PCA), stored
as one byte per value and a scale per column. Packages built from one source are never split between train and
test. Package names, dependencies and sections are facts of the Debian archive's package index.
"""

from importlib.resources import files
from pathlib import Path

import numpy as np

from musegnn.datasets.base import Dataset
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource

RELATIONS = ("runtime", "build")
"""Bits 1 and 2 of the file's `relation`."""


def read(root: Path | None = None, features: bool = True) -> GraphSource:
    """The graph shipped with the package; nothing is downloaded."""
    path = files("musegnn.datasets") / "debian.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as raw:
        arrays = {name: raw[name] for name in raw.files if features or not name.startswith("feature")}
    num_nodes = len(arrays["labels"])
    source = np.repeat(np.arange(num_nodes), np.diff(arrays["indptr"]))
    target, bits = arrays["indices"].astype(np.int64), arrays["relation"]

    def edges() -> list[EdgeChunk]:
        # A dependency of both kinds is one edge in each relation.
        has = [(bits >> r) & 1 == 1 for r in range(len(RELATIONS))]
        return [
            EdgeChunk(source[mask], target[mask], np.full(int(mask.sum()), r)) for r, mask in enumerate(has)
        ]

    return GraphSource(
        name="debian",
        edges=edges,
        num_nodes=num_nodes,
        num_edges=len(target),
        features=FeatureSource.of(arrays["features"] * arrays["feature_scale"]) if features else None,
        labels=arrays["labels"],
        split=arrays["split"],
        class_names=arrays["class_names"].item().decode().split("\n"),
        node_names=arrays["node_names"].item().decode().split("\n"),
        relation_names=RELATIONS,
        provenance={"source": "debian", "options": {"features": features}},
    )


DATASETS = (
    Dataset(name="debian", about="Debian packages, embedded: 63 k nodes, 1.2 M dependencies", read=read),
)
