"""RandomWalk: samples of walks."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import draw_checks
import strategies
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.ops.random_walk.reference import random_walk
from musegnn.sampling import Draws, RandomWalk
from musegnn.sampling.base import describe, key_of


def labeled(edges):
    """A graph whose nodes are train, valid, test, none in turn."""
    n = edges.num_nodes
    split = np.arange(n) % 4 - 1
    return Graph.from_edges(edges.index, num_nodes=n, labels=np.zeros(n, int), split=split.astype(np.int8))


@settings(max_examples=30)
@given(edges=strategies.edge_lists(), roots=st.integers(1, 6), length=st.integers(1, 4))
def test_samples_are_what_the_walks_visit_with_all_edges(edges, roots, length):
    graph = labeled(edges)
    sampler = RandomWalk(roots=roots, length=length, num_samples=3)
    for split, code in (("train", 0), ("none", -1)):
        draws = Draws(graph, sampler, split)
        assert len(draws) == 3
        for sample in draws:
            assert 1 <= sample.num_nodes <= roots * (length + 1)
            draw_checks.check_induced(graph, sample)
            draw_checks.check_seeds(sample, np.flatnonzero(graph.split == code))


def test_the_key_is_the_next_of_the_generator():
    graph = Graph.from_edges(np.random.default_rng(0).integers(0, 50, (2, 90)), num_nodes=60)
    sampler = RandomWalk(roots=5, length=3)
    nodes = sampler.draw(graph, 0, np.random.Generator(np.random.Philox(key=9)))
    key = key_of(np.random.Generator(np.random.Philox(key=9)))
    assert nodes.tolist() == random_walk(graph.indptr, graph.indices, 5, 3, key).tolist()


def test_samples_differ_and_depend_on_neither_order_nor_threads():
    graph = Graph.from_edges(np.random.default_rng(0).integers(0, 400, (2, 900)), num_nodes=500)
    draw_checks.check_order_and_threads(lambda: Draws(graph, RandomWalk(20, 3, 12), "none"))
    assert len({draw_checks.content(s)[0][0] for s in Draws(graph, RandomWalk(20, 3, 12), "none")}) == 12


@pytest.mark.parametrize("name", ["roots", "length", "num_samples"])
@pytest.mark.parametrize("value", [0, -1, True])
def test_settings_are_positive_integers(name, value):
    with pytest.raises(
        InputError, match=rf"{name} of RandomWalk must be a positive integer below 2\*\*63, got {value!r}"
    ):
        RandomWalk(**{name: value})


def test_settings_are_told():
    settings = {"roots": 7, "length": 2, "num_samples": 3}
    assert describe(RandomWalk(7, 2, 3)) == {"name": "RandomWalk", "settings": settings}


def test_a_sample_that_would_take_hours_is_refused():
    with pytest.raises(InputError, match="is 100,000,000,000 steps for one sample; at most 1,000,000,000"):
        RandomWalk(roots=25_000_000_000, length=4)
