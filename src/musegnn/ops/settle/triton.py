"""Sums with a weight for each entry, and a step on them, on a GPU: tensors in, tensors out.

As in `musegnn.ops.descend.triton`: a program adds up one row for a block of columns, in float32 (float64 of
float64), whatever rows are kept in; long rows are cut, and their pieces added up in order.

All rows lie one behind the other.
"""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

from musegnn.ops.descend import triton as descend
from musegnn.ops.descend.plan import Clip
from musegnn.ops.descend.triton import Column, Csr, Rows, _shape

Weight = Float[Tensor, " entries"]
Summands = Float[Tensor, "columns dim"]


def spread(csr: Csr, weight: Weight, X: Summands, out: Rows) -> None:
    """See `musegnn.ops.spread`."""
    _run(csr, weight, X, out)


def settle(
    csr: Csr,
    weight: Weight,
    M: Summands,
    R: Float[Tensor, "terms nodes dim"],
    scale: Float[Tensor, "terms dim"],
    keep: Column,
    take: Column,
    X: Rows,
    B: Rows | None,
    clip: Clip,
    out: Rows,
) -> None:
    """See `musegnn.ops.settle`; `scale`, `keep` and `take` are in float32 or more."""
    _run(csr, weight, M, out, (R, scale, keep, take, X, X if B is None else B), B is not None, clip)


def _run(
    csr: Csr,
    weight: Weight,
    M: Summands,
    out: Rows,
    step: tuple[Tensor, ...] | None = None,
    has_B: bool = False,
    clip: Clip = Clip(),  # noqa: B008
) -> None:
    n, dim = out.shape
    if not n or not dim:
        return
    R, *others = (out[None, :0], *[out] * 5) if step is None else step
    given = csr.indptr, csr.indices, weight, csr.pieces, csr.hubs, M, R, *others, out
    assert all(part.is_contiguous() for part in given)
    num_pieces, num_hubs = csr.pieces.shape[1], csr.hubs.shape[1]
    width, at_once, num_warps = _shape(dim, M.element_size())
    blocks = triton.cdiv(dim, width)
    exact = torch.promote_types(M.dtype, torch.float32)
    sums = torch.empty(num_pieces, dim, dtype=exact, device=M.device)
    options = {
        "HAS_STEP": step is not None,
        "HAS_B": has_B,
        "WEIGHT": clip.weight,
        "LOW": clip.low,
        "HIGH": clip.high,
        "IS_EXACT": exact == torch.float64,
        "WIDTH": width,
        "PIECE": descend.PIECE,
        "AT_ONCE": at_once,
        "num_warps": num_warps,
    }
    numbers = sums, n, dim, num_pieces, num_hubs, len(R)
    _rows[num_pieces + n, blocks](*given, *numbers, **options)
    if num_hubs:
        _hubs[num_hubs, blocks](*given, *numbers, **options)


@triton.jit
@no_type_check
def _add_up(indices, weight, M, begin, end, columns, inside, dim, IS_EXACT, WIDTH, AT_ONCE):
    """The sum over some entries of a row."""
    exact: tl.constexpr = tl.float64 if IS_EXACT else tl.float32
    total = tl.zeros([WIDTH], exact)
    for first in range(begin, end, AT_ONCE):
        entry = first + tl.arange(0, AT_ONCE)
        is_there = entry < end
        # int64: rows of all relations times columns pass 2**31 early.
        column = tl.load(indices + entry, mask=is_there, other=0).to(tl.int64)
        share = tl.load(weight + entry, mask=is_there, other=0).to(exact)
        wanted = is_there[:, None] & inside[None, :]
        rows = tl.load(M + column[:, None] * dim + columns[None, :], mask=wanted, other=0).to(exact)
        total += tl.sum(rows * share[:, None], axis=0)
    return total


