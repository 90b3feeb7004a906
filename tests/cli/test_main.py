"""How errors leave the program: one line on stderr, exit code 2, no traceback."""

import os
import subprocess
import sys

import numpy as np
import pytest

import musegnn
from musegnn import errors
from musegnn.cli import main as cli
from musegnn.cli.main import main


def run(arguments, capsys):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inof"], "Did you mean 'info'?"),
        (["info", "debain"], "Did you mean debian"),
        (["info", "--vreify"], "--verify"),
        (["info", "no/such/folder"], "does not exist"),
        (["import", "edges.csv"], "Missing option '--out'"),
        (["import", "edges.csv", "--out", "x"], "edges.csv"),
        (["import", "debian", "--out", "x", "--memory", "lots"], "--memory must be a size"),
        (["import", "debian", "--out", "x", "--memory", "1K"], "at least 16M"),
        (["import", "debian", "--out", "x", "--set", "seed"], "--set takes KEY=VALUE"),
        (["import", "debian", "--out", "x", "--set", "seed=1"], "no option 'seed'"),
        (["import", "debian", "--out", "x", "--labels", "y.csv"], "--labels belongs to own data"),
        (["import", "debian", "--out", "x", "--workers", "0"], "--workers"),
        (["import", "ogbn-arxiv", "--out", "x"], "--root"),
        (["doctor", "--folder", "nowhere"], "nowhere is no folder"),
    ],
)
def test_a_mistake_is_answered_in_one_line(arguments, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run(arguments, capsys)
    assert code == 2
    assert message in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_fault_of_our_own_shows_its_traceback(monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(cli.info.catalog, "load", broken)
    with pytest.raises(ZeroDivisionError):
        main(["info", "debian"])


def test_an_interrupt_exits_with_130(monkeypatch, capsys):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.info.catalog, "load", interrupted)
    code, _, err = run(["info", "debian"], capsys)
    assert code == 130
    assert err.count("\n") == 1


def test_the_module_is_the_command():
    for command in ([sys.executable, "-m", "musegnn"], ["muse"]):
        path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
        done = subprocess.run(
            [*command, "--version"], capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        assert done.returncode == 0
        assert done.stdout.startswith("musegnn ")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_name_that_the_terminal_cannot_show_is_no_error(tmp_path, encoding):
    """A letter beyond ASCII, and half a character, which JSON can spell and no encoding can."""
    graph = musegnn.Graph.from_edges(
        np.array([[0], [1]]), num_nodes=2, features=np.ones((2, 1), np.float32), labels=np.array([0, 1]),
        class_names=["größe", "\ud800"],
    )  # fmt: skip
    graph.save(tmp_path / "g")
    done = subprocess.run(
        [sys.executable, "-m", "musegnn", "info", tmp_path / "g"],
        capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"\ud800" in done.stdout
    assert "größe".encode(encoding, "backslashreplace") in done.stdout


def test_no_command_prints_help(capsys):
    code, out, _ = run([], capsys)
    assert code == 0
    assert "import" in out
    assert "doctor" in out


def test_errors_are_value_errors():
    assert issubclass(errors.InputError, ValueError)
    assert issubclass(errors.StoreError, errors.InputError)
    assert issubclass(errors.MissingExtraError, ImportError)
