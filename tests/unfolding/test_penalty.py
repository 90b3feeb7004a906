"""Penalties: the subgradient that a prox is, a search for the minimum, one-sided differences, dense loops."""

from functools import partial
from math import inf, nan

import jaxtyping
import numpy as np
import problems
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import CLOSE, refused
from torch import nn

import musegnn
from musegnn.ops import Clip
from musegnn.unfolding.penalty import PENALTIES, EntrywisePenalty, penalty_of

double = partial(torch.tensor, dtype=torch.float64)


def weighted_norm(y, weight):
    return weight * np.sqrt(np.sum(y * y, axis=-1))


def inside(y, low=-inf, high=inf, weight=0.0):
    return np.where(((low <= y) & (y <= high)).all(axis=-1), weight * np.abs(y).sum(axis=-1), inf)


# Each penalty, and zeta of rows in NumPy.
ZETA = {
    "none": (musegnn.NoPenalty(), inside),
    "nonnegative": (musegnn.Nonnegative(), partial(inside, low=0)),
    "box": (musegnn.Box(), partial(inside, low=-1, high=1)),
    "box without 0": (musegnn.Box(0.25, 0.75), partial(inside, low=0.25, high=0.75)),
    "half a box": (musegnn.Box(-inf, -0.5), partial(inside, high=-0.5)),
    "l1": (musegnn.L1(), partial(inside, weight=0.1)),
    "strong l1": (musegnn.L1(1.5), partial(inside, weight=1.5)),
    "weightless l1": (musegnn.L1(0.0), inside),
    "nonnegative l1": (musegnn.L1(0.7, nonnegative=True), partial(inside, weight=0.7, low=0)),
    "group": (musegnn.GroupNorm(), partial(weighted_norm, weight=0.1)),
    "strong group": (musegnn.GroupNorm(1.5), partial(weighted_norm, weight=1.5)),
    "weightless group": (musegnn.GroupNorm(0.0), partial(weighted_norm, weight=0)),
}
ENTRYWISE = {name: pair for name, pair in ZETA.items() if "group" not in name}
every = pytest.mark.parametrize(("penalty", "zeta"), ZETA.values(), ids=ZETA)
every_entrywise = pytest.mark.parametrize(("penalty", "zeta"), ENTRYWISE.values(), ids=ENTRYWISE)
both_steps = pytest.mark.parametrize("steps", ["a number", "a column"])
rows = st.lists(st.lists(st.floats(-4, 4), min_size=3, max_size=3), min_size=1, max_size=4)


def step_for(X, kind):
    """0.3, or 0.1, 0.6, 1.1, ... down the rows."""
    return 0.3 if kind == "a number" else double([[0.1 + 0.5 * i] for i in range(len(X))])


def step_of_row(step, i):
    return step if isinstance(step, float) else float(step[i])


@every
@both_steps
@given(rows=rows)
@settings(max_examples=25)
def test_a_prox_is_a_subgradient_of_its_penalty(penalty, zeta, steps, rows):
    """zeta(q) >= zeta(p) + <(x - p) / step, q - p> for all q makes p the prox of x, to first order in p."""
    X = double(rows)
    step = step_for(X, steps)
    P = penalty.prox(X, step)
    assert (P.dtype, P.shape) == (X.dtype, X.shape)
    rng = np.random.default_rng(0)
    for i, (x, p) in enumerate(zip(X.numpy(), P.numpy(), strict=True)):
        assert zeta(p) < inf
        slope = (x - p) / step_of_row(step, i)
        others = np.concatenate(
            [
                p + np.concatenate([np.eye(3), -np.eye(3)]) * rng.choice([1e-3, 0.1, 1], (6, 1)),
                rng.uniform(-2, 2, (10, 3)),
                rng.uniform(0.25, 0.75, (5, 3)) * [[1], [1], [1], [1], [-1]],
                np.zeros((1, 3)),
                0.5 * p[None],
            ]
        )
        for q in others:
            assert zeta(q) >= zeta(p) + slope @ (q - p) - 1e-13 * (1 + np.abs(slope).sum())


