"""What an earlier run has left is taken over if it is intact and was drawn in the same way."""

import errno
import json
import os
import shutil
import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pytest

from musegnn import Draws, SampleStore, SeededSampler, ShadowKHop, UniformInduced, sample
from musegnn.sampling import plan as plan_module
from musegnn.sampling import salvage as module
from musegnn.store.header import checksum
from sample_stores import (
    Logged,
    a_graph,
    contents,
    drawn_in_few_shards,
    finished_shards,
    leave_unfinished,
    names,
    refused,
    reseal,
)

# beartype looks at one random item of a sequence that is passed on, and so would draw samples of its own.
pytestmark = pytest.mark.usefixtures("unchecked")

OPTIONS = {"batch_size": 20, "splits": ("train", "valid")}
SHARDS = 8


@pytest.fixture(scope="module")
def graph():
    return a_graph()


@pytest.fixture(autouse=True)
def few_shards(monkeypatch):
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)


@pytest.fixture(scope="module")
def pristine(graph, tmp_path_factory):
    return drawn_in_few_shards(graph, tmp_path_factory.mktemp("pristine") / "s", **OPTIONS)


@pytest.fixture
def folder(pristine, tmp_path):
    """A store to damage."""
    shutil.copytree(pristine, tmp_path / "s")
    return tmp_path / "s"


@pytest.fixture
def drawn(tmp_path_factory, monkeypatch):
    """How many samples were drawn, beside the first of each split."""
    log = tmp_path_factory.mktemp("log") / "log"
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(log))
    return lambda: len(log.read_text().split()) - 2


OTHER_VERSION = (
    r"/s: its samples were drawn by another version of the sampler; they come out differently now\. "
    r"Choose another folder, or pass overwrite=True \(--overwrite\) to draw all samples again\.$"
)


def changed_sampler(from_sample=0):
    """Another code under the same name and settings: it draws other nodes from some sample on."""

    @dataclass(frozen=True)
    class Changed(SeededSampler):
        pause: float = 0.0

        def draw(self, graph, seeds, rng):
            alike = seeds.tobytes() in alikes
            return ShadowKHop([2 if alike else 1]).draw(graph, seeds, rng)

    Changed.__name__ = "Logged"
    alikes = [
        Draws(a_graph(), Changed(), split, batch_size=20).seeds(index).tobytes()
        for split in OPTIONS["splits"]
        for index in range(from_sample)
    ]
    return Changed()


def flip(path, place=9):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def truncate(path):
    os.truncate(path, path.stat().st_size - 64)


def extend(path):
    path.write_bytes(path.read_bytes() + bytes(64))


def empty(path):
    path.write_bytes(b"")


def folder_instead(path):
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("text")


def link_to_nowhere(path):
    path.unlink()
    path.symlink_to("nowhere")


def link_to_itself(path):
    path.unlink()
    path.symlink_to(path)


def link_to_a_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


DAMAGES = [
    lambda path: path.unlink(),
    flip,
    truncate,
    extend,
    empty,
    folder_instead,
    link_to_nowhere,
    link_to_itself,
    link_to_a_device,
]
DAMAGE_NAMES = [
    "unlink",
    *(damage.__name__ for damage in DAMAGES[1:]),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=DAMAGE_NAMES)
@pytest.mark.parametrize("name", ["train_shard_000000", "valid_shard_000003"])
def test_a_damaged_shard_is_drawn_again_alone(graph, folder, pristine, drawn, damage, name):
    damage(folder / f"{name}.bin")
    with pytest.warns(UserWarning, match=rf"/s: 1 of 12 files are missing or damaged \({name}\.bin\);"):
        store = sample(graph, Logged(), folder, workers=2, **OPTIONS)
    store.verify()
    assert contents(folder) == contents(pristine)
    # And one of each split that has a shard left, to be compared with it.
    assert drawn() == (3 if name == "train_shard_000000" else 2) + 2
    assert names(folder.parent) == ["s"]
    assert names(folder) == names(pristine)


