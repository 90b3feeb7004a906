"""Differences to the neighbors with weights on a GPU, and the way back: tensors in, tensors out.

A weight needs all columns, so that a program holds a whole row, and reads a few neighbors at once: t, w and
the sum are made of one reading, in float32 (float64 of float64), whatever X is kept in. Long rows are cut as
in `musegnn.ops.descend.triton`, and their pieces added up in order: the same bits each time.

X, G and out may be some columns of wider ones: a row is where its stride says.
"""

from typing import Literal, no_type_check

import torch
import triton
import triton.language as tl

from musegnn.ops.descend import triton as descend
from musegnn.ops.descend.triton import Csr, Rows
from musegnn.ops.reweigh.rho import Rho

Work = Literal["sum", "back", "frozen"]


def reweigh(csr: Csr, X: Rows, rho: Rho, out: Rows) -> None:
    """See `musegnn.ops.reweigh`."""
    _run("sum", csr, X, X, rho, out)


def reweigh_back(csr: Csr, X: Rows, G: Rows, rho: Rho, out: Rows, *, frozen: bool = False) -> None:
    """See `musegnn.ops.reweigh_back`."""
    _run("frozen" if frozen else "back", csr, X, G, rho, out)


def _run(work: Work, csr: Csr, X: Rows, G: Rows, rho: Rho, out: Rows) -> None:
    n, dim = X.shape
    if not n or not dim:
        return
    num_pieces, num_hubs = csr.pieces.shape[1], csr.hubs.shape[1]
    exact = torch.promote_types(X.dtype, torch.float32)
    width, at_once, num_warps = _shape(dim, exact.itemsize * (1 if work == "sum" else 2))
    sums = torch.empty(num_pieces, dim, dtype=exact, device=X.device)
    options = {"IS_EXACT": exact == torch.float64, "WIDTH": width, "num_warps": num_warps}
    given = csr.indptr, csr.indices, csr.pieces, num_pieces, sums, X, G, out, dim
    _rows[(num_pieces + n,)](
        *given, X.stride(0), G.stride(0), out.stride(0),
        WORK=work, EXPONENT=rho.power / 2 - 1, CUTOFF=rho.cutoff, SCALE=rho.scale,
        PIECE=descend.PIECE, AT_ONCE=at_once, **options,
    )  # fmt: skip
    if num_hubs:
        _hubs[(num_hubs,)](csr.hubs, num_hubs, sums, out, dim, out.stride(0), **options)


def _shape(dim: int, size: int) -> tuple[int, int, int]:
    """Columns of a program, all of them; neighbors that it reads at once; warps."""
    width = max(8, triton.next_power_of_2(dim))
    # Few of each: warps wait for each other at every sum over columns, and rows must fit into registers.
    # 700 columns of float32, 2 warps, on an H200: 1.8 ms with one neighbor at once, 13.1 ms with eight.
    return width, min(4, max(1, 4096 // (width * size))), min(16, max(1, width // 512))


@triton.jit
@no_type_check
def _slope(t, exponent, cutoff):
    """rho'(t)."""
    return tl.exp(exponent * tl.log(1 + t)) * (t < cutoff).to(t.dtype)


@triton.jit
@no_type_check
def _add_up(
    indices, X, G, row, begin, end, columns, inside, of_X, of_G,
    WORK, EXPONENT, CUTOFF, SCALE, IS_EXACT, WIDTH, AT_ONCE,
):  # fmt: skip
    """The sum over some entries of a row."""
    exact: tl.constexpr = tl.float64 if IS_EXACT else tl.float32
    # Tensors: a number would be one of float32.
    scale = tl.full([AT_ONCE], SCALE, exact)
    cutoff = tl.full([AT_ONCE], CUTOFF, exact)
    exponent = tl.full([AT_ONCE], EXPONENT, exact)
    total = tl.zeros([WIDTH], exact)
    x = tl.load(X + row * of_X + columns, mask=inside, other=0).to(exact)
    if WORK != "sum":
        g = tl.load(G + row * of_G + columns, mask=inside, other=0).to(exact)
    for first in range(begin, end, AT_ONCE):
        entry = first + tl.arange(0, AT_ONCE)
        is_there = entry < end
        # int64: 2**31 entries of a matrix are few.
        column = tl.load(indices + entry, mask=is_there, other=0).to(tl.int64)
        wanted = is_there[:, None] & inside[None, :]
        other = tl.load(X + column[:, None] * of_X + columns[None, :], mask=wanted, other=0).to(exact)
        D = tl.where(wanted, x[None, :] - other, 0.0)
        t = tl.sum(D * D, axis=1) / scale
        w = _slope(t, exponent, cutoff)
        if WORK == "sum":
            total += tl.sum(w[:, None] * D, axis=0)
        else:
            back = tl.load(G + column[:, None] * of_G + columns[None, :], mask=wanted, other=0).to(exact)
            V = tl.where(wanted, g[None, :] - back, 0.0)
            part = w[:, None] * V
            if WORK == "back":
                # rho'' = (p/2 - 1) rho' / (1 + t)
                bend = w * 2 * exponent / (1 + t) * tl.sum(D * V, axis=1) / scale
                part += bend[:, None] * D
            total += tl.sum(part, axis=0)
    return total


@triton.jit(do_not_specialize=["num_pieces"])
@no_type_check
def _rows(
    indptr, indices, pieces, num_pieces, sums, X, G, out, dim, of_X, of_G, of_out,
    WORK: tl.constexpr, EXPONENT: tl.constexpr, CUTOFF: tl.constexpr, SCALE: tl.constexpr,
    IS_EXACT: tl.constexpr, WIDTH: tl.constexpr, PIECE: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The sums of all pieces, and all rows that have none."""
    item = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
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
            indices, X, G, row, begin, end, columns, inside, of_X, of_G,
            WORK, EXPONENT, CUTOFF, SCALE, IS_EXACT, WIDTH, AT_ONCE,
        )  # fmt: skip
        if is_piece:
            tl.store(sums + item * dim + columns, total, mask=inside)
        else:
            tl.store(out + row * of_out + columns, total.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_hubs"])
@no_type_check
def _hubs(hubs, num_hubs, sums, out, dim, of_out, IS_EXACT: tl.constexpr, WIDTH: tl.constexpr):
    """The rows that were cut: their pieces are there."""
    item = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, WIDTH)
    inside = columns < dim
    row = tl.load(hubs + item)
    total = tl.zeros([WIDTH], tl.float64 if IS_EXACT else tl.float32)
    for piece in range(tl.load(hubs + num_hubs + item), tl.load(hubs + 2 * num_hubs + item)):
        total += tl.load(sums + piece * dim + columns, mask=inside, other=0)
    tl.store(out + row * of_out + columns, total.to(out.dtype.element_ty), mask=inside)
