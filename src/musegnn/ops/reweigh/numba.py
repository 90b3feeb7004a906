"""Differences to the neighbors with weights: a row and its neighbors once, no weight is kept.

Sums over columns are folded in halves, which is fast without leave to change the order of sums.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Float, Int64, Integer

from musegnn.ops.descend.numba import _prefetch_rows, _unsigned
from musegnn.ops.descend.plan import tasks
from musegnn.ops.kernel import kernel
from musegnn.ops.parallel import run
from musegnn.ops.reweigh.rho import Rho

_ZERO, _ONE, _AHEAD = np.uint64(0), np.uint64(1), np.uint64(8)


def reweigh(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    X: Float[np.ndarray, "nodes dim"],
    rho: Rho,
    out: Float[np.ndarray, "nodes dim"],
    *,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.reweigh`."""
    given = indptr, _unsigned(indices), X, _law(rho, X.dtype), out
    run(_reweigh, [(*piece[:2], *given) for piece in tasks(indptr, 1, threads)], threads)


def reweigh_back(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    X: Float[np.ndarray, "nodes dim"],
    G: Float[np.ndarray, "nodes dim"],
    rho: Rho,
    out: Float[np.ndarray, "nodes dim"],
    *,
    frozen: bool = False,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.reweigh_back`."""
    given = indptr, _unsigned(indices), X, G, _law(rho, X.dtype), frozen, out
    run(_reweigh_back, [(*piece[:2], *given) for piece in tasks(indptr, 1, threads)], threads)


def _law(rho: Rho, dtype: np.dtype) -> Rho:
    """With p/2 - 1 in the place of p, as numbers of the rows."""
    return Rho(dtype.type(rho.power / 2 - 1), dtype.type(rho.cutoff), dtype.type(rho.scale))


@kernel
@no_type_check
def _slope(law, t):
    """rho'(t)."""
    exponent, cutoff, _ = law
    near = type(t)(1) + t
    # A power takes as long as a sixth of a row of 128 numbers; whole ones do without.
    if exponent == -2:
        slope = type(t)(1) / (near * near)
    elif exponent == -1:
        slope = type(t)(1) / near
    else:
        slope = near**exponent
    return slope * type(t)(t < cutoff)


@kernel
@no_type_check
def _inner(a, b, sums):
    """<a, b>; four quarters are added at once until few numbers are left."""
    size, total = len(a) // 4, a.dtype.type(0)
    one, two, three = size, 2 * size, 3 * size
    for f in range(size):
        sums[f] = (a[f] * b[f] + a[one + f] * b[one + f]) + (
            a[two + f] * b[two + f] + a[three + f] * b[three + f]
        )
    for f in range(4 * size, len(a)):
        total += a[f] * b[f]
    while size >= 32:
        rest = size - size // 4 * 4
        for f in range(size - rest, size):
            total += sums[f]
        size //= 4
        one, two, three = size, 2 * size, 3 * size
        for f in range(size):
            sums[f] = (sums[f] + sums[one + f]) + (sums[two + f] + sums[three + f])
    for f in range(size):
        total += sums[f]
    return total


@kernel
@no_type_check
def _reweigh(begin, end, indptr, indices, X, law, out):
    flat, dim, final = X.reshape(-1), np.uint64(X.shape[1]), np.uint64(len(indices))
    D, sums = np.empty(X.shape[1], dtype=X.dtype), np.empty(X.shape[1], dtype=X.dtype)
    for i in range(begin, end):
        x, y = X[i], out[i]
        y[:] = 0
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            ahead = min(e + _AHEAD, final)
            _prefetch_rows(indices, ahead, min(ahead + _ONE, final), flat, dim, _ZERO, dim)
            other = X[indices[e]]
            for f in range(len(D)):
                D[f] = x[f] - other[f]
            w = _slope(law, _inner(D, D, sums) / law[2])
            for f in range(len(D)):
                y[f] += w * D[f]


@kernel
@no_type_check
def _reweigh_back(begin, end, indptr, indices, X, G, law, frozen, out):
    D, V = np.empty(X.shape[1], dtype=X.dtype), np.empty(X.shape[1], dtype=X.dtype)
    sums = np.empty(X.shape[1], dtype=X.dtype)
    for i in range(begin, end):
        x, g, y = X[i], G[i], out[i]
        y[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            other, back = X[indices[e]], G[indices[e]]
            for f in range(len(D)):
                D[f] = x[f] - other[f]
                V[f] = g[f] - back[f]
            t = _inner(D, D, sums) / law[2]
            w = _slope(law, t)
            if frozen:
                for f in range(len(D)):
                    y[f] += w * V[f]
            else:
                # rho'' = (p/2 - 1) rho' / (1 + t)
                bend = w * (law[0] + law[0]) / (type(t)(1) + t) * _inner(D, V, sums) / law[2]
                for f in range(len(D)):
                    y[f] += w * V[f] + bend * D[f]