@pytest.mark.parametrize("damage", [DAMAGES[0], flip, empty], ids=["unlink", "flip", "empty"])
@pytest.mark.parametrize("table", ["sizes", "bounds"])
def test_a_damaged_table_has_its_split_drawn_again(graph, folder, pristine, drawn, damage, table):
    damage(folder / f"valid_{table}.bin")
    with pytest.warns(UserWarning, match=rf"1 of 12 files are missing or damaged \(valid_{table}\.bin\)"):
        sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)
    # And one of train, to be compared with what is there.
    assert drawn() == len(SampleStore.open(folder)["valid"]) + 1


def test_many_damaged_files_are_named_by_the_first_three(graph, folder, pristine):
    for path in folder.glob("*shard*.bin"):
        flip(path)
    shown = r"train_shard_000000\.bin, train_shard_000001\.bin, train_shard_000002\.bin, \.\.\."
    with pytest.warns(UserWarning, match=rf"8 of 12 files are missing or damaged \({shown}\); drawing"):
        sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)


def test_three_damaged_files_are_all_named(graph, folder):
    for i in range(3):
        flip(folder / f"train_shard_{i:06d}.bin")
    with pytest.warns(UserWarning, match=r"train_shard_000002\.bin\); drawing"):
        sample(graph, Logged(), folder, **OPTIONS)


def test_a_store_without_links_is_mended_by_copies(graph, folder, pristine, drawn, monkeypatch):
    """As on a file system that has none."""

    def no_links(source, target):
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    (folder / "train_shard_000001.bin").unlink()
    with pytest.warns(UserWarning, match="missing or damaged"):
        sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)
    assert drawn() == 3 + 2


def test_the_store_is_untouched_until_it_is_mended(graph, folder, pristine, monkeypatch):
    """Stopped while it mends, the damaged store is where it was, and what was intact is in the journal."""
    (folder / "train_shard_000001.bin").unlink()
    before = names(folder)
    with pytest.warns(UserWarning, match="missing or damaged"):
        leave_unfinished(graph, Logged(), folder, 0, **OPTIONS)
    assert names(folder) == before
    assert len(finished_shards(folder)) == SHARDS - 1
    with refused(r"train_shard_000001\.bin is missing"):
        SampleStore.open(folder)
    with pytest.warns(UserWarning, match="missing or damaged"):
        sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)
    assert names(folder.parent) == ["s"]


def test_a_mending_that_was_killed_between_its_two_moves_goes_on(graph, folder, pristine):
    """The damaged store set aside, the new one not yet in its place."""
    flip(folder / "train_shard_000001.bin")
    with pytest.warns(UserWarning, match="missing or damaged"):
        leave_unfinished(graph, Logged(), folder, 0, **OPTIONS)
    folder.rename(folder.with_name("s.partial") / "replaced")
    with pytest.warns(UserWarning, match="missing or damaged"):
        sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)
    assert names(folder.parent) == ["s"]


@pytest.mark.parametrize("damage", [DAMAGES[0], flip, truncate, extend, empty], ids=DAMAGE_NAMES[:5])
def test_a_damaged_shard_of_an_unfinished_store_is_drawn_again(graph, tmp_path, pristine, drawn, damage):
    leave_unfinished(graph, Logged(), tmp_path / "s", 3, **OPTIONS)
    before = drawn()
    damage(tmp_path / "s.partial" / "store" / "train_shard_000002.bin")
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert contents(tmp_path / "s") == contents(pristine)
    # Two first ones, one to be compared with what is there, and what is missing.
    assert drawn() - before == 2 + 1 + 3 + 1 + 11
    assert names(tmp_path) == ["s"]


@pytest.mark.parametrize("where", ["store", "journal"])
def test_a_folder_in_an_unfinished_store_is_no_obstacle(graph, tmp_path, pristine, where):
    leave_unfinished(graph, Logged(), tmp_path / "s", 3, **OPTIONS)
    suffix = {"store": "bin", "journal": "json"}[where]
    path = tmp_path / "s.partial" / where / f"train_shard_000001.{suffix}"
    folder_instead(path)
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert contents(tmp_path / "s") == contents(pristine)


