"""The same bytes however they are drawn, and whatever happens while they are drawn."""

import copy
import errno
import gc
import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from musegnn import (
    Draws,
    FullKHop,
    Graph,
    InputError,
    SampleStore,
    SeededSampler,
    ShadowKHop,
    UniformInduced,
    sample,
)
from musegnn.sampling import layout
from musegnn.sampling import offline as module
from musegnn.sampling import plan as plan_module
from musegnn.sampling.plan import Plan, estimate
from musegnn.store import ArrayWriter
from sample_stores import (
    SAMPLERS,
    Logged,
    Overlapping,
    a_graph,
    contents,
    drawn_in_few_shards,
    finished_shards,
    is_equal,
    leave_unfinished,
    names,
    refused,
)

# beartype looks at one random item of a sequence that is passed on, and so would draw samples of its own.
pytestmark = pytest.mark.usefixtures("unchecked")

OPTIONS = {"batch_size": 20, "splits": ("train", "valid")}

HOLD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from sample_stores import Logged, a_graph
import musegnn

class Held(Logged):
    def draw(self, graph, seeds, rng):
        print("drawing", flush=True)
        sys.stdin.readline()
        return super().draw(graph, seeds, rng)

musegnn.sample(a_graph(), Held(), sys.argv[2], batch_size=1000, splits="train")
"""

LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[1])
from sample_stores import a_graph
import musegnn
from musegnn.sampling import plan
plan.MIN_SHARDS = 1
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]), int(sys.argv[3])))
try:
    musegnn.sample(a_graph(), musegnn.FullKHop(1), sys.argv[2], batch_size=10, splits=("train", "test"))
except musegnn.errors.StoreError as error:
    print(error)
"""

TESTS = str(Path(__file__).parent.parent)


@pytest.fixture(scope="module")
def graph():
    return a_graph()


@pytest.fixture(autouse=True)
def few_shards(monkeypatch):
    """Four or five shards a split."""
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)


@pytest.fixture(scope="module")
def undisturbed(graph, tmp_path_factory):
    """Every byte of the store that `Logged` gives."""
    folder = tmp_path_factory.mktemp("undisturbed") / "s"
    return contents(drawn_in_few_shards(graph, folder, **OPTIONS))


@dataclass(frozen=True)
class Failing(SeededSampler):
    """`Logged` under its name, until a draw fails."""

    pause: float = 0.0

    def draw(self, graph, seeds, rng):
        with Failing.lock:
            Failing.left -= 1
            left = Failing.left
        if left < 0:
            Failing.fail()
        return ShadowKHop([2]).draw(graph, seeds, rng)


Failing.__name__ = "Logged"


def failing(after, fail):
    Failing.lock, Failing.left, Failing.fail = threading.Lock(), after, staticmethod(fail)
    return Failing()


def error_out():
    raise ZeroDivisionError("in draw")


@pytest.mark.parametrize("sampler", [*SAMPLERS, Overlapping()], ids=lambda sampler: type(sampler).__name__)
def test_the_bytes_do_not_depend_on_the_number_of_workers(graph, tmp_path, sampler):
    for workers in (1, 2, 5):
        sample(graph, sampler, tmp_path / f"s{workers}", workers=workers, **OPTIONS).verify()
    assert contents(tmp_path / "s1") == contents(tmp_path / "s2") == contents(tmp_path / "s5")
    assert names(tmp_path) == ["s1", "s2", "s5"]


@pytest.mark.parametrize("sampler", [*SAMPLERS, Overlapping()], ids=lambda sampler: type(sampler).__name__)
def test_a_graph_on_disk_gives_the_bytes_of_the_one_in_memory(graph, tmp_path, sampler):
    graph.save(tmp_path / "g")
    sample(graph, sampler, tmp_path / "memory", **OPTIONS)
    sample(Graph.open(tmp_path / "g"), sampler, str(tmp_path / "disk"), **OPTIONS)
    assert contents(tmp_path / "memory") == contents(tmp_path / "disk")


