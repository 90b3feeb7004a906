"""A build that is killed leaves no store or the right one, and the next build does not notice."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from musegnn import Graph
from musegnn.errors import StoreError
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource

NUM_KILLS = 50 if "MUSEGNN_PROOF" in os.environ else 3
SLOW = {"num_nodes": 300, "num_chunks": 20}
SHORT = {"num_nodes": 2, "num_chunks": 1}

BUILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_kill import SLOW, a_source
from musegnn import Graph
print("ready", flush=True)
Graph.from_source(a_source(**SLOW, pause=0.04), sys.argv[2], memory=60_000, workers=2, overwrite=True)
"""

KILLED_EVERYWHERE = """
import itertools, os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_kill import SHORT, a_source, state_of
from musegnn import Graph

folder = Path(sys.argv[2])
overwrite = sys.argv[3] == "overwrite"
calls, last = 0, 0

def deadly(function):
    def call(*args, **options):
        global calls
        calls += 1
        if calls > last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return call

def write():
    Graph.from_source(a_source(**SHORT), folder, workers=1, overwrite=overwrite)

states = []
for last in itertools.count():
    if overwrite:
        Graph.from_source(a_source(**SHORT, seed=1), folder, workers=1)
    child = os.fork()
    if child == 0:
        for name in ("rename", "unlink", "mkdir", "open"):
            setattr(Path, name, deadly(getattr(Path, name)))
        for name in ("fsync", "rmdir", "unlink", "open"):
            setattr(os, name, deadly(getattr(os, name)))
        write()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    states.append(state_of(folder, SHORT))
    if os.WIFEXITED(status):
        assert status == 0, status
        break
    Graph.from_source(a_source(**SHORT), folder, workers=1, overwrite=True).verify()
    assert sorted(path.name for path in folder.parent.iterdir()) == [folder.name], folder
    shutil.rmtree(folder)
print(*states)
"""


def a_source(num_nodes, num_chunks, pause=0.0, seed=0):
    """Chunks of fifty edges and five blocks of features, each after a pause."""
    rng = np.random.default_rng(seed)
    index, relation = rng.integers(0, num_nodes, (num_chunks, 2, 50)), rng.integers(0, 3, (num_chunks, 50))
    features = rng.random((num_nodes, 4), dtype=np.float32)

    def edges():
        for (source, target), numbers in zip(index, relation, strict=True):
            time.sleep(pause)
            yield EdgeChunk(source, target, numbers)

    def blocks(topology):
        for block in np.array_split(features, 5):
            time.sleep(pause)
            yield block

    return GraphSource(
        name="slow",
        edges=edges,
        num_nodes=num_nodes,
        num_edges=50 * num_chunks,
        features=FeatureSource(dim=4, dtype=np.float32, blocks=blocks),
        labels=rng.integers(0, 4, num_nodes),
        relation_names=["a", "b", "c"],
    )


def state_of(folder, size):
    """What a reader finds: nothing, the old store (seed 1) or the new one, each whole."""
    try:
        graph = Graph.open(folder)
    except StoreError:
        return "none"
    graph.verify()
    new, old = (Graph.from_source(a_source(**size, seed=seed)).digest for seed in (0, 1))
    return {new: "new", old: "old"}[graph.digest]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_a_killed_build_leaves_no_store_or_the_right_one(tmp_path, number):
    """Killed at a moment drawn from the second that it takes; every other time it overwrites a store."""
    overwrites = number % 2 == 1
    if overwrites:
        Graph.from_source(a_source(**SLOW, seed=1), tmp_path / "g", workers=1)
    command = [sys.executable, "-c", BUILD, os.path.dirname(__file__), str(tmp_path / "g")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(np.random.default_rng(number).uniform(0, 1.4))
        process.send_signal(signal.SIGKILL)
    assert state_of(tmp_path / "g", SLOW) in ({"old", "new", "none"} if overwrites else {"none", "new"})
    Graph.from_source(a_source(**SLOW), tmp_path / "g", workers=1, overwrite=True)
    assert state_of(tmp_path / "g", SLOW) == "new"
    assert names(tmp_path) == ["g"]
    assert "replaced" not in names(tmp_path / "g")


@pytest.mark.parametrize("mode", ["fresh", "overwrite"])
def test_a_build_killed_before_any_of_its_file_operations(tmp_path, mode):
    """Not by luck: a child dies before its 1st, 2nd, ... call that touches a folder or syncs a file."""
    (tmp_path / "stores").mkdir()
    command = [sys.executable, "-c", KILLED_EVERYWHERE, os.path.dirname(__file__)]
    done = subprocess.run(
        [*command, str(tmp_path / "stores" / "g"), mode], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    states = done.stdout.split()
    before = "old" if mode == "overwrite" else "none"
    assert (states[0], states[-1]) == (before, "new")
    # From the old state to the new one, with nothing in its place for at most one operation.
    at = states.index("new")
    assert set(states[at:]) == {"new"}
    assert set(states[: at - 1]) == {before}
    assert len(states) > 20
