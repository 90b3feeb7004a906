"""Stored samples are the drawn ones, read without a copy; a store that lies about itself is refused."""

import mmap
import os

import numpy as np
import pytest

from musegnn import (
    Draws,
    Graph,
    InputError,
    Sample,
    SampleStore,
    ShadowKHop,
    UniformInduced,
    sample,
)
from musegnn import progress as progress_module
from musegnn.errors import StoreError
from musegnn.memory import anonymous_memory
from musegnn.sampling import layout
from musegnn.sampling import plan as plan_module
from musegnn.sampling import sample_store as module
from musegnn.store import folder as folder_module
from sample_stores import FIELDS, SAMPLERS, Overlapping, a_graph, is_equal, names, refused, reseal

# beartype looks at one random item of a sequence that is returned, and so would map a random shard.
pytestmark = pytest.mark.usefixtures("unchecked")


@pytest.fixture(scope="module")
def graph():
    return a_graph()


@pytest.fixture(scope="module")
def folder(graph, tmp_path_factory):
    """Ten samples of train and eleven of valid, in shards of three."""
    folder = tmp_path_factory.mktemp("stores") / "s"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_module, "MIN_SHARDS", 4)
        sample(graph, ShadowKHop([3, 2]), folder, batch_size=20, splits=("train", "valid"))
    return folder


@pytest.fixture
def store(folder):
    return SampleStore.open(folder)


def own_copy(graph, tmp_path, sampler=None, **options):
    options = {"batch_size": 20, "splits": ("train",), **options}
    return sample(graph, sampler or ShadowKHop([3, 2]), tmp_path / "s", **options)


def base_of(array):
    """The end of the chain of bases, through memory views."""
    while True:
        base = array.obj if isinstance(array, memoryview) else getattr(array, "base", None)
        if base is None:
            return array
        array = base


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: type(sampler).__name__)
def test_a_stored_sample_is_the_drawn_one(graph, tmp_path, sampler):
    """Whole, in shares and backwards: each draw knows nothing of the others."""
    store = own_copy(graph, tmp_path, sampler, splits=("test", "train"), seed=3)
    store.verify()
    for split in ("test", "train"):
        draws = Draws(graph, sampler, split, batch_size=20, seed=3)
        assert len(store[split]) == len(draws)
        assert all(is_equal(stored, drawn) for stored, drawn in zip(store[split], draws, strict=True))
        fresh = Draws(graph, sampler, split, batch_size=20, seed=3)
        for index in [4, 2, 0, 3, 1]:
            assert is_equal(store[split][index], fresh[index])
    assert is_equal(Draws(graph, sampler, "train", batch_size=20, seed=3)[2], store["train"][2])


def test_a_store_says_how_it_was_drawn(graph, store):
    assert store.graph_digest == graph.digest
    assert store.sampler == {"name": "ShadowKHop", "settings": {"fanouts": [3, 2]}}
    assert (store.seed, store.batch_size, store.num_graph_nodes) == (0, 20, 600)
    assert not store.is_free
    assert list(store) == ["train", "valid"]
    assert len(store) == 2
    assert "train" in store
    assert "test" not in store
    assert (
        repr(store) == f"SampleStore(ShadowKHop, train: {len(store['train'])}, valid: {len(store['valid'])})"
    )


def test_the_tables_are_those_of_the_samples(store):
    samples = store["train"]
    assert samples.split == "train"
    assert samples.num_nodes.tolist() == [sample.num_nodes for sample in samples]
    assert samples.num_entries.tolist() == [sample.num_entries for sample in samples]
    assert samples.num_seeds.tolist() == [sample.num_seeds for sample in samples]
    assert np.array_equal(samples.bounds, [sample.bounds for sample in samples])
    assert not samples.bounds.flags.writeable
    assert len(set(samples.num_nodes.tolist())) > 1


def test_negative_indices_and_slices_are_those_of_a_list(store):
    samples, whole = store["train"], list(store["train"])
    size = len(samples)
    assert size > 9
    for index in (-1, -size, size - 1, np.int64(2)):
        assert is_equal(samples[index], whole[index])
    for part in (slice(2, 5), slice(None, None, -3), slice(-2, None), slice(5, 2), slice(0, 1000)):
        expected = whole[part]
        assert len(samples[part]) == len(expected)
        assert all(is_equal(one, other) for one, other in zip(samples[part], expected, strict=True))


