"""Offline sampling: how fast samples are drawn and stored, against peers and against the machine.

    python benchmarks/sampling.py COMMAND [--record]

    peers     samples/s into the store and drawing only, next to DGL's and PyG's samplers (peers/README.md)
    stages    where the time goes; entries scanned per second against a plain read of the graph
    storage   bytes and reading speed of the stored form and of two smaller ones (storage_forms.py)
    workers   samples/s over the number of workers
    sizes     samples/s, entries scanned per second and memory over the number of nodes
    open      opening a store of a gigabyte, and one of 8,000 shards
    start     the first call in a new process, with and without compiled kernels
    plot      plots/sampling.svg from results.json

A sample is ShadowKHop's of 1000 train nodes; fanouts stand in our order, the seeds' own hop first. "Into the
store" is `musegnn.sample` to a new folder: drawing, spectral bounds, hashing, fsync, publishing. "Drawing
only" is `musegnn.Draws`, spectral bounds included; the peers only draw, and know no bounds. What is compared
takes turns, and a figure is the median of its turns.

The ceiling: inducing a subgraph must look at every neighbor of each of its nodes. These entries per second of
drawing, by one core, stand against those of a sum over the graph's `indices` from the first to the last.
"""

import argparse
import dataclasses
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from measure import Peak, disk_speed
from record import FOLDER, record

import musegnn
from musegnn import Draws, Graph, Sample, SampleStore, ShadowKHop, ops
from musegnn.memory import anonymous_memory
from musegnn.sampling import layout
from musegnn.sampling.sample_store import KIND, shard_name
from musegnn.store import ArraySpec, ArrayWriter, FolderWriter

BATCH_SIZE = 1000
PEER_CORES = 2
NUM_BATCHES = {"arxiv-shaped": 90, "products-shaped": 16}
PAPERS_NODES = 111_059_956
SHARDS, SHARD_BYTES = 8000, 1 << 26

Figure = dict[str, Any]


class Drawn(NamedTuple):
    """One repetition."""

    rate: float
    """Samples per second."""
    nodes: float
    """Mean n_s."""
    entries: float
    """Mean entries of a sample."""


# What is drawn from.


def load(work: Path, name: str, nodes: float | None = None) -> Graph:
    """A shaped graph without features, kept below the work folder; of papers100m-shaped `nodes` millions."""
    scale = 1.0 if nodes is None else nodes * 1e6 / PAPERS_NODES
    out = work / "graphs" / (name if nodes is None else f"{name}-{nodes:g}M")
    return musegnn.datasets.load(name, features=False, out=out, scale=scale)


def with_train(graph: Graph, num_batches: int, among: np.ndarray | None = None) -> Graph:
    """The graph with train nodes for so many whole batches, from those it has or from `among`."""
    assert graph.split is not None
    nodes = np.flatnonzero(graph.split == 0) if among is None else among
    chosen = np.random.default_rng(0).choice(nodes, num_batches * BATCH_SIZE, replace=False)
    split = np.full(graph.num_nodes, -1, dtype=np.int8)
    split[chosen] = 0
    changed = dataclasses.replace(graph, split=split)
    # A graph that is not the stored one is hashed when its digest is first asked for: not while a clock runs.
    assert changed.digest
    return changed


def chosen_graph(options: argparse.Namespace) -> Graph:
    return with_train(load(options.work, options.graph), options.batches or NUM_BATCHES[options.graph])


def described(graph: Graph, fanouts: list[int]) -> str:
    return f"{graph.name}, {graph.num_nodes / 1e6:.3g} M nodes, fanouts {','.join(map(str, fanouts))}"


# What is measured.


