"""Statistics against counts made by hand and by SciPy."""

import numpy as np
import pytest

from musegnn import Graph
from musegnn.graph import statistics as module
from musegnn.graph.statistics import statistics


def test_a_graph_drawn_on_paper_has_the_figures_on_paper():
    """A triangle 0-1-2, a tail 2-3, and 4 alone; labels a a b b and none."""
    edges = [[0, 1, 2, 2], [1, 2, 0, 3]]
    graph = Graph.from_edges(
        edges,
        num_nodes=5,
        labels=[0, 0, 1, 1, -1],
        split=[0, 1, 2, -1, 2],
        relation=[0, 0, 1, 1],
        relation_names=["cites", "likes"],
        node_type=[2, 0, 2, 2, 0],
        node_type_names=["b", "c", "a"],
    )
    figures = statistics(graph)
    assert figures.degree_mean == pytest.approx(8 / 5)
    assert (figures.degree_median, figures.degree_max, figures.num_isolated) == (2, 3, 1)
    assert figures.degree_histogram == (1, 1, 3)
    assert figures.homophily == pytest.approx(2 / 4)
    assert figures.class_counts == (2, 2)
    assert figures.split_counts["test"] == 2
    assert figures.split_counts["test labeled"] == 1
    assert figures.relation_counts == {"cites": 2, "likes": 2}
    # 0 -> 1 is alike and 1 -> 2 is not; 2 -> 0 is not and 2 -> 3 is.
    assert figures.relation_homophily == {"cites": 1 / 2, "likes": 1 / 2}
    assert list(figures.node_type_counts.items()) == [("b", 2), ("c", 0), ("a", 3)]


def test_blocks_of_rows_add_up(monkeypatch):
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        rng.integers(0, 300, (2, 2000)),
        labels=rng.integers(-1, 4, 300),
        node_type=rng.integers(0, 5, 300),
        keep_direction=True,
    )
    whole = statistics(graph)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    assert statistics(graph) == whole
    degrees = np.diff(graph.indptr)
    assert whole.degree_max == degrees.max()
    assert whole.degree_median == np.sort(degrees)[(300 + 1) // 2 - 1]
    assert sum(whole.degree_histogram) == 300


def test_homophily_of_each_relation_by_brute_force(monkeypatch):
    rng = np.random.default_rng(1)
    source, target = rng.integers(0, 60, (2, 400))
    relation, labels = rng.integers(0, 3, 400), rng.integers(-1, 3, 60)
    edges = set(zip(source, target, relation, strict=True))
    names = ["one", "two", "three", "none"]
    kept = {"relation": relation, "relation_names": names, "labels": labels, "num_nodes": 60}
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    figures = statistics(Graph.from_edges([source, target], **kept))
    for number, name in enumerate(names[:3]):
        ends = [(labels[i], labels[j]) for i, j, r in edges if r == number and i != j]
        known = [a == b for a, b in ends if a >= 0 and b >= 0]
        assert figures.relation_counts[name] == len(ends)
        assert figures.relation_homophily[name] == pytest.approx(np.mean(known))
    assert figures.relation_homophily["none"] is None


def test_what_is_unknown_is_left_out():
    figures = statistics(Graph.from_edges(np.zeros((2, 0), dtype=int), num_nodes=3))
    assert figures.homophily is None
    assert figures.split_counts == {}
    assert figures.relation_counts == {}
    assert figures.node_type_counts == {}
    assert figures.class_counts == ()
    assert figures.degree_histogram == (3,)
