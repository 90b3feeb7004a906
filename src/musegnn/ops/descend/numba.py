"""One proximal step: gather, scale, add, clip and mark in one pass over the rows; and its transpose.

Eight neighbors are added in one pass over the columns, so that sums are loaded and stored seldom.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int64, Integer, UInt8

from musegnn.ops.descend.plan import BITS, WIDTH, Clip, Step, tasks
from musegnn.ops.kernel import kernel
from musegnn.ops.parallel import run
from musegnn.ops.prefetch import prefetch

_ONE, _TWO, _THREE, _FOUR, _EIGHT = (np.uint64(number) for number in (1, 2, 3, 4, 8))
_AHEAD = np.uint64(12288)
"""Bytes between the neighbors that are added and those that are fetched."""
_LINE = 64
"""Bytes that are fetched at once."""
_NO_MASK = np.empty((0, 0), dtype=np.uint8)
_NO_LEVELS = np.empty(0, dtype=np.uint8)


def descend(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    step: Step,
    X: Float[np.ndarray, "nodes dim"],
    B: Float[np.ndarray, "nodes dim"],
    clip: Clip,
    out: Float[np.ndarray, "nodes dim"],
    mask: UInt8[np.ndarray, "nodes bytes"] | None = None,
    *,
    watch: bool = False,
    levels: UInt8[np.ndarray, " nodes"] | None = None,
    limit: int = 0,
    threads: int = 1,
) -> float | None:
    """See `musegnn.ops.descend`."""
    pieces = tasks(indptr, X.shape[1], threads)
    energy = np.zeros((len(pieces) if watch else 0, X.shape[1]))
    kind = X.dtype.type
    limits = kind(clip.weight), kind(clip.low), kind(clip.high)
    unsigned = _unsigned(indices)
    marks = _NO_MASK if mask is None else mask
    some = _NO_LEVELS if levels is None else levels, limit
    run(
        _descend,
        [
            (*piece, k, indptr, unsigned, *step, X, B, *limits, out, marks, energy, *some)
            for k, piece in enumerate(pieces)
        ],
        threads,
    )
    return float(energy.sum()) if watch else None


def pull_back(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    step: Step,
    V: Float[np.ndarray, "nodes dim"],
    mask: UInt8[np.ndarray, "nodes bytes"] | None,
    total: Float[np.ndarray, "nodes dim"],
    out: Float[np.ndarray, "nodes dim"],
    *,
    levels: UInt8[np.ndarray, " nodes"] | None = None,
    limit: int = 0,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.pull_back`."""
    unsigned = _unsigned(indices)
    marks = _NO_MASK if mask is None else mask
    some = _NO_LEVELS if levels is None else levels, limit
    run(
        _pull_back,
        [
            (*piece, indptr, unsigned, *step, V, marks, total, out, *some)
            for piece in tasks(indptr, V.shape[1], threads)
        ],
        threads,
    )


def cut(
    V: Float[np.ndarray, "nodes dim"], mask: UInt8[np.ndarray, "nodes bytes"], *, threads: int = 1
) -> None:
    """See `musegnn.ops.cut`."""
    flat = np.arange(len(V) + 1, dtype=np.int64)
    run(_cut, [(*piece, V, mask) for piece in tasks(flat, V.shape[1], threads)], threads)


