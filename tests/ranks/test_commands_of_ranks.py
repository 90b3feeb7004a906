"""Several ranks draw, evaluate and predict what one process does, byte by byte, and say it once."""

import io
import json
import os
import signal
import time
from contextlib import redirect_stderr, redirect_stdout

import pytest
from together import at_call, die, results, start, together

import tiny_runs
from musegnn import UniformInduced
from musegnn.cli.main import main
from musegnn.errors import RankError
from musegnn.inference.tables import PredictionWriter
from musegnn.runs import Run
from musegnn.sampling import layout
from musegnn.training import checkpoint
from musegnn.training.loop import Trainer

PROOF = pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="MUSEGNN_PROOF is not set")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A graph, samples and a run, as one process makes them."""
    folder = tmp_path_factory.mktemp("commands")
    tiny_runs.tiny_run(folder)
    return folder


def command(*arguments):
    """Exit code, output and errors of a command, on this rank."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        try:
            code = main([str(part) for part in arguments])
        except SystemExit as left:
            code = left.code
    return code, out.getvalue(), errors.getvalue()


def on_ranks(size, *arguments):
    """What the first one prints; the others print nothing, and none of them an error."""
    found = together(size, lambda ranks: command(*arguments))
    assert [(code, errors) for code, _, errors in found] == [(0, "")] * size
    assert [out for _, out, _ in found[1:]] == [""] * (size - 1)
    return found[0][1]


def drawn(folder):
    """All of a sample store but its name and time."""
    return {name: digest for name, digest in tiny_runs.bytes_of(folder).items() if name != "info.json"}


SAMPLING = ("--set", "fanouts=4,3", "--batch-size", 4, "--workers", 1)


def test_ranks_draw_the_same_bytes_and_go_on_after_a_kill(place, tmp_path):
    given = ("sample", place / "graph", *SAMPLING, "--out")
    assert command(*given, tmp_path / "one")[0] == 0

    def killed(ranks):
        if ranks.rank == 1:
            at_call(layout, "append", 3, die)
        main([str(part) for part in (*given, tmp_path / "many")])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("musegnn.cli.main._fail", fail_loudly)
        found = results(start(2, killed, timeout=1.5))
    assert str(found[0][1]).startswith("Rank 1 of 2 does not answer")
    assert not (tmp_path / "many").exists()
    said = on_ranks(3, *given, tmp_path / "many")
    assert "Wrote" in said
    assert drawn(tmp_path / "many") == drawn(tmp_path / "one")
    # Nothing is left to draw.
    on_ranks(2, *given, tmp_path / "many")


def fail_loudly(message):
    raise RankError(message)


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=PROOF)])
def test_ranks_evaluate_the_same_numbers(place, size):
    ways = [(), ("--online", "--seed", "5"), ("--hops", "1")]
    for how in ways if "MUSEGNN_PROOF" in os.environ else ways[:1]:
        given = ("evaluate", place / "run", *how, "--json")
        code, out, _ = command(*given)
        assert code == 0
        assert json.loads(on_ranks(size, *given)) == json.loads(out)


@PROOF
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_evaluate_and_predict_free_samples_once(tmp_path, size):
    """Seeds that several samples have count once, whoever has them."""
    tiny_runs.tiny_run(tmp_path, UniformInduced(p=0.5, num_samples=7))
    given = ("evaluate", tmp_path / "run", "--json")
    assert json.loads(on_ranks(size, *given)) == json.loads(command(*given)[1])
    given = ("predict", tmp_path / "run", "--nodes", "test", "--hops", 2, "--out")
    assert command(*given, tmp_path / "one.csv")[0] == 0
    on_ranks(size, *given, tmp_path / "many.csv")
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "many.csv").read_bytes()


@PROOF
def test_ranks_predict_the_same_bytes_and_go_on_after_a_kill(place, tmp_path):
    given = ("predict", place / "run", "--nodes", "all", "--out")
    assert command(*given, tmp_path / "one.csv")[0] == 0

    def killed(ranks):
        if ranks.is_first:
            at_call(PredictionWriter, "add", 3, die)
        main([str(part) for part in (*given, tmp_path / "many.csv")])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("musegnn.cli.main._fail", fail_loudly)
        found = results(start(2, killed))
    assert str(found[1][1]).startswith("Rank 0 of 2 does not answer")
    assert "Going on: 2 of" in on_ranks(3, *given, tmp_path / "many.csv")
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "many.csv").read_bytes()


