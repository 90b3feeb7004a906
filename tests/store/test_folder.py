"""A store is there whole or not at all, whatever happens while it is written; readers are told why not."""

import errno
import os
import re
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from musegnn.errors import StoreError
from musegnn.store import ArraySpec, FolderWriter, StoredFolder, digest_array, file_errors
from musegnn.store import folder as module

HOLD = """
import sys, numpy as np
from pathlib import Path
from musegnn.store import FolderWriter
with FolderWriter(Path(sys.argv[1]), "graph") as writer:
    writer.write("x", np.arange(10))
    print("writing", flush=True)
    sys.stdin.readline()
    writer.publish({"by": "the other"}, {})
"""

TOO_MUCH = """
import resource, sys, numpy as np
from pathlib import Path
from musegnn.errors import StoreError
from musegnn.store import FolderWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    with FolderWriter(Path(sys.argv[1]), "graph") as writer:
        writer.write("x", np.arange(10))
        writer.array("y", np.int64).append(np.arange(1 << 16))
        writer.publish({}, {})
except StoreError as error:
    print(error)
"""

RACE = """
import re, sys, numpy as np
from pathlib import Path
from musegnn.errors import StoreError
from musegnn.store import FolderWriter, StoredFolder

folder, role, done = Path(sys.argv[1]), sys.argv[2], 0
while done < (500 if role == "reader" else 40):
    try:
        if role == "reader":
            stored = StoredFolder(folder, "graph")
            value = stored.header.attributes["value"]
            assert {int(value) for array in stored.arrays.values() for value in array} == {value}
        else:
            with FolderWriter(folder, "graph", overwrite=True) as writer:
                writer.write("x", np.full(10, int(role)))
                writer.publish({"value": int(role)}, {})
        done += 1
    except StoreError as error:
        # Between two stores, for an instant, there is none.
        harmless = "being written|not complete|was replaced|does not exist|is missing|has no header"
        assert re.search(harmless, str(error)), error
"""


def save(folder, value=0, **options):
    with FolderWriter(folder, "graph", **options) as writer:
        writer.write("x", np.full(100, value))
        writer.publish({"value": value}, {"name": "test"})


def value_of(folder):
    stored = StoredFolder(folder, "graph")
    stored.verify()
    assert set(stored.arrays["x"].tolist()) == {stored.header.attributes["value"]}
    assert {path.name for path in folder.iterdir()} == {"header.json", "x.bin"}
    return stored.header.attributes["value"]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def refused(match):
    with pytest.raises(StoreError, match=match) as caught:
        yield
    assert "\n" not in str(caught.value)


