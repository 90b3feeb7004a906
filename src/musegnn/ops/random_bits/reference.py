"""SplitMix64 by its definition, in NumPy and in Python's own integers."""

import numpy as np
from jaxtyping import UInt64

GOLDEN = 0x9E3779B97F4A7C15
WORD = (1 << 64) - 1


def random_bits(key: int, counters: UInt64[np.ndarray, " n"]) -> UInt64[np.ndarray, " n"]:
    """See `musegnn.ops.random_bits`."""
    with np.errstate(over="ignore"):
        bits = np.uint64(key) + (counters + np.uint64(1)) * np.uint64(GOLDEN)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return bits ^ (bits >> np.uint64(31))


def bits_at(key: int, counter: int) -> int:
    """One number of the stream."""
    bits = (key + (counter + 1) * GOLDEN) & WORD
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB & WORD
    return bits ^ (bits >> 31)


def below(bits: int, bound: int) -> int:
    """A number from 0 to bound - 1: floor(bits * bound / 2**64), uniform up to bound / 2**64."""
    return bits * bound >> 64