@every
@both_steps
def test_a_prox_is_where_a_search_finds_the_minimum(penalty, zeta, steps):
    """The best of a grid, then of a finer one around it, and so on."""
    X = double(np.random.default_rng(1).uniform(-2, 2, (4, 2)))
    step = step_for(X, steps)
    ticks = np.stack(np.meshgrid(*[np.linspace(-1, 1, 33)] * 2), axis=-1).reshape(-1, 2)
    for i, (x, p) in enumerate(zip(X.numpy(), penalty.prox(X, step).numpy(), strict=True)):
        best, span = np.zeros(2), 2.5
        while span > 1e-8:
            grid = best + span * ticks
            objective = np.sum((grid - x) ** 2, axis=1) / 2 + step_of_row(step, i) * zeta(grid)
            best, span = grid[objective.argmin()], span / 4
        # Near its minimum a function is flat: its values are known to 1e-16, its place to 1e-8.
        np.testing.assert_allclose(p, best, rtol=0, atol=1e-7)


@every
@given(rows=rows)
@settings(max_examples=25)
def test_a_value_is_the_sum_over_the_rows(penalty, zeta, rows):
    for Y in (double(rows), penalty.prox(double(rows), 0.3), torch.zeros(3, 3, dtype=torch.float64)):
        value = penalty.value(Y)
        assert (value.shape, value.dtype) == ((), Y.dtype)
        assert float(value) == pytest.approx(sum(zeta(y) for y in Y.numpy()), rel=1e-14)


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_no_rows_have_no_value_and_no_prox(penalty, zeta, dtype):
    nothing = torch.empty(0, 3, dtype=dtype)
    assert penalty.value(nothing) == 0
    assert penalty.prox(nothing, 0.5).shape == (0, 3)
    assert penalty.prox(nothing, torch.empty(0, 1, dtype=dtype)).dtype == dtype


@every
def test_one_entry_outside_costs_infinitely_much(penalty, zeta):
    Y = penalty.prox(torch.full((3, 4), 0.5, dtype=torch.float64), 0.1)
    assert torch.isfinite(penalty.value(Y))
    for bad in (-9.0, 9.0):
        Y[2, 3] = bad
        assert float(penalty.value(Y)) == pytest.approx(sum(zeta(y) for y in Y.numpy()))


@every_entrywise
def test_values_at_the_limits_are_finite(penalty, zeta):
    for limit in penalty.clip[1:]:
        if abs(limit) < inf:
            assert penalty.value(torch.full((2, 2), limit, dtype=torch.float64)) < inf


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_limit_that_is_rounded_is_inside_its_own_box(dtype):
    box = musegnn.Box(0.1, 0.3)
    Y = box.prox(torch.linspace(-1, 1, 50, dtype=dtype)[:, None], 0.5)
    assert Y.dtype == dtype
    assert {float(Y.min()), float(Y.max())} == {float(torch.tensor(x, dtype=dtype)) for x in (0.1, 0.3)}
    assert box.value(Y) == 0


@every
@both_steps
def test_a_nan_is_never_hidden(penalty, zeta, steps):
    X = double([[0.5, -0.5], [nan, 0.5]])
    assert torch.isnan(penalty.prox(X, step_for(X, steps))[1, 0])
    assert not torch.isfinite(penalty.value(X))


@every_entrywise
@both_steps
def test_derivatives_are_one_sided_differences_and_0_at_the_edges(penalty, zeta, steps):
    """Multiples of 1/64 and steps of powers of two: all of it exact but for the weights."""
    weight, low, high = penalty.clip
    step = 0.5 if steps == "a number" else double([[0.5], [2.0]])
    sizes = torch.full((2, 1), 0.5, dtype=torch.float64) if steps == "a number" else step
    ticks = torch.arange(-192, 193, dtype=torch.float64) / 64
    edges = [
        torch.stack([sign * size * weight + limit for sign in (-1, 0, 1) for limit in (0.0, low, high)])
        for size in sizes[:, 0]
    ]
    X = torch.cat([ticks.expand(2, -1), torch.stack(edges)], dim=1)
    X = torch.where(X.isfinite(), X, 0.0).requires_grad_()
    (slopes,) = torch.autograd.grad(penalty.prox(X, step).sum(), X)
    with torch.no_grad():
        here, tiny = penalty.prox(X, step), 2.0**-30
        up, down = (penalty.prox(X + tiny, step) - here) / tiny, (here - penalty.prox(X - tiny, step)) / tiny
    expected = (up - 1).abs().lt(1e-4) & (down - 1).abs().lt(1e-4)
    assert set(slopes.unique().tolist()) <= {0.0, 1.0}
    torch.testing.assert_close(slopes, expected.double(), rtol=0, atol=0)


