"""`muse pack`, and `muse info` of a pack, as a person would call them."""

import json

import pytest

from musegnn import Graph, SampleStore, ShadowKHop, sample
from musegnn.cli.main import main
from musegnn.features.packed import Pack
from tiny_runs import flags, tiny_graph


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_graph().save("g")
    sample(Graph.open("g"), ShadowKHop([4, 3]), "s", batch_size=20)
    return tmp_path


def run(capsys, *arguments, code=0):
    assert main(list(arguments)) == code
    captured = capsys.readouterr()
    if code == 2:
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("muse: ")
    return captured.err if code else captured.out


def test_pack_look_and_train(folder, capsys):
    out = run(capsys, "pack", "s", "--graph", "g", "--cache", "0.2", "--splits", "train,valid")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines[:3]] == ["split", "train", "valid"]
    assert "30 rows that are read most often" in out
    assert "Needs " in out
    assert out.index("Needs ") < out.index("Wrote ")
    pack = Pack.open("s.pack", graph=Graph.open("g"), store=SampleStore.open("s"))
    assert list(pack.splits) == ["train", "valid"]
    assert "s.pack is complete." in run(capsys, "pack", "s", "--graph", "g", "--splits", "train,valid")

    out = run(capsys, "info", "s.pack", "--verify")
    assert f"{pack.num_rows('train'):,}" in out
    assert "verified" in out
    found = json.loads(run(capsys, "info", "s.pack", "--json"))
    assert found["splits"]["valid"]["num_rows"] == pack.num_rows("valid")
    assert found["num_hot"] == 30

    home = ["--set", "features_home=packed", "--set", "features_pack=s.pack"]
    out = run(
        capsys, "train", "g", "--out", "run", "--device", "cpu", "--samples", "s", *flags(epochs=1), *home
    )
    assert "features      packed: " in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit", "1e3"], "more than the limit of 1e-06 GB"),
        (["--cache", "-1"], "cache must be bytes"),
        (["--cache", "much"], "much"),
        (["--splits", "tset"], "no samples of the split 'tset'"),
        (["--out", "g"], "is a graph store, not one of pack"),
        (["--out", ""], "--out is the current folder or empty"),
        (["--graph", "h"], "h"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(folder, capsys, arguments, said):
    assert said in run(capsys, "pack", "s", "--graph", "g", *arguments, code=2)
    assert sorted(path.name for path in folder.iterdir()) == ["g", "s"]


def test_info_names_what_is_damaged(folder, capsys):
    run(capsys, "pack", "s", "--graph", "g", "--cache", "0")
    path = folder / "s.pack" / "train_shard_000000.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"\x01")
    assert "train_shard_000000.bin is damaged" in run(capsys, "info", "s.pack", "--verify", code=2)
