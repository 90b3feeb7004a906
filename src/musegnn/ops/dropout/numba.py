"""Dropout in one pass, by threads; torch draws its numbers one after the other."""

from typing import no_type_check

import numpy as np
from jaxtyping import Float

from musegnn.ops.kernel import kernel
from musegnn.ops.parallel import run
from musegnn.ops.random_bits.numba import bits_at

_LANES, _BITS, _LOW = 4, np.uint64(16), np.uint64(0xFFFF)
_PIECE = 1 << 18
"""Numbers of a task, all but the last a multiple of the lanes."""


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
    scale = X.dtype.type(65536 / (65536 - threshold))
    size = len(X) if threads == 1 else _PIECE
    pieces = [(begin, min(begin + size, len(X))) for begin in range(0, len(X), max(size, 1))]
    settings = np.uint64(key), np.uint64(threshold), scale, relu
    run(_dropout, [(begin, end, X, *settings, out) for begin, end in pieces], threads)


@kernel
@no_type_check
def _dropout(begin, end, X, key, threshold, scale, relu, out):
    zero = X.dtype.type(0)
    whole = begin + (end - begin) // _LANES * _LANES
    for i in range(begin, whole, _LANES):
        bits = bits_at(key, np.uint64(i // _LANES))
        for lane in range(_LANES):
            x = X[i + lane]
            stays = bits & _LOW >= threshold
            if relu:
                stays = stays & (not x <= zero)
            out[i + lane] = x * scale if stays else zero
            bits >>= _BITS
    if whole < end:
        bits = bits_at(key, np.uint64(whole // _LANES))
        for i in range(whole, end):
            stays = bits & _LOW >= threshold
            if relu:
                stays = stays & (not X[i] <= zero)
            out[i] = X[i] * scale if stays else zero
            bits >>= _BITS
