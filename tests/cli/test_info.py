"""`muse info` and `muse doctor`, as a person would call them."""

import json

import numpy as np

from musegnn import Graph
from musegnn.cli.main import main


def small_graph():
    return Graph.from_edges(
        [[0, 1, 2], [1, 2, 3]],
        features=np.ones((4, 2)),
        labels=[0, 0, 1, -1],
        split=[0, 1, 2, 2],
        class_names=["calm", "loud"],
        node_type=[1, 0, 1, 1],
        node_type_names=["user", "item"],
    )


def test_a_store_is_described(tmp_path, capsys):
    small_graph().save(tmp_path / "g")
    assert main(["info", str(tmp_path / "g")]) == 0
    out = capsys.readouterr().out
    for part in (
        "nodes         4",
        "3 undirected",
        "node types    user 1, item 3",
        "mean 1.5, median 1",
        "0.500 of the edges",
        "calm",
        "on disk",
    ):
        assert part in out
    assert "train 1, valid 1, test 2 (1 of them unlabeled)" in out


def test_neighbors_that_differ_are_worth_a_word(tmp_path, capsys):
    for labels, is_told in (([0, 1, 0, 1], True), ([0, 0, 0, 1], False)):
        Graph.from_edges([[0, 1, 2], [1, 2, 3]], labels=labels).save(tmp_path / "g", overwrite=True)
        assert main(["info", str(tmp_path / "g")]) == 0
        assert ("most neighbors differ" in capsys.readouterr().out) == is_told


def test_json_holds_the_figures(tmp_path, capsys):
    graph = small_graph()
    graph.save(tmp_path / "g")
    assert main(["info", str(tmp_path / "g"), "--json", "--verify"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["digest"] == graph.digest
    assert record["num_edges"] == 6
    assert record["verified"] is True
    assert record["class_counts"] == [2, 1]
    assert record["node_type_counts"] == {"user": 1, "item": 3}


def test_of_many_types_the_largest_are_shown(tmp_path, capsys):
    types = np.concatenate([np.arange(20), np.full(5, 17)])
    Graph.from_edges([[0], [1]], node_type=types).save(tmp_path / "g")
    assert main(["info", str(tmp_path / "g")]) == 0
    shown = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("node types"))
    assert shown.startswith("node types    type 17 6, type 0 1, type 1 1,")
    assert shown.endswith(", type 10 1 and 8 more")


def test_verify_finds_a_flipped_byte_in_any_array(tmp_path, capsys):
    small_graph().save(tmp_path / "g")
    for path in sorted((tmp_path / "g").glob("*.bin")):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        assert main(["info", str(tmp_path / "g"), "--verify"]) == 2
        err = capsys.readouterr().err
        assert path.name in err or "damaged" in err
        assert err.count("\n") == 1
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    assert main(["info", str(tmp_path / "g"), "--verify"]) == 0
    assert "verified" in capsys.readouterr().out


def test_without_a_graph_the_datasets_are_listed(capsys):
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    for name in ("debian", "cora", "ogbn-papers100M", "MAG240M", "IGB-full", "synthetic"):
        assert name in out


def test_the_embedded_graph_is_described(capsys):
    assert main(["info", "debian"]) == 0
    out = capsys.readouterr().out
    assert "63,436" in out
    assert "runtime" in out


def test_doctor_says_what_is_there_and_what_is_missing(tmp_path, capsys, monkeypatch):
    import importlib.metadata

    real = importlib.metadata.version

    def without_parquet(name):
        if name == "pyarrow":
            raise importlib.metadata.PackageNotFoundError
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", without_parquet)
    monkeypatch.setattr("musegnn.cli.doctor.DISK_BYTES", 1 << 22)
    assert main(["doctor", "--folder", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "torch" in out
    assert "pip install 'musegnn[parquet]'" in out
    assert "writes" in out
    assert not list(tmp_path.iterdir())
