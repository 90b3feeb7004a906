"""random_walk: the compiled kernel against the reference, the reference against what a walk is."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

import oracles
import strategies
from musegnn import ops
from musegnn.ops.random_bits.reference import bits_at
from musegnn.ops.random_walk import numba, reference

KEYS = st.integers(0, 2**64 - 1)


def csr(edges, num_nodes, dtype=np.int32):
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    matrix = oracles.symmetric_csr(source, target, num_nodes)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(dtype)


@given(
    edges=strategies.edge_lists(),
    roots=st.integers(1, 12),
    length=st.integers(1, 6),
    key=KEYS,
    dtype=st.sampled_from([np.int32, np.int64]),
)
def test_the_kernel_visits_what_the_reference_visits(edges, roots, length, key, dtype):
    graph = csr(edges.index.T, edges.num_nodes, dtype)
    expected = ops.random_walk(*graph, roots, length, key, compiled=False)
    visited = ops.random_walk(*graph, roots, length, key)
    assert visited.dtype == expected.dtype == dtype
    assert visited.tolist() == expected.tolist() == sorted(set(visited.tolist()))


@given(edges=strategies.edge_lists(), length=st.integers(1, 8), stream=KEYS)
def test_each_step_goes_to_a_neighbor_and_stays_only_where_there_is_none(edges, length, stream):
    indptr, indices = csr(edges.index.T, edges.num_nodes)
    matrix = oracles.symmetric_csr(edges.source, edges.target, edges.num_nodes).toarray()
    path = reference.walk(indptr, indices, length, stream)
    assert len(path) == length + 1
    for u, v in zip(path, path[1:], strict=False):
        assert matrix[u, v] or (u == v and not matrix[u].any())


@given(edges=strategies.edge_lists(), roots=st.integers(1, 8), length=st.integers(1, 4), key=KEYS)
def test_a_sample_is_the_union_of_its_walks(edges, roots, length, key):
    """Walk w alone is the stream bits(key, w), so that more roots or steps only add nodes."""
    graph = csr(edges.index.T, edges.num_nodes)
    paths = [reference.walk(*graph, length, bits_at(key, w)) for w in range(roots)]
    assert set(numba.random_walk(*graph, roots, length, key).tolist()) == set().union(*paths)
    longer = [reference.walk(*graph, length + 3, bits_at(key, w)) for w in range(roots)]
    assert [path[: length + 1] for path in longer] == paths


def test_roots_and_steps_are_uniform():
    """Chi-square of 20,000 walks on a graph whose nodes have 1 to 5 neighbors; the key is fixed."""
    edges = [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (2, 3), (1, 3), (4, 1)]
    graph = csr(edges, 6)
    paths = np.array([reference.walk(*graph, 3, bits_at(7, w)) for w in range(20_000)])
    assert scipy.stats.chisquare(np.bincount(paths[:, 0], minlength=6)).pvalue > 0.01
    for t in (1, 2, 3):
        for u in range(6):
            neighbors = graph[1][graph[0][u] : graph[0][u + 1]]
            counts = np.bincount(paths[paths[:, t - 1] == u, t], minlength=6)
            assert counts.sum() == counts[neighbors].sum() > 500
            if len(neighbors) > 1:
                assert scipy.stats.chisquare(counts[neighbors]).pvalue > 0.001, (t, u)


def test_root_and_step_of_one_walk_are_independent():
    """On a complete graph every pair of nodes is the result of a single step equally often."""
    n = 5
    graph = csr([(u, v) for u in range(n) for v in range(u)], n)
    counts = np.zeros((n, n))
    for key in range(4000):
        u, v = numba.random_walk(*graph, 1, 1, key)
        counts[u, v] += 1
    assert scipy.stats.chisquare(counts[np.triu_indices(n, 1)]).pvalue > 0.01


@pytest.mark.parametrize("compiled", [True, False])
def test_without_edges_the_roots_alone_are_visited(compiled):
    visited = ops.random_walk(*csr([], 1000), 40, 5, 3, compiled=compiled)
    assert 30 < len(visited) <= 40
    assert ops.random_walk(*csr([], 1), 3, 2, 0, compiled=compiled).tolist() == [0]


def test_every_node_can_be_a_root():
    assert ops.random_walk(*csr([], 130), 5000, 1, 0).tolist() == list(range(130))
