"""Bounds on the largest eigenvalue: Lanczos steps and degrees.

Every sum is taken in one order and nothing is fused, so that a sample has the same bytes on every machine.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Float64, Int32, Int64

from musegnn.ops.kernel import kernel
from musegnn.ops.random_bits.numba import bits_at
from musegnn.ops.spectral_bounds.reference import ROUNDING, STEPS, SUMMING

_BREAKDOWN = 1e-10
"""A residual this small has left the Krylov space with nothing new."""


def spectral_bounds(
    indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Int32[np.ndarray, " entries"]
) -> Float64[np.ndarray, "4"]:
    """See `musegnn.ops.spectral_bounds`."""
    if len(indptr) == 1:
        return np.zeros(4)
    columns = indices.view(np.uint32)
    alpha, beta = _lanczos(indptr, columns)
    largest, joint = _degrees(indptr, columns)
    return np.array(
        [
            (1 - ROUNDING - SUMMING * (len(indptr) - 1)) * max(0.0, _largest_eigenvalue(alpha, beta)),
            (1 + ROUNDING) * (2 - 2 / (1 + largest)),
            largest + 1 if largest else 0,
            joint,
        ],
        dtype=np.float64,
    )


@kernel
@no_type_check
def _degrees(indptr, indices):
    """The largest degree, and the largest sum of degrees of two neighbors."""
    degree = (indptr[1:] - indptr[:-1]).astype(np.uint32)
    joint = np.int64(0)
    for i in range(len(degree)):
        largest = np.uint32(0)
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            largest = max(largest, degree[indices[e]])
        if largest > 0:
            joint = max(joint, np.int64(degree[i]) + np.int64(largest))
    return np.int64(degree.max()), joint


@kernel
@no_type_check
def _lanczos(indptr, indices):
    """The tridiagonal matrix V'LV after so many steps: its diagonal and what stands beside it."""
    n = len(indptr) - 1
    scale = np.empty(n)
    v = np.empty(n)
    for i in range(n):
        root = np.sqrt(indptr[i + 1] - indptr[i] + 1.0)
        scale[i] = 1.0 / root
        v[i] = -root if bits_at(np.uint64(0), np.uint64(i)) & np.uint64(1) else root
    v /= np.sqrt(_dot(v, v))
    previous = np.zeros(n)
    w = np.empty(n)
    scaled = np.empty(n)
    alpha, beta = np.zeros(STEPS), np.zeros(STEPS)
    for step in range(STEPS):
        for i in range(n):
            scaled[i] = scale[i] * v[i]
        for i in range(n):
            w[i] = v[i] - scale[i] * (scaled[i] + _row_sum(scaled, indices, indptr[i], indptr[i + 1]))
        last = beta[step - 1] if step > 0 else 0.0
        alpha[step] = _dot(v, w)
        for i in range(n):
            w[i] -= alpha[step] * v[i] + last * previous[i]
        norm = np.sqrt(_dot(w, w))
        if norm <= _BREAKDOWN:
            return alpha[: step + 1], beta[:step]
        beta[step] = norm
        for i in range(n):
            previous[i], v[i] = v[i], w[i] / norm
    return alpha, beta[:-1]


@kernel
@no_type_check
def _row_sum(x, indices, begin, end):
    # Four sums side by side: an addition takes four cycles, and the next one would wait for it.
    e, end = np.uint64(begin), np.uint64(end)
    a = b = c = d = 0.0
    while e + np.uint64(4) <= end:
        a += x[indices[e]]
        b += x[indices[e + np.uint64(1)]]
        c += x[indices[e + np.uint64(2)]]
        d += x[indices[e + np.uint64(3)]]
        e += np.uint64(4)
    while e < end:
        a += x[indices[e]]
        e += np.uint64(1)
    return (a + b) + (c + d)


@kernel
@no_type_check
def _dot(a, b):
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@kernel
@no_type_check
def _largest_eigenvalue(alpha, beta):
    """The largest eigenvalue of a symmetric tridiagonal matrix with eigenvalues in [0, 2], by bisection."""
    low, high = 0.0, 2.0
    for _ in range(60):
        middle = (low + high) / 2
        if _is_above(alpha, beta, middle):
            low = middle
        else:
            high = middle
    return low


@kernel
@no_type_check
def _is_above(alpha, beta, x):
    """Whether an eigenvalue is larger than x: T - xI then has a positive pivot (Sylvester)."""
    pivot = alpha[0] - x
    for k in range(1, len(alpha)):
        if pivot >= 0:
            return True
        pivot = alpha[k] - x - beta[k - 1] ** 2 / pivot
    return pivot > 0
