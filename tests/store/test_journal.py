"""What stands in the journal is complete; whatever is not in it, or does not fit it, is gone."""

import json
import os
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from musegnn.errors import StoreError
from musegnn.store import ArraySpec, FolderWriter, Journal, digest_array
from musegnn.store.header import checksum

PLAN = {"graph": "abc", "sizes": [1, 2], "sampler": {"name": "S", "settings": {"p": 0.1}}}


class StopError(Exception):
    pass


@contextmanager
def unfinished(folder, plan=PLAN):
    """A journal whose writer is stopped at the end of the block."""
    with suppress(StopError), FolderWriter(folder, "samples", keep=True) as writer:
        yield writer, Journal(writer, plan)
        raise StopError


def add(writer, journal, name, value=1, facts=None):
    array = np.full(10, value)
    with writer.path(name).open("xb") as file:
        file.write(array.tobytes())
    journal.add(name, ArraySpec(dtype="<i8", shape=(10,), digest=digest_array(array)), facts or {})


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def folder(tmp_path):
    """Two arrays were finished, a third was not."""
    with unfinished(tmp_path / "s") as (writer, journal):
        add(writer, journal, "a", 1, {"rows": [[1, 2.5]]})
        add(writer, journal, "b", 2)
        writer.path("half").write_bytes(b"begun")
    return tmp_path / "s"


@pytest.fixture
def partial(folder):
    return folder.with_name("s.partial")


def test_what_was_finished_is_there_for_the_next_writer(folder):
    with unfinished(folder) as (writer, journal):
        assert sorted(journal.entries) == ["a", "b"]
        assert journal.entries["a"].facts == {"rows": [[1, 2.5]]}
        assert journal.entries["a"].spec == ArraySpec(
            dtype="<i8", shape=(10,), digest=digest_array(np.full(10, 1))
        )
        assert journal.is_intact("a")
        assert journal.is_intact("b")
        assert writer.path("a").read_bytes() == np.full(10, 1).tobytes()


def test_what_was_only_begun_is_removed(folder, partial):
    assert (partial / "store" / "half.bin").exists()
    with unfinished(folder) as (writer, _):
        assert names(partial / "store") == ["a.bin", "b.bin"]
        # The name is free again.
        writer.path("half").open("xb").close()


@pytest.mark.parametrize("plan", [{**PLAN, "graph": "abd"}, {**PLAN, "more": 1}, {}])
def test_what_belongs_to_another_plan_is_forgotten(folder, partial, plan):
    with unfinished(folder, plan) as (_, journal):
        assert journal.entries == {}
        assert names(partial / "store") == []
        assert names(partial / "journal") == ["plan.json"]
    with unfinished(folder, plan) as (writer, journal):
        add(writer, journal, "a")
    with unfinished(folder, plan) as (_, journal):
        assert list(journal.entries) == ["a"]


def test_without_keep_the_next_writer_finds_nothing(folder, partial):
    with FolderWriter(folder, "samples") as writer:
        assert names(partial) == [".lock", "journal", "scratch", "store"]
        assert Journal(writer, PLAN).entries == {}
    assert names(folder.parent) == []


def test_a_dropped_array_is_gone(folder, partial):
    with unfinished(folder) as (writer, journal):
        journal.drop("a")
        assert list(journal.entries) == ["b"]
        assert names(partial / "store") == ["b.bin"]
        assert names(partial / "journal") == ["b.json", "plan.json"]
        writer.path("b").unlink()
        journal.drop("b")
        add(writer, journal, "a", 3)
        assert journal.is_intact("a")
    with unfinished(folder) as (_, journal):
        assert list(journal.entries) == ["a"]


@pytest.mark.parametrize("place", [0, 41, 79])
def test_a_changed_byte_is_found(folder, partial, place):
    data = bytearray((partial / "store" / "a.bin").read_bytes())
    data[place] ^= 1
    (partial / "store" / "a.bin").write_bytes(data)
    with unfinished(folder) as (_, journal):
        assert not journal.is_intact("a")
        assert journal.is_intact("b")


