"""Kernels that descent steps are made of: sums over neighbors, and what is done with them in one pass."""

import numpy as np
from jaxtyping import Float, Int64

from musegnn.ops.calls import Indices, Indptr, Levels, Mask, Rows, plain, version
from musegnn.ops.descend.plan import Clip, Step
from musegnn.ops.reweigh.rho import Rho


def propagate(
    indptr: Indptr, indices: Indices, X: Rows, out: Rows, *, threads: int = 1, compiled: bool = True
) -> None:
    """out = A X: the sum of the rows of the neighbors."""
    version("descend", compiled).propagate(plain(indptr), plain(indices), plain(X), out, threads=threads)


def propagate_weighed(
    indptr: Indptr,
    indices: Indices,
    left: Float[np.ndarray, " nodes"],
    right: Float[np.ndarray, " nodes"],
    X: Rows,
    out: Rows,
    take: Float[np.ndarray, " nodes"] | None = None,
    B: Rows | None = None,
    *,
    threads: int = 1,
    compiled: bool = True,
) -> None:
    """out = left A (right X), and take B if both are given; A may have a direction."""
    graph, weights, added = (plain(indptr), plain(indices)), (plain(left), plain(right)), ()
    if take is not None and B is not None:
        added = plain(take), plain(B)  # type: ignore[assignment]
    arrays = *graph, *weights, plain(X), out, *added
    version("descend", compiled).propagate_weighed(*arrays, threads=threads)


def descend(
    indptr: Indptr,
    indices: Indices,
    step: Step,
    X: Rows,
    B: Rows,
    clip: Clip,
    out: Rows,
    mask: Mask | None = None,
    *,
    watch: bool = False,
    levels: Levels | None = None,
    limit: int = 0,
    threads: int = 1,
    compiled: bool = True,
) -> float | None:
    """One proximal step on a quadratic energy; A is symmetric and has no weights.

        moved = keep X + left A (right X) + take B
        out   = argmin_Y |Y - moved|^2 / 2 + (take / 2) (weight |Y|_1, low <= Y <= high)
        mask  = bits: whether an entry of `out` changes when its entry of `moved` does

    Returns, if asked to `watch`, <X, (X - moved) / take - B> + weight |X|_1: where `take` is the step size of
    an energy <X, H X> - 2 <X, B> + weight |X|_1, this is that energy of X.
    With `levels`, only rows whose level is at most `limit` are written to `out` and `mask`, or watched.
    A row is added up by one thread, in the order of its entries: their number changes no bit of `out`.
    """
    graph, rows = (plain(indptr), plain(indices)), (plain(X), plain(B))
    op, some = version("descend", compiled), {"levels": levels, "limit": limit}
    return op.descend(*graph, step, *rows, clip, out, mask, watch=watch, threads=threads, **some)  # type: ignore[no-any-return]


def pull_back(
    indptr: Indptr,
    indices: Indices,
    step: Step,
    V: Rows,
    mask: Mask | None,
    total: Rows,
    out: Rows,
    *,
    levels: Levels | None = None,
    limit: int = 0,
    threads: int = 1,
    compiled: bool = True,
) -> None:
    """The transpose of `descend`: V is the gradient behind it, with zeros where its mask has them.

        total += take V
        out    = keep V + right A (left V), with zeros where `mask` (of the step before) has them

    With `levels`, only in rows whose level is at most `limit`.
    """
    graph, some = (plain(indptr), plain(indices)), {"levels": levels, "limit": limit}
    version("descend", compiled).pull_back(*graph, step, plain(V), mask, total, out, threads=threads, **some)


def cut(V: Rows, mask: Mask, *, threads: int = 1, compiled: bool = True) -> None:
    """Zeros into V where the mask has them, in place."""
    version("descend", compiled).cut(V, mask, threads=threads)


def reweigh(
    indptr: Indptr,
    indices: Indices,
    X: Rows,
    rho: Rho,
    out: Rows,
    *,
    threads: int = 1,
    compiled: bool = True,
) -> None:
    """out_i = sum over the neighbors j of rho'(|D|^2 / scale) D,   D = X_i - X_j."""
    graph = plain(indptr), plain(indices)
    version("reweigh", compiled).reweigh(*graph, plain(X), rho, out, threads=threads)


def reweigh_back(
    indptr: Indptr,
    indices: Indices,
    X: Rows,
    G: Rows,
    rho: Rho,
    out: Rows,
    *,
    frozen: bool = False,
    threads: int = 1,
    compiled: bool = True,
) -> None:
    """The derivative of `reweigh` at X along G; it is symmetric where A is, as that is half a gradient.

        out_i = sum_j rho' V + (2 / scale) rho'' <D, V> D,   V = G_i - G_j

    Frozen, the weights rho' are constants: without the second term.
    """
    graph, settings = (plain(indptr), plain(indices)), {"frozen": frozen, "threads": threads}
    version("reweigh", compiled).reweigh_back(*graph, plain(X), plain(G), rho, out, **settings)


def spread(
    indptr: Int64[np.ndarray, " rows_plus_1"],
    indices: Indices,
    weight: Float[np.ndarray, " entries"],
    X: Float[np.ndarray, "columns dim"],
    out: Float[np.ndarray, "rows dim"],
    *,
    threads: int = 1,
    compiled: bool = True,
) -> None:
    """out = P X: row r is the sum over its entries e of weight_e X_(column of e); P need not be square."""
    matrix = plain(indptr), plain(indices), plain(weight)
    version("settle", compiled).spread(*matrix, plain(X), out, threads=threads)


def settle(
    indptr: Indptr,
    indices: Indices,
    weight: Float[np.ndarray, " entries"],
    M: Float[np.ndarray, "columns dim"],
    R: Float[np.ndarray, "terms nodes dim"],
    scale: Float[np.ndarray, "terms dim"],
    keep: Float[np.ndarray, " nodes"],
    take: Float[np.ndarray, " nodes"],
    X: Rows,
    B: Rows | None,
    clip: Clip,
    out: Rows,
    *,
    threads: int = 1,
    compiled: bool = True,
) -> None:
    """One proximal step on a sum of terms, from what has been made of each.

        total = sum_t scale_t R_t - P M
        moved = keep X + take (B - total)
        out   = argmin_Y |Y - moved|^2 / 2 + (take / 2) (weight |Y|_1, low <= Y <= high)

    `scale` has a number for each channel of each term; B may be left out. A row is added up by one thread, in
    the order of its entries: their number changes no bit.
    """
    matrix = plain(indptr), plain(indices), plain(weight)
    rows = [plain(part) for part in (M, R, scale, keep, take, X)]
    added = None if B is None else plain(B)
    version("settle", compiled).settle(*matrix, *rows, added, clip, out, threads=threads)
