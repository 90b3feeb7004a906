"""What a step is made of, how a mask lies in memory, and how the work is cut."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int64, UInt8


class Step(NamedTuple):
    """An affine map of rows: X -> keep X + left A (right X) + take B. Its transpose swaps left and right."""

    keep: Float[np.ndarray, " nodes"]
    left: Float[np.ndarray, " nodes"]
    right: Float[np.ndarray, " nodes"]
    take: Float[np.ndarray, " nodes"]
    """Also the step size of each row: the prox is taken at half of it."""


class Clip(NamedTuple):
    """A penalty entry by entry: weight |y| where low <= y <= high, infinite elsewhere."""

    weight: float = 0.0
    low: float = -np.inf
    high: float = np.inf

    @property
    def is_free(self) -> bool:
        """Whether there is no penalty."""
        return self == Clip()


WIDTH = 64
"""Columns in a block of a mask. The row of a hub may be cut between blocks, so that threads share it."""
BITS = 8
"""Columns in a byte of a mask."""


def blocks(dim: int) -> list[tuple[int, int]]:
    """The columns, cut."""
    return [(first, min(first + WIDTH, dim)) for first in range(0, dim, WIDTH)]


def num_bytes(dim: int) -> int:
    """Of a row of a mask."""
    return -(-dim // BITS)


def pack(is_free: Bool[np.ndarray, "nodes dim"]) -> UInt8[np.ndarray, "nodes bytes"]:
    """A bit for each entry. Bit q of byte c of a block of columns is its column q w + c, w bytes long.

    So the bits of neighboring columns lie in neighboring bytes, and all move at once.
    """
    mask = np.zeros((len(is_free), num_bytes(is_free.shape[1])), dtype=np.uint8)
    for byte, columns, bit in _places(is_free.shape[1]):
        mask[:, byte] |= is_free[:, columns].astype(np.uint8) << np.uint8(bit)
    return mask


def unpack(mask: UInt8[np.ndarray, "nodes bytes"], dim: int) -> Bool[np.ndarray, "nodes dim"]:
    """The entries of a mask."""
    is_free = np.empty((len(mask), dim), dtype=bool)
    for byte, columns, bit in _places(dim):
        is_free[:, columns] = mask[:, byte] >> np.uint8(bit) & np.uint8(1)
    return is_free


def _places(dim: int) -> Iterator[tuple[slice, slice, int]]:
    for first, last in blocks(dim):
        begin, size = first // BITS, num_bytes(last - first)
        for bit in range(BITS):
            columns = slice(first + bit * size, min(first + (bit + 1) * size, last))
            count = max(0, columns.stop - columns.start)
            yield slice(begin, begin + count), slice(columns.start, columns.start + count), bit


def tasks(
    indptr: Int64[np.ndarray, " nodes_plus_1"], dim: int, threads: int
) -> list[tuple[int, int, int, int]]:
    """Ranges of rows and columns of about equal work: (first row, last row, first column, last column).

    A row that is a piece by itself is a hub's, and cut: nobody waits for who adds up 20,000 neighbors.
    """
    n = len(indptr) - 1
    if threads == 1:
        return [(0, n, 0, dim)]
    # A row costs its entries, and itself.
    work = indptr + np.arange(n + 1)
    shares = np.searchsorted(work, np.linspace(0, work[-1], _PIECES * threads + 1))
    # A row of more than a share must not hide behind others in its piece.
    hubs = np.flatnonzero(np.diff(work) * (_PIECES * threads) > work[-1])
    cuts = np.unique(np.concatenate([shares, hubs, hubs + 1]))
    pieces = []
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        columns = blocks(dim) if end == begin + 1 else [(0, dim)]
        pieces += [(begin, end, first, last) for first, last in columns]
    return pieces


_PIECES = 8
"""For each thread, so that all end together."""
