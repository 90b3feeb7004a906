"""What is made of a sample once, before its steps: its matrix on a device, and the levels of its nodes.

Both are kept as long as the sample lives; a loader makes them ahead of time. Its relations are matrices too.
"""

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor

from musegnn import ops
from musegnn.extras import has_triton
from musegnn.sampling.record import Sample

if TYPE_CHECKING:
    from musegnn.ops.descend.triton import Csr

Levels = UInt8[np.ndarray, " nodes"]

_levels: "WeakKeyDictionary[Sample, Levels]" = WeakKeyDictionary()
_resident: "WeakKeyDictionary[Matrix, Resident]" = WeakKeyDictionary()


@runtime_checkable
class Matrix(Protocol):
    """Rows of zeros and ones: a sample, or one of its relations."""

    @property
    def indptr(self) -> np.ndarray:
        """Where each row begins, and the end of the last."""

    @property
    def indices(self) -> np.ndarray:
        """Columns."""


class Resident(NamedTuple):
    """A matrix on a device."""

    csr: "Csr"
    levels: UInt8[Tensor, " nodes"]
    """Those of a sample's nodes; a relation alone has none."""

    @property
    def degree(self) -> Int64[Tensor, " nodes"]:
        """Neighbors of each node."""
        return self.csr.indptr.diff()

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Resident":
        """A copy there."""
        csr = self.csr.to(device, non_blocking=non_blocking)
        levels = self.levels.to(device, non_blocking=non_blocking)
        return Resident(csr, levels)

    def pin_memory(self) -> "Resident":
        """A copy that a device can read by itself."""
        return Resident(self.csr.pin_memory(), self.levels.pin_memory())

    def tensors(self) -> list[Tensor]:
        """All of it."""
        return [*self.csr, self.levels]


def levels_of(sample: Sample) -> Levels:
    """How many edges each node is away from the seeds.

    Y^(K - k) of a node changes Y^(K) of the seeds only if it is at most k edges away.
    """
    if sample not in _levels:
        _levels[sample] = ops.hops(sample.indptr, sample.indices, sample.num_seeds)
    return _levels[sample]


def prepared(matrix: Matrix) -> Resident:
    """What a device will need, on the CPU."""
    from musegnn.ops.descend.triton import cut_rows

    levels = levels_of(matrix) if isinstance(matrix, Sample) else np.empty(0, dtype=np.uint8)
    return Resident(cut_rows(matrix.indptr, matrix.indices), torch.from_numpy(levels))


def keep(matrix: Matrix, resident: Resident) -> None:
    """This is the matrix on the device."""
    _resident[matrix] = resident


def resident(matrix: Matrix, device: torch.device) -> Resident:
    """The matrix on the device; moved there if it is not yet."""
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    found = _resident.get(matrix)
    if found is None or found.levels.device != device:
        found = prepared(matrix).to(device)
        _resident[matrix] = found
    return found


def degree_of(matrix: Matrix, device: torch.device) -> Int64[Tensor, " nodes"]:
    """Entries of each row, on a GPU if the matrix is there."""
    if device.type == "cuda" and has_triton():
        return resident(matrix, device).degree
    return torch.from_numpy(np.diff(matrix.indptr)).to(device)
