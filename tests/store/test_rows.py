"""Rows from a file: whatever is asked for, in sorted and merged pieces, are the rows of the table."""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musegnn.errors import StoreError
from musegnn.store import rows as module
from musegnn.store.rows import Rows, is_mapped


def mapped(folder, values):
    np.save(folder / "table.npy", values)
    return np.load(folder / "table.npy", mmap_mode="r")


def random_table(folder, shape=(500, 3), dtype=np.float32):
    values = np.random.default_rng(0).integers(0, 1000, shape).astype(dtype)
    return mapped(folder, values), values


@pytest.fixture
def cold(monkeypatch):
    """As if nothing were in the page cache."""
    monkeypatch.setattr(Rows, "_is_in_memory", lambda *_: False)


def gathered(table, ids, **options):
    out = np.full((len(ids), table.shape[1]), -1, table.dtype)
    Rows(table).gather(ids, out, **options)
    return out


@given(st.data())
def test_cold_rows_are_those_of_the_table(tmp_path_factory, data):
    """Any gap, size of a piece and of a window, any threads; ids in any order, some twice, some never."""
    # No two numbers are the same.
    shape = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 5)))
    values = np.arange(np.prod(shape), dtype=data.draw(st.sampled_from([np.float16, np.float32]))).reshape(
        shape
    )
    table = mapped(tmp_path_factory.mktemp("rows"), values)
    ids = np.array(data.draw(st.lists(st.integers(0, len(values) - 1))), dtype=np.int32)
    sizes = {name: data.draw(st.integers(1, 100)) for name in ("GAP", "PIECE", "WINDOW", "WINDOW_BYTES")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Rows, "_is_in_memory", lambda *_: False)
        for name, size in sizes.items():
            patch.setattr(module, name, size)
        found = gathered(table, ids, threads=data.draw(st.integers(1, 3)))
    assert found.dtype == values.dtype
    assert found.tobytes() == values[ids].tobytes()


@pytest.mark.parametrize("is_cold", [False, True])
def test_threads_do_not_get_in_each_others_way(tmp_path, monkeypatch, is_cold):
    monkeypatch.setattr(Rows, "_is_in_memory", lambda *_: not is_cold)
    table, values = random_table(tmp_path)
    rows, rng = Rows(table), np.random.default_rng(1)
    wanted = [rng.integers(0, 500, 200) for _ in range(40)]

    def read(ids):
        out = np.empty((len(ids), 3), np.float32)
        rows.gather(ids, out)
        return out

    with ThreadPoolExecutor(8) as pool:
        for ids, found in zip(wanted, pool.map(read, wanted), strict=True):
            assert np.array_equal(found, values[ids])


def test_neighbors_are_read_at_once_and_the_disk_is_told_of_all_before(tmp_path, monkeypatch, cold):
    """12 bytes a row, and gaps of up to 60 bytes, five rows, are read along; at most 30 rows in a piece."""
    table, values = random_table(tmp_path)
    monkeypatch.setattr(module, "GAP", 60)
    monkeypatch.setattr(module, "PIECE", 360)
    calls, preadv, fadvise = [], os.preadv, os.posix_fadvise
    monkeypatch.setattr(
        os, "preadv", lambda f, b, at: calls.append(("read", at, len(b[0]))) or preadv(f, b, at)
    )
    monkeypatch.setattr(
        os, "posix_fadvise", lambda f, at, n, _: calls.append(("told", at, n)) or fadvise(f, at, n, 3)
    )
    rows = Rows(table)
    calls.clear()
    ids = np.array([100, 94, 3, 107, 200, *range(300, 340)])
    out = np.empty((len(ids), 3), np.float32)
    rows.gather(ids, out, threads=1)
    assert np.array_equal(out, values[ids])
    pieces = [(128 + 12 * first, 12 * count) for first, count in ((3, 1), (94, 7), (107, 1), (200, 1))]
    pieces += [(128 + 12 * 300, 360), (128 + 12 * 330, 120)]
    assert calls == [("told", *piece) for piece in pieces] + [("read", *piece) for piece in pieces]


def test_what_is_in_memory_is_taken_from_there(tmp_path, monkeypatch):
    """The page cache has just written it; a file that was dropped from it is read."""
    table, values = random_table(tmp_path, (5000, 64))
    monkeypatch.setattr(Rows, "_read", lambda *_: pytest.fail("read"))
    ids = np.arange(0, 5000, 7)
    assert np.array_equal(gathered(table, ids), values[ids])


@pytest.mark.parametrize(
    ("error", "is_there"), [(BlockingIOError(), False), (OSError(95, "not supported"), True)]
)
def test_a_file_system_that_will_not_say(tmp_path, monkeypatch, error, is_there):
    table, _ = random_table(tmp_path)
    rows = Rows(table)

    def refuse(*_):
        raise error

    monkeypatch.setattr(os, "preadv", refuse)
    assert rows._is_in_memory(np.arange(10)) == is_there
    if is_there:
        monkeypatch.setattr(module, "free_memory", lambda: 0)
        assert not rows._is_in_memory(np.arange(10))


def test_a_row_that_is_half_in_memory_is_not(tmp_path, monkeypatch):
    rows = Rows(random_table(tmp_path)[0])
    monkeypatch.setattr(os, "preadv", lambda *_: 11)
    assert not rows._is_in_memory(np.arange(10))


def test_tables_that_are_no_file(tmp_path):
    table, values = random_table(tmp_path)
    assert is_mapped(table)
    # A part does not know where it lies in the file.
    for part in (values, table[2:], table[:, :2], np.asfortranarray(values), table.view(np.ndarray)):
        assert not is_mapped(part)
        assert np.array_equal(gathered(part, np.array([3, 0, 3])), part[[3, 0, 3]])


def test_a_file_that_is_cut_off_is_one_sentence(tmp_path, cold):
    table, _ = random_table(tmp_path)
    rows = Rows(table)
    os.truncate(tmp_path / "table.npy", 1000)
    with pytest.raises(StoreError, match=r"^\S*table.npy was cut off while it was in use. Write it again.$"):
        rows.gather(np.arange(500), np.empty((500, 3), np.float32))


def test_a_file_that_fails_is_one_sentence(tmp_path, cold, monkeypatch):
    rows = Rows(random_table(tmp_path)[0])

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(
        StoreError, match=r"^\S*table.npy cannot be read: Input/output error. Check the disk.$"
    ):
        rows.gather(np.arange(500), np.empty((500, 3), np.float32))


def test_a_file_that_was_replaced_is_refused(tmp_path):
    table, values = random_table(tmp_path)
    np.save(tmp_path / "other.npy", values + 1)
    (tmp_path / "other.npy").rename(tmp_path / "table.npy")
    with pytest.raises(StoreError, match=r"table.npy was replaced after it was opened. Open it again.$"):
        Rows(table)
    (tmp_path / "table.npy").unlink()
    with pytest.raises(StoreError, match=r"table.npy cannot be opened: No such file or directory. [^\n]*$"):
        Rows(table)


def test_no_file_stays_open(tmp_path):
    table, _ = random_table(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        gathered(table, np.arange(3))
    assert len(os.listdir("/proc/self/fd")) == before
