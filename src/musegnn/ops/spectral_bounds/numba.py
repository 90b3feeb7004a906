"""Bounds on the largest eigenvalue: signs that oppose their neighbors, two Lanczos steps, and degrees.

Every sum is taken in one order and nothing is fused, so that a sample has the same bytes on every machine.
"""

from typing import no_type_check

import numpy as np
from jaxtyping import Float64, Int32, Int64

from musegnn.ops.kernel import kernel
from musegnn.ops.random_bits.numba import bits_at
from musegnn.ops.spectral_bounds.reference import ROUNDING, SUMMING

_BREAKDOWN = 1e-20
"""A square of a residual this small: the Krylov space has nothing new."""


def spectral_bounds(
    indptr: Int64[np.ndarray, " nodes_plus_1"], indices: Int32[np.ndarray, " entries"]
) -> Float64[np.ndarray, "4"]:
    """See `musegnn.ops.spectral_bounds`."""
    if len(indptr) == 1:
        return np.zeros(4)
    ritz_value, largest, joint = _ritz_value(indptr, indices.view(np.uint32))
    rounding = ROUNDING + SUMMING * (len(indptr) - 1)
    return np.array(
        [
            (1 - rounding) * max(0.0, ritz_value),
            (1 + ROUNDING) * (2 - 2 / (1 + largest)),
            largest + 1 if largest else 0,
            joint,
        ],
        dtype=np.float64,
    )


@kernel
@no_type_check
def _ritz_value(indptr, indices):
    """The larger eigenvalue of [[a, b], [b, c]], two Lanczos steps; the largest degree, and of two neighbors.

    From x = D'^1/2 s with signs s, |x|^2 = n + entries, and t = (A + I) s, whole numbers both:

        a = x'Lx / |x|^2 = 1 - s't / |x|^2
        w = Lx - a x = D'^-1/2 y,   y = (1 - a) D' s - t,   b^2 = |w|^2 / |x|^2
        c = w'Lw / |w|^2 = 1 - u'(A + I) u / |w|^2,         u = D'^-1 y,   |w|^2 = y'u
    """
    sign = np.empty(len(indptr) - 1, dtype=np.int8)
    for i in range(len(sign)):
        sign[i] = 1 - 2 * np.int64(bits_at(np.uint64(0), np.uint64(i)) & np.uint64(1))
    _oppose(indptr, indices, sign)
    total, largest, joint = _first_product(indptr, indices, sign)

    norm, agreement = np.float64(len(sign) + len(indices)), 0
    for i in range(len(sign)):
        agreement += np.int64(sign[i]) * np.int64(total[i])
    a = 1 - agreement / norm

    u, squared = np.empty(len(sign)), 0.0
    for i in range(len(sign)):
        degree = np.float64(indptr[i + 1] - indptr[i] + 1)
        y = (1 - a) * degree * sign[i] - total[i]
        u[i] = y / degree
        squared += y * u[i]
    if squared <= _BREAKDOWN * norm:
        return a, largest, joint
    kept = 0.0
    for i in range(len(sign)):
        kept += u[i] * (u[i] + _row_sum(u, indices, indptr[i], indptr[i + 1]))
    c = 1 - kept / squared
    return (a + c) / 2 + np.sqrt(((a - c) / 2) ** 2 + squared / norm), largest, joint


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
def _first_product(indptr, indices, sign):
    """(A + I) s; the largest degree and the largest sum of degrees of two neighbors, found on the way."""
    signed, product = np.empty(len(sign), dtype=np.int32), np.empty(len(sign), dtype=np.int32)
    for i in range(len(sign)):
        signed[i] = sign[i] * (indptr[i + 1] - indptr[i] + 1)
    largest = joint = 0
    for i in range(len(sign)):
        total, widest = np.int32(sign[i]), np.int32(0)
        for e in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            neighbor = signed[indices[e]]
            total += np.int32(1) - np.int32(2) * np.int32(neighbor < 0)
            widest = max(widest, abs(neighbor))
        product[i] = total
        degree = indptr[i + 1] - indptr[i]
        if degree > 0:
            largest, joint = max(largest, degree), max(joint, degree + np.int64(widest) - 1)
    return product, largest, joint


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