@pytest.mark.parametrize("size", [None, 0, 79, 81])
def test_an_array_that_is_missing_or_of_another_size_is_forgotten(folder, partial, size):
    if size is None:
        (partial / "store" / "a.bin").unlink()
    else:
        os.truncate(partial / "store" / "a.bin", size)
    with unfinished(folder) as (_, journal):
        assert list(journal.entries) == ["b"]
        assert names(partial / "store") == ["b.bin"]


SPEC = {"dtype": "<i8", "shape": [10], "digest": "0" * 64}


def sealed(body, name="a.json"):
    """With a checksum that fits: only what it says can be wrong."""
    return json.dumps({"body": body, "checksum": checksum({name: body})}).encode()


def test_an_entry_that_makes_sense_is_taken(folder, partial):
    """So that what is forgotten below is forgotten for the fault alone."""
    (partial / "journal" / "a.json").write_bytes(sealed({"spec": SPEC, "facts": {"n": 2}}))
    with unfinished(folder) as (_, journal):
        assert sorted(journal.entries) == ["a", "b"]
        assert journal.entries["a"].facts == {"n": 2}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b"3",
        b'"text"',
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"spec": SPEC, "facts": {}}).encode(),
        json.dumps({"body": {"spec": SPEC, "facts": {}}}).encode(),
        json.dumps({"body": {"spec": SPEC, "facts": {}}, "checksum": "0" * 64}).encode(),
        sealed({"spec": SPEC, "facts": {}}, "b.json"),
        sealed([]),
        sealed(None),
        sealed({"spec": SPEC}),
        sealed({"facts": {}}),
        sealed({"spec": SPEC, "facts": 3}),
        sealed({"spec": SPEC, "facts": ["x"]}),
        sealed({"spec": 3, "facts": {}}),
        sealed({"spec": {**SPEC, "shape": [-10]}, "facts": {}}),
        sealed({"spec": {**SPEC, "shape": [11]}, "facts": {}}),
        sealed({"spec": {**SPEC, "dtype": "|O"}, "facts": {}}),
        sealed({"spec": {**SPEC, "digest": None}, "facts": {}}),
    ],
    ids=repr,
)
def test_an_entry_that_makes_no_sense_is_forgotten(folder, partial, text):
    (partial / "journal" / "a.json").write_bytes(text)
    with unfinished(folder) as (_, journal):
        assert list(journal.entries) == ["b"]
        assert names(partial / "store") == ["b.bin"]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"null", b"\xff", b"[" * 100_000], ids=lambda text: repr(text[:9])
)
def test_a_damaged_plan_is_another_plan(folder, partial, text):
    (partial / "journal" / "plan.json").write_bytes(text)
    with unfinished(folder) as (_, journal):
        assert journal.entries == {}
        assert names(partial / "store") == []
        assert names(partial / "journal") == ["plan.json"]


def test_any_changed_byte_of_an_entry_is_found(folder, partial):
    """Or else the facts would go into the store with digests that fit them."""
    path = partial / "journal" / "a.json"
    text, undetected = path.read_bytes(), []
    for place in range(len(text)):
        path.write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        with unfinished(folder) as (_, journal):
            entry = journal.entries.get("a")
            if entry is not None and journal.is_intact("a") and entry.facts != {"rows": [[1, 2.5]]}:
                undetected.append(entry.facts)
        (partial / "store" / "a.bin").write_bytes(np.full(10, 1).tobytes())
    assert undetected == []


def test_entries_that_changed_places_are_forgotten(folder, partial):
    """File and entry of one array under the name of another: the samples would be in another order."""
    for place, suffix in (("store", "bin"), ("journal", "json")):
        (partial / place / f"a.{suffix}").rename(partial / place / "c")
        (partial / place / f"b.{suffix}").rename(partial / place / f"a.{suffix}")
        (partial / place / "c").rename(partial / place / f"b.{suffix}")
    with unfinished(folder) as (_, journal):
        assert journal.entries == {}
        assert names(partial / "store") == []


