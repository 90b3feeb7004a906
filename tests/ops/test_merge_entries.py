"""merge_entries: the reference and the compiled kernel against a Python dictionary."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from musegnn import ops
from musegnn.ops.merge_entries import numba, reference

IMPLEMENTATIONS = [pytest.param(reference, id="reference"), pytest.param(numba, id="numba")]
CODES = st.integers(0, 2**32 - 1)


def check(merge_entries, keys, codes, first_row, num_rows):
    before = keys.copy()
    lengths, columns, joined = merge_entries(keys, codes, first_row, num_rows)
    given_codes = np.zeros(len(keys), dtype=np.uint32) if codes is None else codes
    expected = oracles.merged(keys, given_codes, first_row, num_rows)
    assert (lengths.dtype, columns.dtype) == (np.int64, np.uint32)
    assert lengths.tolist() == expected[0]
    assert columns.tolist() == expected[1]
    assert (joined is None) == (codes is None)
    if joined is not None:
        assert joined.dtype == np.uint32
        assert joined.tolist() == expected[2]
    assert np.array_equal(keys, before), "the input was changed"


def keys_of(rows, columns):
    return np.asarray(rows, dtype=np.uint64) << np.uint64(32) | np.asarray(columns, dtype=np.uint64)


def random_entries(lengths, num_columns, first_row=0, seed=0):
    """Rows of the given lengths, repeats included, in any order."""
    rng = np.random.default_rng(seed)
    rows = np.repeat(np.arange(first_row, first_row + len(lengths)), lengths)
    keys = rng.permutation(keys_of(rows, rng.integers(0, num_columns, len(rows))))
    return keys, rng.integers(0, 1 << 32, len(keys), dtype=np.uint32)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(
    first_row=st.integers(0, 2**32 - 7),
    pairs=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([0, 1, 2, 7, 2**31, 2**32 - 1]), CODES)),
    coded=st.booleans(),
)
def test_any_entries_merge_as_a_dictionary_merges_them(implementation, first_row, pairs, coded):
    rows, columns, codes = np.array(pairs, dtype=np.uint64).reshape(-1, 3).T
    keys = keys_of(rows + np.uint64(first_row), columns)
    check(implementation.merge_entries, keys, codes.astype(np.uint32) if coded else None, first_row, 6)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize(
    "lengths",
    [[], [0], [0, 0, 0], [1], [2], [47], [48], [49], [5000], [1, 0, 2, 47, 0, 48, 49, 5000, 0, 3]],
    ids=str,
)
@pytest.mark.parametrize("num_columns", [1, 40, 1 << 20])
def test_rows_of_every_length_are_sorted(implementation, coded, lengths, num_columns):
    """Both sorts of the kernel, above and below 48; one column makes every entry a repeat."""
    keys, codes = random_entries(lengths, num_columns, first_row=11)
    check(implementation.merge_entries, keys, codes if coded else None, 11, len(lengths))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("order", [1, -1])
def test_rows_that_are_sorted_already_or_backwards(implementation, order):
    keys = keys_of(np.repeat([3, 4], [60, 40]), np.concatenate([np.arange(60), np.arange(40)]))[::order]
    check(implementation.merge_entries, keys, np.arange(100, dtype=np.uint32), 3, 2)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_codes_of_repeats_are_joined_by_or(implementation):
    keys = keys_of([5, 5, 5, 5], [9, 2, 9, 9])
    codes = np.array([0x80000000, 4, 1, 1], dtype=np.uint32)
    lengths, columns, joined = implementation.merge_entries(keys, codes, 5, 1)
    assert (lengths.tolist(), columns.tolist(), joined.tolist()) == ([2], [2, 9], [4, 0x80000001])


@pytest.mark.parametrize("kernel", ["_merge", "_merge_coded"])
def test_the_kernels_write_all_of_their_memory(poisoned, kernel):
    keys, codes = random_entries([1, 0, 49, 60, 3], 30)
    # Kernels that these call must be compiled before: Numba does not know the poisoned np.
    numba.merge_entries(keys.copy(), None, 0, 5)
    numba.merge_entries(keys.copy(), codes.copy(), 0, 5)
    poisoned(numba)

    def merge_entries(keys, codes, first_row, num_rows):
        if codes is None:
            return *numba._merge.py_func(keys, first_row, num_rows), None
        return numba._merge_coded.py_func(keys, codes, first_row, num_rows)

    check(merge_entries, keys, codes if kernel == "_merge_coded" else None, 0, 5)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(monkeypatch, compiled):
    calls, merge_entries = [], numba.merge_entries
    monkeypatch.setattr(
        numba,
        "merge_entries",
        lambda *args, **options: calls.append(merge_entries(*args, **options)) or calls[0],
    )
    check(partial(ops.merge_entries, compiled=compiled), *random_entries([3, 0, 70], 50), 0, 3)
    assert len(calls) == compiled