@triton.jit
@no_type_check
def _finish(
    row, total, R, scale, keep, take, X, B, out, n, dim, num_terms, columns, inside,
    HAS_STEP, HAS_B, WEIGHT, LOW, HIGH, IS_EXACT, WIDTH,
):  # fmt: skip
    """What a row does with its sum."""
    exact: tl.constexpr = tl.float64 if IS_EXACT else tl.float32
    place = row * dim + columns
    result = total
    if HAS_STEP:
        at, size = place, (tl.zeros([WIDTH], tl.int64) + n) * dim
        result = -result
        for t in range(num_terms):
            r = tl.load(R + at, mask=inside, other=0).to(exact)
            result += tl.load(scale + t * dim + columns, mask=inside, other=0) * r
            at += size
        if HAS_B:
            result -= tl.load(B + place, mask=inside, other=0).to(exact)
        x = tl.load(X + place, mask=inside, other=0).to(exact)
        rate = tl.load(take + row)
        result = tl.load(keep + row) * x - rate * result
        if WEIGHT != 0:
            half = tl.full([WIDTH], WEIGHT / 2, exact) * rate
            shrunk = tl.where(result > half, result - half, result + half)
            result = tl.where(tl.abs(result) <= half, 0.0, shrunk)
        # Tensors: a number would be compared in float32. Not minimum and maximum: NaN stays NaN.
        low, high = tl.full([WIDTH], LOW, exact), tl.full([WIDTH], HIGH, exact)
        result = tl.where(result < low, low, result)
        result = tl.where(result > high, high, result)
    tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["n", "num_pieces", "num_hubs"])
@no_type_check
def _rows(
    indptr, indices, weight, pieces, hubs, M, R, scale, keep, take, X, B, out,
    sums, n, dim, num_pieces, num_hubs, num_terms,
    HAS_STEP: tl.constexpr, HAS_B: tl.constexpr,
    WEIGHT: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, IS_EXACT: tl.constexpr,
    WIDTH: tl.constexpr, PIECE: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The sums of all pieces, and all rows that have none."""
    item = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < dim
    if item < num_pieces:
        row = tl.load(pieces + item)
        begin = tl.load(pieces + num_pieces + item)
        end = tl.load(pieces + 2 * num_pieces + item)
    else:
        row = item - num_pieces
        begin = tl.load(indptr + row)
        end = tl.load(indptr + row + 1)
    is_piece = item < num_pieces
    if is_piece | (end - begin <= PIECE):
        total = _add_up(
            indices, weight, M, begin, end, columns, inside, dim, IS_EXACT, WIDTH, AT_ONCE
        )  # fmt: skip
        if is_piece:
            tl.store(sums + item * dim + columns, total, mask=inside)
        else:
            _finish(
                row, total, R, scale, keep, take, X, B, out, n, dim, num_terms, columns, inside,
                HAS_STEP, HAS_B, WEIGHT, LOW, HIGH, IS_EXACT, WIDTH,
            )  # fmt: skip


@triton.jit(do_not_specialize=["n", "num_pieces", "num_hubs"])
@no_type_check
def _hubs(
    indptr, indices, weight, pieces, hubs, M, R, scale, keep, take, X, B, out,
    sums, n, dim, num_pieces, num_hubs, num_terms,
    HAS_STEP: tl.constexpr, HAS_B: tl.constexpr,
    WEIGHT: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr, IS_EXACT: tl.constexpr,
    WIDTH: tl.constexpr, PIECE: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The rows that were cut: their pieces are there."""
    item = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < dim
    row = tl.load(hubs + item)
    total = tl.zeros([WIDTH], tl.float64 if IS_EXACT else tl.float32)
    for piece in range(tl.load(hubs + num_hubs + item), tl.load(hubs + 2 * num_hubs + item)):
        total += tl.load(sums + piece * dim + columns, mask=inside, other=0)
    _finish(
        row, total, R, scale, keep, take, X, B, out, n, dim, num_terms, columns, inside,
        HAS_STEP, HAS_B, WEIGHT, LOW, HIGH, IS_EXACT, WIDTH,
    )  # fmt: skip
