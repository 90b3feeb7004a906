"""K steps and the way back, without a tape over the steps.

Two ways. Where the step is fused and the penalty is entrywise, K masks of one bit an entry are kept:

    G_{k-1} = (I - H a) (S_k * G_k),   dB = sum_k a (S_k * G_k),   dY^0 = G_0

Everywhere else (other penalties, learned lambda or gamma, other energies) every few Y^k are kept, the others
are computed again, and autograd goes back through one step at a time.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from musegnn.unfolding.contract import AbstractProblem
from musegnn.unfolding.kernel import Kernel, set_target
from musegnn.unfolding.penalty import Rows

Observe = Callable[[int, Rows, Rows], None]
"""Told of each step: its number, where it started, where it led."""
Make = Callable[[Rows | None], AbstractProblem]
"""A problem from its means; anew in each step back, so that autograd sees what the problem is made of."""


class Focus(NamedTuple):
    """Only the seeds' rows of Y have a gradient, so that what they do not depend on is left out."""

    num_seeds: int
    keeps_all: bool
    """Whether the others' rows of Y are asked for all the same."""


class Fused(Function):
    """K fused steps; K masks are kept."""

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
        Z = Z.contiguous()
        U, result, masks = Z if start is None else start.contiguous(), kernel.empty(Z), []
        wants_gradient = any(ctx.needs_input_grad)
        has_means = mu is not None and not (isinstance(kernel.gamma, float) and kernel.gamma == 0)
        is_short = focus is not None and not focus.keeps_all
        is_seen = observe is not None or energies is not None
        with kernel.spare(Z, 1 + has_means) as (other, *room):
            B = room[0] if has_means else Z
            if has_means:
                assert mu is not None
                set_target(kernel, Z, mu, B)
            for k in range(steps, 0, -1):
                # The last step writes the result.
                Y = result if k % 2 else other
                mask = kernel.mask(U) if wants_gradient else None
                limit = k - 1 if is_short else None
                between = (not is_seen and k < steps, not is_seen and k > 1)
                watch = energies is not None
                energy = kernel.descend(U, B, Y, mask, watch=watch, limit=limit, between=between)
                if energies is not None:
                    energies.append(energy)
                if observe is not None:
                    observe(steps - k + 1, U, Y)
                if mask is not None:
                    masks.append(mask)
                U = Y
            if energies is not None:
                energies.append(kernel.descend(U, B, other, None, watch=True))
        ctx.save_for_backward(*masks)
        ctx.kernel, ctx.steps, ctx.starts_at_Z, ctx.focus = kernel, steps, start is None, focus
        # The shape, without the memory.
        ctx.like = Z.new_empty(()).expand(Z.shape)
        result = result if steps else U.clone()
        if focus is None:
            return result
        # Or the gradient of what has none would be zeros, in memory.
        ctx.set_materialize_grads(False)
        seeds = result[: focus.num_seeds].clone()
        if is_short:
            return seeds, None
        ctx.mark_non_differentiable(result)
        return seeds, result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of Z, the start and mu: dB (and dY^0 if that is Z), dY^0, gamma dB."""
        kernel, masks, focus = ctx.kernel, ctx.saved_tensors, ctx.focus
        dB, dstart, dmu = kernel.empty(ctx.like).zero_(), None, None
        with kernel.spare(dB, 2) as (V, out):
            if focus is not None:
                # Rows that no step has reached yet are read.
                V[focus.num_seeds :] = 0
                out.zero_()
            seeds = slice(None if focus is None else focus.num_seeds)
            assert grads[0] is not None
            V[seeds] = grads[0]
            if masks:
                kernel.cut(V[seeds], masks[-1][seeds])
            for k in range(ctx.steps, 0, -1):
                limit = None if focus is None else ctx.steps - k + 1
                mask = masks[k - 2] if masks and k > 1 else None
                kernel.pull_back(V, mask, dB, out, limit=limit, between=(k < ctx.steps, k > 1))
                V, out = out, V
            if ctx.needs_input_grad[2]:
                dmu = kernel.gamma * dB
            if ctx.starts_at_Z:
                dB += V
            elif ctx.needs_input_grad[1]:
                dstart = V.clone()
        return dB, dstart, dmu, None, None, None, None, None


class Recomputed(Function):
    """K steps of any problem; about 2 sqrt(K) of the Y^k are in memory at a time."""

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
        *learned: Tensor,
    ) -> Tensor:
        """`learned` are the energy's parameters, which `make` puts into the problem."""
        problem, U, kept = make(mu), start, []
        ctx.make, ctx.steps, ctx.stride = make, steps, max(1, isqrt(steps))
        for k in range(steps):
            if k % ctx.stride == 0:
                kept.append(U)
            Y = problem.descend(U, Z)
            if observe is not None:
                observe(k + 1, U, Y)
            if energies is not None:
                energies.append(float(problem.value(U, Z)))
            U = Y
        if energies is not None:
            energies.append(float(problem.value(U, Z)))
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
        inputs = [Z, *([mu] if wants_mu else []), *learned]
        totals = [torch.zeros_like(part) for part in inputs]
        G = grads[0]
        for segment in range(len(kept) - 1, -1, -1):
            starts = [kept[segment]]
            for _ in range(min(ctx.stride, ctx.steps - segment * ctx.stride) - 1):
                starts.append(ctx.make(mu).descend(starts[-1], Z).detach())
            for start in reversed(starts):
                U = start.detach().requires_grad_()
                with torch.enable_grad():
                    Y = ctx.make(mu).descend(U, Z)
                G, *parts = torch.autograd.grad(Y, [U, *inputs], G, allow_unused=True, materialize_grads=True)
                totals = [total.add_(part) for total, part in zip(totals, parts, strict=True)]
        dZ, *others = totals
        dmu = others.pop(0) if wants_mu else None
        return dZ, G, dmu, None, None, None, None, *others
