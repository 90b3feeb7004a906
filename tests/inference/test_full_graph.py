"""Descent in mapped files is that of `model.embed` in memory, whatever the blocks and the bands are."""

import errno
import gc
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import problems
import pytest
import torch
from torch import nn

import musegnn
from machine import one_thread as one_thread
from musegnn import Energy, Graph, MeanEmbeddings, MuseGNN
from musegnn.errors import DivergenceError, StoreError
from musegnn.inference import full, scratch
from musegnn.inference.full import embed_graph, scores_of

N, IN, DIM, OUT = 31, 5, 7, 3


def graph_of(dtype=np.float32, seed=0, n=N) -> Graph:
    features = np.random.default_rng(seed).normal(size=(n, IN)).astype(dtype)
    return replace(problems.random(n, seed), features=features)


def model_of(energy=None, steps=5, **settings) -> MuseGNN:
    torch.manual_seed(0)
    return MuseGNN(IN, OUT, DIM, energy, steps, dropout=0.5, input_dropout=0.5, **settings)


def means_of(dtype=torch.float32, n=N, dim=DIM, home="device") -> MeanEmbeddings:
    """Every third node is unseen; its row of M is not 0, so that a wrong mask is seen."""
    means = MeanEmbeddings(n, dim, home=home, dtype=dtype)
    means.update(np.arange(n), torch.randn(n, dim, generator=torch.Generator().manual_seed(1)))
    means.count[::3] = 0
    return means


def in_memory(model, graph, means=None, unseen="zero", **options):
    """What `embed` says, in evaluation mode."""
    ids = torch.arange(graph.num_nodes)
    features = torch.from_numpy(np.array(graph.features)).float()
    mu = None if means is None else means.gather(ids)
    seen = means.seen(ids) if means is not None and unseen == "mask" else None
    was_training = model.training
    model.eval()
    with torch.no_grad():
        Z = model.f(features)
        Y = musegnn.unfold(Z, graph, model.energy, model.steps, model.alpha, mu, seen=seen, **options)
        if not options:
            assert torch.equal(Y, model.embed(graph, features, mu, seen=seen))
    model.train(was_training)
    return Y, Z, mu, seen


def check_close(found, expected):
    """To 1e-6 of the matrix."""
    assert found.shape == expected.shape
    assert found.dtype == torch.float32
    assert float((found - expected).norm()) <= 1e-6 * float(expected.norm())


def few_columns(monkeypatch, width, n=N):
    """So little memory that bands have this many columns."""
    monkeypatch.setattr(full, "total_memory", lambda: 2 * 3 * 4 * n * width)


@pytest.mark.parametrize("gamma", [0.0, 0.7])
@pytest.mark.parametrize("precondition", problems.PRECONDITIONS)
@pytest.mark.parametrize("name", problems.LAPLACIANS)
@pytest.mark.parametrize("prox", ["none", "relu", "l1", "group"])
def test_it_is_what_memory_gives(prox, name, precondition, gamma, tmp_path, monkeypatch):
    graph, energy = graph_of(), Energy(2.0, gamma, name, prox, precondition=precondition)
    model, means = model_of(energy), means_of()
    if prox != "group":
        few_columns(monkeypatch, 4)
    for unseen in ("zero", "mask"):
        made = embed_graph(model, graph, means, tmp_path, unseen=unseen, block_rows=7)
        check_close(made.Y, in_memory(model, graph, means, unseen)[0])
    assert made.error_bound is None
    assert made.path is None


@pytest.mark.parametrize("width", [1, 2, 5, 7, 100])
@pytest.mark.parametrize("block_rows", [1, 10, N, 1000, None])
def test_blocks_and_bands_of_any_size(width, block_rows, tmp_path, monkeypatch):
    graph, model, means = graph_of(), model_of(Energy(2.0, 0.5)), means_of()
    few_columns(monkeypatch, width)
    made = embed_graph(model, graph, means, tmp_path, block_rows=block_rows)
    check_close(made.Y, in_memory(model, graph, means)[0])


