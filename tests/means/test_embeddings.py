"""Equation 9 against a loop in plain Python, wherever M lives."""

import os

import numpy as np
import problems
import pytest
import torch

from musegnn import MeanEmbeddings, SampleStore, ShadowKHop, sample
from musegnn.errors import DivergenceError, StoreError
from musegnn.means import embeddings

N, DIM = 20, 5


def visits(count=12, seed=0, dtype=torch.float64):
    """Some nodes each time, in any order, and their embeddings."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        ids = rng.permutation(N - 2)[: rng.integers(0, N - 2)]
        yield ids, torch.from_numpy(rng.normal(size=(len(ids), DIM))).to(dtype)


def looped(rho, made):
    """Equation 9, one number at a time."""
    M, count = [[0.0] * DIM for _ in range(N)], [0] * N
    for ids, Y in made:
        for v, row in zip(ids.tolist(), Y.double().tolist(), strict=True):
            c = count[v]
            old, new = rho * c / (c + 1), ((1 - rho) * c + 1) / (c + 1)
            M[v] = [old * m + new * y for m, y in zip(M[v], row, strict=True)]
            count[v] = c + 1
    return torch.tensor(M, dtype=torch.float64), torch.tensor(count, dtype=torch.int32)


def homes(tmp_path):
    return ["device", "host", tmp_path / "another" / "one"]


@pytest.mark.parametrize("rho", [0, 0.9, 1])
def test_equation_nine_in_all_homes(rho, tmp_path):
    M, count = looped(rho, visits())
    for home in homes(tmp_path):
        means = MeanEmbeddings(N, DIM, rho, home=home, dtype=torch.float64)
        for ids, Y in visits():
            means.update(ids, Y)
        torch.testing.assert_close(means.M, M, rtol=1e-14, atol=1e-14)
        assert torch.equal(means.count, count)
        assert means.count.dtype == torch.int32


def test_rho_one_is_the_mean_and_rho_zero_the_newest():
    Y = torch.randn(7, N, DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for rho, expected in ((1, Y.mean(dim=0)), (0, Y[-1])):
        means = MeanEmbeddings(N, DIM, rho, dtype=torch.float64)
        for part in Y:
            means.update(torch.arange(N), part)
        torch.testing.assert_close(means.M, expected, rtol=1e-14, atol=1e-14)


def test_the_default_rho_is_nine_tenths():
    means = MeanEmbeddings(2, 1, dtype=torch.float64)
    for value in (1.0, 3.0):
        means.update(torch.tensor([1]), torch.tensor([[value]]))
    assert means.M.tolist() == [[0.0], [pytest.approx(0.45 * 1 + 0.55 * 3)]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_narrow_storage_is_computed_in_float32(dtype):
    """A loop that rounds M to what is stored, and nothing else."""
    means = MeanEmbeddings(N, DIM, dtype=dtype)
    M, count = torch.zeros(N, DIM, dtype=dtype), torch.zeros(N)
    for ids, Y in visits(dtype=torch.bfloat16):
        means.update(ids, Y)
        for v, row in zip(ids.tolist(), Y, strict=True):
            keep = 0.9 * count[v] / (count[v] + 1)
            exact = keep.double() * M[v].double() + (1 - keep.double()) * row.double()
            M[v] = exact.float().to(dtype)
            count[v] += 1
    assert means.M.dtype == dtype
    # float32 may round the other way at a tie of the narrow dtype.
    torch.testing.assert_close(means.M.double(), M.double(), rtol=torch.finfo(dtype).eps, atol=1e-7)
    exact, _ = looped(0.9, visits(dtype=torch.bfloat16))
    torch.testing.assert_close(means.M.double(), exact, rtol=4 * torch.finfo(dtype).eps, atol=0.01)


def test_float64_keeps_all_its_digits():
    """1/3 in float32 would be off by 1e-8."""
    means = MeanEmbeddings(1, 1, 1.0, dtype=torch.float64)
    for value in (1.0, 0.0, 0.0):
        means.update(np.array([0]), torch.tensor([[value]], dtype=torch.float64))
    assert float(means.M) == pytest.approx(1 / 3, abs=1e-16)


def test_rows_are_gathered_in_the_order_of_the_ids():
    means = MeanEmbeddings(N, DIM)
    Y = torch.arange(N * DIM, dtype=torch.float32).view(N, DIM)
    means.update(np.arange(N), Y)
    for ids in (torch.tensor([7, 0, 7, 19]), np.array([7, 0, 7, 19], dtype=np.int32)):
        assert torch.equal(means.gather(ids), Y[[7, 0, 7, 19]])
    assert means.gather(np.zeros(0, dtype=np.int64)).shape == (0, DIM)


@pytest.mark.parametrize(
    ("stored", "read"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_what_is_gathered_has_at_least_float32(stored, read):
    means = MeanEmbeddings(N, DIM, dtype=stored)
    means.update(np.arange(N), torch.full((N, DIM), 0.1))
    rows = means.gather(np.array([3]))
    assert rows.dtype == read
    assert rows.tolist() == [[float(torch.tensor(0.1).to(stored))] * DIM]


def test_no_gradient_goes_through():
    means = MeanEmbeddings(N, DIM)
    Y = torch.randn(3, DIM, requires_grad=True)
    means.update(np.array([1, 2, 3]), Y)
    rows = means.gather(np.array([1, 2]))
    assert not rows.requires_grad
    assert not means.M.requires_grad
    # A copy: what is done to it does not come back.
    rows.fill_(9)
    assert torch.equal(means.M[1:4], Y.detach())
    assert [*means.parameters()] == []


def test_seen_are_those_that_were_updated():
    means = MeanEmbeddings(4, 1)
    means.update(np.array([2, 0]), torch.zeros(2, 1))
    seen = means.seen(np.array([0, 1, 2, 3, 2]))
    assert seen.dtype == torch.bool
    assert seen.tolist() == [True, False, True, False, True]


def test_ids_of_a_stored_sample(tmp_path):
    """They are mapped and read-only."""
    sample(problems.random(30), ShadowKHop(fanouts=[2]), out=tmp_path / "s", batch_size=10, splits=("none",))
    record = SampleStore.open(tmp_path / "s")["none"][0]
    means = MeanEmbeddings(30, 2)
    Y = torch.randn(record.num_nodes, 2, generator=torch.Generator().manual_seed(0))
    means.update(record.node_ids, Y)
    assert torch.equal(means.gather(record.node_ids), Y)


# What is refused; nothing is changed then.


def test_a_node_that_is_repeated():
    means = MeanEmbeddings(N, DIM)
    message = (
        "node_ids repeats a node: M would keep one of its embeddings and drop the others. "
        "Pass each node of a sample once."
    )
    with problems.refused(message):
        means.update(np.array([1, 2, 1]), torch.ones(3, DIM))
    assert not means.M.any()
    assert not means.count.any()


@pytest.mark.parametrize(("ids", "got"), [([3, 20], "3 to 20"), ([-1, 4], "-1 to 4"), ([-1, 25], "-1 to 25")])
def test_ids_out_of_range(ids, got):
    means = MeanEmbeddings(N, DIM)
    for call in (means.gather, means.seen, lambda ids: means.update(ids, torch.ones(2, DIM))):
        with problems.refused(f"node_ids must lie in 0..19, got {got}."):
            call(np.array(ids))


def test_embeddings_of_another_shape():
    means = MeanEmbeddings(N, DIM)
    for shape in ((2, DIM + 1), (3, DIM)):
        with problems.refused(f"Y must have shape (2, 5), got {shape}."):
            means.update(np.array([1, 2]), torch.ones(shape))
    assert not means.count.any()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rho": 1.1}, "rho must lie between 0 and 1, got 1.1."),
        ({"rho": -0.1}, "rho must lie between 0 and 1, got -0.1."),
        ({"rho": float("nan")}, "rho must lie between 0 and 1, got nan."),
        ({"num_nodes": -1}, "M needs num_nodes >= 0 and dim >= 1, got -1 and 5."),
        ({"dim": 0}, "M needs num_nodes >= 0 and dim >= 1, got 20 and 0."),
        ({"dtype": torch.int32}, "M is kept in float32, float64 or bfloat16, got torch.int32."),
        ({"dtype": torch.float16}, "M is kept in float32, float64 or bfloat16, got torch.float16."),
    ],
)
def test_wrong_settings(settings, message):
    with problems.refused(message):
        MeanEmbeddings(**{"num_nodes": N, "dim": DIM, **settings})


# Homes.


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_mapped_file_goes_on_where_it_was(tmp_path, dtype):
    made = [*visits()]
    first = MeanEmbeddings(N, DIM, home=tmp_path / "m", dtype=dtype)
    assert not first.M.any()
    for ids, Y in made[:6]:
        first.update(ids, Y)
    first.flush()
    assert (tmp_path / "m" / "M.bin").stat().st_size == N * DIM * dtype.itemsize
    assert (tmp_path / "m" / "count.bin").stat().st_size == N * 4
    kept = first.M.clone(), first.count.clone()
    del first
    second = MeanEmbeddings(N, DIM, home=tmp_path / "m", dtype=dtype)
    assert torch.equal(second.M, kept[0])
    assert torch.equal(second.count, kept[1])
    through = MeanEmbeddings(N, DIM, dtype=dtype)
    for ids, Y in made[:6]:
        through.update(ids, Y)
    for ids, Y in made[6:]:
        second.update(ids, Y)
        through.update(ids, Y)
    assert torch.equal(second.M, through.M)
    assert torch.equal(second.count, through.count)
    raw = np.fromfile(tmp_path / "m" / "count.bin", dtype=np.int32)
    assert raw.tolist() == through.count.tolist()


def test_flush_waits_for_both_files_and_for_nothing_else(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    MeanEmbeddings(N, DIM, home=tmp_path).flush()
    assert synced == [str(tmp_path / "M.bin"), str(tmp_path / "count.bin")]
    MeanEmbeddings(N, DIM).flush()
    MeanEmbeddings(N, DIM, home="host").flush()
    assert len(synced) == 2


def test_other_means_are_refused(tmp_path):
    """Also where their files have the same size: bfloat16 with twice the columns."""
    MeanEmbeddings(N, DIM, home=tmp_path)
    held = {"version": 1, "num_nodes": N, "dim": DIM, "rho": 0.9, "dtype": "torch.float32"}
    for nodes, dim, dtype in ((N, DIM + 1, torch.float32), (N, 2 * DIM, torch.bfloat16)):
        asked = {"version": 1, "num_nodes": nodes, "dim": dim, "rho": 0.9, "dtype": str(dtype)}
        message = f"{tmp_path} holds other means, {held}, where {asked} are asked for. Choose another folder."
        with problems.refused(message, StoreError):
            MeanEmbeddings(nodes, dim, home=tmp_path, dtype=dtype)
    assert (tmp_path / "M.bin").stat().st_size == 400


def test_a_file_of_another_length_is_refused(tmp_path):
    MeanEmbeddings(N, DIM, home=tmp_path)
    for length in (399, 401):
        os.truncate(tmp_path / "M.bin", length)
        message = (
            f"{tmp_path / 'M.bin'} has {length} bytes, but 400 are needed: it belongs to another run. "
            "Choose another folder."
        )
        with problems.refused(message, StoreError):
            MeanEmbeddings(N, DIM, home=tmp_path)
    (tmp_path / "means.json").write_text("{")
    with pytest.raises(StoreError, match="is not a valid header"):
        MeanEmbeddings(N, DIM, home=tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "header.json").write_text("{}")
    message = f"{tmp_path} holds other files. Choose an empty or a new folder for means."
    with problems.refused(message, StoreError):
        MeanEmbeddings(N, DIM, home=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["header.json"]


def test_the_disk_is_taken_at_once(tmp_path):
    """A hole in the file would be a SIGBUS when the disk is full."""
    MeanEmbeddings(5000, DIM, home=tmp_path)
    assert (tmp_path / "M.bin").stat().st_blocks * 512 >= 5000 * DIM * 4


def test_means_are_not_poisoned():
    means, Y = MeanEmbeddings(N, DIM), torch.ones(2, DIM)
    Y[1, 1] = float("nan")
    with pytest.raises(DivergenceError, match="not finite"):
        means.update(np.array([1, 2]), Y)
    assert int(means.count.sum()) == 0
    assert bool((means.M == 0).all())


def test_a_disk_that_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "free_bytes", lambda path: 399)
    message = (
        f"{tmp_path / 'M.bin'} will take 4e-07 GB, but 3.99e-07 GB are free. "
        "Free some space, or take dtype=torch.bfloat16."
    )
    with problems.refused(message, StoreError):
        MeanEmbeddings(N, DIM, home=tmp_path)
    assert not (tmp_path / "M.bin").exists()
    monkeypatch.setattr(embeddings, "free_bytes", lambda path: 400)
    MeanEmbeddings(N, DIM, home=tmp_path)


def test_no_nodes(tmp_path):
    for home in homes(tmp_path):
        means = MeanEmbeddings(0, DIM, home=home)
        means.update(np.zeros(0, dtype=np.int64), torch.zeros(0, DIM))
        assert means.gather(np.zeros(0, dtype=np.int64)).shape == (0, DIM)


def test_only_the_home_on_the_device_moves(tmp_path):
    for home in homes(tmp_path):
        means = MeanEmbeddings(N, DIM, home=home)
        model = torch.nn.ModuleList([torch.nn.Linear(2, 2), means])
        model.to("meta")
        assert model[0].weight.device.type == "meta"
        assert means.M.device.type == means.count.device.type == ("meta" if home == "device" else "cpu")
    for home in homes(tmp_path)[1:]:
        means = MeanEmbeddings(N, DIM, home=home)
        assert means.double() is means
        assert means.M.dtype == torch.float32
    # Half precision by accident would be a coarse mean.
    assert MeanEmbeddings(N, DIM).half().M.dtype == torch.float32
    assert MeanEmbeddings(N, DIM).double().count.dtype == torch.int32


def test_what_is_gathered_goes_where_it_is_asked_for():
    means = MeanEmbeddings(N, DIM, home="host")
    assert means.gather(np.array([1]), "meta").device.type == "meta"
    assert means.gather(np.array([1]), torch.device("cpu")).device.type == "cpu"
    assert means.seen(np.array([1]), "meta").device.type == "meta"
    assert means.gather(np.array([1])).device.type == "cpu"


def test_the_state_goes_from_any_home_to_any_other(tmp_path):
    made = [*visits()]
    for i, source in enumerate(homes(tmp_path / "from")):
        before = MeanEmbeddings(N, DIM, home=source)
        for ids, Y in made:
            before.update(ids, Y)
        state = before.state_dict()
        assert list(state) == ["M", "count"]
        for j, target in enumerate(homes(tmp_path / f"to {i}")):
            after = MeanEmbeddings(N, DIM, home=target)
            after.load_state_dict(state)
            assert torch.equal(after.M, before.M), (i, j)
            assert torch.equal(after.count, before.count)
            if not isinstance(after.home, str):
                after.flush()
                raw = np.fromfile(after.home / "M.bin", dtype=np.float32)
                assert raw.tolist() == before.M.flatten().tolist()


def test_sizes_and_home_are_shown(tmp_path):
    assert repr(MeanEmbeddings(N, DIM)) == "MeanEmbeddings(num_nodes=20, dim=5, rho=0.9, home='device')"
    mapped = MeanEmbeddings(N, DIM, 1.0, home=tmp_path)
    assert repr(mapped) == f"MeanEmbeddings(num_nodes=20, dim=5, rho=1.0, home={str(tmp_path)!r})"
