"""Two hosts with addresses of their own, as network namespaces of this machine; needs root and `ip`."""

import os
import shutil
import subprocess
import sys
import time

import pytest
from test_torchrun import assert_same_run, sentences, wait_for_epochs
from together import alone

import tiny_runs

pytestmark = [
    pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="MUSEGNN_PROOF is not set"),
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("ip") is None, reason="network namespaces need root and `ip`"
    ),
]
SETTINGS = tiny_runs.flags(batch_size=5, epochs=60)
TIMEOUT = 6


def ip(*arguments):
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def hosts():
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


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return alone(tmp_path_factory.mktemp("hosts"), SETTINGS)


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


def training(place, out):
    given = "train", place / "graph", *SETTINGS, "--stores", place / "stores", "--checkpoint-seconds", 0.2
    return *given, "--out", place / out


def test_two_hosts_train_what_one_process_trains(hosts, place):
    found = ended(launch(hosts, place, *training(place, "two")), 90)
    assert [code for code, _ in found] == [0, 0], found
    assert_same_run(place / "two", place / "one")


def test_a_cable_that_is_cut_in_mid_step_ends_both_hosts_with_a_sentence(hosts, place):
    """Within the timeout and a roll call; the run goes on when the cable is back."""
    started = launch(hosts, place, *training(place, "cut"))
    wait_for_epochs(started[0], place / "cut", 3)
    ip("-n", hosts[0], "link", "set", "cable", "down")
    try:
        cut = time.monotonic()
        found = ended(started, 60)
        took = time.monotonic() - cut
    finally:
        ip("-n", hosts[0], "link", "set", "cable", "up")
    assert took < TIMEOUT + 25
    assert all(code != 0 for code, _ in found)
    (first,), (second,) = (sentences(errors) for _, errors in found)
    assert "Rank 1 of 2 does not answer: killed, stuck or cut off" in first
    assert "Rank 1 does not reach the launcher on the first machine any more" in second
    found = ended(launch(hosts, place, "train", "--resume", place / "cut"), 90)
    assert [code for code, _ in found] == [0, 0], found
    assert_same_run(place / "cut", place / "one")


def test_a_rank_that_is_killed_on_the_other_host_is_named_here(hosts, place):
    """Launchers that know nothing of each other: it is the ranks that notice."""
    started = launch(hosts, place, *training(place, "killed"))
    wait_for_epochs(started[0], place / "killed", 3)
    listed = subprocess.run(["ip", "netns", "pids", hosts[1]], capture_output=True, text=True).stdout
    ranks = [int(pid) for pid in listed.split() if is_rank(pid)]
    assert len(ranks) == 1
    os.kill(ranks[0], 9)
    killed = time.monotonic()
    found = ended(started, 40)
    assert time.monotonic() - killed < 30
    assert all(code != 0 for code, _ in found)
    assert "Rank 1 of 2 does not answer" in sentences(found[0][1])[0]


def is_rank(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        return b"\0RANK=1\0" in file.read()
