"""Features: the same rows from wherever they are read."""

import jaxtyping
import numpy as np
import pytest
import small_runs
import torch

import musegnn
from machine import only_on_a_gpu
from musegnn.errors import InputError
from musegnn.training import features
from musegnn.training.features import Features, choose_home, fits

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
    found = features.rows(features.read(IDS), torch.from_numpy(IDS).to(device))
    assert (found.dtype, found.device.type) == (torch.float32, device.type)
    return found.cpu().numpy()


@pytest.mark.parametrize("home", ["disk", "host", "auto"])
def test_every_home_has_the_same_rows(table, home):
    found = Features(table, home, CPU)
    np.testing.assert_array_equal(rows_of(found), table[IDS].astype(np.float32))
    assert found.home == ("disk" if home == "auto" else home)


def test_memory_is_filled_block_by_block(table, monkeypatch):
    """Blocks of two rows, or of one where a row is larger than a block."""
    for size in (2 * 3 * table.itemsize, 1):
        monkeypatch.setattr(features, "_BLOCK", size)
        np.testing.assert_array_equal(rows_of(Features(table, "host", CPU)), table[IDS].astype(np.float32))


def test_memory_does_not_change_with_the_table():
    table = np.ones((20, 3), dtype=np.float32)
    host, disk = (Features(table, home, CPU) for home in ("host", "disk"))
    table[:] = 2
    assert (rows_of(host) == 1).all()
    assert (rows_of(disk) == 2).all()


def test_rows_that_were_read_are_a_copy():
    table = np.ones((20, 3), dtype=np.float32)
    found = Features(table, "disk", CPU)
    rows = found.rows(found.read(IDS), torch.from_numpy(IDS))
    table[:] = 2
    assert (rows == 1).all()


@pytest.mark.parametrize("shape", [(0, 3), (4, 0)])
def test_tables_of_nothing(shape):
    for home in ("disk", "host"):
        found = Features(np.empty(shape, dtype=np.float32), home, CPU)
        ids = np.arange(shape[0])
        assert found.rows(found.read(ids), torch.from_numpy(ids)).shape == shape


def test_a_device_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(InputError) as caught:
        Features(np.ones((2, 2), dtype=np.float32), "device", CPU)
    assert str(caught.value) == ("features_home=device needs a GPU, got device=cpu. Take host, disk or auto.")


def test_a_run_that_asks_for_a_gpu_it_has_not_leaves_no_folder(tmp_path):
    store = small_runs.store(tmp_path / "s")
    with pytest.raises(InputError, match=r"^features_home=device needs a GPU, got device=cpu\. [^\n]*$"):
        musegnn.train(
            small_runs.graph(), store, small_runs.model(), tmp_path / "run",
            epochs=1, features_home="device",
        )  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_where_a_gpu_would_have_them(monkeypatch):
    """Half of what is free, of the GPU and then of memory; a GPU is not needed to choose."""
    table = np.empty((100, 10), dtype=np.float32)
    for on_device, in_memory, home in ((8000, 0, "device"), (7999, 8000, "host"), (7999, 7999, "disk")):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=on_device: (free, 10**9))
        monkeypatch.setattr(features, "_free_memory", lambda free=in_memory: free)
        assert choose_home(table, CUDA) == home
        assert fits(table.nbytes, CUDA) == (home == "device")
        assert choose_home(table, CPU) == "disk"


def test_memory_that_is_free():
    assert 2**20 < features._free_memory() < 2**50


def test_a_run_is_the_same_from_memory_and_from_disk(tmp_path):
    """All it leaves behind, but the line that says where the features were."""
    store, made = small_runs.store(tmp_path / "s"), []
    for home in ("disk", "host"):
        given = small_runs.graph(), store, small_runs.model(), tmp_path / home
        musegnn.train(*given, epochs=2, features_home=home)
        made.append(small_runs.outcome(tmp_path / home))
        assert made[-1]["events"].pop(0)["features"] == home
    assert small_runs.differences(*made) == []


@only_on_a_gpu
@pytest.mark.parametrize("home", ["device", "host", "disk", "auto"])
def test_every_home_has_the_same_rows_on_a_gpu(table, home):
    found = Features(table, home, CUDA)
    np.testing.assert_array_equal(rows_of(found, CUDA), table[IDS].astype(np.float32))
    assert found.home == ("device" if home == "auto" else home)
    assert (found.read(IDS) is None) == (found.home == "device")
    if found.home != "device":
        assert found.read(IDS).is_pinned()


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
@pytest.mark.parametrize("home", ["device", "host", "disk"])
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
    choose = features.Features.__init__
    monkeypatch.setattr(
        features.Features, "__init__", lambda self, table, home, device: choose(self, table, "host", device)
    )
    musegnn.train(*given, small_runs.model(), tmp_path / "run", epochs=1, features_home="device")
    (tmp_path / "run" / "result.json").unlink()
    monkeypatch.undo()
    run = musegnn.train(
        *given, small_runs.model(), tmp_path / "run", epochs=1, features_home="device", resume=True
    )
    assert run.config.training.features_home == "device"
    assert run.result["epochs"] == 1
