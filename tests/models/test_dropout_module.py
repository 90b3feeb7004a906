"""Dropout as a module: the way back, modes, and where the numbers come from."""

import pytest
import torch
from torch.nn import functional as F

from musegnn.models.dropout import Dropout


@pytest.mark.parametrize("relu", [False, True])
def test_gradient(relu):
    module = Dropout(0.4, relu=relu)
    x = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)

    def call(x):
        torch.manual_seed(0)
        return module(x)

    assert torch.autograd.gradcheck(call, x)


@pytest.mark.parametrize("relu", [False, True])
def test_what_stays_is_scaled(relu):
    module, x = Dropout(0.25, relu=relu), torch.randn(200, 40)
    y, before = module(x), F.relu(x) if relu else x
    stays = y != 0
    torch.testing.assert_close(y[stays], (before / 0.75)[stays])
    assert 0.7 < stays[before != 0].float().mean() < 0.8


@pytest.mark.parametrize("relu", [False, True])
def test_does_nothing_in_evaluation_and_at_zero(relu):
    x = torch.randn(9, 3)
    expected = F.relu(x) if relu else x
    assert torch.equal(Dropout(0.5, relu=relu).eval()(x), expected)
    assert torch.equal(Dropout(0.0, relu=relu)(x), expected)


def test_torch_draws_the_key():
    module, x = Dropout(0.5), torch.ones(50, 4)
    torch.manual_seed(1)
    first, second = module(x), module(x)
    torch.manual_seed(1)
    assert torch.equal(module(x), first)
    assert not torch.equal(first, second)


def test_memory_that_is_not_contiguous():
    module, x = Dropout(0.5, relu=True), torch.randn(6, 8)
    torch.manual_seed(0)
    expected = module(x.T.contiguous())
    torch.manual_seed(0)
    assert torch.equal(module(x.T), expected)


def test_half_precision_is_torchs():
    y = Dropout(0.5, relu=True)(torch.randn(100, 8, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16
    assert 0.1 < (y != 0).float().mean() < 0.4