def test_an_entry_in_place_of_the_plan_is_no_plan(folder, partial):
    (partial / "journal" / "plan.json").write_bytes((partial / "journal" / "a.json").read_bytes())
    with FolderWriter(folder, "samples", keep=True) as writer:
        assert Journal.left(writer) is None


def replace_by_a_folder(path):
    path.unlink()
    path.mkdir()
    (path / "inside").touch()


def replace_by_a_link(path, target):
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize(
    "replace",
    [
        replace_by_a_folder,
        lambda path: replace_by_a_link(path, "nowhere"),
        lambda path: replace_by_a_link(path, path.name),
        lambda path: replace_by_a_link(path, "/dev/zero"),
        lambda path: path.write_bytes(b"{"),
    ],
    ids=["folder", "nowhere", "itself", "device", "text"],
)
@pytest.mark.parametrize("name", ["a.json", "plan.json"])
def test_what_is_no_entry_makes_room_for_one(folder, partial, replace, name):
    replace(partial / "journal" / name)
    with unfinished(folder) as (writer, journal):
        assert "a" not in journal.entries
        add(writer, journal, "a", 3)
    with unfinished(folder) as (_, journal):
        assert journal.is_intact("a")


def test_what_is_left_is_told_by_its_plan(folder, partial):
    """If anything was finished: of a plan alone nothing can be lost."""

    def left():
        try:
            with FolderWriter(folder, "samples", keep=True) as writer:
                return Journal.left(writer)
        finally:
            shutil.copytree(saved, partial, dirs_exist_ok=True)

    saved = shutil.copytree(partial, folder.with_name("saved"))
    assert left() == PLAN
    for name in ("a.json", "b.json"):
        (partial / "journal" / name).unlink()
        (saved / "journal" / name).unlink()
    assert left() is None


def test_an_entry_that_changes_while_it_is_in_use_is_refused(folder, partial):
    """The facts are read again when they are asked for."""
    with unfinished(folder) as (_, journal):
        path = partial / "journal" / "a.json"
        path.write_bytes(path.read_bytes().replace(b"2.5", b"2.6"))
        with pytest.raises(
            StoreError, match=r"a\.json was changed while it was in use\. Do the same again\."
        ):
            _ = journal.entries["a"].facts
        assert journal.entries["b"].facts == {}


def test_an_entry_is_there_whole_or_not_at_all(folder, partial, monkeypatch):
    """Stopped before the rename, the entry has no name; what was written of it is not read."""

    def stop(self, target):
        raise StopError

    monkeypatch.setattr(Path, "rename", stop)
    with unfinished(folder) as (writer, journal):
        with pytest.raises(StopError):
            add(writer, journal, "c")
        assert "c" not in journal.entries
    monkeypatch.undo()
    assert "c.new" in names(partial / "journal")
    with unfinished(folder) as (writer, journal):
        assert sorted(journal.entries) == ["a", "b"]
        add(writer, journal, "c")
    with unfinished(folder) as (_, journal):
        assert sorted(journal.entries) == ["a", "b", "c"]


def test_an_entry_is_whole_before_it_gets_its_name(folder, monkeypatch):
    rename = Path.rename

    def checked(self, target):
        assert json.loads(self.read_text())["body"]["facts"] == {"n": 1}
        return rename(self, target)

    with unfinished(folder) as (writer, journal):
        monkeypatch.setattr(Path, "rename", checked)
        add(writer, journal, "c", facts={"n": 1})
        monkeypatch.undo()
        assert "c" in journal.entries


def test_adopted_arrays_are_published(folder, tmp_path):
    with FolderWriter(folder, "samples", keep=True) as writer:
        journal = Journal(writer, PLAN)
        for name, entry in journal.entries.items():
            writer.adopt(name, entry.spec)
        writer.publish({"n": 2}, {})
    assert names(tmp_path) == ["s"]
    assert names(folder) == ["a.bin", "b.bin", "header.json"]
