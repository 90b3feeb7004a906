"""Energies that are watched: rises that are small, and starts that have no energy."""

import problems
import pytest
import torch
from problems import CLOSE, ZOO
from torch import nn

from musegnn import Energy, unfold
from musegnn.errors import DivergenceError

LARGER = "larger than what is known to descend"
WAYS = pytest.mark.parametrize("is_learned", [False, True])


def energy_of(lambda_, name, prox, is_learned):
    """Learned weights are not fused."""
    return Energy(nn.Parameter(torch.tensor(lambda_).double()) if is_learned else lambda_, 0.0, name, prox)


def total(*args, **settings):
    return float(sum(problems.energy(*args, **settings).values()))


@WAYS
def test_a_rise_of_a_millionth_is_seen(is_learned):
    """Near the minimum, along the top eigenvector, which a step too long makes a little longer."""
    s, lambda_ = ZOO["bipartite"], 1.0
    H, Z = problems.hessian(s, "combinatorial", lambda_, 0.0), problems.normal(s)
    values, vectors = torch.linalg.eigh(H)
    best, alpha = torch.linalg.solve(H, Z), 2.001 / float(values[-1])
    init = best + 1e-2 * vectors[:, -1:]
    sizes = torch.full((len(Z), 1), alpha, dtype=torch.float64)
    stepped = problems.descend(Z, s, "none", "combinatorial", steps=1, sizes=sizes, init=init)[-1]
    before, after = (total(Y, Z, s, "none", "combinatorial") for Y in (init, stepped))
    assert 0 < after - before < 1e-6 * before
    energy = energy_of(lambda_, "combinatorial", "none", is_learned)
    for steps in (1, 3):
        with pytest.warns(UserWarning, match=LARGER), pytest.raises(DivergenceError) as caught:
            unfold(Z, s, energy, steps, alpha, init=init)
        assert caught.value.step == 1
        assert caught.value.energy == pytest.approx(before, rel=1e-12)


@WAYS
def test_a_start_outside_the_penalty_may_lie_below_all_that_follows(is_learned):
    """The minimum without the penalty: the first step can only go up, into the constraint."""
    s = ZOO["complete"]
    Z = problems.normal(s)
    init = torch.linalg.solve(problems.hessian(s, "combinatorial", 1.0, 0.0), Z)
    sizes = torch.full((len(Z), 1), 0.3, dtype=torch.float64)
    naive = problems.descend(Z, s, "relu", "combinatorial", steps=4, sizes=sizes, init=init)
    plain = [total(Y, Z, s, "none", "combinatorial") for Y in naive]
    assert plain[1] > plain[0] + 0.01
    with pytest.warns(UserWarning, match=LARGER):
        Y = unfold(Z, s, energy_of(1.0, "combinatorial", "relu", is_learned), 4, 0.3, init=init)
    torch.testing.assert_close(Y, naive[-1], **CLOSE)


@WAYS
@pytest.mark.parametrize("steps", [0, 1])
def test_a_start_outside_the_penalty_and_too_few_steps_to_compare(is_learned, steps):
    s = ZOO["complete"]
    Z = -problems.normal(s).abs()
    with pytest.warns(UserWarning, match=LARGER):
        Y = unfold(Z, s, energy_of(1.0, "combinatorial", "relu", is_learned), steps, 0.3)
    sizes = torch.full((len(Z), 1), 0.3, dtype=torch.float64)
    naive = problems.descend(Z, s, "relu", "combinatorial", steps=steps, sizes=sizes)[-1]
    torch.testing.assert_close(Y, naive, **CLOSE)


@WAYS
def test_steps_are_counted_from_the_start_even_where_it_has_no_energy(is_learned):
    """Outside the box at first; inside it, the top eigenvector swings to and fro, and out to the walls."""
    s, alpha = ZOO["bipartite"], 0.39
    sign = torch.tensor([1.0] * 3 + [-1.0] * 3, dtype=torch.float64)[:, None]
    Z, init = 0.01 * problems.normal(s), 0.02 * sign.repeat(1, 3)
    init[0, 0] = -1.5
    sizes = torch.full((len(Z), 1), alpha, dtype=torch.float64)
    naive = problems.descend(Z, s, "box", "combinatorial", steps=12, sizes=sizes, init=init)
    values = [total(Y, Z, s, "box", "combinatorial") for Y in naive]
    assert values[0] == float("inf")
    step = next(k for k in range(2, 13) if values[k] > values[k - 1])
    with pytest.warns(UserWarning, match=LARGER), pytest.raises(DivergenceError) as caught:
        unfold(Z, s, energy_of(1.0, "combinatorial", "box", is_learned), 12, alpha, init=init)
    assert caught.value.step == step
    assert caught.value.energy == pytest.approx(values[step - 1], rel=1e-9)
    assert str(caught.value).startswith(f"The energy rises at step {step}: alpha=0.39 is too large")


def test_the_energies_of_a_float32_run_are_those_of_float64():
    s = ZOO["random"]
    Z, mu = (part.float() for part in problems.normal(s, 9, count=2))
    trace = unfold(Z, s, Energy(1.7, 0.3, prox="l1"), 5, mu=mu, trace=True)
    exact = {"mu": mu.double(), "lambda_": 1.7, "gamma": 0.3}
    for value, Y in ((trace.energies[0], Z), (trace.energies[-1], trace.Y)):
        expected = total(Y.double(), Z.double(), s, "l1", **exact)
        assert float(value) == pytest.approx(expected, rel=1e-13)


def test_other_devices_have_no_fused_steps():
    s = problems.sample()
    for device, is_fused in (("cpu", True), ("meta", False)):
        problem = Energy(2.0).on(s, None, None, like=torch.empty(s.num_nodes, 3, device=device))
        assert (problem.fused() is not None) == is_fused
    like = torch.empty(s.num_nodes, 3, dtype=torch.bfloat16)
    assert Energy(2.0).on(s, None, None, like=like).fused() is None


@WAYS
def test_rounding_at_the_minimum_is_no_rise(is_learned):
    """Rows that are all alike: lambda L Y is zero, but what it is the difference of is 1e6 times Z."""
    s = problems.complete(9)
    Z = torch.full((9, 5), 0.1) * torch.arange(1, 6)
    energy, alpha = energy_of(1e5, "combinatorial", "none", is_learned), 2 / 1.1e6
    assert not energy.problem(Z, s, alpha=alpha).is_proven
    with pytest.warns(UserWarning, match=LARGER):
        Y = unfold(Z, s, energy, 30, alpha)
    torch.testing.assert_close(Y.detach(), Z, rtol=1e-5, atol=0)


@WAYS
def test_a_step_that_is_lost_in_rounding_does_not_look_like_the_minimum(is_learned):
    """U - a (H U - b) is U itself, so that nothing moved; the bound knows what may have been rounded away."""
    s = ZOO["random"]
    Z = problems.normal(s)
    trace = unfold(Z, s, energy_of(2.0, "normalized", "none", is_learned), 3, 1e-18, trace=True)
    assert torch.equal(trace.Y, Z)
    best = torch.linalg.solve(problems.hessian(s, "normalized", 2.0, 0.0), Z)
    assert trace.error_bound >= float((Z - best).norm()) > 1
