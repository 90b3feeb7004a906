"""shuffle: a permutation, every order with the same chance, the kernel as the reference."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import oracles
from musegnn import ops
from musegnn.ops.shuffle import numba, reference
from strategies import KEYS

IMPLEMENTATIONS = [pytest.param(reference, id="reference"), pytest.param(numba, id="numba")]


def shuffled(implementation, ids, key):
    order = ids.copy()
    assert implementation.shuffle(order, key) is None
    return order


@given(ids=hnp.arrays(st.sampled_from([np.int32, np.int64]), st.integers(0, 70)), key=KEYS)
def test_the_kernel_does_what_the_reference_does(ids, key):
    order = shuffled(numba, ids, key)
    assert order.dtype == ids.dtype
    assert order.tolist() == shuffled(reference, ids, key).tolist()
    assert sorted(order.tolist()) == sorted(ids.tolist())


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_every_order_has_the_same_chance(implementation, size):
    counts = dict.fromkeys(permutations(range(size)), 0)
    for key in range(200 * len(counts)):
        counts[tuple(shuffled(implementation, np.arange(size), key).tolist())] += 1
    assert oracles.p_value(list(counts.values())) > 1e-3 or size == 1


def test_every_node_gets_to_every_place():
    """The last places and the first, of more elements than have a table of orders."""
    size, keys = 17, range(17 * 100)
    counts = np.zeros((size, size))
    for key in keys:
        counts[np.arange(size), shuffled(numba, np.arange(size), key)] += 1
    # Rows and columns are fixed, (size - 1)**2 counts are free.
    statistic = ((counts - 100) ** 2 / 100).sum() * (size - 1) / size
    assert oracles.scipy.stats.chi2.sf(statistic, (size - 1) ** 2) > 1e-3


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("size", [0, 1])
def test_none_and_one_stay(compiled, size):
    ids = np.arange(size, dtype=np.int32)
    ops.shuffle(ids, 5, compiled=compiled)
    assert ids.tolist() == list(range(size))


def test_only_the_given_part_is_touched():
    ids = np.arange(20)
    ops.shuffle(ids[5:15], 1)
    assert ids[:5].tolist() + ids[15:].tolist() == [*range(5), *range(15, 20)]
    assert sorted(ids[5:15].tolist()) == list(range(5, 15))
    assert ids[5:15].tolist() != list(range(5, 15))


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    made = calls(numba, "shuffle")
    ids = np.arange(50)
    ops.shuffle(ids, 9, compiled=compiled)
    assert ids.tolist() == shuffled(reference, np.arange(50), 9).tolist()
    assert len(made) == compiled
