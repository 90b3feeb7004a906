"""partition_edges: the reference and the compiled kernel against Python lists."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from musegnn import ops
from musegnn.ops.partition_edges import numba, reference
from strategies import edge_lists

IMPLEMENTATIONS = [pytest.param(reference, id="reference"), pytest.param(numba, id="numba")]


def check(partition_edges, source, target, code, shift, num_buckets):
    """Bucket by bucket; the order inside a bucket is free."""
    keys, codes, bounds = partition_edges(source, target, code, shift=shift, num_buckets=num_buckets)
    given_code = np.zeros(len(source), dtype=np.uint32) if code is None else code
    expected = oracles.partitioned(source, target, given_code, shift, num_buckets)
    assert (keys.dtype, bounds.dtype) == (np.uint64, np.int64)
    assert bounds.tolist() == [0, *np.cumsum([len(bucket) for bucket in expected])]
    assert len(keys) == bounds[-1]
    assert (codes is None) == (code is None)
    for b, bucket in enumerate(expected):
        part = slice(bounds[b], bounds[b + 1])
        if codes is None:
            assert sorted(keys[part].tolist()) == [key for key, _ in bucket]
        else:
            assert codes.dtype == np.uint32
            assert sorted(zip(keys[part].tolist(), codes[part].tolist(), strict=True)) == bucket


def random_edges(num_edges, num_nodes, seed=0):
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, num_nodes, (2, num_edges))
    return source, target, rng.integers(0, 1 << 32, num_edges, dtype=np.uint32)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(edges=edge_lists(), shift=st.integers(0, 8), coded=st.booleans(), data=st.data())
def test_any_edges_are_grouped_as_python_groups_them(implementation, edges, shift, coded, data):
    codes = st.lists(st.integers(0, 2**32 - 1), min_size=len(edges.source), max_size=len(edges.source))
    code = np.array(data.draw(codes), dtype=np.uint32) if coded else None
    num_buckets = (edges.num_nodes - 1 >> shift) + 1
    check(implementation.partition_edges, edges.source, edges.target, code, shift, num_buckets)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize(
    ("num_edges", "num_nodes", "shift"),
    [(0, 1, 0), (1, 2, 0), (1, 2, 1), (17, 5, 0), (1000, 1, 3), (999, 1023, 0), (2001, 4099, 2)],
    ids=["empty", "two buckets", "one bucket", "odd", "all loops", "a bucket a node", "many buckets"],
)
def test_odd_sizes(implementation, coded, num_edges, num_nodes, shift):
    source, target, code = random_edges(num_edges, num_nodes)
    num_buckets = (num_nodes - 1 >> shift) + 1
    check(implementation.partition_edges, source, target, code if coded else None, shift, num_buckets)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_largest_ids_keep_all_their_bits(implementation):
    top = ops.MAX_NODES - 1
    source, target = np.array([top, 0, top - 1]), np.array([0, top - 1, top])
    code = np.array([0xFFFFFFFF, 0x80000000, 0x55555555], dtype=np.uint32)
    check(implementation.partition_edges, source, target, code, shift=22, num_buckets=1024)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_rows_of_a_transposed_read_only_array_will_do(implementation):
    """As a user's mapped (edges, 2) file, transposed, gives them: strided, not writable."""
    edges = np.stack(random_edges(101, 30)[:2], axis=1)
    edges.setflags(write=False)
    check(implementation.partition_edges, *edges.T, None, shift=2, num_buckets=8)


@pytest.mark.parametrize("coded", [False, True])
def test_the_kernel_writes_all_of_its_memory(poisoned, coded):
    poisoned(numba)
    source, target, code = random_edges(63, 9)

    def partition_edges(source, target, code, shift, num_buckets):
        given_code = np.empty(0, dtype=np.uint32) if code is None else code
        keys, codes, bounds = numba._partition.py_func(
            source, target, given_code, code is not None, shift, num_buckets
        )
        return keys, codes if code is not None else None, bounds

    check(partition_edges, source, target, code if coded else None, 1, 5)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(monkeypatch, compiled):
    calls, partition_edges = [], numba.partition_edges
    monkeypatch.setattr(
        numba,
        "partition_edges",
        lambda *args, **options: calls.append(partition_edges(*args, **options)) or calls[0],
    )
    check(partial(ops.partition_edges, compiled=compiled), *random_edges(500, 77), 3, 10)
    assert len(calls) == compiled
