"""Bounds on the largest eigenvalue, from dense matrices in float64. Slow, obvious."""

import numpy as np
from jaxtyping import Float64, Int32, Int64

from musegnn.ops.random_bits.reference import random_bits

STEPS = 2
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
            (1 - ROUNDING - SUMMING * n) * max(0.0, _ritz_value(L, start(indptr, indices))),
            (1 + ROUNDING) * (2 - 2 / (1 + degree.max())),
            degree.max() + 1 if degree.max() else 0.0,
            (degree[rows] + degree[indices]).max(initial=0),
        ]
    )


def start(
    indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Int32[np.ndarray, " entries"]
) -> Float64[np.ndarray, " nodes"]:
    """D'^1/2 s with signs s that oppose their neighbors: where edges join unlike signs, x'Lx is large.

        x'Lx / x'x = 4 |{edges (i, j): s_i != s_j}| / (n + entries)   for x = D'^1/2 s

    The signs are random at first; then each node in turn takes the one that most neighbors do not have.
    """
    n = len(indptr) - 1
    signs = 1 - 2 * (random_bits(0, np.arange(n, dtype=np.uint64)) & np.uint64(1)).astype(np.int64)
    for i in range(n):
        total = signs[indices[indptr[i] : indptr[i + 1]]].sum()
        if total != 0:
            signs[i] = -1 if total > 0 else 1
    vector: np.ndarray = signs * np.sqrt(np.diff(indptr) + 1.0)
    return vector


def _ritz_value(L: Float64[np.ndarray, "n n"], x: Float64[np.ndarray, " n"]) -> float:
    """The largest eigenvalue of V'LV, the columns of V an orthonormal basis of span {x, Lx}."""
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
