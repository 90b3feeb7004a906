"""Drawing that is killed, at any moment, goes on in another process and ends with the same bytes."""

import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

from musegnn import Draws, SampleStore, sample
from musegnn.errors import StoreError
from musegnn.sampling import plan
from sample_stores import Logged, a_graph, contents, finished_shards, names

NUM_KILLS = 50 if "MUSEGNN_PROOF" in os.environ else 3
STEP = 1 if "MUSEGNN_PROOF" in os.environ else 3
TESTS = str(Path(__file__).parent.parent)
OPTIONS = {"batch_size": 10, "splits": ("train", "valid")}
PAUSED = Logged(pause=0.005)
DAMAGED = ("train_shard_000001.bin", "train_shard_000003.bin", "valid_sizes.bin")

DRAW = """
import sys, warnings
sys.path.insert(0, sys.argv[1])
from sample_stores import Logged, a_graph
from musegnn import sample
from musegnn.sampling import plan
warnings.simplefilter("ignore")
plan.MIN_SHARDS = 8
graph, sampler = a_graph(), Logged(pause=0.005)
sampler.draw(graph, graph.indices[:1], __import__("numpy").random.default_rng(0))
print("ready", flush=True)
sample(graph, sampler, sys.argv[2], batch_size=10, splits=("train", "valid"), workers=int(sys.argv[3]))
"""

KILLED_EVERYWHERE = """
import itertools, os, shutil, signal, sys, warnings
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sample_stores import Logged, a_graph, contents, names
from musegnn import SampleStore, sample
from musegnn.errors import StoreError
from musegnn.sampling import plan

warnings.simplefilter("ignore")
plan.MIN_SHARDS = 2
folder, mode = Path(sys.argv[2]), sys.argv[3]
graph, options = a_graph(60), {"batch_size": 8, "splits": "train"}
# Without threads before the fork: a child has only the one that made it.
whole = folder.with_name("whole")
sample(graph, Logged(), whole, **options)
expected = contents(whole)
calls, last = 0, 0

def deadly(function):
    def call(*args, **kwargs):
        global calls
        calls += 1
        if calls > last:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **kwargs)
    return call

def state():
    try:
        store = SampleStore.open(folder)
        store.verify()
    except StoreError as error:
        assert chr(10) not in str(error)
        return "none"
    assert contents(folder) == expected
    return "whole"

states = []
for last in itertools.count(0, int(sys.argv[4])):
    if mode != "fresh":
        shutil.copytree(whole, folder)
        (folder / "train_shard_000000.bin").write_bytes(b"damaged")
    child = os.fork()
    if child == 0:
        for name in ("rename", "unlink", "mkdir", "open"):
            setattr(Path, name, deadly(getattr(Path, name)))
        for name in ("fsync", "rmdir", "unlink", "open", "link"):
            setattr(os, name, deadly(getattr(os, name)))
        sample(graph, Logged(), folder, overwrite=mode == "overwrite", **options)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    states.append(state())
    if os.WIFEXITED(status):
        assert status == 0, status
        break
    sample(graph, Logged(), folder, workers=2, overwrite=mode == "overwrite", **options).verify()
    assert contents(folder) == expected
    assert names(folder.parent) == [folder.name, "whole"], (last, names(folder.parent))
    assert names(folder) == names(whole)
    shutil.rmtree(folder)
print(*states)
"""


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """beartype would draw samples of its own: it looks at one random item of a sequence."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed store."""
    folder = tmp_path_factory.mktemp("whole") / "s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MIN_SHARDS", 8)
        sample(a_graph(), PAUSED, folder, **OPTIONS)
    return folder


def drawn_after(graph, folder, log, workers):
    """Go on, and say which samples were drawn, by their first seeds."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setattr(plan, "MIN_SHARDS", 8)
        patch.setenv("MUSEGNN_TEST_LOG", str(log))
        # A store that was being mended is still damaged.
        warnings.simplefilter("ignore")
        sample(graph, PAUSED, folder, workers=workers, **OPTIONS).verify()
    return set(log.read_text().split()) if log.exists() else set()


def first_seeds(graph, shards, whole):
    """The first seed of each sample of some shards, but for the first sample, which every plan draws."""
    sizes = SampleStore.open(whole).stored.header.attributes["splits"]
    found = set()
    for name in shards:
        split, _, number = name.split("_")
        draws, size = Draws(graph, PAUSED, split, batch_size=10), sizes[split]["shard_size"]
        for index in range(int(number) * size, min((int(number) + 1) * size, len(draws))):
            found |= {str(draws.seeds(index)[0])} if index else set()
    return found


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_killed_drawing_goes_on_in_another_process(tmp_path, whole, number):
    """Killed at a moment drawn from the time that it takes; every third time a store is being mended."""
    folder, graph = tmp_path / "s", a_graph()
    mends = number % 3 == 2
    if mends:
        folder.mkdir()
        for path in whole.iterdir():
            if path.name not in DAMAGED:
                (folder / path.name).write_bytes(path.read_bytes())
    rng = np.random.default_rng(number)
    command = [sys.executable, "-c", DRAW, TESTS, str(folder), str(rng.integers(1, 4))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        end = time.monotonic() + rng.uniform(0, 0.35)
        while time.monotonic() < end:
            # Whatever can be opened while it is drawn is complete.
            try:
                store = SampleStore.open(folder)
            except StoreError:
                time.sleep(0.005)
            else:
                assert store.digest == SampleStore.open(whole).digest
                break
        time.sleep(max(0, end - time.monotonic()))
        process.send_signal(signal.SIGKILL)
    with suppress(StoreError):
        SampleStore.open(folder).verify()
        assert contents(folder) == contents(whole)
    finished = finished_shards(folder)
    drawn = drawn_after(graph, folder, tmp_path / "log", workers=1 + number % 2)
    assert contents(folder) == contents(whole)
    assert set(names(tmp_path)) <= {"log", "s"}
    assert names(folder) == names(whole)
    assert not drawn & first_seeds(graph, finished, whole)


@pytest.mark.parametrize("mode", ["fresh", "mend", "overwrite"])
def test_drawing_killed_before_any_of_its_file_operations(tmp_path, mode):
    """Not by luck: a child dies before its 1st, 2nd, ... call that touches a folder or syncs a file.

    All of them with MUSEGNN_PROOF, one in three without.
    """
    (tmp_path / "stores").mkdir()
    command = [
        sys.executable,
        "-c",
        KILLED_EVERYWHERE,
        TESTS,
        str(tmp_path / "stores" / "s"),
        mode,
        str(STEP),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    states = done.stdout.split()
    # Nothing that can be opened, and then, from one operation on, the whole.
    at = states.index("whole")
    assert set(states[:at]) == {"none"}
    assert set(states[at:]) == {"whole"}
    assert at * STEP > 20
