"""Many short strings as pieces of one text, eight bytes at a time: no Python object for each of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, UInt8, UInt64

PADDING = 8
"""Bytes behind the text, so that a word may be read from any place in it."""

_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], dtype=np.uint64)
# Of splitmix64 (Steele, Lea, Flood 2014): odd, with well spread bits.
_FACTORS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))


@dataclass(frozen=True, slots=True)
class Fields:
    """String i is `text[starts[i] : starts[i] + lengths[i]]`, in UTF-8."""

    text: UInt8[np.ndarray, " bytes"]
    """With `PADDING` bytes behind the last string."""
    starts: Int64[np.ndarray, " strings"]
    lengths: Int64[np.ndarray, " strings"]

    @classmethod
    def of(cls, strings: Sequence[str]) -> "Fields":
        """From Python strings."""
        encoded = [string.encode() for string in strings]
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(encoded))
        text = np.frombuffer(b"".join(encoded) + bytes(PADDING), dtype=np.uint8)
        return cls(text, np.cumsum(lengths) - lengths, lengths)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, i: int) -> str:
        return self.text[self.starts[i] : self.starts[i] + self.lengths[i]].tobytes().decode()

    def take(self, chosen: np.ndarray) -> "Fields":
        """Some of the strings, by number or by mask."""
        return Fields(self.text, self.starts[chosen], self.lengths[chosen])

    def hashes(self, seed: int) -> UInt64[np.ndarray, " strings"]:
        """64 bits that are equal for equal strings, and for hardly any others."""
        # Multiplication is meant to wrap; NumPy warns of it for a scalar only.
        result = (self.lengths.astype(np.uint64) + np.uint64(seed)) * _FACTORS[0]
        for longer, words in self._words():
            mixed = (result[longer] ^ words) * _FACTORS[1]
            result[longer] = mixed ^ (mixed >> np.uint64(29))
        result *= _FACTORS[2]
        return result ^ (result >> np.uint64(32))

    def equal(self, others: "Fields") -> bool:
        """Whether every string is the same as the other one of its number."""
        if not np.array_equal(self.lengths, others.lengths):
            return False
        pairs = zip(self._words(), others._words(), strict=True)
        return all(np.array_equal(mine, theirs) for (_, mine), (_, theirs) in pairs)

    def lines(self) -> UInt8[np.ndarray, " bytes"]:
        """The strings one after the other, each ended by a newline."""
        ends = np.cumsum(self.lengths + 1)
        places = np.arange(ends[-1] if len(ends) else 0)
        places += np.repeat(self.starts - (ends - self.lengths - 1), self.lengths + 1)
        lines = self.text[places]
        lines[ends - 1] = ord("\n")
        return lines

    def _words(self) -> Iterator[tuple[np.ndarray, UInt64[np.ndarray, " longer"]]]:
        """Eight bytes after the other: which strings reach that far, and what they have there."""
        at_any_byte = np.ndarray(
            (len(self.text) - PADDING + 1,), dtype="<u8", buffer=self.text.data, strides=(1,)
        )
        longer, starts, left = np.arange(len(self)), self.starts, self.lengths
        while len(longer):
            is_longer = left > 0
            if not is_longer.all():
                longer, starts, left = longer[is_longer], starts[is_longer], left[is_longer]
            yield longer, at_any_byte[starts] & _MASKS[np.minimum(left, 8)]
            starts, left = starts + 8, left - 8
