"""K steps and the way back, without a tape over the steps.

Two ways. Where the step is fused and the penalty is entrywise, K masks of one bit an entry are kept:

    G_{k-1} = (I - H a) (S_k * G_k),   dB = sum_k a (S_k * G_k),   dY^0 = G_0

Everywhere else (other penalties, learned lambda or gamma, other energies) every few Y^k are kept, the others
are computed again, and autograd goes back through one step at a time.
"""

from collections.abc import Callable, Sequence
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from musegnn.unfolding.acceleration import Pace
from musegnn.unfolding.kernel import Kernel, Mask, set_target
from musegnn.unfolding.penalty import Rows, SeedRows

Observe = Callable[[int, Rows, Rows], None]
"""Told of each step: its number, where it started, where it led."""
Make = Callable[[Rows | None, Sequence[Tensor | None]], Pace]
"""A problem from its means and what is learned, at its pace.

Anew in each step back, so that autograd sees what it is made of.
"""


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

    Between two of them, sqrt(K) / 2 are computed again: the tape of one step takes more than all these.
    Each Y^k is as Z is, whatever a step computes in.
    """

    @staticmethod
    def forward(
        ctx: Any,
        Z: Tensor,
        start: Tensor,
        mu: Tensor | None,
        make: Make,
        steps: int,
        observe: Observe | None,
        energies: list[float] | None,
        *learned: Tensor | None,
    ) -> Tensor:
        """`learned` is what `make` puts into the problem."""
        pace, U, before, kept = make(mu, learned), start, start, []
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
        ctx.looks_back = pace.looks_back
        ctx.num_learned = len(learned)
        ctx.save_for_backward(Z, mu, *learned, *kept)
        return U if steps else start.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of Z, the start, mu and what is learned."""
        Z, mu, *rest = ctx.saved_tensors
        learned, kept = rest[: ctx.num_learned], rest[ctx.num_learned :]
        Z, wants_mu = Z.detach().requires_grad_(), ctx.needs_input_grad[2]
        mu = mu.detach().requires_grad_() if wants_mu else mu
        wants = ctx.needs_input_grad[-len(learned) :] if learned else ()
        inputs = [
            Z,
            *([mu] if wants_mu else []),
            *(part for part, want in zip(learned, wants, strict=True) if want),
        ]
        totals = [torch.zeros_like(part) for part in inputs]
        # G is dY^k; of momentum, `later` is what Y^(k-1) counts for in Y^(k+1).
        G, later = grads[0], None
        for first in range((ctx.steps - 1) // ctx.stride * ctx.stride, -1, -ctx.stride):
            points = _points(ctx, kept, first, mu, Z, learned)
            for k in range(first + len(points) - 2, first - 1, -1):
                ends = [part.detach().requires_grad_() for part in points[k - first : k - first + 2]]
                U, before = ends[1], ends[0]
                with torch.enable_grad():
                    Y = ctx.make(mu, learned).step(k, U, before, Z).to(Z.dtype)
                wanted = [U, *([before] if ctx.looks_back else []), *inputs]
                parts = torch.autograd.grad(Y, wanted, G, allow_unused=True, materialize_grads=True)
                G = parts[0] if later is None else parts[0] + later
                later, parts = (parts[1], parts[2:]) if ctx.looks_back else (None, parts[1:])
                totals = [total.add_(part) for total, part in zip(totals, parts, strict=True)]
        G = G if later is None else G + later
        dZ, *others = totals
        dmu = others.pop(0) if wants_mu else None
        found = (others.pop(0) if want else None for want in wants)
        return dZ, G, dmu, None, None, None, None, *found


@torch.no_grad()
def _points(
    ctx: Any, kept: Sequence[Rows], first: int, mu: Rows | None, Z: Rows, learned: Sequence[Tensor | None]
) -> list[Rows]:
    """Y^(first - 1), Y^first, ..., up to where the last step of this stretch starts."""
    number, width = first // ctx.stride, 2 if ctx.looks_back else 1
    start = kept[number * width]
    points = [kept[number * width + width - 1], start]
    pace = ctx.make(mu, learned)
    for k in range(first, min(first + ctx.stride, ctx.steps) - 1):
        points.append(pace.step(k, points[-1], points[-2], Z).to(Z.dtype))
    return points
