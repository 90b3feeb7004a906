"""Every run has a page, which promises what can be kept: of first weights, and of what is expected."""

import json
from dataclasses import replace

import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn.recipes import load, names
from musegnn.reports import page
from musegnn.reports.costs import commands
from musegnn.reports.page import write_report
from musegnn.reports.reading import RunFiles
from musegnn.runs import start
from musegnn.training.building import build_model, describe_model
from musegnn.training.expectation import expecting
from tiny_runs import tiny_run

EXPECTED = {"test_accuracy": 0.7, "source": "a table"}


@pytest.fixture(autouse=True)
def no_library(monkeypatch):
    monkeypatch.setattr(page, "plotly", lambda: "window.Plotly = {};")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("run"))


def again(trained, folder, change=lambda model: None, **how):
    """The same run once more, with a model that was changed before."""
    config = replace(trained.config, expected=EXPECTED)
    model = build_model(config, **trained.record["model"])
    change(model)
    return musegnn.train(trained.graph, trained.samples, model, folder, config=config, **how)


def test_a_run_from_python_has_the_page_that_a_command_would_write(trained, tmp_path):
    run = again(trained, tmp_path / "run", epochs=1)
    there = (run.folder.path / "report.html").read_bytes()
    assert f"{100 * run.test_accuracy:.2f}" in there.decode()
    assert write_report(run.folder.path).read_bytes() == there


def test_a_page_that_cannot_be_written_fails_no_run(trained, tmp_path, monkeypatch):
    def refuse(folder):
        raise OSError("no room\nleft.")

    monkeypatch.setattr(start, "write_report", refuse)
    with pytest.warns(
        UserWarning, match=r"run is finished, but has no report.html: no room left. Later: muse"
    ):
        run = again(trained, tmp_path / "run", epochs=1)
    assert 0 <= run.test_accuracy <= 1
    assert not (run.folder.path / "report.html").exists()


def test_weights_of_the_seed_are_told_from_weights_of_ones_own(trained, tmp_path):
    def nudge(model):
        with torch.no_grad():
            next(model.parameters())[0, 0] += 1e-3

    assert trained.record["is_of_seed"] is True
    told = (trained.folder.path / "report.html").read_text()
    assert "give the same bits" in told
    assert "weights of its own" not in told
    run = again(trained, tmp_path / "own", nudge, epochs=1)
    assert run.record["is_of_seed"] is False
    told = (run.folder.path / "report.html").read_text()
    assert "give the same bits" not in told
    first, second, *_ = commands(RunFiles.read(run.folder.path))
    assert first.startswith("# The model was passed to musegnn.train with weights of its own")
    assert "muse train " in second
    # Trained once, it no longer begins where the seed does; gone on with, the run is what it was.
    twice = musegnn.train(run.graph, run.samples, trained.model, tmp_path / "twice", config=trained.config)
    assert twice.record["is_of_seed"] is False
    resumed = again(run, tmp_path / "own", epochs=1, resume=True)
    assert resumed.record["is_of_seed"] is False


def test_a_model_of_ones_own_is_promised_nothing(trained, tmp_path):
    def change(model):
        model.g = torch.nn.Sequential(model.g)

    run = again(trained, tmp_path / "run", change)
    assert run.record["model"] is None
    assert run.result["expected"] == {}
    assert "give the same bits" not in (run.folder.path / "report.html").read_text()


@pytest.mark.parametrize(
    ("settings", "is_kept"),
    [({"seed": 7, "epochs": 2, "features_home": "ram"}, True), ({"epochs": 1}, False)],
)
def test_what_was_expected_of_other_settings_is_not_expected(trained, tmp_path, settings, is_kept):
    run = again(trained, tmp_path / "run", **settings)
    assert json.loads((tmp_path / "run/result.json").read_text())["expected"] == (EXPECTED if is_kept else {})
    assert ("against 70.00" in (run.folder.path / "report.html").read_text()) == is_kept


def test_nothing_is_expected_with_other_samples_or_another_model(trained, tmp_path):
    other = musegnn.ShadowKHop(fanouts=[2])
    store = musegnn.sample(trained.graph, other, tmp_path / "s", batch_size=20, splits=("train", "test"))
    config = replace(trained.config, expected=EXPECTED)
    assert start.with_samples(config, trained.samples).expected == EXPECTED
    assert start.with_samples(config, store).expected == {}
    model = build_model(config.with_settings({"hidden": 5}), **trained.record["model"])
    run = musegnn.train(trained.graph, trained.samples, model, tmp_path / "run", config=config)
    assert run.config.expected == {}


@pytest.mark.parametrize("name", names())
def test_the_model_of_a_recipe_is_what_its_expectation_is_about(name):
    recipe = load(name)
    small = recipe.with_settings({"hidden": 8})
    assert small.expected == {}
    small = replace(small, expected=EXPECTED)
    described, _ = describe_model(build_model(small, 6, 3), small)
    assert expecting(described, small).expected == EXPECTED
