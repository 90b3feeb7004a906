"""K steps and the way back, without a tape over the steps.

Two ways. Where the step is fused and the penalty is entrywise, K masks of one bit an entry are kept:

    G_{k-1} = (I - H a) (S_k * G_k),   dB = sum_k a (S_k * G_k),   dY^0 = G_0

Everywhere else (other penalties, learned lambda or gamma, other energies) every few Y^k are kept, the others
are computed again, and the way back goes through one step at a time: as the energy has written it out
(`AbstractProblem.back`), or by autograd.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from musegnn.unfolding.acceleration import Pace
from musegnn.unfolding.contract import Wanted
from musegnn.unfolding.kernel import Kernel, Mask, set_target
from musegnn.unfolding.penalty import Rows, SeedRows

Observe = Callable[[int, Rows, Rows], None]
"""Told of each step: its number, where it started, where it led."""


class Make(ABC):
    """A problem from its means and what is learned, at its pace.

    Anew in each step back by autograd, which sees what it is made of.
    """

    own: Sequence[Tensor | None]
    """Of what is learned, what the problem knows by itself: gradients are of these very tensors."""

    @abstractmethod
    def __call__(self, mu: Rows | None, learned: Sequence[Tensor | None]) -> Pace:
        """The problem."""


def as_they_are(rows: Rows) -> AbstractContextManager[object]:
    """Autocast is for f and g: what steps are made in is said by the rows themselves."""
    return torch.autocast(rows.device.type, enabled=False)


class Focus(NamedTuple):
    """Only the seeds' rows of Y have a gradient, so that what they do not depend on is left out."""

    num_seeds: int
    keeps_all: bool
    """Whether the others' rows of Y are asked for all the same."""


