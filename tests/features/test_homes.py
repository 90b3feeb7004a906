"""Features: the same rows from wherever they are read."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import jaxtyping
import numpy as np
import pytest
import small_runs
import torch

import musegnn
from machine import only_on_a_gpu
from musegnn.errors import InputError, StoreError
from musegnn.features import homes
from musegnn.features.homes import Features, choose_home, fits, open_features
from musegnn.features.packed import Pack, pack_folder
from musegnn.store import rows

CPU = torch.device("cpu")
CUDA = torch.device("cuda")
IDS = np.array([5, 0, 5, 19, 7, 19], dtype=np.int32)
DTYPES = ["f2", "f4", "f8", "i1", "u1", "i8"]


@pytest.fixture(params=DTYPES)
def table(request, tmp_path):
    """Mapped and read-only, as a stored graph has them."""
    values = np.random.default_rng(0).integers(0, 100, (20, 3)).astype(request.param)
    np.save(tmp_path / "table.npy", values)
    return np.load(tmp_path / "table.npy", mmap_mode="r")


def rows_of(features, device=CPU):
    found = features.rows(features.read(None, 0, IDS), torch.from_numpy(IDS).to(device))
    assert (found.dtype, found.device.type) == (torch.float32, device.type)
    return found.cpu().numpy()


@pytest.mark.parametrize("home", ["mapped", "ram"])
def test_every_home_has_the_same_rows(table, home):
    found = Features(table, home, CPU)
    np.testing.assert_array_equal(rows_of(found), table[IDS].astype(np.float32))
    assert found.home == home


def test_memory_is_filled_block_by_block(table, monkeypatch):
    """Blocks of two rows, or of one where a row is larger than a block."""
    for size in (2 * 3 * table.itemsize, 1):
        monkeypatch.setattr(homes, "_BLOCK", size)
        np.testing.assert_array_equal(rows_of(Features(table, "ram", CPU)), table[IDS].astype(np.float32))


def test_memory_does_not_change_with_the_table():
    table = np.ones((20, 3), dtype=np.float32)
    ram, mapped = (Features(table, home, CPU) for home in ("ram", "mapped"))
    table[:] = 2
    assert (rows_of(ram) == 1).all()
    assert (rows_of(mapped) == 2).all()


def test_rows_that_were_read_are_a_copy():
    table = np.ones((20, 3), dtype=np.float32)
    found = Features(table, "mapped", CPU)
    rows = found.rows(found.read(None, 0, IDS), torch.from_numpy(IDS))
    table[:] = 2
    assert (rows == 1).all()


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_tables_of_nothing(shape):
    for home in ("mapped", "ram"):
        found = Features(np.empty(shape, dtype=np.float32), home, CPU)
        ids = np.arange(shape[0])
        assert found.rows(found.read(None, 0, ids), torch.from_numpy(ids)).shape == shape


def test_a_device_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(InputError) as caught:
        Features(np.ones((2, 2), dtype=np.float32), "gpu", CPU)
    assert str(caught.value) == (
        "features_home=gpu needs a GPU, got device=cpu. Take ram, mapped, cached, packed or auto."
    )


def test_a_run_that_asks_for_a_gpu_it_has_not_leaves_no_folder(tmp_path):
    store = small_runs.store(tmp_path / "s")
    with pytest.raises(InputError, match=r"^features_home=gpu needs a GPU, got device=cpu\. [^\n]*$"):
        musegnn.train(
            small_runs.graph(), store, small_runs.model(), tmp_path / "run",
            epochs=1, features_home="gpu",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_where_a_gpu_would_have_them(monkeypatch, tmp_path):
    """Half of what is free, of the GPU and then of memory; a GPU is not needed to choose."""
    values = np.ones((100, 10), dtype=np.float32)
    values.tofile(tmp_path / "table")
    table = np.memmap(tmp_path / "table", np.float32, "r", shape=(100, 10))
    for on_device, in_memory, home in ((8000, 0, "gpu"), (7999, 8000, "ram"), (7999, 7999, "cached")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=on_device: (free, 10**9))
        monkeypatch.setattr(homes, "free_memory", lambda free=in_memory: free)
        assert choose_home(table, CUDA) == home
        assert fits(table.nbytes, CUDA) == (home == "gpu")
        assert choose_home(table, CPU) == ("mapped" if in_memory == 8000 else "cached")
        assert choose_home(table, CPU, has_pack=True) == ("mapped" if in_memory == 8000 else "packed")
        # What is in memory already needs no place there.
        assert choose_home(values, CPU) == "mapped"


def test_memory_that_is_free(monkeypatch):
    free = rows.free_memory()
    assert 2**20 < free < 2**50
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert rows.free_memory() < free / 2


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A graph in a file, its samples and a pack of them."""
    folder = tmp_path_factory.mktemp("stored")
    small_runs.graph().save(folder / "g")
    graph = musegnn.Graph.open(folder / "g")
    store = small_runs.store(folder / "s", graph)
    musegnn.pack(graph, store, cache=0.2, splits=("train", "valid"))
    return graph, store


