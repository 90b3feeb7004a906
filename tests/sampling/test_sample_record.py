"""The record of one sample."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from musegnn import InputError
from musegnn.sampling import Sample


def a_sample():
    """A path 7 - 2 - 9, of which 2 and 7 are seeds, and an isolated 11."""
    return Sample(
        node_ids=np.array([2, 7, 9, 11], dtype=np.int32),
        indptr=np.array([0, 2, 3, 4, 4]),
        indices=np.array([1, 2, 0, 0], dtype=np.int32),
        num_seeds=2,
        bounds=np.array([1.0, 1.5, 3.0, 4.0]),
    )


def test_counts_and_seeds():
    sample = a_sample()
    assert (sample.num_nodes, sample.num_entries, sample.num_seeds) == (4, 4, 2)
    assert sample.seeds.tolist() == [2, 7]
    assert repr(sample) == "Sample(num_nodes=4, num_entries=4, num_seeds=2)"


@pytest.mark.parametrize(
    ("laplacian", "expected"), [("normalized", (1.0, 1.5)), ("combinatorial", (3.0, 4.0))]
)
def test_the_spectrum_of_each_laplacian(laplacian, expected):
    spectrum = a_sample().spectrum(laplacian)
    assert (spectrum.theta, spectrum.bound) == expected
    assert all(type(value) is float for value in spectrum)


@pytest.mark.parametrize("laplacian", ["other", "Normalized", "", None, 0])
def test_another_laplacian_is_refused(unchecked, laplacian):
    with pytest.raises(InputError, match="^laplacian must be 'normalized' or 'combinatorial', got ") as it:
        a_sample().spectrum(laplacian)
    assert str(it.value).endswith(f"got {laplacian!r}.")


def test_nothing_is_assigned_and_nothing_compared_by_value():
    """Arrays have no single truth value, so two samples are equal only if they are one."""
    sample = a_sample()
    with pytest.raises(FrozenInstanceError):
        sample.num_seeds = 3
    assert sample in [sample]
    assert sample != a_sample()
    assert not hasattr(sample, "__dict__")


def test_an_empty_sample():
    nothing = np.empty(0, dtype=np.int32)
    zero = np.zeros(1, dtype=np.int64)
    sample = Sample(node_ids=nothing, indptr=zero, indices=nothing, num_seeds=0, bounds=np.zeros(4))
    assert (sample.num_nodes, sample.num_entries, sample.seeds.tolist()) == (0, 0, [])
    assert sample.spectrum("combinatorial") == (0.0, 0.0)