@pytest.mark.parametrize("beyond", [0, 1, 1000])
def test_an_index_beyond_the_end_is_an_index_error(store, beyond):
    size = len(store["train"])
    with pytest.raises(IndexError, match=f"sample {size + beyond} of {size}"):
        store["train"][size + beyond]
    with pytest.raises(IndexError, match=f"sample {-size - 1 - beyond} of {size}"):
        store["train"][-size - 1 - beyond]


def test_an_unknown_split_is_refused_with_those_there_are(store):
    with refused("has no samples of the split 'test'; it has train, valid. Draw them", InputError):
        store["test"]


def test_samples_are_views_of_the_mapped_shard(store):
    for stored in store["train"]:
        bases = {name: base_of(getattr(stored, name)) for name in FIELDS}
        assert all(isinstance(base, mmap.mmap) for base in bases.values())
        assert bases["node_ids"] is bases["indptr"] is bases["indices"]
        for name in FIELDS:
            assert not getattr(stored, name).flags.writeable
            with pytest.raises(ValueError, match="read-only"):
                getattr(stored, name)[:1] = 0
        assert stored.indptr.ctypes.data % layout.ALIGNMENT == 0
        assert stored.node_ids.flags.aligned
        assert stored.indices.flags.aligned
    same, again = store["train"][0], store["train"][0]
    assert np.shares_memory(same.node_ids, again.node_ids)


def test_touching_every_sample_takes_no_memory(tmp_path):
    """16 MB of samples, all of it touched and held."""
    graph = a_graph(20_000)
    folder = tmp_path / "s"
    sample(graph, UniformInduced(p=1.0, num_samples=40), folder, splits=("train",))
    store = SampleStore.open(folder)
    assert store.stored.num_bytes > 16 << 20
    next(iter(store["train"])).indices.sum()
    before = anonymous_memory()
    held = list(store["train"])
    assert sum(int(one.indices[-1]) + int(one.indices.max()) for one in held) > 0
    assert anonymous_memory() - before < 4 << 20


def count(monkeypatch, owner, name):
    """How often, and with what, a function is called."""
    function, calls = getattr(owner, name), []

    def counted(*args, **options):
        calls.append(args)
        return function(*args, **options)

    monkeypatch.setattr(owner, name, counted)
    return calls


def test_opening_maps_the_tables_only(folder, monkeypatch):
    mapped = count(monkeypatch, folder_module, "map_array")
    store = SampleStore.open(folder)
    assert sorted(path.name for path, _ in mapped) == [
        "train_bounds.bin",
        "train_sizes.bin",
        "valid_bounds.bin",
        "valid_sizes.bin",
    ]
    shard_size = store.stored.header.attributes["splits"]["train"]["shard_size"]
    assert shard_size > 1
    for index in (0, shard_size - 1, 0, shard_size):
        store["train"][index]
    assert [path.name for path, _ in mapped[4:]] == ["train_shard_000000.bin", "train_shard_000001.bin"]


