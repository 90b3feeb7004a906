"""Node names: UTF-8 lines in one byte array and where each begins, so that millions of names stay on disk."""

from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np

from musegnn.errors import InputError, StoreError

_PIECE = 1 << 24
"""Bytes of text that `find` holds at once."""


class Names(Sequence[str]):
    """A sequence of names over two arrays that may be mapped: `names[i]`, and `names.find(name)`.

    Name i is `text[offsets[i] : offsets[i + 1] - 1]`; each name ends with one newline byte.
    """

    def __init__(self, text: np.ndarray, offsets: np.ndarray) -> None:
        self.text = text
        self.offsets = offsets

    @classmethod
    def of(cls, names: Sequence[str]) -> "Names":
        """From Python strings; a name may not hold a newline."""
        if isinstance(names, Names):
            return names
        try:
            encoded = [name.encode() for name in names]
        except (AttributeError, UnicodeEncodeError) as error:
            raise InputError(
                f"node_names must be text that UTF-8 can hold ({error}). Pass a str for each node."
            ) from error
        for i, name in enumerate(encoded):
            if b"\n" in name:
                raise InputError(f"node_names[{i}] holds a newline: {names[i]!r}. Take it out.")
        lengths = np.fromiter((len(name) + 1 for name in encoded), dtype=np.int64, count=len(encoded))
        text = np.frombuffer(b"".join(name + b"\n" for name in encoded), dtype=np.uint8)
        return cls(text, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))

    def verify(self) -> None:
        """Each name ends where the next begins, with a newline."""
        ends = np.asarray(self.offsets[1:]) - 1
        in_order = self.offsets[0] == 0 and bool((ends >= self.offsets[:-1]).all())
        if not in_order or ends[-1] != len(self.text) - 1 or (self.text[ends] != ord("\n")).any():
            raise StoreError("The node names do not fit their offsets: the graph is damaged. Write it again.")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"node {index} of {len(self)}")
        index %= len(self)
        begin, end = int(self.offsets[index]), int(self.offsets[index + 1])
        # In a damaged store, which `Graph.verify` finds, a name may be anything.
        return self.text[begin : end - 1].tobytes().decode(errors="replace")

    def __iter__(self) -> Iterator[str]:
        return (self[i] for i in range(len(self)))

    def find(self, name: str) -> int:
        """The node of this name; scans the text from its beginning."""
        # No name holds a newline, nor a surrogate (from an argument that is no UTF-8).
        line = name.encode(errors="surrogatepass") + b"\n"
        num_bytes = 0 if "\n" in name else len(self.text)
        # The text in pieces that overlap by one line, so that a mapped file is not read into memory at once.
        for start in range(0, num_bytes, _PIECE):
            piece = self.text[max(0, start - 1) : start + _PIECE + len(line)].tobytes()
            piece = piece if start else b"\n" + piece
            at = piece.find(b"\n" + line)
            if at >= 0:
                return int(np.searchsorted(self.offsets, start + at))
        raise InputError(f"No node is called {name!r}. Names are case-sensitive; try the node's number.")
