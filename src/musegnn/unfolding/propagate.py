"""A Y, the sum over the neighbors, differentiable. That of a sample is symmetric: its own transpose."""

from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from musegnn import ops
from musegnn.extras import has_triton
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.resident import Matrix, resident


def propagate(sample: Sample, X: Rows) -> Rows:
    """A X."""
    return summed(sample, sample, X)


def summed(A: Matrix, At: Matrix, X: Rows) -> Rows:
    """A X, and its gradient by the transpose At: by a kernel where there is one, by torch elsewhere."""
    result: Rows = _Summed.apply(X, A, At)
    return result


class _Summed(Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, A: Matrix, At: Matrix) -> Tensor:
        ctx.matrices = A, At
        X = X.detach().contiguous()
        if X.device.type == "cpu" and X.dtype in (torch.float32, torch.float64):
            values = X.numpy()
            out = np.empty_like(values)
            ops.propagate(A.indptr, A.indices, values, out, threads=torch.get_num_threads())
            return torch.from_numpy(out)
        if X.device.type == "cuda" and has_triton():
            from musegnn.ops.descend import triton

            result = torch.empty_like(X)
            triton.propagate(resident(A, X.device).csr, X, result)
            return result
        return sparse(A, X) @ X if X.device.type in ("cpu", "cuda") else scattered(A, X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        A, At = ctx.matrices
        return summed(At, A, grads[0]), None, None


class Weights(NamedTuple):
    """Of the rows of A, of its columns, and of what is added; None: nothing, 1: all of it, as it is."""

    left: Float[Tensor, "nodes 1"]
    right: Float[Tensor, "nodes 1"]
    take: Float[Tensor, "nodes 1"] | Literal[1] | None = None


def weighed(A: Matrix, At: Matrix, weights: Weights, X: Rows, B: Rows | None = None) -> Rows:
    """left A (right X) + take B, in one pass where there is a kernel; differentiable in X and B."""
    assert (B is None) == (weights.take is None)
    result: Rows = _Weighed.apply(X, B, A, At, weights)
    return result


class _Weighed(Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, B: Tensor | None, A: Matrix, At: Matrix, weights: Weights) -> Tensor:
        ctx.given = A, At, weights
        X, B = X.detach().contiguous(), None if B is None else B.detach().contiguous()
        is_fused = X.device.type == "cuda" and has_triton()
        if not is_fused and not (X.device.type == "cpu" and X.dtype in (torch.float32, torch.float64)):
            # Weights are in float32 or more, and so are the sums; what they come to is as X is.
            result: Tensor = weights.left * _Summed.apply(weights.right * X, A, At)
            return (result if weights.take is None or B is None else result + weights.take * B).to(X.dtype)
        left, right = weights.left[:, 0].contiguous(), weights.right[:, 0].contiguous()
        take = torch.zeros_like(left) if weights.take is None else weights.take
        take = torch.ones_like(left) if isinstance(take, int) else take.reshape(-1)
        out = torch.empty_like(X)
        if is_fused:
            from musegnn.ops.descend import triton

            step = triton.Coefficients(torch.zeros_like(left), left, right, take)
            other, csr = X if B is None else B, resident(A, X.device).csr
            triton.descend(csr, step, X, other, ops.Clip(), out, None)
            return out
        added = () if B is None else (take.numpy(), B.numpy())
        arrays = left.numpy(), right.numpy(), X.numpy(), out.numpy(), *added
        ops.propagate_weighed(A.indptr, A.indices, *arrays, threads=torch.get_num_threads())
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (A, At, weights), (G,) = ctx.given, grads
        dX = weighed(At, A, Weights(weights.right, weights.left), G) if ctx.needs_input_grad[0] else None
        dB = None
        if ctx.needs_input_grad[1]:
            dB = G if isinstance(weights.take, int) else (weights.take * G).to(G.dtype)
        return dX, dB, None, None, None


def sparse(A: Matrix, like: Tensor) -> Tensor:
    """A as a sparse CSR tensor."""
    indptr, indices = (torch.from_numpy(np.array(part)) for part in (A.indptr, A.indices))
    ones = torch.ones(len(indices), dtype=like.dtype)
    size = len(indptr) - 1, len(indptr) - 1
    matrix = torch.sparse_csr_tensor(indptr, indices.long(), ones, size, check_invariants=False)
    return matrix.to(like.device)


def scattered(A: Matrix, X: Rows) -> Rows:
    """A X where torch has no sparse product, as on Apple's GPUs: every entry costs a row of memory."""
    rows = torch.from_numpy(np.repeat(np.arange(len(X)), np.diff(A.indptr))).to(X.device)
    columns = torch.from_numpy(A.indices.astype(np.int64)).to(X.device)
    return torch.zeros_like(X).index_add_(0, rows, X[columns])
