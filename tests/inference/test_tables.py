"""Tables of predictions: read back by everyone's readers, and the same bytes whatever happened meanwhile."""

import csv
import os
import re
import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import jaxtyping
import numpy as np
import pytest

from musegnn.errors import InputError, MissingExtraError, StoreError
from musegnn.inference import tables
from musegnn.inference.tables import Predictions, PredictionWriter

# pandas and pyarrow are imported where they are used: subprocesses import this file, too.
PROOF = "MUSEGNN_PROOF" in os.environ
NUM_KILLS = 20 if PROOF else 3
SUFFIXES = (".parquet", ".npy", ".csv")
PLAN = {"run": "a" * 64, "nodes": "all", "settings": {"hops": (10, 5)}}
NODE_NAMES = [
    "plain",
    "a,b",
    'say "hi"',
    "ümlaut",
    "car\rriage",
    " blanks ",
    "",
    "'q'",
    "x" * 300,
    "#no",
    "0",
]
CLASS_NAMES = ["web", "net, misc", 'the "rest"']
NUM_BATCHES = 4


def a_batch(number, num_rows=None, num_classes=3, seed=0):
    """Rows of one batch, a function of its number; batches have 0, 1, 2, ... rows."""
    rng = np.random.default_rng([seed, number])
    num_rows = number if num_rows is None else num_rows
    scores = rng.random((num_rows, num_classes), dtype=np.float32) ** 8
    return Predictions(
        nodes=rng.integers(0, len(NODE_NAMES), num_rows).astype(np.int32),
        classes=scores.argmax(axis=1) if num_classes else np.zeros(num_rows, dtype=np.int64),
        probabilities=scores / scores.sum(axis=1, keepdims=True),
        error_bounds=np.full(num_rows, rng.random() / 10),
    )


def a_writer(path, plan=PLAN, num_batches=NUM_BATCHES, **options):
    names = {"class_names": CLASS_NAMES, "node_names": NODE_NAMES}
    return PredictionWriter(path, plan, num_batches=num_batches, **{**names, **options})


def write(path, pause=0.0, **options):
    """All that is missing; says which batches were."""
    with a_writer(path, **options) as writer:
        missing = writer.missing()
        for number in missing:
            time.sleep(pause)
            writer.add(number, a_batch(number))
    return missing


def add_then_stop(path, numbers, **options):
    with a_writer(path, **options) as writer:
        for number in numbers:
            writer.add(number, a_batch(number))
        raise KeyboardInterrupt


def leave_unfinished(path, numbers, **options):
    with pytest.raises(KeyboardInterrupt):
        add_then_stop(path, numbers, **options)


def write_with_surprise(path, surprise):
    """Something happens when all batches are there and the table is not."""
    with a_writer(path) as writer:
        for number in writer.missing():
            writer.add(number, a_batch(number))
        surprise()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def all_rows(num_batches=NUM_BATCHES):
    return np.concatenate([a_batch(number).as_rows() for number in range(num_batches)])