def test_strange_files_in_an_unfinished_store_do_not_get_into_it(graph, tmp_path, pristine):
    leave_unfinished(graph, Logged(), tmp_path / "s", 3, **OPTIONS)
    partial = tmp_path / "s.partial"
    (partial / "store" / "header.json").write_text("{}")
    (partial / "store" / "notes.txt").write_text("text")
    (partial / "journal" / "notes.json").write_text("{}")
    (partial / "journal" / "train_shard_000007.json").write_bytes(
        (partial / "journal" / "train_shard_000001.json").read_bytes()
    )
    (partial / "other").mkdir()
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert contents(tmp_path / "s") == contents(pristine)
    assert names(tmp_path / "s") == names(pristine)
    assert names(tmp_path) == ["s"]


def test_an_unfinished_store_beside_a_whole_one_is_cleared_away(graph, folder, pristine, drawn):
    """As a kill leaves it between the move into place and the end."""
    shutil.copytree(folder, folder.with_name("s.partial") / "store")
    (folder.with_name("s.partial") / ".lock").touch()
    sample(graph, Logged(), folder, **OPTIONS)
    assert drawn() == 0
    assert names(folder.parent) == ["s"]
    assert contents(folder) == contents(pristine)


DIFFERENCES = {
    "graph": (
        lambda: (a_graph(seed=1), Logged()),
        {},
        r"from another graph \(\w{12}, not \w{12}\)",
    ),
    "settings": (
        lambda: (a_graph(), Logged(pause=1e-9)),
        {},
        r"with sampler Logged\(pause=0\.0\), not Logged\(pause=1e-09\)",
    ),
    "sampler": (
        lambda: (a_graph(), ShadowKHop([2])),
        {},
        r"with sampler Logged\(pause=0\.0\), not ShadowKHop\(fanouts=\[2\]\)",
    ),
    "seed": (lambda: (a_graph(), Logged()), {"seed": 7}, "with seed 0, not 7"),
    "batch size": (lambda: (a_graph(), Logged()), {"batch_size": 30}, "with batch_size 20, not 30"),
    "splits": (lambda: (a_graph(), Logged()), {"splits": ("test",)}, "with splits train, valid, not test"),
    "fewer splits": (
        lambda: (a_graph(), Logged()),
        {"splits": "train"},
        "with splits train, valid, not train",
    ),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_samples_that_were_drawn_otherwise_are_kept(folder, pristine, difference):
    make, change, message = DIFFERENCES[difference]
    graph, sampler = make()
    options = {**OPTIONS, **change}
    with refused(
        rf"/s was drawn {message}\. Choose another folder, or pass overwrite=True \(--overwrite\) to draw"
    ):
        sample(graph, sampler, folder, **options)
    assert contents(folder) == contents(pristine)
    assert names(folder.parent) == ["s"]
    store = sample(graph, sampler, folder, overwrite=True, **options)
    store.verify()
    sample(graph, sampler, folder.with_name("t"), **options)
    assert contents(folder) == contents(folder.with_name("t")) != contents(pristine)
    assert names(folder.parent) == ["s", "t"]


def test_a_sampler_that_has_changed_is_refused_when_going_on(graph, tmp_path):
    leave_unfinished(graph, Logged(), tmp_path / "s", 3, **OPTIONS)
    with refused(OTHER_VERSION):
        sample(graph, changed_sampler(), tmp_path / "s", **OPTIONS)
    assert len(finished_shards(tmp_path / "s")) == 3
    sample(graph, changed_sampler(), tmp_path / "s", overwrite=True, **OPTIONS).verify()
    sample(graph, changed_sampler(), tmp_path / "t", **OPTIONS)
    assert contents(tmp_path / "s") == contents(tmp_path / "t")
    assert names(tmp_path) == ["s", "t"]


def test_a_change_that_shows_in_the_second_split_only_is_found(graph, tmp_path):
    leave_unfinished(graph, UniformInduced(p=0.1, num_samples=9), tmp_path / "s", 5, **OPTIONS)

    class UniformInduced2(UniformInduced):
        def draw(self, graph, index, rng):
            nodes = super().draw(graph, index, rng)
            return nodes[1:] if nodes[0] == valid[0] else nodes

    valid = Draws(graph, UniformInduced(p=0.1, num_samples=9), "valid")[0].node_ids.copy()
    valid.sort()
    train = Draws(graph, UniformInduced(p=0.1, num_samples=9), "train")[0].node_ids.min()
    assert valid[0] != train
    UniformInduced2.__name__ = "UniformInduced"
    with refused(OTHER_VERSION):
        sample(graph, UniformInduced2(p=0.1, num_samples=9), tmp_path / "s", **OPTIONS)


def refuse_to_mend(graph, folder, changed):
    (folder / "valid_shard_000002.bin").unlink()
    with (
        pytest.warns(UserWarning, match="missing or damaged"),
        refused(OTHER_VERSION),
    ):
        sample(graph, changed, folder, **OPTIONS)


def test_a_damaged_store_is_not_mended_with_other_samples(graph, folder):
    """The first samples are alike, those of the missing shard are not."""
    refuse_to_mend(graph, folder, changed_sampler(from_sample=1))
    with refused(r"valid_shard_000002\.bin is missing"):
        SampleStore.open(folder)


def test_overwriting_takes_nothing_from_a_mending_that_was_refused(graph, folder):
    """All samples are drawn again, as the message says: no mixture of the old ones and the new."""
    changed = changed_sampler(from_sample=1)
    refuse_to_mend(graph, folder, changed)
    sample(graph, changed, folder, overwrite=True, **OPTIONS)
    sample(graph, changed, folder.with_name("t"), **OPTIONS)
    assert contents(folder) == contents(folder.with_name("t"))


def test_a_sampler_whose_samples_have_another_size_is_not_confused_with_other_splits(
    graph, tmp_path, monkeypatch
):
    """The size of shards follows that of the first sample, so the plan differs, too."""
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 1)
    monkeypatch.setattr(plan_module, "SHARD_BYTES", 1 << 11)
    sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    with refused("another version of the sampler|shard_size"):
        sample(graph, changed_sampler(), tmp_path / "s", **OPTIONS)


