"""`muse bench`, as a person would call it, have it killed, and call it again."""

import os
import signal
import time
from pathlib import Path

import pytest

# Adam imports it, which takes a second: once, not in each process.
import torch._dynamo as torch_dynamo  # noqa: F401

from machine import one_thread as one_thread
from musegnn import Graph
from musegnn.benches import cells
from musegnn.cli.main import main
from musegnn.training.loop import Trainer
from tiny_runs import strict_json, tiny_graph

SMALL = ["--set", "hidden=8", "--set", "epochs=2", "--set", "batch_size=20", "--set", "fanouts=4,3"]
BENCH = ["bench", "accuracy", "--data", "g", "--models", "musegnn,mlp,mariusgnn", "--seeds", "1", *SMALL]


def call(capsys, *arguments, code=0):
    assert main(list(arguments)) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    if code:
        assert captured.err.count("\n") == 1, captured.err
    return captured.err if code else captured.out


def killed(arguments, at):
    """Call a command in a process of its own, which is killed when it takes its step number `at`."""
    child = os.fork()
    if not child:
        steps, before = [], Trainer.step

        def step(*given):
            steps.append(0)
            if len(steps) == at:
                os.kill(os.getpid(), signal.SIGKILL)
            before(*given)

        Trainer.step = step
        try:
            main(arguments)
        finally:
            os._exit(0)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def test_a_kill_costs_one_cell_and_the_same_command_goes_on(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cells, "forget", lambda: None)
    tiny_graph().save(tmp_path / "g")
    bench, folder = [*BENCH, "--device", "cpu"], tmp_path / "bench/accuracy/cells"
    # Four steps each: it is the second cell that is killed, behind its first epoch.
    assert killed(bench, at=7) == -signal.SIGKILL
    assert sorted((path.name[:6], (path / "cell.json").exists()) for path in folder.iterdir()) == [
        ("g-MLP-", False),
        ("g-Muse", True),
    ]
    capfd.readouterr()
    out = call(capfd, *bench)
    assert "2 cells, 1 of them done" in out
    assert "[1/2] g, MuseGNN, seed 0: test accuracy, % " in out
    page = (tmp_path / "bench/accuracy/accuracy.md").read_text()
    assert page in out
    assert "| MariusGNN | [1] |" in page
    assert (
        "Command: `muse bench accuracy --data g --models musegnn,mlp,mariusgnn --seeds 1 --set hidden=8 "
        in page
    )
    assert len(list(folder.iterdir())) == 2
    assert (tmp_path / "bench/accuracy/accuracy.svg").is_file()
    # A third time nothing is left to do.
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", None)
        found = strict_json(call(capfd, *bench, "--json"))
    assert {line["row"] for line in found["lines"]} == {"MuseGNN", "MLP", "MariusGNN"}
    assert "is replaced" not in out
    # What is refused replaces nothing, and says so of nothing.
    assert main([*bench, "--set", "kind=robust"]) == 2
    told = capfd.readouterr()
    assert "kind is what the rows of accuracy are about" in told.err
    assert "is replaced" not in told.out + told.err
    assert main([*bench, "--set", "type_inputs=true"]) == 2
    told = capfd.readouterr()
    assert "All cells were refused, and no table is written. The first: type_inputs=true needs" in told.err
    assert "is replaced" not in told.out + told.err
    # Other rows in the same folder: the table gives way, and says so.
    other = ["mlp" if part == "musegnn,mlp,mariusgnn" else part for part in bench]
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", None)
        out = call(capfd, *other)
    assert "The table that was in bench/accuracy (3 rows, 20" in out
    assert "brings it back: muse bench accuracy --data g --models musegnn,mlp,mariusgnn --seeds 1" in out
    assert len(list(folder.iterdir())) == 2


def test_alone_it_lists_benches_and_contenders(capsys):
    out = call(capsys, "bench")
    for name in ("accuracy", "speed", "gamma", "baseline-sampler", "sampler", "energy", "loss", "scaling"):
        assert f"\n  {name} " in f"\n{out}"
    assert "(not run: a storage system; its model is SAGE online)" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["acuracy"], "There is no bench 'acuracy'. Did you mean accuracy?"),
        (["xyz"], "There is no bench 'xyz'. There are accuracy, speed"),
        (["accuracy"], "accuracy needs graphs, each once. Pass --data"),
        (["accuracy", "--data", "debian,debian"], "each once"),
        (["gamma", "--data", "debian", "--models", "GCN online"], "The rows of gamma are no contenders"),
        (["speed", "--data", "debian", "--models", "gnc-online"], "Did you mean GCN online?"),
        (["speed", "--data", "debian", "--seeds", "1,1"], "--seeds takes how many, such as 3"),
        (["speed", "--data", "debian", "--seeds", "0"], "or '4,' for one alone; got '0'"),
        (["speed", "--data", "debian", "--seeds", "a"], "got 'a'"),
        (["gamma", "--data", "cora"], "cora is read from raw files: pass --root"),
        (["energy", "--data", "debian", "--set", "gamma=1"], "gamma is what the rows of energy are about"),
        (["loss", "--data", "debian", "--set", "seed=1"], "The seeds of a bench are those of --seeds."),
    ],
)
def test_what_is_wrong_is_said_in_a_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert message in call(capsys, "bench", *arguments, "--device", "cpu", code=2)


def test_a_store_is_not_written_to(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Graph.from_edges([[0], [1]]).save("g")
    before = sorted(path.name for path in Path("g").iterdir())
    said = call(capsys, "bench", "loss", "--data", "debian", "--out", "g", "--device", "cpu", code=2)
    assert "--out g is a store (graph). Name a folder for the bench alone." in said
    assert sorted(path.name for path in Path("g").iterdir()) == before


def test_seeds_are_a_number_or_a_list():
    from musegnn.cli.bench import _seeds

    assert _seeds("3") == [0, 1, 2]
    assert _seeds("3,5") == [3, 5]
    assert _seeds("7,") == [7]
