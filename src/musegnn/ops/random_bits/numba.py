"""SplitMix64 for kernels."""

from typing import no_type_check

import numpy as np
from jaxtyping import UInt64

from musegnn.ops.kernel import kernel

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def random_bits(key: int, counters: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """See `musegnn.ops.random_bits`."""
    return _random_bits(np.uint64(key), counters)  # type: ignore[no-any-return]


@kernel
@no_type_check
def bits_at(key, counter):
    """One number of the stream; both are uint64."""
    bits = key + (counter + np.uint64(1)) * _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@kernel
@no_type_check
def below(bits, bound):
    """A number from 0 to bound - 1, bound < 2**32: the high word of a product, taken in two halves."""
    return ((bits >> _HALF) * bound + ((bits & _LOW) * bound >> _HALF)) >> _HALF


@kernel
@no_type_check
def _random_bits(key, counters):
    bits = np.empty(len(counters), dtype=np.uint64)
    for i in range(len(counters)):
        bits[i] = bits_at(key, counters[i])
    return bits
