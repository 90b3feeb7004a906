"""Typed energies: a step in one pass is that of a tape, and the way back by hand is that of autograd."""

import gc
from dataclasses import replace
from math import inf
from weakref import ref

import numpy as np
import pytest
import torch
from test_relational import DIM, KINDS, by_tape, dense_ties, graph, kinds, learned, ranks, rows

from machine import only_on_a_gpu
from musegnn import Draws, Energy, MuseGNN, Predictive, Robust, ShadowKHop, Staged, unfold
from musegnn.explaining import explain, tension
from musegnn.graph.relation import codes_of
from musegnn.unfolding import stacks, typed
from musegnn.unfolding.mixing import Factors
from musegnn.unfolding.stacks import spread, stacked
from musegnn.unfolding.typed import TypedProblem

PENALTIES = ["none", "relu", "l1", "nonnegative_l1", "box"]
paces = pytest.mark.parametrize("acceleration", ["none", "momentum", "chebyshev"])


def energies(kind, rank, acceleration="none"):
    """Whatever a lambda is for, with each penalty that goes by entries."""
    for number, prox in enumerate(PENALTIES if acceleration != "chebyshev" else ["none"]):
        for lambda_per in ("graph", "relation", "channel"):
            how = {"lambda_per": lambda_per, "rank": rank, "acceleration": acceleration}
            energy = KINDS[kind](num_relations=2, gamma=0.4, prox=prox, **how)
            yield f"{prox}, {lambda_per}", learned(energy, number)


@kinds
@ranks
@pytest.mark.parametrize("hub", [False, True])
def test_a_step_in_one_pass_is_that_of_a_tape(kind, rank, hub):
    g = graph(3, hub=hub, empty=(1,) if hub else ())
    (Y, Z, mu), seen = rows(g.num_nodes), torch.arange(g.num_nodes) % 3 > 0
    for name, energy in energies(kind, rank):
        for given in ({}, {"mu": mu}, {"mu": mu, "seen": seen}):
            energy.gamma = 0.4 if given else 0.0
            problem = energy.problem(Z, g, **given)
            for what, *how in (
                (problem.product, Y),
                (problem.half_gradient, Y, Z),
                (problem.descend, Y, Z),
                (problem.stepped, Y, Z, 0.3 * problem.rows),
            ):
                with torch.no_grad():
                    found = what(*how)
                expected = what(*how).detach()
                torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")


@kinds
@ranks
@paces
def test_the_way_back_by_hand_is_that_of_autograd(kind, rank, acceleration, monkeypatch):
    """Of Z, the start, the means, lambda and all parts of H."""
    g = graph(4, hub=True)
    (weights, Z, mu), seen = rows(g.num_nodes), torch.arange(g.num_nodes) % 3 > 0
    start = rows(g.num_nodes, seed=1)[0]
    given = [part.requires_grad_() for part in (Z, mu, start)]
    steps_back, back = [], TypedProblem.back
    monkeypatch.setattr(TypedProblem, "back", lambda *parts: steps_back.append(0) or back(*parts))
    for name, energy in energies(kind, rank, acceleration):
        wanted = [*given, *energy.parameters()]

        def gradients(energy=energy, wanted=wanted):
            Y = unfold(Z, g, energy, 6, mu=mu, init=start, seen=seen)
            return torch.autograd.grad((weights * Y).sum(), wanted)

        found, num_steps = gradients(), len(steps_back)
        with monkeypatch.context() as without:
            without.setattr(TypedProblem, "goes_back", False)
            expected = gradients()
        assert num_steps == len(steps_back) == 6
        steps_back.clear()
        torch.testing.assert_close(found, expected, msg=lambda text, name=name: f"{name}: {text}")
        assert all(part.abs().max() > 0 for part in found)


def checked(energy):
    """By Z, the means and the start."""
    g, given = graph(6, nodes=5, hub=True), [part.requires_grad_() for part in rows(5)]
    energy.requires_grad_(False)
    return torch.autograd.gradcheck(lambda Z, mu, init: unfold(Z, g, energy, 4, mu=mu, init=init), given)