@pytest.mark.parametrize("place", [40, 200, 400, -3])
def test_a_damaged_header_is_drawn_again_if_told_so(graph, folder, pristine, place):
    header = folder / "header.json"
    text = bytearray(header.read_bytes())
    text[place] ^= 1
    header.write_bytes(text)
    with refused(
        r"header\.json .* To do that, pass overwrite=True \(--overwrite\) to draw all samples again\."
    ):
        sample(graph, Logged(), folder, **OPTIONS)
    assert names(folder.parent) == ["s"]
    sample(graph, Logged(), folder, overwrite=True, **OPTIONS)
    assert contents(folder) == contents(pristine)


def test_a_store_of_another_version_says_so(graph, folder):
    header = json.loads((folder / "header.json").read_text())
    (folder / "header.json").write_text(json.dumps({**header, "version": 99}))
    with refused("format version 99, this musegnn reads version 1.* pass overwrite=True"):
        sample(graph, Logged(), folder, **OPTIONS)


def test_a_store_that_holds_something_of_the_user_is_not_mended(graph, folder):
    (folder / "notes.txt").write_text("mine")
    (folder / "train_shard_000000.bin").unlink()
    for overwrite in (False, True):
        with refused(r"also holds notes\.txt, which is no part of the store\. Move it first\."):
            sample(graph, Logged(), folder, overwrite=overwrite, **OPTIONS)
    assert (folder / "notes.txt").read_text() == "mine"
    assert names(folder.parent) == ["s"]


def test_mending_does_not_believe_the_tables_of_another_store(graph, folder, pristine):
    """Digests that fit themselves, values that do not: beyond the first sample, only `verify` notices."""
    sizes = np.array(SampleStore.open(folder)["train"]._sizes)
    sizes[1, 3] += 1
    reseal(folder, {"train_sizes": sizes})
    store = sample(graph, Logged(), folder, **OPTIONS)
    assert store.digest != SampleStore.open(pristine).digest
    with refused("Sample 1 of train"):
        store.verify()


