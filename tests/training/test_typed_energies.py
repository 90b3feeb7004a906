"""Energies that ask for relations, in a run: samples tell them, a run is resumed and evaluated with them."""

import json
from copy import deepcopy
from functools import partial

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from musegnn import Predictive, Relational
from musegnn.training.batches import Loader

KINDS = {
    "predictive": partial(Predictive, num_relations=2, gamma=0.3, rank=2),
    "relational": partial(Relational, num_relations=2, gamma=0.3),
    "predictive, symmetric, with momentum": partial(
        Predictive, num_relations=2, average="symmetric", limit=0.7, acceleration="momentum"
    ),
}


@pytest.fixture(scope="module")
def graph():
    """That of the small runs, each edge in one of two relations."""
    rng, plain = np.random.default_rng(0), small_runs.graph()
    return musegnn.Graph.from_edges(
        rng.integers(0, small_runs.NUM_NODES, (2, 3 * small_runs.NUM_NODES)),
        num_nodes=small_runs.NUM_NODES, features=plain.features, labels=plain.labels, split=plain.split,
        relation=rng.integers(0, 2, 3 * small_runs.NUM_NODES), relation_names=["uses", "builds"],
    )  # fmt: skip


@pytest.fixture(scope="module")
def store(graph, tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("typed") / "s", graph)


def model(kind, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return small_runs.model(energy=KINDS[kind](small_runs.HIDDEN))


@pytest.mark.parametrize("kind", KINDS)
def test_matrices_are_learned_and_a_run_is_loaded_again(kind, graph, store, tmp_path):
    before = {name: part.clone() for name, part in model(kind).energy.named_parameters()}
    run = musegnn.train(graph, store, model(kind), tmp_path / "run", epochs=2)
    after = dict(run.model.energy.named_parameters())
    assert set(before) == set(after)
    assert all(not torch.equal(before[name], after[name]) for name in before)
    # The config says what it is.
    again = musegnn.load_run(tmp_path / "run", graph=graph)
    assert str(again.model.energy) == str(run.model.energy)
    found = again.evaluate("test")["test"]
    assert found.metrics["accuracy"] == run.test_accuracy
    assert 0 < found.error_bound < np.inf
    if "momentum" not in kind:
        falling = np.diff(found.energies[1:])
        assert (falling <= 1e-6 * np.abs(found.energies[2:])).all()
    explained = again.explain(3)
    total = explained.shares.sum(0) + explained.means.sum(0) + explained.bias
    np.testing.assert_allclose(total, explained.logits, rtol=1e-4, atol=1e-5)
    assert len(read_analysis(again)["steps"]["error_bounds"]) == again.model.steps
    assert np.isfinite(again.predict([1, 5]).error_bounds).all()


def test_a_robust_energy_in_a_run_is_described_and_its_shares_add_up(graph, store, tmp_path):
    energy = musegnn.Robust(3.0, 0.2, prox="relu", power=1.0, cutoff=50.0, scale=0.01)
    musegnn.train(graph, store, small_runs.model(energy=energy), tmp_path / "run", epochs=2)
    loaded = musegnn.load_run(tmp_path / "run", graph=graph)
    assert str(loaded.model.energy) == str(energy)
    explained = loaded.explain(3)
    # With the weights held nothing is left over; their own change would be a tenth of it here.
    assert np.abs(explained.rest).max() < 1e-5 * np.abs(explained.shares).sum()
    assert 0 < loaded.evaluate("test")["test"].error_bound < np.inf


@pytest.mark.parametrize("kind", ["paper", "robust", "staged"])
def test_weights_that_are_learned_stay_where_they_may_be(kind, graph, store, tmp_path):
    """Two steps of Adam at this rate would put them below 0, where there is no energy."""

    def weights():
        return (torch.nn.Parameter(torch.tensor(value)) for value in (0.01, 0.02))

    energy = musegnn.Robust(*weights()) if kind == "robust" else musegnn.Energy(*weights())
    if kind == "staged":
        energy = musegnn.Staged([energy, musegnn.Energy(1.0, energy.gamma)])
    run = musegnn.train(graph, store, small_runs.model(energy=energy), tmp_path / "run", epochs=2, lr=0.5)
    learned = [float(part.detach()) for part in run.model.energy.parameters()]
    again = musegnn.load_run(tmp_path / "run", graph=graph, model=small_runs.model(energy=deepcopy(energy)))
    assert [float(part.detach()) for part in again.model.energy.parameters()] == learned
    assert all(value >= 0 for value in learned)
    assert learned != pytest.approx([0.01, 0.02])


def read_analysis(run):
    return json.loads((run.folder.path / "analysis.json").read_text())


@pytest.mark.parametrize("acceleration", ["momentum", "chebyshev"])
def test_the_energy_of_the_paper_is_accelerated_in_a_run(acceleration, graph, store, tmp_path):
    def made():
        energy = musegnn.Energy(4.0, 0.2, prox="none", acceleration=acceleration)
        return small_runs.model(energy=energy)

    whole = musegnn.train(graph, store, made(), tmp_path / "run", epochs=2)
    loaded = musegnn.load_run(tmp_path / "run", graph=graph)
    assert loaded.config.energy.acceleration == acceleration
    assert loaded.evaluate("test")["test"].metrics["accuracy"] == whole.test_accuracy
    for how in ("stored", "full"):
        assert 0 < loaded.evaluate("test", how)["test"].error_bound < np.inf
    explained = loaded.explain(3)
    total = explained.shares.sum(0) + explained.means.sum(0) + explained.bias
    np.testing.assert_allclose(total, explained.logits, rtol=1e-4, atol=1e-5)


def test_samples_tell_relations_where_they_are_asked_to(graph, store):
    for relations in (2, 0):
        loader = Loader(store["train"], graph, graph.labels, relations=relations)
        told = [batch.sample.relation is not None for batch in loader.batches([0, 1])]
        assert told == [bool(relations)] * 2