def test_opening_thousands_of_shards_reads_one_header(graph, tmp_path, monkeypatch):
    """One read, and a look at the size of each file; nothing is opened for a shard."""
    own_copy(graph, tmp_path, Overlapping(num_samples=3))
    store = SampleStore.open(tmp_path / "s")
    number = 3000 if "MUSEGNN_PROOF" in os.environ else 300
    shard, sizes = np.array(store.stored.map("train_shard_000000")), np.array(store["train"]._sizes)
    changes = {f"train_shard_{i:06d}": shard for i in range(number)}
    changes |= {"train_sizes": np.tile(sizes[:1], (number, 1)), "train_bounds": np.ones((number, 4))}
    splits = {"train": {"num_nodes": 3, "num_samples": number, "shard_size": 1}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        reseal(tmp_path / "s", changes, {"splits": splits})
    read = count(monkeypatch, folder_module.Header, "read")
    mapped = count(monkeypatch, folder_module, "map_array")
    checked = count(monkeypatch, folder_module, "check_size")
    store = SampleStore.open(tmp_path / "s")
    assert len(store["train"]) == number
    # The tables a second time, when they are compared with their digests.
    assert (len(read), len(mapped), len(checked)) == (1, 2, number + 2 + 2)
    # Iterating leaves at most MAX_MAPPED files open.
    before = len(os.listdir("/proc/self/fd"))
    most = max(len(os.listdir("/proc/self/fd")) for one in store["train"] if one.num_nodes)
    assert before < most <= before + module.MAX_MAPPED + 1


def test_the_split_keeps_as_many_shards_mapped_as_said(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_MAPPED", 2)
    mapped = count(monkeypatch, folder_module, "map_array")
    store = SampleStore.open(folder)
    size = store.stored.header.attributes["splits"]["train"]["shard_size"]
    for shard in (0, 1, 0, 1, 2, 1, 0):
        store["train"][shard * size]
    assert [path.name[-5] for path, _ in mapped[4:]] == ["0", "1", "2", "0"]


def test_a_sample_outlives_its_store(graph, folder):
    stored = SampleStore.open(folder)["train"][1]
    assert is_equal(stored, Draws(graph, ShadowKHop([3, 2]), "train", batch_size=20)[1])


def test_each_node_counts_once(graph, tmp_path):
    """Over samples that overlap, in order, an empty one among them."""
    store = own_copy(graph, tmp_path, Overlapping())
    assert store.is_free
    samples = store["train"]
    train, seen = set(np.flatnonzero(np.asarray(graph.split) == 0).tolist()), set()
    for (stored, is_new), expected in zip(samples.counted_once(), samples, strict=True):
        assert is_equal(stored, expected)
        assert is_new.dtype == bool
        assert is_new.tolist() == [node not in seen for node in stored.seeds.tolist()]
        seen |= set(stored.seeds.tolist())
    assert seen == {node for node in train if node < 65}
    assert samples.num_uncovered() == len(train - seen) > 0
    assert sum(int(is_new.sum()) for _, is_new in samples.counted_once()) == len(seen)
    assert samples.num_seeds.sum() > len(seen)


def test_a_seeded_sampler_covers_its_split(store):
    for samples in store.values():
        assert samples.num_uncovered() == 0
        assert all(is_new.all() for _, is_new in samples.counted_once())


def test_a_free_sampler_may_cover_it_all(graph, tmp_path):
    assert own_copy(graph, tmp_path, UniformInduced(p=1.0, num_samples=2))["train"].num_uncovered() == 0


def test_samples_of_another_graph_are_refused(folder, graph):
    assert SampleStore.open(folder, graph=graph).graph_digest == graph.digest
    other = a_graph(seed=1)
    message = (
        f"was drawn from the graph {graph.digest[:12]}, but random 1 is {other.digest[:12]}. "
        "Draw samples of this graph with `muse sample`."
    )
    with refused(message):
        SampleStore.open(folder, graph=other)
    with refused(message):
        SampleStore.open(folder).check_graph(other)


def test_the_nodes_that_were_missed(graph, tmp_path):
    samples = own_copy(graph, tmp_path, Overlapping())["train"]
    expected = [node for node in np.flatnonzero(np.asarray(graph.split) == 0).tolist() if node >= 65]
    missed = samples.uncovered(graph)
    assert missed.tolist() == expected
    assert missed.dtype == graph.indices.dtype
    assert len(missed) == samples.num_uncovered()


def test_a_seeded_sampler_has_missed_none(graph, store):
    assert [samples.uncovered(graph).tolist() for samples in store.values()] == [[], []]


def test_the_missed_nodes_of_another_graph_are_not_told(store):
    with refused("was drawn from the graph .*, but random 1 is .* Draw samples of this graph with"):
        store["train"].uncovered(a_graph(seed=1))


def test_a_free_sampler_has_no_batch_size(graph, tmp_path):
    assert own_copy(graph, tmp_path, Overlapping()).batch_size == 0


def test_another_name_is_not_another_graph(folder, graph, tmp_path):
    graph.save(tmp_path / "g")
    SampleStore.open(folder, graph=Graph.open(tmp_path / "g"))


def test_a_graph_store_is_no_sample_store(graph, tmp_path):
    graph.save(tmp_path / "g")
    with refused("its format is 'musegnn graph'"):
        SampleStore.open(tmp_path / "g")
    with refused("does not exist. Pass the folder of a samples store."):
        SampleStore.open(tmp_path / "nothing")


def test_a_store_that_is_replaced_is_noticed_when_a_shard_is_mapped(graph, tmp_path):
    """Even by one whose files have the same sizes, as here: the same samples, drawn again."""
    store = own_copy(graph, tmp_path)
    own_copy(graph, tmp_path, overwrite=True)
    with refused("was replaced after it was opened. Open it again."):
        store["train"][0]


def split_with(**changes):
    return lambda attributes: {"splits": {"train": {**attributes["splits"]["train"], **changes}}}


ATTRIBUTES = {
    "no splits": lambda attributes: {"splits": None},
    "a list of splits": lambda attributes: {"splits": ["train"]},
    "an unknown split": lambda attributes: {"splits": {"other": attributes["splits"]["train"]}},
    "an empty split": lambda attributes: {"splits": {"train": {}}},
    "a missing sample": split_with(num_samples=9),
    "a sample too many": split_with(num_samples=11),
    "a negative number": split_with(num_samples=-1),
    "a fraction": split_with(num_samples=10.0),
    "a size of zero": split_with(shard_size=0),
    "a negative size": split_with(shard_size=-3),
    "smaller shards": split_with(shard_size=1),
    "a size that is a text": split_with(shard_size="3"),
    "nodes that are a text": split_with(num_nodes="3"),
    "truth for a number": split_with(num_nodes=True),
    "no graph": lambda attributes: {"graph": None},
    "no sampler": lambda attributes: {"sampler": None},
    "a sampler without a name": lambda attributes: {"sampler": {"settings": {}}},
    "a sampler whose name is a number": lambda attributes: {"sampler": {"name": 3, "settings": {}}},
    "a sampler with a list": lambda attributes: {"sampler": {"name": "x", "settings": []}},
    "a seed that is a text": lambda attributes: {"seed": "0"},
    "a batch size that is a fraction": lambda attributes: {"batch_size": 20.0},
    "a negative batch size": lambda attributes: {"batch_size": -1},
    "a batch size that is truth": lambda attributes: {"batch_size": True},
    "a batch size beyond all": lambda attributes: {"batch_size": (1 << 63) + 1},
    "nodes that are none": lambda attributes: {"num_nodes": None},
    "no nodes": lambda attributes: {"num_nodes": 0},
    "a negative number of nodes": lambda attributes: {"num_nodes": -600},
    "more nodes than any graph": lambda attributes: {"num_nodes": 1 << 62},
    "a graph that is a number": lambda attributes: {"graph": 3},
    "a name with a line break": lambda attributes: {"sampler": {"name": "x\ny", "settings": {}}},
    "a name with a blank": lambda attributes: {"sampler": {"name": "x y", "settings": {}}},
    "a name with an escape": lambda attributes: {"sampler": {"name": "\x1b[2J", "settings": {}}},
    "an empty name": lambda attributes: {"sampler": {"name": "", "settings": {}}},
    "a name without an end": lambda attributes: {"sampler": {"name": "x" * 201, "settings": {}}},
    "no settings": lambda attributes: {"sampler": {"name": "x"}},
    "a seed that is truth": lambda attributes: {"seed": True},
    "a split with a path": lambda attributes: {"splits": {"../train": attributes["splits"]["train"]}},
    "a split with a line break": lambda attributes: {"splits": {"train\n": attributes["splits"]["train"]}},
    "more nodes in a split than in the graph": split_with(num_nodes=601),
    "a negative number of nodes in a split": split_with(num_nodes=-1),
    "more samples than memory": split_with(num_samples=1 << 60),
    "more samples than memory, in large shards": split_with(num_samples=1 << 60, shard_size=1 << 59),
    "a shard larger than all": split_with(num_samples=1, shard_size=(1 << 40) + 1),
    "no samples": split_with(num_samples=0),
    "no contract": lambda attributes: {"contract": None},
    "an unknown contract": lambda attributes: {"contract": "other"},
    "ids of another type": lambda attributes: {"id_dtype": "<f8"},
    "ids of a wrong size": lambda attributes: {"id_dtype": "<i2"},
    "ids of no type": lambda attributes: {"id_dtype": ["<i4"]},
}


@pytest.mark.parametrize("change", ATTRIBUTES)
def test_a_header_that_makes_no_sense_is_refused(graph, tmp_path, monkeypatch, change):
    """Its checksum fits: it was written by somebody else's program."""
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)
    store = own_copy(graph, tmp_path)
    assert len(store["train"]) == 10
    reseal(tmp_path / "s", attributes=ATTRIBUTES[change](store.stored.header.attributes))
    with refused("is not a valid sample store|is damaged: its parts do not fit each other"):
        SampleStore.open(tmp_path / "s")


@pytest.mark.parametrize("name", ["train_sizes", "train_bounds", "train_shard_000000", "train_shard_000003"])
def test_a_missing_array_is_refused(graph, tmp_path, monkeypatch, name):
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)
    own_copy(graph, tmp_path)
    reseal(tmp_path / "s", without=[name])
    with refused(f"is not a valid sample store .*{name}"):
        SampleStore.open(tmp_path / "s")


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("train_sizes", np.zeros((11, 5), dtype=np.int64)),
        ("train_sizes", np.zeros((11, 4), dtype=np.int32)),
        ("train_sizes", np.zeros(44, dtype=np.int64)),
        ("train_bounds", np.zeros((11, 4), dtype=np.float32)),
        ("train_bounds", np.zeros((12, 4))),
        ("train_shard_000001", np.zeros(640, dtype=np.int8)),
        ("train_shard_000001", np.zeros((10, 64), dtype=np.uint8)),
    ],
)
def test_an_array_of_another_shape_is_refused(graph, tmp_path, monkeypatch, name, array):
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)
    store = own_copy(graph, tmp_path, UniformInduced(p=0.1, num_samples=11))
    assert len(store["train"]) == 11
    reseal(tmp_path / "s", {name: array})
    with refused("is damaged: its parts do not fit each other"):
        SampleStore.open(tmp_path / "s")


