"""kernel: compiled once, kept for the next process, compiled anew when a source of the room has changed."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import numpy as np
import pytest

from musegnn.ops import kernel as room

PROGRAM = """
import json
import numba
import numpy as np
from musegnn import ops
bits = ops.random_bits(1234567, np.arange(2, dtype=np.uint64))
from musegnn.ops.random_bits.numba import _random_bits
stats = _random_bits.stats
hits, misses = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
print(json.dumps([bits.tolist(), hits, misses, stats.cache_path, numba.config.CACHE_DIR]))
"""
BITS = [6457827717110365317, 3203168211198807973]


def run(**environment):
    """Numbers, cache hits and misses, the folder of the cache, and Numba's setting, from another process."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
    source = str(Path(room.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**kept, "PYTHONPATH": source, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    bits, hits, misses, folder, chosen = json.loads(done.stdout)
    assert bits == BITS
    return hits, misses, Path(folder), chosen


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """The choice of a folder as at a first start, with all caches below tmp_path."""
    room._folder.cache_clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    yield tmp_path
    room._folder.cache_clear()


def double(x):
    return 2 * x


def works(compiled):
    return compiled(np.int64(21)) == 42


def folder_of(compiled):
    return Path(compiled.stats.cache_path)


def test_a_second_process_finds_the_kernel(tmp_path):
    hits, misses, folder, chosen = run(XDG_CACHE_HOME=str(tmp_path))
    assert (hits, misses, chosen) == (0, 1, "")
    assert folder.is_relative_to(tmp_path / "musegnn")
    assert list(folder.glob("*_random_bits*.nbc"))
    assert run(XDG_CACHE_HOME=str(tmp_path)) == (1, 0, folder, "")


def test_the_users_own_folder_for_numba_is_used_and_left_as_it_was(tmp_path):
    """And a home for caches that is a file, where no folder can be made, does no harm then."""
    own, file = tmp_path / "own", tmp_path / "file"
    file.touch()
    hits, misses, folder, chosen = run(NUMBA_CACHE_DIR=str(own), XDG_CACHE_HOME=str(file))
    assert (hits, misses, chosen) == (0, 1, str(own))
    assert folder.is_relative_to(own)


def test_the_folder_is_below_the_users_caches(fresh):
    compiled = room.kernel(double)
    assert works(compiled)
    assert folder_of(compiled).is_relative_to(fresh / "caches/musegnn" / f"kernels-{room._digest()[:16]}")
    assert numba.config.CACHE_DIR == ""


def test_without_a_setting_it_is_the_home_folder(fresh, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(fresh / "home"))
    assert folder_of(room.kernel(double)).is_relative_to(fresh / "home/.cache/musegnn")


def test_numbas_setting_is_used_and_restored(fresh, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(fresh / "own"))
    compiled = room.kernel(double)
    assert works(compiled)
    assert folder_of(compiled).is_relative_to(fresh / "own" / f"kernels-{room._digest()[:16]}")
    assert numba.config.CACHE_DIR == str(fresh / "own")
    assert not (fresh / "caches").exists()


def test_numbas_setting_is_restored_after_a_failure(fresh, monkeypatch):
    def fail(**options):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(room, "njit", fail)
    with pytest.raises(RuntimeError, match="no compiler"):
        room.kernel(double)
    assert numba.config.CACHE_DIR == ""


def test_another_content_of_the_room_has_another_folder(fresh, monkeypatch):
    before = folder_of(room.kernel(double))
    room._folder.cache_clear()
    monkeypatch.setattr(room, "_digest", lambda: "0123456789abcdef0123")
    after = folder_of(room.kernel(double))
    assert after != before
    assert after.is_relative_to(fresh / "caches/musegnn/kernels-0123456789abcdef")


def test_the_digest_sees_each_file_of_the_room_and_its_name(tmp_path, monkeypatch):
    digests = []
    for name, text in [
        ("a.py", "1"),
        ("a.py", "2"),
        ("op/numba.py", "1"),
        ("op/numb.py", "a.py1"),
        ("b", ""),
    ]:
        path = tmp_path / "room" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        monkeypatch.setattr(room, "__file__", str(tmp_path / "room/kernel.py"))
        digests.append(room._digest())
    # The last is no source.
    assert digests[-1] == digests[-2]
    assert len(set(digests)) == 4
    (tmp_path / "room/a.py").rename(tmp_path / "room/c.py")
    assert room._digest() not in digests


def test_the_digest_of_the_room_is_that_of_its_files():
    assert room._digest() == room._digest()
    assert len(room._digest()) == 64


@pytest.mark.parametrize("obstacle", ["a file in its place", "not writable", "no home"])
def test_where_no_folder_can_be_written_kernels_work(fresh, monkeypatch, obstacle):
    write = tempfile.TemporaryFile

    def refuse(*, dir):
        if Path(dir).is_relative_to(fresh / "caches"):
            raise PermissionError("read-only")
        return write(dir=dir)

    if obstacle == "a file in its place":
        (fresh / "caches").touch()
    elif obstacle == "not writable":
        # To root every folder is writable, so the attempt itself must fail.
        monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "~nobody-of-this-name/caches")
    compiled = room.kernel(double)
    assert works(compiled)
    assert folder_of(compiled).is_relative_to(fresh / "temporary")
    assert numba.config.CACHE_DIR == ""


def test_the_trial_leaves_no_file_behind(fresh):
    folder = room._folder("")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


def test_kernels_run_without_the_interpreters_lock(fresh):
    assert room.kernel(double).targetoptions["nogil"]