WRONG = {
    "setting": "muse: there is no setting 'hiden'. Did you mean 'hidden'?\n",
    "option": "muse: No such option: --hiden",
    "folder": "muse: nowhere is not a run",
    "whole graph": "muse: --full is for one process, got 2 ranks. Start it without torchrun.\n",
    "command": "muse: Rank 1 has the command sample, rank 0 has evaluate; all must be alike.",
    "seed": "muse: Rank 1 has seed 1, rank 0 has 0; all must be alike.",
    # Before anything is drawn, which may take hours.
    "lr": "muse: Rank 1 has the setting lr 0.03, rank 0 has 0.02; all must be alike.",
    "table": "muse: Predictions are written to .parquet, .npy, .csv, got p.txt.",
}


@pytest.mark.parametrize(
    "name", [n if n in ("setting", "lr", "table") else pytest.param(n, marks=PROOF) for n in WRONG]
)
def test_what_a_command_got_wrong_is_said_once(place, tmp_path, name):
    def work(ranks):
        other = "evaluate" if ranks.is_first else "sample"
        # One of them names a folder, the other does not.
        rates = tiny_runs.flags(lr=0.02), (*tiny_runs.flags(lr=0.03), "--out", tmp_path / "no")
        commands = {
            "setting": ("train", place / "graph", "--set", "hiden=8", "--out", tmp_path / "no"),
            "option": ("train", place / "graph", "--hiden", 8, "--out", tmp_path / "no"),
            "folder": ("evaluate", "nowhere"),
            "whole graph": ("evaluate", place / "run", "--full"),
            "command": (other, place / "run"),
            "seed": ("sample", place / "graph", "--seed", ranks.rank, "--out", tmp_path / "no"),
            "lr": ("train", place / "graph", *rates[ranks.rank], "--stores", tmp_path / "no"),
            "table": ("predict", place / "run", "--nodes", "all", "--out", "p.txt"),
        }
        return command(*commands[name])

    first, second = together(2, work, joins=False)
    assert first[0] == second[0] == 2
    assert first[2].startswith(WRONG[name])
    assert first[2].count("\n") == 1
    assert second[1:] == ("", "")
    assert not (tmp_path / "no").exists()


def test_what_one_rank_alone_has_is_said_by_it(place, tmp_path):
    """A folder that is on one machine only."""

    def work(ranks):
        return command("evaluate", place / "run" if ranks.is_first else tmp_path / "nowhere")

    first, second = together(2, work, joins=False)
    sentence = f"{tmp_path / 'nowhere'} is not a run: it has no config.toml. Pass the folder of a run."
    assert first == (1, "", f"muse: Rank 1 has stopped: {sentence}\n")
    assert second == (2, "", f"muse: rank 1: {sentence}\n")


def test_an_interrupt_of_all_ranks_is_said_once_and_all_have_saved(place, tmp_path):
    """By Ctrl-C on a terminal, or by a launcher that ends its ranks."""

    def work(ranks):
        at_call(Trainer, "step", 3, lambda _: os.kill(os.getpid(), signal.SIGTERM))
        given = "train", place / "graph", *tiny_runs.flags(batch_size=5), "--stores", tmp_path
        return command(*given, "--out", tmp_path / "run")

    first, second = together(2, work, joins=False)
    assert first[0] == second[0] == 130
    again = f"muse train --resume {tmp_path / 'run'}"
    assert first[2] == f"muse: interrupted; the last checkpoint is kept. Go on with: {again}\n"
    assert second[1:] == ("", "")
    assert checkpoint.facts_of(tmp_path / "run/checkpoint", "state")["position"]["step"] == 3
    if "MUSEGNN_PROOF" not in os.environ:
        return
    # On as many ranks as there happen to be.
    found = together(3, lambda ranks: command(*again.split()[1:]), joins=False)
    assert [code for code, *_ in found] == [0] * 3
    assert "Going on with" in found[0][1]


def test_a_rank_that_never_comes_is_named(place):
    def work(ranks):
        if ranks.rank == 1:
            die()
        return command("evaluate", place / "run")

    found = results(start(3, work, joins=False, timeout=2.0))
    for rank in (0, 2):
        assert found[rank][0][0] == 1
        assert "Rank 1 of 3 did not come within 2 s. Start torchrun on every machine" in found[rank][0][2]


@PROOF
def test_a_rank_that_is_gone_is_named_by_those_whom_the_launcher_then_interrupts(place):
    """As torchrun does: it ends the others with SIGTERM."""

    def work(ranks):
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        if ranks.rank == 1:
            at_call(Run, "evaluate", 1, die)
        else:
            at_call(Run, "evaluate", 1, lambda _: (time.sleep(0.5), os.kill(os.getpid(), signal.SIGTERM)))
        return command("evaluate", place / "run")

    found = results(start(3, work, joins=False))
    for rank in (0, 2):
        assert found[rank][0][0] == 1
        assert "Rank 1 of 3 does not answer" in found[rank][0][2]
