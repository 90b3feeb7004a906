"""Gradients: both ways equal autograd through the naive dense loop; what is kept in memory for them."""

from math import ceil

import problems
import pytest
import torch
from problems import CLOSE, LAPLACIANS, PENALTIES, PRECONDITIONS, ZOO
from test_unfold import STEPS, energy_of, some_rows
from torch import nn
from torch.utils.checkpoint import checkpoint

from musegnn import Energy, MuseGNN, unfold
from musegnn.unfolding.kernel import CpuKernel
from musegnn.unfolding.penalty import Penalty


def gradients(Y, inputs, seed=5):
    """Of a random linear function of Y."""
    weights = torch.randn(Y.shape, generator=torch.Generator().manual_seed(seed), dtype=Y.dtype)
    return torch.autograd.grad((weights * Y).sum(), inputs, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("name", LAPLACIANS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("precondition", PRECONDITIONS)
def test_both_ways_back_equal_autograd_through_the_naive_loop(name, penalty, precondition):
    s = ZOO["random"]
    Z, mu, init = problems.normal(s, 9, count=3, grad=True)
    for steps in STEPS:
        begin, seen = (init, some_rows(s)) if steps % 2 else (None, None)
        lambda_, gamma = (torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (1.5, 0.4))
        sizes = problems.step_sizes(s, name, precondition, 1.5, 0.4, seen)
        settings = {"steps": steps, "mu": mu, "init": begin, "seen": seen}
        naive = problems.descend(
            Z, s, penalty, name, lambda_, gamma, precondition=precondition, sizes=sizes, **settings
        )
        expected = gradients(naive[-1], [Z, mu, init, lambda_, gamma])
        for learned in (False, True):
            energy = energy_of(name, penalty, precondition=precondition, learned=learned)
            weights = [energy.lambda_, energy.gamma] if learned else []
            found = gradients(unfold(Z, s, energy, **settings), [Z, mu, init, *weights])
            for slope, other in zip(found, expected, strict=False):
                torch.testing.assert_close(slope, other, **CLOSE)


@pytest.mark.parametrize("dim", [1, 8, 65, 130])
def test_odd_widths(dim):
    """Masks have blocks of 64 columns, and bytes of 8."""
    s = problems.sample()
    Z = problems.normal(s, dim, grad=True)
    for penalty in ("relu", "nonnegative_l1", "box"):
        expected = gradients(problems.descend(Z, s, penalty, lambda_=3.0)[-1], [Z])
        found = gradients(unfold(Z, s, Energy(3.0, prox=penalty)), [Z])
        torch.testing.assert_close(found[0], expected[0], **CLOSE)


@pytest.mark.parametrize("penalty", ["none", "relu", "l1", "group"])
@pytest.mark.parametrize("learned", [False, True])
def test_gradcheck(penalty, learned):
    s = ZOO["path"]
    rows = problems.normal(s, 2, count=3, grad=True)
    energy = energy_of(penalty=penalty, precondition="jacobi" if learned else "none", learned=learned)
    assert torch.autograd.gradcheck(lambda Z, mu, init: unfold(Z, s, energy, 3, 0.3, mu, init=init), rows)


@pytest.mark.parametrize("name", ["lambda_", "gamma"])
def test_learned_weights_have_the_slope_of_a_difference(name):
    """With an alpha of one's own, which does not move with the weight."""
    s, width = ZOO["random"], 1e-6
    Z, mu = problems.normal(s, count=2)
    energy = energy_of(penalty="l1", learned=True)
    weight = getattr(energy, name)
    (slope,) = torch.autograd.grad(unfold(Z, s, energy, 5, 0.3, mu).square().sum(), weight)
    ends = []
    for move in (width, -2 * width):
        with torch.no_grad():
            weight += move
            ends.append(float(unfold(Z, s, energy, 5, 0.3, mu).square().sum()))
    assert float(slope) == pytest.approx((ends[0] - ends[1]) / (2 * width), rel=1e-6)


def test_alpha_carries_no_gradient():
    """The step sizes of Jacobi and of "auto" depend on lambda; the gradient is that of constants."""
    s = ZOO["random"]
    Z = problems.normal(s)
    for precondition in ("none", "jacobi"):
        energy = energy_of(penalty="none", precondition=precondition, learned=True)
        problem = energy.problem(Z, s, mu=Z)
        assert isinstance(problem.alpha, float)
        assert not problem.rows.requires_grad


@pytest.mark.parametrize("learned", [False, True])
def test_a_second_backward_call_and_two_results_of_one_input(learned):
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2, grad=True)
    energy = energy_of(learned=learned)
    Y = unfold(Z, s, energy, mu=mu)
    once = torch.autograd.grad(Y.square().sum(), [Z, mu], retain_graph=True)
    twice = torch.autograd.grad(Y.square().sum(), [Z, mu])
    assert all(torch.equal(*pair) for pair in zip(once, twice, strict=True))
    first, second = unfold(Z, s, energy, 3, mu=mu), unfold(Z, ZOO["random"], energy, 5, mu=mu)
    (first * second).sum().backward()
    naive = [problems.descend(Z, s, "relu", "normalized", 1.5, 0.4, steps=k, mu=mu)[-1] for k in (3, 5)]
    expected = torch.autograd.grad((naive[0] * naive[1]).sum(), [Z, mu])
    torch.testing.assert_close(Z.grad, expected[0], **CLOSE)
    torch.testing.assert_close(mu.grad, expected[1], **CLOSE)


@pytest.mark.parametrize("learned", [False, True])
def test_a_second_derivative_is_refused(learned):
    s = ZOO["path"]
    Z = problems.normal(s, grad=True)
    Y = unfold(Z, s, energy_of(learned=learned), mu=Z.detach())
    (slope,) = torch.autograd.grad(Y.square().sum(), Z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@pytest.mark.parametrize("learned", [False, True])
def test_gradients_that_are_not_contiguous(learned):
    s = ZOO["random"]
    Z = problems.normal(s, 4, grad=True)
    energy, mu = energy_of(learned=learned), problems.normal(s, 4, seed=3)
    naive = problems.descend(Z, s, "relu", "normalized", 1.5, 0.4, mu=mu)[-1]
    for function in (torch.sum, lambda Y: (Y.T.contiguous() @ Y.detach()).sum(), lambda Y: Y[:, 1].sum()):
        found, expected = (torch.autograd.grad(function(Y), Z) for Y in (unfold(Z, s, energy, mu=mu), naive))
        torch.testing.assert_close(found[0], expected[0], **CLOSE)
        naive = problems.descend(Z, s, "relu", "normalized", 1.5, 0.4, mu=mu)[-1]
    Y = unfold(Z, s, energy, mu=mu)
    weights = problems.normal(s, 4, seed=9)
    (found,) = torch.autograd.grad(Y, Z, weights.T.contiguous().T)
    (expected,) = torch.autograd.grad(naive, Z, weights)
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("learned", [False, True])
def test_the_gradient_that_comes_in_is_not_written_to(learned):
    s = ZOO["random"]
    Z = problems.normal(s, grad=True)
    weights = problems.normal(s, seed=2)
    kept = weights.clone()
    Y = unfold(Z, s, energy_of(penalty="l1", learned=learned), mu=Z.detach())
    torch.autograd.grad(Y, Z, weights)
    assert torch.equal(weights, kept)


def test_half_precision_gradients():
    s = ZOO["random"]
    Z = problems.normal(s, 9).bfloat16().requires_grad_()
    (found,) = torch.autograd.grad(unfold(Z, s, Energy(1.5)).float().sum(), Z)
    assert found.dtype == torch.bfloat16
    exact = Z.detach().double().requires_grad_()
    (expected,) = torch.autograd.grad(problems.descend(exact, s, lambda_=1.5)[-1].sum(), exact)
    torch.testing.assert_close(found.double(), expected, rtol=0.01, atol=1e-3)


def test_float32_gradients():
    s = problems.sample()
    Z = problems.normal(s, 33, grad=True)
    narrow = Z.detach().float().requires_grad_()
    (expected,) = torch.autograd.grad(problems.descend(Z, s, "l1", lambda_=3.0)[-1].sum(), Z)
    (found,) = torch.autograd.grad(unfold(narrow, s, Energy(3.0, prox="l1")).sum(), narrow)
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_learned_penalty():
    """A user's penalty may be a module; its weight gets its gradient too."""

    class Shrink(nn.Module, Penalty):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

        def value(self, Y):
            return self.weight * Y.abs().sum()

        def prox(self, X, step):
            return X.sign() * torch.relu(X.abs() - step * self.weight)

    s, penalty = ZOO["random"], Shrink()
    Z = problems.normal(s)
    energy = Energy(2.0, prox=penalty)
    assert [*energy.parameters()] == [penalty.weight]
    (found,) = torch.autograd.grad(unfold(Z, s, energy, 4).square().sum(), penalty.weight)
    weight = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    H, U = problems.hessian(s, "normalized", 2.0, 0.0), Z
    for _ in range(4):
        X = U - (H @ U - Z) / 3
        U = X.sign() * torch.relu(X.abs() - weight / 6)
    (expected,) = torch.autograd.grad(U.square().sum(), weight)
    torch.testing.assert_close(found, expected, **CLOSE)


def test_weights_are_learned_by_an_optimizer():
    """lambda of the energy whose result is the target is found again."""
    s = ZOO["random"]
    Z = problems.normal(s, 6)
    target = unfold(Z, s, Energy(2.0, prox="none"), alpha=0.25)
    lambda_ = nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
    energy = Energy(lambda_, prox="none")
    optimizer = torch.optim.LBFGS([lambda_], max_iter=30, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = (unfold(Z, s, energy, alpha=0.25) - target).square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    assert float(lambda_.detach()) == pytest.approx(2, abs=1e-4)


# Memory.


def kept_for_backward(function):
    saved = []

    def pack(tensor):
        saved.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        function()
    return saved


@pytest.mark.parametrize("dim", [3, 64, 70])
def test_a_fused_run_keeps_one_bit_for_each_entry_and_step(dim):
    s = ZOO["random"]
    Z, mu = problems.normal(s, dim, count=2, grad=True)
    for penalty in ("relu", "l1", "nonnegative_l1", "box"):
        for steps in (1, 8):
            energy = Energy(2.0, prox=penalty)
            saved = kept_for_backward(lambda e=energy, k=steps: unfold(Z, s, e, k))
            assert len(saved) == steps
            assert sum(part.nbytes for part in saved) == steps * len(Z) * -(-dim // 8)
    assert not kept_for_backward(lambda: unfold(Z, s, Energy(2.0, prox="none")))
    # With means, autograd keeps nothing but what it needs for gamma mu.
    saved = kept_for_backward(lambda: unfold(Z, s, Energy(2.0, 0.5, prox="none"), mu=mu))
    assert sum(part.nbytes for part in saved) == 0


@pytest.mark.parametrize("steps", [1, 8, 9, 50])
def test_a_recomputed_run_keeps_the_root_of_its_steps(steps):
    s = ZOO["random"]
    Z = problems.normal(s, grad=True)
    saved = kept_for_backward(lambda: unfold(Z, s, Energy(2.0, prox="group"), steps))
    rows = [part for part in saved if part.shape == Z.shape]
    # Z itself, and a start for each segment.
    stride = max(1, ceil(steps**0.5 / 2))
    assert len(rows) == 1 + -(-steps // stride)


@pytest.mark.parametrize("weights", [["lambda_"], ["lambda_", "gamma"]])
@pytest.mark.parametrize("prox", ["relu", "group"])
def test_learned_weights_have_their_gradients_where_saved_tensors_go_through_hooks(weights, prox):
    """As under `torch.utils.checkpoint`: a parameter comes back as a plain leaf."""
    s = problems.sample()
    Z, mu = problems.normal(s, count=2, grad=True)
    given = {name: torch.nn.Parameter(torch.tensor(1.7, dtype=torch.float64)) for name in weights}
    energy = Energy(**{"lambda_": 1.0, "gamma": 0.3, **given}, prox=prox)

    def run():
        return unfold(Z, s, energy, 5, mu=mu).square().sum()

    expected = torch.autograd.grad(run(), [Z, *given.values()])
    with torch.autograd.graph.save_on_cpu():
        found = torch.autograd.grad(run(), [Z, *given.values()])
    torch.testing.assert_close(found, expected)
    found = torch.autograd.grad(checkpoint(run, use_reentrant=False), [Z, *given.values()])
    torch.testing.assert_close(found, expected)
    assert all(float(part) for part in found[1:])


def test_nothing_is_kept_where_no_gradient_is_wanted():
    s = ZOO["random"]
    Z = problems.normal(s)
    assert not kept_for_backward(lambda: unfold(Z, s, Energy(2.0)))
    with torch.no_grad():
        assert not kept_for_backward(lambda: unfold(Z.clone().requires_grad_(), s, Energy(2.0)))


def test_gradients_only_where_they_are_wanted():
    s = ZOO["random"]
    Z, mu, init = problems.normal(s, count=3)
    for learned in (False, True):
        for wanted in range(3):
            rows = [part.clone().requires_grad_(i == wanted) for i, part in enumerate((Z, mu, init))]
            energy = energy_of(learned=learned)
            Y = unfold(rows[0], s, energy, mu=rows[1], init=rows[2])
            naive = problems.descend(rows[0], s, "relu", "normalized", 1.5, 0.4, mu=rows[1], init=rows[2])[-1]
            found, expected = (
                torch.autograd.grad(part.square().sum(), rows[wanted])[0] for part in (Y, naive)
            )
            torch.testing.assert_close(found, expected, **CLOSE)


# torch.compile.


# torch looks at .grad of what comes out of a break in its graph.
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_model_gives_the_same(backend):
    s = ZOO["random"]
    torch.manual_seed(0)
    model = MuseGNN(5, 3, 8, Energy(2.0, 0.5), layers=2).double()
    X, mu = problems.normal(s, 5), problems.normal(s, 8)
    with torch.no_grad():
        plain = model(s, X, mu)
    expected = [part.clone() for part in grads(model, s, X, mu)]
    compiled = torch.compile(model, backend=backend)
    with problems.unchecked():
        torch.testing.assert_close(compiled(s, X, mu).detach(), plain, **CLOSE)
        for pair in zip(grads(compiled, s, X, mu), expected, strict=True):
            torch.testing.assert_close(*pair, **CLOSE)
    torch._dynamo.reset()


def grads(model, s, X, mu):
    model.zero_grad()
    model(s, X, mu).square().sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def test_no_masks_are_made_where_no_gradient_is_wanted(monkeypatch):
    s, made = ZOO["random"], []
    mask = CpuKernel.mask
    monkeypatch.setattr(CpuKernel, "mask", lambda self, like: made.append(like) or mask(self, like))
    Z = problems.normal(s)
    unfold(Z, s, Energy(2.0), 5)
    assert not made
    unfold(Z.requires_grad_(), s, Energy(2.0), 5)
    assert len(made) == 5
