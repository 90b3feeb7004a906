"""Differences to the neighbors with weights, edge by edge. Slow, obvious."""

import numpy as np
from jaxtyping import Float, Int64, Integer

from musegnn.ops.reweigh.rho import Rho


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
    out[:] = 0
    for i in range(len(X)):
        for j in indices[indptr[i] : indptr[i + 1]]:
            D = X[i] - X[j]
            out[i] += _slope(rho, D @ D / rho.scale) * D


def _slope(rho: Rho, t: float) -> float:
    return float((1 + t) ** (rho.power / 2 - 1)) if t < rho.cutoff else 0.0


def _curve(rho: Rho, t: float) -> float:
    return float((rho.power / 2 - 1) * (1 + t) ** (rho.power / 2 - 2)) if t < rho.cutoff else 0.0


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
    out[:] = 0
    for i in range(len(X)):
        for j in indices[indptr[i] : indptr[i + 1]]:
            D, V = X[i] - X[j], G[i] - G[j]
            t = D @ D / rho.scale
            out[i] += _slope(rho, t) * V
            if not frozen:
                out[i] += 2 / rho.scale * _curve(rho, t) * (D @ V) * D
