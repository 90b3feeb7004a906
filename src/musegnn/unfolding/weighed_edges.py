"""Sums over neighbors with a weight for each entry, and how far apart its ends are; differentiable."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from musegnn import ops
from musegnn.extras import has_triton
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.resident import resident

Entries = Float[Tensor, " entries"]
Ends = Int64[Tensor, "3 entries"]

_CHUNK = 1 << 22
"""Numbers that are gathered at a time."""
_ends: "WeakKeyDictionary[Sample, Ends]" = WeakKeyDictionary()


def ends_of(sample: Sample, device: torch.device) -> Ends:
    """Row and column of each entry, and which entry is the same edge from the other end."""
    found = _ends.get(sample)
    if found is None or found.device != device:
        rows = np.repeat(np.arange(sample.num_nodes), np.diff(sample.indptr))
        # Entries are in the order of rows; sorted by column, they are those of the transpose.
        back = np.lexsort((rows, sample.indices))
        found = torch.from_numpy(np.stack([rows, sample.indices.astype(np.int64), back])).to(device)
        _ends[sample] = found
    return found


def apart(X: Rows, Y: Rows, edges: Int64[Tensor, "2 edges"]) -> Float[Tensor, " edges"]:
    """|X_i - Y_j|^2 of each edge (i, j)."""
    return _by_entry(edges, lambda i, j: (X[i] - Y[j]).square().sum(dim=1), X)


def distances(sample: Sample, X: Rows) -> Entries:
    """|X_i - X_j|^2 of each entry (i, j)."""
    found: Entries = _Distances.apply(X, sample)
    return found


def weighed_sum(sample: Sample, w: Entries, X: Rows) -> Rows:
    """W X, with W_ij = w of the entry (i, j)."""
    found: Rows = _WeighedSum.apply(w, X, sample)
    return found


def has_kernel(X: Rows) -> bool:
    """Whether `differences` can be had of such rows."""
    if X.device.type == "cuda":
        return has_triton()
    return X.device.type == "cpu" and X.dtype in (torch.float32, torch.float64)


def differences(sample: Sample, X: Rows, rho: ops.Rho, *, frozen: bool) -> Rows:
    """sum_j w_ij (X_i - X_j), w_ij = rho'(|X_i - X_j|^2 / scale), by a kernel; frozen: w are constants."""
    assert has_kernel(X)
    found: Rows = _Differences.apply(X, sample, rho, frozen)
    return found


class _Differences(Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, sample: Sample, rho: ops.Rho, frozen: bool) -> Tensor:
        ctx.given = sample, rho, frozen
        ctx.save_for_backward(X)
        X = X.detach().contiguous()
        out = torch.empty_like(X)
        if X.device.type == "cuda":
            from musegnn.ops.reweigh import triton

            triton.reweigh(resident(sample, X.device).csr, X, rho, out)
            return out
        given = X.numpy(), rho, out.numpy()
        ops.reweigh(sample.indptr, sample.indices, *given, threads=torch.get_num_threads())
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """Its derivative is symmetric."""
        sample, rho, frozen = ctx.given
        X, G = (part.detach().contiguous() for part in (*ctx.saved_tensors, *grads))
        out = torch.empty_like(X)
        if X.device.type == "cuda":
            from musegnn.ops.reweigh import triton

            triton.reweigh_back(resident(sample, X.device).csr, X, G, rho, out, frozen=frozen)
            return out, None, None, None
        given = X.numpy(), G.numpy(), rho, out.numpy()
        settings = {"frozen": frozen, "threads": torch.get_num_threads()}
        ops.reweigh_back(sample.indptr, sample.indices, *given, **settings)
        return out, None, None, None


class _Distances(Function):
    @staticmethod
    def forward(ctx: Any, X: Tensor, sample: Sample) -> Tensor:
        ctx.sample = sample
        ctx.save_for_backward(X)
        return apart(X, X, ends_of(sample, X.device)[:2])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """dX_i = 2 sum_j (g_ij + g_ji) (X_i - X_j)."""
        (X,) = ctx.saved_tensors
        both = grads[0] + grads[0][ends_of(ctx.sample, X.device)[2]]
        ones = torch.ones_like(X[:, :1])
        return 2 * (_times(ctx.sample, both, ones) * X - _times(ctx.sample, both, X)), None


class _WeighedSum(Function):
    @staticmethod
    def forward(ctx: Any, w: Tensor, X: Tensor, sample: Sample) -> Tensor:
        ctx.sample = sample
        ctx.save_for_backward(w, X)
        return _times(sample, w, X)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """dX = W' G,   dw_ij = <G_i, X_j>."""
        (w, X), (G,) = ctx.saved_tensors, grads
        dw = dX = None
        if ctx.needs_input_grad[0]:
            edges = ends_of(ctx.sample, X.device)[:2]
            dw = _by_entry(edges, lambda i, j: (G[i] * X[j]).sum(dim=1), X)
        if ctx.needs_input_grad[1]:
            dX = _times(ctx.sample, w[ends_of(ctx.sample, X.device)[2]], G)
        return dw, dX, None


def _by_entry(edges: Int64[Tensor, "2 edges"], compute: Any, like: Rows) -> Float[Tensor, " edges"]:
    """Of a few entries at a time, since each takes two rows of memory."""
    size = max(1, _CHUNK // max(like.shape[1], 1))
    parts = [compute(i, j) for i, j in zip(*(ends.split(size) for ends in edges), strict=True)]
    return torch.cat(parts) if parts else like.new_empty(0)


def _times(sample: Sample, w: Entries, X: Rows) -> Rows:
    """W X by torch. Entries are in order, which is all that coalesced means."""
    places, shape = ends_of(sample, X.device)[:2], (sample.num_nodes, sample.num_nodes)
    W = torch.sparse_coo_tensor(places, w.detach(), shape, check_invariants=False, is_coalesced=True)
    return W @ X
