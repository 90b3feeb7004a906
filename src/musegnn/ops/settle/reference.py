"""Sums with a weight for each entry, and a step on them, with a dense matrix. Slow, obvious."""

import numpy as np
from jaxtyping import Float, Int64, Integer

from musegnn.ops.descend.plan import Clip


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
    out[:] = _dense(indptr, indices, weight, X) @ X


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
    total = (scale[:, None] * R).sum(axis=0) - _dense(indptr, indices, weight, M) @ M
    moved = keep[:, None] * X + take[:, None] * ((0 if B is None else B) - total)
    half = clip.weight * take[:, None] / 2
    out[:] = np.clip(moved - np.clip(moved, -half, half), clip.low, clip.high)


def _dense(indptr: np.ndarray, indices: np.ndarray, weight: np.ndarray, X: np.ndarray) -> np.ndarray:
    P = np.zeros((len(indptr) - 1, len(X)), dtype=X.dtype)
    # An entry may be there twice.
    np.add.at(P, (np.repeat(np.arange(len(P)), np.diff(indptr)), indices), weight)
    return P