def test_the_order_in_which_shards_are_drawn_leaves_no_trace(graph, tmp_path, monkeypatch, undisturbed):

    draw = module._draw_missing

    def backwards(writer, journal, plan, workers):
        turned = copy.copy(plan)
        turned.shards = lambda: reversed(list(plan.shards()))
        draw(writer, journal, turned, workers)

    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    monkeypatch.setattr(module, "_draw_missing", backwards)
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed
    # Behind the two first samples, which the plan draws: valid before train.
    last = Draws(graph, Logged(), "valid", batch_size=20)
    assert (tmp_path / "log").read_text().split()[2] == str(last.seeds(3 * ((len(last) - 1) // 3))[0])


def test_the_order_of_the_splits_leaves_no_trace(graph, tmp_path, undisturbed):
    sample(graph, Logged(), tmp_path / "s", batch_size=20, splits=("valid", "train", "valid"))
    assert contents(tmp_path / "s") == undisturbed


def test_all_splits_are_drawn_unless_some_are_named(graph, tmp_path):
    assert list(sample(graph, ShadowKHop([2]), tmp_path / "s")) == ["train", "valid", "test"]


def test_a_store_holds_its_files_and_no_others(graph, tmp_path):
    store = sample(graph, ShadowKHop([2]), tmp_path / "s", batch_size=20, splits="train")
    shards = [f"train_shard_{i:06d}.bin" for i in range(4)]
    assert names(tmp_path / "s") == ["header.json", "train_bounds.bin", *shards, "train_sizes.bin"]
    assert (
        store.stored.header.attributes
        == Plan(graph, ShadowKHop([2]), "train", batch_size=20, seed=0).attributes
    )
    assert store.stored.header.provenance["name"] == "random 0"


def test_the_shards_of_a_store_are_its_samples_end_to_end(graph, tmp_path):
    """What the tables say, and nothing between."""
    store = sample(graph, ShadowKHop([2]), tmp_path / "s", **OPTIONS)
    for split, samples in store.items():
        drawn = Draws(graph, ShadowKHop([2]), split, batch_size=20)
        expected = b"".join(piece.tobytes() for one in drawn for piece in layout.parts(one))
        shards = sorted((tmp_path / "s").glob(f"{split}_shard_*.bin"))
        assert b"".join(path.read_bytes() for path in shards) == expected
        assert np.array_equal(samples.bounds, [one.bounds for one in drawn])


def test_drawing_again_returns_the_store_and_changes_nothing(graph, tmp_path, monkeypatch):
    first = sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()}
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    second = sample(graph, Logged(), tmp_path / "s", workers=2, **OPTIONS)
    assert first.digest == second.digest
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "s").iterdir()} == before
    # The first sample of each split, for the plan, and no more.
    assert len((tmp_path / "log").read_text().split()) == 2
    assert names(tmp_path) == ["log", "s"]


def test_overwriting_draws_the_same_again(graph, tmp_path, monkeypatch):
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    before = contents(tmp_path / "s")
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    sample(graph, Logged(), tmp_path / "s", overwrite=True, **OPTIONS)
    assert contents(tmp_path / "s") == before
    assert len((tmp_path / "log").read_text().split()) > 20
    assert names(tmp_path) == ["log", "s"]


def test_nothing_is_announced_if_nothing_is_to_be_drawn(graph, tmp_path):
    told = []

    def announce(plan, num_there):
        told.append((type(plan), num_there))

    sample(graph, Logged(), tmp_path / "s", announce=announce, **OPTIONS)
    assert told == [(Plan, 0)]
    sample(graph, Logged(), tmp_path / "s", announce=announce, **OPTIONS)
    assert len(told) == 1
    (tmp_path / "s" / "train_shard_000001.bin").unlink()
    with pytest.warns(UserWarning, match="train_shard_000001.bin"):
        store = sample(graph, Logged(), tmp_path / "s", announce=announce, **OPTIONS)
    num_samples = sum(len(samples) for samples in store.values())
    assert told[1][0] is Plan
    assert 0 < told[1][1] < num_samples