READS = {"train": 3, "valid": 2, "test": 1}


@pytest.mark.parametrize("home", ["ram", "mapped", "cached", "packed", "auto"])
@pytest.mark.parametrize("is_cold", [False, True])
def test_samples_have_their_rows_from_every_home(stored, home, is_cold, monkeypatch):
    """Twice, and from several threads at once; test samples are not in the pack, one sample is empty."""
    if is_cold:
        monkeypatch.setattr(rows.Rows, "_is_in_memory", lambda *_: False)
    graph, store = stored
    found = open_features(graph, store, home, CPU, reads=READS, cache=0.2)
    assert found.home == ("mapped" if home == "auto" else home)
    wanted = [(split, i, sample.node_ids) for split in store for i, sample in enumerate(store[split])]
    wanted += [(None, 0, np.array([119, 0, 0, 7])), (None, 3, np.empty(0, dtype=np.int32))]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda one: found.read(*one).numpy(), 2 * wanted))
    for (_, _, ids), read in zip(2 * wanted, made, strict=True):
        np.testing.assert_array_equal(read, graph.features[ids])


def test_a_run_is_the_same_from_everywhere(tmp_path, stored):
    """All it leaves behind, but the line that says where the features were, bit for bit."""
    graph, store = stored
    made = []
    for home in ("mapped", "ram", "cached", "packed"):
        given = graph, store, small_runs.model(), tmp_path / home
        musegnn.train(*given, epochs=2, features_home=home, features_cache=0.1)
        made.append(small_runs.outcome(tmp_path / home))
        start = made[-1]["events"].pop(0)
        assert start["features"] == home
        assert ("in memory" in start["features_about"]) == (home in ("cached", "packed"))
        assert small_runs.differences(made[0], made[-1]) == []


def test_training_reads_the_pack_and_nothing_else(tmp_path, stored, monkeypatch):
    """Every sample of every epoch, by its number; of the file only the row that the model is tried on."""
    graph, store = stored
    calls, gathered, read = [], [], Pack.read
    monkeypatch.setattr(Pack, "read", lambda *given: calls.append(given[1:3]) or read(*given))
    gather = rows.Rows.gather
    monkeypatch.setattr(rows.Rows, "gather", lambda *given: gathered.append(len(given[1])) or gather(*given))
    given = graph, store, small_runs.model(), tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(store._splits, "test")
        musegnn.train(*given, epochs=2, features_home="packed")
    wanted = [("train", i) for i in range(6)] * 2 + [("valid", i) for i in range(3)] * 3
    assert sorted(calls) == sorted(wanted)
    assert gathered in ([1], [])


def test_past_memory_auto_takes_the_pack_or_a_cache(tmp_path, stored, monkeypatch):
    graph, store = stored
    monkeypatch.setattr(homes, "free_memory", lambda: graph.features.nbytes)
    given = {"reads": READS, "cache": 0.2}
    assert open_features(graph, store, "auto", CPU, **given).home == "packed"
    assert open_features(graph, store, "auto", CPU, is_online=True, **given).home == "cached"
    monkeypatch.setattr(homes, "free_memory", lambda: 0)
    # Not even the hot rows of the pack have room.
    assert open_features(graph, store, "auto", CPU, **given).home == "cached"
    other = small_runs.store(tmp_path / "s", graph, batch_size=20)
    shutil.copytree(pack_folder(store), pack_folder(other))
    with pytest.warns(UserWarning, match="was packed from other samples .* It is not used"):
        assert open_features(graph, other, "auto", CPU, **given).home == "cached"