@pytest.mark.parametrize(("table", "column"), [("sizes", 3), ("bounds", 0), ("bounds", 3)])
@pytest.mark.parametrize("split", OPTIONS["splits"])
def test_a_whole_store_whose_first_samples_come_out_differently_is_refused(
    graph, folder, drawn, table, column, split
):
    """Its digests fit: nothing is damaged, but it was drawn by other code."""
    values = np.array(getattr(SampleStore.open(folder)[split], f"_{table}"))
    values[0, column] -= 1
    reseal(folder, {f"{split}_{table}": values})
    before = contents(folder)
    with refused(OTHER_VERSION):
        sample(graph, Logged(), folder, **OPTIONS)
    assert drawn() == 0
    assert contents(folder) == before
    assert names(folder.parent) == ["s"]


def test_a_whole_store_of_a_changed_sampler_is_refused(graph, folder, pristine):
    with refused(OTHER_VERSION):
        sample(graph, changed_sampler(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)
    sample(graph, changed_sampler(), folder, overwrite=True, **OPTIONS).verify()
    assert contents(folder) != contents(pristine)


def note_again(path, change):
    """Change what the journal says of a shard; its checksum fits."""
    body = json.loads(path.read_text())["body"]
    change(body["facts"])
    path.write_text(json.dumps({"body": body, "checksum": checksum({path.name: body})}))


def other_bounds(facts):
    facts["bounds"][0][0] += 1e-9


def other_seeds(facts):
    facts["sizes"][0][3] -= 1


@pytest.mark.parametrize("change", [other_bounds, other_seeds])
def test_a_kept_shard_is_compared_with_its_bounds_and_seeds(graph, tmp_path, pristine, change):
    """The first that is there, here not the first of its split."""
    leave_unfinished(graph, Logged(), tmp_path / "s", 3, **OPTIONS)
    partial = tmp_path / "s.partial"
    (partial / "store" / "train_shard_000000.bin").unlink()
    note_again(partial / "journal" / "train_shard_000001.json", change)
    with refused(OTHER_VERSION):
        sample(graph, Logged(), tmp_path / "s", **OPTIONS)
    assert finished_shards(tmp_path / "s") == {"train_shard_000001", "train_shard_000002"}
    sample(graph, Logged(), tmp_path / "s", overwrite=True, **OPTIONS)
    assert contents(tmp_path / "s") == contents(pristine)
    assert names(tmp_path) == ["s"]


def test_overwriting_keeps_what_was_drawn_alike(graph, tmp_path, pristine, drawn):
    """An overwriting that was stopped goes on where it was."""
    leave_unfinished(graph, Logged(), tmp_path / "s", 3, overwrite=True, **OPTIONS)
    before = drawn()
    sample(graph, Logged(), tmp_path / "s", overwrite=True, **OPTIONS)
    assert contents(tmp_path / "s") == contents(pristine)
    assert drawn() - before == 2 + 1 + 1 + 11


@pytest.mark.parametrize("table", ["sizes", "bounds"])
def test_a_table_that_is_redrawn_otherwise_is_refused(graph, folder, table):
    """The header has the digest of a table that was unlike the one that is drawn now."""
    values = np.array(getattr(SampleStore.open(folder)["valid"], f"_{table}"))
    values[-1, -1] += 1
    reseal(folder, {f"valid_{table}": values})
    (folder / f"valid_{table}.bin").unlink()
    before = names(folder)
    with pytest.warns(UserWarning, match="missing or damaged"), refused(OTHER_VERSION):
        sample(graph, Logged(), folder, **OPTIONS)
    assert names(folder) == before


def test_the_right_sampler_mends_what_a_changed_one_was_refused(graph, folder, pristine):
    """What the changed one has drawn does not stand in its way."""
    refuse_to_mend(graph, folder, changed_sampler(from_sample=1))
    with pytest.warns(UserWarning, match="missing or damaged"):
        sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)
    assert names(folder.parent) == ["s"]


