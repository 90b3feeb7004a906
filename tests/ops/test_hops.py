"""hops: against powers of a dense matrix and networkx."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from musegnn import ops
from strategies import csrs

both = pytest.mark.parametrize("compiled", [True, False], ids=["numba", "reference"])


@given(csr=csrs(), share=st.floats(0, 1))
def test_levels_are_lengths_of_shortest_paths(csr, share):
    num_seeds = round(share * csr.num_nodes)
    graph = nx.from_numpy_array(oracles.dense(*csr))
    expected = np.full(csr.num_nodes, 255)
    if num_seeds:
        for node, length in nx.multi_source_dijkstra_path_length(graph, set(range(num_seeds))).items():
            expected[node] = length
    for compiled in (True, False):
        found = ops.hops(*csr, num_seeds, compiled=compiled)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, expected)


@both
def test_what_is_very_far_is_as_far_as_can_be(compiled):
    n = 300
    path = oracles.symmetric_csr(np.arange(n - 1), np.arange(1, n), n)
    arrays = path.indptr.astype(np.int64), path.indices.astype(np.int32)
    levels = ops.hops(*arrays, 1, compiled=compiled)
    np.testing.assert_array_equal(levels, np.minimum(np.arange(n), 255))


@both
def test_no_nodes_have_no_levels(compiled):
    assert ops.hops(np.zeros(1, np.int64), np.empty(0, np.int32), 0, compiled=compiled).shape == (0,)
