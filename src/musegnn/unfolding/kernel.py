"""A fused step and the way back through it, for tensors of one kind."""

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

    def empty(self, like: Rows) -> Rows:
        """Memory for rows."""

    def mask(self, like: Rows) -> Mask | None:
        """Memory for a bit of each entry; None if the step is linear."""

    def descend(self, U: Rows, B: Rows, out: Rows, mask: Mask | None, *, watch: bool) -> float | None:
        """out = prox(T U + a B), its mask, and if asked <U, H U - 2 B> and the penalty at U."""

    def cut(self, V: Rows, mask: Mask) -> None:
        """V = S * V, in place."""

    def pull_back(self, V: Rows, mask: Mask | None, total: Rows, out: Rows) -> None:
        """total += a V;  out = S * (T' V), or T' V without a mask."""


class CpuKernel:
    """The kernels of `musegnn.ops`, on one sample."""

    def __init__(self, sample: Sample, step: ops.Step, clip: ops.Clip) -> None:
        self.sample, self.step, self.clip = sample, step, clip

    def empty(self, like: Rows) -> Rows:
        """Of NumPy, which asks for huge pages: fresh memory costs as much as a step otherwise."""
        return torch.from_numpy(np.empty(like.shape, dtype=like.numpy().dtype))

    def mask(self, like: Rows) -> Mask | None:
        """A bit for each entry."""
        if self.clip.is_free:
            return None
        return torch.from_numpy(np.empty((len(like), ops.num_bytes(like.shape[1])), dtype=np.uint8))

    def descend(self, U: Rows, B: Rows, out: Rows, mask: Mask | None, *, watch: bool) -> float | None:
        """`musegnn.ops.descend`."""
        marks = None if mask is None else mask.numpy()
        return ops.descend(
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
