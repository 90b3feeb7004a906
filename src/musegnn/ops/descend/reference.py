"""One proximal step, with a dense matrix. Slow, obvious, any float dtype."""

import numpy as np
from jaxtyping import Float, Int64, Integer, UInt8

from musegnn.ops.descend.plan import Clip, Step, pack, unpack


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
    A = _dense(indptr, indices, X.dtype)
    keep, left, right, take = (values[:, None] for values in step)
    moved = keep * X + left * (A @ (right * X)) + take * B
    half = clip.weight * take / 2
    result = np.clip(moved - np.clip(moved, -half, half), clip.low, clip.high)
    rows = _wanted(levels, limit)
    out[rows] = result[rows]
    if mask is not None:
        is_free = (clip.low < result) & (result < clip.high)
        if clip.weight:
            is_free &= result != 0
        mask[rows] = pack(is_free)[rows]
    energy = X * ((X - moved) / take - B) + clip.weight * np.abs(X)
    return float(energy[rows].sum(dtype=np.float64)) if watch else None


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
    A = _dense(indptr, indices, V.dtype)
    keep, left, right, take = (values[:, None] for values in step)
    result = keep * V + right * (A @ (left * V))
    if mask is not None:
        cut(result, mask)
    rows = _wanted(levels, limit)
    total[rows] += (take * V)[rows]
    out[rows] = result[rows]


def cut(
    V: Float[np.ndarray, "nodes dim"], mask: UInt8[np.ndarray, "nodes bytes"], *, threads: int = 1
) -> None:
    """See `musegnn.ops.cut`."""
    V[~unpack(mask, V.shape[1])] = 0


def propagate(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    X: Float[np.ndarray, "nodes dim"],
    out: Float[np.ndarray, "nodes dim"],
    *,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.propagate`."""
    out[:] = _dense(indptr, indices, X.dtype) @ X


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
    out[:] = left[:, None] * (_dense(indptr, indices, X.dtype) @ (right[:, None] * X))
    if take is not None and B is not None:
        out += take[:, None] * B


def _wanted(levels: UInt8[np.ndarray, " nodes"] | None, limit: int) -> np.ndarray | slice:
    return slice(None) if levels is None else np.flatnonzero(levels <= limit)


def _dense(indptr: np.ndarray, indices: np.ndarray, dtype: np.dtype) -> np.ndarray:
    n = len(indptr) - 1
    A = np.zeros((n, n), dtype=dtype)
    A[np.repeat(np.arange(n), np.diff(indptr)), indices] = 1
    return A
