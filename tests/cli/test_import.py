"""`muse import`, from files of one's own and from datasets."""

import resource
import subprocess
import sys

import numpy as np

from musegnn import Graph
from musegnn.cli.main import main


def test_own_tables_become_a_store(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edges.csv").write_text("source,target\nann,bob\nbob,cy\ncy,ann\n")
    (tmp_path / "labels.csv").write_text("id,label\nann,tea\nbob,coffee\ncy,tea\n")
    assert main(["import", "edges.csv", "--labels", "labels.csv", "--out", "g"]) == 0
    assert "3 nodes, 3 undirected edges" in capsys.readouterr().out
    graph = Graph.open("g")
    assert list(graph.node_names) == ["ann", "bob", "cy"]
    assert graph.class_names == ("coffee", "tea")
    assert graph.provenance["command"].split()[0]
    assert graph.name == "g"


def test_a_dataset_becomes_the_same_graph_as_in_memory(tmp_path, capsys):
    out = str(tmp_path / "g")
    assert main(["import", "synthetic", "--set", "num_nodes=500", "--set", "seed=3", "--out", out]) == 0
    from musegnn.datasets import load

    assert Graph.open(out).digest == load("synthetic", num_nodes=500, seed=3).digest


def test_an_estimate_writes_nothing(tmp_path, capsys):
    assert main(["import", "papers100m-shaped", "--out", str(tmp_path / "g"), "--estimate"]) == 0
    out = capsys.readouterr().out
    assert "111,059,956 nodes" in out
    assert "GB of disk" in out
    assert not list(tmp_path.iterdir())


def test_a_store_is_replaced_only_when_told_so(tmp_path, capsys):
    out = str(tmp_path / "g")
    arguments = ["import", "synthetic", "--set", "num_nodes=500", "--out", out]
    assert main(arguments) == 0
    assert main(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert main([*arguments, "--overwrite"]) == 0


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """The real failure: the operating system refuses to let a file grow."""
    np.save(tmp_path / "edges.npy", np.random.default_rng(0).integers(0, 50_000, (2, 200_000)))
    done = subprocess.run(
        [sys.executable, "-m", "musegnn", "import", "edges.npy", "--out", "g"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000)),
    )
    assert done.returncode == 2
    assert "disk is full" in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["edges.npy"]
