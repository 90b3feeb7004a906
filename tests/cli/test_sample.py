"""`muse sample` and `muse info` of samples, as a person would call them."""

import json
import warnings

import numpy as np
import pytest

from musegnn import Draws, Graph, SampleStore, ShadowKHop, UniformInduced
from musegnn.cli.main import main


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A place with a graph of 400 nodes, half of which are to be sampled."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    split = np.repeat([0, 1, 2, -1], 100)
    edges, labels = rng.integers(0, 400, (2, 1500)), np.zeros(400, dtype=int)
    Graph.from_edges(edges, num_nodes=400, labels=labels, split=split).save("g")
    return tmp_path


def run(capsys, *arguments, code=0):
    assert main(["sample", *arguments]) == code
    captured = capsys.readouterr()
    if code == 2:
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("muse: ")
    return captured.err if code else captured.out


def test_samples_are_those_of_the_library(folder, capsys):
    out = run(capsys, "g", "--out", "s", "--set", "fanouts=4,2", "--batch-size", "30", "--seed", "7")
    assert "ShadowKHop(fanouts=[4, 2]), batches of 30, seed 7" in out
    assert "Wrote s: 12 samples" in out
    store = SampleStore.open("s", graph=Graph.open("g"))
    for split in ("train", "valid", "test"):
        draws = Draws(Graph.open("g"), ShadowKHop([4, 2]), split, batch_size=30, seed=7)
        assert len(store[split]) == len(draws) == 4
        for stored, drawn in zip(store[split], draws, strict=True):
            assert np.array_equal(stored.node_ids, drawn.node_ids)
            assert np.array_equal(stored.indices, drawn.indices)


def test_an_estimate_writes_nothing(folder, capsys):
    out = run(capsys, "g", "--out", "s", "--estimate", "--batch-size", "30")
    assert [path.name for path in folder.iterdir()] == ["g"]
    rows = [line.split() for line in out.splitlines() if line.startswith("  ")]
    assert rows[1][:3] == ["train", "4", "100"]
    assert "more than is free" not in out
    assert "Needs about" in out


def test_a_second_run_checks_and_mends(folder, capsys):
    run(capsys, "g", "--out", "s", "--batch-size", "30", "--splits", "test")
    assert "s is complete" in run(capsys, "g", "--out", "s", "--batch-size", "30", "--splits", "test")
    before = {path.name: path.read_bytes() for path in (folder / "s").glob("*.bin")}
    (folder / "s" / "test_shard_000002.bin").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["sample", "g", "--out", "s", "--batch-size", "30", "--splits", "test"]) == 0
    assert "test_shard_000002.bin" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (folder / "s").glob("*.bin")} == before


def test_a_free_sampler_and_nodes_without_a_split(folder, capsys):
    settings = ("--set", "p=0.5", "--set", "num_samples=3")
    run(capsys, "g", "--out", "s", "--sampler", "uniform-induced", *settings, "--splits", "none")
    store = SampleStore.open("s")
    draws = Draws(Graph.open("g"), UniformInduced(p=0.5, num_samples=3), "none")
    assert [sample.num_seeds for sample in store["none"]] == [sample.num_seeds for sample in draws]
    assert all((sample.seeds >= 300).all() for sample in store["none"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sampler", "shadow"], "Did you mean ShadowKHop?"),
        (["--set", "fanout=5"], "ShadowKHop has no setting 'fanout'; it has fanouts."),
        (["--set", "fanouts"], "--set takes KEY=VALUE"),
        (["--set", "fanouts=0,5"], "must be positive integers"),
        (["--splits", "tset"], "There is no split 'tset'; allowed are train, valid, test, none."),
        (["--splits", ","], "splits is empty"),
        (["--batch-size", "0"], "batch-size"),
        (["--root", "raw"], "--root belongs to a dataset"),
        (["--out", "g"], "is a graph store, not one of samples"),
        (["--out", "g", "--overwrite"], "is a graph store, not one of samples"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, capsys, arguments, said):
    out = [] if "--out" in arguments else ["--out", "s"]
    assert said in run(capsys, "g", *out, *arguments, code=2)
    assert not (folder / "s").exists()
    Graph.open("g").verify()


def test_other_settings_in_the_same_folder_are_refused(folder, capsys):
    run(capsys, "g", "--out", "s")
    err = run(capsys, "g", "--out", "s", "--set", "fanouts=3", code=2)
    assert "s was drawn with sampler ShadowKHop(fanouts=[10, 5]), not ShadowKHop(fanouts=[3])" in err
    run(capsys, "g", "--out", "s", "--set", "fanouts=3", "--overwrite")
    assert SampleStore.open("s").sampler["settings"] == {"fanouts": [3]}


def test_info_describes_samples(folder, capsys):
    run(capsys, "g", "--out", "s", "--batch-size", "30")
    assert main(["info", "s", "--verify"]) == 0
    out = capsys.readouterr().out
    for part in ("ShadowKHop(fanouts=[10, 5])", "400 nodes", "train", "on disk", "verified"):
        assert part in out
    assert main(["info", "s", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["graph"] == Graph.open("g").digest
    assert record["splits"]["valid"]["num_seeds"] == 100
    assert record["splits"]["valid"]["theta_normalized"] <= record["splits"]["valid"]["bound_normalized"]


def test_info_names_what_is_damaged(folder, capsys):
    run(capsys, "g", "--out", "s", "--batch-size", "30")
    path = folder / "s" / "train_shard_000000.bin"
    data = bytearray(path.read_bytes())
    data[100] ^= 4
    path.write_bytes(data)
    assert main(["info", "s", "--verify"]) == 2
    assert "train_shard_000000.bin is damaged" in capsys.readouterr().err
