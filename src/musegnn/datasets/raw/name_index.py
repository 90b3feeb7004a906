"""Names -> numbers in order of appearance, as a hash table of arrays.

A Python dict would hold an object for each name and be asked once for each field. Here names stay bytes in
one array, with about 50 bytes beside the name itself, and a whole block is looked up at once.
"""

import numpy as np
from jaxtyping import Int64, UInt8, UInt64
from numpy.typing import DTypeLike

from musegnn.datasets.raw.fields import PADDING, Fields
from musegnn.errors import InputError

FREE = -1


class NameIndex:
    """All names met so far. Names of one hash are told apart by their text: none are ever mixed up."""

    def __init__(self) -> None:
        self._seed = 0
        self._slots = np.full(1 << 10, FREE, dtype=np.int64)
        self._hashes = _Growing(np.uint64)
        self._text = _Growing(np.uint8)
        self._offsets = _Growing(np.int64)
        self._offsets.append(np.zeros(1, dtype=np.int64))

    def __len__(self) -> int:
        return self._hashes.count

    @property
    def text(self) -> UInt8[np.ndarray, " bytes"]:
        """All names in order, each ended by a newline."""
        return self._text.values

    @property
    def offsets(self) -> Int64[np.ndarray, " names_plus_1"]:
        """Where in the text each name begins."""
        return self._offsets.values

    def numbers(self, names: Fields, *, add: bool) -> Int64[np.ndarray, " names"]:
        """The number of each name; a new one gets the next number, or -1 if not to be added."""
        while True:
            hashes = names.hashes(self._seed)
            numbers = self._find(hashes)
            is_new = numbers == FREE
            new = np.flatnonzero(is_new)
            _, first, which = np.unique(hashes[new], return_index=True, return_inverse=True)
            known = self._fields(numbers[~is_new])
            if names.take(~is_new).equal(known) and names.take(new).equal(names.take(new[first][which])):
                break
            # Two names of one hash: in one of thirty million graphs with a million names.
            self._rehash()
        if add:
            order = np.argsort(first)
            place = np.empty_like(order)
            place[order] = np.arange(len(self), len(self) + len(order))
            numbers[new] = place[which]
            self._append(names.take(new[first[order]]), hashes[new[first[order]]])
        return numbers

    def _fields(self, numbers: Int64[np.ndarray, " names"]) -> Fields:
        starts = self.offsets[numbers]
        return Fields(self._text.padded, starts, self.offsets[numbers + 1] - 1 - starts)

    def _find(self, hashes: UInt64[np.ndarray, " names"]) -> Int64[np.ndarray, " names"]:
        """The number of the name with each hash, or FREE."""
        numbers = np.full(len(hashes), FREE, dtype=np.int64)
        slots = self._first_slots(hashes)
        left = np.arange(len(hashes))
        while len(left):
            found = self._slots[slots[left]]
            left, found = left[found != FREE], found[found != FREE]
            is_same = self._hashes.values[found] == hashes[left]
            numbers[left[is_same]] = found[is_same]
            left = left[~is_same]
            slots[left] = (slots[left] + 1) % len(self._slots)
        return numbers

    def _append(self, names: Fields, hashes: UInt64[np.ndarray, " names"]) -> None:
        first = len(self)
        lines = names.lines()
        if np.count_nonzero(lines == ord("\n")) > len(names):
            broken = next(name for name in map(names.__getitem__, range(len(names))) if "\n" in name)
            raise InputError(f"The node name {broken!r} holds a line break. Take it out.")
        self._offsets.append(self.offsets[-1] + np.cumsum(names.lengths + 1))
        self._text.append(lines)
        self._hashes.append(hashes)
        if 2 * len(self) > len(self._slots):
            self._slots = np.full(1 << (4 * len(self)).bit_length() - 1, FREE, dtype=np.int64)
            first = 0
        self._place(first)

    def _place(self, first: int) -> None:
        """Put the names from `first` on into the first free slots from where their hashes point."""
        left = np.arange(first, len(self))
        slots = self._first_slots(self._hashes.values[first:])
        while len(left):
            is_free = self._slots[slots] == FREE
            # Of several names that want one slot, the last one gets it.
            self._slots[slots[is_free]] = left[is_free]
            is_left = self._slots[slots] != left
            left, slots = left[is_left], (slots[is_left] + 1) % len(self._slots)

    def _rehash(self) -> None:
        self._seed += 1
        self._hashes.values[:] = self._fields(np.arange(len(self))).hashes(self._seed)
        self._slots[:] = FREE
        self._place(0)

    def _first_slots(self, hashes: UInt64[np.ndarray, " names"]) -> Int64[np.ndarray, " names"]:
        return (hashes & np.uint64(len(self._slots) - 1)).astype(np.int64)


class _Growing:
    """An array that grows at its end, by doubling."""

    def __init__(self, dtype: DTypeLike) -> None:
        self.count = 0
        self._room = np.zeros(1 << 10, dtype=dtype)

    @property
    def values(self) -> np.ndarray:
        return self._room[: self.count]

    @property
    def padded(self) -> np.ndarray:
        return self._room[: self.count + PADDING]

    def append(self, values: np.ndarray) -> None:
        needed = self.count + len(values) + PADDING
        if needed > len(self._room):
            room = np.zeros(max(needed, 2 * len(self._room)), dtype=self._room.dtype)
            room[: self.count] = self.values
            self._room = room
        self._room[self.count : self.count + len(values)] = values
        self.count += len(values)
