"""dropout: the compiled kernel against the definition; the share that is dropped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musegnn import ops
from strategies import KEYS


@given(
    key=KEYS,
    size=st.integers(0, 70),
    threshold=st.integers(0, 65535),
    relu=st.booleans(),
    threads=st.integers(1, 3),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_equals_the_reference(key, size, threshold, relu, threads, dtype):
    values = np.random.default_rng(size).standard_normal(size).astype(dtype)
    found, expected = np.full_like(values, np.nan), np.full_like(values, np.nan)
    ops.dropout(values, key, threshold, relu=relu, out=found, threads=threads)
    ops.dropout(values, key, threshold, relu=relu, out=expected, compiled=False)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("relu", [False, True])
def test_pieces_of_threads_are_no_seams(relu):
    values = np.random.default_rng(0).standard_normal((1 << 19) + 3).astype(np.float32)
    results = []
    for threads in (1, 2):
        out = np.empty_like(values)
        ops.dropout(values, 7, 20000, relu=relu, out=out, threads=threads)
        results.append(out)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_the_share_and_the_mean(p):
    values, threshold = np.ones(1 << 20), round(p * 65536)
    out = np.empty_like(values)
    ops.dropout(values, 3, threshold, relu=False, out=out)
    # Five standard errors.
    assert abs((out == 0).mean() - p) < 5 * np.sqrt(p * (1 - p) / len(values)) + 1e-5
    assert abs(out.mean() - 1) < 5 * np.sqrt(p / (1 - p) / len(values))
    lanes = (out == 0).reshape(-1, 4)
    np.testing.assert_allclose(lanes.mean(axis=0), p, atol=0.005)
    # Neighbors know nothing of each other.
    assert abs(np.corrcoef(lanes[:, 0], lanes[:, 1])[0, 1]) < 0.01


def test_another_key_drops_other_entries():
    values = np.ones(1000)
    results = [np.empty_like(values) for _ in range(2)]
    for key, out in enumerate(results):
        ops.dropout(values, key, 32768, relu=False, out=out)
    assert 0.4 < (results[0] != results[1]).mean() < 0.6
