"""What newcomers run into: refused runs, moved stores, the wrong samples, a run where a graph was meant."""

import json
import os
import shutil

import pytest

import musegnn
import tiny_runs
from machine import unchecked as unchecked
from musegnn import UniformInduced
from musegnn.cli.main import main
from musegnn.errors import StoreError
from musegnn.runs.evaluation import Drawing
from musegnn.training.checkpoint import facts_of, write_json
from musegnn.training.folder import RunFolder


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A graph, samples and a run."""
    folder = tmp_path_factory.mktemp("steps")
    tiny_runs.tiny_run(folder)
    return folder


@pytest.fixture
def run(place, tmp_path):
    """A copy of the run that does not find its graph and its samples."""
    shutil.copytree(place / "run", tmp_path / "run")
    record = RunFolder(tmp_path / "run").record()
    for part in ("graph", "samples"):
        record[part] |= {"folder": "/gone", "from_here": "gone"}
    write_json(tmp_path / "run/run.json", record)
    return tmp_path / "run"


def call(capsys, *arguments, code=0):
    assert main([str(part) for part in arguments]) == code
    said = capsys.readouterr()
    return said.err if code else said.out


def test_a_run_that_is_refused_for_its_alpha_leaves_no_folder(place, tmp_path, capsys):
    given = "train", place / "graph", "--samples", place / "samples", "--out", tmp_path / "run"
    assert "alpha=0.9 diverges" in call(capsys, *given, *tiny_runs.flags(alpha=0.9), code=2)
    assert not (tmp_path / "run").exists()
    call(capsys, *given, *tiny_runs.flags(alpha=0.2))


def test_samples_that_are_not_read_are_not_asked_for(place, run, tmp_path, capsys):
    """Only the graph is; what is computed is the same."""
    for how in ("--full", "--online"):
        assert "had its graph. Pass --graph FOLDER." in call(capsys, "evaluate", run, how, code=2)
        found = json.loads(call(capsys, "evaluate", run, how, "--graph", place / "graph", "--json"))
        whole = json.loads(call(capsys, "evaluate", place / "run", how, "--json"))
        assert found["test"] == whole["test"]
    predict = "--nodes", "all", "--out"
    call(capsys, "predict", run, "--graph", place / "graph", *predict, tmp_path / "moved.csv")
    call(capsys, "predict", place / "run", "--samples", place / "samples", *predict, tmp_path / "here.csv")
    assert (tmp_path / "moved.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()


@pytest.mark.parametrize("sampler", [None, UniformInduced(p=0.5, num_samples=4)])
def test_the_config_of_a_run_says_how_its_samples_were_drawn(tmp_path, sampler):
    tiny_runs.tiny_run(tmp_path, sampler)
    run = musegnn.load_run(tmp_path / "run")
    assert run.drawing == Drawing.of_store(run.samples)
    shutil.rmtree(tmp_path / "samples")
    assert musegnn.load_run(tmp_path / "run").drawing == run.drawing


def test_samples_of_another_graph_are_refused_for_those_of_the_run(place, tmp_path, capsys):
    """To draw samples of this graph would not help: those of the run are wanted."""
    graph = tiny_runs.tiny_graph(seed=1)
    musegnn.sample(graph, musegnn.ShadowKHop([4, 3]), tmp_path / "other", batch_size=20, splits="test")
    for command in (("evaluate", place / "run"), ("evaluate", place / "run", "--full")):
        said = call(capsys, *command, "--samples", tmp_path / "other", code=2)
        assert f"other holds other samples than {place / 'run'} was trained with" in said
        assert "Pass those: --samples FOLDER" in said


def test_info_of_a_run_says_what_it_is(place, tmp_path, capsys):
    said = call(capsys, "info", place / "run", "--verify")
    for part in (
        "run of tiny",
        "gamma=0.5",
        "fanouts=[4, 3]",
        "2 of 2 epochs, 4 steps",
        "test  ",
        "verified",
    ):
        assert part in said
    assert said.endswith("--nodes all --out predictions.csv\n")
    found = tiny_runs.strict_json(call(capsys, "info", place / "run", "--json"))
    assert found["result"]["test_accuracy"] == musegnn.load_run(place / "run").test_accuracy
    assert (found["settings"]["hidden"], found["epoch"], found["is_finished"]) == (8, 2, True)
    shutil.copytree(place / "run", tmp_path / "half")
    (tmp_path / "half/result.json").unlink()
    said = call(capsys, "info", tmp_path / "half")
    assert said.endswith(f"It is not finished.\nNext: muse train --resume {tmp_path / 'half'}\n")
    best = next((tmp_path / "half/checkpoint").glob("best-*"))
    os.truncate(best, best.stat().st_size - 1)
    assert "is damaged" in call(capsys, "info", tmp_path / "half", "--verify", code=2)


def test_a_finished_run_has_nothing_to_profile(place, capsys):
    first = call(capsys, "train", "--resume", place / "run", "--profile").splitlines()[0]
    assert first == f"{place / 'run'} is finished. There is no step left for --profile."
    assert "--profile" not in call(capsys, "train", "--resume", place / "run")


def test_a_number_of_ranks_is_not_believed(tmp_path):
    """2^40 of them would be counted up to the end of memory."""
    tiny_runs.tiny_run(tmp_path, means_home="disk")
    path = tmp_path / "run/checkpoint/state.json"
    body = json.loads(path.read_text()) | {"facts": facts_of(path.parent, "state") | {"ranks": 3}}
    body.pop("checksum")
    write_json(path, body)
    with pytest.raises(StoreError, match="means-0-of-3 has lost the means"):
        _ = musegnn.load_run(tmp_path / "run").means_digest