def test_bands_are_all_columns_once_and_fit(monkeypatch):
    for n, dim, width in [(7, 12, 5), (7, 12, 12), (7, 13, 4), (1, 1, 1), (50, 512, 130), (9, 8, 0)]:
        few_columns(monkeypatch, width, n)
        bands = full._bands(n, dim)
        assert [c for first, last in bands for c in range(first, last)] == [*range(dim)]
        assert max(last - first for first, last in bands) <= max(1, width)


@pytest.mark.parametrize("steps", [0, 1, 2, 7])
def test_any_number_of_steps(steps, tmp_path, monkeypatch):
    graph, model, means = graph_of(), model_of(Energy(2.0, 0.5, prox="l1"), steps), means_of()
    few_columns(monkeypatch, 4)
    made = embed_graph(model, graph, means, tmp_path, block_rows=9, bound=True)
    check_close(made.Y, in_memory(model, graph, means)[0])
    assert (made.error_bound == float("inf")) == (steps == 0)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_stored_features_and_mapped_means(dtype, kind, tmp_path):
    graph_of(dtype).save(tmp_path / "g")
    graph, means = Graph.open(tmp_path / "g"), means_of(kind, home=tmp_path / "m")
    assert isinstance(graph.features, np.memmap)
    model = model_of(Energy(2.0, 0.5))
    made = embed_graph(model, graph, means, tmp_path, unseen="mask", block_rows=10)
    expected, *_ = in_memory(model, graph, MeanEmbeddings(N, DIM, home=tmp_path / "m", dtype=kind), "mask")
    check_close(made.Y, expected.float())


def test_without_means_where_none_are_needed(tmp_path):
    graph, model = graph_of(), model_of(Energy(2.0))
    for unseen in ("zero", "mask"):
        check_close(embed_graph(model, graph, None, tmp_path, unseen=unseen).Y, in_memory(model, graph)[0])


def test_means_without_a_weight_are_not_read(tmp_path, monkeypatch):
    graph, model, means = graph_of(), model_of(Energy(2.0)), means_of()
    monkeypatch.setattr(MeanEmbeddings, "gather", lambda *_: pytest.fail("M is read"))
    for unseen in ("zero", "mask"):
        made = embed_graph(model, graph, means, tmp_path, unseen=unseen)
        check_close(made.Y, in_memory(model, graph)[0])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
@pytest.mark.parametrize("unseen", ["zero", "mask"])
def test_learned_weights_are_numbers_here(shape, unseen, tmp_path, monkeypatch):
    """They have no kernel while they are learned, and one when they are not."""
    weights = [nn.Parameter(torch.full(shape, value)) for value in (2.0, 0.6)]
    graph, model, means = graph_of(), model_of(Energy(*weights)), means_of()
    monkeypatch.setattr(full, "unfold", lambda *_, **__: pytest.fail("in memory"))
    made = embed_graph(model, graph, means, tmp_path, unseen=unseen, block_rows=10)
    check_close(made.Y, in_memory(model, graph, means, unseen)[0])
    assert all(weight.requires_grad for weight in weights)
    assert not made.Y.requires_grad


def test_other_modules_for_f(tmp_path):
    graph = graph_of(np.float16)
    model = MuseGNN(IN, IN, IN, Energy(2.0), 4, f=nn.Identity(), g=nn.Identity())
    check_close(embed_graph(model, graph, None, tmp_path).Y, in_memory(model, graph)[0])
    double = model_of(Energy(2.0)).double()
    Z = double.eval().f(torch.from_numpy(graph.features).double()).detach()
    made = embed_graph(double, graph, None, tmp_path)
    check_close(made.Y, musegnn.unfold(Z, graph, double.energy, 5).float())


def test_modes_are_as_before(tmp_path):
    graph, model = graph_of(), model_of()
    model.f.layers.eval()
    before = [part.training for part in model.modules()]
    assert set(before) == {True, False}
    embeddings = embed_graph(model, graph, None, tmp_path).Y
    [*scores_of(model, embeddings)]
    assert [part.training for part in model.modules()] == before


# The bound.