def into_store(graph: Graph, fanouts: list[int], workers: int, folder: Path) -> Drawn:
    """All train samples into a new store, which stays until the next one."""
    shutil.rmtree(folder, ignore_errors=True)
    started = time.perf_counter()
    store = musegnn.sample(graph, ShadowKHop(fanouts), folder, splits=("train",), workers=workers)
    seconds = time.perf_counter() - started
    samples = store["train"]
    return Drawn(len(samples) / seconds, samples.num_nodes.mean(), samples.num_entries.mean())


def drawing_only(graph: Graph, fanouts: list[int], workers: int) -> Drawn:
    """All train samples, drawn and forgotten."""
    draws = Draws(graph, ShadowKHop(fanouts), "train")

    def size(index: int) -> tuple[int, int]:
        sample = draws[index]
        return sample.num_nodes, sample.num_entries

    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        sizes = list(pool.map(size, range(len(draws))))
    seconds = time.perf_counter() - started
    return Drawn(len(draws) / seconds, *np.mean(sizes, axis=0))


def scanned(graph: Graph, samples: Iterator[Sample]) -> int:
    """Entries that inducing these subgraphs must look at: the degrees of all their nodes."""
    return sum(int((graph.indptr[s.node_ids + 1] - graph.indptr[s.node_ids]).sum()) for s in samples)


def take_turns(contestants: dict[Any, Callable[[], Drawn]], repeats: int) -> dict[Any, Drawn]:
    """The median rate of each."""
    turns: dict[Any, list[Drawn]] = {name: [] for name in contestants}
    for _ in range(repeats):
        for name, contestant in contestants.items():
            turns[name].append(contestant())
    return {name: Drawn(*map(statistics.median, zip(*drawn, strict=True))) for name, drawn in turns.items()}


