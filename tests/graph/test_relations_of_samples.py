"""What a sample's entries are, is what they are in the graph."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from musegnn import Draws, Graph, NeighborSampling, ShadowKHop
from musegnn.graph.relation import codes_of


@given(seed=st.integers(0, 100), only_drawn=st.booleans())
def test_each_entry_has_the_bits_it_has_in_the_graph(seed, only_drawn):
    rng = np.random.default_rng(seed)
    edges, relation = rng.integers(0, 30, (2, 80)), rng.integers(0, 3, 80)
    kept = edges[0] != edges[1]
    graph = Graph.from_edges(
        edges[:, kept], num_nodes=30, relation=relation[kept], relation_names=list("abc")
    )
    sampler = NeighborSampling([2, 2]) if only_drawn else ShadowKHop([2, 2])
    sample = Draws(graph, sampler, np.arange(30)[seed % 30 :], batch_size=7)[0]
    found = codes_of(graph, sample.node_ids, sample.indptr, sample.indices)
    assert found.dtype == graph.relation.dtype
    for i in range(sample.num_nodes):
        for e in range(sample.indptr[i], sample.indptr[i + 1]):
            u, v = sample.node_ids[i], sample.node_ids[sample.indices[e]]
            row = slice(graph.indptr[u], graph.indptr[u + 1])
            assert found[e] == graph.relation[row][graph.indices[row] == v]


def test_a_graph_without_relations_tells_none():
    graph = Graph.from_edges(np.array([[0], [1]]), num_nodes=2)
    assert codes_of(graph, np.arange(2), graph.indptr, graph.indices) is None
