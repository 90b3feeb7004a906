"""A fused step and the way back through it, for tensors of one kind."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from musegnn import ops
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.resident import Resident, levels_of

Mask = UInt8[Tensor, "nodes bytes"]
Between = tuple[bool, bool]
NOWHERE: Between = (False, False)


@runtime_checkable
class Kernel(Protocol):
    """What `Fused` asks for: a step that is affine before an entrywise penalty, and its transpose.

    With a `limit`, only rows at most so many edges away from the seeds are computed; the others of `out` and
    `mask` are left as they are. What is `between` two steps (where this one starts, where it leads) nobody
    else sees: a kernel may keep it in a form of its own.
    """

    dtypes: frozenset[torch.dtype]
    """That rows may be kept in; sums are exact enough whichever it is."""
    gamma: float | Tensor
    """The weight of mu in B = Z + gamma mu."""
    row_bytes: int | None
    """Of the columns that go through all K steps together, or None: all. Fewer take less memory."""

    def empty(self, like: Rows) -> Rows:
        """Memory for rows."""

    def spare(self, like: Rows, count: int) -> AbstractContextManager[list[Rows]]:
        """Memory for rows, a few times, until the context ends."""

    def mask(self, like: Rows) -> Mask | None:
        """Memory for a bit of each entry; None if the step is linear."""

    def descend(
        self,
        U: Rows,
        B: Rows,
        out: Rows,
        mask: Mask | None,
        *,
        watch: bool,
        limit: int | None = None,
        between: Between = NOWHERE,
    ) -> float:
        """out = prox(T U + a B), its mask, and if asked <U, H U - 2 B> and the penalty at U, else 0."""

    def cut(self, V: Rows, mask: Mask) -> None:
        """V = S * V, in place."""

    def pull_back(
        self,
        V: Rows,
        mask: Mask | None,
        total: Rows,
        out: Rows,
        *,
        limit: int | None = None,
        between: Between = NOWHERE,
    ) -> None:
        """total += a V;  out = S * (T' V), or T' V without a mask."""


def set_target(kernel: Kernel, Z: Rows, mu: Rows, B: Rows) -> None:
    """B = Z + gamma mu, in one pass."""
    if isinstance(kernel.gamma, Tensor):
        torch.addcmul(Z, kernel.gamma.to(Z.dtype), mu.to(Z.dtype), out=B)
    else:
        torch.add(Z, mu.to(Z.dtype), alpha=kernel.gamma, out=B)


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

    dtypes = frozenset({torch.float32, torch.float64})
    row_bytes: int | None = None

    def __init__(self, sample: Sample, step: ops.Step, clip: ops.Clip, gamma: float | Tensor) -> None:
        self.sample, self.step, self.clip, self.gamma = sample, step, clip, gamma

    def empty(self, like: Rows) -> Rows:
        """Of NumPy, which asks for huge pages: fresh memory costs as much as a step otherwise."""
        return torch.from_numpy(np.empty(like.shape, dtype=like.numpy().dtype))

    @contextmanager
    def spare(self, like: Rows, count: int) -> Iterator[list[Rows]]:
        """Memory that was used before, if there is some: to touch fresh memory costs more than a step."""
        taken = [_take(like.nbytes) for _ in range(count)]
        dtype = like.numpy().dtype
        yield [torch.from_numpy(part[: like.nbytes].view(dtype)).view(like.shape) for part in taken]
        _SPARE.extend(taken)
        del _SPARE[2:]

    def mask(self, like: Rows) -> Mask | None:
        """A bit for each entry."""
        if self.clip.is_free:
            return None
        return torch.from_numpy(np.empty((len(like), ops.num_bytes(like.shape[1])), dtype=np.uint8))

    def descend(
        self,
        U: Rows,
        B: Rows,
        out: Rows,
        mask: Mask | None,
        *,
        watch: bool,
        limit: int | None = None,
        between: Between = NOWHERE,
    ) -> float:
        """`musegnn.ops.descend`."""
        energy = ops.descend(
            self.sample.indptr,
            self.sample.indices,
            self.step,
            U.numpy(),
            B.numpy(),
            self.clip,
            out.numpy(),
            None if mask is None else mask.numpy(),
            watch=watch,
            **self._some(limit),
            threads=torch.get_num_threads(),
        )
        return 0.0 if energy is None else energy

    def cut(self, V: Rows, mask: Mask) -> None:
        """`musegnn.ops.cut`."""
        ops.cut(V.numpy(), mask.numpy(), threads=torch.get_num_threads())

    def pull_back(
        self,
        V: Rows,
        mask: Mask | None,
        total: Rows,
        out: Rows,
        *,
        limit: int | None = None,
        between: Between = NOWHERE,
    ) -> None:
        """`musegnn.ops.pull_back`."""
        ops.pull_back(
            self.sample.indptr,
            self.sample.indices,
            self.step,
            V.numpy(),
            None if mask is None else mask.numpy(),
            total.numpy(),
            out.numpy(),
            **self._some(limit),
            threads=torch.get_num_threads(),
        )

    def _some(self, limit: int | None) -> dict[str, Any]:
        return {} if limit is None else {"levels": levels_of(self.sample), "limit": limit}


class GpuKernel:
    """The kernels of `musegnn.ops.descend.triton`."""

    dtypes = frozenset({torch.bfloat16, torch.float32, torch.float64})
    row_bytes: int | None = 512

    def __init__(
        self,
        graph: Resident,
        step: Sequence[Tensor],
        clip: ops.Clip,
        gamma: float | Tensor,
        *,
        has_edges: bool = True,
    ) -> None:
        # Here, not above: without a GPU nobody needs Triton.
        from musegnn.ops.descend import triton

        self._ops, self.graph, self.clip, self.gamma = triton, graph, clip, gamma
        self.step = triton.Coefficients(*step)
        self._has_edges = has_edges
        """Whether the neighbors count, so that what they are scaled by is no zero."""

    def empty(self, like: Rows) -> Rows:
        """Of torch, which keeps what is freed."""
        return torch.empty_like(like)

    @contextmanager
    def spare(self, like: Rows, count: int) -> Iterator[list[Rows]]:
        """Of torch."""
        yield [torch.empty_like(like) for _ in range(count)]

    def mask(self, like: Rows) -> Mask | None:
        """A bit for each entry."""
        if self.clip.is_free:
            return None
        return like.new_empty((len(like), ops.num_bytes(like.shape[1])), dtype=torch.uint8)

    def descend(
        self,
        U: Rows,
        B: Rows,
        out: Rows,
        mask: Mask | None,
        *,
        watch: bool,
        limit: int | None = None,
        between: Between = NOWHERE,
    ) -> float:
        """`musegnn.ops.descend`; what is watched takes a step more, without the penalty."""
        energy = 0.0
        if watch:
            self._ops.descend(self.graph.csr, self.step, U, B, ops.Clip(), out, None)
            take = self.step.take[:, None]
            value = U * ((U - out) / take - B) + self.clip.weight * U.abs()
            energy = float(value.sum(dtype=torch.float64))
        some = self._some(limit), self._kept(between)
        self._ops.descend(self.graph.csr, self.step, U, B, self.clip, out, mask, *some)
        return energy

    def cut(self, V: Rows, mask: Mask) -> None:
        """`musegnn.ops.cut`."""
        self._ops.cut(V, mask)

    def pull_back(
        self,
        V: Rows,
        mask: Mask | None,
        total: Rows,
        out: Rows,
        *,
        limit: int | None = None,
        between: Between = NOWHERE,
    ) -> None:
        """`musegnn.ops.pull_back`."""
        some = self._some(limit), self._kept(between)
        self._ops.pull_back(self.graph.csr, self.step, V, mask, total, out, *some)

    def _some(self, limit: int | None) -> Any:
        return None if limit is None else self._ops.Levels(self.graph.levels, limit)

    def _kept(self, between: Between) -> Any:
        return self._ops.Kept(*between) if self._has_edges else self._ops.Kept()