def in_process(function: Callable[..., Any], *arguments: str | int | float) -> Any:
    """Call a function of this file in a process of its own, with memory that nobody has used before."""
    command = [sys.executable, __file__, "--call", function.__name__, json.dumps(arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


# peers


class Peer:
    """Another library's sampler in its own Python, asked for one repetition at a time (`peers/serve.py`)."""

    def __init__(self, script: str, python: str, graph: Path, seeds: Path) -> None:
        command = [python, str(FOLDER / "peers" / script), str(graph), str(seeds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def draw(self, fanouts: list[int], batches: int, num_workers: int, **settings: int) -> Drawn:
        request = {"fanouts": fanouts, "batches": batches, "num_workers": num_workers, **settings}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        return Drawn(batches / answer["seconds"], answer["nodes"], answer["entries"])

    def __enter__(self) -> "Peer":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def peers(options: argparse.Namespace) -> Iterator[Figure]:
    """Our samples/s and theirs, on the same graph, seeds and cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:PEER_CORES])
    graph = chosen_graph(options)
    draws = Draws(graph, ShadowKHop(options.fanouts[0]), "train")
    seeds = options.scratch / "seeds.npy"
    np.save(seeds, np.concatenate([draws.seeds(i) for i in range(len(draws))]))
    paths = options.work / "graphs" / options.graph, seeds
    with ExitStack() as stack:
        dgl = stack.enter_context(Peer("sample_dgl.py", options.dgl, *paths)) if options.dgl else None
        pyg = stack.enter_context(Peer("sample_pyg.py", options.pyg, *paths)) if options.pyg else None
        for fanouts in options.fanouts:
            warm_up(graph, fanouts, dgl, pyg)
            found = take_turns(
                contestants(graph, fanouts, options.scratch / "store", dgl, pyg), options.repeats
            )
            data = f"{described(graph, fanouts)}, {len(draws)} samples"
            yield from compared(found, data)
            yield from bandwidth(options.scratch / "store", found[STORE_2].rate, data)
    disk = disk_speed(options.scratch)
    yield figure("disk, sequential writes in the same run", options.graph, disk / 1e6, "MB/s")


STORE_2 = "musegnn into the store, 2 workers"
DRAWING_2 = "musegnn, drawing only, 2 workers"
DGL = "DGL ShaDowKHopSampler, num_workers="
DGL_AS_IT_COMES = "DGL ShaDowKHopSampler as it comes: ids of 64 bits, in the process"
PYG = "PyG NeighborLoader induced, num_workers="


def warm_up(graph: Graph, fanouts: list[int], *peers: Peer | None) -> None:
    """Kernels are compiled and lazily built formats are there before a clock runs."""
    Draws(graph, ShadowKHop(fanouts), "train")[0]
    for peer in peers:
        if peer is not None:
            peer.draw(fanouts, 2, 0)


def contestants(
    graph: Graph, fanouts: list[int], folder: Path, dgl: Peer | None, pyg: Peer | None
) -> dict[str, Callable[[], Drawn]]:
    """Who takes turns, ours and theirs alternating; each peer in the process and with one or two workers."""
    batches = len(Draws(graph, ShadowKHop(fanouts), "train"))
    ours = [
        (STORE_2, lambda: into_store(graph, fanouts, 2, folder)),
        ("musegnn into the store, 1 worker", lambda: into_store(graph, fanouts, 1, folder)),
        (DRAWING_2, lambda: drawing_only(graph, fanouts, 2)),
        ("musegnn, drawing only, 1 worker", lambda: drawing_only(graph, fanouts, 1)),
    ]
    theirs = []
    if dgl is not None:
        theirs.append((DGL_AS_IT_COMES, lambda: dgl.draw(fanouts, batches, 0, bits=64)))
    for name, peer, count in ((DGL, dgl, batches), (PYG, pyg, min(batches, max(4, batches // 8)))):
        if peer is not None:
            theirs += [
                (f"{name}{k}", lambda peer=peer, count=count, k=k: peer.draw(fanouts, count, k))
                for k in range(PEER_CORES + 1)
            ]
    turns = [turn for pair in zip(ours, theirs, strict=False) for turn in pair]
    return dict(turns + ours[len(theirs) :] + theirs[len(ours) :])


def compared(found: dict[str, Drawn], data: str) -> Iterator[Figure]:
    """Rates, sizes, and ours over the best of each peer's."""
    for name, drawn in found.items():
        yield figure(name, data, drawn.rate, "samples/s")
    ours = found[STORE_2]
    yield from sizes_of("musegnn", ours, data)
    for prefix in (DGL, PYG):
        turns = [drawn for name, drawn in found.items() if name.startswith(prefix)]
        if not turns:
            continue
        best, peer = max(turns), prefix.split()[0]
        yield from sizes_of(peer, best, data)
        rivals = {f"{peer} at its best": best}
        if prefix == DGL:
            rivals["DGL as it comes"] = found[DGL_AS_IT_COMES]
        for name, (rival, theirs) in itertools.product((STORE_2, DRAWING_2), rivals.items()):
            yield figure(f"{name} / {rival}", data, found[name].rate / theirs.rate, "ratio of rates")
        # DGL's operator is ours, so its samples must be as large.
        assert prefix != DGL or abs(best.nodes / ours.nodes - 1) < 0.02, (best.nodes, ours.nodes)


def sizes_of(who: str, drawn: Drawn, data: str) -> Iterator[Figure]:
    yield figure(f"{who}: mean n_s", data, drawn.nodes / 1e3, "k nodes")
    yield figure(f"{who}: mean entries", data, drawn.entries / 1e6, "M entries")


def bandwidth(folder: Path, rate: float, data: str) -> Iterator[Figure]:
    """Bytes of the store that lies there, and how fast they were written at that rate."""
    store = SampleStore.open(folder)
    per_sample = store.stored.num_bytes / len(store["train"])
    yield figure("store: bytes of a sample", data, per_sample / 1e6, "MB")
    yield figure("store: bytes written, 2 workers", data, per_sample * rate / 1e6, "MB/s")


# stages

STAGES = {"reach": ops, "induce_subgraph": ops, "spectral_bounds": ops, "append": layout}


@contextmanager
def stopwatches(functions: dict[str, Any]) -> Iterator[dict[str, float]]:
    """Seconds spent in each function, which is looked up in its module under its name."""
    seconds, originals = dict.fromkeys(functions, 0.0), {}

    def watched(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            started = time.perf_counter()
            result = function(*arguments)
            seconds[name] += time.perf_counter() - started
            return result

        return call

    for name, module in functions.items():
        originals[name] = getattr(module, name)
        setattr(module, name, watched(name, originals[name]))
    try:
        yield seconds
    finally:
        for name, module in functions.items():
            setattr(module, name, originals[name])


def timed_stages(draws: Draws, folder: Path) -> dict[str, float]:
    """Seconds of each stage when all samples are drawn and written by one thread."""
    path = folder / "shard"
    path.unlink(missing_ok=True)
    with stopwatches(STAGES) as seconds, ArrayWriter(path, np.uint8) as shard:
        started = time.perf_counter()
        for index in range(len(draws)):
            layout.append(shard, draws[index])
        drawn = time.perf_counter()
        shard.finish()
        ended = time.perf_counter()
    other = drawn - started - sum(seconds.values())
    return seconds | {"fsync": ended - drawn, "other": other}


def stages(options: argparse.Namespace) -> Iterator[Figure]:
    """Shares of the stages; entries scanned per second, and the ceiling."""
    from storage_forms import total

    graph = chosen_graph(options)
    indices = graph.indices.view(np.ndarray)
    total(indices)
    for fanouts in options.fanouts:
        draws = Draws(graph, ShadowKHop(fanouts), "train")
        num_scanned = scanned(graph, iter(draws))
        turns: list[dict[str, float]] = []
        ceilings = []
        for _ in range(options.repeats):
            turns.append(timed_stages(draws, options.scratch))
            started = time.perf_counter()
            total(indices)
            ceilings.append(len(indices) / (time.perf_counter() - started))
        seconds = {stage: statistics.median(turn[stage] for turn in turns) for stage in turns[0]}
        data = f"{described(graph, fanouts)}, {len(draws)} samples, one worker"
        yield from shares(seconds, data)
        yield from against_ceiling(seconds, num_scanned, statistics.median(ceilings), data)


def shares(seconds: dict[str, float], data: str) -> Iterator[Figure]:
    names = {"append": "write and hash"}
    for stage, spent in seconds.items():
        share = 100 * spent / sum(seconds.values())
        yield figure(f"share of {names.get(stage, stage)}", data, share, "% of the time")


def against_ceiling(
    seconds: dict[str, float], num_scanned: int, ceiling: float, data: str
) -> Iterator[Figure]:
    drawing = sum(spent for stage, spent in seconds.items() if stage not in ("append", "fsync"))
    yield figure("ceiling: indices of the graph, in order", data, ceiling / 1e6, "M entries/s")
    for name, spent in (("drawing", drawing), ("induce_subgraph", seconds["induce_subgraph"])):
        rate = num_scanned / spent
        yield figure(f"scanned by {name}", data, rate / 1e6, "M entries/s")
        yield figure(f"scanned by {name} / ceiling", data, rate / ceiling, "ratio of rates")


# storage


def storage(options: argparse.Namespace) -> Iterator[Figure]:
    """What the stored form costs in bytes and gains in time, on real samples."""
    graph = with_train(load(options.work, options.graph), options.batches or 8)
    for fanouts in options.fanouts:
        into_store(graph, fanouts, 1, options.scratch / "store")
        samples = list(SampleStore.open(options.scratch / "store")["train"])
        data = f"{described(graph, fanouts)}, {len(samples)} samples, one core"
        yield from encoded(samples, options.repeats, data)


def encoded(samples: list[Sample], repeats: int, data: str) -> Iterator[Figure]:
    """Bytes of a sample and entries/s in each form; decoding writes into memory that is there already."""
    from storage_forms import halve, pack, restore, total, unpack

    halved = [halve(s.indptr, s.indices) for s in samples]
    packed = [pack(s.indptr, s.indices) for s in samples]
    buffers = [(np.empty_like(s.indptr), np.empty_like(s.indices)) for s in samples]
    ids = sum(s.node_ids.nbytes for s in samples)
    forms = {
        "as stored": (lambda i: total(samples[i].indices), sum(map(layout.size_of, samples))),
        "halved": (
            lambda i: restore(*halved[i], *buffers[i]),
            ids + sum(part.nbytes for parts in halved for part in parts),
        ),
        "packed": (lambda i: unpack(packed[i], *buffers[i]), ids + sum(part.nbytes for part in packed)),
    }
    seconds = times_of([read for read, _ in forms.values()], samples, buffers, repeats)
    num_entries = sum(s.num_entries for s in samples)
    stored = forms["as stored"][1]
    for (form, (_, num_bytes)), spent in zip(forms.items(), seconds, strict=True):
        yield figure(f"{form}: bytes of a sample", data, num_bytes / len(samples) / 1e6, "MB")
        yield figure(f"{form}: reading", data, num_entries / spent / 1e6, "M entries/s")
        if form != "as stored":
            name = f"{form}: read sooner than as stored only from a disk below"
            yield figure(name, data, (stored - num_bytes) / spent / 1e6, "MB/s")


def times_of(
    reads: list[Callable[[int], Any]], samples: list[Sample], buffers: list[Any], repeats: int
) -> list[float]:
    """Median seconds of reading all samples in each form, after a turn that checks what is decoded."""
    turns = []
    for turn in range(1 + repeats):
        seconds = []
        for read in reads:
            started = time.perf_counter()
            for i in range(len(samples)):
                read(i)
            seconds.append(time.perf_counter() - started)
            if turn == 0 and read is not reads[0]:
                for sample, (indptr, indices) in zip(samples, buffers, strict=True):
                    assert np.array_equal(sample.indptr, indptr)
                    assert np.array_equal(sample.indices, indices)
                    indices[:] = -1
        turns.append(seconds)
    return [statistics.median(times) for times in zip(*turns[1:], strict=True)]


# workers and sizes


def workers(options: argparse.Namespace) -> Iterator[Figure]:
    """Samples/s with 1, 2, 4, ... workers, up to the cores there are."""
    cores = len(os.sched_getaffinity(0))
    counts = [2**k for k in range(cores.bit_length())]
    graph = load(options.work, "papers100m-shaped", (options.nodes or [1.0])[0])
    graph = with_train(graph, options.batches or 64, np.arange(graph.num_nodes))
    fanouts = options.fanouts[-1]
    warm_up(graph, fanouts)
    ways: dict[str, Callable[[int], Drawn]] = {
        "into the store": lambda count: into_store(graph, fanouts, count, options.scratch / "store"),
        "drawing only": lambda count: drawing_only(graph, fanouts, count),
    }
    found = take_turns(
        {(way, count): lambda way=way, count=count: ways[way](count) for count in counts for way in ways},
        options.repeats,
    )
    data = f"{described(graph, fanouts)}, a machine of {cores} cores"
    for (way, count), drawn in found.items():
        name = f"{way}, {count} worker{'s' * (count > 1)}"
        yield figure(name, data, drawn.rate, "samples/s") | {"series": way, "at": count}
        if count > 1:
            speedup = drawn.rate / found[way, 1].rate
            yield figure(f"{name} / 1 worker", data, speedup, "ratio of rates")


def sizes(options: argparse.Namespace) -> Iterator[Figure]:
    """Samples/s, entries scanned/s and memory on ever larger graphs, with a worker for each core."""
    cores, batches = len(os.sched_getaffinity(0)), options.batches or 32
    for nodes in options.nodes or [0.1, 0.3, 1.0, 3.0]:
        graph = load(options.work, "papers100m-shaped", nodes)
        assert graph.stored is not None
        folder = graph.stored.folder
        for fanouts in options.fanouts:
            turns = [
                in_process(sample_of_size, str(folder), str(options.scratch), fanouts, batches, cores)
                for _ in range(options.repeats)
            ]
            rate, entries, peak = (statistics.median(values) for values in zip(*turns, strict=True))
            data = f"{described(graph, fanouts)}, {cores} workers"
            place = {"series": ",".join(map(str, fanouts)), "at": graph.num_nodes}
            yield figure("into the store", data, rate, "samples/s")
            yield figure("into the store: entries scanned", data, entries / 1e6, "M entries/s") | place
            yield figure("into the store: peak anonymous memory", data, peak / 2**20, "MiB")


def sample_of_size(
    folder: str, scratch: str, fanouts: list[int], batches: int, cores: int
) -> tuple[float, float, int]:
    """Samples/s, entries scanned/s and peak memory of drawing into a store."""
    graph = Graph.open(folder)
    graph = with_train(graph, batches, np.arange(graph.num_nodes))
    store = Path(scratch) / "store"
    # So that the time is that of drawing, not of loading kernels.
    warm_up(graph, fanouts)
    with Peak() as peak:
        drawn = into_store(graph, fanouts, cores, store)
    per_sample = scanned(graph, iter(SampleStore.open(store)["train"])) / batches
    return drawn.rate, per_sample * drawn.rate, peak.bytes


# open and start


def open_(options: argparse.Namespace) -> Iterator[Figure]:
    """Milliseconds and anonymous memory of opening, in a new process."""
    folder = options.scratch / "store"
    graph = load(options.work, "arxiv-shaped")
    store = musegnn.sample(graph, ShadowKHop([15, 10, 5]), folder, workers=2)
    yield from opened(
        folder, f"{store.stored.num_bytes / 1e9:.2f} GB, {len(store.stored.header.arrays)} files"
    )
    shutil.rmtree(folder)
    make_up(folder, store.stored.header.attributes)
    yield from opened(folder, f"made up: {SHARDS * SHARD_BYTES / 1e9:.0f} GB, {SHARDS + 2:,} files")


def opened(folder: Path, data: str) -> Iterator[Figure]:
    milliseconds, grown = in_process(open_store, str(folder))
    yield figure("open a sample store: time", data, milliseconds, "ms")
    yield figure("open a sample store: anonymous memory", data, grown / 2**20, "MiB")


def open_store(folder: str) -> tuple[float, int]:
    """The median time of five openings; memory that the first one takes."""
    before = anonymous_memory()
    stores, seconds = [], []
    for turn in range(5):
        started = time.perf_counter()
        stores.append(SampleStore.open(folder))
        seconds.append(time.perf_counter() - started)
        if turn == 0:
            grown = anonymous_memory() - before
    return 1000 * statistics.median(seconds), grown


def make_up(folder: Path, like: dict[str, Any]) -> None:
    """A store whose shards are holes: opening looks at the size of a file and not at its bytes."""
    split = {"num_nodes": SHARDS * BATCH_SIZE, "num_samples": SHARDS, "shard_size": 1}
    attributes = like | {"num_nodes": SHARDS * BATCH_SIZE, "splits": {"train": split}}
    spec = ArraySpec(dtype="<u1", shape=(SHARD_BYTES,), digest="0" * 64)
    with FolderWriter(folder, KIND) as writer:
        for number in range(SHARDS):
            name = shard_name("train", number)
            writer.path(name).touch()
            os.truncate(writer.path(name), SHARD_BYTES)
            writer.adopt(name, spec)
        writer.write("train_sizes", np.zeros((SHARDS, 4), dtype=np.int64))
        writer.write("train_bounds", np.zeros((SHARDS, 4)))
        writer.publish(attributes, {"name": "made up"})


FIRST_CALL = """
import sys, musegnn
graph = musegnn.datasets.load("debian")
musegnn.sample(graph, musegnn.ShadowKHop([15, 10]), sys.argv[1], overwrite=True, splits=["train"])
"""


def start(options: argparse.Namespace) -> Iterator[Figure]:
    """Seconds of a new Python that draws the train samples of the embedded graph."""
    target = str(options.scratch / "store")

    def seconds(code: str, cache: Path) -> float:
        environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
        environment["XDG_CACHE_HOME"] = str(cache)
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code, target], env=environment, check=True)
        return time.perf_counter() - started

    turns = []
    for turn in range(options.repeats):
        cache = options.scratch / f"cache-{turn}"
        turns.append([seconds(code, cache) for code in (FIRST_CALL, FIRST_CALL, "import musegnn")])
    names = (
        "sample debian: nothing compiled yet",
        "sample debian: kernels compiled before",
        "import musegnn",
    )
    for name, times in zip(names, zip(*turns, strict=True), strict=True):
        yield figure(name, "a new process", statistics.median(times), "s")


# The command line.


def figure(name: str, data: str, value: float, unit: str) -> Figure:
    digits = 3 if abs(value) < 100 else 1
    return {"name": name, "data": data, "value": round(float(value), digits), "unit": unit}


def plot(options: argparse.Namespace) -> Iterator[Figure]:
    """Write plots/sampling.svg."""
    from sampling_plot import draw

    print(f"Wrote {draw()}")
    return iter(())


COMMANDS = {
    "peers": peers,
    "stages": stages,
    "storage": storage,
    "workers": workers,
    "sizes": sizes,
    "open": open_,
    "start": start,
    "plot": plot,
}


def parse() -> tuple[argparse.Namespace, str]:
    """The options, and the command that repeats them: without paths of this machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    ours = [
        parser.add_argument("--graph", choices=("arxiv-shaped", "products-shaped"), default="arxiv-shaped"),
        parser.add_argument(
            "--batches", type=int, help="samples to draw; chosen by the command if not given"
        ),
        parser.add_argument("--fanouts", nargs="+", default=["15,10", "15,10,5"], metavar="15,10"),
        parser.add_argument("--nodes", nargs="+", type=float, help="millions of nodes (workers, sizes)"),
        parser.add_argument("--repeats", type=int, default=3),
    ]
    parser.add_argument("--dgl", metavar="PYTHON", help="a Python that has DGL")
    parser.add_argument("--pyg", metavar="PYTHON", help="a Python that has PyG and torch-sparse")
    parser.add_argument("--work", type=Path, help="keeps graphs here; a temporary folder if not given")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    words = ["python benchmarks/sampling.py", options.command]
    for action in ours:
        value = getattr(options, action.dest)
        if value != action.default:
            values = value if isinstance(value, list) else [value]
            words += [
                action.option_strings[0],
                *(f"{v:g}" if isinstance(v, float) else str(v) for v in values),
            ]
    words += [f"--{peer} ${peer.upper()}_PYTHON" for peer in ("dgl", "pyg") if getattr(options, peer)]
    options.fanouts = [[int(number) for number in text.split(",")] for text in options.fanouts]
    return options, " ".join(words)


def main() -> None:
    if sys.argv[1:2] == ["--call"]:
        print(json.dumps(globals()[sys.argv[2]](*json.loads(sys.argv[3]))))
        return
    options, command = parse()
    with ExitStack() as stack:
        if options.work is None:
            options.work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options.work.mkdir(parents=True, exist_ok=True)
        options.scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.work)))
        figures = []
        for found in COMMANDS[options.command](options):
            print(f"{found['data']}  {found['name']:<55} {found['value']:>12,} {found['unit']}", flush=True)
            figures.append(found)
    if options.record and figures:
        record(figures, command)


if __name__ == "__main__":
    main()
