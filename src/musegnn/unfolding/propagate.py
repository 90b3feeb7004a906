"""A Y, the sum over the neighbors, differentiable. That of a sample is symmetric: its own transpose."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from musegnn import ops
from musegnn.extras import has_triton
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.resident import resident


@runtime_checkable
class Matrix(Protocol):
    """Rows of zeros and ones: a sample, or one of its relations."""

    @property
    def indptr(self) -> np.ndarray:
        """Where each row begins, and the end of the last."""

    @property
    def indices(self) -> np.ndarray:
        """Columns."""


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
        if X.device.type == "cuda" and has_triton() and isinstance(A, Sample):
            from musegnn.ops.descend import triton

            result = torch.empty_like(X)
            triton.propagate(resident(A, X.device).csr, X, result)
            return result
        return sparse(A, X) @ X if X.device.type in ("cpu", "cuda") else scattered(A, X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        A, At = ctx.matrices
        return summed(At, A, grads[0]), None, None


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