def propagate(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    X: Float[np.ndarray, "nodes dim"],
    out: Float[np.ndarray, "nodes dim"],
    *,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.propagate`."""
    unsigned, ones = _unsigned(indices), np.ones(len(X), dtype=X.dtype)
    pieces = tasks(indptr, X.shape[1], threads)
    run(_propagate, [(*piece, indptr, unsigned, ones, X, out) for piece in pieces], threads)


def propagate_weighed(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    left: Float[np.ndarray, " nodes"],
    right: Float[np.ndarray, " nodes"],
    X: Float[np.ndarray, "nodes dim"],
    out: Float[np.ndarray, "nodes dim"],
    take: Float[np.ndarray, " nodes"] | None = None,
    B: Float[np.ndarray, "nodes dim"] | None = None,
    *,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.propagate_weighed`."""
    added = (left[:0], X[:0]) if take is None or B is None else (take, B)
    given = indptr, _unsigned(indices), left, right, X, *added, out
    pieces = tasks(indptr, X.shape[1], threads)
    run(_propagate_weighed, [(*piece, *given) for piece in pieces], threads)


def _unsigned(indices: np.ndarray) -> np.ndarray:
    """Ids are not negative; as unsigned numbers they need no test for an index from the end."""
    return indices.view(np.uint32 if indices.dtype == np.int32 else np.uint64)


@kernel
@no_type_check
def _gather(indptr, indices, weight, flat, dim, row, first, sums):
    """sums = the sum over the neighbors j of a row of weight_j X_j, in some columns; X as one long row."""
    width, start, final = np.uint64(len(sums)), np.uint64(first), np.uint64(len(indices))
    e, end = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
    ahead = max(np.uint64(8), _AHEAD // (width * np.uint64(flat.itemsize)))
    sums[:] = 0
    while e + _EIGHT <= end:
        _prefetch_rows(
            indices, min(e + ahead, final), min(e + ahead + _EIGHT, final), flat, dim, start, width
        )
        a, b, c, d = indices[e], indices[e + _ONE], indices[e + _TWO], indices[e + _THREE]
        f = e + _FOUR
        h, i, j, k = indices[f], indices[f + _ONE], indices[f + _TWO], indices[f + _THREE]
        wa, wb, wc, wd = weight[a], weight[b], weight[c], weight[d]
        wh, wi, wj, wk = weight[h], weight[i], weight[j], weight[k]
        xa, xb = _row(flat, a, dim, start, width), _row(flat, b, dim, start, width)
        xc, xd = _row(flat, c, dim, start, width), _row(flat, d, dim, start, width)
        xh, xi = _row(flat, h, dim, start, width), _row(flat, i, dim, start, width)
        xj, xk = _row(flat, j, dim, start, width), _row(flat, k, dim, start, width)
        for q in range(len(sums)):
            first_four = (wa * xa[q] + wb * xb[q]) + (wc * xc[q] + wd * xd[q])
            sums[q] += first_four + ((wh * xh[q] + wi * xi[q]) + (wj * xj[q] + wk * xk[q]))
        e += _EIGHT
    while e + _FOUR <= end:
        _prefetch_rows(indices, min(e + ahead, final), min(e + ahead + _FOUR, final), flat, dim, start, width)
        h, i, j, k = indices[e], indices[e + _ONE], indices[e + _TWO], indices[e + _THREE]
        wh, wi, wj, wk = weight[h], weight[i], weight[j], weight[k]
        xh, xi = _row(flat, h, dim, start, width), _row(flat, i, dim, start, width)
        xj, xk = _row(flat, j, dim, start, width), _row(flat, k, dim, start, width)
        for q in range(len(sums)):
            sums[q] += (wh * xh[q] + wi * xi[q]) + (wj * xj[q] + wk * xk[q])
        e += _FOUR
    while e < end:
        _prefetch_rows(indices, min(e + ahead, final), min(e + ahead + _ONE, final), flat, dim, start, width)
        xj, wj = _row(flat, indices[e], dim, start, width), weight[indices[e]]
        for f in range(len(sums)):
            sums[f] += wj * xj[f]
        e += np.uint64(1)


@kernel
@no_type_check
def _prefetch_rows(indices, begin, end, flat, dim, start, width):
    line = np.uint64(_LINE // flat.itemsize)
    for e in range(begin, end):
        at = np.uint64(indices[e]) * dim + start
        for f in range(np.uint64(0), width, line):
            prefetch(flat, at + f)


@kernel
@no_type_check
def _row(flat, j, dim, start, width):
    # 64 bits before the product: j * dim passes 2**32 on a graph of 10 million nodes.
    at = np.uint64(j) * dim + start
    return flat[at : at + width]


@kernel
@no_type_check
def _descend(
    begin,
    end,
    first,
    last,
    piece,
    indptr,
    indices,
    keep,
    left,
    right,
    take,
    X,
    B,
    weight,
    low,
    high,
    out,
    mask,
    energy,
    levels,
    limit,
):
    flat, dim = X.reshape(-1), np.uint64(X.shape[1])
    sums = np.empty(last - first, dtype=X.dtype)
    for i in range(begin, end):
        if len(levels) and levels[i] > limit:
            continue
        x, b, y = X[i, first:last], B[i, first:last], out[i, first:last]
        _gather(indptr, indices, right, flat, dim, i, first, sums)
        for f in range(len(sums)):
            sums[f] = (keep[i] * x[f] + left[i] * sums[f]) + take[i] * b[f]
        if len(energy):
            for f in range(len(sums)):
                energy[piece, f] += x[f] * ((x[f] - sums[f]) / take[i] - b[f]) + weight * abs(x[f])
        _clip(sums, weight * take[i] / 2, low, high)
        y[:] = sums
        if len(mask):
            _mark(sums, mask[i, first // BITS :], weight, low, high)


@kernel
@no_type_check
def _clip(values, half, low, high):
    # Comparisons, not min and max, which would turn a NaN into a number.
    if half > 0:
        for f in range(len(values)):
            x = values[f]
            values[f] = x - (-half if x < -half else half if x > half else x)
    for f in range(len(values)):
        x = values[f]
        x = low if x < low else x
        values[f] = high if x > high else x


@kernel
@no_type_check
def _mark(values, mask, weight, low, high):
    """A bit for each value that moves when its argument does."""
    for first in range(0, len(values), WIDTH):
        block = values[first : first + WIDTH]
        size = (len(block) + BITS - 1) // BITS
        marks = mask[first // BITS : first // BITS + size]
        marks[:] = 0
        for q in range(BITS):
            part = block[q * size : (q + 1) * size]
            for c in range(len(part)):
                y = part[c]
                is_free = (y > low) & (y < high) & ((weight == 0) | (y != 0))
                marks[c] |= np.uint8(is_free) << np.uint8(q)


@kernel
@no_type_check
def _blot(values, mask):
    """Zero where the bit is not set."""
    for first in range(0, len(values), WIDTH):
        block = values[first : first + WIDTH]
        size = (len(block) + BITS - 1) // BITS
        marks = mask[first // BITS : first // BITS + size]
        for q in range(BITS):
            part = block[q * size : (q + 1) * size]
            for c in range(len(part)):
                if marks[c] >> np.uint8(q) & np.uint8(1) == 0:
                    part[c] = 0


@kernel
@no_type_check
def _pull_back(
    begin, end, first, last, indptr, indices, keep, left, right, take, V, mask, total, out, levels, limit
):
    flat, dim = V.reshape(-1), np.uint64(V.shape[1])
    sums = np.empty(last - first, dtype=V.dtype)
    for i in range(begin, end):
        if len(levels) and levels[i] > limit:
            continue
        v, t, y = V[i, first:last], total[i, first:last], out[i, first:last]
        _gather(indptr, indices, left, flat, dim, i, first, sums)
        for f in range(len(sums)):
            t[f] += take[i] * v[f]
            sums[f] = keep[i] * v[f] + right[i] * sums[f]
        if len(mask):
            _blot(sums, mask[i, first // BITS :])
        y[:] = sums


@kernel
@no_type_check
def _cut(begin, end, first, last, V, mask):
    for i in range(begin, end):
        _blot(V[i, first:last], mask[i, first // BITS :])


@kernel
@no_type_check
def _propagate(begin, end, first, last, indptr, indices, ones, X, out):
    flat, dim = X.reshape(-1), np.uint64(X.shape[1])
    for i in range(begin, end):
        _gather(indptr, indices, ones, flat, dim, i, first, out[i, first:last])


@kernel
@no_type_check
def _propagate_weighed(begin, end, first, last, indptr, indices, left, right, X, take, B, out):
    flat, dim = X.reshape(-1), np.uint64(X.shape[1])
    for i in range(begin, end):
        y = out[i, first:last]
        _gather(indptr, indices, right, flat, dim, i, first, y)
        if len(take):
            b = B[i, first:last]
            for f in range(len(y)):
                y[f] = left[i] * y[f] + take[i] * b[f]
        else:
            for f in range(len(y)):
                y[f] *= left[i]