@contextmanager
def other_process(folder):
    """Another process that has begun to write the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        try:
            assert process.stdout.readline() == "writing\n"
            yield process
        finally:
            process.kill()


def test_what_was_written_is_read_back(tmp_path):
    with FolderWriter(tmp_path / "s", "graph") as writer:
        writer.write("a", np.arange(5, dtype=np.int16))
        appended = writer.array("b", np.float32, (2,))
        appended.append(np.ones((3, 2), dtype=np.float32))
        early = writer.array("c", np.int8)
        early.append(np.zeros(4, dtype=np.int8))
        assert isinstance(writer.finish("c"), np.memmap)
        (writer.scratch / "work").write_bytes(b"x")
        writer.publish({"n": 5}, {"name": "t"})
    stored = StoredFolder(tmp_path / "s", "graph")
    stored.verify(threads=2)
    assert stored.header.attributes == {"n": 5}
    assert {name: array.shape for name, array in stored.arrays.items()} == {"a": (5,), "b": (3, 2), "c": (4,)}
    assert stored.num_bytes == 5 * 2 + 6 * 4 + 4
    assert names(tmp_path) == ["s"]
    assert names(tmp_path / "s") == ["a.bin", "b.bin", "c.bin", "header.json"]


def test_folders_above_are_made(tmp_path):
    save(tmp_path / "a" / "b" / "s", 3)
    assert value_of(tmp_path / "a" / "b" / "s") == 3


def test_a_relative_path_is_that_of_the_moment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    with FolderWriter(Path("s"), "graph") as writer:
        monkeypatch.chdir("elsewhere")
        writer.write("x", np.full(3, 1))
        writer.publish({"value": 1}, {})
    assert value_of(tmp_path / "s") == 1


def test_an_empty_folder_is_filled(tmp_path):
    (tmp_path / "s").mkdir()
    save(tmp_path / "s", 1)
    assert value_of(tmp_path / "s") == 1


def test_a_link_is_followed_and_kept(tmp_path):
    save(tmp_path / "real", 1)
    (tmp_path / "link").symlink_to("real")
    save(tmp_path / "link", 2, overwrite=True)
    assert value_of(tmp_path / "real") == value_of(tmp_path / "link") == 2
    assert (tmp_path / "link").is_symlink()
    assert names(tmp_path) == ["link", "real"]


def test_a_link_to_nowhere_is_where_the_store_goes(tmp_path):
    (tmp_path / "link").symlink_to("later")
    save(tmp_path / "link", 2)
    assert value_of(tmp_path / "later") == 2
    assert names(tmp_path) == ["later", "link"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("overwrite", [False, True])
def test_an_exception_leaves_nothing_behind(tmp_path, error, overwrite):
    if overwrite:
        save(tmp_path / "s", 1)

    def write():
        with FolderWriter(tmp_path / "s", "graph", overwrite=overwrite) as writer:
            writer.write("x", np.arange(10))
            writer.array("y", np.int8).append(np.zeros(4, dtype=np.int8))
            (writer.scratch / "bucket").write_bytes(b"keys")
            raise error

    with pytest.raises(error):
        write()
    assert names(tmp_path) == (["s"] if overwrite else [])
    save(tmp_path / "s", 2, overwrite=overwrite)
    assert value_of(tmp_path / "s") == 2


def test_leaving_without_publishing_leaves_nothing_behind(tmp_path):
    with FolderWriter(tmp_path / "s", "graph") as writer:
        writer.write("x", np.arange(10))
    assert names(tmp_path) == []


@pytest.mark.parametrize("which", [1, 2])
@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()])
def test_a_move_that_fails_leaves_the_old_store(tmp_path, monkeypatch, which, error):
    """Overwriting renames twice: the old store away, the new one to its place."""
    save(tmp_path / "s", 1)
    rename, calls = Path.rename, []

    def failing(self, target):
        calls.append(target)
        if len(calls) == which:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises((StoreError, KeyboardInterrupt)):
        save(tmp_path / "s", 2, overwrite=True)
    monkeypatch.undo()
    assert value_of(tmp_path / "s") == 1
    assert names(tmp_path) == ["s"]


def test_a_size_limit_is_a_full_disk(tmp_path):
    """A real one: the operating system refuses to let the file grow."""
    done = subprocess.run(
        [sys.executable, "-c", TOO_MUCH, str(tmp_path / "s")], capture_output=True, text=True, check=True
    )
    assert re.fullmatch(r"The disk is full .* while writing .*/s\. Nothing was kept; .*\n", done.stdout)
    assert names(tmp_path) == []


@pytest.mark.parametrize("num_values", [10, 1 << 20], ids=["when it is closed", "when it is written"])
def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch, num_values):
    """/dev/full takes the place of one array's file."""
    really_open = Path.open

    def full(self, *args, **options):
        return (
            really_open(Path("/dev/full"), "wb")
            if self.name == "y.bin"
            else really_open(self, *args, **options)
        )

    def write():
        with FolderWriter(tmp_path / "s", "graph") as writer:
            writer.write("x", np.arange(10))
            writer.write("y", np.arange(num_values))
            writer.publish({}, {})

    monkeypatch.setattr(Path, "open", full)
    with refused(r"The disk is full .* while writing .*/s\. Nothing was kept; free some space"):
        write()
    assert names(tmp_path) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_is_no_store_is_never_touched(tmp_path, overwrite):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("years of work")
    with refused(
        r"exists and is not a store \(or lost its header\.json\)\. Choose another folder, or remove it\.$"
    ):
        save(tmp_path / "s", overwrite=overwrite)
    assert (tmp_path / "s" / "thesis.tex").read_text() == "years of work"
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("text", ["", "{}", '{"format": "something else"}'])
def test_a_header_of_somebody_else_makes_no_store(tmp_path, text):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "header.json").write_text(text)
    with refused("exists and is not a store"):
        save(tmp_path / "s", overwrite=True)
    assert (tmp_path / "s" / "header.json").read_text() == text


def test_a_file_is_no_store(tmp_path):
    (tmp_path / "s").write_text("text")
    with refused("exists and is not a store"):
        save(tmp_path / "s", overwrite=True)
    assert (tmp_path / "s").read_text() == "text"


