"""Peers in the same loop: stopped and resumed, evaluated, loaded again, asked for predictions."""

from typing import get_args

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from musegnn import Cluster, ShadowKHop
from musegnn.baselines.catalog import BASELINES
from musegnn.training.building import build_model
from musegnn.training.config import Architecture, Config
from musegnn.training.loop import Trainer

CASES = {
    **{name: {"architecture": name} for name in BASELINES},
    "GAS": {"architecture": "GCN", "history": "gas"},
    "GraphFM": {"architecture": "SAGE", "history": "graphfm"},
    "FreshGNN": {"architecture": "GAT", "history": "freshgnn"},
    "C&S": {"architecture": "MLP", "correct_and_smooth": True},
    "tuned": {"architecture": "GAT", "norm": "batch", "residual": True},
}
SOME = ["GAS", "FreshGNN", "LazyGNN", "tuned"]
"""Those that remember something from step to step."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("peers") / "s", sampler=ShadowKHop([3, 2]))


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("peers") / "p", sampler=Cluster(4))


def config_of(case, **settings):
    sizes = {"hidden": 8, "layers": 2, "steps": 3, "dropout": 0.3, "heads": 2}
    return Config(name="peer").with_settings({**sizes, "lr": 0.01, "epochs": 2, **CASES[case], **settings})


def train(case, store, folder, **options):
    graph, config = small_runs.graph(), config_of(case)
    model = build_model(config, small_runs.IN_DIM, small_runs.CLASSES, graph)
    return musegnn.train(graph, store, model, folder, config=config, **options)


def test_every_architecture_has_its_class():
    assert set(get_args(Architecture)) == {"MuseGNN", *BASELINES}


@pytest.mark.parametrize("case", CASES)
def test_a_peer_is_trained_evaluated_and_loaded_again(case, store, parts, tmp_path):
    samples = parts if case in ("GAS", "GraphFM") else store
    run = train(case, samples, tmp_path / "run")
    assert run.config.baseline.architecture == CASES[case]["architecture"]
    assert run.config == Config.from_toml(run.config.to_toml(), "here")
    assert np.isfinite(run.test_accuracy)
    assert run.result["energies"] == []
    again = musegnn.load_run(tmp_path / "run", graph=small_runs.graph())
    first, second = again.evaluate("test"), again.evaluate("test")
    assert first["test"].metrics == second["test"].metrics
    assert first["test"].metrics["accuracy"] == run.test_accuracy
    for name, part in again.model.state_dict().items():
        torch.testing.assert_close(part, run.model.state_dict()[name], rtol=0, atol=0)
    found = again.predict([3, 77, 5])
    assert found.nodes.tolist() == [3, 77, 5]
    np.testing.assert_allclose(found.probabilities.sum(1), 1, rtol=1e-5)
    assert np.isnan(found.error_bounds).all()


@pytest.mark.parametrize("case", SOME)
def test_what_a_peer_remembers_survives_a_stop(case, store, parts, tmp_path, monkeypatch):
    samples = parts if case == "GAS" else store
    train(case, samples, tmp_path / "whole")
    step, done = Trainer.step, []

    def stopped(self, batches):
        step(self, batches)
        done.append(1)
        self.stop.is_asked = len(done) == 3

    monkeypatch.setattr(Trainer, "step", stopped)
    with pytest.raises(KeyboardInterrupt):
        train(case, samples, tmp_path / "cut")
    monkeypatch.undo()
    # Another process makes the model anew.
    train(case, samples, tmp_path / "cut", resume=True)
    outcomes = [small_runs.outcome(tmp_path / name) for name in ("cut", "whole")]
    assert small_runs.differences(*outcomes) == []


def test_what_only_descent_can_do_is_refused(store, tmp_path):
    run = train("MLP", store, tmp_path / "run")
    for asked in (
        lambda: run.evaluate(how="full"), lambda: run.embed([1]), lambda: run.embed_graph(tmp_path),
    ):  # fmt: skip
        with pytest.raises(musegnn.InputError, match="is for MuseGNN, but .* has trained MLP"):
            asked()
    other = musegnn.Graph.from_edges(
        np.array([[0], [1]]), num_nodes=2, features=np.ones((2, small_runs.IN_DIM), np.float32)
    )
    with pytest.raises(musegnn.InputError, match="MLP predicts for the graph it was trained on only"):
        run.predict([1], graph=other)


def test_a_folder_of_others_is_left_as_it_is(store, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/edges.csv").write_text("a,b")
    with pytest.raises(musegnn.InputError, match="also holds edges.csv, which is no part of a run"):
        train("MLP", store, tmp_path / "mine", overwrite=True)
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["edges.csv"]
