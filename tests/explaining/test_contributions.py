"""Shares add up to the logits, and each of them is what dense matrices say."""

import os

import numpy as np
import problems
import pytest
import torch
from explained_cases import OUT, Case, Tilted, constant_of_g, dense_split, random_case
from problems import CLOSE, refused
from test_relational import DIM, KINDS, graph, kinds, learned, ranks
from test_typed_steps import paces
from torch import nn
from torch.autograd.functional import jacobian

from musegnn import Energy, MuseGNN, Predictive, Robust, Staged, unfold
from musegnn.explaining import explain, split_embedding
from musegnn.unfolding.subgraph import as_sample
from musegnn.unfolding.typed import TypedProblem

CASES = range(600 if "MUSEGNN_PROOF" in os.environ else 24)


@pytest.mark.parametrize("seed", CASES)
def test_the_shares_add_up_to_the_logits(seed):
    case = random_case(seed)
    node = int(case.sample.node_ids[seed % case.sample.num_nodes])
    found = explain(*case.given, seen=case.seen, node=node)
    total = found.shares.sum(axis=0) + found.means.sum(axis=0) + found.bias
    np.testing.assert_allclose(total, found.logits, rtol=1e-10, atol=1e-10)
    Y = case.model.embed(case.sample, case.features, case.mu, seen=case.seen)
    row = seed % case.sample.num_nodes
    np.testing.assert_allclose(found.logits, case.model.g(Y)[row].detach(), rtol=1e-10, atol=1e-10)
    bias = constant_of_g(case.model.g, Y[row : row + 1])[0]
    np.testing.assert_allclose(found.bias, bias, rtol=1e-10, atol=1e-10)
    assert abs(found.rest).max() < 1e-10
    assert sum(part.share for part in found.parts) == pytest.approx(found.margin, abs=1e-10)
    assert sum(abs(part.percent) for part in found.parts) == pytest.approx(100)


@pytest.mark.parametrize("seed", range(8))
def test_they_do_in_single_precision(seed):
    case = random_case(seed, dtype=torch.float32)
    found = explain(*case.given, seen=case.seen)
    total = found.shares.sum(axis=0) + found.means.sum(axis=0) + found.bias
    assert abs(total - found.logits).max() <= 1e-4 * abs(found.logits).max()


