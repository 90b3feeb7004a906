"""Jobs that torchrun starts, on this machine or on two hosts with addresses of their own.

The hosts are network namespaces, which need root and `ip`.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from together import free_port

from musegnn.training import checkpoint

HAS_HOSTS = os.geteuid() == 0 and shutil.which("ip") is not None
TIMEOUT = 6
"""Seconds that a rank on one of two hosts waits for the other."""
PATIENCE = 600
"""Seconds for what no time is promised of: kernels that are compiled anew on a busy machine take a minute."""


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


def training(settings, place, out):
    """The arguments of a run on the graph of `together.alone`."""
    given = "train", place / "graph", *settings, "--stores", place / "stores", "--checkpoint-seconds", 0.2
    return *given, "--out", place / out


def wait_for_epochs(process, run, count, seconds=PATIENCE):
    """Until so many were written down."""
    deadline = time.monotonic() + seconds
    while len(epochs_of(run)) < count:
        if process.poll() is not None:
            raise AssertionError(f"it ended before {count} epochs: {end(process, 40)}")
        if time.monotonic() > deadline:
            raise AssertionError(f"no {count} epochs within {seconds} s; {stopped(process)}")
        time.sleep(0.02)


def epochs_of(run):
    """The whole lines of events.jsonl that are of epochs."""
    return [entry for entry in _events(run) if entry["event"] == "epoch"]


def _events(run):
    path = run / "events.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def kill_in_training(process, run, rank, count=3):
    """kill -9 of a rank that has trained so many epochs, and has more before it.

    The rank is held before it is looked at: no other one ends an epoch without it.
    """
    wait_for_epochs(process, run, count)
    pid = pid_of(process, rank)
    os.kill(pid, signal.SIGSTOP)
    (start,) = (entry for entry in _events(run) if entry["event"] == "start")
    done = len(epochs_of(run))
    os.kill(pid, signal.SIGKILL)
    # The others may be in the next epoch, and no further.
    assert done + 1 < start["epochs"], f"{done} of {start['epochs']} epochs were over before the kill"


def assert_started_twice(out, errors):
    """By the launcher: rank 0 says each time what it trains."""
    assert len(re.findall("^Training ", out, re.MULTILINE)) == 2, out + errors


def pid_of(launcher, rank):
    """The process of a rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children")
    for _ in range(20):
        for child in children.read_text().split() if children.exists() else ():
            # One may be gone meanwhile.
            with suppress(FileNotFoundError, ProcessLookupError):
                if f"\0RANK={rank}\0".encode() in Path(f"/proc/{child}/environ").read_bytes():
                    return int(child)
        # One that has just been started does not show its environment yet.
        time.sleep(0.05)
    raise AssertionError(f"there is no rank {rank}, or no longer")


def end(process, seconds):
    """Exit code, output, errors."""
    try:
        out, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it did not end within {seconds} s; {stopped(process)}") from None
    return process.returncode, out, errors


def stopped(process):
    """What a launcher said that was stopped, for who reads why; the signal is ours, and so is its answer."""
    # The ranks have sessions of their own, and end with the launcher's SIGTERM.
    process.terminate()
    try:
        out, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        return "stopped by this test, which it did not heed"
    return f"stopped by this test, it said: {out}{errors}"


@contextmanager
def ending(process):
    """The launcher; it does not outlive what goes wrong."""
    try:
        yield process
    finally:
        if process.poll() is None:
            stopped(process)


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


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def two_hosts():
    """Names of the two namespaces; a cable between them."""
    names = [f"muse-{os.getpid()}-{number}" for number in (0, 1)]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "cable", "netns", names[1])
        for number, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.91.7.{number + 1}/24", "dev", "cable")
            for device in ("lo", "cable"):
                ip("-n", name, "link", "set", device, "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


@contextmanager
def while_cut(hosts):
    """The cable between two hosts is cut, and mended in the end."""
    ip("-n", hosts[0], "link", "set", "cable", "down")
    try:
        yield
    finally:
        ip("-n", hosts[0], "link", "set", "cable", "up")


def launch(hosts, place, *arguments):
    """A launcher on each host. Nobody says which network interface is to be used."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MUSEGNN_RANK_TIMEOUT": str(TIMEOUT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    started = []
    for number, name in enumerate(hosts):
        where = "--master-addr=10.91.7.1", "--master-port=29517", "--nproc-per-node=1", "--nnodes=2"
        launcher = sys.executable, "-m", "torch.distributed.run", *where, f"--node-rank={number}"
        command = "ip", "netns", "exec", name, *launcher, "-m", "musegnn", *map(str, arguments)
        started.append(subprocess.Popen(command, cwd=place, env=env, **pipes))
    return started


def ended(started, seconds):
    """Exit codes and errors of both launchers; they get no longer than this."""
    deadline, found = time.monotonic() + seconds, []
    try:
        for process in started:
            _, errors = process.communicate(timeout=max(deadline - time.monotonic(), 0.1))
            found.append((process.returncode, errors))
    except subprocess.TimeoutExpired:
        raise AssertionError(f"it did not end within {seconds} s") from None
    finally:
        for process in started:
            process.terminate()
    return found