class Fused(Function):
    """K fused steps; K masks are kept. Columns do not know of each other: a few at a time go all the way."""

    @staticmethod
    def forward(
        ctx: Any,
        Z: Tensor,
        start: Tensor | None,
        mu: Tensor | None,
        kernel: Kernel,
        steps: int,
        observe: Observe | None,
        energies: list[float] | None,
        focus: Focus | None = None,
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        """`energies` is filled with those of Y^0, ..., Y^K, up to a constant, unless it is None.

        With a focus, the seeds' rows of Y, and then Y without a gradient, or None.
        """
        Z, ctx.starts_at_Z = Z.contiguous(), start is None
        start = Z if start is None else start.contiguous()
        has_means = mu is not None and not (isinstance(kernel.gamma, float) and kernel.gamma == 0)
        is_short = focus is not None and not focus.keeps_all
        is_seen = observe is not None or energies is not None
        walk = _Walk(kernel, steps, is_short, any(ctx.needs_input_grad), observe, energies)
        blocks = _blocks(Z, None if is_seen else kernel.row_bytes)
        result, masks = kernel.empty(Z[: focus.num_seeds] if focus is not None and is_short else Z), []
        with kernel.spare(Z[:, blocks[0]], 1 + has_means + is_short) as spare:
            for block in blocks:
                other, *room = _as_wide(spare, block)
                B, Y = Z[:, block], room.pop() if is_short else result[:, block]
                if has_means:
                    assert mu is not None
                    set_target(kernel, Z[:, block], mu[:, block], B := room.pop())
                masks += walk.descend(start[:, block], B, Y, other)
                if is_short:
                    result[:, block] = Y[: len(result)]
        ctx.save_for_backward(*masks)
        ctx.kernel, ctx.steps, ctx.focus, ctx.blocks = kernel, steps, focus, blocks
        # The shape, without the memory.
        ctx.like = Z.new_empty(()).expand(Z.shape)
        if focus is None:
            return result
        # Or the gradient of what has none would be zeros, in memory.
        ctx.set_materialize_grads(False)
        if is_short:
            return result, None
        ctx.mark_non_differentiable(result)
        return result[: focus.num_seeds].clone(), result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of Z, the start and mu: dB (and dY^0 if that is Z), dY^0, gamma dB."""
        kernel, focus, (G, *_) = ctx.kernel, ctx.focus, grads
        assert G is not None
        dB, dstart, dmu = kernel.empty(ctx.like).zero_(), None, None
        if ctx.needs_input_grad[1]:
            dstart = kernel.empty(ctx.like)
        if ctx.needs_input_grad[2]:
            dmu = kernel.empty(ctx.like)
        with kernel.spare(dB[:, ctx.blocks[0]], 2) as spare:
            for number, block in enumerate(ctx.blocks):
                masks, total = ctx.saved_tensors[number * ctx.steps :][: ctx.steps], dB[:, block]
                V = _pull_back(kernel, ctx.steps, focus, G[:, block], masks, total, _as_wide(spare, block))
                if dmu is not None:
                    dmu[:, block] = kernel.gamma * total
                if ctx.starts_at_Z:
                    total += V
                elif dstart is not None:
                    dstart[:, block] = V
        return dB, dstart, dmu, None, None, None, None, None


def _blocks(rows: Rows, row_bytes: int | None) -> list[slice]:
    """The columns that go together."""
    dim = max(rows.shape[1], 1)
    width = dim if row_bytes is None else row_bytes // rows.element_size()
    return [slice(first, min(first + width, dim)) for first in range(0, dim, width)]


def _as_wide(spare: Sequence[Tensor], block: slice) -> list[Tensor]:
    """Its first columns, as many as the block has."""
    return [part[:, : block.stop - block.start] for part in spare]


class _Walk(NamedTuple):
    """K steps of some columns."""

    kernel: Kernel
    steps: int
    is_short: bool
    """Whether rows that the seeds do not depend on are left out."""
    wants_masks: bool
    observe: Observe | None
    energies: list[float] | None

    def descend(self, U: Rows, B: Rows, result: Rows, other: Rows) -> list[Mask]:
        """From U to `result`; the masks."""
        kernel, masks, watch = self.kernel, [], self.energies is not None
        is_alone = self.observe is None and not watch
        for k in range(self.steps, 0, -1):
            # The last step writes the result.
            Y = result if k % 2 else other
            mask = kernel.mask(U) if self.wants_masks else None
            limit = k - 1 if self.is_short else None
            between = (is_alone and k < self.steps, is_alone and k > 1)
            energy = kernel.descend(U, B, Y, mask, watch=watch, limit=limit, between=between)
            if self.energies is not None:
                self.energies.append(energy)
            if self.observe is not None:
                self.observe(self.steps - k + 1, U, Y)
            if mask is not None:
                masks.append(mask)
            U = Y
        if self.energies is not None:
            self.energies.append(kernel.descend(U, B, other, None, watch=True))
        if not self.steps:
            result.copy_(U)
        return masks


def _pull_back(
    kernel: Kernel,
    steps: int,
    focus: Focus | None,
    G: SeedRows,
    masks: Sequence[Mask],
    total: Rows,
    spare: Sequence[Rows],
) -> Rows:
    """From dY^K to dY^0, which is in one of the spare; `total` is dB."""
    V, out = spare
    if focus is not None:
        # Rows that no step has reached yet are read.
        V[focus.num_seeds :] = 0
        out.zero_()
    seeds = slice(None if focus is None else focus.num_seeds)
    V[seeds] = G
    if masks:
        kernel.cut(V[seeds], masks[-1][seeds])
    for k in range(steps, 0, -1):
        limit = None if focus is None else steps - k + 1
        mask = masks[k - 2] if masks and k > 1 else None
        kernel.pull_back(V, mask, total, out, limit=limit, between=(k < steps, k > 1))
        V, out = out, V
    return V


class Recomputed(Function):
    """K steps of any problem at any pace; about 2 sqrt(K) of the Y^k are kept, all of them up to K = 4.

    Between two of them, sqrt(K) / 2 are computed again: the way back of a step takes more than all these.
    Each Y^k is as Z is, whatever a step computes in.
    """

    @staticmethod
    def forward(
        ctx: Any,
        Z: Tensor,
        start: Tensor,
        mu: Tensor | None,
        pace: Pace,
        make: Make,
        steps: int,
        observe: Observe | None,
        energies: list[float] | None,
        *learned: Tensor | None,
    ) -> Tensor:
        """`learned` is what `make` puts into the problem; `pace` is what it makes of it, without a tape."""
        U, before, kept = start, start, list[Rows]()
        ctx.make, ctx.steps, ctx.stride = make, steps, 1 + isqrt(max(0, steps - 1) // 4)
        for k in range(steps):
            if k % ctx.stride == 0:
                kept += [U, before] if pace.looks_back else [U]
            Y = pace.step(k, U, before, Z).to(Z.dtype)
            if observe is not None:
                observe(k + 1, Y if pace.looks_back else U, Y)
            if energies is not None:
                energies.append(float(pace.problem.value(U, Z)))
            U, before = Y, U
        if energies is not None:
            energies.append(float(pace.problem.value(U, Z)))
        ctx.pace, ctx.num_learned = pace, len(learned)
        ctx.save_for_backward(Z, mu, *learned, U if pace.problem.looks_at_end else None, *kept)
        return U if steps else start.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of Z, the start, mu and what is learned."""
        Z, mu, *rest = ctx.saved_tensors
        learned, (end, *kept) = rest[: ctx.num_learned], rest[ctx.num_learned :]
        wants = ctx.needs_input_grad[0], ctx.needs_input_grad[2], *ctx.needs_input_grad[_LEARNED_FROM:]
        totals = [
            torch.zeros_like(part) if want else None
            for part, want in zip((Z, mu, *learned), wants, strict=True)
        ]
        back = _written_out if ctx.pace.problem.goes_back else _by_autograd
        # G is dY^k; of momentum, `later` is what Y^(k-1) counts for in Y^(k+1).
        G, later = grads[0], None
        with as_they_are(Z):
            for first in range((ctx.steps - 1) // ctx.stride * ctx.stride, -1, -ctx.stride):
                points = [*_points(ctx, kept, first, Z), end]
                for k in range(first + len(points) - 3, first - 1, -1):
                    near = points[k - first : k - first + 3]
                    dU, before, parts = back(ctx, k, near, (Z, mu, *learned), wants, G)
                    G, later = dU if later is None else dU + later, before
                    for total, part in zip(totals, parts, strict=True):
                        if total is not None and part is not None:
                            total.add_(part)
                end = points[1]
        G = G if later is None else G + later
        dZ, dmu, *found = totals
        return dZ, G, dmu, None, None, None, None, None, *found


_LEARNED_FROM = 8
"""Of what `Recomputed` takes."""
_Gradients = tuple[Rows, Rows | None, Sequence[Tensor | None]]
"""dY^k; dY^(k-1) if that counts; and of the step from Y^k to Y^(k+1) that of each input."""


def _written_out(
    ctx: Any,
    k: int,
    points: Sequence[Rows | None],
    inputs: Sequence[Tensor | None],
    wants: Sequence[bool],
    G: Rows,
) -> _Gradients:
    """As the energy has it."""
    before, U, after = points
    assert before is not None
    assert U is not None
    wanted = Wanted(mu=wants[1], learned=any(wants[2:]))
    found, dbefore = ctx.pace.back(k, U, before, after, G, wanted)
    more = [None] * (len(inputs) - 2 - len(found.learned))
    return found.U, dbefore, [found.Z, found.mu, *found.learned, *more]


def _by_autograd(
    ctx: Any,
    k: int,
    points: Sequence[Rows | None],
    inputs: Sequence[Tensor | None],
    wants: Sequence[bool],
    G: Rows,
) -> _Gradients:
    """By a tape over one step."""
    before, U = (part.detach().requires_grad_() for part in points[:2] if part is not None)
    # What was made of parameters begins here. These themselves are not what was saved of them: that may come
    # back as others, by hooks.
    Z, mu, *learned = (
        own if own is not None else part.detach().requires_grad_() if part is not None and want else part
        for own, part, want in zip([None, None, *ctx.make.own], inputs, wants, strict=True)
    )
    with torch.enable_grad():
        Y = ctx.make(mu, learned).step(k, U, before, Z).to(U.dtype)
    wanted = [part for part, want in zip((Z, mu, *learned), wants, strict=True) if want and part is not None]
    looks_back = [before] if ctx.pace.looks_back else []
    dU, *parts = torch.autograd.grad(
        Y, [U, *looks_back, *wanted], G, allow_unused=True, materialize_grads=True
    )
    dbefore = parts.pop(0) if looks_back else None
    return dU, dbefore, [parts.pop(0) if want else None for want in wants]


@torch.no_grad()
def _points(ctx: Any, kept: Sequence[Rows], first: int, Z: Rows) -> list[Rows]:
    """Y^(first - 1), Y^first, ..., up to where the last step of this stretch starts."""
    number, width = first // ctx.stride, 2 if ctx.pace.looks_back else 1
    start = kept[number * width]
    points = [kept[number * width + width - 1], start]
    for k in range(first, min(first + ctx.stride, ctx.steps) - 1):
        points.append(ctx.pace.step(k, points[-1], points[-2], Z).to(Z.dtype))
    return points
