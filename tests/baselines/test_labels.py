"""Label propagation and correct-and-smooth against dense matrices, node by node; and no label leaks."""

from dataclasses import replace

import numpy as np
import peer_cases as cases
import problems
import pytest
import torch

from machine import one_thread as one_thread
from machine import unchecked as unchecked
from musegnn.baselines.catalog import make
from musegnn.baselines.labels import CorrectAndSmooth, LabelPropagation
from musegnn.baselines.propagation import MLP, SGC, SIGN

GRAPH = cases.GRAPH
TRAIN = np.flatnonzero(GRAPH.split == 0)


def known_labels():
    Y = torch.zeros(GRAPH.num_nodes, GRAPH.num_classes, dtype=torch.float64)
    for node in TRAIN:
        Y[node, GRAPH.labels[node]] = 1
    return Y


def spread(X, steps, restart=0.2):
    S, Y = cases.dense_s(GRAPH), X
    for _ in range(steps):
        Y = (1 - restart) * S @ Y + restart * X
    return Y


def corrected(P):
    """Correct-and-smooth one node at a time."""
    labels, E = known_labels(), torch.zeros_like(P)
    for node in TRAIN:
        E[node] = labels[node] - P[node]
    mean = float(sum(E[node].abs().sum() for node in TRAIN)) / len(TRAIN)
    moved, Q = spread(E, 50), P.clone()
    for node in range(len(P)):
        size = float(moved[node].abs().sum())
        scale = mean / size if size > 0 and mean / size <= 1000 else 1.0
        Q[node] = labels[node] if node in TRAIN else P[node] + scale * moved[node]
    return spread(Q, 50)


def relabeled(graph):
    """Other labels for all nodes but those in training."""
    labels = np.where(graph.split == 0, graph.labels, (graph.labels + 1) % graph.num_classes)
    return replace(graph, labels=labels.astype(np.int32))


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("split", ["train", "test"])
def test_label_propagation_is_its_formula(steps, split):
    model, sample = cases.peer(LabelPropagation, steps=steps), cases.part(split)
    expected = spread(known_labels(), steps)[torch.from_numpy(sample.seeds).long()]
    expected = expected / model.log_temperature.exp()
    got = model(sample, cases.features(sample))
    torch.testing.assert_close(got, expected, **cases.CLOSE)
    assert [name for name, _ in model.named_parameters()] == ["log_temperature"]
    if expected.any():
        cases.check_alike(model, got, expected)


def test_label_propagation_is_that_of_the_whole_graph_whatever_the_sample():
    model = cases.peer(LabelPropagation)
    whole, part = (model(s, cases.features(s)) for s in (cases.whole("test"), cases.part("test")))
    rows = np.searchsorted(cases.whole("test").seeds, cases.part("test").seeds)
    assert torch.equal(whole[torch.from_numpy(rows)], part)


@pytest.mark.parametrize("kind", [MLP, SGC, SIGN])
@pytest.mark.parametrize("chunk", [7, 1 << 14])
def test_correct_and_smooth_is_its_formula(kind, chunk, monkeypatch):
    monkeypatch.setattr("musegnn.baselines.labels._CHUNK", chunk)
    model, sample = CorrectAndSmooth(cases.peer(kind)).eval(), cases.part("test")
    everyone = cases.whole()
    P = torch.empty(GRAPH.num_nodes, GRAPH.num_classes, dtype=torch.float64)
    with torch.no_grad():
        for split in ("train", "valid", "test"):
            s = cases.whole(split)
            P[torch.from_numpy(s.seeds).long()] = model.base(s, cases.features(s)).softmax(1)
        rest = everyone.node_ids[GRAPH.split[everyone.node_ids] < 0]
        X = torch.from_numpy(GRAPH.features[rest]).double()
        P[torch.from_numpy(rest).long()] = model.base.logits(rest, X).softmax(1)
        got = model(sample, cases.features(sample))
    expected = corrected(P)[torch.from_numpy(sample.seeds).long()]
    torch.testing.assert_close(got, expected.clamp(min=torch.finfo(torch.float64).tiny).log(), **cases.CLOSE)
    # It is not what the model says alone.
    assert not torch.allclose(got.softmax(1), P[torch.from_numpy(sample.seeds).long()], atol=0.05)


