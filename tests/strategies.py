"""Graphs for hypothesis: no edges, one node, loops, repeats, both directions, isolated nodes, hubs."""

from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import oracles
from musegnn import Graph

MAX_NODES = 40
MAX_EDGES = 80
MAX_RELATIONS = 16
KEYS = st.integers(0, 2**64 - 1)
FANOUTS = st.none() | st.integers(1, 8)


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
def full_edge_lists(draw: st.DrawFn, max_nodes: int = MAX_NODES) -> Edges:
    """Edges without a pattern, several for each node, which drawing one by one would hardly give."""
    num_nodes = draw(st.integers(2, max_nodes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    source, target = rng.integers(0, num_nodes, (2, num_nodes * draw(st.integers(1, 4))))
    if draw(st.booleans()):
        source[::3] = draw(st.integers(0, num_nodes - 1))
    return Edges(num_nodes, source, target, np.zeros_like(source))


class Csr(NamedTuple):
    indptr: np.ndarray
    indices: np.ndarray

    @property
    def num_nodes(self) -> int:
        return len(self.indptr) - 1


@st.composite
def csrs(draw: st.DrawFn, max_nodes: int = MAX_NODES) -> Csr:
    """An adjacency as the graph store has it, with int32 or int64 neighbors."""
    edges = draw(edge_lists(max_nodes) | full_edge_lists(max_nodes))
    matrix = oracles.symmetric_csr(edges.source, edges.target, edges.num_nodes)
    dtype = draw(st.sampled_from([np.int32, np.int64]))
    return Csr(matrix.indptr.astype(np.int64), matrix.indices.astype(dtype))


@st.composite
def node_lists(draw: st.DrawFn, num_nodes: int, min_size: int = 0) -> np.ndarray:
    """Distinct nodes in any order, int32 or int64; none and all of them included."""
    order = draw(st.permutations(range(num_nodes)))
    size = draw(st.integers(min_size, num_nodes))
    return np.array(order[:size], dtype=draw(st.sampled_from([np.int32, np.int64])))


class GraphParts(NamedTuple):
    edges: Edges
    split: np.ndarray

    def graph(self) -> Graph:
        """Not made while drawing: the type checker uses Python's random numbers, which hypothesis forbids."""
        n = self.edges.num_nodes
        return Graph.from_edges(
            self.edges.index, num_nodes=n, labels=np.zeros(n, dtype=np.int64), split=self.split
        )


@st.composite
def graph_parts(draw: st.DrawFn, max_nodes: int = MAX_NODES) -> GraphParts:
    """A graph whose nodes belong to all splits and to none."""
    edges = draw(edge_lists(max_nodes) | full_edge_lists(max_nodes))
    elements = st.sampled_from([0, 0, 1, 2, -1])
    return GraphParts(edges, draw(hnp.arrays(np.int8, edges.num_nodes, elements=elements)))


@st.composite
def seed_lists(draw: st.DrawFn, num_nodes: int) -> np.ndarray:
    """Distinct nodes, ascending; at least one."""
    return np.array(sorted(draw(st.sets(st.integers(0, num_nodes - 1), min_size=1))))


@st.composite
def parts(draw: st.DrawFn, num_nodes: int) -> dict[str, Any]:
    """Features, labels, a split, names and types for `Graph.from_edges`, each there or not."""
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
    if draw(st.booleans()):
        dtype = np.dtype(draw(st.sampled_from(["u1", "i2", "i8", ">u4"])))
        largest = draw(st.sampled_from([0, 2, 254]))
        result["node_type"] = draw(hnp.arrays(dtype, num_nodes, elements=st.integers(0, largest)))
        if draw(st.booleans()):
            result["node_type_names"] = [f"kind {t}" for t in range(largest + 1)]
    return result
