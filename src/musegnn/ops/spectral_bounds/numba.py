"""Bounds on the largest eigenvalue: signs that oppose their neighbors, a few Lanczos steps, and degrees.

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
    alpha, beta, largest, joint = _lanczos(indptr, indices.view(np.uint32))
    rounding = ROUNDING + SUMMING * (len(indptr) - 1)
    return np.array(
        [
            (1 - rounding) * max(0.0, _largest_eigenvalue(alpha, beta)),
            (1 + ROUNDING) * (2 - 2 / (1 + largest)),
            largest + 1 if largest else 0,
            joint,
        ],
        dtype=np.float64,
    )


@kernel
@no_type_check
def _lanczos(indptr, indices):
    """V'LV, tridiagonal, after so many steps; the largest degree, and sum of degrees of two neighbors."""
    n = len(indptr) - 1
    sign = np.empty(n, dtype=np.int8)
    for i in range(n):
        sign[i] = 1 - 2 * np.int64(bits_at(np.uint64(0), np.uint64(i)) & np.uint64(1))
    _oppose(indptr, indices, sign)

    v, w, previous, scaled, scale = np.empty(n), np.empty(n), np.zeros(n), np.empty(n), np.empty(n)
    largest, joint = _first_product(indptr, indices, sign, scale, v, w)
    alpha, beta = np.zeros(STEPS), np.zeros(STEPS)
    for step in range(STEPS):
        last = beta[step - 1] if step > 0 else 0.0
        if step > 0:
            for i in range(n):
                previous[i] = v[i]
                v[i] = w[i] / last
                scaled[i] = scale[i] * v[i]
            for i in range(n):
                w[i] = v[i] - scale[i] * (scaled[i] + _row_sum(scaled, indices, indptr[i], indptr[i + 1]))
        alpha[step] = _dot(v, w)
        for i in range(n):
            w[i] -= alpha[step] * v[i] + last * previous[i]
        beta[step] = np.sqrt(_dot(w, w))
        if beta[step] <= _BREAKDOWN:
            return alpha[: step + 1], beta[:step], largest, joint
    return alpha, beta[:-1], largest, joint


@kernel
@no_type_check
def _oppose(indptr, indices, sign):
    """Let each node in turn take the sign that most of its neighbors do not have."""
    for i in range(len(sign)):
        total = 0
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += sign[indices[e]]
        # Without a branch, which would be a guess: the sign stays where the neighbors are even.
        sign[i] = (total < 0) - (total > 0) + (total == 0) * sign[i]


@kernel
@no_type_check
def _first_product(indptr, indices, sign, scale, v, w):
    """v = D'^1/2 times signs, of length 1, and w = L v. D'^-1/2 v is signs only, which are counted.

    Returns the largest degree and the largest sum of degrees of two neighbors, which are found on the way.
    """
    signed = np.empty(len(sign), dtype=np.int32)
    for i in range(len(sign)):
        signed[i] = sign[i] * (indptr[i + 1] - indptr[i] + 1)
    norm = np.sqrt(np.float64(len(sign) + len(indices)))
    largest = joint = 0
    for i in range(len(sign)):
        total, widest = np.int32(sign[i]), np.int32(0)
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            neighbor = signed[indices[e]]
            total += np.int32(1) - np.int32(2) * np.int32(neighbor < 0)
            widest = max(widest, abs(neighbor))
        degree = indptr[i + 1] - indptr[i]
        scale[i] = 1.0 / np.sqrt(degree + 1.0)
        v[i] = signed[i] * scale[i] / norm
        w[i] = v[i] - scale[i] * (total / norm)
        if degree > 0:
            largest, joint = max(largest, degree), max(joint, degree + np.int64(widest) - 1)
    return largest, joint


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
