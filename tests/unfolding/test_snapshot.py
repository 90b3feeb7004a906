"""A way back meets the settings that its steps were made with, whatever has become of the energy since."""

import sys
import threading

import numpy as np
import pytest
import torch
from test_relational import DIM, KINDS, graph, kinds, learned, rows
from torch import nn
from torch.func import functional_call

from musegnn import Energy, MuseGNN, Penalty, Predictive, Relational, Robust, unfold
from musegnn.explaining import explain
from musegnn.unfolding.snapshot import as_it_is
from musegnn.unfolding.subgraph import as_sample


def weight(value):
    return nn.Parameter(torch.tensor(value, dtype=torch.float64))


class Ridge(Penalty, nn.Module):
    """w |y|^2, with a learned w."""

    def __init__(self):
        super().__init__()
        self.weight = weight(0.7)

    def value(self, Y):
        return self.weight * Y.square().sum()

    def prox(self, U, scale):
        return U / (1 + 2 * scale * self.weight)


LEARNED = {
    "lambda": ("lambda_", lambda: Energy(weight(1.3))),
    "lambda of a robust energy": ("smooth.lambda_", lambda: Robust(weight(1.3), scale=0.3)),
    "a penalty": ("penalty.weight", lambda: Energy(1.3, prox=Ridge())),
    "a penalty of a typed energy": ("penalty.weight", lambda: learned(Predictive(DIM, 2, prox=Ridge()))),
    "lambda of a typed energy": ("raw_lambda", lambda: learned(Predictive(DIM, 2, prox="group"))),
}


@pytest.mark.parametrize("case", LEARNED)
@pytest.mark.parametrize("is_computed", [False, True])
def test_what_is_given_in_place_of_a_parameter_has_its_gradient(case, is_computed):
    """By `torch.func.functional_call`: the energy has its own again when the way back begins."""
    name, made = LEARNED[case]
    g, (weights, Z, _), energy = graph(2), rows(9), made()

    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.energy = energy

        def forward(self, Z):
            return (weights * unfold(Z, g, self.energy, 9)).sum()

    parameter = energy.get_parameter(name)
    expected = torch.autograd.grad(Sum()(Z), parameter)[0]
    other = parameter.detach().clone().requires_grad_()
    given = 1.0 * other if is_computed else other
    found = torch.autograd.grad(functional_call(Sum(), {f"energy.{name}": given}, (Z,)), other)[0]
    torch.testing.assert_close(found, expected)
    assert expected.abs().max() > 1e-6


@pytest.mark.parametrize("energy", [Energy(2.0, prox="group"), Robust(2.0, scale=0.3)])
def test_a_setting_that_has_changed_since_does_not_count(energy):
    g, (_, Z, _) = graph(2), rows(9)
    Z.requires_grad_()
    expected = torch.autograd.grad(unfold(Z, g, energy, 9).square().sum(), Z)
    Y = unfold(Z, g, energy, 9)
    (energy.smooth if isinstance(energy, Robust) else energy).lambda_ = 0.1
    torch.testing.assert_close(torch.autograd.grad(Y.square().sum(), Z), expected)


@pytest.mark.parametrize("kind", [*KINDS, "robust", "paper", "low rank"])
def test_autocast_does_not_count_for_steps(kind):
    g, (weights, Z, _) = graph(3), [part.float() for part in rows(9)]
    others = {"robust": lambda: Robust(2.0), "paper": lambda: Energy(2.0, prox="group")}
    others["low rank"] = lambda: learned(Relational(DIM, 2, rank=2)).float()
    energy = learned(KINDS[kind](num_relations=2)).float() if kind in KINDS else others[kind]()
    Z.requires_grad_()

    def outcome():
        Y = unfold(Z, g, energy, 4, trace=True)
        return Y.Y, Y.error_bounds, *torch.autograd.grad((weights * Y.Y).sum(), [Z, *energy.parameters()])

    expected = outcome()
    with torch.autocast("cpu", torch.bfloat16):
        found = outcome()
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


def test_explanations_in_threads_leave_a_robust_energy_as_it_is():
    g, energy = graph(4), Robust(weight(3.0), 0.4, scale=0.05)
    torch.manual_seed(0)
    model = MuseGNN(5, 4, DIM, energy, 3, layers=1).double().eval()
    features, mu = (torch.randn(9, n, dtype=torch.float64) for n in (5, DIM))
    rests, before = [], sys.getswitchinterval()

    def work():
        for node in range(9):
            found = explain(model, as_sample(g, 9), features, mu, node=node)
            rests.append(np.abs(found.rest).max() / np.abs(found.logits).max())

    threads = [threading.Thread(target=work) for _ in range(4)]
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(rests) == 36
    assert max(rests) < 1e-10
    assert not energy._is_frozen
    assert energy.lambda_.requires_grad


@kinds
def test_in_inference_mode_there_are_explanations_too(kind):
    g, energy = graph(4), learned(KINDS[kind](num_relations=2, gamma=0.4))
    torch.manual_seed(0)
    model = MuseGNN(5, 4, DIM, energy, 3, layers=1).double().eval()
    given = model, as_sample(g, 9)
    features, mu = (torch.randn(9, n, dtype=torch.float64) for n in (5, DIM))
    expected = explain(*given, features, mu)
    with torch.inference_mode():
        found = explain(*given, features * 1.0, mu * 1.0)
    np.testing.assert_allclose(found.shares, expected.shares)


def test_a_copy_shares_parameters_and_what_is_shared():
    energy = Robust(weight(2.0), prox=Ridge())
    made = as_it_is(energy)
    assert made is not energy
    assert made.penalty is made.smooth.penalty
    assert made.penalty is not energy.penalty
    assert made.lambda_ is energy.lambda_
    assert not any(part.requires_grad for part in as_it_is(energy, learns=False).parameters())