@kinds
@pytest.mark.parametrize(("acceleration", "stages"), [("none", 1), ("momentum", 1), ("none", 2)])
def test_gradcheck(kind, acceleration, stages):
    how = {"num_relations": 2, "gamma": 0.4, "acceleration": acceleration}
    energies = [learned(KINDS[kind](**how), seed) for seed in range(stages)]
    assert checked(energies[0] if stages == 1 else Staged(energies))


def test_gradcheck_of_the_robust_energy():
    assert checked(Robust(2.0, 0.4, scale=0.5))


@kinds
@ranks
@pytest.mark.parametrize("acceleration", ["none", "momentum"])
def test_what_is_learned_has_the_slope_of_a_difference(kind, rank, acceleration, monkeypatch):
    """Of steps that stay as long as they are: step sizes depend on lambda and H, but carry no gradient."""
    g = graph(6, hub=True)
    weights, Z, mu = rows(g.num_nodes)
    how = {"rank": rank, "limit": 1.5 if rank is None else inf, "acceleration": acceleration}
    energy = learned(KINDS[kind](num_relations=2, gamma=0.4, **how), 2)
    problem = energy.problem(Z, g, mu=mu)
    assert not problem.rows.requires_grad
    size, form = problem._size, type(problem._form)

    def held(self):
        most = self.mixed.lambdas.amax(dim=1)[:, None, None]
        return size / (len(most) * most)

    monkeypatch.setattr(form, "size", held)

    def outcome():
        return (weights * unfold(Z, g, energy, 5, mu=mu)).sum()

    slopes = torch.autograd.grad(outcome(), list(energy.parameters()))
    for (name, part), slope in zip(energy.named_parameters(), slopes, strict=True):
        moved = torch.randn(part.shape, generator=torch.Generator().manual_seed(1), dtype=part.dtype)
        ends = []
        for move in (1e-6, -2e-6):
            with torch.no_grad():
                part += move * moved
                ends.append(float(outcome()))
        with torch.no_grad():
            part += 1e-6 * moved
        expected = (ends[0] - ends[1]) / 2e-6
        assert float((slope * moved).sum()) == pytest.approx(expected, rel=1e-5, abs=1e-7), name


@kinds
@paces
def test_what_is_not_asked_for_is_not_computed(kind, acceleration, monkeypatch):
    """Gradients of Z alone: no look at where a step began, none of H and lambda, and none of the means."""
    g = graph(4, hub=True)
    weights, Z, mu = rows(g.num_nodes)
    Z.requires_grad_()
    prox = "none" if acceleration == "chebyshev" else "relu"
    energy = learned(KINDS[kind](num_relations=2, gamma=0.4, prox=prox, acceleration=acceleration))

    def gradient():
        return torch.autograd.grad((weights * unfold(Z, g, energy, 5, mu=mu)).sum(), Z)[0]

    expected = gradient()
    energy.requires_grad_(False)
    backs, back = [], TypedProblem.back

    def watched(problem, *given):
        monkeypatch.setattr(type(problem._form), "slopes", None)
        backs.append(back(problem, *given))
        return backs[-1]

    monkeypatch.setattr(TypedProblem, "back", watched)
    torch.testing.assert_close(gradient(), expected)
    assert len(backs) == 5
    assert all(found.mu is None and not found.learned for found in backs)


@kinds
def test_the_result_may_be_written_to_where_the_way_back_does_not_look_at_it(kind):
    g = graph(4)
    _, Z, _ = rows(g.num_nodes)
    energy = learned(KINDS[kind](num_relations=2, prox="none"))
    expected = 2 * torch.autograd.grad(unfold(Z.requires_grad_(), g, energy, 3).sum(), Z)[0]
    Y = unfold(Z, g, energy, 3).mul_(2)
    torch.testing.assert_close(torch.autograd.grad(Y.sum(), Z)[0], expected)


