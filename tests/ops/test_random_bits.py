"""random_bits: SplitMix64 as published; the compiled functions against Python's own integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from musegnn import ops
from musegnn.ops.random_bits import numba, reference
from strategies import KEYS

IMPLEMENTATIONS = [pytest.param(reference, id="reference"), pytest.param(numba, id="numba")]
PUBLISHED = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]
"""The first outputs of SplitMix64 with state 1234567 (Vigna's splitmix64.c)."""
WORD = 2**64
BOUNDS = st.integers(1, 2**32 - 1) | st.sampled_from([1, 2, 3, 2**31 - 1, 2**31, 2**32 - 2, 2**32 - 1])


def bits_at(implementation, key, counter):
    return int(implementation.bits_at(*uint64(implementation, key, counter)))


def below(implementation, bits, bound):
    return int(implementation.below(*uint64(implementation, bits, bound)))


def uint64(implementation, *values):
    """The reference works on Python's integers, the kernels on uint64."""
    return values if implementation is reference else map(np.uint64, values)


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_the_published_numbers(implementation):
    bits = implementation.random_bits(1234567, np.arange(5, dtype=np.uint64))
    assert bits.dtype == np.uint64
    assert bits.tolist() == PUBLISHED
    assert [bits_at(implementation, 1234567, counter) for counter in range(5)] == PUBLISHED


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(key=KEYS, counters=st.lists(KEYS))
def test_a_number_is_a_function_of_its_key_and_place(implementation, key, counters):
    bits = implementation.random_bits(key, np.array(counters, dtype=np.uint64))
    assert bits.dtype == np.uint64
    assert bits.tolist() == [reference.bits_at(key, counter) for counter in counters]
    assert bits.tolist() == [bits_at(implementation, key, counter) for counter in counters]


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(bits=KEYS, bound=BOUNDS)
def test_below_stays_below_and_is_the_high_word_of_the_product(implementation, bits, bound):
    number = below(implementation, bits, bound)
    assert 0 <= number < bound
    assert number == bits * bound // WORD


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@given(bound=BOUNDS, data=st.data())
def test_every_number_below_has_an_equal_share_of_the_words(implementation, bound, data):
    """Number r belongs to the words from ceil(r 2**64 / bound) on: shares differ by one word at most."""
    r = data.draw(st.integers(0, bound - 1) | st.sampled_from([0, bound - 1]))
    first, beyond = -(-r * WORD // bound), -(-(r + 1) * WORD // bound)
    assert below(implementation, first, bound) == r
    assert below(implementation, beyond - 1, bound) == r
    assert r == 0 or below(implementation, first - 1, bound) == r - 1
    assert abs((beyond - first) - WORD // bound) <= 1


def test_neighboring_keys_and_places_are_unrelated():
    """Each of the 64 bits changes half of the time, within five standard deviations."""
    counters = np.arange(4000, dtype=np.uint64)
    base = ops.random_bits(7, counters)
    for other in (ops.random_bits(8, counters), ops.random_bits(7, counters + np.uint64(1))):
        changed = np.unpackbits((base ^ other).view(np.uint8)).reshape(-1, 64).mean(axis=0)
        assert (abs(changed - 0.5) < 5 * 0.5 / np.sqrt(4000)).all()


def test_the_high_words_are_uniform():
    numbers = ops.random_bits(0, np.arange(32_000, dtype=np.uint64)) >> np.uint64(59)
    assert oracles.p_value(np.bincount(numbers.astype(np.int64), minlength=32)) > 1e-3


@pytest.mark.parametrize("compiled", [True, False])
def test_no_counters_give_no_numbers(compiled):
    bits = ops.random_bits(3, np.empty(0, dtype=np.uint64), compiled=compiled)
    assert (bits.dtype, bits.shape) == (np.uint64, (0,))


def test_the_kernel_writes_all_of_its_memory(on_poison):
    bits = on_poison(numba._random_bits)(np.uint64(1234567), np.arange(5, dtype=np.uint64))
    assert bits.tolist() == PUBLISHED


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    made = calls(numba, "random_bits")
    counters = np.arange(5, dtype=np.uint64)
    assert ops.random_bits(1234567, counters, compiled=compiled).tolist() == PUBLISHED
    assert len(made) == compiled
