"""Dropout on the CPU by a kernel of our own: torch's takes longer than the matrix product before it."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from musegnn import ops

_RESOLUTION = 65536


class Dropout(nn.Module):
    """With probability p an entry becomes 0, the others are divided by 1 - p; while training only.

    Args:
        p: In steps of 1 / 65536, by which the others are scaled exactly.
        relu: Of max(x, 0) in place of x.
    """

    def __init__(self, p: float, *, relu: bool = False) -> None:
        super().__init__()
        self.p, self.relu = p, relu

    def forward(self, x: Float[Tensor, "nodes dim"]) -> Float[Tensor, "nodes dim"]:
        """Random numbers are a function of torch's own generator."""
        if not self.training or self.p == 0:
            return F.relu(x) if self.relu else x
        if (
            x.device.type != "cpu"
            or x.dtype not in (torch.float32, torch.float64)
            or torch.compiler.is_compiling()
        ):
            return F.dropout(F.relu(x) if self.relu else x, self.p)
        result: Tensor = _Dropout.apply(
            x, int(torch.randint(2**62, ())), min(round(self.p * _RESOLUTION), _RESOLUTION - 1), self.relu
        )
        return result

    def extra_repr(self) -> str:
        """The settings."""
        return f"p={self.p}, relu={self.relu}"


class _Dropout(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, key: int, threshold: int, relu: bool) -> Tensor:
        out = _kernel(x, key, threshold, relu)
        ctx.key, ctx.threshold, ctx.relu = key, threshold, relu
        # What follows keeps its input anyway; without ReLU the numbers are drawn again.
        ctx.save_for_backward(*([out] if relu else []))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        if not ctx.relu:
            return _kernel(grads[0], ctx.key, ctx.threshold, False), None, None, None
        (out,) = ctx.saved_tensors
        gradient = torch.ops.aten.threshold_backward(grads[0], out, 0)
        return gradient.mul_(_RESOLUTION / (_RESOLUTION - ctx.threshold)), None, None, None


def _kernel(x: Tensor, key: int, threshold: int, relu: bool) -> Tensor:
    values, out = x.detach().contiguous(), torch.empty(x.shape, dtype=x.dtype)
    flat = values.view(-1).numpy(), out.view(-1).numpy()
    ops.dropout(flat[0], key, threshold, relu=relu, out=flat[1], threads=torch.get_num_threads())
    return out