@pytest.mark.parametrize("gamma", [0.0, 0.7])
@pytest.mark.parametrize("precondition", ["none", "jacobi"])
@pytest.mark.parametrize("prox", ["none", "relu", "l1", "box", "group"])
def test_the_minimum_is_within_the_bound(prox, precondition, gamma, tmp_path, monkeypatch):
    graph, model = graph_of(), model_of(Energy(2.0, gamma, prox=prox, precondition=precondition))
    means = means_of(torch.bfloat16)
    if prox != "group":
        few_columns(monkeypatch, 4)
    for unseen, block_rows in (("zero", 7), ("mask", N)):
        trace, Z, mu, seen = in_memory(model, graph, means, unseen, trace=True)
        made = embed_graph(model, graph, means, tmp_path, unseen=unseen, block_rows=block_rows, bound=True)
        check_close(made.Y, trace.Y)
        best = musegnn.solve(Z.double(), graph, model.energy, mu.double(), seen=seen)
        assert float((made.Y.double() - best).norm()) <= made.error_bound
        assert trace.error_bound / 1.05 <= made.error_bound <= trace.error_bound * (1 + 1e-4)
        assert made.alpha == pytest.approx(trace.alpha, rel=1e-6)


@pytest.mark.parametrize("alpha", ["auto", 1.3])
def test_the_bound_of_the_authors_steps(alpha, tmp_path):
    """Which are no gradient steps, and do not go to the minimum."""
    graph, energy = graph_of(), Energy(2.0, 0.7, precondition="authors")
    model, means = model_of(energy, alpha=alpha), means_of()
    _, Z, mu, _ = in_memory(model, graph, means)
    made = embed_graph(model, graph, means, tmp_path, bound=True)
    best = musegnn.solve(Z.double(), graph, energy, mu.double())
    distance = float((made.Y.double() - best).norm())
    assert distance <= made.error_bound <= 20 * distance
    assert energy.precondition == "authors"


def test_the_bound_of_a_step_that_is_watched(tmp_path):
    graph, alpha = DESCENDING
    model = model_of(Energy(2.0, 0.0, "combinatorial"), 4, alpha=alpha)
    made = watched(lambda: embed_graph(model, graph, None, tmp_path, bound=True))
    trace = watched(lambda: in_memory(model, graph, trace=True)[0])
    assert made.error_bound == pytest.approx(trace.error_bound, rel=0.05)


def test_the_bound_of_many_steps_is_that_of_rounding(tmp_path):
    graph, model = graph_of(), model_of(Energy(2.0), 200)
    made = embed_graph(model, graph, None, tmp_path, bound=True)
    assert 0 < made.error_bound < 1e-4 * float(made.Y.norm())
    _, Z, *_ = in_memory(model, graph)
    best = musegnn.solve(Z.double(), graph, model.energy)
    assert 0 < float((made.Y.double() - best).norm()) <= made.error_bound


# Step sizes that are watched, and numbers that are not finite.


def with_features(graph) -> Graph:
    features = np.random.default_rng(0).normal(size=(graph.num_nodes, IN)).astype(np.float32)
    return replace(graph, features=features, name="web")


# lambda = 2. K_33: lmax = 6, its bound, but theta = 4, so that alpha may pass 2 / 13, where it diverges.
# A path of six: lmax = 3.73, of which 4 is the bound, so that alpha may pass 2 / 9 and go up to 0.236.
DIVERGING, DESCENDING = (with_features(problems.bipartite(3)), 0.2), (with_features(problems.path(6)), 0.23)


def watched(way):
    """The rows, or the error and its step."""

    def outcome():
        try:
            return way()
        except DivergenceError as error:
            return str(error), error.step

    with pytest.warns(UserWarning, match="larger than what is known to descend for Energy"):
        return outcome()


@pytest.mark.parametrize("width", [3, 100])
@pytest.mark.parametrize("prox", ["none", "relu", "l1", "box"])
def test_the_energy_is_watched_as_in_memory(prox, width, tmp_path, monkeypatch):
    few_columns(monkeypatch, width, 6)
    for (graph, alpha), steps in zip((DIVERGING, DESCENDING, DESCENDING), (12, 12, 0), strict=True):
        model = model_of(Energy(2.0, 0.0, "combinatorial", prox), steps, alpha=alpha)
        found = watched(lambda: embed_graph(model, graph, None, tmp_path, block_rows=4).Y)  # noqa: B023
        expected = watched(lambda: in_memory(model, graph)[0])  # noqa: B023
        if alpha == 0.2:
            error, step = expected
            assert error.startswith(f"The energy rises at step {step}: alpha=0.2 is too large")
            assert found == (error.replace("subgraph", "graph"), step)
        else:
            check_close(found, expected)


