"""`muse evaluate`: a table or JSON, the same each time."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn import ShadowKHop
from musegnn.cli.main import main
from musegnn.training.building import build_model
from musegnn.training.checkpoint import write_json
from musegnn.training.config import Config
from musegnn.training.folder import RunFolder
from tiny_runs import bytes_of, strict_json, tiny_graph, tiny_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    tiny_graph(seed=1).save(place / "other")
    return tiny_run(place).folder.path


@pytest.fixture(autouse=True)
def _inside(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)


def call(capsys, *arguments, code=0):
    assert main(["evaluate", *arguments]) == code
    captured = capsys.readouterr()
    if code == 2:
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("muse: ")
    return captured.err if code else captured.out


HOWS = {
    "stored": ([], {}),
    "online": (["--online", "--seed", "7"], {"seed": 7}),
    "hops": (["--hops", "1"], {"hops": 1}),
    "full": (["--full", "--scratch", "."], {}),
}


@pytest.mark.parametrize("how", HOWS)
def test_the_table_is_what_the_library_says(folder, capsys, how):
    flags, settings = HOWS[how]
    before = bytes_of(folder)
    record = strict_json(call(capsys, "run", *flags, "--json"))
    assert record == strict_json(call(capsys, "run", *flags, "--json"))
    assert (record["run"], record["how"], record["is_finished"]) == ("run", how, True)
    wanted = musegnn.load_run(folder).evaluate(how=how, **settings)
    for split in ("valid", "test"):
        one = {**wanted[split].metrics, "error_bound": wanted[split].error_bound}
        assert record[split] == {**one, "num_labeled": wanted[split].num_labeled}
    out = call(capsys, "run", *flags)
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("  ")}
    assert rows["split"][:3] == ["split", "nodes", "accuracy"]
    for split in ("valid", "test"):
        assert rows[split][1:3] == [
            str(record[split]["num_labeled"]),
            f"{100 * record[split]['accuracy']:.2f}",
        ]
    assert "not finished" not in out
    assert bytes_of(folder) == before


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"steps": 0}, "none: there are no steps"), ({"architecture": "MLP"}, "none: MLP has no energy")],
)
def test_a_bound_that_is_none_is_a_word(settings, said, capsys, tmp_path):
    config = Config().with_settings({"hidden": 8, "epochs": 1, **settings})
    graph = tiny_graph()
    samples = musegnn.sample(graph, ShadowKHop([2]), tmp_path / "s")
    model = build_model(config, graph.features.shape[1], graph.num_classes, graph)
    graph.save(tmp_path / "g")
    musegnn.train(graph, samples, model, tmp_path / "r", config=config)
    out = call(capsys, str(tmp_path / "r"), "--graph", str(tmp_path / "g"))
    rows = [line.split() for line in out.splitlines() if line.startswith(("  valid", "  test"))]
    assert [row[-1] for row in rows] == ["none", "none"]
    assert f"\nerror bound: {said}. Took" in out


def test_stored_is_what_training_said(folder, capsys):
    record, result = strict_json(call(capsys, "run", "--json")), musegnn.load_run(folder).result
    for split in ("valid", "test"):
        for name in ("accuracy", "macro_f1"):
            assert record[split][name] == result[f"{split}_{name}"]


def test_splits(capsys):
    found = strict_json(call(capsys, "run", "--splits", "train, test", "--json"))
    assert list(found)[5:] == ["train", "test"]
    assert list(strict_json(call(capsys, "run", "--splits", "none", "--full", "--json")))[5:] == ["none"]


def test_predictions_of_all_nodes_may_be_corrected_and_smoothed(folder, capsys):
    given = "run", "--full", "--correct-and-smooth"
    wanted = musegnn.load_run(folder).evaluate(how="full", correct_and_smooth=True)
    record = strict_json(call(capsys, *given, "--json"))
    assert record["correct_and_smooth"] is True
    assert record["test"]["accuracy"] == wanted["test"].metrics["accuracy"]
    assert "the whole graph, corrected and smoothed" in call(capsys, *given)


def test_means_may_move_as_in_the_authors_code(folder, capsys):
    before = bytes_of(folder)
    record = strict_json(call(capsys, "run", "--update-means", "--json"))
    assert record == strict_json(call(capsys, "run", "--update-means", "--json"))
    wanted = musegnn.load_run(folder).evaluate(update_means=True)
    assert record["update_means"] is True
    assert record["test"]["error_bound"] == wanted["test"].error_bound
    fixed = strict_json(call(capsys, "run", "--json"))
    assert fixed["update_means"] is False
    assert fixed["test"]["error_bound"] != wanted["test"].error_bound
    assert "run on stored samples, moving a copy of M\n" in call(capsys, "run", "--update-means")
    assert bytes_of(folder) == before


def test_stores_that_were_moved_are_passed(folder, capsys, tmp_path):
    wanted = strict_json(call(capsys, "run", "--json"))
    shutil.copytree(folder, tmp_path / "run")
    record = RunFolder(tmp_path / "run").record()
    for part in ("graph", "samples"):
        record[part] |= {"folder": "/gone", "from_here": "gone"}
    write_json(tmp_path / "run/run.json", record)
    run = str(tmp_path / "run")
    said = f"muse: /gone does not exist, where {run} had its samples. Pass --samples FOLDER.\n"
    assert call(capsys, run, code=2) == said
    assert "had its graph. Pass --graph FOLDER." in call(capsys, run, "--samples", "samples", code=2)
    places = ["--graph", "graph", "--samples", "samples", "--device", "auto"]
    assert strict_json(call(capsys, run, *places, "--json")) == {**wanted, "run": run}
    arguments = ["predict", run, "--nodes", "all", *places, "--out"]
    assert main([*arguments, str(tmp_path / "moved.npy")]) == 0
    assert main(["predict", "run", "--nodes", "all", "--out", str(tmp_path / "here.npy")]) == 0
    assert (tmp_path / "moved.npy").read_bytes() == (tmp_path / "here.npy").read_bytes()


def test_a_run_that_is_not_finished_says_so(folder, capsys, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run/result.json").unlink()
    out = call(capsys, str(tmp_path / "run"))
    assert "It is not finished: these are its best weights so far." in out
    assert strict_json(call(capsys, str(tmp_path / "run"), "--json"))["is_finished"] is False
    shutil.rmtree(tmp_path / "run/checkpoint")
    assert "has no checkpoint" in call(capsys, str(tmp_path / "run"), code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not a run"),
        (["graph"], "graph is not a run"),
        (
            ["run", "--full", "--online"],
            "Choose one of --online, --hops and --full, got",
        ),
        (["run", "--seed", "1"], "pass it with --online"),
        (["run", "--hops", "0"], "got '0'"),
        (
            ["run", "--splits", "tset"],
            "There is no split 'tset'; allowed are train, valid, test, none. Did you",
        ),
        (["run", "--splits", "none"], "no samples of the split 'none'; it has train, valid, test"),
        (["run", "--update-means", "--full"], "--update-means is for stored samples: leave --full out."),
        (
            ["run", "--correct-and-smooth"],
            "--correct-and-smooth moves the predictions of all nodes",
        ),
        (["run", "--graph", "nowhere"], "nowhere does not exist"),
        (["run", "--graph", "other"], "Pass the one it was trained on: --graph FOLDER."),
        (["run", "--samples", "graph"], "Pass the folder of a samples store"),
        (["run", "--device", "tpu"], "--device must be cpu, cuda or auto; got 'tpu'"),
        (["run", "--splits", "tset", "--full"], "Did you mean test?"),
        (["run", "--splits", ","], "no splits to evaluate"),
        (
            ["run", "--full", "--scratch", "nowhere"],
            "nowhere is no folder. Create it, or leave --scratch out.",
        ),
    ],
)
def test_a_mistake_is_answered_in_one_line(capsys, arguments, said):
    before = sorted(Path.cwd().rglob("*"))
    assert said in call(capsys, *arguments, code=2)
    assert sorted(Path.cwd().rglob("*")) == before


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("how", [*HOWS, "moving"])
def test_a_gpu_says_the_same(capsys, tmp_path, how):
    flags = ["--update-means"] if how == "moving" else HOWS[how][0]
    wanted = strict_json(call(capsys, "run", *flags, "--json"))
    found = strict_json(call(capsys, "run", *flags, "--device", "cuda", "--json"))
    for split in ("valid", "test"):
        assert found[split] == pytest.approx(wanted[split], rel=1e-3, abs=0.03)
    arguments = ["predict", "run", "--nodes", "all", "--out"]
    assert main([*arguments, str(tmp_path / "cpu.npy")]) == 0
    assert main([*arguments, str(tmp_path / "cuda.npy"), "--device", "cuda"]) == 0
    tables = [np.load(tmp_path / f"{device}.npy")["probability"] for device in ("cpu", "cuda")]
    assert np.allclose(*tables, atol=1e-4)
