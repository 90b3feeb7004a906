"""Dropout by its definition."""

import numpy as np
from jaxtyping import Float

from musegnn.ops.random_bits.reference import random_bits

LANES = 4
"""Entries that share the 64 bits of one random number, 16 for each."""


def dropout(
    X: Float[np.ndarray, " n"],
    key: int,
    threshold: int,
    *,
    relu: bool,
    out: Float[np.ndarray, " n"],
    threads: int = 1,
) -> None:
    """See `musegnn.ops.dropout`."""
    words = random_bits(key, np.arange(-(-len(X) // LANES), dtype=np.uint64))
    lanes = (words[:, None] >> (16 * np.arange(LANES, dtype=np.uint64))) & np.uint64(0xFFFF)
    stays = lanes.reshape(-1)[: len(X)] >= threshold
    if relu:
        # Written so that NaN stays NaN: a run must find out.
        stays &= ~(X <= 0)
    out[:] = np.where(stays, X * X.dtype.type(65536 / (65536 - threshold)), X.dtype.type(0))