def test_a_start_outside_the_penalty_has_no_energy(tmp_path):
    """All of Z is negative: ReLU goes to 0, where the energy without the penalty is larger."""
    graph = replace(DIVERGING[0], features=-np.ones((6, IN), dtype=np.float32))
    model = MuseGNN(IN, IN, IN, Energy(2.0, 0.0, "combinatorial"), 3, f=nn.Identity(), alpha=0.155)
    assert not watched(lambda: embed_graph(model, graph, None, tmp_path).Y).any()


@pytest.mark.parametrize("row", [0, 30])
def test_features_that_are_not_finite(row, tmp_path):
    graph, message = (
        graph_of(),
        "Z has entries that are not finite. Look for NaN and inf where it is computed.",
    )
    graph.features[row, 1] = np.nan
    for prox in ("relu", "group"):
        with problems.refused(message, DivergenceError):
            embed_graph(model_of(Energy(prox=prox)), graph, None, tmp_path, block_rows=4)


def test_means_that_are_not_finite(tmp_path):
    graph, means = graph_of(), means_of()
    means.M[17, 2] = np.inf
    message = "mu has entries that are not finite. Look for NaN and inf where it is computed."
    with problems.refused(message, DivergenceError):
        embed_graph(model_of(Energy(1.0, 0.5)), graph, means, tmp_path, block_rows=4)


def test_embeddings_that_are_not_finite(tmp_path):
    """Sums of neighbors that pass the largest number, though Z is finite."""
    graph = replace(DIVERGING[0], features=np.full((6, IN), 3e38, dtype=np.float32))
    model = MuseGNN(IN, IN, IN, Energy(2.0, 0.0, "combinatorial"), 3, f=nn.Identity())
    message = (
        "The embeddings of web are not finite after 3 steps. Take alpha='auto', or scale the features down."
    )
    with problems.refused(message, DivergenceError) as caught:
        embed_graph(model, graph, None, tmp_path, block_rows=4)
    assert caught.value.step == 3


# What is refused.


def test_what_does_not_fit(tmp_path):
    graph, means, folder = replace(graph_of(), name="web"), means_of(), tmp_path
    model = model_of(Energy(2.0, 0.5))
    with problems.refused("web has no features, but f needs them. Import it with features."):
        embed_graph(model, replace(graph, features=None), means, folder)
    message = (
        "web has 4 features a node and 0 inputs more, but the model takes 5. "
        "Pass a graph with the features it was trained on, and its `inputs`."
    )
    with problems.refused(message):
        embed_graph(model, replace(graph, features=graph.features[:, :4]), means, folder)
    with problems.refused("gamma=0.5 needs mu, the means to agree with. Pass mu=..., or take gamma=0."):
        embed_graph(model, graph, None, folder)
    for n, dim in ((N - 1, DIM), (N, DIM + 1)):
        message = (
            f"web has embeddings of shape (31, 7), but the means have {(n, dim)}. "
            "Pass the means of this graph and this model."
        )
        with problems.refused(message):
            embed_graph(model, graph, means_of(n=n, dim=dim), folder)
    with problems.refused("unseen must be 'zero' or 'mask', got 'one'."):
        embed_graph(model, graph, means, folder, unseen="one")
    with problems.refused("block_rows must be 1 or more, got 0."):
        embed_graph(model, graph, means, folder, block_rows=0)
    with problems.refused(f"{folder / 'x'} is not a folder. Make it first, or choose another.", StoreError):
        embed_graph(model, graph, means, folder / "x")
    assert not [*folder.iterdir()]


def test_a_graph_too_large_for_32_bits(tmp_path, monkeypatch):
    from musegnn.unfolding import subgraph

    graph = replace(graph_of(), name="web")
    monkeypatch.setattr(subgraph.np, "iinfo", lambda kind: type("int32", (), {"max": 4}))
    with problems.refused("web has 31 nodes, too many for one step. Draw samples."):
        embed_graph(model_of(), graph, None, tmp_path)