def test_an_existing_store_is_kept(tmp_path):
    save(tmp_path / "s", 1)
    with refused("exists already. Choose another folder, or pass overwrite=True"):
        save(tmp_path / "s", 2)
    assert value_of(tmp_path / "s") == 1
    assert names(tmp_path) == ["s"]


def test_an_existing_store_is_noticed_before_anything_is_written(tmp_path):
    save(tmp_path / "s", 1)
    with refused("exists already"):
        FolderWriter(tmp_path / "s", "graph").__enter__()
    assert names(tmp_path) == ["s"]


def test_overwriting_replaces_the_store(tmp_path):
    save(tmp_path / "s", 1)
    save(tmp_path / "s", 2, overwrite=True)
    assert value_of(tmp_path / "s") == 2
    assert names(tmp_path) == ["s"]


def test_a_damaged_store_may_be_overwritten(tmp_path):
    save(tmp_path / "s", 1)
    header = tmp_path / "s" / "header.json"
    header.write_text(header.read_text()[:-20])
    save(tmp_path / "s", 2, overwrite=True)
    assert value_of(tmp_path / "s") == 2


def test_a_reader_keeps_what_it_opened_when_the_store_is_overwritten(tmp_path):
    save(tmp_path / "s", 1)
    before = StoredFolder(tmp_path / "s", "graph")
    save(tmp_path / "s", 2, overwrite=True)
    assert set(before.arrays["x"].tolist()) == {1}
    assert value_of(tmp_path / "s") == 2


def test_what_appears_while_we_write_is_not_replaced(tmp_path):
    def write():
        with FolderWriter(tmp_path / "s", "graph", overwrite=True) as writer:
            writer.write("x", np.arange(3))
            (tmp_path / "s").mkdir()
            (tmp_path / "s" / "notes.txt").write_text("mine")
            writer.publish({}, {})

    with refused("exists and is not a store"):
        write()
    assert (tmp_path / "s" / "notes.txt").read_text() == "mine"
    assert names(tmp_path) == ["s"]


def test_a_second_writer_is_refused(tmp_path):
    with other_process(tmp_path / "s") as process:
        with refused("is being written by another process. Wait for it, or choose another folder."):
            save(tmp_path / "s")
        with refused("is being written by another process"):
            save(tmp_path / "s", overwrite=True)
        process.stdin.write("go on\n")
        process.stdin.flush()
        assert process.wait() == 0
    assert StoredFolder(tmp_path / "s", "graph").header.attributes == {"by": "the other"}
    assert names(tmp_path) == ["s"]


def test_a_second_writer_in_the_same_process_is_refused(tmp_path):
    with FolderWriter(tmp_path / "s", "graph") as writer:
        with refused("is being written by another process"):
            save(tmp_path / "s")
        writer.write("x", np.full(2, 5))
        writer.publish({"value": 5}, {})
    assert value_of(tmp_path / "s") == 5


def test_what_a_killed_writer_left_is_taken_over(tmp_path):
    with other_process(tmp_path / "s") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert names(tmp_path) == ["s.partial"]
    (tmp_path / "s.partial" / "link").symlink_to("/nowhere")
    with refused(
        "is not complete: .* one was stopped while it did. Wait for it, or run the same command again."
    ):
        StoredFolder(tmp_path / "s", "graph")
    save(tmp_path / "s", 4)
    assert value_of(tmp_path / "s") == 4
    assert names(tmp_path) == ["s"]


def test_what_a_writer_killed_between_its_two_moves_left_is_taken_over(tmp_path):
    save(tmp_path / "s", 1)
    save(tmp_path / "s.partial" / "store", 2)
    (tmp_path / "s.partial" / ".lock").touch()
    (tmp_path / "s").rename(tmp_path / "s.partial" / "replaced")
    with refused("is not complete"):
        StoredFolder(tmp_path / "s", "graph")
    save(tmp_path / "s", 3, overwrite=True)
    assert value_of(tmp_path / "s") == 3
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize(
    ("owner", "name", "when"),
    [
        (Path, "mkdir", "before"),
        (module, "_open_lock", "before"),
        (module, "_open_lock", "after"),
        (module.fcntl, "flock", "before"),
    ],
)
def test_a_writer_that_ends_while_another_takes_the_lock_is_not_disturbed(
    tmp_path, monkeypatch, owner, name, when
):
    """Wherever it happens, the second is refused."""
    function = getattr(owner, name)
    first = FolderWriter(tmp_path / "s", "graph")
    first.__enter__()
    first.write("x", np.full(10, 1))

    def end():
        first.publish({"value": 1}, {})
        first.__exit__(None, None, None)

    def intruded(*args, **options):
        monkeypatch.undo()
        if when == "before":
            end()
        result = function(*args, **options)
        if when == "after":
            end()
        return result

    monkeypatch.setattr(owner, name, intruded)
    with refused("is being written by another process|exists already"):
        save(tmp_path / "s", 2)
    assert value_of(tmp_path / "s") == 1
    assert names(tmp_path) == ["s"]