def test_while_training_it_is_the_model_alone():
    model, sample = CorrectAndSmooth(cases.peer(MLP)), cases.part()
    X = cases.features(sample)
    cases.check_alike(model, model(sample, X), cases.by_hand(model.base.f, X[: sample.num_seeds]))


def test_it_is_made_anew_when_a_weight_changes_and_not_before(monkeypatch):
    made, sample = [], cases.part("test")
    X = cases.features(sample)
    model = CorrectAndSmooth(cases.peer(MLP)).eval()
    before = model._corrected
    monkeypatch.setattr(model, "_corrected", lambda like: made.append(0) or before(like))
    first = model(sample, X)
    model.train()
    model.eval()
    assert torch.equal(model(sample, X), first)
    assert len(made) == 1
    kept = {name: part.clone() for name, part in model.state_dict().items()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.5)
    model.train()
    model(sample, X).square().sum().backward()
    optimizer.step()
    model.eval()
    assert not torch.allclose(model(sample, X), first)
    model.load_state_dict(kept)
    assert torch.equal(model(sample, X), first)
    assert model.float()(sample, X.float()).dtype == torch.float32
    assert len(made) == 4


def test_weights_that_an_optimizer_changes_unseen_are_seen():
    """Fused Adam, which a GPU has, writes into weights without a new version: 80 % of cora became 73."""
    sample = cases.part("test")
    X, model = cases.features(sample), CorrectAndSmooth(cases.peer(MLP)).eval()
    before = model(sample, X).clone()
    model.train()(sample, X)
    for part in model.parameters():
        part.data.numpy()[:] *= -3
    after = model.eval()(sample, X)
    fresh = CorrectAndSmooth(cases.peer(MLP)).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(after, fresh(sample, X))
    assert not torch.allclose(after, before)


@pytest.mark.parametrize("is_smoothed", [False, True])
def test_no_label_but_those_of_training_is_read(is_smoothed):
    sample, found = cases.whole("test"), []
    for graph in (GRAPH, relabeled(GRAPH)):
        model = cases.peer(MLP if is_smoothed else LabelPropagation, graph)
        model = CorrectAndSmooth(model) if is_smoothed else model
        found.append(model.eval()(sample, cases.features(sample)))
    assert (relabeled(GRAPH).labels != GRAPH.labels).sum() == GRAPH.num_nodes - len(TRAIN)
    assert torch.equal(*found)


def test_predictions_that_are_right_already_stay_finite():
    """Nothing to correct: the mean error is 0, and so is what is spread."""
    model, sample = CorrectAndSmooth(cases.peer(MLP)).eval(), cases.part("test")
    model._probabilities = lambda like: known_labels() + (known_labels().sum(1, keepdim=True) == 0) / 3
    assert model(sample, cases.features(sample)).isfinite().all()


def test_a_model_that_needs_neighbors_is_refused():
    with problems.refused(
        "correct_and_smooth needs predictions of all nodes, which MLP, SGC and SIGN make without neighbors; "
        "got APPNP. Take one of these, or correct_and_smooth=false."
    ):
        make("APPNP", GRAPH, GRAPH.num_classes, cases.shape(correct_and_smooth=True))
    model = make("SGC", GRAPH, GRAPH.num_classes, cases.shape(correct_and_smooth=True))
    assert isinstance(model, CorrectAndSmooth)
    assert model.architecture == "SGC"


@pytest.mark.parametrize("name", ["LabelPropagation", "MLP"])
def test_outputs_that_are_no_classes_are_refused(name):
    who = name if name == "LabelPropagation" else "correct_and_smooth"
    with problems.refused(
        f"{who} spreads the classes of the training nodes of graph; got 2 outputs for 3 classes. "
        "Give the graph labels and a split, with one class for each node."
    ):
        make(name, GRAPH, 2, cases.shape(correct_and_smooth=name == "MLP"))