@pytest.mark.parametrize("why", ["a penalty of rows", "a parameter more", "a frozen H"])
def test_where_it_cannot_be_by_hand_autograd_goes_back(why):
    """And where not all is wanted, what is comes out the same."""

    class Louder(Predictive):
        """With a parameter of its own."""

        def __init__(self):
            super().__init__(DIM, 2)
            self.gain = torch.nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

        @property
        def lambdas(self):
            return super().lambdas * self.gain.exp()

    g = graph(5)
    energy = learned(Predictive(DIM, 2, prox="group") if why == "a penalty of rows" else Predictive(DIM, 2))
    if why == "a parameter more":
        energy = Louder().double()
    energy.mixings.W.requires_grad_(why != "a frozen H")
    _, Z, _ = rows(g.num_nodes)
    wanted = [Z.requires_grad_(), *(part for part in energy.parameters() if part.requires_grad)]
    assert energy.problem(Z, g).goes_back == (why == "a frozen H")
    found = torch.autograd.grad(unfold(Z, g, energy, 5).square().sum(), wanted)
    expected = torch.autograd.grad(by_tape(energy, Z, g, 5).square().sum(), wanted)
    torch.testing.assert_close(found, expected)


def test_a_graph_without_edges():
    g, energy = graph(0, nodes=4, empty=(0, 1)), learned(Predictive(DIM, 2))
    assert not len(g.indices)
    _, Z, _ = rows(g.num_nodes)
    Y = unfold(Z.requires_grad_(), g, energy, 3)
    torch.testing.assert_close(Y, Z.clamp(min=0))
    dZ, *others = torch.autograd.grad(Y.sum(), [Z, *energy.parameters()])
    torch.testing.assert_close(dZ, (Z > 0).to(Z))
    assert not any(part.any() for part in others)


@kinds
def test_weights_and_loads_are_those_of_dense_matrices(kind):
    """P_w' 1 decides how short the steps of a node are."""
    g = graph(4, hub=True)
    energy, (_, Z, _) = learned(KINDS[kind](num_relations=2)), rows(g.num_nodes)
    form = energy.problem(Z, g)._form
    degree = torch.from_numpy(np.diff(g.indptr)).double()
    ways = [way for tie in dense_ties(g, 2) for way in (tie, tie.T)[: energy.ways]]
    for way, A in enumerate(ways):
        leaving, arriving = A.sum(1).clamp(min=1), A.sum(0).clamp(min=1)
        left, right = {
            "row": (1 / leaving, torch.ones_like(arriving)),
            "symmetric": (leaving.rsqrt(), arriving.rsqrt()),
            "normalized": ((degree + 1).rsqrt(),) * 2,
            "combinatorial": (torch.ones_like(degree),) * 2,
        }[kind]
        P = left[:, None] * A * right
        torch.testing.assert_close(spread(form.P, Z)[way], P @ Z)
        torch.testing.assert_close(form.P.load[way, :, 0], P.sum(dim=0))


@kinds
def test_a_device_without_a_kernel_gets_the_same(kind, monkeypatch):
    """By functions of torch alone."""
    g = graph(4, hub=True)
    weights, Z, mu = rows(g.num_nodes)
    energy = learned(KINDS[kind](num_relations=2, gamma=0.4, prox="nonnegative_l1"))
    given = [Z.requires_grad_(), *energy.parameters()]

    def outcome():
        Y = unfold(Z, g, energy, 4, mu=mu)
        return Y, *torch.autograd.grad((weights * Y).sum(), given)

    expected, calls = outcome(), []
    by_torch, settled_by_torch = stacks._sum_by_torch, stacks._settled_by_torch

    def settled(P, M, R, scale, keep, take, X, B=None, penalty=None):
        calls.append(0)
        columns = (part.expand(len(X), 1)[:, 0] for part in (keep, take))
        with torch.no_grad():
            return settled_by_torch(P, M.reshape(-1, DIM), R, scale, *columns, X, B, penalty)

    monkeypatch.setattr(stacks, "_sum", lambda *given: calls.append(1) or by_torch(*given))
    monkeypatch.setattr(typed, "settled", settled)
    torch.testing.assert_close(outcome(), expected)
    assert {0, 1} == set(calls)


