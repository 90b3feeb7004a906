"""Jobs that torchrun starts, on this machine or on two hosts with addresses of their own.

The hosts are network namespaces, which need root and `ip`.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import torch
from together import free_port

from musegnn.training import checkpoint

HAS_HOSTS = os.geteuid() == 0 and shutil.which("ip") is not None
TIMEOUT = 6
"""Seconds that a rank on one of two hosts waits for the other."""


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


def wait_for_epochs(process, run, count, seconds=60):
    """Until so many were written down."""
    deadline, events = time.monotonic() + seconds, run / "events.jsonl"
    while not events.exists() or events.read_text().count('"event": "epoch"') < count:
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"no {count} epochs: {end(process, 1)}")
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
        raise AssertionError(f"it did not end: {out}{errors}") from None
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
    finally:
        for process in started:
            process.terminate()
    return found
