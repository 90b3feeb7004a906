"""The real launcher: torchrun starts the ranks, and starts them again."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import launched
import pytest
from launched import (
    PATIENCE,
    assert_same_run,
    assert_started_twice,
    end,
    ending,
    kill_in_training,
    pid_of,
    sentences,
    torchrun,
    wait_for_epochs,
)
from together import alone

import tiny_runs
from musegnn.cli.main import main

# Four seconds of imports for each process: forks of a test stand for them in `make test`.
pytestmark = pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="MUSEGNN_PROOF is not set")
SETTINGS = tiny_runs.flags(batch_size=5, epochs=40)
training = partial(launched.training, SETTINGS)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return alone(tmp_path_factory.mktemp("torchrun"), SETTINGS)


def test_two_ranks_train_what_one_process_trains(place):
    code, out, errors = end(torchrun(place, *training(place, "two")), PATIENCE)
    assert code == 0, errors
    assert sentences(errors) == []
    assert out.count("Next: muse evaluate") == 1
    assert_same_run(place / "two", place / "one")


def test_a_killed_rank_is_started_anew_and_reaches_the_undisturbed_weights(place):
    with ending(torchrun(place, *training(place, "restarted"), restarts=1)) as process:
        kill_in_training(process, place / "restarted", 1)
        code, out, errors = end(process, PATIENCE)
    assert code == 0, errors
    assert_started_twice(out, errors)
    assert all("Rank 1 of 2 does not answer" in sentence for sentence in sentences(errors))
    assert len(sentences(errors)) <= 1
    assert_same_run(place / "restarted", place / "one")


@pytest.mark.parametrize("victim", [0, 1])
def test_without_restarts_a_kill_ends_the_job_with_a_sentence(place, victim):
    """Then the run goes on, under the launcher."""
    run = f"killed-{victim}"
    with ending(torchrun(place, *training(place, run))) as process:
        kill_in_training(process, place / run, victim)
        killed = time.monotonic()
        code, _, errors = end(process, 40)
    assert code != 0
    assert time.monotonic() - killed < 30
    assert len(sentences(errors)) == 1
    assert f"Rank {victim} of 2 does not answer: killed, stuck or cut off" in sentences(errors)[0]
    code, out, errors = end(torchrun(place, "train", "--resume", place / run), PATIENCE)
    assert code == 0, errors
    assert "Going on with" in out
    assert_same_run(place / run, place / "one")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_the_launcher_is_answered_once(place, number):
    run = f"interrupted-{number}"
    process = torchrun(place, *training(place, run))
    wait_for_epochs(process, place / run, 3)
    process.send_signal(number)
    code, _, errors = end(process, 40)
    assert code != 0
    assert sentences(errors) == [
        f"muse: interrupted; the last checkpoint is kept. Go on with: muse train --resume {place / run}"
    ]
    # One process goes on with what two began.
    assert main(["train", "--resume", str(place / run)]) == 0
    assert_same_run(place / run, place / "one")


def test_a_mistake_is_said_once(place):
    code, _, errors = end(torchrun(place, "train", place / "graph", "--set", "hiden=8"), PATIENCE)
    assert code != 0
    assert sentences(errors) == ["muse: there is no setting 'hiden'. Did you mean 'hidden'?"]


def test_a_launcher_that_is_gone_is_no_reason_to_hang(place):
    """The ranks go on without it, or say that they have lost it."""
    process = torchrun(place, *training(place, "orphans"))
    wait_for_epochs(process, place / "orphans", 3)
    pids = [pid_of(process, rank) for rank in (0, 1)]
    process.kill()
    deadline = time.monotonic() + 60
    while any(is_alive(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    errors = end(process, 10)[2]
    assert (place / "orphans/result.json").exists() or "does not reach the launcher" in errors


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_run_without_a_name_goes_on_in_its_own_folder(place):
    """Not in that of an earlier run, and in no new one."""
    given = "train", place / "graph", *SETTINGS, "--stores", place / "stores", "--checkpoint-seconds", 0.2
    (place / "runs/graph").mkdir(parents=True)
    (place / "runs/graph/result.json").touch()
    with ending(torchrun(place, *given, restarts=1)) as process:
        kill_in_training(process, place / "runs/graph-2", 0)
        code, out, errors = end(process, PATIENCE)
    assert code == 0, errors
    assert_started_twice(out, errors)
    assert {path.name for path in (place / "runs").iterdir()} == {"graph", "graph-2"}
    assert_same_run(place / "runs/graph-2", place / "one")
