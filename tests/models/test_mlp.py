"""f and g: against the formula by hand, with every width, skip and dropout."""

import problems
import pytest
import torch
from torch import nn

from musegnn import MLP
from musegnn.models.dropout import Dropout


def by_hand(mlp, x, *, skip=False):
    linear = [module for module in mlp.layers if isinstance(module, nn.Linear)]
    y = x
    for i, layer in enumerate(linear):
        y = (torch.relu(y) if i else y) @ layer.weight.T + layer.bias
    return y + x @ mlp.skip.weight.T + mlp.skip.bias if skip else y


@pytest.mark.parametrize("widths", [[4, 3], [4, 7, 3], [4, 6, 5, 3], [1, 1]])
@pytest.mark.parametrize("skip", [False, True])
def test_it_is_the_formula(widths, skip):
    torch.manual_seed(0)
    mlp = MLP(widths, skip=skip).double()
    for parameter in mlp.parameters():
        nn.init.normal_(parameter)
    x = torch.randn(9, widths[0], dtype=torch.float64)
    torch.testing.assert_close(mlp(x), by_hand(mlp, x, skip=skip), rtol=1e-12, atol=1e-12)
    assert mlp.widths == widths
    weights = [tuple(parameter.shape) for parameter in mlp.layers.parameters() if parameter.ndim == 2]
    assert weights == [(after, before) for before, after in zip(widths[:-1], widths[1:], strict=True)]
    assert (mlp.skip is not None) == skip
    if skip:
        assert tuple(mlp.skip.weight.shape) == (widths[-1], widths[0])


@pytest.mark.parametrize("widths", [[4, 3], [4, 6, 5, 3]])
def test_dropout_is_behind_each_relu_and_nowhere_else(widths):
    mlp = MLP(widths, dropout=0.3, input_dropout=0.4)
    assert [type(module) for module in mlp.layers] == [nn.Linear] + [Dropout, nn.Linear] * (len(widths) - 2)
    shares = [module.p for module in mlp.modules() if isinstance(module, Dropout)]
    assert shares == [0.4] + [0.3] * (len(widths) - 2)


def test_dropout_drops_its_share_in_training_and_nothing_in_evaluation():
    torch.manual_seed(0)
    mlp = MLP([1, 1], input_dropout=0.25)
    nn.init.ones_(mlp.layers[0].weight)
    ones = torch.ones(40_000, 1)
    y = mlp(ones).detach()
    # What stays is scaled up; five standard deviations of the share.
    assert sorted(y.unique().tolist()) == [0, pytest.approx(4 / 3)]
    assert float((y == 0).double().mean()) == pytest.approx(0.25, abs=5 * (0.25 * 0.75 / 40_000) ** 0.5)
    assert torch.equal(mlp.eval()(ones), ones)


def test_the_skip_reads_the_input_behind_its_dropout():
    torch.manual_seed(0)
    mlp = MLP([1, 1], input_dropout=0.5, skip=True)
    nn.init.ones_(mlp.layers[0].weight)
    nn.init.constant_(mlp.skip.weight, -1.0)
    assert not mlp(torch.ones(100, 1)).any()


@pytest.mark.parametrize("skip", [False, True])
def test_weights_are_xavier_normal_and_biases_zero(skip):
    torch.manual_seed(0)
    mlp = MLP([300, 200, 100], skip=skip)
    linear = [module for module in mlp.modules() if isinstance(module, nn.Linear)]
    assert len(linear) == 2 + skip
    for _ in range(2):
        for layer in linear:
            deviation = (2 / sum(layer.weight.shape)) ** 0.5
            weight = layer.weight.detach().double() / deviation
            spread = 5 / weight.numel() ** 0.5
            assert float(weight.mean()) == pytest.approx(0, abs=spread)
            assert float(weight.square().mean()) == pytest.approx(1, abs=2**0.5 * spread)
            # A normal has a fourth moment of 3, a uniform of 1.8.
            assert float((weight**4).mean()) == pytest.approx(3, abs=96**0.5 * spread)
            assert not layer.bias.any()
        before = linear[0].weight.detach().clone()
        nn.init.ones_(linear[0].bias)
        mlp.reset_parameters()
        assert not torch.equal(linear[0].weight, before)


@pytest.mark.parametrize("widths", [[4], [], [4, 0], [4, -1, 2]])
def test_widths_that_cannot_be(widths):
    with problems.refused(f"An MLP needs two widths or more, each at least 1; got {widths}."):
        MLP(widths)


@pytest.mark.parametrize("name", ["dropout", "input_dropout"])
@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_dropout_that_cannot_be(name, share):
    with problems.refused(f"{name} must lie in [0, 1), got {share}."):
        MLP([2, 2], **{name: share})
    MLP([2, 2], **{name: 0.0})
