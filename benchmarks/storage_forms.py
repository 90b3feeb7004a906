"""Three ways to store the columns of a sample, for `sampling.py storage`: how large, and how fast to read.

as stored   every entry an int32; mapped and used as it is
halved      only the entries below the diagonal; the others are put back when the sample is read
packed      the length of each row, its first column and the steps from column to column as varints (LEB128:
            seven bits a byte, the eighth says that more follow)
"""

import numpy as np
from numba import njit


@njit
def total(values):
    """A plain read of all values, one core."""
    result = np.int64(0)
    for i in range(len(values)):
        result += values[i]
    return result


@njit
def halve(indptr, indices):
    """The entries below the diagonal, as CSR."""
    n = len(indptr) - 1
    bounds, columns = np.zeros(n + 1, np.int64), np.empty(len(indices) // 2, np.int32)
    k = 0
    for i in range(n):
        for e in range(indptr[i], indptr[i + 1]):
            if indices[e] < i:
                columns[k] = indices[e]
                k += 1
        bounds[i + 1] = k
    return bounds, columns


@njit
def restore(bounds, columns, indptr, indices):
    """Both triangles again, into `indptr` and `indices`; columns ascend since rows are taken in order."""
    n = len(bounds) - 1
    indptr[:] = 0
    for i in range(n):
        indptr[i + 1] += bounds[i + 1] - bounds[i]
        for e in range(bounds[i], bounds[i + 1]):
            indptr[columns[e] + 1] += 1
    for i in range(n):
        indptr[i + 1] += indptr[i]
    free = indptr[:-1].copy()
    for i in range(n):
        for e in range(bounds[i], bounds[i + 1]):
            indices[free[i]] = columns[e]
            free[i] += 1
            indices[free[columns[e]]] = i
            free[columns[e]] += 1


@njit
def pack(indptr, indices):
    """Length, first column and steps of each row as varints."""
    packed = np.empty(5 * (len(indices) + len(indptr)), np.uint8)
    k = 0
    for i in range(len(indptr) - 1):
        k = _put(packed, k, indptr[i + 1] - indptr[i])
        before = 0
        for e in range(indptr[i], indptr[i + 1]):
            k = _put(packed, k, indices[e] - before)
            before = indices[e]
    return packed[:k].copy()


@njit
def unpack(packed, indptr, indices):
    """Rows from varints, into `indptr` and `indices`."""
    k, e = 0, 0
    indptr[0] = 0
    for i in range(len(indptr) - 1):
        length, k = _get(packed, k)
        column = 0
        for _ in range(length):
            step, k = _get(packed, k)
            column += step
            indices[e] = column
            e += 1
        indptr[i + 1] = e


@njit
def _put(packed, k, value):
    while value >= 128:
        packed[k] = value & 127 | 128
        value >>= 7
        k += 1
    packed[k] = value
    return k + 1


@njit
def _get(packed, k):
    value, shift = np.int64(packed[k] & 127), 7
    while packed[k] >= 128:
        k += 1
        value |= np.int64(packed[k] & 127) << shift
        shift += 7
    return value, k + 1
