"""Sums with a weight for each entry, and a step on them: a pass over the rows."""

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int64, Integer

from musegnn.ops.descend.numba import _AHEAD, _clip, _prefetch_rows, _row, _unsigned
from musegnn.ops.descend.plan import Clip, tasks
from musegnn.ops.kernel import kernel
from musegnn.ops.parallel import run

_ONE, _TWO, _THREE, _FOUR = (np.uint64(number) for number in (1, 2, 3, 4))


def spread(
    indptr: Int64[np.ndarray, " rows_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    weight: Float[np.ndarray, " entries"],
    X: Float[np.ndarray, "columns dim"],
    out: Float[np.ndarray, "rows dim"],
    *,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.spread`."""
    given = indptr, _unsigned(indices), weight, X, out
    run(_spread, [(*piece, *given) for piece in tasks(indptr, X.shape[1], threads)], threads)


def settle(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    weight: Float[np.ndarray, " entries"],
    M: Float[np.ndarray, "columns dim"],
    R: Float[np.ndarray, "terms nodes dim"],
    scale: Float[np.ndarray, "terms dim"],
    keep: Float[np.ndarray, " nodes"],
    take: Float[np.ndarray, " nodes"],
    X: Float[np.ndarray, "nodes dim"],
    B: Float[np.ndarray, "nodes dim"] | None,
    clip: Clip,
    out: Float[np.ndarray, "nodes dim"],
    *,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.settle`."""
    kind = X.dtype.type
    limits = kind(clip.weight), kind(clip.low), kind(clip.high)
    rows = M, R, scale, keep, take, X, X[:0] if B is None else B
    given = indptr, _unsigned(indices), weight, *rows, *limits, out
    run(_settle, [(*piece, *given) for piece in tasks(indptr, X.shape[1], threads)], threads)


@kernel
@no_type_check
def _gather(indptr, indices, weight, flat, dim, row, first, sums):
    """sums = the sum over the entries e of a row of weight_e X_(column of e), in some columns."""
    width, start, final = np.uint64(len(sums)), np.uint64(first), np.uint64(len(indices))
    e, end = np.uint64(indptr[row]), np.uint64(indptr[row + 1])
    ahead = max(np.uint64(8), _AHEAD // max(_ONE, width * np.uint64(flat.itemsize)))
    sums[:] = 0
    while e + _FOUR <= end:
        _prefetch_rows(indices, min(e + ahead, final), min(e + ahead + _FOUR, final), flat, dim, start, width)
        xa, xb = _row(flat, indices[e], dim, start, width), _row(flat, indices[e + _ONE], dim, start, width)
        xc, xd = (
            _row(flat, indices[e + _TWO], dim, start, width),
            _row(flat, indices[e + _THREE], dim, start, width),
        )
        wa, wb, wc, wd = weight[e], weight[e + _ONE], weight[e + _TWO], weight[e + _THREE]
        for q in range(len(sums)):
            sums[q] += (wa * xa[q] + wb * xb[q]) + (wc * xc[q] + wd * xd[q])
        e += _FOUR
    while e < end:
        _prefetch_rows(indices, min(e + ahead, final), min(e + ahead + _ONE, final), flat, dim, start, width)
        x, w = _row(flat, indices[e], dim, start, width), weight[e]
        for q in range(len(sums)):
            sums[q] += w * x[q]
        e += _ONE


@kernel
@no_type_check
def _spread(begin, end, first, last, indptr, indices, weight, X, out):
    flat, dim = X.reshape(-1), np.uint64(X.shape[1])
    for i in range(begin, end):
        _gather(indptr, indices, weight, flat, dim, i, first, out[i, first:last])


@kernel
@no_type_check
def _settle(
    begin, end, first, last, indptr, indices, weight, M, R, scale, keep, take, X, B, least, low, high, out
):
    flat, dim = M.reshape(-1), np.uint64(M.shape[1])
    sums = np.empty(last - first, dtype=X.dtype)
    for i in range(begin, end):
        _gather(indptr, indices, weight, flat, dim, i, first, sums)
        for w in range(len(R)):
            r, s = R[w, i, first:last], scale[w, first:last]
            for f in range(len(sums)):
                sums[f] -= s[f] * r[f]
        if len(B):
            b = B[i, first:last]
            for f in range(len(sums)):
                sums[f] += b[f]
        x = X[i, first:last]
        for f in range(len(sums)):
            sums[f] = keep[i] * x[f] + take[i] * sums[f]
        _clip(sums, least * take[i] / 2, low, high)
        out[i, first:last] = sums