@pytest.mark.parametrize("num_shards", [0, 1, 3, 7])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_stopped_run_goes_on_where_it_was(graph, tmp_path, monkeypatch, undisturbed, num_shards, workers):
    leave_unfinished(graph, Logged(), tmp_path / "s", num_shards, workers=workers, **OPTIONS)
    finished = finished_shards(tmp_path / "s")
    assert len(finished) == num_shards or (workers > 1 and len(finished) < num_shards)
    with refused("is not complete" if finished else "does not exist"):
        SampleStore.open(tmp_path / "s")
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    sample(graph, Logged(), tmp_path / "s", workers=4 - workers, **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed
    assert names(tmp_path) == ["log", "s"]
    drawn = (tmp_path / "log").read_text().split()
    plan = Plan(graph, Logged(), OPTIONS["splits"], batch_size=20, seed=0)
    missing = [index for name, _, indices in plan.shards() if name not in finished for index in indices]
    # And the first of each split, for the plan; and of the first shard that is there, to be compared with it.
    kept = {name.split("_")[0] for name in finished}
    assert len(drawn) == len(missing) + 2 + len(kept)


def test_a_run_may_be_stopped_again_and_again(graph, tmp_path, undisturbed):
    for num_shards in (1, 1, 2, 0, 1):
        leave_unfinished(graph, Logged(), tmp_path / "s", num_shards, **OPTIONS)
    assert len(finished_shards(tmp_path / "s")) == 5
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed


OTHERS = {
    "seed": ({"seed": 1}, "with seed 1, not 0"),
    "batch_size": ({"batch_size": 10}, "with batch_size 10, not 20"),
    "splits": ({"splits": ("train", "test")}, "with splits train, test, not train, valid"),
    "graph": ({"graph": a_graph(seed=1)}, r"from another graph \(\w{12}, not \w{12}\)"),
    "sampler": (
        {"sampler": Logged(pause=1e-9)},
        r"with sampler Logged\(pause=1e-09\), not Logged\(pause=0\.0\)",
    ),
}


def tree(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("other", OTHERS)
def test_what_another_plan_has_left_is_neither_taken_nor_removed(graph, tmp_path, undisturbed, other):
    change, message = OTHERS[other]
    options = {"graph": graph, "sampler": Logged(), **OPTIONS, **change}
    leave_unfinished(folder=tmp_path / "s", num_shards=2, **options)
    before = tree(tmp_path)
    with refused(
        rf"/s\.partial was drawn {message}\. Choose another folder, or pass overwrite=True \(--overwrite\) to"
    ):
        sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert tree(tmp_path) == before
    assert len(finished_shards(tmp_path / "s")) == 2
    sample(graph, Logged(), tmp_path / "s", overwrite=True, **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed
    assert names(tmp_path) == ["s"]


def test_a_plan_of_which_nothing_is_finished_is_in_nobodys_way(graph, tmp_path, undisturbed):
    """As a kill leaves it before the first shard."""
    leave_unfinished(graph, Logged(), tmp_path / "s", 1, seed=1, **OPTIONS)
    (tmp_path / "s.partial" / "journal" / "train_shard_000000.json").unlink()
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed


def test_the_journal_says_which_store_is_mended(graph, tmp_path):
    def mends():
        plan = json.loads((tmp_path / "s.partial" / "journal" / "plan.json").read_text())["body"]
        return plan["mends"]

    leave_unfinished(graph, Logged(), tmp_path / "s", 1, **OPTIONS)
    assert mends() is None
    digest = sample(graph, Logged(), tmp_path / "s", **OPTIONS).digest
    (tmp_path / "s" / "train_shard_000001.bin").unlink()
    with pytest.warns(UserWarning, match="missing or damaged"):
        leave_unfinished(graph, Logged(), tmp_path / "s", 0, **OPTIONS)
    assert mends() == digest


@pytest.mark.parametrize("name", ["indptr", "indices", "split"])
def test_a_graph_whose_bytes_have_changed_is_not_drawn_from(graph, tmp_path, monkeypatch, name):
    """Found before the first sample is drawn; nothing is left behind."""
    graph.save(tmp_path / "g")
    stored = Graph.open(tmp_path / "g")
    path = tmp_path / "g" / f"{name}.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    for damaged in (stored, Graph.open(tmp_path / "g")):
        with refused(rf"{name}\.bin is damaged: its bytes do not have the digest in the header"):
            sample(damaged, Logged(), tmp_path / "s", **OPTIONS)
        with refused(rf"{name}\.bin is damaged"):
            damaged.verify_topology()
    assert names(tmp_path) == ["g"]


def test_a_graph_in_memory_has_no_bytes_to_compare(graph):
    graph.verify_topology()


def test_what_samples_do_not_depend_on_is_not_compared(graph, tmp_path, undisturbed):
    """Labels are read by the model, not by a sampler."""
    graph.save(tmp_path / "g")
    path = tmp_path / "g" / "labels.bin"
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    sample(Graph.open(tmp_path / "g"), Logged(), tmp_path / "s", **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed


def test_the_batch_size_of_a_free_sampler_leaves_no_trace(graph, tmp_path):
    sampler = UniformInduced(p=0.05, num_samples=6)
    first = sample(graph, sampler, tmp_path / "s", splits="train", batch_size=7)
    sample(graph, sampler, tmp_path / "t", splits="train", batch_size=8)
    assert first.batch_size == 0
    assert contents(tmp_path / "s") == contents(tmp_path / "t")
    # And is no other setting.
    sample(graph, sampler, tmp_path / "s", splits="train", batch_size=9)


def test_neither_time_nor_command_is_noted(graph, tmp_path, monkeypatch):
    store = sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert sorted(store.stored.header.provenance) == ["musegnn", "name", "numba", "numpy"]
    monkeypatch.setattr(sys, "argv", ["other", "arguments"])
    sample(graph, Logged(), tmp_path / "t", **OPTIONS)
    assert contents(tmp_path / "s") == contents(tmp_path / "t")
    assert "header.json" in contents(tmp_path / "s")


@pytest.mark.parametrize("workers", [1, 3])
def test_an_exception_of_a_sampler_comes_through(graph, tmp_path, undisturbed, workers):
    """What was finished stays; no thread does."""
    threads = threading.active_count()
    with pytest.raises(ZeroDivisionError, match="in draw"):
        sample(graph, failing(12, error_out), tmp_path / "s", workers=workers, **OPTIONS)
    assert threading.active_count() == threads
    assert names(tmp_path) == ["s.partial"]
    assert finished_shards(tmp_path / "s") >= ({"train_shard_000000"} if workers == 1 else set())
    sample(graph, Logged(), tmp_path / "s", workers=2, **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed


def test_an_exception_in_the_first_sample_leaves_nothing(graph, tmp_path):
    with pytest.raises(ZeroDivisionError):
        sample(graph, failing(0, error_out), tmp_path / "a" / "s", **OPTIONS)
    assert names(tmp_path) == []


def test_a_draw_that_returns_nonsense_is_an_input_error(graph, tmp_path):
    class Nonsense(SeededSampler):
        def draw(self, graph, seeds, rng):
            return seeds + 10_000

    with refused("Nonsense.draw returned node ids from", InputError):
        sample(graph, Nonsense(), tmp_path / "s", **OPTIONS)
    assert names(tmp_path) == []


@pytest.mark.parametrize("workers", [1, 3])
def test_an_interrupt_stops_the_workers_and_keeps_what_is_finished(
    graph, tmp_path, monkeypatch, undisturbed, workers
):
    """A real one: the signal of Ctrl-C, sent from a worker while the main thread waits."""
    stop, once, threads, stopped = threading.Event(), threading.Lock(), threading.active_count(), []
    monkeypatch.setattr(module, "threading", SimpleNamespace(Event=lambda: stop))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt():
        if once.acquire(blocking=False):
            # The main thread starts the last worker meanwhile, and waits.
            time.sleep(0.3)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        stopped.append(stop.wait(5))

    try:
        with pytest.raises(KeyboardInterrupt):
            sample(graph, failing(9, interrupt), tmp_path / "s", workers=workers, **OPTIONS)
    finally:
        signal.signal(signal.SIGINT, before)
    monkeypatch.setattr(module, "threading", threading)
    assert threading.active_count() == threads
    # Every worker ends the sample it draws, and begins no other.
    assert all(stopped)
    assert -Failing.left <= workers
    assert names(tmp_path) == ["s.partial"]
    assert workers > 1 or finished_shards(tmp_path / "s")
    sample(graph, Logged(), tmp_path / "s", workers=2, **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed


def full_disk(*args, **options):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("where", ["append", "finish"])
def test_a_full_disk_keeps_what_is_finished(graph, tmp_path, monkeypatch, undisturbed, where, workers):
    function, lock, left = getattr(ArrayWriter, where), threading.Lock(), [60 if where == "append" else 3]

    def filling(self, *args, **options):
        with lock:
            left[0] -= 1
        return full_disk() if left[0] < 0 else function(self, *args, **options)

    monkeypatch.setattr(ArrayWriter, where, filling)
    threads = threading.active_count()
    with refused(
        r"The disk is full .* while writing .*/s\. What was finished is kept; free some space and do"
    ):
        sample(graph, Logged(), tmp_path / "s", workers=workers, **OPTIONS)
    assert threading.active_count() == threads
    assert names(tmp_path) == ["s.partial"]
    # A file that was left open would be complained about now.
    gc.collect()
    if where == "finish":
        assert len(finished_shards(tmp_path / "s")) == 3
    monkeypatch.undo()
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)
    sample(graph, Logged(), tmp_path / "s", workers=2, **OPTIONS)
    assert contents(tmp_path / "s") == undisturbed
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("table", ["train_sizes", "valid_bounds", "header"])
def test_a_disk_that_is_full_at_the_end_keeps_all_shards(graph, tmp_path, monkeypatch, undisturbed, table):
    really_open = Path.open

    def full(self, *args, **options):
        return full_disk() if self.stem == table else really_open(self, *args, **options)

    monkeypatch.setattr(Path, "open", full)
    with refused("The disk is full"):
        sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    monkeypatch.setattr(Path, "open", really_open)
    assert len(finished_shards(tmp_path / "s")) == 8
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    # The first of each split, for the plan and to be compared with what is there.
    assert len((tmp_path / "log").read_text().split()) == 2 + 2
    assert contents(tmp_path / "s") == undisturbed


def test_a_size_limit_of_the_system_keeps_what_is_finished(graph, tmp_path, monkeypatch):
    """A real one. The shard of test is larger than that of train, and the limit lies between."""
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 1)
    options = {"batch_size": 10, "splits": ("train", "test")}
    whole = sample(graph, FullKHop(1), tmp_path / "whole", **options).stored.header.arrays
    first, second = (whole[f"{split}_shard_000000"].num_bytes for split in ("train", "test"))
    assert first + 100 < second
    command = [sys.executable, "-c", LIMITED, TESTS, str(tmp_path / "s"), str(first + 50)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("The disk is full (or a size limit was reached) while writing ")
    assert done.stdout.endswith("What was finished is kept; free some space and do the same again.\n")
    assert finished_shards(tmp_path / "s") == {"train_shard_000000"}
    sample(graph, FullKHop(1), tmp_path / "s", **options)
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_a_disk_that_is_too_small_is_refused_before_anything_is_drawn(graph, tmp_path, monkeypatch):
    plan = Plan(graph, Logged(), OPTIONS["splits"], batch_size=20, seed=0)
    needed = sum(one.num_bytes for one in estimate(plan, workers=1).values())
    expected = max(plan.num_bytes, needed)
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    free = min(plan.num_bytes, needed) - 1
    monkeypatch.setattr(module, "free_bytes", lambda folder: free)
    with refused(
        rf"The samples will take about {needed / 1e9:.3g} GB more, but .* has {free / 1e9:.3g} GB free\. Free"
    ):
        sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    # Two for the plan, four of each split to be sure.
    assert len((tmp_path / "log").read_text().split()) == 2 + 8
    assert names(tmp_path) == ["log"]
    monkeypatch.setattr(module, "free_bytes", lambda folder: expected)
    sample(graph, Logged(), tmp_path / "s", **OPTIONS).verify()


def test_what_is_there_needs_no_space(graph, tmp_path, monkeypatch):
    expected = Plan(graph, Logged(), OPTIONS["splits"], batch_size=20, seed=0).num_bytes
    leave_unfinished(graph, Logged(), tmp_path / "s", 4, **OPTIONS)
    there = sum(path.stat().st_size for path in (tmp_path / "s.partial" / "store").iterdir()
                if path.stem in finished_shards(tmp_path / "s"))  # fmt: skip
    monkeypatch.setattr(module, "free_bytes", lambda folder: expected - there - 1)
    with refused("The samples will take about"):
        sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    monkeypatch.setattr(module, "free_bytes", lambda folder: expected - there)
    sample(graph, Logged(), tmp_path / "s", **OPTIONS).verify()


def test_a_shard_is_noted_after_it_was_written(graph, tmp_path, monkeypatch):
    add = module.Journal.add

    def checked(self, name, spec, facts):
        assert self._writer.path(name).stat().st_size == spec.num_bytes
        add(self, name, spec, facts)

    monkeypatch.setattr(module.Journal, "add", checked)
    sample(graph, Logged(), tmp_path / "s", workers=2, **OPTIONS)


def test_a_second_process_is_refused(graph, tmp_path):
    command = [sys.executable, "-c", HOLD, TESTS, str(tmp_path / "s")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "drawing\n"
            for overwrite in (False, True):
                with refused("is being written by another process. Wait for it, or choose another folder."):
                    sample(graph, ShadowKHop([2]), tmp_path / "s", overwrite=overwrite)
            with refused("is not complete: a process is writing it"):
                SampleStore.open(tmp_path / "s")
            process.stdin.write("\n" * 10)
            process.stdin.flush()
            assert process.wait() == 0
        finally:
            process.kill()
    assert SampleStore.open(tmp_path / "s").sampler["name"] == "Held"
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_graph_store_is_never_overwritten(graph, tmp_path, overwrite):
    graph.save(tmp_path / "g")
    with refused("is a graph store, not one of samples. Choose another folder."):
        sample(graph, ShadowKHop([2]), tmp_path / "g", overwrite=overwrite)
    Graph.open(tmp_path / "g").verify()
    assert names(tmp_path) == ["g"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_store_is_never_overwritten(graph, tmp_path, overwrite):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("years of work")
    with refused(
        r"exists and is not a store \(or lost its header\.json\)\. Choose another folder, or remove it\."
    ):
        sample(graph, ShadowKHop([2]), tmp_path / "s", overwrite=overwrite)
    assert (tmp_path / "s" / "thesis.tex").read_text() == "years of work"
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, None])
def test_a_number_of_workers_that_is_none_is_refused(graph, tmp_path, unchecked, workers):
    with refused("workers must be a whole number, 1 or more, got", InputError):
        sample(graph, ShadowKHop([2]), tmp_path / "s", workers=workers)
    assert names(tmp_path) == []


def test_a_graph_of_one_node_has_one_sample(tmp_path):
    graph = Graph.from_edges(np.zeros((2, 0), dtype=np.int64), num_nodes=1)
    store = sample(graph, ShadowKHop([2]), tmp_path / "s", splits="none")
    store.verify()
    assert (len(store["none"]), store["none"][0].num_nodes, store["none"][0].num_entries) == (1, 1, 0)


def test_empty_samples_are_stored(graph, tmp_path):
    store = sample(graph, Overlapping(num_samples=4), tmp_path / "s", splits="train")
    store.verify()
    assert store["train"].num_nodes.tolist() == [25, 25, 25, 0]
    assert is_equal(store["train"][3], Draws(graph, Overlapping(num_samples=4), "train")[3])
