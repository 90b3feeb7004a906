"""A fused step and the way back through it, for tensors of one kind."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from musegnn import ops
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows

Mask = UInt8[Tensor, "nodes bytes"]


@runtime_checkable
class Kernel(Protocol):
    """What `Fused` asks for: a step that is affine before an entrywise penalty, and its transpose."""

    gamma: float | Tensor
    """The weight of mu in B = Z + gamma mu."""

    def empty(self, like: Rows) -> Rows:
        """Memory for rows."""

    def spare(self, like: Rows) -> AbstractContextManager[tuple[Rows, Rows]]:
        """Memory for rows twice, until the context ends."""

    def mask(self, like: Rows) -> Mask | None:
        """Memory for a bit of each entry; None if the step is linear."""

    def set_target(self, Z: Rows, mu: Rows | None, B: Rows) -> None:
        """B = Z + gamma mu."""

    def descend(self, U: Rows, B: Rows, out: Rows, mask: Mask | None, *, watch: bool) -> float:
        """out = prox(T U + a B), its mask, and if asked <U, H U - 2 B> and the penalty at U, else 0."""

    def cut(self, V: Rows, mask: Mask) -> None:
        """V = S * V, in place."""

    def pull_back(self, V: Rows, mask: Mask | None, total: Rows, out: Rows) -> None:
        """total += a V;  out = S * (T' V), or T' V without a mask."""


_SPARE: list[UInt8[np.ndarray, " bytes"]] = []
"""Two pieces of memory, as large as the largest that were asked for, for whoever comes next."""


def _take(size: int) -> UInt8[np.ndarray, " bytes"]:
    try:
        part = _SPARE.pop()
    except IndexError:
        part = np.empty(0, dtype=np.uint8)
    return part if part.nbytes >= size else np.empty(size, dtype=np.uint8)


class CpuKernel:
    """The kernels of `musegnn.ops`, on one sample."""

    def __init__(self, sample: Sample, step: ops.Step, clip: ops.Clip, gamma: float | Tensor) -> None:
        self.sample, self.step, self.clip, self.gamma = sample, step, clip, gamma

    def empty(self, like: Rows) -> Rows:
        """Of NumPy, which asks for huge pages: fresh memory costs as much as a step otherwise."""
        return torch.from_numpy(np.empty(like.shape, dtype=like.numpy().dtype))

    @contextmanager
    def spare(self, like: Rows) -> Iterator[tuple[Rows, Rows]]:
        """Memory that was used before, if there is some: to touch fresh memory costs more than a step."""
        taken = [_take(like.nbytes) for _ in range(2)]
        dtype = like.numpy().dtype
        first, second = (torch.from_numpy(part[: like.nbytes].view(dtype)).view(like.shape) for part in taken)
        yield first, second
        _SPARE.extend(taken)
        del _SPARE[2:]

    def set_target(self, Z: Rows, mu: Rows | None, B: Rows) -> None:
        """In one pass."""
        if mu is None or (isinstance(self.gamma, float) and self.gamma == 0):
            B.copy_(Z)
        elif isinstance(self.gamma, Tensor):
            torch.addcmul(Z, self.gamma, mu, out=B)
        else:
            torch.add(Z, mu, alpha=self.gamma, out=B)

    def mask(self, like: Rows) -> Mask | None:
        """A bit for each entry."""
        if self.clip.is_free:
            return None
        return torch.from_numpy(np.empty((len(like), ops.num_bytes(like.shape[1])), dtype=np.uint8))

    def descend(self, U: Rows, B: Rows, out: Rows, mask: Mask | None, *, watch: bool) -> float:
        """`musegnn.ops.descend`."""
        marks = None if mask is None else mask.numpy()
        energy = ops.descend(
            self.sample.indptr,
            self.sample.indices,
            self.step,
            U.numpy(),
            B.numpy(),
            self.clip,
            out.numpy(),
            marks,
            watch=watch,
            threads=torch.get_num_threads(),
        )
        return 0.0 if energy is None else energy

    def cut(self, V: Rows, mask: Mask) -> None:
        """`musegnn.ops.cut`."""
        ops.cut(V.numpy(), mask.numpy(), threads=torch.get_num_threads())

    def pull_back(self, V: Rows, mask: Mask | None, total: Rows, out: Rows) -> None:
        """`musegnn.ops.pull_back`."""
        marks = None if mask is None else mask.numpy()
        ops.pull_back(
            self.sample.indptr,
            self.sample.indices,
            self.step,
            V.numpy(),
            marks,
            total.numpy(),
            out.numpy(),
            threads=torch.get_num_threads(),
        )