def test_what_was_taken_from_a_damaged_store_goes_into_its_mending_only(graph, folder, pristine, drawn):
    """The damaged store is removed before the mending goes on: then all is drawn."""
    (folder / "train_shard_000001.bin").unlink()
    with pytest.warns(UserWarning, match="missing or damaged"):
        leave_unfinished(graph, Logged(), folder, 0, **OPTIONS)
    assert len(finished_shards(folder)) == SHARDS - 1
    shutil.rmtree(folder)
    before = drawn()
    sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)
    store = SampleStore.open(folder)
    assert drawn() - before == 2 + len(store["train"]) + len(store["valid"])


def test_a_store_that_cannot_be_read_is_damaged(graph, folder, pristine, monkeypatch):
    """A sector of the disk that gives an error, here at one file."""
    digest = module.file_digest

    def failing(path, advance, threads):
        if path == folder / "train_shard_000001.bin":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return digest(path, advance, threads)

    monkeypatch.setattr(module, "file_digest", failing)
    with pytest.warns(UserWarning, match=r"1 of 12 files are missing or damaged \(train_shard_000001\.bin\)"):
        sample(graph, Logged(), folder, **OPTIONS)
    assert contents(folder) == contents(pristine)


def crafted(store, column, value):
    sizes = np.array(store["train"]._sizes)
    sizes[0, column] = value
    return {"changes": {"train_sizes": sizes}}


CRAFTED = {
    "no table": lambda store: {"without": ["train_sizes"]},
    "no shard": lambda store: {"without": ["train_shard_000000"]},
    "an array too many": lambda store: {"changes": {"other": np.arange(3)}},
    "a column too many": lambda store: {"changes": {"train_sizes": np.zeros((10, 5), dtype=np.int64)}},
    "rows too few": lambda store: {"changes": {"train_sizes": np.array(store["train"]._sizes[:3])}},
    "a column too few": lambda store: {"changes": {"train_bounds": np.zeros((10, 3))}},
    "bounds of integers": lambda store: {"changes": {"train_bounds": np.zeros((10, 4), dtype=np.int64)}},
    "a shard of integers": lambda store: {"changes": {"train_shard_000000": np.zeros(3, dtype=np.int64)}},
    "an offset beyond the shard": lambda store: crafted(store, 0, 1 << 40),
    "a negative offset": lambda store: crafted(store, 0, -64),
    "too many nodes": lambda store: crafted(store, 1, 1 << 40),
    "more nodes than any file": lambda store: crafted(store, 1, 1 << 62),
    "a negative number of nodes": lambda store: crafted(store, 1, -5),
    "all that is there": lambda store: crafted(store, 1, -1),
    "too many entries": lambda store: crafted(store, 2, 1 << 40),
    "more entries than any file": lambda store: crafted(store, 2, 1 << 62),
}


@pytest.mark.parametrize("case", CRAFTED)
def test_mending_does_not_believe_the_header_of_somebody_else(graph, folder, pristine, case):
    """Checksum and digests fit, the parts do not, and a shard is missing: refused, or drawn right."""
    reseal(folder, **CRAFTED[case](SampleStore.open(folder)))
    (folder / "valid_shard_000001.bin").unlink()
    outcome = nullcontext() if case.startswith("no ") else refused(OTHER_VERSION)
    with pytest.warns(UserWarning, match="missing or damaged"), outcome:
        sample(graph, Logged(), folder, **OPTIONS)
    assert not case.startswith("no ") or contents(folder) == contents(pristine)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sample(graph, Logged(), folder, overwrite=True, **OPTIONS)
    assert contents(folder) == contents(pristine)
    assert names(folder.parent) == ["s"]


def test_what_is_no_sample_store_is_not_finished(graph, tmp_path):
    assert module.finished(tmp_path / "nothing") is None
    assert module.finished(tmp_path) is None
    graph.save(tmp_path / "g")
    assert module.finished(tmp_path / "g") is None
