"""pagerank: the compiled kernel against the reference bit by bit, and both against a dense solve."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
import strategies
from musegnn import ops
from musegnn.ops.pagerank import numba, reference

IMPLEMENTATIONS = [pytest.param(reference, id="reference"), pytest.param(numba, id="numba")]
TELEPORTS = st.sampled_from([0.05, 0.15, 0.5, 0.9])
TOLERANCES = st.sampled_from([0.3, 0.1, 1e-2, 1e-3, 1e-5])


def csr(edges, num_nodes, dtype=np.int32):
    source, target = np.array(edges, dtype=np.int64).reshape(-1, 2).T
    matrix = oracles.symmetric_csr(source, target, num_nodes)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(dtype)


def exact(indptr, indices, teleport):
    """Row s is pi_s = teleport (I - (1 - teleport) P^T)^-1 e_s; a walk stays where there is no neighbor."""
    n = len(indptr) - 1
    step = np.zeros((n, n))
    for u in range(n):
        neighbors = indices[indptr[u] : indptr[u + 1]]
        step[u, neighbors if len(neighbors) else u] = 1 / max(len(neighbors), 1)
    return (teleport * np.linalg.inv(np.eye(n) - (1 - teleport) * step.T)).T


def dense(num_nodes, pushed):
    """p and r of all nodes."""
    ids, p, r = pushed
    assert len(set(ids.tolist())) == len(ids)
    full = np.zeros((2, num_nodes))
    full[:, ids] = p, r
    return full


def clustered(num_nodes=300, num_edges=1200, seed=0):
    """Edges that are mostly short, and one hub: touched nodes come in no order, tables grow several times."""
    rng = np.random.default_rng(seed)
    source = rng.integers(0, num_nodes, num_edges)
    target = (source + rng.geometric(0.1, num_edges)) % num_nodes
    source[:60] = 17
    return csr(np.stack([source, target], axis=1), num_nodes)


@given(
    edges=strategies.edge_lists(),
    teleport=TELEPORTS,
    tolerance=TOLERANCES,
    top_k=st.integers(1, 8),
    dtype=st.sampled_from([np.int32, np.int64]),
    data=st.data(),
)
def test_the_kernel_equals_the_reference_bit_by_bit(edges, teleport, tolerance, top_k, dtype, data):
    graph = csr(edges.index.T, edges.num_nodes, dtype)
    chosen = data.draw(st.sets(st.integers(0, edges.num_nodes - 1), max_size=6))
    seeds = np.array(sorted(chosen), dtype=dtype)
    for seed in seeds.tolist():
        expected, got = (module.push(*graph, seed, teleport, tolerance) for module in (reference, numba))
        assert [part.dtype for part in got] == [part.dtype for part in expected] == [dtype, "f8", "f8"]
        assert [part.tolist() for part in got] == [part.tolist() for part in expected]
    options = (seeds, top_k, teleport, tolerance)
    union = ops.pagerank(*graph, *options)
    assert union.dtype == dtype
    assert union.tolist() == ops.pagerank(*graph, *options, compiled=False).tolist()
    assert union.tolist() == sorted({*union.tolist(), *chosen})


@pytest.mark.parametrize("tolerance", [1e-2, 1e-4])
def test_tables_that_grow_change_no_bit(tolerance):
    graph = clustered()
    seeds = np.arange(0, 300, 47, dtype=np.int32)
    counts = []
    for seed in seeds.tolist():
        expected, got = (module.push(*graph, seed, 0.15, tolerance) for module in (reference, numba))
        assert [part.tolist() for part in got] == [part.tolist() for part in expected]
        counts.append(len(got[0]))
    assert tolerance > 1e-3 or max(counts) > 2 * numba._FIRST_CAPACITY
    for top_k in (7, 1000):
        options = (seeds, top_k, 0.15, tolerance)
        assert (
            ops.pagerank(*graph, *options).tolist() == ops.pagerank(*graph, *options, compiled=False).tolist()
        )


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(edges=strategies.edge_lists(max_nodes=15), teleport=TELEPORTS, tolerance=TOLERANCES, data=st.data())
def test_what_is_pushed_and_what_is_left_make_up_the_exact_vector(
    implementation, edges, teleport, tolerance, data
):
    """p + sum_v r_v pi_v = pi_s and r_u < tolerance d_u, hence 0 <= pi_s(u) - p_u < tolerance d_u."""
    indptr, indices = csr(edges.index.T, edges.num_nodes)
    seed, degree = data.draw(st.integers(0, edges.num_nodes - 1)), np.diff(indptr)
    every = exact(indptr, indices, teleport)
    p, r = dense(edges.num_nodes, implementation.push(indptr, indices, seed, teleport, tolerance))
    np.testing.assert_allclose(p + r @ every, every[seed], rtol=1e-10, atol=1e-13)
    assert (r >= 0).all()
    assert (r[degree > 0] < tolerance * degree[degree > 0]).all()
    assert (r[degree == 0] == 0).all()
    missing = every[seed] - p
    assert (missing > -1e-13).all()
    assert (missing <= tolerance * degree + 1e-13).all()


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(edges=strategies.edge_lists(max_nodes=15), top_k=st.integers(1, 16), data=st.data())
def test_a_tiny_tolerance_chooses_the_exact_top_k(implementation, edges, top_k, data):
    graph = csr(edges.index.T, edges.num_nodes)
    seed = data.draw(st.integers(0, edges.num_nodes - 1))
    pi = exact(*graph, 0.15)[seed]
    chosen = implementation.pagerank(*graph, np.array([seed], np.int32), top_k, 0.15, 1e-13)
    reachable = np.flatnonzero(pi > 1e-12)
    assert seed in chosen
    assert set(chosen.tolist()) <= set(reachable.tolist())
    size = min(top_k, len(reachable))
    least = np.sort(pi)[::-1][size - 1]
    # Equal ones differ by rounding. The seed comes on top of the others where it is none of them.
    above, below = pi[seed] > least + 1e-9, pi[seed] < least - 1e-9
    assert len(chosen) - size in ({0} if above else {1} if below else {0, 1})
    assert (pi[chosen[chosen != seed]] >= least - 1e-9).all()
    assert set(np.flatnonzero(pi > least + 1e-9).tolist()) <= set(chosen.tolist())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_a_star_by_hand(implementation):
    """Residuals that equal tolerance * degree are pushed: 1 = 4 / 4 at the hub, 1 / 8 at the leaves."""
    star = csr([(2, leaf) for leaf in (0, 1, 3, 4)], 5)
    ids, p, r = implementation.push(*star, 2, 0.5, 0.125)
    assert ids.tolist() == [2, 0, 1, 3, 4]
    assert p.tolist() == [0.5, 0.0625, 0.0625, 0.0625, 0.0625]
    assert r.tolist() == [0.25, 0, 0, 0, 0]
    ids, p, r = implementation.push(*star, 2, 0.5, 0.25)
    assert (ids.tolist(), p.tolist(), r.tolist()) == ([2, 0, 1, 3, 4], [0.5, 0, 0, 0, 0], [0, *[0.125] * 4])
    ids, p, r = implementation.push(*star, 2, 0.5, 0.26)
    assert (ids.tolist(), p.tolist(), r.tolist()) == ([2], [0], [1])


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("top_k", "expected"), [(1, [2]), (2, [0, 2]), (4, [0, 1, 2, 3]), (9, [0, 1, 2, 3, 4])]
)
def test_of_equal_nodes_those_with_smaller_ids_are_taken(implementation, top_k, expected):
    star = csr([(2, leaf) for leaf in (0, 1, 3, 4)], 5)
    assert implementation.pagerank(*star, np.array([2], np.int32), top_k, 0.5, 0.125).tolist() == expected


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_of_equal_nodes_the_order_in_which_they_were_touched_does_not_matter(implementation):
    """0 - 1 - 9 and 0 - 2 - 5: node 9 is touched before node 5, which has the same p."""
    forked = csr([(0, 1), (0, 2), (1, 9), (2, 5)], 10)
    ids, p, _ = implementation.push(*forked, 0, 0.25, 1e-3)
    assert ids.tolist() == [0, 1, 2, 9, 5]
    assert p[3] == p[4] > 0
    assert implementation.pagerank(*forked, np.array([0], np.int32), 4, 0.25, 1e-3).tolist() == [0, 1, 2, 5]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_seed_is_there_even_where_others_weigh_more(implementation):
    """The hub of a star outweighs the leaf where the walk starts; one above 1 / tolerance is not pushed."""
    star = csr([(0, leaf) for leaf in range(1, 30)], 31)
    ids, p, _ = implementation.push(*star, 7, 0.15, 1e-4)
    assert p[ids == 0] > p[ids == 7]
    assert implementation.pagerank(*star, np.array([7], np.int32), 1, 0.15, 1e-4).tolist() == [0, 7]
    assert implementation.pagerank(*star, np.array([0], np.int32), 5, 0.15, 0.1).tolist() == [0]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_an_isolated_seed_gives_itself(implementation):
    graph = csr([(0, 1)], 4)
    ids, p, r = implementation.push(*graph, 3, 0.15, 1e-3)
    assert (ids.tolist(), p.tolist(), r.tolist()) == ([3], [1], [0])
    assert implementation.pagerank(*graph, np.array([2, 3], np.int32), 5, 0.15, 1e-3).tolist() == [2, 3]
    assert implementation.pagerank(*graph, np.zeros(0, np.int32), 5, 0.15, 1e-3).tolist() == []


def test_a_batch_is_the_union_of_its_seeds():
    """No seed sees what the table held for the one before it."""
    graph = clustered()
    seeds = np.array([3, 17, 20, 120, 299], dtype=np.int32)
    alone = [ops.pagerank(*graph, seeds[i : i + 1], 9, 0.15, 1e-4) for i in range(len(seeds))]
    assert ops.pagerank(*graph, seeds, 9, 0.15, 1e-4).tolist() == np.unique(np.concatenate(alone)).tolist()


def test_the_kernels_write_their_memory_before_they_read_it(monkeypatch):
    """Tables are full of NaN and of the largest numbers, except for the slots."""
    table = numba._table.py_func

    def poisoned(capacity):
        slots, ids, *numbers, follower = table(capacity)
        for values, poison in [(ids, 2**62), (follower, 2**31 - 1), *((array, np.nan) for array in numbers)]:
            values[:] = poison
        return slots, ids, *numbers, follower

    graph = clustered(num_nodes=120, num_edges=400)
    expected = [part.tolist() for part in numba.push(*graph, 5, 0.15, 1e-3)]
    monkeypatch.setattr(numba, "_table", poisoned)
    for name in ("_push", "_grown"):
        monkeypatch.setattr(numba, name, getattr(numba, name).py_func)
    assert [part.tolist() for part in numba.push(*graph, 5, 0.15, 1e-3)] == expected
    assert len(expected[0]) > numba._FIRST_CAPACITY


def test_memory_follows_what_is_touched():
    """In a ring of a million nodes a seed touches few: far less than 8 bytes a node are taken."""
    n = 1_000_000
    indptr = np.arange(0, 2 * n + 1, 2)
    around = np.arange(n, dtype=np.int32)
    indices = np.sort(np.stack([np.roll(around, 1), np.roll(around, -1)], axis=1), axis=1).reshape(-1)
    count, table = numba._push(indptr, indices, 5, 0.15, 1e-4, numba._table(64))
    assert count < 100
    assert len(table[0]) <= 512
    assert len(ops.pagerank(indptr, indices, np.array([0, n // 2], np.int32), 5, 0.15, 1e-4)) == 10
