"""One proximal step on a GPU, and the way back: tensors in, tensors out.

A program adds up one row for a block of columns, in float32 (float64 of float64), whatever X is kept in.
Rows of more than `PIECE` neighbors are cut, and programs of their own add up the pieces: nobody waits for a
hub. A piece is added up in the order of its entries, a hub in that of its pieces: the same bits each time.
A mask has a bit for each entry, bit q of byte c is column 8 c + q.

Between two steps rows may be kept scaled, as their neighbors will need them (`Kept`): then nobody reads a
scale for each entry, which takes a tenth of the time.

X, B, out and masks may be some columns of wider ones: a row is where its stride says.
"""

from typing import Literal, NamedTuple, no_type_check

import numpy as np
import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32, Int64, Integer, UInt8
from torch import Tensor

from musegnn.ops.descend.plan import Clip, num_bytes

Rows = Float[Tensor, "nodes dim"]
Mask = UInt8[Tensor, "nodes bytes"]
Column = Float[Tensor, " nodes"]
Work = Literal["propagate", "descend", "pull_back"]

PIECE = 128
"""Entries of a row that one program adds up."""


class Csr(NamedTuple):
    """A symmetric matrix of zeros and ones on a device, and the pieces of its long rows."""

    indptr: Int64[Tensor, " nodes_plus_1"]
    indices: Int32[Tensor, " entries"]
    pieces: Int64[Tensor, "3 pieces"]
    """Row, first entry, last entry."""
    hubs: Int64[Tensor, "3 hubs"]
    """Row, first piece, last piece."""

    def to(self, device: torch.device, *, non_blocking: bool = False) -> "Csr":
        """A copy there."""
        return Csr(*(part.to(device, non_blocking=non_blocking) for part in self))

    def pin_memory(self) -> "Csr":
        """A copy that a device can read by itself."""
        return Csr(*(part.pin_memory() for part in self))


class Coefficients(NamedTuple):
    """`musegnn.ops.Step` on a device."""

    keep: Column
    left: Column
    right: Column
    take: Column


class Levels(NamedTuple):
    """Only the rows up to a level are wanted; the others are left alone."""

    of: UInt8[Tensor, " nodes"]
    limit: int


class Kept(NamedTuple):
    """Whether rows are kept times `right` (in `pull_back` times `left`, which then has no zeros)."""

    X: bool = False
    out: bool = False