def test_what_packs_cannot_do_is_said_in_one_line(tmp_path, stored):
    graph, store = stored
    with pytest.raises(InputError, match=r"^features_home=packed needs stored samples, [^\n]*$"):
        musegnn.train(graph, store, small_runs.model(), tmp_path / "run", features_home="packed", online=True)
    other = small_runs.store(tmp_path / "s", graph, batch_size=20)
    with pytest.raises(StoreError, match=r"^\S*s.pack does not exist. Write it with `muse pack [^\n]*$"):
        musegnn.train(graph, other, small_runs.model(), tmp_path / "run", features_home="packed")
    with pytest.raises(StoreError, match=r"was packed from other samples [^\n]*$"):
        musegnn.train(
            graph, other, small_runs.model(), tmp_path / "run",
            features_home="packed", features_pack=str(pack_folder(store)),
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


@only_on_a_gpu
@pytest.mark.parametrize("home", ["gpu", "ram", "mapped"])
def test_every_home_has_the_same_rows_on_a_gpu(table, home):
    found = Features(table, home, CUDA)
    np.testing.assert_array_equal(rows_of(found, CUDA), table[IDS].astype(np.float32))
    assert (found.read(None, 0, IDS) is None) == (home == "gpu")
    if home != "gpu":
        assert found.read(None, 0, IDS).is_pinned()


def losses(folder, store, device="cpu", gamma=0.5, **settings):
    """Of each epoch, and the run."""
    model = small_runs.model(gamma).to(device)
    run = musegnn.train(small_runs.graph(), store, model, folder, epochs=4, lr=0.01, **settings)
    found = np.array([event["loss"] for event in run.events if event["event"] == "epoch"])
    assert len(found) == 4
    return found, run


@pytest.fixture
def store(tmp_path):
    return small_runs.store(tmp_path / "s")


@only_on_a_gpu
@pytest.mark.parametrize("home", ["gpu", "ram", "mapped", "cached"])
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_a_gpu_learns_as_the_cpu_does(tmp_path, store, home, gamma):
    expected, _ = losses(tmp_path / "cpu", store, gamma=gamma)
    found, run = losses(tmp_path / "gpu", store, "cuda", gamma=gamma, features_home=home)
    np.testing.assert_allclose(found, expected, rtol=1e-3)
    assert 0 <= run.test_accuracy <= 1


@only_on_a_gpu
@pytest.mark.parametrize("home", ["memory", "disk"])
def test_a_gpu_in_bfloat16_with_means_in_bfloat16(tmp_path, store, home):
    expected, _ = losses(tmp_path / "cpu", store)
    options = {"precision": "bfloat16", "means_dtype": "bfloat16", "means_home": home}
    found, run = losses(tmp_path / "gpu", store, "cuda", **options)
    np.testing.assert_allclose(found, expected, rtol=0.05)
    assert run.means.M.dtype == torch.bfloat16
    assert run.means.M.isfinite().all()


@only_on_a_gpu
def test_a_gpu_goes_on_where_it_was(tmp_path, store):
    """Stopped behind the second epoch, in the way a listener can."""
    whole, _ = losses(tmp_path / "whole", store, "cuda")

    def stop(event):
        if event.get("epoch") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        losses(tmp_path / "parts", store, "cuda", listen=stop, checkpoint_seconds=0)
    parts, _ = losses(tmp_path / "parts", store, "cuda", resume=True)
    np.testing.assert_allclose(parts, whole, rtol=1e-3)


def test_a_run_goes_on_without_the_gpu_it_began_with(tmp_path, monkeypatch):
    """As if it had begun on one: its config asks for features there."""
    store = small_runs.store(tmp_path / "s")
    given = small_runs.graph(), store
    choose = homes.Features.__init__
    monkeypatch.setattr(
        homes.Features, "__init__", lambda self, table, home, device: choose(self, table, "ram", device)
    )
    musegnn.train(*given, small_runs.model(), tmp_path / "run", epochs=1, features_home="gpu")
    (tmp_path / "run" / "result.json").unlink()
    monkeypatch.undo()
    run = musegnn.train(
        *given, small_runs.model(), tmp_path / "run", epochs=1, features_home="gpu", resume=True
    )
    assert run.config.training.features_home == "gpu"
    assert run.result["epochs"] == 1
