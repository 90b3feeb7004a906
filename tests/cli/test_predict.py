"""`muse predict`, into each kind of file, killed and run again; and `muse recipes`."""

import csv
import os
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn import recipes
from musegnn.cli.main import main
from musegnn.cli.predict import _plan
from musegnn.inference.tables import PredictionWriter
from musegnn.training.config import Config
from tiny_runs import interrupted, tiny_graph, tiny_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("run")
    folder = tiny_run(place).folder.path
    tiny_graph(120, seed=1).save(place / "other")
    tiny_graph(dim=5).save(place / "narrow")
    return folder


@pytest.fixture(autouse=True)
def _inside(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def call(capsys, *arguments, code=0):
    assert main(["predict", "run", *map(str, arguments)]) == code
    captured = capsys.readouterr()
    if code == 2:
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("muse: ")
    return captured.err if code else captured.out


def test_each_kind_of_file_has_the_same_rows(folder, capsys, out):
    wanted = musegnn.load_run(folder).predict(range(150))
    for kind in ("csv", "npy", "parquet"):
        said = call(capsys, "--nodes", "all", "--out", out.with_suffix(f".{kind}"), "--threads", "2")
        assert f"out.{kind}: 150 nodes" in said
    table = np.load(out.with_suffix(".npy"))
    assert np.array_equal(table["node"], np.arange(150))
    assert np.array_equal(table["class"], wanted.classes)
    assert np.array_equal(table["probability"], wanted.probabilities)
    assert np.array_equal(table["error_bound"], wanted.error_bounds)
    with out.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    names = ["red", "green", "blue"]
    assert list(rows[0]) == [
        "node",
        "name",
        "class",
        "class_name",
        "error_bound",
        "p_red",
        "p_green",
        "p_blue",
    ]
    assert [row["name"] for row in rows] == [f"node {i}" for i in range(150)]
    assert [row["class_name"] for row in rows] == [names[number] for number in wanted.classes]
    shown = np.array([[row[f"p_{name}"] for name in names] for row in rows], dtype=np.float32)
    assert np.array_equal(shown, wanted.probabilities)
    parquet = pytest.importorskip("pyarrow.parquet").read_table(out.with_suffix(".parquet"))
    assert parquet.column_names == list(rows[0])
    assert parquet["p_green"].to_pylist() == wanted.probabilities[:, 1].tolist()


@pytest.mark.parametrize("hops", [None, 1])
def test_which_nodes(folder, capsys, out, tmp_path, hops):
    run = musegnn.load_run(folder)
    (tmp_path / "ids.txt").write_text("140\n3\nnode 77\n3\n")
    test = np.flatnonzero(run.graph.split == 2)
    flags = [] if hops is None else ["--hops", hops]
    for spec, ids in {"test": test, tmp_path / "ids.txt": [3, 77, 140], "node 9": [9], "id:9": [9]}.items():
        call(capsys, "--nodes", spec, "--out", out.with_suffix(".npy"), "--overwrite", *flags)
        table, wanted = np.load(out.with_suffix(".npy")), run.predict(ids, hops=hops)
        assert np.array_equal(table["node"], ids)
        assert np.array_equal(table["probability"], wanted.probabilities)


def test_another_graph(folder, capsys, out):
    call(capsys, "--nodes", "all", "--graph", "other", "--out", out.with_suffix(".csv"))
    with out.with_suffix(".csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    assert "name" not in rows[0]
    assert {row["class_name"] for row in rows} <= {"red", "green", "blue"}
    labels = musegnn.Graph.open("other").labels
    assert np.mean([int(row["class"]) == label for row, label in zip(rows, labels, strict=True)]) > 0.5
    # The same graph by its folder is not another one.
    call(capsys, "--nodes", "all", "--out", out.with_suffix(".npy"))
    before = out.with_suffix(".npy").read_bytes()
    call(capsys, "--nodes", "all", "--graph", "graph", "--out", out.with_suffix(".npy"), "--overwrite")
    assert out.with_suffix(".npy").read_bytes() == before


def count_batches(patch, stop=None):
    """Which batches are made from now on; Ctrl-C comes before batch `stop`."""
    made, before = [], PredictionWriter.add

    def add(self, number, rows):
        if number == stop:
            raise KeyboardInterrupt
        made.append(number)
        before(self, number, rows)

    patch.setattr(PredictionWriter, "add", add)
    return made


@pytest.mark.parametrize("other", [["--hops", "1"], ["--graph", "other"]])
def test_parts_of_another_command_are_not_taken_for_its_own(capsys, out, monkeypatch, other):
    path = out.with_suffix(".npy")
    with monkeypatch.context() as patch:
        count_batches(patch, stop=3)
        assert main(["predict", "run", "--nodes", "all", "--out", str(path)]) == 130
    assert "Run the same command again" in capsys.readouterr().err
    assert "Going on" not in call(capsys, "--nodes", "all", "--out", path, *other)
    call(capsys, "--nodes", "all", "--out", out.with_suffix(".whole.npy"), *other)
    assert path.read_bytes() == out.with_suffix(".whole.npy").read_bytes()


def test_parts_from_before_mapped_means_moved_are_not_taken(capsys, tmp_path, monkeypatch):
    run = tiny_run(tmp_path, means_home="disk", epochs=1)
    for is_moved in (False, True):
        out = str(tmp_path / f"{is_moved}.npy")
        arguments = ["predict", str(run.folder.path), "--nodes", "all", "--out", out]
        with monkeypatch.context() as patch:
            count_batches(patch, stop=3)
            assert main(arguments) == 130
        if is_moved:
            with (run.folder.means / "undo.bin").open("ab") as log:
                log.write(b"what an update of M has noted")
        with monkeypatch.context() as patch:
            made = count_batches(patch)
            assert main(arguments) == 0
        assert (len(made) == 8) == is_moved
    assert "Going on: 3 of 8" in capsys.readouterr().out


def test_the_plan_copies_no_ids(monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    run = SimpleNamespace(weights_digest="", means_digest=None, device=torch.device("cpu"))
    predictor, ids = SimpleNamespace(run=run, graph=SimpleNamespace(digest="")), np.arange(1 << 18)
    tracemalloc.start()
    try:
        one = _plan(predictor, ids, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < ids.nbytes / 4
    assert _plan(predictor, ids[::-1], None) != one == _plan(predictor, ids.copy(), None)


def test_killed_and_run_again_it_goes_on_to_the_same_bytes(capsys, tmp_path, monkeypatch):
    arguments = ["predict", "run", "--nodes", "all", "--out"]
    kinds = ("csv", "npy", "parquet") if os.environ.get("MUSEGNN_PROOF") else ("csv",)
    files = [str(tmp_path / f"killed.{kind}") for kind in kinds]
    codes, err = interrupted("add", [("SIGKILL", 5, *arguments, name) for name in files], Path.cwd())
    assert codes == [-9] * len(files), err
    for name in files:
        assert not Path(name).exists()
        with monkeypatch.context() as patch:
            made = count_batches(patch)
            assert "Going on: 4 of 8 batches are there." in call(capsys, "--nodes", "all", "--out", name)
        assert made == [4, 5, 6, 7]
        whole = Path(name).with_stem("whole")
        assert "Going on" not in call(capsys, "--nodes", "all", "--out", whole)
        assert Path(name).read_bytes() == whole.read_bytes()
    assert {path.stem for path in tmp_path.iterdir()} == {"killed", "whole"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--nodes", "all", "--out", "p.txt"], "written to .parquet, .npy, .csv, got p.txt"),
        (["--nodes", "tset", "--out", "p.csv"], "Did you mean test?"),
        (["--nodes", "150", "--out", "p.csv"], "ids are 0 to 149"),
        (
            ["--nodes", "all", "--out", "p.csv", "--graph", "narrow"],
            "has 5 features, the run was trained with 6",
        ),
        (["--nodes", "all", "--out", "p.csv", "--graph", "nowhere"], "nowhere does not exist"),
        (["--nodes", "all", "--out", "p.csv", "--graph", "samples"], "samples"),
        (["--nodes", "all", "--out", "p.csv", "--hops", "0"], "--hops"),
        (["--nodes", "all", "--out", "p.csv", "--device", "tpu"], "--device must be cpu, cuda or auto"),
        (["--nodes", "all", "--out", "p.csv", "--samples", "graph"], "Pass the folder of a samples store"),
        (["--nodes", "all"], "Missing option '--out'"),
    ],
)
def test_a_mistake_is_answered_in_one_line(capsys, arguments, said):
    before = sorted(Path.cwd().rglob("*"))
    assert said in call(capsys, *arguments, code=2)
    assert sorted(Path.cwd().rglob("*")) == before


def test_a_table_that_is_there_is_kept(capsys, out):
    path = out.with_suffix(".csv")
    path.write_text("mine")
    assert call(capsys, "--nodes", "0", "--out", path, code=2).endswith("Choose another, or --overwrite.\n")
    assert path.read_text() == "mine"
    call(capsys, "--nodes", "0", "--out", path, "--overwrite")
    assert path.read_text().startswith("node,")


def test_what_is_no_run(capsys):
    assert main(["predict", "graph", "--nodes", "all", "--out", "p.csv"]) == 2
    assert "graph is not a run" in capsys.readouterr().err


def test_a_run_that_is_not_finished_says_so(folder, capsys, out):
    result = (folder / "result.json").read_bytes()
    (folder / "result.json").unlink()
    try:
        said = call(capsys, "--nodes", "0", "--out", out.with_suffix(".csv"))
    finally:
        (folder / "result.json").write_bytes(result)
    assert "run is not finished: predicting with its best weights so far." in said


def test_recipes_as_a_table_and_one_by_one(capsys):
    assert main(["recipes"]) == 0
    shown = capsys.readouterr().out
    for name in recipes.names():
        assert name in shown
    assert main(["recipes", "Cora"]) == 0
    assert Config.from_toml(capsys.readouterr().out, "stdout") == recipes.load("cora")
    assert main(["recipes", "dbian"]) == 2
    assert capsys.readouterr().err == "muse: 'dbian' is no recipe. Did you mean debian?\n"