OUTSIDE = {
    "an offset beyond the shard": (0, 1 << 40),
    "a negative offset": (0, -64),
    "too many nodes": (1, 1 << 40),
    "more nodes than any file": (1, 1 << 62),
    "a negative number of nodes": (1, -1),
    "too many entries": (2, 1 << 40),
    "a negative number of entries": (2, -1),
    "more seeds than nodes": (3, 1 << 20),
    "a negative number of seeds": (3, -1),
}


@pytest.mark.parametrize("change", OUTSIDE)
def test_a_sample_that_does_not_fit_its_shard_is_refused(graph, tmp_path, change):
    store = own_copy(graph, tmp_path)
    column, value = OUTSIDE[change]
    sizes = np.array(store["train"]._sizes)
    sizes[4, column] = value
    reseal(tmp_path / "s", {"train_sizes": sizes})
    store = SampleStore.open(tmp_path / "s")
    assert is_equal(store["train"][3], Draws(graph, ShadowKHop([3, 2]), "train", batch_size=20)[3])
    with refused("is damaged: sample 4 of train does not fit its shard. Mend it by running `muse sample`"):
        store["train"][4]
    with refused("sample 4 of train does not fit its shard"):
        store.verify()


def test_the_last_byte_of_a_shard_belongs_to_it(graph, tmp_path):
    """One entry more than there is room for, in the last sample of a shard."""
    store = own_copy(graph, tmp_path)
    sizes = np.array(store["train"]._sizes)
    shard = store.stored.map("train_shard_000000")
    room = len(shard) - layout.num_bytes(int(sizes[0, 1]), 0, np.dtype("<i4"))
    sizes[0, 2] = room // 4 + 16
    reseal(tmp_path / "s", {"train_sizes": sizes})
    with refused("sample 0 of train does not fit its shard"):
        SampleStore.open(tmp_path / "s")["train"][0]


