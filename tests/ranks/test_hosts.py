"""Two hosts with addresses of their own, as network namespaces of this machine; needs root and `ip`."""

import os
import subprocess
import time
from functools import partial

import launched
import pytest
from launched import (
    HAS_HOSTS,
    PATIENCE,
    TIMEOUT,
    assert_same_run,
    ended,
    launch,
    sentences,
    two_hosts,
    wait_for_epochs,
    while_cut,
)
from together import alone

import tiny_runs

pytestmark = [
    pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="MUSEGNN_PROOF is not set"),
    pytest.mark.skipif(not HAS_HOSTS, reason="network namespaces need root and `ip`"),
]
SETTINGS = tiny_runs.flags(batch_size=5, epochs=60)
training = partial(launched.training, SETTINGS)


@pytest.fixture(scope="module")
def hosts():
    with two_hosts() as names:
        yield names


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return alone(tmp_path_factory.mktemp("hosts"), SETTINGS)


def test_two_hosts_train_what_one_process_trains(hosts, place):
    found = ended(launch(hosts, place, *training(place, "two")), PATIENCE)
    assert [code for code, _ in found] == [0, 0], found
    assert_same_run(place / "two", place / "one")


def test_a_cable_that_is_cut_in_mid_step_ends_both_hosts_with_a_sentence(hosts, place):
    """Within the timeout and a roll call; the run goes on when the cable is back."""
    started = launch(hosts, place, *training(place, "cut"))
    wait_for_epochs(started[0], place / "cut", 3)
    with while_cut(hosts):
        cut = time.monotonic()
        found = ended(started, 60)
        took = time.monotonic() - cut
    assert took < TIMEOUT + 25
    assert all(code != 0 for code, _ in found)
    (first,), (second,) = (sentences(errors) for _, errors in found)
    assert "Rank 1 of 2 does not answer: killed, stuck or cut off" in first
    assert "Rank 1 does not reach the launcher on the first machine any more" in second
    found = ended(launch(hosts, place, "train", "--resume", place / "cut"), PATIENCE)
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