def refused(match, writer):
    with pytest.raises(StoreError, match=match) as caught, writer:
        raise AssertionError("entered")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of undisturbed tables, by suffix."""
    folder = tmp_path_factory.mktemp("whole")
    for suffix in SUFFIXES:
        write(folder / f"p{suffix}")
    assert names(folder) == sorted(f"p{suffix}" for suffix in SUFFIXES)
    return {suffix: (folder / f"p{suffix}").read_bytes() for suffix in SUFFIXES}


# What readers find


def test_a_parquet_table_is_what_pandas_users_expect(tmp_path):
    import pandas

    write(tmp_path / "p.parquet")
    table, rows = pandas.read_parquet(tmp_path / "p.parquet"), all_rows()
    assert list(table.columns) == [
        *("node", "name", "class", "class_name", "error_bound"),
        *("p_web", "p_net, misc", 'p_the "rest"'),
    ]
    assert [table[name].dtype for name in ("node", "class", "error_bound", "p_web")] == [
        *(np.int64, np.int32, np.float32, np.float32)
    ]
    assert (table["node"] == rows["node"]).all()
    assert (table["class"] == rows["class"]).all()
    assert list(table["name"]) == [NODE_NAMES[node] for node in rows["node"]]
    assert list(table["class_name"]) == [CLASS_NAMES[number] for number in rows["class"]]
    assert (table["error_bound"].to_numpy() == rows["error_bound"]).all()
    assert (table.filter(regex="^p_").to_numpy() == rows["probability"]).all()


def test_a_npy_table_is_a_structured_array(tmp_path):
    write(tmp_path / "p.npy")
    for mode in (None, "r"):
        table = np.load(tmp_path / "p.npy", allow_pickle=False, mmap_mode=mode)
        assert table.dtype == [
            *(("node", "<i8"), ("class", "<i4"), ("error_bound", "<f4"), ("probability", "<f4", (3,))),
        ]
        assert (table == all_rows()).all()


def test_a_csv_table_gives_back_every_name_and_every_bit(tmp_path):
    import pandas

    write(tmp_path / "p.csv", num_batches=12)
    rows = all_rows(12)
    with (tmp_path / "p.csv").open(encoding="utf-8", newline="") as file:
        header, *lines = csv.reader(file)
    assert header == [
        *("node", "name", "class", "class_name", "error_bound"),
        *("p_web", "p_net, misc", 'p_the "rest"'),
    ]
    assert len(lines) == len(rows)
    assert [int(line[0]) for line in lines] == rows["node"].tolist()
    assert [line[1] for line in lines] == [NODE_NAMES[node] for node in rows["node"]]
    assert {line[1] for line in lines} == set(NODE_NAMES)
    assert [int(line[2]) for line in lines] == rows["class"].tolist()
    assert [line[3] for line in lines] == [CLASS_NAMES[number] for number in rows["class"]]
    numbers = np.array([line[4:] for line in lines]).astype(np.float32)
    assert (numbers[:, 0] == rows["error_bound"]).all()
    assert (numbers[:, 1:] == rows["probability"]).all()
    table = pandas.read_csv(tmp_path / "p.csv", keep_default_na=False)
    assert list(table["name"]) == [NODE_NAMES[node] for node in rows["node"]]
    # The shortest text that gives a float32 back, not that of the float64 beside it.
    assert max(len(field) for line in lines for field in line[4:]) <= 15


@pytest.mark.parametrize("class_names", [None, ["same", "same", "other"]])
def test_without_names_that_tell_them_apart_classes_are_numbers(tmp_path, class_names):
    import pandas
    import pyarrow.parquet

    for suffix in (".csv", ".parquet"):
        write(tmp_path / f"p{suffix}", class_names=class_names, node_names=None)
    named = [] if class_names is None else ["class_name"]
    expected = ["node", "class", *named, "error_bound", "p_0", "p_1", "p_2"]
    assert list(pandas.read_csv(tmp_path / "p.csv").columns) == expected
    assert pyarrow.parquet.read_schema(tmp_path / "p.parquet").names == expected


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_neither_batches_nor_their_order_nor_blocks_change_a_byte(tmp_path, monkeypatch, suffix):
    """One batch, many, in another order: the same rows are the same file, also in many small blocks."""
    monkeypatch.setattr(tables, "BLOCK_ROWS", 4)
    monkeypatch.setattr(tables, "_TEXT_VALUES", 9)
    rows, contents = a_batch(0, 23), []
    for cuts in ([], [5], [4, 8], [1, 1, 2, 3, 17, 23], list(range(23))):
        edges = [0, *cuts, 23]
        path = tmp_path / f"{len(edges)}{suffix}"
        with a_writer(path, num_batches=len(edges) - 1) as writer:
            for number in reversed(writer.missing()):
                begin, end = edges[number], edges[number + 1]
                parts = (rows.nodes, rows.classes, rows.probabilities, rows.error_bounds)
                nodes, classes, probabilities, bounds = (part[begin:end] for part in parts)
                writer.add(
                    number,
                    Predictions(
                        nodes=nodes, classes=classes, probabilities=probabilities, error_bounds=bounds
                    ),
                )
        contents.append(path.read_bytes())
    assert len(set(contents)) == 1
    if suffix == ".parquet":
        import pyarrow.parquet

        assert pyarrow.parquet.ParquetFile(path).num_row_groups == 6


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_table_without_rows_has_its_columns(tmp_path, suffix):
    import pandas

    with a_writer(tmp_path / f"p{suffix}", num_batches=1) as writer:
        writer.add(0, a_batch(0, num_rows=0))
    if suffix == ".npy":
        assert np.load(tmp_path / "p.npy").shape == (0,)
    else:
        read = pandas.read_csv if suffix == ".csv" else pandas.read_parquet
        assert read(tmp_path / f"p{suffix}").shape == (0, 8)


def test_joining_holds_a_few_parts_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1 << 20)
    num_batches, part_bytes = 40, 5000 * (16 + 4 * 50)
    options = {"num_batches": num_batches, "class_names": None}
    with a_writer(tmp_path / "p.npy", **options) as writer:
        for number in writer.missing():
            writer.add(number, a_batch(number, num_rows=5000, num_classes=50))
        tracemalloc.start()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "p.npy").stat().st_size > num_batches * part_bytes
    assert peak < 8 * part_bytes


# Going on


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_stopped_writer_leaves_its_parts_and_the_next_goes_on(tmp_path, whole, suffix):
    path = tmp_path / f"p{suffix}"
    leave_unfinished(path, [2, 0])
    assert names(tmp_path) == [f"p{suffix}.partial"]
    assert write(path) == [1, 3]
    assert path.read_bytes() == whole[suffix]
    assert names(tmp_path) == [path.name]


def test_a_writer_that_has_finished_nothing_leaves_nothing(tmp_path):
    leave_unfinished(tmp_path / "new" / "folder" / "p.csv", [])
    assert names(tmp_path) == []


@pytest.mark.parametrize("place", [0, 60, 130, -40, -1])
def test_a_damaged_part_is_made_again(tmp_path, whole, place):
    path = tmp_path / "p.csv"
    leave_unfinished(path, [1, 2, 3])
    part = tmp_path / "p.csv.partial" / "part-000002.npy"
    data = bytearray(part.read_bytes())
    data[place] ^= 1
    part.write_bytes(data)
    assert write(path) == [0, 2]
    assert path.read_bytes() == whole[".csv"]


@pytest.mark.parametrize("size", [0, 10, 31, 32, 100, -1])
def test_a_part_that_was_cut_off_is_made_again(tmp_path, whole, size):
    path = tmp_path / "p.npy"
    leave_unfinished(path, [1, 2, 3])
    part = tmp_path / "p.npy.partial" / "part-000003.npy"
    part.write_bytes(part.read_bytes()[:size])
    assert write(path) == [0, 3]
    assert path.read_bytes() == whole[".npy"]


def test_a_part_of_another_batch_is_made_again(tmp_path, whole):
    leave_unfinished(tmp_path / "p.npy", [1, 2])
    partial = tmp_path / "p.npy.partial"
    (partial / "part-000001.npy").rename(partial / "part-000003.npy")
    assert write(tmp_path / "p.npy") == [0, 1, 3]
    assert (tmp_path / "p.npy").read_bytes() == whole[".npy"]


def test_a_part_that_is_damaged_while_it_is_in_use_is_found(tmp_path, whole):
    path = tmp_path / "p.csv"
    part = tmp_path / "p.csv.partial" / "part-000001.npy"
    with pytest.raises(StoreError, match=r"part-000001\.npy was damaged\. Run") as caught:
        write_with_surprise(path, lambda: part.write_bytes(b"x" * 200))
    assert "\n" not in str(caught.value)
    assert not path.exists()
    assert write(path) == [1]
    assert path.read_bytes() == whole[".csv"]


@pytest.mark.parametrize(
    "other", [{"plan": {**PLAN, "nodes": "test"}}, {"plan": {}}, {"num_batches": NUM_BATCHES + 1}]
)
def test_parts_of_another_plan_are_thrown_away(tmp_path, other):
    path = tmp_path / "p.csv"
    leave_unfinished(path, [1, 2], **other)
    assert write(path) == [0, 1, 2, 3]


def test_parts_of_another_plan_that_came_back_are_not_taken(tmp_path):
    """As a power cut may do that keeps the new plan and undoes the removal of the old parts."""
    path, partial = tmp_path / "p.csv", tmp_path / "p.csv.partial"
    leave_unfinished(path, [1, 2], plan={"other": 1})
    part = (partial / "part-000001.npy").read_bytes()
    leave_unfinished(path, [2])
    (partial / "part-000001.npy").write_bytes(part)
    assert write(path) == [0, 1, 3]


@pytest.mark.parametrize("text", ["", "{", "[]", "\xff"])
def test_a_plan_that_cannot_be_read_is_another_plan(tmp_path, whole, text):
    leave_unfinished(tmp_path / "p.csv", [1])
    (tmp_path / "p.csv.partial" / "plan.json").write_text(text, encoding="latin-1")
    assert write(tmp_path / "p.csv") == [0, 1, 2, 3]
    assert (tmp_path / "p.csv").read_bytes() == whole[".csv"]


def test_leaving_early_writes_no_table(tmp_path):
    with (
        pytest.raises(StoreError, match="3 of 4 batches are missing") as caught,
        a_writer(tmp_path / "p.csv") as writer,
    ):
        writer.add(1, a_batch(1))
    assert "\n" not in str(caught.value)
    assert names(tmp_path) == ["p.csv.partial"]
    assert write(tmp_path / "p.csv") == [0, 2, 3]


# Two at once, and what is in the way


def test_two_writers_are_kept_apart(tmp_path, whole):
    with a_writer(tmp_path / "p.csv") as writer:
        message = refused("is being written by another process", a_writer(tmp_path / "p.csv", overwrite=True))
        assert message.startswith(str(tmp_path / "p.csv"))
        # Another table in the same folder is nobody's business.
        write(tmp_path / "q.csv")
        for number in writer.missing():
            writer.add(number, a_batch(number))
    assert (tmp_path / "p.csv").read_bytes() == whole[".csv"]
    assert names(tmp_path) == ["p.csv", "q.csv"]


def test_an_existing_file_is_kept_unless_told(tmp_path, whole):
    path = tmp_path / "p.csv"
    path.write_text("mine")
    refused(r"exists already\. Choose another, or overwrite=True \(--overwrite\)", a_writer(path))
    assert names(tmp_path) == ["p.csv"]
    assert path.read_text() == "mine"
    leave_unfinished(path, [1, 3], overwrite=True)
    assert path.read_text() == "mine"
    refused("exists already", a_writer(path))
    assert write(path, overwrite=True) == [0, 2]
    assert path.read_bytes() == whole[".csv"]
    # Asked for again, it is made again.
    assert write(path, overwrite=True) == [0, 1, 2, 3]


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path):
    path = tmp_path / "p.csv"
    with pytest.raises(StoreError, match="exists already"):
        write_with_surprise(path, lambda: path.write_text("mine"))
    assert path.read_text() == "mine"
    assert names(tmp_path / "p.csv.partial") == [
        *(".lock", *(f"part-{number:06d}.npy" for number in range(4)), "plan.json")
    ]
    path.unlink()
    assert write(path) == []


def test_a_folder_or_somebody_elses_partial_is_in_the_way(tmp_path):
    (tmp_path / "p.csv").mkdir()
    refused("is a folder", a_writer(tmp_path / "p.csv", overwrite=True))
    (tmp_path / "q.csv.partial").mkdir()
    (tmp_path / "q.csv.partial" / "thesis.tex").write_text("mine")
    refused("is in the way and not ours", a_writer(tmp_path / "q.csv"))
    assert names(tmp_path / "q.csv.partial") == ["thesis.tex"]


def test_a_link_is_followed(tmp_path, whole):
    (tmp_path / "real").mkdir()
    (tmp_path / "p.csv").symlink_to(tmp_path / "real" / "p.csv")
    write(tmp_path / "p.csv")
    assert (tmp_path / "p.csv").is_symlink()
    assert (tmp_path / "real" / "p.csv").read_bytes() == whole[".csv"]


@pytest.mark.parametrize("name", ["p.txt", "p", "p.csv.gz", ".csv"])
def test_other_suffixes_are_refused(tmp_path, name):
    with pytest.raises(InputError, match=re.escape(".parquet, .npy, .csv, got")) as caught:
        a_writer(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_without_pyarrow_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'musegnn[parquet]'")):
        a_writer(tmp_path / "p.parquet")
    write(tmp_path / "p.csv")


def test_batches_have_the_same_classes(tmp_path, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(InputError, match="Batch 1 has 4 classes, but there are 3"):
        with a_writer(tmp_path / "p.csv") as writer:
            writer.add(1, a_batch(1, num_classes=4))


# Full disks and kills


@contextmanager
def no_file_larger_than(limit):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_much(path):
    with a_writer(path, num_batches=10) as writer:
        missing = writer.missing()
        for number in missing:
            writer.add(number, a_batch(number, num_rows=100 * (number + 1)))
    return missing


@pytest.mark.parametrize(("suffix", "limit"), [*((suffix, 30_000) for suffix in SUFFIXES), (".npy", 20_000)])
def test_a_full_disk_is_one_line_and_finished_parts_stay(tmp_path, suffix, limit):
    """The limit is larger than any part and less than the table; or less than the last parts."""
    path = tmp_path / f"p{suffix}"
    with no_file_larger_than(limit), pytest.raises(StoreError) as caught:
        write_much(path)
    assert str(caught.value) == (
        f"The disk is full (or a size limit was reached) while writing {path}. "
        "Finished parts are kept; free some space and run the same command again."
    )
    assert names(tmp_path) == [f"p{suffix}.partial"]
    assert not list((tmp_path / f"p{suffix}.partial").glob("*.new"))
    assert write_much(path) == ([] if limit == 30_000 else [7, 8, 9])
    assert names(tmp_path) == [path.name]


KILLED_EVERYWHERE = """
import itertools, os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_tables import names, write
from musegnn.errors import StoreError
from musegnn.inference.tables import PredictionWriter