def test_an_energy_without_a_kernel_must_fit_in_memory(tmp_path, monkeypatch):
    graph, model = replace(graph_of(), name="web"), model_of(Energy(prox="group"))
    needed = N * DIM * 4 * 6
    monkeypatch.setattr(full, "total_memory", lambda: 2 * needed)
    check_close(embed_graph(model, graph, None, tmp_path).Y, in_memory(model, graph)[0])
    message = (
        "The steps of this energy are done in memory: web takes {} GB, but half of the memory is "
        "5.21e-06 GB. Take prox='relu', or stored samples."
    )
    with problems.refused(message.format("2.08e-05")):
        embed_graph(model, graph, None, tmp_path, bound=True)
    monkeypatch.setattr(full, "total_memory", lambda: 2 * needed - 2)
    with problems.refused(message.format("5.21e-06")):
        embed_graph(model, graph, None, tmp_path)


# Files.


def test_a_result_that_is_kept(tmp_path, monkeypatch):
    graph, model, means = graph_of(), model_of(Energy(2.0, 0.5)), means_of()
    few_columns(monkeypatch, 4)
    (tmp_path / "embeddings.bin.partial").write_text("of one that was killed")
    made = embed_graph(model, graph, means, tmp_path, keep=True)
    assert [*tmp_path.iterdir()] == [made.path]
    assert made.path == tmp_path / "embeddings.bin"
    read = np.fromfile(made.path, dtype=np.float32).reshape(N, DIM)
    assert torch.equal(torch.from_numpy(read), made.Y)
    check_close(made.Y, in_memory(model, graph, means)[0])
    again = embed_graph(model, graph, means, tmp_path, keep=True)
    assert torch.equal(again.Y, made.Y)