def change_ids(stored, at, value):
    ids = stored.node_ids.copy()
    ids[at] = value
    return {"node_ids": ids}


def swap_ids(stored, first, second):
    ids = stored.node_ids.copy()
    ids[[first, second]] = ids[[second, first]]
    return {"node_ids": ids}


def with_edge(stored, row, column):
    """One more entry, at one end only; the row stays ascending."""
    neighbors = [stored.indices[stored.indptr[i] : stored.indptr[i + 1]] for i in range(stored.num_nodes)]
    neighbors[row] = np.union1d(neighbors[row], [column]).astype(np.int32)
    lengths = [len(row) for row in neighbors]
    return {"indptr": np.concatenate([[0], np.cumsum(lengths)]), "indices": np.concatenate(neighbors)}


def first_of_two(stored):
    """A row with two neighbors or more."""
    return int(stored.indptr[np.flatnonzero(np.diff(stored.indptr) > 1)[0]])


def swap_columns(stored):
    at, indices = first_of_two(stored), stored.indices.copy()
    indices[[at, at + 1]] = indices[[at + 1, at]]
    return {"indices": indices}


def repeat_column(stored):
    at, indices = first_of_two(stored), stored.indices.copy()
    indices[at + 1] = indices[at]
    return {"indices": indices}


