# ruff: noqa: N803, N806
"""Differences that count the less the larger they are: reference, kernel and torch against each other."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from musegnn import ops
from musegnn.ops.reweigh import numba

SLOPES = {
    ops.Rho(-2.0): lambda t: (1 + t) ** -2,
    ops.Rho(0.0): lambda t: 1 / (1 + t),
    ops.Rho(1.0): lambda t: (1 + t) ** -0.5,
    ops.Rho(2.0, cutoff=1.0): lambda t: (t < 1).to(t),
    ops.Rho(0.5, cutoff=1.3): lambda t: (1 + t) ** -0.75 * (t < 1.3),
}
"""rho', by hand."""
both = pytest.mark.parametrize("compiled", [False, True], ids=["reference", "numba"])
rhos = pytest.mark.parametrize("rho", SLOPES, ids=str)
geman = ops.Rho(-2.0)
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def symmetric(rng, num_nodes):
    """A with a hub, and its rows."""
    A = rng.random((num_nodes, num_nodes)) < 0.3
    A[:1] = True
    A = (A | A.T) & ~np.eye(num_nodes, dtype=bool)
    rows, columns = np.nonzero(A)
    indptr = np.searchsorted(rows, np.arange(num_nodes + 1)).astype(np.int64)
    return torch.from_numpy(A).double(), indptr, columns.astype(np.int32)


def dense(A, X, rho, slope, W=None):
    """All pairs at once."""
    D = X[:, None] - X[None]
    weight = A * slope(D.square().sum(dim=2) / rho.scale) if W is None else W
    return (weight[:, :, None] * D).sum(dim=1)


@both
@rhos
@given(seed=st.integers(0, 500), n=st.integers(0, 12), dim=st.sampled_from([0, 1, 3, 7, 33, 130, 515]))
def test_sums_and_their_derivative_are_those_of_all_pairs(compiled, rho, seed, n, dim):
    rng = np.random.default_rng(seed)
    A, indptr, indices = symmetric(rng, n)
    X, G = (torch.from_numpy(rng.standard_normal((n, dim))) for _ in range(2))
    slope, out = SLOPES[rho], np.full((n, dim), np.nan)
    rho = rho._replace(scale=float(rng.uniform(0.1, 2 * dim + 1)))
    ops.reweigh(indptr, indices, X.numpy(), rho, out, compiled=compiled, threads=1 + seed % 2)
    torch.testing.assert_close(torch.from_numpy(out.copy()), dense(A, X, rho, slope), **CLOSE)
    for frozen in (False, True):
        x = X.clone().requires_grad_()
        W = A * slope((X[:, None] - X[None]).square().sum(dim=2) / rho.scale) if frozen else None
        (expected,) = torch.autograd.grad(dense(A, x, rho, slope, W), x, G)
        out[:] = np.nan
        given = indptr, indices, X.numpy(), G.numpy(), rho, out
        ops.reweigh_back(*given, frozen=frozen, compiled=compiled, threads=1 + seed % 2)
        torch.testing.assert_close(torch.from_numpy(out.copy()), expected, **CLOSE)


def test_float32_stays_float32_and_is_as_close_as_it_can_be():
    rng = np.random.default_rng(0)
    _, indptr, indices = symmetric(rng, 40)
    X = rng.standard_normal((40, 70))
    single, double = X.astype(np.float32), np.empty_like(X)
    out = np.empty_like(single)
    ops.reweigh(indptr, indices, single, geman._replace(scale=30.0), out)
    ops.reweigh(indptr, indices, X, geman._replace(scale=30.0), double, compiled=False)
    np.testing.assert_allclose(out, double, rtol=1e-4, atol=1e-4)


def test_threads_change_no_bit():
    rng = np.random.default_rng(1)
    _, indptr, indices = symmetric(rng, 60)
    X, found, rho = rng.standard_normal((60, 19)), [], ops.Rho(1.0, scale=5.0)
    for threads in (1, 2, 3):
        out = np.empty_like(X)
        ops.reweigh(indptr, indices, X, rho, out, threads=threads)
        back = np.empty_like(X)
        ops.reweigh_back(indptr, indices, X, out, rho, back, threads=threads)
        found.append(out.tobytes() + back.tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("dim", [3, 70])
def test_memory_that_was_never_written_is_never_read(on_poison, dim):
    rng = np.random.default_rng(2)
    _, indptr, indices = symmetric(rng, 9)
    X, G = rng.standard_normal((2, 9, dim))
    unsigned, expected = indices.view(np.uint32), np.empty((2, 9, dim))
    rho = geman._replace(scale=2.0)
    law = numba._law(rho, X.dtype)
    ops.reweigh(indptr, indices, X, rho, expected[0])
    ops.reweigh_back(indptr, indices, X, G, rho, expected[1])
    found = np.full_like(expected, np.nan)
    on_poison(numba._reweigh)(0, 9, indptr, unsigned, X, law, found[0])
    on_poison(numba._reweigh_back)(0, 9, indptr, unsigned, X, G, law, False, found[1])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
