"""Every command: an example, JSON for machines, silence if asked for, lines that fit a narrow terminal."""

import shlex
import subprocess
import sys

import pytest
from typer.main import get_command

from machine import one_thread as one_thread
from machine import unchecked as unchecked
from musegnn.cli import doctor
from musegnn.cli.main import app, main
from tiny_runs import flags, strict_json, tiny_run

TRAINED = ["--samples", "samples", "--out", "trained", "--overwrite", "--device", "cpu", *flags(epochs=1)]
CALLS = [
    ["import", "edges.csv", "--out", "imported", "--overwrite"],
    ["import", "debian", "--out", "other", "--estimate"],
    ["sample", "graph", "--set", "fanouts=2", "--out", "drawn", "--overwrite"],
    ["sample", "graph", "--set", "fanouts=2", "--out", "other", "--estimate"],
    ["pack", "samples", "--graph", "graph", "--out", "packed", "--overwrite"],
    ["train", "graph", *TRAINED],
    ["train", "--resume", "run"],
    ["evaluate", "run"],
    ["predict", "run", "--nodes", "test", "--out", "p.csv", "--overwrite"],
    ["explain", "run", "node 3", "--hops", "1", "--draw", "node.html", "--overwrite"],
    ["report", "run"],
    ["report", "run", "run", "--overwrite"],
    ["bench"],
    ["recipes"],
    ["recipes", "debian"],
    *(["info", *what] for what in ([], ["graph"], ["samples"], ["run"])),
    ["doctor"],
]
SPOKEN = {"import", "sample", "pack", "train"}
"""Commands that say something before they answer."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answers")
    tiny_run(folder)
    (folder / "edges.csv").write_text("ann,bob\nbob,cy\n")
    return folder


@pytest.fixture(autouse=True)
def _inside(place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr(doctor, "DISK_BYTES", 1 << 22)


def call(capsys, *arguments):
    assert main(list(arguments)) == 0, capsys.readouterr().err
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err
    return said


def test_all_commands_are_called():
    assert {one[0] for one in CALLS} == set(get_command(app).commands)


@pytest.mark.parametrize("command", sorted({one[0] for one in CALLS}))
def test_help_has_an_example(command, capsys):
    assert f"`muse {command}" in " ".join(call(capsys, command, "--help").out.split())


@pytest.mark.parametrize("arguments", CALLS, ids=shlex.join)
def test_json_is_all_that_goes_to_stdout(arguments, capsys):
    said = call(capsys, *arguments, "--json")
    record = strict_json(said.out)
    assert record
    is_spoken = arguments[0] in SPOKEN and "--estimate" not in arguments
    assert bool(said.err) == (is_spoken or arguments[0] == "sample")
    assert "Next:" not in said.err


@pytest.mark.parametrize("arguments", CALLS, ids=shlex.join)
def test_quiet_prints_the_answer_alone_and_fits(arguments, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    usual = call(capsys, *arguments)
    # A word, such as a path, is never broken; TOML is a file's, and stays as it is.
    for line in usual.out.splitlines() if arguments != ["recipes", "debian"] else []:
        assert len(line) <= 40 or len(line.split()) == 1, line
    quiet = call(capsys, *arguments, "--quiet")
    assert quiet.err == ""
    assert quiet.out
    assert "Next:" not in quiet.out
    if arguments[0] in SPOKEN and "--estimate" not in arguments:
        assert "Next:" in usual.out
        assert len(quiet.out) < len(usual.out)
    assert call(capsys, "--quiet", *arguments, "--json").err == ""


def test_what_machines_are_told(capsys):
    found = strict_json(call(capsys, "train", "--resume", "run", "--json").out)
    assert found["run"] == "run"
    assert (
        found["test_accuracy"]
        == strict_json(call(capsys, "info", "run", "--json").out)["result"]["test_accuracy"]
    )
    drawn = strict_json(call(capsys, "sample", "graph", "--set", "fanouts=2", "--out", "again", "--json").out)
    facts = strict_json(call(capsys, "info", "again", "--json").out)
    assert facts == {name: drawn[name] for name in facts}
    assert strict_json(call(capsys, "recipes", "cora", "--json").out)["model"]["steps"] == 10
    assert strict_json(call(capsys, "report", "run", "--json").out) == {"report": "run/report.html"}


def test_a_comparison_is_not_written_over(place, capsys):
    (place / "mine.html").write_text("mine")
    assert main(["report", "run", "run", "--out", "mine.html"]) == 2
    assert "mine.html exists. Name another file with --out, or replace it" in capsys.readouterr().err
    assert (place / "mine.html").read_text() == "mine"
    call(capsys, "report", "run", "run", "--out", "mine.html", "--overwrite")
    assert (place / "mine.html").read_text() != "mine"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["evaluate", "rnu"], "rnu is not a run: it has no config.toml. Did you mean run?"),
        (["report", "run", "rum"], "rum is not a run: it has no config.toml. Did you mean run?"),
        (["predict", "elsewhere", "--nodes", "1", "--out", "x.csv"], "Pass the folder of a run."),
        (
            ["evaluate", "../answer/run"],
            "../answer/run is not a run: it has no config.toml. Did you mean ../",
        ),
        (["info", "../answer/run"], "../answer/run does not exist. Did you mean ../"),
        (["info", "../answer/xyz"], "../answer/xyz does not exist. There is ../"),
        (["info", "grahp"], "grahp does not exist. Did you mean graph?"),
        (["info", "debain"], "'debain' is no dataset, nor a folder here. Did you mean debian?"),
        (["train", "graphs"], "'graphs' is no recipe, no dataset and no folder here. Did you mean graph?"),
        (["train", "../answer/graph"], "no folder here."),
        (["bench", "acuracy"], "There is no bench 'acuracy'. Did you mean accuracy?"),
        (["info", "run/../grahp"], "run/../grahp does not exist. Did you mean run/../graph?"),
        (["train", "graph", "--set", "architecture=gcn"], "got 'gcn'. Did you mean 'GCN'?"),
        (["train", "graph", "--set", "architecture=GTA"], "got 'GTA'. Did you mean 'GAT'?"),
        (["train", "graph", "--set", "metric=acuracy"], "got 'acuracy'. Did you mean 'accuracy'?"),
        (["train", "graph", "--set", "metric=xyz"], "or 'roc_auc'; got 'xyz'.\n"),
        (
            ["train", "graph", "--set", "hops=2"],
            "'hops' is a setting of the sampler FullKHop, not of this one.",
        ),
        (["train", "graph", "--set", "hiden=2"], "no setting 'hiden'. Did you mean 'hidden'?"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_nearest(arguments, said, capsys):
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes(shell, capsys, monkeypatch):
    words = {"COMP_WORDS": "muse tra", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "muse tra"}
    words |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"} if shell == "fish" else {}
    for name, value in words.items():
        monkeypatch.setenv(name, value)
    for asked, answered in (("source", f"_MUSE_COMPLETE=complete_{shell}"), ("complete", "train")):
        monkeypatch.setenv("_MUSE_COMPLETE", f"{asked}_{shell}")
        with pytest.raises(SystemExit):
            main([])
        assert answered in capsys.readouterr().out


def test_ctrl_c_while_the_commands_are_imported_is_one_line():
    """Interrupted by the first module that the commands need."""
    code = """
import os, sys
class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == "typer":
            os.kill(os.getpid(), 2)
sys.meta_path.insert(0, Interrupts())
from musegnn.cli.start import main
sys.exit(main())
"""
    # Tests may run where Ctrl-C is ignored, as behind nohup, and children would follow.
    obeyed = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    done = subprocess.run([sys.executable, "-c", obeyed, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "muse: interrupted; nothing was begun.\n")
    ignored = f"import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n{code}"
    done = subprocess.run([sys.executable, "-c", ignored, "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("musegnn ")