def change_index(stored, value):
    indices = stored.indices.copy()
    indices[-1] = value
    return {"indices": indices}


def change_indptr(stored, at, value):
    indptr = stored.indptr.copy()
    indptr[at] = value
    return {"indptr": indptr}


def missing_neighbor(stored):
    """A node that is not yet a neighbor of node 0."""
    return int(np.setdiff1d(np.arange(1, stored.num_nodes), stored.indices[: stored.indptr[1]])[0])


IDS, RANGE = "its node ids do not ascend or are no nodes of the graph", "out of range"
FAULTS = {
    "seeds out of order": (lambda s: swap_ids(s, 0, 1), IDS),
    "others out of order": (lambda s: swap_ids(s, -1, -2), IDS),
    "a seed twice": (lambda s: change_ids(s, 1, s.node_ids[0]), IDS),
    "another node twice": (lambda s: change_ids(s, -1, s.node_ids[-2]), IDS),
    "a negative seed": (lambda s: change_ids(s, 0, -1), IDS),
    "a negative other": (lambda s: change_ids(s, s.num_seeds, -1), IDS),
    "a node beyond the last": (lambda s: change_ids(s, -1, 600), IDS),
    "a seed beyond the last": (lambda s: change_ids(s, s.num_seeds - 1, 600), IDS),
    "a seed among the others": (
        lambda s: {
            "node_ids": np.concatenate([s.seeds, np.sort([*s.node_ids[s.num_seeds + 1 :], s.seeds[3]])])
        },
        "a seed stands among the other nodes, too",
    ),
    "an edge at one end only": (lambda s: with_edge(s, 0, missing_neighbor(s)), "not symmetric"),
    "a self-loop": (lambda s: with_edge(s, 2, 2), "is a loop"),
    "neighbors out of order": (swap_columns, "out of order or repeated"),
    "a neighbor twice": (repeat_column, "out of order or repeated"),
    "a neighbor beyond the last": (lambda s: change_index(s, s.num_nodes), RANGE),
    "a negative neighbor": (lambda s: change_index(s, -1), RANGE),
    "an indptr that falls": (lambda s: change_indptr(s, 2, 1 << 40), "indptr falls"),
    "an indptr that begins late": (lambda s: change_indptr(s, 0, -1), "indptr runs from -1"),
    "an indptr that ends early": (
        lambda s: change_indptr(s, -1, s.num_entries - 1),
        "indptr falls|indptr runs",
    ),
}


def replaced(stored, **changes):
    fields = {name: getattr(stored, name) for name in FIELDS}
    fields |= {
        name: np.asarray(values).astype(fields[name].dtype, copy=False) for name, values in changes.items()
    }
    return Sample(num_seeds=stored.num_seeds, **fields)


@pytest.mark.parametrize("fault", FAULTS)
def test_verify_finds_wrong_values_behind_digests_that_fit(graph, tmp_path, monkeypatch, fault):
    """A store written anew from samples of which one, in the second shard, is wrong."""
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)
    store = own_copy(graph, tmp_path)
    size = store.stored.header.attributes["splits"]["train"]["shard_size"]
    change, message = FAULTS[fault]
    samples = list(store["train"])[size : 2 * size]
    samples[1] = replaced(samples[1], **change(samples[1]))
    sizes, offset = np.array(store["train"]._sizes), 0
    for index, one in enumerate(samples, start=size):
        sizes[index] = (offset, one.num_nodes, one.num_entries, one.num_seeds)
        offset += layout.size_of(one)
    shard = np.concatenate([piece for one in samples for piece in layout.parts(one)])
    reseal(tmp_path / "s", {"train_shard_000001": shard, "train_sizes": sizes})
    store = SampleStore.open(tmp_path / "s")
    with refused(f"Sample {size + 1} of train in .*/s: .*{message}"):
        store.verify()


