"""Bounds on the largest eigenvalue, from dense matrices in float64. Slow, obvious."""

import numpy as np
from jaxtyping import Float64, Int32, Int64

from musegnn.ops.random_bits.reference import random_bits

STEPS = 6
"""Dimension of the Krylov space; each costs one product with the matrix."""
ROUNDING = 1e-12
"""The upper bound is raised by this share; theta is lowered by it and by SUMMING for each node."""
SUMMING = 2e-15
"""More than what a sum over the nodes, taken in one go, may be off for each of them."""


def spectral_bounds(
    indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Int32[np.ndarray, " entries"]
) -> Float64[np.ndarray, "4"]:
    """See `musegnn.ops.spectral_bounds`."""
    n = len(indptr) - 1
    if n == 0:
        return np.zeros(4)
    degree = np.diff(indptr).astype(np.float64)
    rows = np.repeat(np.arange(n), np.diff(indptr))
    A = np.zeros((n, n))
    A[rows, indices] = 1
    scale = 1 / np.sqrt(degree + 1)
    L = np.eye(n) - scale[:, None] * (A + np.eye(n)) * scale
    return np.array(
        [
            (1 - ROUNDING - SUMMING * n) * max(0.0, _ritz_value(L, start(degree))),
            (1 + ROUNDING) * (2 - 2 / (1 + degree.max())),
            degree.max() + 1 if degree.max() else 0.0,
            (degree[rows] + degree[indices]).max(initial=0),
        ]
    )


def start(degree: Float64[np.ndarray, " nodes"]) -> Float64[np.ndarray, " nodes"]:
    """D'^1/2 times random signs: far from the eigenvector of the eigenvalue 0, which has no signs."""
    signs = 1.0 - 2.0 * (random_bits(0, np.arange(len(degree), dtype=np.uint64)) & np.uint64(1))
    vector: np.ndarray = signs * np.sqrt(degree + 1)
    return vector


def _ritz_value(L: Float64[np.ndarray, "n n"], x: Float64[np.ndarray, " n"]) -> float:
    """The largest eigenvalue of V'LV, the columns of V an orthonormal basis of span {x, Lx, ..., L^5 x}."""
    basis: list[np.ndarray] = []
    for _ in range(STEPS):
        # Twice, since once leaves a part that rounding has hidden.
        for _ in range(2):
            for v in basis:
                x = x - (v @ x) * v
        if np.linalg.norm(x) <= 1e-9 * len(x):
            break
        basis.append(x / np.linalg.norm(x))
        x = L @ basis[-1]
    V = np.stack(basis, axis=1)
    return float(np.linalg.eigvalsh(V.T @ L @ V)[-1])