@kinds
def test_what_a_step_has_looked_at_makes_room(kind, monkeypatch):
    """P Y is as large as all ways of Y, and is gone before the next product."""
    g, (Y, Z, _) = graph(4), rows(9)
    problem, kept, after = learned(KINDS[kind](num_relations=2)).problem(Z, g), [], []
    is_predictive, form = isinstance(problem.energy, Predictive), type(problem._form)
    name = "times" if is_predictive else "taken_from"
    look, product = form.look, getattr(Factors, name)

    def looked(self, Y):
        found = look(self, Y)
        kept.append(ref(found[0 if is_predictive else 1]))
        return found

    def multiplied(*given):
        after.extend(one() for one in kept)
        return product(*given)

    monkeypatch.setattr(form, "look", looked)
    monkeypatch.setattr(Factors, name, multiplied)
    with torch.no_grad():
        problem.descend(Y, Z)
    assert after == [None]


@kinds
def test_what_was_looked_up_without_a_tape_can_be_trained_with(kind):
    g, (weights, Z, _) = graph(4), rows(9)
    energy = learned(KINDS[kind](num_relations=2, prox="group"))
    with torch.inference_mode():
        unfold(Z, g, energy, 2)
    found = torch.autograd.grad((weights * unfold(Z.requires_grad_(), g, energy, 2)).sum(), Z)
    other = graph(4)
    expected = torch.autograd.grad((weights * unfold(Z, other, energy, 2)).sum(), Z)
    torch.testing.assert_close(found, expected)


@only_on_a_gpu
@kinds
@ranks
@paces
def test_a_gpu_says_the_same(kind, rank, acceleration):
    """Steps and the way back, with a hub that is added up in pieces."""
    g = graph(4, nodes=400, hub=True)
    (weights, Z, mu), seen = rows(g.num_nodes), torch.arange(g.num_nodes) % 3 > 0

    def outcome(energy, device):
        energy = energy.to(device)
        given = [part.to(device).detach().requires_grad_() for part in (Z, mu)]
        Y = unfold(given[0], g, energy, 6, mu=given[1], seen=seen.to(device))
        wanted = [*given, *energy.parameters()]
        found = torch.autograd.grad((weights.to(device) * Y).sum(), wanted)
        return [part.detach().cpu() for part in (Y, *found)]

    for name, energy in energies(kind, rank, acceleration):
        expected = outcome(energy, "cpu")
        torch.testing.assert_close(
            outcome(energy, "cuda"), expected, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize("num_relations", [0, 2])
@pytest.mark.parametrize("kind", [*KINDS, "paper", "learned lambda", "robust"])
def test_what_is_made_of_a_sample_goes_with_it(kind, num_relations):
    """Training meets a new sample in every step: what is kept of each would fill the memory."""
    g = graph(4)
    draws = Draws(g, ShadowKHop([3, 2]), np.arange(4), batch_size=4)
    sample = draws[0]
    sample = replace(sample, relation=codes_of(g, sample.node_ids, sample.indptr, sample.indices))
    if kind in KINDS:
        energy = learned(KINDS[kind](num_relations=num_relations))
    else:
        weight = torch.nn.Parameter(torch.tensor(1.0)) if kind == "learned lambda" else 1.0
        energy = Robust() if kind == "robust" else Energy(weight)
    torch.manual_seed(0)
    model = MuseGNN(4, 3, DIM, energy, 3, layers=1).double().eval()
    features = torch.randn(sample.num_nodes, 4, dtype=torch.float64)
    Z = rows(sample.num_nodes)[0].requires_grad_()
    torch.autograd.grad(unfold(Z, sample, energy, 3, trace=True).Y.sum(), [Z, *energy.parameters()])
    explain(model, sample, features)
    assert tension(model, sample, features) is not None
    left = [ref(sample)]
    if kind in KINDS:
        made = stacked(sample, num_relations, energy.ways)
        left += [ref(part) for part in (made, made.A, made.At)]
    gc.collect()
    gc.disable()
    try:
        del sample, draws
        made = None
        assert [part() for part in left] == [None] * len(left)
    finally:
        gc.enable()
