"""USP: all edges are `musegnn.unfold`, some are right in the mean, and groups are what they should be."""

from itertools import product

import numpy as np
import peer_cases as cases
import problems
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from machine import unchecked as unchecked
from musegnn.baselines.stochastic import _BLOCKS, USP, edge_groups

LAMBDA = 4.0
"""1 / 0.2 - 1."""


def expected_logits(model, sample, X, steps=3):
    Z = cases.by_hand(model.f, X)
    Y = musegnn.unfold(Z, sample, musegnn.Energy(LAMBDA), steps=steps)
    (linear,) = model.g.layers
    return (Y @ linear.weight.T + linear.bias)[: sample.num_seeds]


@pytest.mark.parametrize("sample", [cases.whole(), cases.part()], ids=["whole", "part"])
@pytest.mark.parametrize(("momentum", "is_training"), [(1.0, True), (0.3, False)])
def test_all_edges_are_the_unfolded_energy(sample, momentum, is_training):
    model, X = cases.peer(USP, momentum=momentum).train(is_training), cases.features(sample)
    cases.check_alike(model, model(sample, X), expected_logits(model, sample, X))


@pytest.mark.parametrize("sample", [cases.whole(), cases.part()], ids=["whole", "part"])
def test_its_own_steps_are_those_too_if_every_group_is_kept(sample):
    model, X = cases.peer(USP, momentum=1.0), cases.features(sample)
    (linear,) = model.g.layers
    Y = model.descend(model.f(X), sample)
    cases.check_alike(
        model, (Y @ linear.weight.T + linear.bias)[: sample.num_seeds], expected_logits(model, sample, X)
    )


def dense_half_gradient(model, Y, Z, sample, is_kept):
    """Edge by edge: half the gradient of (lambda / p) |s_u Y_u - s_v Y_v|^2, by autograd."""
    Y = Y if Y.requires_grad else Y.requires_grad_()
    scale = (torch.from_numpy(np.diff(sample.indptr)).double() + 1).rsqrt()[:, None]
    source, target = (torch.from_numpy(ends[is_kept]) for ends in sample.edge_index())
    once = source < target
    apart = (scale * Y)[source[once]] - (scale * Y)[target[once]]
    energy = (Y - Z).square().sum() + LAMBDA / model.shape.momentum * apart.square().sum()
    return torch.autograd.grad(energy, Y, create_graph=True)[0] / 2


def test_a_draw_is_the_energy_of_its_edges_and_the_mean_is_that_of_all():
    torch.manual_seed(1)
    model, sample = cases.peer(USP, momentum=0.5), cases.whole()
    Y, Z = torch.randn(2, sample.num_nodes, 2, dtype=torch.float64)
    full = musegnn.Energy(LAMBDA).half_gradient(Y, Z, sample)
    groups, draws = edge_groups(sample), []
    for _ in range(400):
        is_kept = (torch.rand(_BLOCKS, _BLOCKS).numpy() < 0.5).ravel()[groups]
        draws.append(model.half_gradient(Y, Z, sample, is_kept))
        if len(draws) <= 3:
            expected = dense_half_gradient(model, Y, Z, sample, is_kept)
            torch.testing.assert_close(draws[-1], expected, **cases.CLOSE)
            assert 0 < is_kept.sum() < len(is_kept)
    found = torch.stack(draws)
    # Five standard errors of each entry; where no edge is, no error.
    error = 5 * found.std(dim=0) / len(draws) ** 0.5
    assert ((found.mean(dim=0) - full).abs() <= error + 1e-12).all()
    assert (found.std(dim=0) > 0.1).any()


def test_the_mean_over_every_draw_is_exact():
    """A graph of two groups only has four draws."""
    graph = musegnn.Graph.from_edges([[0, 0], [1, 15]], num_nodes=16, features=np.zeros((16, 1)))
    sample = musegnn.Sample(
        node_ids=np.arange(16, dtype=np.int32), indptr=graph.indptr, indices=graph.indices, num_seeds=16,
        bounds=np.zeros(4),
    )  # fmt: skip
    torch.manual_seed(1)
    model = USP(graph, 3, cases.shape(momentum=0.25)).double()
    Y, Z = torch.randn(2, 16, 2, dtype=torch.float64)
    groups = edge_groups(sample)
    first, second = sorted(set(groups.tolist()))
    total = torch.zeros_like(Y)
    for keeps in product([False, True], repeat=2):
        weight = np.prod([0.25 if kept else 0.75 for kept in keeps])
        is_kept = np.isin(groups, [group for group, kept in zip((first, second), keeps, strict=True) if kept])
        total += weight * model.half_gradient(Y, Z, sample, is_kept)
    torch.testing.assert_close(total, musegnn.Energy(LAMBDA).half_gradient(Y, Z, sample), **cases.CLOSE)


@pytest.mark.parametrize("sample", [cases.whole(), cases.part()], ids=["whole", "part"])
def test_groups_are_pairs_of_blocks_of_ids(sample):
    block = {node: i * _BLOCKS // sample.num_nodes for i, node in enumerate(sorted(sample.node_ids.tolist()))}
    ids = sample.node_ids[sample.edge_index()].T.tolist()
    expected = [min(block[u], block[v]) * _BLOCKS + max(block[u], block[v]) for u, v in ids]
    assert edge_groups(sample).tolist() == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("sample", [cases.whole(), cases.part()], ids=["whole", "part"])
def test_each_step_of_training_has_its_own_draw_and_is_short_enough_for_the_worst(sample):
    model, X = cases.peer(USP, momentum=0.3), cases.features(sample)
    torch.manual_seed(5)
    got = model(sample, X)
    torch.manual_seed(5)
    Z = Y = cases.by_hand(model.f, X)
    for _ in range(3):
        is_kept = (torch.rand(_BLOCKS, _BLOCKS).numpy() < 0.3).ravel()[edge_groups(sample)]
        Y = torch.relu(Y - dense_half_gradient(model, Y, Z, sample, is_kept) / (1 + LAMBDA / 0.3))
    (linear,) = model.g.layers
    cases.check_alike(model, got, (Y @ linear.weight.T + linear.bias)[: sample.num_seeds])
    assert not torch.allclose(model(sample, X), got)


@pytest.mark.parametrize(("momentum", "restart"), [(0.0, 0.1), (0.5, 0.0)])
def test_a_share_of_nothing_is_refused(momentum, restart):
    with problems.refused(
        "momentum (the share of edges) and restart (1 / (1 + lambda)) of USP must be above 0 and at most 1; "
        f"got {momentum} and {restart}. Take 0.5 and 0.1."
    ):
        cases.peer(USP, momentum=momentum, restart=restart)