@pytest.mark.parametrize("penalty", ["none", "relu", "l1", "nonnegative_l1", "box"])
@pytest.mark.parametrize("precondition", ["none", "jacobi"])
@pytest.mark.parametrize("laplacian", problems.LAPLACIANS)
def test_each_share_is_that_of_dense_matrices(penalty, precondition, laplacian):
    case = Case(seed=3, penalty=penalty, precondition=precondition, laplacian=laplacian)
    row = 4
    node = int(case.sample.node_ids[row])
    expected = dense_split(case, row)
    parts = split_embedding(*case.given, seen=case.seen, node=node)
    for one, other in zip(parts, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    assert (abs(parts.rest).max() > 1e-3) == (penalty not in ("none", "relu"))
    Y = case.steps_of(case.Z, case.mu)[-1]
    torch.testing.assert_close(parts.base.sum(0) + parts.means.sum(0) + parts.rest, Y[row], **CLOSE)


@pytest.mark.parametrize("kwargs", [{}, {"precondition": "authors"}, {"penalty": "l1"}, {"gamma": 0.0}])
def test_each_share_of_a_logit_is_its_derivative_times_the_input(kwargs):
    case, row = Case(seed=1, **kwargs), 2
    given = (case.Z, case.mu) if case.gamma else (case.Z,)

    def logits(Z, mu=None):
        return case.model.g(case.steps_of(Z, mu)[-1][row : row + 1])[0]

    slopes = jacobian(logits, given)
    found = explain(*case.given, seen=case.seen, node=int(case.sample.node_ids[row]))
    expected = [(slope * part).sum(dim=2).T for slope, part in zip(slopes, given, strict=True)]
    np.testing.assert_allclose(found.shares, expected[0], **CLOSE)
    np.testing.assert_allclose(found.means, expected[1] if case.gamma else 0 * expected[0], **CLOSE)
    total = found.shares.sum(0) + found.means.sum(0) + found.bias + found.rest
    np.testing.assert_allclose(total, found.logits, **CLOSE)


@pytest.mark.parametrize("penalty", ["none", "relu"])
def test_columns_that_know_of_each_other_add_up_too(penalty):
    case = Case(seed=2, kind=Tilted, penalty=penalty, lambda_=1.0)
    found = explain(*case.given, seen=case.seen)
    total = found.shares.sum(axis=0) + found.means.sum(axis=0) + found.bias
    np.testing.assert_allclose(total, found.logits, **CLOSE)
    embedding = split_embedding(*case.given, seen=case.seen)
    Y = case.model.embed(case.sample, case.features, case.mu, seen=case.seen)
    torch.testing.assert_close(embedding.base.sum(0) + embedding.means.sum(0), Y[0].detach(), **CLOSE)


def test_one_pass_and_one_pass_for_each_class_agree(monkeypatch):
    case = Case(seed=0)
    first = explain(*case.given, seen=case.seen)
    for name in ("fused", "matrix"):
        monkeypatch.setattr(f"musegnn.unfolding.energy.Smoothness.{name}", lambda self: None)
    second = explain(*case.given, seen=case.seen)
    np.testing.assert_allclose(first.shares, second.shares, **CLOSE)
    np.testing.assert_allclose(first.means, second.means, **CLOSE)


def test_a_penalty_that_is_not_linear_has_a_rest_and_nothing_is_hidden():
    case = Case(seed=0, penalty="group", lambda_=0.5)
    found = explain(*case.given, seen=case.seen)
    total = found.shares.sum(0) + found.means.sum(0) + found.bias + found.rest
    np.testing.assert_allclose(total, found.logits, **CLOSE)
    assert abs(found.rest).max() > 1e-4


def test_nodes_beyond_k_edges_and_means_that_are_not_seen_have_no_share():
    case = Case(seed=0, steps=1)
    found = explain(*case.given, seen=case.seen)
    far = (found.hops > 1) | (found.hops < 0)
    assert far.any()
    assert not found.shares[far].any()
    assert found.shares[~far].any(axis=1).all()
    # One step: the mean of the node itself is all that has arrived, if it counts.
    assert not found.means.any()
    other = int(case.sample.node_ids[1])
    means = explain(*case.given, seen=case.seen, node=other).means
    assert means[1].any()
    assert not np.delete(means, 1, axis=0).any()


def test_hops_are_counted_from_the_node():
    case = Case(seed=0)
    row = 5
    hops = explain(*case.given, seen=case.seen, node=int(case.sample.node_ids[row])).hops
    assert hops[row] == 0
    neighbors = case.sample.indices[case.sample.indptr[row] : case.sample.indptr[row + 1]]
    assert set(np.flatnonzero(hops == 1)) == set(neighbors.tolist())
    rows, columns = case.sample.edge_index()
    assert (abs(hops[rows] - hops[columns]) <= 1).all()


def test_the_error_bound_is_that_of_a_trace():
    case = Case(seed=0)
    given = case.sample, case.model.energy, case.model.steps
    trace = unfold(case.Z, *given, mu=case.mu, seen=case.seen, trace=True)
    found = explain(*case.given, seen=case.seen)
    assert found.error_bound == pytest.approx(trace.error_bound / float(trace.Y.norm()), rel=1e-9)
    assert explain(*Case(seed=0, steps=0).given, seen=case.seen).error_bound == float("inf")


def test_a_step_size_of_ones_own_is_that_of_the_steps_and_of_the_bound():
    case = Case(seed=0)
    case.model.alpha = 0.1
    found = explain(*case.given, seen=case.seen)
    given = case.sample, case.model.energy, case.model.steps, 0.1
    trace = unfold(case.Z, *given, mu=case.mu, seen=case.seen, trace=True)
    np.testing.assert_allclose(found.logits, case.model.g(trace.Y)[0].detach(), **CLOSE)
    assert found.error_bound == pytest.approx(trace.error_bound / float(trace.Y.norm()), rel=1e-9)
    assert abs(found.rest).max() < 1e-10


def test_means_that_do_not_count_have_no_share():
    case = Case(seed=0, gamma=0.0)
    found = explain(case.model, case.sample, case.features, torch.ones(case.sample.num_nodes, 6).double())
    assert not found.means.any()
    np.testing.assert_allclose(found.shares, explain(*case.given).shares, **CLOSE)


def test_learned_weights_are_explained_too():
    case = Case(seed=0)
    expected = explain(*case.given, seen=case.seen)
    case.model.energy = Energy(nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(0.6)))
    found = explain(*case.given, seen=case.seen)
    np.testing.assert_allclose(found.shares, expected.shares, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(found.means, expected.means, rtol=1e-6, atol=1e-6)


def test_the_model_is_left_as_it_was():
    case = Case(seed=0)
    before = {name: part.clone() for name, part in case.model.state_dict().items()}
    features = case.features.clone()
    explain(*case.given, seen=case.seen)
    assert all(torch.equal(part, before[name]) for name, part in case.model.state_dict().items())
    assert all(part.grad is None for part in case.model.parameters())
    assert torch.equal(case.features, features)
    assert not case.mu.requires_grad


def test_the_classes_can_be_chosen():
    case = Case(seed=0)
    found = explain(*case.given, seen=case.seen)
    first, second = np.argsort(-found.logits)[:2]
    assert (found.predicted, found.runner_up) == (first, second)
    chosen = explain(*case.given, seen=case.seen, predicted=int(second), runner_up=int(first))
    assert chosen.margin == pytest.approx(-found.margin)
    with refused(f"predicted must be a class in 0..{OUT - 1}, got 9."):
        explain(*case.given, seen=case.seen, predicted=9)
    with refused("predicted and runner_up are the same class, 1. Leave one of them out."):
        explain(*case.given, seen=case.seen, predicted=1, runner_up=1)


def test_a_single_logit_is_its_own_margin():
    case = Case(seed=0)
    case.model.g = MuseGNN(5, 1, 6).double().eval().g
    found = explain(*case.given, seen=case.seen)
    assert found.runner_up is None
    assert found.margin == pytest.approx(found.logits[0])
    assert found.sentence().startswith(f"{found.node} is predicted `0` (margin ")
    assert " over " not in found.sentence()


def test_what_cannot_be_explained_is_refused():
    case = Case(seed=0)
    n = case.sample.num_nodes
    with refused(f"Node 999 is not among the {n} nodes of the sample. Draw one around it."):
        explain(*case.given, seen=case.seen, node=999)
    message = (
        f"There are 3 rows of features, but {n} nodes. Pass a row for each node, g.features[s.node_ids]."
    )
    with refused(message):
        explain(case.model, case.sample, case.features[:3], case.mu, seen=case.seen)
    case.model.train()
    with refused("The model is in training mode, with dropout. Call model.eval() first."):
        explain(*case.given, seen=case.seen)


@kinds
@ranks
@paces
@pytest.mark.parametrize("stages", [1, 3])
def test_shares_add_up_for_learned_matrices(kind, rank, acceleration, stages):
    """With means that some rows do not have, and nothing left over."""
    g, prox = graph(4, hub=True), "none" if acceleration == "chebyshev" else "relu"
    how = {"num_relations": 2, "gamma": 0.4, "prox": prox, "rank": rank, "acceleration": acceleration}
    energies = [learned(KINDS[kind](**how), seed) for seed in range(stages)]
    torch.manual_seed(0)
    energy = energies[0] if stages == 1 else Staged(energies)
    model = MuseGNN(5, OUT, DIM, energy, 6, layers=1).double().eval()
    (features, mu), seen = (torch.randn(9, n).double() for n in (5, DIM)), torch.arange(9) % 3 > 0
    found = explain(model, as_sample(g, 9), features, mu, seen=seen, node=4)
    with torch.no_grad():
        expected = model.g(model.embed(g, features, mu, seen=seen))[4]
    total = found.shares.sum(axis=0) + found.means.sum(axis=0) + found.bias
    np.testing.assert_allclose(total, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.logits, expected, rtol=1e-9, atol=1e-9)
    assert np.abs(found.means).max() > 1e-6
    assert np.abs(np.delete(found.shares, 4, axis=0)).max() > 1e-6


@pytest.mark.parametrize("power", [-2.0, 0.0, 1.0])
def test_shares_of_a_robust_energy_add_up_with_its_weights_held(power):
    """To the same embeddings, though weights depend on them; without holding them they would not."""
    g = graph(4, hub=True)
    torch.manual_seed(0)
    energy = Robust(3.0, 0.4, power=power, scale=0.05)
    model = MuseGNN(5, OUT, DIM, energy, 6, layers=1).double().eval()
    features, mu = (torch.randn(9, n).double() for n in (5, DIM))
    given = model, as_sample(g, 9), features, mu
    found = explain(*given, node=4)
    total = found.shares.sum(axis=0) + found.means.sum(axis=0) + found.bias
    with torch.no_grad():
        np.testing.assert_allclose(total, model.g(model.embed(g, features, mu))[4], rtol=1e-9, atol=1e-9)
    energy.linearized = lambda: energy
    free = explain(*given, node=4)
    assert np.abs(free.rest).max() > 1e-3 * np.abs(free.shares).max()


def test_shares_ask_for_no_gradient_of_what_is_learned_and_leave_it_as_it_was(monkeypatch):
    torch.manual_seed(0)
    g = graph(4, nodes=12, hub=True)
    energies = [learned(Predictive(DIM, 2, gamma=0.3), seed) for seed in (1, 2)]
    energies[1].raw_lambda.requires_grad_(False)
    model = MuseGNN(5, OUT, DIM, Staged(energies), 4, layers=1).double().eval()
    before = {name: (part.requires_grad, part.clone()) for name, part in model.named_parameters()}
    backs, back = [], TypedProblem.back
    monkeypatch.setattr(TypedProblem, "back", lambda *given: backs.append(given[-1]) or back(*given))
    features, mu = (torch.randn(12, width, dtype=torch.float64) for width in (5, DIM))
    found = explain(model, as_sample(g, 12), features, mu)
    total = found.shares.sum(axis=0) + found.means.sum(axis=0) + found.bias
    np.testing.assert_allclose(total, found.logits, rtol=1e-10, atol=1e-10)
    # Four steps back for each class.
    assert [wanted.learned for wanted in backs] == [False] * 4 * OUT
    assert all(wanted.mu for wanted in backs)
    for name, part in model.named_parameters():
        assert part.requires_grad == before[name][0]
        assert part.grad is None
        torch.testing.assert_close(part, before[name][1])
