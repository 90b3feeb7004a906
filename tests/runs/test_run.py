"""A run is found again with all that belongs to it, or says what is missing."""

import json
import shutil

import numpy as np
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn import Energy, Graph, InputError, MuseGNN, SampleStore, ShadowKHop
from musegnn.errors import StoreError
from musegnn.means.undo import UndoLog
from musegnn.training import checkpoint
from musegnn.training.folder import RunFolder
from tiny_runs import SETTINGS, strict_json, tiny_graph, tiny_run, train_on


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("run"))


@pytest.fixture
def copy(trained, tmp_path):
    """The folder of a run that a test may spoil."""
    return shutil.copytree(trained.folder.path, tmp_path / "run")


def test_a_page_that_a_kill_has_cost_is_made_when_the_run_goes_on(tmp_path):
    run = tiny_run(tmp_path, epochs=1)
    page = run.folder.path / "report.html"
    whole = page.read_bytes()
    page.rename(page.with_name("report.html.partial"))
    given = musegnn.load_run(run.folder.path)
    musegnn.train(given.graph, given.samples, given.model, run.folder.path, config=run.config, resume=True)
    assert page.read_bytes() == whole
    assert not page.with_name("report.html.partial").exists()


def test_it_is_the_run_that_was_trained(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = musegnn.load_run(trained.folder.path)
    assert run.config == trained.config
    assert run.config.with_settings(SETTINGS) == run.config
    assert run.graph.digest == trained.graph.digest
    assert run.samples.digest == trained.samples.digest
    for name, weight in trained.model.state_dict().items():
        assert torch.equal(run.model.state_dict()[name], weight), name
    assert not run.model.training
    best = checkpoint.load(run.folder.checkpoints, "best")[0]
    assert torch.equal(run.means.M, best["means.M"])
    assert run.test_accuracy == run.result["test_accuracy"] == trained.test_accuracy
    assert (
        run.valid_accuracy
        == run.result["valid_accuracy"]
        == max(event["valid_accuracy"] for event in run.events if event["event"] == "epoch")
    )
    assert f"test_accuracy={run.test_accuracy:.4f}" in repr(run)
    assert (run.predict([1, 2]).probabilities == trained.predict([1, 2]).probabilities).all()


def test_the_result_has_what_others_read(trained):
    result = strict_json((trained.folder.path / "result.json").read_text())
    assert result["dataset"] == "graph"
    assert 0 <= result["valid_accuracy"] <= 1
    assert 0.5 < result["test_accuracy"] <= 1
    assert result["epochs"] == 2
    assert 0 < result["seconds"] < 60
    assert 20 < result["peak_rss_mb"] < 5000
    assert 0 < result["error_bound"] < 1
    events = [strict_json(line) for line in (trained.folder.path / "events.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["start", "epoch", "epoch", "end"]


def test_a_split_without_a_result_is_named(copy):
    result = RunFolder(copy).result()
    kept = {name: value for name, value in result.items() if not name.startswith("valid")}
    checkpoint.write_json(copy / "result.json", {**kept, "test_accuracy": None})
    run = musegnn.load_run(copy)
    with pytest.raises(InputError, match="has no valid_accuracy: no node of the split 'valid' has a label"):
        _ = run.valid_accuracy
    with pytest.raises(InputError, match="has no test_accuracy: no node of the split 'test'"):
        _ = run.test_accuracy


@pytest.mark.parametrize("lost", ["split", "labels"])
def test_patience_needs_validation_nodes(tmp_path, lost):
    graph = tiny_graph()
    is_valid = graph.split == 1
    parts = {
        "split": {"split": np.where(is_valid, -1, graph.split)},
        "labels": {"labels": np.where(is_valid, -1, graph.labels)},
    }
    with pytest.raises(InputError, match="patience=3 looks at the validation nodes, but no node .* 'valid'"):
        train_on(tiny_graph(**parts[lost]), tmp_path, epochs=1, patience=3)
    assert not (tmp_path / "run").exists()


def test_the_result_is_what_an_evaluation_finds_again_where_the_last_means_meet_the_best_weights(tmp_path):
    settings = {"means_home": "disk", "unseen": "zero", "gamma": 2.0, "rho": 0.0}
    run = tiny_run(tmp_path, epochs=5, lr=0.5, seed=2, **settings)
    best = max(event["valid_accuracy"] for event in run.events if event["event"] == "epoch")
    assert run.result["best_epoch"] < 5
    # M has moved on since the best epoch, so that this is no longer what it was.
    assert run.valid_accuracy != best
    for split, found in musegnn.load_run(run.folder.path).evaluate().items():
        assert found.metrics == {name: run.result[f"{split}_{name}"] for name in ("accuracy", "macro_f1")}


def test_the_digest_of_mapped_means_moves_with_them(trained, tmp_path):
    assert trained.means_digest is None
    run = tiny_run(tmp_path, means_home="disk", epochs=1)
    before = run.means_digest
    assert before == musegnn.load_run(run.folder.path).means_digest
    ids = np.arange(3)
    log = UndoLog(run.means, run.folder.means / "undo.bin")
    log.note(7, ids)
    log.close()
    run.means.update(ids, torch.ones(3, 8))
    moved = run.means_digest
    assert moved != before
    # A checkpoint takes the log in.
    (run.folder.means / "undo.bin").write_bytes(b"")
    tensors, facts, *_ = checkpoint.load(run.folder.checkpoints, "state")
    checkpoint.save(run.folder.checkpoints, "state", {**tensors, "extra": torch.ones(1)}, facts)
    assert run.means_digest not in (before, moved)


def test_without_steps_everything_is_still_json(tmp_path):
    run = tiny_run(tmp_path, steps=0, epochs=1)
    for text in (run.folder.path / "events.jsonl").read_text().splitlines():
        strict_json(text)
    strict_json((run.folder.path / "result.json").read_text())
    assert run.evaluate()["test"].error_bound == np.inf


def test_an_unfinished_run_answers_with_what_it_has(copy):
    whole = musegnn.load_run(copy)
    found, digest = whole.evaluate(), whole.weights_digest
    (copy / "result.json").unlink()
    run = musegnn.load_run(copy)
    with pytest.raises(StoreError, match=f"not finished. Go on: muse train --resume {copy}"):
        _ = run.result
    assert "unfinished" in repr(run)
    assert run.evaluate() == found
    for path in (copy / "checkpoint").glob("best*"):
        path.unlink()
    state = checkpoint.load(copy / "checkpoint", "state")[0]
    last = musegnn.load_run(copy)
    assert torch.equal(last.model.state_dict()["f.layers.0.weight"], state["model.f.layers.0.weight"])
    assert last.weights_digest != digest


def test_what_is_no_run_is_refused(trained, copy, tmp_path):
    for folder in (tmp_path / "nowhere", trained.graph.stored.folder):
        with pytest.raises(StoreError, match="is not a run: it has no config.toml"):
            musegnn.load_run(folder)
    (copy / "run.json").unlink()
    with pytest.raises(StoreError, match="it has no run.json"):
        musegnn.load_run(copy)


def test_a_graph_or_samples_that_moved_are_missed_and_can_be_passed(tmp_path):
    run = tiny_run(tmp_path / "a", epochs=1)
    found = run.evaluate()
    (tmp_path / "a" / "graph").rename(tmp_path / "graph")
    with pytest.raises(StoreError, match="a/graph does not exist"):
        musegnn.load_run(run.folder.path).evaluate()
    graph = Graph.open(tmp_path / "graph")
    assert musegnn.load_run(run.folder.path, graph=graph).evaluate() == found
    (tmp_path / "a" / "samples").rename(tmp_path / "samples")
    with pytest.raises(StoreError, match="a/samples does not exist"):
        musegnn.load_run(run.folder.path, graph=graph).evaluate()
    samples = SampleStore.open(tmp_path / "samples", graph=graph)
    assert musegnn.load_run(run.folder.path, graph=graph, samples=samples).evaluate() == found
    by_folder = {"graph": str(tmp_path / "graph"), "samples": tmp_path / "samples"}
    assert musegnn.load_run(run.folder.path, **by_folder).evaluate() == found
    musegnn.sample(graph, ShadowKHop([2]), tmp_path / "a" / "samples", batch_size=20)
    with pytest.raises(StoreError, match="holds other samples than"):
        musegnn.load_run(run.folder.path, graph=graph).evaluate()
    # As large as the run's own, but another one.
    tiny_graph(seed=1).save(tmp_path / "other")
    for other in (tiny_graph(seed=1), tmp_path / "other"):
        with pytest.raises(StoreError, match="was trained on the graph .* Pass the one it was trained on"):
            musegnn.load_run(run.folder.path, graph=other).evaluate()
    musegnn.sample(graph, ShadowKHop([1]), tmp_path / "drawn", batch_size=20)
    with pytest.raises(StoreError, match="drawn holds other samples than"):
        musegnn.load_run(run.folder.path, graph=graph, samples=tmp_path / "drawn").evaluate()


def test_a_graph_that_was_never_saved_must_be_passed(tmp_path):
    graph = tiny_graph()
    store = musegnn.sample(graph, ShadowKHop([3]), tmp_path / "samples", batch_size=50)
    model = MuseGNN(6, 3, 8, steps=1, layers=1)
    trained = musegnn.train(graph, store, model, tmp_path / "run", epochs=1)
    assert trained.config.model.hidden == 8
    with pytest.raises(StoreError, match="trained on 'graph', a graph that was never saved. Pass it: graph="):
        musegnn.load_run(tmp_path / "run").evaluate()
    assert musegnn.load_run(tmp_path / "run", graph=graph).evaluate() == trained.evaluate()


class Doubled(torch.nn.Module):
    """An f that no config describes."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 8)

    def forward(self, x):
        return 2 * self.linear(x)


def test_a_model_of_the_users_own_must_be_passed(tmp_path, trained):
    graph, store = trained.graph, trained.samples
    model = MuseGNN(6, 3, 8, Energy(gamma=0.5), steps=2, f=Doubled())
    run = musegnn.train(graph, store, model, tmp_path / "run", epochs=1)
    found = run.evaluate()
    with pytest.raises(InputError, match="a model of your own, which no config describes. Pass it"):
        musegnn.load_run(tmp_path / "run").evaluate()
    with pytest.raises(InputError, match="a model of your own"):
        musegnn.load_run(tmp_path / "run").untrained()
    fresh = MuseGNN(6, 3, 8, Energy(gamma=0.5), steps=2, f=Doubled())
    loaded = musegnn.load_run(tmp_path / "run", model=fresh)
    assert loaded.evaluate() == found
    assert loaded.embed([4, 4, 0]).shape == (3, 8)


def test_labels_of_the_users_own_must_be_passed(tmp_path, trained):
    graph, store, rng = trained.graph, trained.samples, np.random.default_rng(0)
    labels = rng.choice([0.0, 1.0, np.nan], (150, 2), p=[0.45, 0.45, 0.1])
    model = MuseGNN(6, 2, 8, steps=1, layers=1)
    run = musegnn.train(graph, store, model, tmp_path / "run", labels=labels, loss="bce", epochs=1)
    with pytest.raises(InputError, match="needs labels"):
        musegnn.load_run(tmp_path / "run").evaluate()
    with pytest.raises(InputError, match="trained with other labels than these"):
        musegnn.load_run(tmp_path / "run", labels=1 - labels).evaluate()
    loaded = musegnn.load_run(tmp_path / "run", labels=labels)
    assert loaded.evaluate() == run.evaluate()
    assert loaded.evaluate(how="full")["test"].num_labeled <= int((graph.split == 2).sum())
    # Several labels each: the probabilities are of each alone.
    p = loaded.predict(range(150)).probabilities
    assert ((0 < p) & (p < 1)).all()
    assert not np.allclose(p.sum(axis=1), 1)


def test_other_labels_than_the_graphs_are_not_mistaken_for_them(tmp_path, trained):
    graph, store = trained.graph, trained.samples
    labels = (graph.labels + 1) % 3
    model = MuseGNN(6, 3, 8, steps=1, layers=1)
    run = musegnn.train(graph, store, model, tmp_path / "run", labels=labels, epochs=1)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["labels"] is not None
    with pytest.raises(InputError, match="trained with other labels than these"):
        musegnn.load_run(tmp_path / "run").evaluate()
    assert musegnn.load_run(tmp_path / "run", labels=labels).evaluate() == run.evaluate()
