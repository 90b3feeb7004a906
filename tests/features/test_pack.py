"""A pack: the same bytes however it was written and how often it was killed; nothing damaged is used."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import small_runs

import musegnn
from musegnn.errors import InputError, StoreError
from musegnn.features import packing
from musegnn.features.packed import Pack, pack_folder, word_sum
from musegnn.store import FolderWriter
from tiny_runs import bytes_of

NUM_KILLS = 20 if "MUSEGNN_PROOF" in os.environ else 3
TESTS = str(Path(__file__).parent.parent)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A graph, its samples, and a pack in several shards."""
    folder = tmp_path_factory.mktemp("made")
    small_runs.graph().save(folder / "g")
    graph = musegnn.Graph.open(folder / "g")
    store = small_runs.store(folder / "s", graph, batch_size=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "SHARD_BYTES", 1000)
        musegnn.pack(graph, store, cache=0.1)
    return graph, store


@pytest.fixture
def copy(made, tmp_path):
    """The pack, to be damaged."""
    return shutil.copytree(pack_folder(made[1]), tmp_path / "pack")


def read(pack, store, split, index):
    ids = store[split][index].node_ids
    cold = ids[~np.isin(ids, pack.hot)]
    out = np.empty((len(cold), small_runs.IN_DIM), np.float32)
    pack.read(split, index, out)
    return cold, out


def test_a_pack_has_the_rows_in_reading_order(made):
    graph, store = made
    pack = Pack.open(pack_folder(store), graph=graph, store=store)
    pack.verify()
    assert len(pack.hot) == 12
    assert np.array_equal(pack.hot_rows, graph.features[pack.hot])
    total = 0
    for split in store:
        for index in range(len(store[split])):
            cold, out = read(pack, store, split, index)
            assert np.array_equal(out, graph.features[cold])
            total += len(cold)
    assert total == sum(pack.num_rows(split) for split in store)
    assert len([path for path in pack.stored.folder.glob("*_shard_*")]) > 10


def test_the_bytes_do_not_depend_on_how_it_is_written(made, tmp_path, monkeypatch):
    """Groups, threads, and the time of day."""
    graph, store = made
    monkeypatch.setattr(packing, "SHARD_BYTES", 1000)
    monkeypatch.setattr(packing, "_group_bytes", lambda: 3000)
    monkeypatch.setattr(packing, "_BLOCK", 50)
    musegnn.pack(graph, store, tmp_path / "p", cache=0.1, workers=3)
    assert bytes_of(tmp_path / "p") == bytes_of(pack_folder(store))


def test_a_graph_in_memory_is_packed_the_same(made, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "SHARD_BYTES", 1000)
    musegnn.pack(small_runs.graph(), made[1], tmp_path / "p", cache=0.1)
    assert bytes_of(tmp_path / "p") == bytes_of(pack_folder(made[1]))


@pytest.mark.parametrize("cache", [0, 0.5, 1, 10**6])
def test_any_cache(made, tmp_path, cache):
    """In bytes, or as a share; with all rows in memory nothing is left to read. Some nodes are never read."""
    graph, store = made
    pack = musegnn.pack(graph, store, tmp_path / "p", cache=cache)
    sampled = {int(node) for split in store for sample in store[split] for node in sample.node_ids}
    share = min(1, cache)
    assert len(pack.hot) == min(len(sampled), int(share * graph.num_nodes))
    assert (sum(pack.num_rows(split) for split in store) == 0) == (cache >= 1)
    for index in range(len(store["test"])):
        cold, out = read(pack, store, "test", index)
        assert np.array_equal(out, graph.features[cold])


def test_disk_and_time_are_told_before_anything_is_written(made, tmp_path):
    graph, store = made
    told = []

    def announce(plan, there):
        told.append((plan.num_bytes, plan.seconds, there))
        assert not list((tmp_path / "p.partial" / "store").iterdir())

    pack = musegnn.pack(graph, store, tmp_path / "p", cache=0.1, announce=announce)
    rows = sum(pack.num_rows(split) for split in store) + len(pack.hot)
    assert told[0][0] == rows * 20
    assert told[0][1] > 0
    assert told[0][2] == 0
    # It is there: nothing to tell.
    musegnn.pack(graph, store, tmp_path / "p", announce=announce)
    assert len(told) == 1