def deleted_files(folder) -> int:
    """Mapped files below a folder that have no name any more."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return sum(str(folder) in line and line.endswith("(deleted)") for line in maps)


@pytest.mark.parametrize("keep", [False, True])
def test_files_go_with_the_result(keep, tmp_path):
    graph, model = graph_of(), model_of()
    made = embed_graph(model, graph, None, tmp_path, keep=keep)
    assert deleted_files(tmp_path) == (0 if keep else 1)
    assert len([*tmp_path.iterdir()]) == keep
    del made
    gc.collect()
    assert deleted_files(tmp_path) == 0


def test_nothing_stays_when_it_fails(tmp_path):
    graph = graph_of()
    graph.features[-1] = np.nan
    for keep in (False, True):
        with pytest.raises(DivergenceError):
            embed_graph(model_of(), graph, None, tmp_path, block_rows=4, keep=keep)
        gc.collect()
        assert not [*tmp_path.iterdir()]
        assert deleted_files(tmp_path) == 0


def test_a_disk_that_is_too_small(tmp_path, monkeypatch):
    graph, model = replace(graph_of(), name="web"), model_of()
    few_columns(monkeypatch, 4)
    # Bands of four columns and of three: twice Y, and a band.
    needed = 4 * N * (2 * DIM + 4)
    monkeypatch.setattr(scratch, "free_bytes", lambda folder: needed)
    embed_graph(model, graph, None, tmp_path)
    monkeypatch.setattr(scratch, "free_bytes", lambda folder: needed - 1)
    message = (
        f"Embedding web takes 2.23e-06 GB in {tmp_path}, but 2.23e-06 GB are free. "
        "Free some space, or choose another folder."
    )
    with problems.refused(message, StoreError):
        embed_graph(model, graph, None, tmp_path)


def test_space_is_taken_before_it_is_written_to(tmp_path, monkeypatch):
    """A hole in a file would be a SIGBUS when the disk is full; whichever file it is, nothing stays."""
    graph, model, sizes, room = graph_of(), model_of(), [], []
    taken = os.posix_fallocate

    def limited(file, start, size):
        if len(sizes) == len(room):
            raise OSError(errno.ENOSPC, "No space left on device")
        sizes.append(size)
        taken(file, start, size)

    monkeypatch.setattr(scratch.os, "posix_fallocate", limited)
    few_columns(monkeypatch, 4)
    for _ in range(6):
        with pytest.raises(StoreError, match=r"^The disk is full .* Nothing was kept\. Free some space"):
            embed_graph(model, graph, None, tmp_path, bound=True, keep=True)
        gc.collect()
        assert not [*tmp_path.iterdir()]
        assert deleted_files(tmp_path) == 0
        room.append("for one file more")
        sizes.clear()
    monkeypatch.setattr(scratch, "free_bytes", lambda folder: 4 * N * (2 * DIM + 4 + 3 * 4))
    embed_graph(model, graph, None, tmp_path, bound=True)
    assert sum(sizes) == 4 * N * (2 * DIM + 4 + 3 * 4)
    monkeypatch.setattr(scratch, "free_bytes", lambda folder: 4 * N * (2 * DIM + 4 + 3 * 4) - 1)
    with pytest.raises(StoreError, match="are free"):
        embed_graph(model, graph, None, tmp_path, bound=True)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("prox", ["relu", "group"])
def test_a_disk_that_is_full(prox, keep, tmp_path):
    """Python ignores the signal of the limit, so that it is an error of the file."""
    graph, model = graph_of(), model_of(Energy(prox=prox))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "embeddings.bin.partial" if keep else tmp_path
    message = (
        f"The disk is full (or a size limit was reached) while writing {path}. "
        "Nothing was kept. Free some space, or choose another folder."
    )
    resource.setrlimit(resource.RLIMIT_FSIZE, (N * DIM * 4 - 1, hard))
    try:
        with problems.refused(message, StoreError):
            embed_graph(model, graph, None, tmp_path, keep=keep)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [*tmp_path.iterdir()]


# Scores.


@pytest.mark.parametrize("block_rows", [1, 10, N, 100, None])
def test_scores_are_g_of_the_rows(block_rows, tmp_path):
    graph, model = graph_of(), model_of()
    embeddings = embed_graph(model, graph, None, tmp_path).Y
    parts = [*scores_of(model, embeddings, "cpu", block_rows)]
    assert [first for first, _ in parts] == [*range(0, N, block_rows or N)]
    assert not any(part.requires_grad for _, part in parts)
    with torch.no_grad():
        torch.testing.assert_close(torch.cat([part for _, part in parts]), model.eval().g(embeddings))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_model_on_another_device(tmp_path):
    graph, model, means = graph_of(), model_of(Energy(2.0, 0.5)), means_of()
    expected, *_ = in_memory(model, graph, means, "mask")
    logits = torch.cat([part for _, part in scores_of(model, expected)])
    made = embed_graph(model.cuda(), graph, means.cuda(), tmp_path, unseen="mask", block_rows=10, bound=True)
    assert made.Y.device.type == "cpu"
    torch.testing.assert_close(made.Y, expected)
    torch.testing.assert_close(torch.cat([part for _, part in scores_of(model, made.Y)]), logits)


# Memory.


LARGE = """
import sys, threading
from pathlib import Path
import torch
from musegnn import Energy, Graph, MeanEmbeddings, MuseGNN
from musegnn.inference import full
from musegnn.memory import anonymous_memory
folder, dim = Path(sys.argv[1]), int(sys.argv[2])
model = MuseGNN(8, 4, dim, Energy(2.0, 0.5), 3, layers=1)
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.002):
        peak = max(peak, anonymous_memory())
def embed(name):
    graph = Graph.open(folder / name)
    means = MeanEmbeddings(graph.num_nodes, dim, home=folder / (name + " means"), dtype=torch.bfloat16)
    full.total_memory = lambda: 2 * 3 * 4 * graph.num_nodes * dim // 2
    return full.embed_graph(model, graph, means, folder, unseen="mask", block_rows=2000, bound=True)
embed("small")
before = anonymous_memory()
watcher = threading.Thread(target=watch)
watcher.start()
made = embed("large")
done.set()
watcher.join()
assert made.Y.shape == (200_000, dim)
assert 0 < made.error_bound < float("inf")
print(peak - before)
"""


def test_memory_does_not_hold_a_matrix(tmp_path):
    """200,000 nodes of 64 columns are 51 MB; what is taken is for columns of one number a node."""
    rng, dim = np.random.default_rng(0), 64
    for name, n in (("small", 100), ("large", 200_000)):
        edges, features = rng.integers(0, n, (2, 5 * n)), rng.random((n, 8)).astype(np.float16)
        Graph.from_edges(edges, num_nodes=n, features=features).save(tmp_path / name)
    done = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path), str(dim)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200_000 * dim * 4