folder, suffix, overwrite = Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "overwrite"
path = folder / f"p{suffix}"
write(folder / f"whole{suffix}")
expected = (folder / f"whole{suffix}").read_bytes()
(folder / f"whole{suffix}").unlink()
calls, last = 0, 0
# Nothing is lost by a kill that was not lost without it, and it takes most of the time.
os.fsync = lambda descriptor: None

def deadly(function, torn=False):
    def call(*args, **options):
        global calls
        calls += 1
        if calls > last:
            if torn:
                function(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return call

def state():
    if not path.exists():
        return "none"
    return {b"old": "old", expected: "new"}[path.read_bytes()]

states, made = [], []
for last in itertools.count():
    if overwrite:
        path.write_bytes(b"old")
    child = os.fork()
    if child == 0:
        for name in ("replace", "unlink", "mkdir", "rmdir", "open", "iterdir"):
            setattr(Path, name, deadly(getattr(Path, name)))
        Path.write_bytes = deadly(Path.write_bytes, torn=True)
        for name in ("fsync", "open", "close"):
            setattr(os, name, deadly(getattr(os, name)))
        for name in ("add", "_read", "_publish"):
            setattr(PredictionWriter, name, deadly(getattr(PredictionWriter, name)))
        write(path, overwrite=overwrite)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    states.append(state())
    if os.WIFEXITED(status):
        assert status == 0, status
        assert names(folder) == [path.name], names(folder)
        break
    try:
        made.append(len(write(path, overwrite=overwrite)))
    except StoreError as error:
        # The last thing but the lock is gone: it was complete, as it is to anybody who asks again.
        assert states[-1] == "new" and "exists already" in str(error), error
        made.append("complete")
    assert path.read_bytes() == expected
    assert names(folder) == [path.name], (last, names(folder))
    path.unlink()
print(*states)
print(*made)
"""


@pytest.mark.parametrize(
    ("suffix", "mode"),
    [(".csv", "fresh"), (".csv", "overwrite"), *((s, "fresh") for s in (".npy", ".parquet") if PROOF)],
)
def test_a_writer_killed_before_any_of_its_file_operations(tmp_path, suffix, mode):
    """Not by luck: a child dies before its 1st, 2nd, ... operation, or in the middle of a write."""
    command = [sys.executable, "-c", KILLED_EVERYWHERE, str(Path(__file__).parent), str(tmp_path)]
    done = subprocess.run([*command, suffix, mode], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    states, made = (line.split() for line in done.stdout.splitlines())
    # Never anything but the old and the new, and the old until the new is there.
    at = states.index("new")
    assert set(states[:at]) == {"old" if mode == "overwrite" else "none"}
    assert set(states[at:]) == {"new"}
    assert len(states) > 40
    # Nothing that was finished is made again.
    if mode == "fresh":
        counts = [int(count) for count in made if count != "complete"]
        assert counts == sorted(counts, reverse=True)
        assert set(counts) == {4, 3, 2, 1, 0}
        assert made.count("complete") <= 4


RUN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_tables import write
print("ready", flush=True)
write(Path(sys.argv[2]), pause=0.004, num_batches=40)
"""


@pytest.fixture(scope="module")
def forty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("forty")
    for suffix in SUFFIXES:
        write(folder / f"p{suffix}", num_batches=40)
    return {suffix: (folder / f"p{suffix}").read_bytes() for suffix in SUFFIXES}


@pytest.mark.parametrize("number", range(NUM_KILLS))
def test_a_writer_killed_at_any_moment_goes_on_in_another_process(tmp_path, forty, number):
    suffix = SUFFIXES[number % 3]
    path = tmp_path / f"p{suffix}"
    command = [sys.executable, "-c", RUN, str(Path(__file__).parent), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(np.random.default_rng(number).uniform(0, 0.3))
        process.send_signal(signal.SIGKILL)
    if path.exists():
        assert path.read_bytes() == forty[suffix]
    kept = list((tmp_path / f"p{suffix}.partial").glob("part-*.npy"))
    is_there = path.exists()
    if is_there and not kept:
        return
    assert len(write(path, num_batches=40)) == (0 if is_there else 40 - len(kept))
    assert path.read_bytes() == forty[suffix]
    assert names(tmp_path) == [path.name]
