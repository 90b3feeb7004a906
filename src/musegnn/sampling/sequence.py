"""Samples that are asked for by number, drawn or stored."""

import operator
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import overload

from musegnn.sampling.record import Sample


class Samples(Sequence[Sample]):
    """`samples[i]`, `samples[-1]`, `samples[2:5]`, `for sample in samples`."""

    @abstractmethod
    def sample(self, index: int) -> Sample:
        """The sample with this number, from 0 to len - 1."""

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self.sample(i) for i in range(*index.indices(len(self)))]
        return self.sample(self.number(index))

    def __iter__(self) -> Iterator[Sample]:
        return (self.sample(i) for i in range(len(self)))

    def number(self, index: int) -> int:
        """An index that may count from the end, as one that counts from the beginning."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        return operator.index(index) % len(self)
