"""What a person wants to know about a graph before training on it."""

from dataclasses import dataclass

import numpy as np

from musegnn.graph.checks import SPLITS
from musegnn.graph.graph import Graph
from musegnn.graph.relation import has_relation
from musegnn.progress import progress

_BLOCK_ROWS = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistics:
    """Figures of one graph; what is not known is None or empty."""

    degree_mean: float
    degree_median: int
    degree_max: int
    num_isolated: int
    """Nodes without a neighbor."""
    degree_histogram: tuple[int, ...]
    """Number of nodes of degree 0, 1, 2-3, 4-7, 8-15, ..."""
    homophily: float | None
    """Share of the edges between labeled nodes whose ends have the same label."""
    relation_homophily: dict[str, float | None]
    """The same of the edges of each relation."""
    class_counts: tuple[int, ...]
    """Labeled nodes of each class."""
    split_counts: dict[str, int]
    """Nodes of each split, and those that are labeled as `<split> labeled`."""
    relation_counts: dict[str, int]
    """Edges of each relation, in their original direction."""
    node_type_counts: dict[str, int]
    """Nodes of each type."""


def statistics(graph: Graph) -> Statistics:
    """One pass over the adjacency in blocks of rows."""
    histogram = np.zeros(65, dtype=np.int64)
    by_degree = np.zeros(1, dtype=np.int64)
    same = labeled = 0
    names = _relation_names(graph)
    relations = np.zeros((3, len(names)), dtype=np.int64)
    with progress("Reading the graph", graph.num_nodes) as advance:
        for first in range(0, graph.num_nodes, _BLOCK_ROWS):
            indptr = graph.indptr[first : first + _BLOCK_ROWS + 1]
            degrees = np.diff(indptr)
            histogram += np.bincount(_log2_bin(degrees), minlength=65)
            by_degree = _add(by_degree, np.bincount(degrees))
            entries = slice(indptr[0], indptr[-1])
            is_labeled, is_alike = _agreement(graph, first, degrees, entries)
            labeled, same = labeled + int(is_labeled.sum()), same + int(is_alike.sum())
            for r in range(len(names)):
                assert graph.relation is not None
                is_in = has_relation(graph.relation[entries], r)
                relations[:, r] += [is_in.sum(), (is_in & is_labeled).sum(), (is_in & is_alike).sum()]
            advance(len(degrees))
    return Statistics(
        degree_mean=graph.num_edges / graph.num_nodes,
        degree_median=int(np.searchsorted(np.cumsum(by_degree), (graph.num_nodes + 1) // 2)),
        degree_max=len(by_degree) - 1,
        num_isolated=int(histogram[0]),
        degree_histogram=tuple(np.trim_zeros(histogram, "b").tolist()),
        homophily=same / labeled if labeled else None,
        relation_homophily={
            name: int(alike) / int(of) if of else None
            for name, (_, of, alike) in zip(names, relations.T, strict=True)
        },
        class_counts=_class_counts(graph),
        split_counts=_split_counts(graph),
        relation_counts=dict(zip(names, relations[0].tolist(), strict=True)),
        node_type_counts=_node_type_counts(graph),
    )


def _agreement(
    graph: Graph, first: int, degrees: np.ndarray, entries: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Of the entries of these rows: whether both ends are labeled, and whether alike."""
    if graph.labels is None:
        nothing = np.zeros(entries.stop - entries.start, dtype=bool)
        return nothing, nothing
    ends = np.repeat(graph.labels[first : first + len(degrees)], degrees)
    others = graph.labels[graph.indices[entries]]
    is_labeled = (ends >= 0) & (others >= 0)
    return is_labeled, is_labeled & (ends == others)


def _log2_bin(degrees: np.ndarray) -> np.ndarray:
    """0 -> 0, 1 -> 1, 2-3 -> 2, 4-7 -> 3, ...: the number of bits."""
    return np.frexp(degrees.astype(np.float64))[1]


def _add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    longer = longer.copy()
    longer[: len(shorter)] += shorter
    return longer


def _class_counts(graph: Graph) -> tuple[int, ...]:
    counts = np.zeros(graph.num_classes, dtype=np.int64)
    if graph.labels is not None:
        for first in range(0, graph.num_nodes, _BLOCK_ROWS):
            block = graph.labels[first : first + _BLOCK_ROWS]
            counts += np.bincount(block[block >= 0], minlength=graph.num_classes)
    return tuple(counts.tolist())


def _split_counts(graph: Graph) -> dict[str, int]:
    if graph.split is None:
        return {}
    counts = {}
    for number, part in enumerate(SPLITS):
        inside = np.flatnonzero(graph.split == number)
        counts[part] = len(inside)
        counts[f"{part} labeled"] = 0 if graph.labels is None else int((graph.labels[inside] >= 0).sum())
    return counts


def _node_type_counts(graph: Graph) -> dict[str, int]:
    names = graph.node_type_names or ()
    counts = np.zeros(len(names), dtype=np.int64)
    if graph.node_type is not None:
        for first in range(0, graph.num_nodes, _BLOCK_ROWS):
            block = graph.node_type[first : first + _BLOCK_ROWS]
            counts += np.bincount(block, minlength=len(names))[: len(names)]
    return dict(zip(names, counts.tolist(), strict=True))


def _relation_names(graph: Graph) -> tuple[str, ...]:
    if graph.relation is None:
        return ()
    return graph.relation_names or ("directed",)
