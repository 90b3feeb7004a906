"""Differences to the neighbors with weights, edge by edge. Slow, obvious."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Int64, Integer

SLOPES: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "geman": (lambda t: (1 + t) ** -2, lambda t: -2 * (1 + t) ** -3),
    "charbonnier": (lambda t: (1 + t) ** -0.5, lambda t: -0.5 * (1 + t) ** -1.5),
    "truncated": (lambda t: float(t < 1), lambda t: 0.0),
}
"""rho' and rho''."""


def reweigh(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    X: Float[np.ndarray, "nodes dim"],
    rho: str,
    scale: float,
    out: Float[np.ndarray, "nodes dim"],
    *,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.reweigh`."""
    slope, _ = SLOPES[rho]
    out[:] = 0
    for i in range(len(X)):
        for j in indices[indptr[i] : indptr[i + 1]]:
            D = X[i] - X[j]
            out[i] += slope(D @ D / scale) * D


def reweigh_back(
    indptr: Int64[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
    X: Float[np.ndarray, "nodes dim"],
    G: Float[np.ndarray, "nodes dim"],
    rho: str,
    scale: float,
    out: Float[np.ndarray, "nodes dim"],
    *,
    frozen: bool = False,
    threads: int = 1,
) -> None:
    """See `musegnn.ops.reweigh_back`."""
    slope, curve = SLOPES[rho]
    out[:] = 0
    for i in range(len(X)):
        for j in indices[indptr[i] : indptr[i + 1]]:
            D, V = X[i] - X[j], G[i] - G[j]
            t = D @ D / scale
            out[i] += slope(t) * V
            if not frozen:
                out[i] += 2 / scale * curve(t) * (D @ V) * D