def test_the_lock_holds_until_all_the_rest_is_removed(tmp_path, monkeypatch):
    remove, removed = module._remove, []

    def intruded(path, **options):
        with refused("is being written by another process"):
            save(tmp_path / "s", 9, overwrite=True)
        remove(path, **options)
        removed.append(path.name)

    with FolderWriter(tmp_path / "s", "graph") as writer:
        writer.write("x", np.full(10, 1))
        monkeypatch.setattr(module, "_remove", intruded)
    assert sorted(removed) == ["journal", "scratch", "store"]
    assert names(tmp_path) == []


def test_a_lock_on_a_file_that_is_gone_is_no_lock(tmp_path, monkeypatch):
    """Between the second writer's open and its lock, the first ends and a third begins."""
    flock = module.fcntl.flock
    first, third = (FolderWriter(tmp_path / "s", "graph", overwrite=True) for _ in range(2))

    def intruded(*args):
        monkeypatch.undo()
        first.__exit__(None, None, None)
        third.__enter__()
        flock(*args)

    first.__enter__()
    monkeypatch.setattr(module.fcntl, "flock", intruded)
    with refused("is being written by another process"):
        save(tmp_path / "s", 2, overwrite=True)
    third.write("x", np.full(10, 3))
    third.publish({"value": 3}, {})
    third.__exit__(None, None, None)
    assert value_of(tmp_path / "s") == 3
    assert names(tmp_path) == ["s"]


def test_a_store_that_is_replaced_while_it_is_opened_is_not_mixed(tmp_path, monkeypatch):
    """The header of the old one, the arrays of the new one, which have the same sizes."""
    save(tmp_path / "s", 1)
    map_array = module.map_array

    def late(path, spec):
        monkeypatch.undo()
        save(tmp_path / "s", 2, overwrite=True)
        return map_array(path, spec)

    monkeypatch.setattr(module, "map_array", late)
    with refused("was replaced after it was opened. Open it again."):
        StoredFolder(tmp_path / "s", "graph")
    assert value_of(tmp_path / "s") == 2


def test_two_writers_and_a_reader_at_once_see_whole_stores_only(tmp_path):
    """Two processes overwrite one store as fast as they can, a third opens it; each checks what it finds."""
    command = [sys.executable, "-c", RACE, str(tmp_path / "s")]
    racers = [subprocess.Popen([*command, role]) for role in ("1", "2", "reader")]
    assert [racer.wait() for racer in racers] == [0, 0, 0]
    assert value_of(tmp_path / "s") in (1, 2)
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("call", [1, 2], ids=["before the move", "after the move"])
def test_the_lock_holds_until_the_store_is_in_place(tmp_path, monkeypatch, call):
    sync, calls = module._sync_folder, []

    def intrude(folder):
        calls.append(folder)
        if len(calls) == call:
            with refused("is being written by another process"):
                save(tmp_path / "s", 9)
        sync(folder)

    monkeypatch.setattr(module, "_sync_folder", intrude)
    save(tmp_path / "s", 1)
    assert len(calls) == 2
    assert value_of(tmp_path / "s") == 1


def test_a_folder_that_is_missing_is_named(tmp_path):
    with refused(r"/nothing does not exist\. Pass the folder of a graph store\."):
        StoredFolder(tmp_path / "nothing", "graph")


