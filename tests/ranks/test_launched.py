"""What tests of launchers lean on: a kill that is too late, or a job that is only slow, is told as such."""

import json
import os
import signal
import subprocess
import sys

import launched
import pytest

LAUNCHER = """
import os, subprocess, sys
rank = subprocess.Popen(["sleep", "60"], env={**os.environ, "RANK": "1", "LOCAL_RANK": "1"})
print(rank.pid, flush=True)
try:
    print("Training ended with", rank.wait(), flush=True)
except KeyboardInterrupt:
    rank.kill()
    print("Training was interrupted", flush=True)
"""


@pytest.fixture
def launcher():
    """Of one rank, which waits to be killed; SIGTERM ends both."""
    code = "import signal; signal.signal(signal.SIGTERM, signal.default_int_handler)" + LAUNCHER
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([sys.executable, "-S", "-c", code], **pipes) as process,
        launched.ending(process),
    ):
        process.rank = int(process.stdout.readline())
        yield process


def write_events(run, num_epochs, of=60):
    lines = [{"event": "start", "epochs": of}, *({"event": "epoch", "epoch": n} for n in range(num_epochs))]
    (run / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_rank_is_killed_in_training(launcher, tmp_path):
    write_events(tmp_path, 3)
    launched.kill_in_training(launcher, tmp_path, 1)
    assert launched.end(launcher, 20)[:2] == (0, f"Training ended with {-signal.SIGKILL}\n")


@pytest.mark.parametrize("num_epochs", [59, 60])
def test_a_kill_that_comes_when_training_is_over_proves_nothing(launcher, tmp_path, num_epochs):
    write_events(tmp_path, num_epochs)
    with pytest.raises(AssertionError, match=f"{num_epochs} of 60 epochs were over before the kill"):
        launched.kill_in_training(launcher, tmp_path, 1)


def test_a_job_that_is_slow_is_said_to_be_so(launcher, tmp_path):
    """Not to have ended by the signal that the test itself has sent."""
    write_events(tmp_path, 2)
    with open(tmp_path / "events.jsonl", "a") as file:
        file.write('{"event": "epo')
    words = "no 3 epochs within 0.1 s; stopped by this test, it said: Training was interrupted"
    with pytest.raises(AssertionError, match=words):
        launched.wait_for_epochs(launcher, tmp_path, 3, seconds=0.1)
    assert launcher.poll() is not None


def test_a_launcher_that_has_ended_is_not_waited_for(launcher, tmp_path):
    os.kill(launcher.rank, signal.SIGKILL)
    with pytest.raises(AssertionError, match="it ended before 3 epochs: .*Training ended with -9"):
        launched.wait_for_epochs(launcher, tmp_path, 3)


def test_a_run_that_was_not_started_anew_is_no_restart():
    said = "E1118 failed (exitcode: -9) local_rank: 0"
    launched.assert_started_twice("Training graph\n  epoch\nTraining graph\n", said)
    with pytest.raises(AssertionError, match="exitcode: -9"):
        launched.assert_started_twice("Training graph\n  epoch\n", said)


def test_a_rank_that_is_gone_is_said_to_be_so(launcher):
    """And does not end the whole fault table."""
    os.kill(launcher.rank, signal.SIGKILL)
    launcher.wait()
    with pytest.raises(AssertionError, match="there is no rank 1, or no longer"):
        launched.pid_of(launcher, 1)
