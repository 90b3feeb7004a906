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
    "geman": lambda t: (1 + t) ** -2,
    "charbonnier": lambda t: (1 + t) ** -0.5,
    "truncated": lambda t: (t < 1).to(t),
}
both = pytest.mark.parametrize("compiled", [False, True], ids=["reference", "numba"])
rhos = pytest.mark.parametrize("rho", SLOPES)
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def symmetric(rng, num_nodes):
    """A with a hub, and its rows."""
    A = rng.random((num_nodes, num_nodes)) < 0.3
    A[:1] = True
    A = (A | A.T) & ~np.eye(num_nodes, dtype=bool)
    rows, columns = np.nonzero(A)
    indptr = np.searchsorted(rows, np.arange(num_nodes + 1)).astype(np.int64)
    return torch.from_numpy(A).double(), indptr, columns.astype(np.int32)


def dense(A, X, rho, scale, W=None):
    """All pairs at once."""
    D = X[:, None] - X[None]
    weight = A * SLOPES[rho](D.square().sum(dim=2) / scale) if W is None else W
    return (weight[:, :, None] * D).sum(dim=1)


@both
@rhos
@given(seed=st.integers(0, 500), n=st.integers(0, 12), dim=st.sampled_from([0, 1, 3, 7, 33, 130, 515]))
def test_sums_and_their_derivative_are_those_of_all_pairs(compiled, rho, seed, n, dim):
    rng = np.random.default_rng(seed)
    A, indptr, indices = symmetric(rng, n)
    X, G = (torch.from_numpy(rng.standard_normal((n, dim))) for _ in range(2))
    scale, out = float(rng.uniform(0.1, 2 * dim + 1)), np.full((n, dim), np.nan)
    ops.reweigh(indptr, indices, X.numpy(), rho, scale, out, compiled=compiled, threads=1 + seed % 2)
    torch.testing.assert_close(torch.from_numpy(out.copy()), dense(A, X, rho, scale), **CLOSE)
    for frozen in (False, True):
        x = X.clone().requires_grad_()
        W = A * SLOPES[rho]((X[:, None] - X[None]).square().sum(dim=2) / scale) if frozen else None
        (expected,) = torch.autograd.grad(dense(A, x, rho, scale, W), x, G)
        out[:] = np.nan
        given = indptr, indices, X.numpy(), G.numpy(), rho, scale, out
        ops.reweigh_back(*given, frozen=frozen, compiled=compiled, threads=1 + seed % 2)
        torch.testing.assert_close(torch.from_numpy(out.copy()), expected, **CLOSE)


def test_float32_stays_float32_and_is_as_close_as_it_can_be():
    rng = np.random.default_rng(0)
    _, indptr, indices = symmetric(rng, 40)
    X = rng.standard_normal((40, 70))
    single, double = X.astype(np.float32), np.empty_like(X)
    out = np.empty_like(single)
    ops.reweigh(indptr, indices, single, "geman", 30.0, out)
    ops.reweigh(indptr, indices, X, "geman", 30.0, double, compiled=False)
    np.testing.assert_allclose(out, double, rtol=1e-4, atol=1e-4)


def test_threads_change_no_bit():
    rng = np.random.default_rng(1)
    _, indptr, indices = symmetric(rng, 60)
    X, found = rng.standard_normal((60, 19)), []
    for threads in (1, 2, 3):
        out = np.empty_like(X)
        ops.reweigh(indptr, indices, X, "charbonnier", 5.0, out, threads=threads)
        back = np.empty_like(X)
        ops.reweigh_back(indptr, indices, X, out, "charbonnier", 5.0, back, threads=threads)
        found.append(out.tobytes() + back.tobytes())
    assert len(set(found)) == 1


@pytest.mark.parametrize("dim", [3, 70])
def test_memory_that_was_never_written_is_never_read(on_poison, dim):
    rng = np.random.default_rng(2)
    _, indptr, indices = symmetric(rng, 9)
    X, G = rng.standard_normal((2, 9, dim))
    unsigned, expected = indices.view(np.uint32), np.empty((2, 9, dim))
    ops.reweigh(indptr, indices, X, "geman", 2.0, expected[0])
    ops.reweigh_back(indptr, indices, X, G, "geman", 2.0, expected[1])
    found = np.full_like(expected, np.nan)
    on_poison(numba._reweigh)(0, 9, indptr, unsigned, X, 0, 2.0, found[0])
    on_poison(numba._reweigh_back)(0, 9, indptr, unsigned, X, G, 0, 2.0, False, found[1])
    np.testing.assert_allclose(found, expected, rtol=1e-12)
