"""The real launcher: torchrun starts the ranks, and starts them again."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from together import alone, free_port

import tiny_runs
from musegnn.cli.main import main
from musegnn.training import checkpoint

# Four seconds of imports for each process: forks of a test stand for them in `make test`.
pytestmark = pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="MUSEGNN_PROOF is not set")
SETTINGS = tiny_runs.flags(batch_size=5, epochs=40)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return alone(tmp_path_factory.mktemp("torchrun"), SETTINGS)


def torchrun(place, *arguments, restarts=0):
    """The launcher, in a session of its own."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command = [
        *launcher,
        f"--master-port={free_port()}",
        f"--max-restarts={restarts}",
        "-m",
        "musegnn",
        *map(str, arguments),
    ]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=place, env=env, start_new_session=True, **pipes)


def training(place, out):
    given = "train", place / "graph", *SETTINGS, "--stores", place / "stores", "--checkpoint-seconds", 0.2
    return *given, "--out", place / out


def wait_for_epochs(process, run, count, seconds=60):
    """Until so many were written down."""
    deadline, events = time.monotonic() + seconds, run / "events.jsonl"
    while not events.exists() or events.read_text().count('"event": "epoch"') < count:
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"no {count} epochs: {end(process, 1)}")
        time.sleep(0.02)


def pid_of(launcher, rank):
    """The process of a rank."""
    for child in Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split():
        if f"\0RANK={rank}\0".encode() in Path(f"/proc/{child}/environ").read_bytes():
            return int(child)
    raise AssertionError(f"there is no rank {rank}")


def end(process, seconds):
    """Exit code, output, errors."""
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # The ranks have sessions of their own, and end with the launcher's SIGTERM.
        process.terminate()
        out, errors = process.communicate(timeout=40)
        pytest.fail(f"it did not end: {out}{errors}")
    return process.returncode, out, errors


def assert_same_run(found, expected):
    """Weights, and M whatever its number of shares."""
    parts = []
    for folder in (found, expected):
        loaded = checkpoint.load(folder / "checkpoint", "state")
        shares = [checkpoint.load_share(*share) for share in loaded.shares] or [loaded.tensors]
        for name in ("means.M", "means.count"):
            whole = torch.zeros(150, *shares[0][name].shape[1:], dtype=shares[0][name].dtype)
            for rank, share in enumerate(shares):
                whole[rank :: len(shares)] = share[name]
            loaded.tensors[name] = whole
        parts.append(loaded.tensors)
    assert parts[0].keys() == parts[1].keys()
    for name, part in parts[1].items():
        torch.testing.assert_close(
            parts[0][name], part, rtol=1e-4, atol=1e-5, msg=lambda t, n=name: f"{n}: {t}"
        )


def sentences(errors):
    return re.findall(r"^muse: .*", errors, re.MULTILINE)


def test_two_ranks_train_what_one_process_trains(place):
    code, out, errors = end(torchrun(place, *training(place, "two")), 60)
    assert code == 0, errors
    assert sentences(errors) == []
    assert out.count("Next: muse evaluate") == 1
    assert_same_run(place / "two", place / "one")


def test_a_killed_rank_is_started_anew_and_reaches_the_undisturbed_weights(place):
    process = torchrun(place, *training(place, "restarted"), restarts=1)
    wait_for_epochs(process, place / "restarted", 3)
    os.kill(pid_of(process, 1), signal.SIGKILL)
    code, _, errors = end(process, 60)
    assert code == 0, errors
    assert all("Rank 1 of 2 does not answer" in sentence for sentence in sentences(errors))
    assert len(sentences(errors)) <= 1
    assert_same_run(place / "restarted", place / "one")


@pytest.mark.parametrize("victim", [0, 1])
def test_without_restarts_a_kill_ends_the_job_with_a_sentence(place, victim):
    """Then the run goes on, under the launcher."""
    run = f"killed-{victim}"
    process = torchrun(place, *training(place, run))
    wait_for_epochs(process, place / run, 3)
    os.kill(pid_of(process, victim), signal.SIGKILL)
    killed = time.monotonic()
    code, _, errors = end(process, 40)
    assert code != 0
    assert time.monotonic() - killed < 30
    assert len(sentences(errors)) == 1
    assert f"Rank {victim} of 2 does not answer: killed, stuck or cut off" in sentences(errors)[0]
    code, out, errors = end(torchrun(place, "train", "--resume", place / run), 60)
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
    code, _, errors = end(torchrun(place, "train", place / "graph", "--set", "hiden=8"), 40)
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
    process = torchrun(place, *given, restarts=1)
    wait_for_epochs(process, place / "runs/graph-2", 3)
    os.kill(pid_of(process, 0), signal.SIGKILL)
    code, _, errors = end(process, 60)
    assert code == 0, errors
    assert {path.name for path in (place / "runs").iterdir()} == {"graph", "graph-2"}
    assert_same_run(place / "runs/graph-2", place / "one")
