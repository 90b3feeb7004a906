"""Graphs for hypothesis: no edges, one node, loops, repeats, both directions, isolated nodes, hubs."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

MAX_NODES = 40
MAX_EDGES = 80
MAX_RELATIONS = 16


class Edges(NamedTuple):
    num_nodes: int
    source: np.ndarray
    target: np.ndarray
    relation: np.ndarray

    @property
    def index(self) -> np.ndarray:
        return np.stack([self.source, self.target])


@st.composite
def edge_lists(draw: st.DrawFn, max_nodes: int = MAX_NODES) -> Edges:
    """Edges among the first nodes only, so that repeats, both directions and isolated nodes are common."""
    num_nodes = draw(st.integers(1, max_nodes))
    ids = st.integers(0, draw(st.integers(0, num_nodes - 1)))
    num_edges = draw(st.integers(0, MAX_EDGES))
    source, target = (draw(hnp.arrays(np.int64, num_edges, elements=ids)) for _ in range(2))
    if draw(st.booleans()):
        # A hub: every second edge leaves the same node.
        source[::2] = draw(ids)
    relations = st.integers(0, draw(st.integers(0, MAX_RELATIONS - 1)))
    return Edges(num_nodes, source, target, draw(hnp.arrays(np.int64, num_edges, elements=relations)))


@st.composite
def parts(draw: st.DrawFn, num_nodes: int) -> dict[str, Any]:
    """Features, labels, a split and names for `Graph.from_edges`, each there or not."""
    result: dict[str, Any] = {}
    if draw(st.booleans()):
        dtype = np.dtype(draw(st.sampled_from(["f2", "f4", "f8", "i8", "u1", ">f4"])))
        shape = (num_nodes, draw(st.integers(0, 5)))
        values = hnp.from_dtype(dtype, allow_nan=False, allow_infinity=False, min_value=0, max_value=200)
        result["features"] = draw(hnp.arrays(dtype, shape, elements=values))
    if draw(st.booleans()):
        dtype = np.dtype(draw(st.sampled_from(["i1", "i4", "i8", "f2", "f8"])))
        result["labels"] = draw(hnp.arrays(dtype, num_nodes, elements=st.integers(-1, 6)))
    if draw(st.booleans()):
        # Train nodes only where there are labels to learn from.
        low = 0 if "labels" in result and (result["labels"] >= 0).all() else 1
        result["split"] = draw(hnp.arrays(np.int8, num_nodes, elements=st.sampled_from([-1, low, 2])))
    if draw(st.booleans()):
        text = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=5)
        result["node_names"] = draw(st.lists(text, min_size=num_nodes, max_size=num_nodes))
    return result