def test_verify_accepts_a_store_that_was_written_again(graph, tmp_path):
    """So that what it refuses above is refused for the fault alone."""
    store = own_copy(graph, tmp_path)
    digest = store.digest
    reseal(tmp_path / "s")
    store = SampleStore.open(tmp_path / "s")
    store.verify()
    assert store.digest == digest


@pytest.mark.parametrize("name", ["train_sizes", "train_bounds", "train_shard_000001", "valid_shard_000000"])
def test_verify_finds_a_changed_byte(folder, tmp_path, name):
    changed = tmp_path / "s"
    changed.mkdir()
    for path in folder.iterdir():
        data = bytearray(path.read_bytes())
        if path.stem == name:
            data[17] ^= 4
        (changed / path.name).write_bytes(data)
    message = rf"{name}\.bin is damaged: its bytes do not have the digest in the header"
    if "shard" not in name:
        with refused(message):
            SampleStore.open(changed)
        return
    store = SampleStore.open(changed)
    with refused(message):
        store.verify()
    # And before anything of it is used; the other shards are whole.
    split, number = name.split("_shard_")
    size = store[split]._shard_size
    for index, whole in enumerate(SampleStore.open(folder)[split]):
        if index // size == int(number):
            with refused(message):
                store[split][index]
        else:
            assert is_equal(store[split][index], whole)


def test_a_shard_is_compared_with_its_digest_once(folder, monkeypatch):
    monkeypatch.setattr(module, "MAX_MAPPED", 1)
    digested = count(monkeypatch, folder_module, "file_digest")
    store = SampleStore.open(folder)
    size = store.stored.header.attributes["splits"]["train"]["shard_size"]
    for shard in (0, 1, 0, 1, 2):
        store["train"][shard * size]
    assert [path.stem for path, *_ in digested] == [
        *("train_bounds", "train_sizes", "valid_bounds", "valid_sizes"),
        *(f"train_shard_{number:06d}" for number in range(3)),
    ]


def test_reading_shows_no_progress(folder, capsys, monkeypatch):
    """Neither opening nor the first look at a shard; `verify` does."""
    monkeypatch.setattr(progress_module, "LOG_SECONDS", 0)
    progress_module.show_progress(True)
    try:
        store = SampleStore.open(folder)
        for samples in store.values():
            list(samples)
        assert capsys.readouterr().err == ""
        store.verify()
        assert capsys.readouterr().err.startswith("Verifying")
    finally:
        progress_module.show_progress(False)


def test_a_shard_that_vanishes_or_shrinks_is_named(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(plan_module, "MIN_SHARDS", 4)
    store = own_copy(graph, tmp_path)
    (tmp_path / "s" / "train_shard_000000.bin").unlink()
    os.truncate(tmp_path / "s" / "train_shard_000001.bin", 64)
    with refused(r"train_shard_000000\.bin is missing"):
        store["train"][0]
    with refused(r"train_shard_000001\.bin has 64 bytes, but its header says"):
        store["train"][3]
    assert store["train"][-1].num_nodes > 0
    with pytest.raises(StoreError):
        store.verify()


def test_a_file_too_many_is_nobodys_business(graph, tmp_path):
    store = own_copy(graph, tmp_path)
    (tmp_path / "s" / "train_shard_000099.bin").write_bytes(b"not mine")
    (tmp_path / "s" / "notes.txt").write_text("mine")
    again = SampleStore.open(tmp_path / "s")
    again.verify()
    assert again.digest == store.digest
    assert names(tmp_path / "s")[1] == "notes.txt"


@pytest.mark.parametrize(("number", "name"), [(12, "train_shard_000012"), (1234567, "train_shard_1234567")])
def test_shards_are_told_from_tables(number, name):
    assert module.shard_name("train", number) == name
    assert module._SHARD.search(name)


@pytest.mark.parametrize("name", ["train_sizes", "valid_bounds", "train_shard_00012", "train_shard_000012x"])
def test_tables_are_told_from_shards(name):
    assert not module._SHARD.search(name)