@every_entrywise
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_prox_and_its_derivative_are_those_of_the_kernel(penalty, zeta, dtype):
    """On dyadic numbers, which lie on the edges often."""
    n, dim = 40, 11
    X = (torch.randint(-16, 17, (n, dim), generator=torch.Generator().manual_seed(0)) / 8).to(dtype)
    take = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=dtype).repeat(n // 4)
    step = musegnn.ops.Step(*(column.numpy() for column in (torch.ones_like(take),) * 3), take.numpy())
    out, mask = np.empty((n, dim), X.numpy().dtype), np.empty((n, 2), np.uint8)
    graph = np.zeros(n + 1, np.int64), np.empty(0, np.int32)
    musegnn.ops.descend(*graph, step, X.numpy(), np.zeros_like(out), penalty.clip, out, mask)
    X.requires_grad_()
    Y = penalty.prox(X, take[:, None] / 2)
    (slopes,) = torch.autograd.grad(Y.sum(), X)
    np.testing.assert_array_equal(Y.detach(), out)
    kept = np.ones_like(out)
    musegnn.ops.cut(kept, mask)
    np.testing.assert_array_equal(slopes, kept)


@pytest.mark.parametrize("weight", [0.5, 0.0])
@both_steps
def test_the_derivative_of_the_group_norm(weight, steps):
    """By central differences, away from the sphere where rows become zero; among them a row of zeros."""
    penalty = musegnn.GroupNorm(weight)
    X = double([[0, 0, 0], [0.01, -0.02, 0.01], [3, 0, 4], [-1, 2, 0.5]]).requires_grad_()
    step = step_for(X, steps)
    tiny = 1e-6
    for i, j in np.ndindex(4, 3):
        (slopes,) = torch.autograd.grad(penalty.prox(X, step)[i, j], X)
        with torch.no_grad():
            for k in range(3):
                around = torch.zeros_like(X)
                around[i, k] = tiny
                difference = (penalty.prox(X + around, step) - penalty.prox(X - around, step))[i, j]
                assert float(slopes[i, k]) == pytest.approx(float(difference) / (2 * tiny), abs=1e-8)
        assert not slopes[[k for k in range(4) if k != i]].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_too_short_for_their_square_are_zero(dtype):
    least = torch.finfo(dtype).tiny
    X = torch.tensor([[least, -least], [0.0, 0.0], [least, 0.0]], dtype=dtype, requires_grad=True)
    Y = musegnn.GroupNorm(0.1).prox(X, 0.5)
    Y.sum().backward()
    assert not Y.any()
    assert not X.grad.any()
    assert torch.equal(musegnn.GroupNorm(0.0).prox(X, 0.5), X)


class Ridge(musegnn.Penalty):
    def value(self, Y):
        return 0.3 * Y.square().sum()

    def prox(self, X, step):
        return X / (1 + 0.6 * step)


class OwnReLU(musegnn.Penalty):
    def value(self, Y):
        return torch.where(Y < 0, inf, 0.0).sum()

    def prox(self, X, step):
        return torch.relu(X)


@pytest.mark.parametrize("laplacian", problems.LAPLACIANS)
@pytest.mark.parametrize("precondition", ["none", "jacobi"])
def test_a_penalty_of_ones_own_descends_as_the_naive_loop(laplacian, precondition):
    s = problems.sample()
    Z, mu = problems.normal(s, count=2, grad=True)
    energy = musegnn.Energy(2.0, 0.5, laplacian, Ridge(), precondition=precondition)
    Y = musegnn.unfold(Z, s, energy, steps=5, mu=mu)
    H = problems.hessian(s, laplacian, 2.0, 0.5)
    a = problems.step_sizes(s, laplacian, precondition, 2.0, 0.5)
    expected = Z
    for _ in range(5):
        expected = (expected - a * (H @ expected - Z - 0.5 * mu)) / (1 + 0.3 * a)
    torch.testing.assert_close(Y, expected, **CLOSE)
    G = torch.cos(torch.arange(Y.numel(), dtype=torch.float64)).reshape(Y.shape)
    found, wanted = (torch.autograd.grad(result, (Z, mu), G) for result in (Y, expected))
    torch.testing.assert_close(found, wanted, **CLOSE)
    Z, Y = Z.detach(), Y.detach()
    value = (Y * (H @ Y)).sum() - 2 * (Y * (Z + 0.5 * mu.detach())).sum()
    value += Z.square().sum() + 0.5 * mu.detach().square().sum() + 0.3 * Y.square().sum()
    torch.testing.assert_close(energy.value(Y, Z, s, mu=mu.detach()), value, **CLOSE)


def test_a_relu_of_ones_own_is_the_relu():
    s = problems.sample()
    Z = problems.normal(s, grad=True)
    results = [musegnn.unfold(Z, s, musegnn.Energy(2.0, prox=prox)) for prox in ("relu", OwnReLU())]
    torch.testing.assert_close(*results, **CLOSE)
    torch.testing.assert_close(*(torch.autograd.grad(Y.square().sum(), Z) for Y in results), **CLOSE)


NAMES = {
    "none": (musegnn.NoPenalty(), Clip(0.0, -inf, inf)),
    "relu": (musegnn.Nonnegative(), Clip(0.0, 0.0, inf)),
    "l1": (musegnn.L1(0.1), Clip(0.1, -inf, inf)),
    "nonnegative_l1": (musegnn.L1(0.1, nonnegative=True), Clip(0.1, 0.0, inf)),
    "group": (musegnn.GroupNorm(0.1), None),
    "box": (musegnn.Box(-1.0, 1.0), Clip(0.0, -1.0, 1.0)),
}


def test_every_name_is_a_penalty():
    assert {name: penalty_of(name) for name in PENALTIES} == {name: pair[0] for name, pair in NAMES.items()}


@pytest.mark.parametrize("name", PENALTIES)
def test_a_name_stands_for_its_penalty(name):
    penalty, clip = NAMES[name]
    energy = musegnn.Energy(prox=name)
    assert energy.penalty == penalty
    assert isinstance(energy.penalty, EntrywisePenalty) == (clip is not None)
    if clip is not None:
        assert energy.penalty.clip == clip
    Y = problems.normal(problems.sample()) / 4
    for part in (Y, Y.abs()):
        torch.testing.assert_close(penalty.value(part), problems.zeta(part, name), **CLOSE)
    torch.testing.assert_close(penalty.prox(Y, 0.7), problems.prox(Y, 0.7, name), **CLOSE)


def test_a_penalty_is_taken_as_it_is():
    ridge = Ridge()
    assert penalty_of(ridge) is ridge
    assert musegnn.Energy(prox=ridge).penalty is ridge


@pytest.mark.parametrize("name", ["ReLU", "", "l2"])
def test_another_name_is_refused(name):
    message = (
        "prox must be a musegnn.Penalty or one of none, relu, l1, nonnegative_l1, group, box; "
        f"got {name!r}. Take 'relu', the default."
    )
    for take in (penalty_of, lambda prox: musegnn.Energy(prox=prox)):
        with refused(message):
            take(name)


@pytest.mark.parametrize("weight", [-0.1, inf, nan, -inf])
@pytest.mark.parametrize("kind", [musegnn.L1, musegnn.GroupNorm])
def test_a_wrong_weight_is_refused(kind, weight):
    with refused(f"The weight of a penalty must be a finite number, 0 or more; got {weight}."):
        kind(weight)


@pytest.mark.parametrize("limits", [(1.0, 1.0), (2.0, -2.0), (nan, 1.0), (0.0, nan), (inf, inf)])
def test_a_wrong_box_is_refused(limits):
    with refused("A box needs low < high, got low={} and high={}.".format(*limits)):
        musegnn.Box(*limits)


@pytest.mark.parametrize("kind", ["smoothness", "predictive", "relational"])
def test_a_penalty_with_parameters_is_a_module_and_learned(kind):
    class Ridge(musegnn.Penalty, nn.Module):
        def __init__(self):
            nn.Module.__init__(self)
            self.weight = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

        def value(self, Y):
            return self.weight * Y.square().sum()

        def prox(self, X, step):
            return X / (1 + 2 * self.weight * step)

    s, penalty = problems.ZOO["random"], Ridge()
    Z = problems.normal(s)
    makes = {"predictive": musegnn.Predictive, "relational": musegnn.Relational}
    energy = musegnn.Energy(1.0, prox=penalty)
    if kind in makes:
        energy = makes[kind](Z.shape[1], prox=penalty).double()
    assert any(part is penalty.weight for part in energy.learned())
    (found,) = torch.autograd.grad(musegnn.unfold(Z, s, energy, 3).square().sum(), penalty.weight)
    problem, Y = energy.problem(Z, s), Z
    for _ in range(3):
        Y = problem.descend(Y, Z)
    (expected,) = torch.autograd.grad(Y.square().sum(), penalty.weight)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


def test_a_weight_to_be_learned_is_refused_where_it_would_not_be(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    for kind in (musegnn.L1, musegnn.GroupNorm):
        with pytest.raises(musegnn.InputError, match="weight of a penalty must be a finite number"):
            kind(weight=nn.Parameter(torch.tensor(0.1)))
