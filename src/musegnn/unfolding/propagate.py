"""A Y, the sum over the neighbors, differentiable. A is symmetric, so that it is its own transpose."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from musegnn import ops
from musegnn.extras import has_triton
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.resident import resident


def propagate(sample: Sample, X: Rows) -> Rows:
    """A X: by a kernel where there is one, by torch elsewhere."""
    result: Rows = _Propagate.apply(X, sample)
    return result


class _Propagate(Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, sample: Sample) -> Tensor:
        ctx.sample = sample
        X = X.detach().contiguous()
        if X.device.type == "cpu" and X.dtype in (torch.float32, torch.float64):
            values = X.numpy()
            out = np.empty_like(values)
            ops.propagate(sample.indptr, sample.indices, values, out, threads=torch.get_num_threads())
            return torch.from_numpy(out)
        if X.device.type == "cuda" and has_triton():
            from musegnn.ops.descend import triton

            result = torch.empty_like(X)
            triton.propagate(resident(sample, X.device).csr, X, result)
            return result
        return sparse(sample, X) @ X if X.device.type in ("cpu", "cuda") else scattered(sample, X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return propagate(ctx.sample, grads[0]), None


def sparse(sample: Sample, like: Tensor) -> Tensor:
    """A as a sparse CSR tensor."""
    indptr, indices = (torch.from_numpy(np.array(part)) for part in (sample.indptr, sample.indices))
    ones = torch.ones(len(indices), dtype=like.dtype)
    size = sample.num_nodes, sample.num_nodes
    matrix = torch.sparse_csr_tensor(indptr, indices.long(), ones, size, check_invariants=False)
    return matrix.to(like.device)


def scattered(sample: Sample, X: Rows) -> Rows:
    """A X where torch has no sparse product, as on Apple's GPUs: every entry costs a row of memory."""
    rows, columns = torch.from_numpy(sample.edge_index()).to(X.device)
    return torch.zeros_like(X).index_add_(0, rows, X[columns])