@pytest.mark.parametrize("folder", ["/", ".", ".."])
def test_a_folder_without_header_is_no_store(folder, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with refused(r"has no header\.json: not a graph store\. Pass the folder of one\."):
        StoredFolder(Path(folder), "graph")


@pytest.mark.parametrize("folder", ["/", ".."])
def test_a_folder_without_a_name_is_not_written(folder, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with refused("exists and is not a store"):
        save(Path(folder))


def test_a_store_of_another_kind_is_refused(tmp_path):
    save(tmp_path / "s")
    with refused("is not the header of a musegnn samples store"):
        StoredFolder(tmp_path / "s", "samples")


@pytest.mark.parametrize("size", [0, 799, 801])
def test_a_file_of_another_size_is_found_when_the_store_is_opened(tmp_path, size):
    save(tmp_path / "s")
    os.truncate(tmp_path / "s" / "x.bin", size)
    with refused(rf"x\.bin has {size} bytes, but its header says 800"):
        StoredFolder(tmp_path / "s", "graph")


@pytest.mark.parametrize("threads", [1, 3])
def test_a_changed_byte_is_found_by_verify(tmp_path, threads):
    save(tmp_path / "s")
    with (tmp_path / "s" / "x.bin").open("r+b") as file:
        file.seek(431)
        file.write(b"\1")
    stored = StoredFolder(tmp_path / "s", "graph")
    with refused(r"x\.bin is damaged: its bytes do not have the digest in the header"):
        stored.verify(threads=threads)


def test_a_file_that_vanishes_is_named(tmp_path):
    save(tmp_path / "s")
    stored = StoredFolder(tmp_path / "s", "graph")
    (tmp_path / "s" / "x.bin").unlink()
    with refused(r"x\.bin is missing: the store is damaged\. Write it again\."):
        stored.verify()


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    with refused(r"cannot be used: Not a directory\."):
        save(tmp_path / "file" / "s")
    with refused(r"does not exist\. Pass the folder of a graph store"):
        StoredFolder(tmp_path / "file" / "s", "graph")


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with refused(r"cannot be used: File name too long\."):
        save(tmp_path / ("x" * 300))
    with refused(r"cannot be used: File name too long\."):
        StoredFolder(tmp_path / ("x" * 300), "graph")


def test_a_file_in_the_place_of_the_partial_folder_is_kept(tmp_path):
    (tmp_path / "s.partial").write_text("text")
    with refused(r"s\.partial/\.lock cannot be used: Not a directory\."):
        save(tmp_path / "s")
    assert (tmp_path / "s.partial").read_text() == "text"


def test_a_folder_that_may_not_be_written_is_named(tmp_path, monkeypatch):
    """Root may write everywhere, so the refusal is played."""

    def refuse(self, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with refused(r"/s\.partial may not be accessed\. Check its permissions\."):
        save(tmp_path / "s")


def test_a_store_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    save(tmp_path / "s")

    def refuse(self, *args, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "read_text", refuse)
    with refused(r"/s/header\.json may not be accessed\. Check its permissions\."):
        StoredFolder(tmp_path / "s", "graph")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file", "/a"), "/a does not exist. Check the path."),
        (FileNotFoundError(), "/here does not exist. Check the path."),
        (PermissionError(errno.EPERM, "No", "/a"), "/a may not be accessed. Check its permissions."),
        (OSError(errno.EIO, "Input/output error", "/a"), "/a cannot be used: Input/output error."),
        (OSError("strange"), "/here cannot be used: strange."),
        *((OSError(number, "x", "/a"), "The disk is full (or a size limit was reached) while writing /here.")
          for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
    ],
)  # fmt: skip
def test_every_kind_of_failure_is_a_sentence(error, message):
    with refused("^" + re.escape(message)), file_errors(Path("/here")):
        raise error


def test_what_is_no_failure_of_a_file_passes_through():
    with pytest.raises(ZeroDivisionError), file_errors(Path("/here")):
        1 / 0  # noqa: B018


def test_a_partial_folder_that_is_not_ours_is_never_touched(tmp_path):
    (tmp_path / "g.partial").mkdir()
    (tmp_path / "g.partial" / "thesis.tex").write_text("years")
    with pytest.raises(StoreError, match=r"g\.partial is in the way and is not ours"):
        FolderWriter(tmp_path / "g", "graph").__enter__()
    assert (tmp_path / "g.partial" / "thesis.tex").read_text() == "years"


def test_a_store_that_holds_something_of_the_user_is_not_replaced(tmp_path):
    with FolderWriter(tmp_path / "g", "graph") as writer:
        writer.publish({}, {})
    (tmp_path / "g" / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"also holds notes\.txt"):
        FolderWriter(tmp_path / "g", "graph", overwrite=True).__enter__()
    assert (tmp_path / "g" / "notes.txt").read_text() == "mine"


def test_the_old_store_comes_back_after_a_kill_between_the_two_moves(tmp_path):
    """What such a kill leaves: the old store set aside, the new one not yet in its place."""
    with FolderWriter(tmp_path / "g", "graph") as writer:
        writer.write("x", np.arange(3))
        writer.publish({}, {})
    (tmp_path / "g.partial").mkdir()
    (tmp_path / "g.partial" / ".lock").touch()
    (tmp_path / "g").rename(tmp_path / "g.partial" / "replaced")
    with pytest.raises(ZeroDivisionError), FolderWriter(tmp_path / "g", "graph", overwrite=True):
        raise ZeroDivisionError
    assert StoredFolder(tmp_path / "g", "graph").arrays["x"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["g"]


def test_folders_made_for_a_store_that_failed_are_removed(tmp_path):
    with pytest.raises(ZeroDivisionError), FolderWriter(tmp_path / "a" / "b" / "g", "graph"):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def stopped(folder, **options):
    """A writer that is stopped after it has written one array and noted something of it."""
    with suppress(ZeroDivisionError), FolderWriter(folder, "samples", keep=True, **options) as writer:
        writer.write("x", np.arange(10))
        (writer.scratch / "bucket").write_bytes(b"keys")
        (writer.journal / "plan.json").write_text("a plan")
        (writer.journal / "x.json").write_text("noted")
        raise ZeroDivisionError


def test_a_writer_that_keeps_leaves_what_it_has_noted(tmp_path):
    stopped(tmp_path / "s")
    assert names(tmp_path) == ["s.partial"]
    with refused("is not complete"):
        StoredFolder(tmp_path / "s", "samples")
    with FolderWriter(tmp_path / "s", "samples", keep=True) as writer:
        assert (writer.journal / "x.json").read_text() == "noted"
        assert writer.path("x").read_bytes() == np.arange(10).tobytes()
        assert names(writer.scratch) == []
        writer.adopt("x", ArraySpec(dtype="<i8", shape=(10,), digest=digest_array(np.arange(10))))
        writer.publish({"n": 1}, {})
    stored = StoredFolder(tmp_path / "s", "samples")
    stored.verify()
    assert stored.arrays["x"].tolist() == list(range(10))
    assert names(tmp_path) == ["s"]


def test_a_writer_that_keeps_but_has_noted_nothing_leaves_nothing(tmp_path):
    with suppress(ZeroDivisionError), FolderWriter(tmp_path / "a" / "s", "samples", keep=True) as writer:
        writer.write("x", np.arange(10))
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_plan_alone_is_nothing_to_keep(tmp_path):
    with suppress(ZeroDivisionError), FolderWriter(tmp_path / "a" / "s", "samples", keep=True) as writer:
        writer.write("x", np.arange(10))
        (writer.journal / "plan.json").write_text("a plan")
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_a_journal_that_vanished_is_nothing_to_keep(tmp_path):
    with suppress(ZeroDivisionError), FolderWriter(tmp_path / "s", "samples", keep=True) as writer:
        writer.journal.rmdir()
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_clearing_a_folder_spares_what_it_is_told_to(tmp_path):
    """Files, folders and links go; what a link points to does not."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with FolderWriter(tmp_path / "s", "samples") as writer:
        for name in ("a", "b"):
            (writer.files / name).write_text(name)
        (writer.files / "folder").mkdir()
        (writer.files / "folder" / "inside").touch()
        (writer.files / "link").symlink_to(tmp_path / "mine")
        writer.clear(writer.files, spare=[writer.files / "b"])
        assert names(writer.files) == ["b"]
    assert names(tmp_path / "mine") == ["thesis.tex"]


@pytest.mark.parametrize("publishes", [True, False])
def test_a_writer_that_keeps_and_ends_well_leaves_nothing_beside(tmp_path, publishes):
    stopped(tmp_path / "s")
    with FolderWriter(tmp_path / "s", "samples", keep=True) as writer:
        if publishes:
            writer.path("x").unlink()
            writer.publish({}, {})
    assert names(tmp_path) == (["s"] if publishes else [])


def test_a_writer_that_does_not_keep_removes_what_was_kept(tmp_path):
    stopped(tmp_path / "s")
    with FolderWriter(tmp_path / "s", "samples") as writer:
        assert names(writer.journal) == []
        assert not writer.path("x").exists()
        writer.publish({}, {})
    assert names(tmp_path) == ["s"]


def test_a_writer_that_keeps_removes_what_is_neither_store_nor_journal(tmp_path):
    stopped(tmp_path / "s")
    (tmp_path / "s.partial" / "other").mkdir()
    (tmp_path / "s.partial" / "file").touch()
    with FolderWriter(tmp_path / "s", "samples", keep=True):
        assert names(tmp_path / "s.partial") == [".lock", "journal", "scratch", "store"]


def test_what_is_kept_is_free_for_the_next_writer(tmp_path):
    """The lock goes with the process or the writer, not with the folder."""
    stopped(tmp_path / "s")
    stopped_again = FolderWriter(tmp_path / "s", "samples", keep=True)
    with stopped_again, refused("is being written by another process"):
        FolderWriter(tmp_path / "s", "samples", keep=True).__enter__()
    assert names(tmp_path) == []


def test_a_full_disk_says_what_is_kept(tmp_path):
    def write():
        with FolderWriter(tmp_path / "s", "samples", keep=True) as writer:
            (writer.journal / "plan.json").write_text("a plan")
            (writer.journal / "x.json").write_text("noted")
            raise OSError(errno.ENOSPC, "No space left on device")

    with refused(r"The disk is full .* What was finished is kept; free some space and do the same again\."):
        write()
    assert names(tmp_path) == ["s.partial"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_a_store_of_another_kind_is_never_replaced(tmp_path, overwrite, keep):
    save(tmp_path / "s", 1)
    with refused("is a graph store, not one of samples. Choose another folder."):
        FolderWriter(tmp_path / "s", "samples", overwrite=overwrite, keep=keep).__enter__()
    assert value_of(tmp_path / "s") == 1
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("keep", [False, True])
def test_a_refused_writer_leaves_nothing_beside(tmp_path, keep):
    save(tmp_path / "s", 1)
    with refused("exists already"):
        FolderWriter(tmp_path / "s", "graph", keep=keep).__enter__()
    assert names(tmp_path) == ["s"]


def test_a_damaged_header_still_has_its_kind(tmp_path):
    save(tmp_path / "s", 1)
    header = tmp_path / "s" / "header.json"
    header.write_text(header.read_text()[:40])
    assert module.kind_of(tmp_path / "s") == "graph"
    with refused("is a graph store, not one of samples"):
        FolderWriter(tmp_path / "s", "samples", overwrite=True).__enter__()
    assert module.kind_of(tmp_path) is None
    assert module.kind_of(tmp_path / "nothing") is None


def test_only_the_chosen_arrays_are_mapped(tmp_path):
    with FolderWriter(tmp_path / "s", "graph") as writer:
        for name in ("a", "b", "c"):
            writer.write(name, np.full(3, ord(name)))
        writer.publish({}, {})
    stored = StoredFolder(tmp_path / "s", "graph", maps=lambda name: name == "b")
    assert list(stored.arrays) == ["b"]
    assert list(stored.header.arrays) == ["a", "b", "c"]
    mapped = stored.map("c")
    assert isinstance(mapped, np.memmap)
    assert mapped.tolist() == [ord("c")] * 3
    stored.verify()


def test_arrays_that_are_not_mapped_are_checked_nevertheless(tmp_path):
    save(tmp_path / "s")
    os.truncate(tmp_path / "s" / "x.bin", 8)
    with refused(r"x\.bin has 8 bytes, but its header says 800"):
        StoredFolder(tmp_path / "s", "graph", maps=lambda name: False)


def test_an_array_that_is_mapped_late_belongs_to_the_store_that_was_opened(tmp_path):
    save(tmp_path / "s", 1)
    stored = StoredFolder(tmp_path / "s", "graph", maps=lambda name: False)
    save(tmp_path / "s", 2, overwrite=True)
    with refused("was replaced after it was opened. Open it again."):
        stored.map("x")


def test_an_array_that_vanished_is_named_when_it_is_mapped(tmp_path):
    save(tmp_path / "s", 1)
    stored = StoredFolder(tmp_path / "s", "graph", maps=lambda name: False)
    (tmp_path / "s" / "x.bin").unlink()
    with refused(r"x\.bin is missing: the store is damaged"):
        stored.map("x")