def cut_rows(indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Integer[np.ndarray, " entries"]) -> Csr:
    """A matrix on the CPU, with the pieces of its long rows."""
    hubs = np.flatnonzero(np.diff(indptr) > PIECE)
    begin, end = indptr[hubs], indptr[hubs + 1]
    counts = -(-(end - begin) // PIECE)
    bounds = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(bounds[-1]) - np.repeat(bounds[:-1], counts)
    first = np.repeat(begin, counts) + PIECE * within
    last = np.minimum(first + PIECE, np.repeat(end, counts))
    pieces = np.stack([np.repeat(hubs, counts), first, last])
    whole = np.stack([hubs, bounds[:-1], bounds[1:]])
    return Csr(_tensor(indptr, np.int64), _tensor(indices, np.int32), *map(torch.from_numpy, (pieces, whole)))


def _tensor(array: np.ndarray, dtype: type) -> Tensor:
    # A copy only of what is read-only, as stored samples are: torch does not know such arrays.
    array = np.ascontiguousarray(array, dtype)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def propagate(csr: Csr, X: Rows, out: Rows) -> None:
    """out = A X."""
    nothing = X.new_empty(0)
    _run("propagate", csr, Coefficients(*[nothing] * 4), X, nothing, Clip(), out, None, None, Kept())


def descend(
    csr: Csr,
    step: Coefficients,
    X: Rows,
    B: Rows,
    clip: Clip,
    out: Rows,
    mask: Mask | None,
    levels: Levels | None = None,
    kept: Kept = Kept(),  # noqa: B008
) -> None:
    """See `musegnn.ops.descend`."""
    _run("descend", csr, step, X, B, clip, out, mask, levels, kept)


def pull_back(
    csr: Csr,
    step: Coefficients,
    V: Rows,
    mask: Mask | None,
    total: Rows,
    out: Rows,
    levels: Levels | None = None,
    kept: Kept = Kept(),  # noqa: B008
) -> None:
    """See `musegnn.ops.pull_back`."""
    swapped = Coefficients(step.keep, step.right, step.left, step.take)
    _run("pull_back", csr, swapped, V, total, Clip(), out, mask, levels, kept)


def cut(V: Rows, mask: Mask) -> None:
    """See `musegnn.ops.cut`."""
    n, dim = V.shape
    width, *_ = _shape(dim, V.element_size())
    if n:
        strides = V.stride(0), mask.stride(0)
        _cut[n, triton.cdiv(dim, width)](V, mask, dim, *strides, WIDTH=width, num_warps=1)


def _run(
    work: Work,
    csr: Csr,
    step: Coefficients,
    X: Rows,
    B: Tensor,
    clip: Clip,
    out: Rows,
    mask: Mask | None,
    levels: Levels | None,
    kept: Kept,
) -> None:
    n, dim = X.shape
    if not n:
        return
    num_pieces, num_hubs = csr.pieces.shape[1], csr.hubs.shape[1]
    width, at_once, num_warps = _shape(dim, X.element_size())
    blocks = triton.cdiv(dim, width)
    exact = torch.promote_types(X.dtype, torch.float32)
    sums = torch.empty(num_pieces, dim, dtype=exact, device=X.device)
    bits = X if mask is None else mask
    of, limit = (csr.hubs, 0) if levels is None else levels
    matrix = csr.indptr, csr.indices, csr.pieces, csr.hubs, num_pieces, num_hubs
    strides = X.stride(0), B.stride(0), out.stride(0), bits.stride(0)
    given = *matrix, sums, *step, X, B, out, bits, of, limit, dim, num_bytes(dim), *strides
    options = {
        "WORK": work,
        "WEIGHT": clip.weight,
        "LOW": clip.low,
        "HIGH": clip.high,
        "IS_EXACT": exact == torch.float64,
        "HAS_MASK": mask is not None,
        "HAS_LEVELS": levels is not None,
        "SCALED_X": kept.X,
        "SCALED_OUT": kept.out,
        "WIDTH": width,
        "PIECE": PIECE,
        "AT_ONCE": at_once,
        "num_warps": num_warps,
    }
    _rows[num_pieces + n, blocks](*given, **options)
    if num_hubs:
        _hubs[num_hubs, blocks](*given, **options)


def _shape(dim: int, size: int) -> tuple[int, int, int]:
    """Columns of a program, neighbors that it reads at once, warps."""
    width = min(256, max(8, triton.next_power_of_2(dim)))
    return width, 8, max(1, width * size // 512)


@triton.jit
@no_type_check
def _add_up(
    indices, inner, X, begin, end, columns, inside, stride, WORK, IS_EXACT, SCALED_X, WIDTH, AT_ONCE
):  # fmt: skip
    """The sum of the neighbors' rows, each times `inner`."""
    exact: tl.constexpr = tl.float64 if IS_EXACT else tl.float32
    total = tl.zeros([WIDTH], exact)
    for first in range(begin, end, AT_ONCE):
        entry = first + tl.arange(0, AT_ONCE)
        is_there = entry < end
        # int64: 2**31 entries of a matrix are few.
        column = tl.load(indices + entry, mask=is_there, other=0).to(tl.int64)
        wanted = is_there[:, None] & inside[None, :]
        rows = tl.load(X + column[:, None] * stride + columns[None, :], mask=wanted, other=0).to(exact)
        if WORK != "propagate" and not SCALED_X:
            rows *= tl.load(inner + column, mask=is_there, other=0)[:, None]
        total += tl.sum(rows, axis=0)
    return total


@triton.jit
@no_type_check
def _finish(
    row, total, keep, outer, inner, take, X, B, out, bits, num_bytes, of_X, of_B, of_out, of_bits,
    columns, inside,
    WORK, WEIGHT, LOW, HIGH, IS_EXACT, HAS_MASK, SCALED_X, SCALED_OUT, WIDTH,
):  # fmt: skip
    """What a row does with the sum of its neighbors."""
    exact: tl.constexpr = tl.float64 if IS_EXACT else tl.float32
    if WORK == "propagate":
        result = total
    else:
        x = tl.load(X + row * of_X + columns, mask=inside, other=0).to(exact)
        place_of_B = row * of_B + columns
        b = tl.load(B + place_of_B, mask=inside, other=0).to(exact)
        if SCALED_X:
            x /= tl.load(inner + row)
        rate = tl.load(take + row)
        result = tl.load(keep + row) * x + tl.load(outer + row) * total
        number = tl.program_id(1) * (WIDTH // 8) + tl.arange(0, WIDTH // 8)
        place_of_bits, is_byte = row * of_bits + number, number < num_bytes
        if WORK == "descend":
            result += rate * b
            if WEIGHT != 0:
                half = tl.full([WIDTH], WEIGHT / 2, exact) * rate
                shrunk = tl.where(result > half, result - half, result + half)
                result = tl.where(tl.abs(result) <= half, 0.0, shrunk)
            # Tensors: a number would be compared in float32. Not minimum and maximum: NaN stays NaN.
            low, high = tl.full([WIDTH], LOW, exact), tl.full([WIDTH], HIGH, exact)
            result = tl.where(result < low, low, result)
            result = tl.where(result > high, high, result)
            if HAS_MASK:
                is_free = (low < result) & (result < high)
                if WEIGHT != 0:
                    is_free = is_free & (result != 0)
                bit = tl.reshape(is_free.to(tl.int32), [WIDTH // 8, 8]) << tl.arange(0, 8)[None, :]
                tl.store(bits + place_of_bits, tl.sum(bit, axis=1).to(tl.uint8), mask=is_byte)
        else:
            tl.store(B + place_of_B, (b + rate * x).to(B.dtype.element_ty), mask=inside)
            if HAS_MASK:
                byte = tl.load(bits + place_of_bits, mask=is_byte, other=0).to(tl.int32)
                bit = tl.reshape((byte[:, None] >> tl.arange(0, 8)[None, :]) & 1, [WIDTH])
                result = tl.where(bit != 0, result, 0.0)
        if SCALED_OUT:
            result *= tl.load(inner + row)
    tl.store(out + row * of_out + columns, result.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_pieces", "num_hubs", "limit"])
@no_type_check
def _rows(
    indptr, indices, pieces, hubs, num_pieces, num_hubs, sums, keep, outer, inner, take, X, B, out,
    bits, levels, limit, dim, num_bytes, of_X, of_B, of_out, of_bits,
    WORK: tl.constexpr, WEIGHT: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    IS_EXACT: tl.constexpr, HAS_MASK: tl.constexpr, HAS_LEVELS: tl.constexpr,
    SCALED_X: tl.constexpr, SCALED_OUT: tl.constexpr,
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
    is_wanted = is_piece | (end - begin <= PIECE)
    if HAS_LEVELS:
        is_wanted = is_wanted & (tl.load(levels + row) <= limit)
    if is_wanted:
        total = _add_up(
            indices, inner, X, begin, end, columns, inside, of_X, WORK, IS_EXACT, SCALED_X, WIDTH, AT_ONCE
        )
        if is_piece:
            tl.store(sums + item * dim + columns, total, mask=inside)
        else:
            _finish(
                row, total, keep, outer, inner, take, X, B, out, bits, num_bytes, of_X, of_B, of_out, of_bits,
                columns, inside,
                WORK, WEIGHT, LOW, HIGH, IS_EXACT, HAS_MASK, SCALED_X, SCALED_OUT, WIDTH,
            )  # fmt: skip


@triton.jit(do_not_specialize=["num_pieces", "num_hubs", "limit"])
@no_type_check
def _hubs(
    indptr, indices, pieces, hubs, num_pieces, num_hubs, sums, keep, outer, inner, take, X, B, out,
    bits, levels, limit, dim, num_bytes, of_X, of_B, of_out, of_bits,
    WORK: tl.constexpr, WEIGHT: tl.constexpr, LOW: tl.constexpr, HIGH: tl.constexpr,
    IS_EXACT: tl.constexpr, HAS_MASK: tl.constexpr, HAS_LEVELS: tl.constexpr,
    SCALED_X: tl.constexpr, SCALED_OUT: tl.constexpr,
    WIDTH: tl.constexpr, PIECE: tl.constexpr, AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The rows that were cut: their pieces are there."""
    item = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = columns < dim
    row = tl.load(hubs + item)
    is_wanted = True
    if HAS_LEVELS:
        is_wanted = tl.load(levels + row) <= limit
    if is_wanted:
        total = tl.zeros([WIDTH], tl.float64 if IS_EXACT else tl.float32)
        for piece in range(tl.load(hubs + num_hubs + item), tl.load(hubs + 2 * num_hubs + item)):
            total += tl.load(sums + piece * dim + columns, mask=inside, other=0)
        _finish(
            row, total, keep, outer, inner, take, X, B, out, bits, num_bytes, of_X, of_B, of_out, of_bits,
            columns, inside,
            WORK, WEIGHT, LOW, HIGH, IS_EXACT, HAS_MASK, SCALED_X, SCALED_OUT, WIDTH,
        )  # fmt: skip


@triton.jit
@no_type_check
def _cut(V, bits, dim, of_V, of_bits, WIDTH: tl.constexpr):
    """Zeros where the bits are."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    byte = tl.load(bits + row * of_bits + columns // 8, mask=columns < dim, other=0).to(tl.int32)
    is_zero = ((byte >> (columns % 8)) & 1) == 0
    tl.store(V + row * of_V + columns, tl.zeros([WIDTH], V.dtype.element_ty), mask=is_zero & (columns < dim))
