"""What a run is a function of, and what it is not."""

import pytest
import small_runs
import torch

import musegnn
from musegnn.training import batches

GRAPH = small_runs.graph()
SETTINGS = {"epochs": 2, "lr": 0.02, "unseen": "mask"}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s")


@pytest.fixture(scope="module")
def expected(store, tmp_path_factory):
    return trained(store, tmp_path_factory.mktemp("runs") / "r")


def trained(store, folder, *, model_seed=0, **options):
    model = small_runs.model(dropout=0.3, input_dropout=0.1, seed=model_seed)
    musegnn.train(GRAPH, store, model, folder, **{**SETTINGS, **options})
    return small_runs.outcome(folder)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_loader_threads_change_no_bit(store, expected, tmp_path, threads, monkeypatch):
    """Nor does the second run of a process, nor how far is read ahead."""
    monkeypatch.setattr(batches, "AHEAD", 2 * threads - 1)
    assert small_runs.differences(trained(store, tmp_path / "r", threads=threads), expected) == []


def test_another_seed_is_another_run(store, expected, tmp_path):
    """The weights it begins with are the model's: of the seed depend order and dropout."""
    other = trained(store, tmp_path / "a", seed=1)
    assert "state model.f.layers.0.weight" in small_runs.differences(other, expected)
    begun = trained(store, tmp_path / "b", model_seed=1)
    assert "state model.f.layers.0.weight" in small_runs.differences(begun, expected)


def test_random_numbers_of_the_caller_are_untouched(store, expected, tmp_path):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    again = trained(store, tmp_path / "r")
    assert torch.equal(torch.get_rng_state(), before)
    assert small_runs.differences(again, expected) == []


def test_evaluation_is_read_only_and_repeatable(store, tmp_path):
    model = small_runs.model()
    run = musegnn.train(GRAPH, store, model, tmp_path / "r", **SETTINGS)
    M, count = run.means.M.clone(), run.means.count.clone()
    first, second = run.evaluate(), run.evaluate()
    assert first == second
    assert torch.equal(run.means.M, M)
    assert torch.equal(run.means.count, count)
    for split in ("valid", "test"):
        assert {f"{split}_{name}": value for name, value in first[split].metrics.items()}.items() <= (
            run.result.items()
        )


def test_a_run_is_found_again(store, tmp_path):
    """Model, M and graph from the folder alone give the same answers."""
    run = musegnn.train(GRAPH, store, small_runs.model(), tmp_path / "r", **SETTINGS)
    found = musegnn.load_run(tmp_path / "r", graph=GRAPH)
    assert found.evaluate() == run.evaluate()
    assert small_runs.model().state_dict().keys() == found.model.state_dict().keys()
    assert torch.equal(found.means.M, run.means.M)