REFUSED = [
    ({"limit": 100}, r"^The pack takes \S+ GB, more than the limit of 1e-07 GB. Pack fewer [^\n]*$"),
    ({"cache": -1}, r"^cache must be bytes, or up to 1 a share of the features; got -1.$"),
    ({"cache": float("nan")}, r"^cache must be bytes, [^\n]*; got nan.$"),
    ({"splits": ("train", "tset")}, r"has no samples of the split 'tset'"),
    ({"splits": ()}, r"^splits is empty. Name at least one[^\n]*$"),
    ({"workers": -1}, r"workers"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_is_refused_leaves_nothing(made, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        musegnn.pack(*made, tmp_path / "p", **options)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_told_before(made, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "free_bytes", lambda folder: 10)
    with pytest.raises(
        StoreError, match=r"^The pack takes \S+ GB, but \S+ has 1e-08 GB free. Pack fewer [^\n]*$"
    ):
        musegnn.pack(*made, tmp_path / "p", cache=0)
    assert not list(tmp_path.iterdir())


def test_another_pack_in_the_way_is_refused(made):
    graph, store = made
    before = bytes_of(pack_folder(store))
    with pytest.raises(StoreError, match=r"was packed with hot rows 12, not 60. [^\n]*--overwrite\).$"):
        musegnn.pack(graph, store, cache=0.5)
    with pytest.raises(
        StoreError, match=r"was packed with splits \['train', 'valid', 'test'\], not \['train'\]"
    ):
        musegnn.pack(graph, store, splits=("train",))
    assert bytes_of(pack_folder(store)) == before


def test_packs_of_other_features_or_samples_are_refused(made, copy, tmp_path):
    graph, store = made
    with pytest.raises(StoreError, match=r"was packed from other samples \(\w{12}, not \w{12}\). [^\n]*$"):
        Pack.open(copy, graph=graph, store=small_runs.store(tmp_path / "s", graph, batch_size=5))
    other = small_runs.graph(seed=1)
    with pytest.raises(StoreError, match=r"was packed from other features \(\w{12}, not \w{12}\). [^\n]*$"):
        Pack.open(copy, graph=other, store=store)
    with pytest.raises(StoreError, match="drawn from the graph"):
        musegnn.pack(other, store, tmp_path / "p")


def read_all(pack, store):
    opened = pack if isinstance(pack, Pack) else Pack.open(pack)
    for split in store:
        for index in range(len(store[split])):
            read(opened, store, split, index)


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 8
    path.write_bytes(data)


def test_every_flipped_bit_is_found(made, copy):
    """In the rows of samples when they are read, anywhere else when the pack is opened."""
    graph, store = made
    pack, rng = Pack.open(copy), np.random.default_rng(0)
    shards = sorted(copy.glob("*_shard_*"))[:: 1 if "MUSEGNN_PROOF" in os.environ else 6]
    for path in [*shards, *(set(copy.glob("*.bin")) - set(copy.glob("*_shard_*")))]:
        before, at = path.read_bytes(), int(rng.integers(path.stat().st_size))
        flip(path, at)
        with pytest.raises(StoreError, match=r"^[^\n]* is damaged: [^\n]*$"):
            pack.verify()
        with pytest.raises(StoreError, match=r"^[^\n]* is damaged: [^\n]*$"):
            read_all(copy, store)
        path.write_bytes(before)


@pytest.mark.parametrize("cut", [0, 1, 20])
def test_truncated_packs_are_refused(made, copy, cut):
    store, pack = made[1], Pack.open(copy)
    path = copy / "train_shard_000000.bin"
    os.truncate(path, cut)
    with pytest.raises(StoreError, match=r"bytes, but its header says"):
        Pack.open(copy)
    # One that was opened before.
    with pytest.raises(StoreError, match=r"was cut off while it was in use"):
        read_all(pack, store)
    path.unlink()
    with pytest.raises(StoreError, match=r"is missing"):
        Pack.open(copy)
    with pytest.raises(StoreError, match=r"cannot be opened: No such file or directory"):
        read(pack, store, "train", 0)


CHANGES = [
    {"attributes": {"num_nodes": 3}},
    {"attributes": {"num_nodes": -1}},
    {"attributes": {"num_hot": "many"}},
    {"attributes": {"features": 7}},
    {"attributes": {"samples": None}},
    {"attributes": {"splits": {"train": {"num_samples": 10**15, "shard_size": 1}}}},
    {"attributes": {"splits": {"train": {"num_samples": 15, "shard_size": 0}}}},
    {"attributes": {"splits": {"../up": {"num_samples": 15, "shard_size": 1}}}},
    {"attributes": {"splits": 3}},
    {"arrays": {"hot": np.array([3, 3], dtype=np.int32)}},
    {"arrays": {"hot": np.zeros((12, 1), dtype=np.int32)}},
    {"arrays": {"hot": np.arange(-1, 11, dtype=np.int32)}},
    {"arrays": {"hot": np.arange(12, dtype=np.float32)}},
    {"arrays": {"hot_rows": np.zeros((12, 4), dtype=np.float32)}},
    {"arrays": {"hot_rows": np.zeros(12, dtype=np.float32)}},
    {"arrays": {"train_places": np.zeros((15, 3), dtype=np.int64)}},
    {"arrays": {"train_shard_000000": np.zeros((2, 5), dtype=np.float16)}},
]


def reseal(folder, changes):
    """With digests that fit."""
    stored = Pack.open(folder).stored
    arrays = {name: np.array(stored.map(name)) for name in stored.header.arrays}
    with FolderWriter(folder, "pack", overwrite=True) as writer:
        for name, values in (arrays | changes.get("arrays", {})).items():
            writer.write(name, values)
        writer.publish(stored.header.attributes | changes.get("attributes", {}), {})


@pytest.mark.parametrize("changes", CHANGES, ids=lambda changes: str(next(iter(changes.values())))[:40])
def test_hostile_headers_are_refused(copy, changes):
    reseal(copy, changes)
    with pytest.raises(InputError, match=r"^[^\n]*$"):
        Pack.open(copy)


def test_places_outside_the_shard_are_refused(made, copy):
    places = np.array(Pack.open(copy).stored.map("train_places"))
    places[0, 0] = 10**12
    reseal(copy, {"arrays": {"train_places": places}})
    with pytest.raises(StoreError, match=r"sample 0 of train does not fit"):
        read(Pack.open(copy), made[1], "train", 0)


def test_a_sum_of_words_sees_every_byte():
    rows = np.random.default_rng(0).integers(0, 256, (3, 7), dtype=np.uint8)
    words = np.append(rows.reshape(-1), np.zeros(3, np.uint8)).view("<u8").tolist()
    assert word_sum(rows) == sum(words) % 2**64
    assert word_sum(rows[:0]) == 0


PACK = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/training"]
import os, time
import musegnn
from musegnn.features import packing
packing.SHARD_BYTES = 1000
packing._group_bytes = lambda: 2000
add = packing.Journal.add
packing.Journal.add = lambda *given: (time.sleep(0.01), add(*given))[1]
graph, store = musegnn.Graph.open(sys.argv[2]), musegnn.SampleStore.open(sys.argv[3])
for out, cache in eval(sys.argv[4]):
    print("ready", flush=True)
    if not (child := os.fork()):
        musegnn.pack(graph, store, out, cache=cache, workers=1)
        os._exit(0)
    print(child, flush=True)
    sys.stdin.readline()
    os.waitpid(child, 0)
"""


def noted_in(folder):
    """The shards that an unfinished pack has."""
    return list((folder.with_name(folder.name + ".partial") / "journal").glob("*_shard_*.json"))


def test_killed_packing_goes_on_to_the_same_bytes(made, tmp_path, monkeypatch):
    """With so many shards done, and a little later; then without being told the cache it began with."""
    graph, store = made
    expected, rng = bytes_of(pack_folder(store)), np.random.default_rng(0)
    folders = [tmp_path / f"p{number}" for number in range(NUM_KILLS)]
    places = [graph.stored.folder, store.stored.folder, [(str(folder), 0.1) for folder in folders]]
    command = [sys.executable, "-c", PACK, TESTS, *map(str, places)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        for number, folder in enumerate(folders):
            assert process.stdout.readline() == "ready\n"
            child = int(process.stdout.readline())
            while len(noted_in(folder)) < 7 * number % 15:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.02))
            os.kill(child, signal.SIGKILL)
            process.stdin.write("\n")
            process.stdin.flush()
    monkeypatch.setattr(packing, "SHARD_BYTES", 1000)
    kept = []
    for folder in folders:
        noted = noted_in(folder)
        kept.append(len(noted))
        if not folder.exists():
            with pytest.raises(StoreError):
                Pack.open(folder)
            musegnn.pack(graph, store, folder, cache=None if noted else 0.1)
        assert bytes_of(folder) == expected
        assert not folder.with_name(folder.name + ".partial").exists()
    assert kept[1] >= 7


def test_what_was_damaged_after_a_kill_is_packed_again(made, tmp_path, monkeypatch):
    graph, store = made
    monkeypatch.setattr(packing, "SHARD_BYTES", 1000)

    def stop(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_write_tables", stop)
        with pytest.raises(KeyboardInterrupt):
            musegnn.pack(graph, store, tmp_path / "p", cache=0.1)
    files = sorted((tmp_path / "p.partial" / "store").glob("*.bin"))
    flip(files[3], 5)
    told = []
    musegnn.pack(graph, store, tmp_path / "p", announce=lambda plan, there: told.append(there))
    assert bytes_of(tmp_path / "p") == bytes_of(pack_folder(store))
    sizes = {path.name: path.stat().st_size for path in (tmp_path / "p").glob("*_shard_*")}
    assert told == [sum(sizes.values()) - sizes[files[3].name]]


def test_a_header_has_no_time_and_no_path(made):
    header = json.loads((pack_folder(made[1]) / "header.json").read_text())
    assert header["format"] == "musegnn pack"
    assert set(header["provenance"]) == {"name", "musegnn"}
