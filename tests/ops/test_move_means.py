"""move_means: the kernel of GPUs (or its interpreter) against eq. 9 in float64."""
# The symbols of the room: M, Y.
# ruff: noqa: N806

import numpy as np
import pytest
import torch

from machine import DEVICE, needs_kernels
from musegnn.ops.move_means import reference

pytest.importorskip("triton")
pytestmark = needs_kernels


@pytest.mark.parametrize("rho", [0.0, 0.9, 1.0])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-15), (torch.float32, 1e-6), (torch.bfloat16, 2e-2)]
)
@pytest.mark.parametrize("dim", [1, 13])
def test_means_move_as_eq_9_says(rho, dtype, tolerance, dim):
    from musegnn.ops.move_means import triton

    rng = np.random.default_rng(0)
    ids = np.array([7, 2, 5, 9])
    M = torch.from_numpy(rng.standard_normal((11, dim))).to(dtype)
    count = torch.from_numpy(rng.integers(0, 4, 11)).int()
    count[2] = 0
    # What was never seen holds garbage, of which nothing may stay.
    M[2] = 1e4
    expected, counted = M.double().numpy().copy(), count.numpy().copy()
    moved, counts = M.to(DEVICE), count.to(DEVICE)
    for _ in range(3):
        Y = torch.from_numpy(rng.standard_normal((4, dim))).to(dtype)
        reference.move_means(expected, counted, ids, Y.double().numpy(), rho)
        triton.move_means(moved, counts, torch.from_numpy(ids).to(DEVICE), Y.to(DEVICE), rho)
    assert counts.cpu().tolist() == counted.tolist()
    np.testing.assert_allclose(moved.cpu().double().numpy(), expected, rtol=tolerance, atol=tolerance)


def test_no_rows_move_nothing():
    from musegnn.ops.move_means import triton

    M, count = torch.ones(3, 2, device=DEVICE), torch.zeros(3, dtype=torch.int32, device=DEVICE)
    triton.move_means(M, count, count[:0].long(), M[:0], 0.9)
    assert torch.equal(M, torch.ones_like(M))
    assert not count.any()
