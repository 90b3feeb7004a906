"""Means move towards new embeddings, in one pass: a program for each row."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Integer
from torch import Tensor


def move_means(
    M: Float[Tensor, "nodes dim"],
    count: Integer[Tensor, " nodes"],
    ids: Integer[Tensor, " rows"],
    Y: Float[Tensor, "rows dim"],
    rho: float,
) -> None:
    """See `reference.py`. In float32 (float64 of float64), whatever M is kept in."""
    dim, is_exact = M.shape[1], M.dtype == torch.float64
    width = min(1024, triton.next_power_of_2(dim))
    if len(ids):
        _move[len(ids),](M, count, ids, Y, dim, RHO=rho, IS_EXACT=is_exact, WIDTH=width, num_warps=1)


@triton.jit
@no_type_check
def _move(M, count, ids, Y, dim, RHO: tl.constexpr, IS_EXACT: tl.constexpr, WIDTH: tl.constexpr):
    exact: tl.constexpr = tl.float64 if IS_EXACT else tl.float32
    row = tl.program_id(0).to(tl.int64)
    node = tl.load(ids + row).to(tl.int64)
    seen = tl.load(count + node)
    c = seen.to(exact)
    weight = tl.full([], RHO, exact) * c / (c + 1)
    for first in range(0, dim, WIDTH):
        columns = first + tl.arange(0, WIDTH)
        y = tl.load(Y + row * dim + columns, mask=columns < dim, other=0).to(exact)
        m = tl.load(M + node * dim + columns, mask=columns < dim, other=0).to(exact)
        moved = y + weight * (m - y)
        tl.store(M + node * dim + columns, moved.to(M.dtype.element_ty), mask=columns < dim)
    tl.store(count + node, seen + 1)
