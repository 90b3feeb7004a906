"""An epoch on a graph of the shape of ogbn-papers100M, on one GPU, beside SAGE with neighbor sampling.

    python benchmarks/papers100m_shaped.py [STAGE ...] --work DIR [--samples DIR] [--scale 0.25] [--out FILE]
    python benchmarks/papers100m_shaped.py --from FILE [--record]

    ceilings   what the device can do: a copy, the products of f, a copy from pinned memory
    graph      draws it: 111 M nodes, 1.6 B undirected edges, 128 float16 features, 172 classes at scale 1
    samples    ShadowKHop 15,10,5 around 1,207,179 seeds in batches of 1000
    train      epochs with d 256 and 512, gamma 0 and 3 (M in bfloat16); f and g of 3 layers, K = 8, lambda 4,
               bfloat16, no dropout, the features on the GPU; beside them what bytes and operations need, and
               before them one epoch that reads and checks the files of the samples for the first time
    sage       PyG's SAGEConv, 3 layers of 256, on samples that `NeighborSampling` draws while it trains
    disk       training with the features in memory, and in the mapped file, in place of the GPU
    wide       training with 768 and 1024 columns, gathered in memory and copied for each batch

A node of the preset papers100m-shaped has too many neighbors outside of its community: samples of 800 k nodes
at scale 1. `SHAPE` changes it so that they have about as many nodes and entries as those of the original.

A batch is timed by the wall clock over a whole epoch (`--batches` if the samples are fewer), the product's
loader and step, reading and copying included; an epoch is 1,208 of them. How long the GPU waited is read from
its own timeline over 40 batches: the time in which no kernel ran. The bound is what a step's bytes take at
the speed of a copy, plus its products at their measured speed. No stage or configuration begins after
`--budget` seconds. Stages find what earlier ones left in `--work` and `--samples`, also in another process.
"""

import argparse
import gc
import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import papers100m_parts as parts
import torch
from gpu_propagate import Table, add_options, command_of, copy_rate, finish
from papers100m_parts import Ceilings, Measured, Run, Setting

import musegnn
from musegnn import Graph, SampleStore, ShadowKHop
from musegnn.datasets.synthetic import PRESETS, BlockModel
from musegnn.features.homes import Features
from musegnn.graph.threads import default_workers
from musegnn.memory import Peak, keep_freed_memory
from musegnn.sampling.plan import Plan

SHAPE = {"community_share": 1.0, "community_size": 80, "homophily": 0.64, "degree_exponent": 2.7}
FANOUTS, BATCH_SIZE, EPOCH = [15, 10, 5], 1000, 1208
SETTINGS = Setting(256, 0.0), Setting(256, 3.0), Setting(512, 0.0)
NODES = 350_000
"""Of a sample, for the ceilings."""
WARM_UP, SOME = 30, 150
WIDE_ROWS, WIDE_THREADS = 4_000_000, 8
OTHERS = {768: ("MAG240M", 1_112_392), 1024: ("IGB-full", 136_000_000)}
"""Training seeds, by the columns of the features."""


class Wide(Features):
    """A table with fewer rows than the graph has nodes."""

    def read(self, split: str | None, index: int, node_ids: np.ndarray) -> torch.Tensor | None:
        return super().read(split, index, node_ids % WIDE_ROWS)


class Bench:
    """What the stages share."""

    def __init__(self, options: argparse.Namespace, table: Table) -> None:
        self.options, self.table = options, table
        self.device = torch.device(options.device)
        self.is_gpu = self.device.type == "cuda"
        self.ends = time.monotonic() + options.budget
        self.work = options.work
        self._features: tuple[str, Features] | None = None

    def has_time(self, what: str) -> bool:
        left = self.ends - time.monotonic()
        if left <= 0:
            print(f"{what}: left out, the budget is spent", flush=True)
        return left > 0

    @property
    def model(self) -> BlockModel:
        """What is drawn."""
        full, scale = PRESETS["papers100m-shaped"], self.options.scale
        num_nodes, num_edges = round(scale * full.num_nodes), round(scale * full.num_edges)
        seeds = min(full.train_share * num_nodes, BATCH_SIZE * self.options.samples_most)
        return replace(full, num_nodes=num_nodes, num_edges=num_edges, train_share=seeds / num_nodes, **SHAPE)

    def draw_graph(self) -> Graph:
        """Opens it if it is there."""
        out = self.work / "graph"
        return musegnn.datasets.load("synthetic", out=out, workers=default_workers(), **asdict(self.model))

    @cached_property
    def graph(self) -> Graph:
        return self.draw_graph()

    @cached_property
    def store(self) -> SampleStore:
        return SampleStore.open(self.options.samples, graph=self.graph)

    def features(self, home: str) -> Features:
        """One at a time: they may be large."""
        if self._features is None or self._features[0] != home:
            self.drop_features()
            assert self.graph.features is not None
            started = time.perf_counter()
            made = Features(self.graph.features, home, self.device)  # type: ignore[arg-type]
            self._features = home, made
            print(f"features {home}: {time.perf_counter() - started:.1f} s", flush=True)
        return self._features[1]

    def drop_features(self) -> None:
        self._features = None
        self.free()

    def free(self) -> None:
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()

    @property
    def shape(self) -> str:
        changed = ", ".join(f"{name} {value:g}" for name, value in SHAPE.items())
        return f"papers100m-shaped ({changed}) at scale {self.options.scale:g}"

    @cached_property
    def data(self) -> str:
        train = self.store["train"]
        nodes, entries = train.num_nodes.mean() / 1e3, train.num_entries.mean() / 1e6
        return f"{self.shape}, {len(train):,} samples, mean n_s {nodes:.0f} k, {entries:.2f} M entries"

    @cached_property
    def ceilings(self) -> Ceilings:
        """Measured once."""
        nodes = NODES if self.is_gpu else 1000
        widths = sorted({setting.hidden for setting in SETTINGS})
        in_dim = PRESETS["papers100m-shaped"].num_features
        rates = {hidden: parts.matmul_rate(nodes, in_dim, hidden, self.device) for hidden in widths}
        from_host = parts.host_rate(self.device) if self.is_gpu else float("inf")
        found = Ceilings(copy_rate(self.device), from_host, rates)
        self.free()
        return found

    def count(self, least: int) -> int:
        """Batches that are timed: an epoch, or as many as are asked for if the samples are fewer."""
        return max(len(self.store["train"]), least) if self.is_gpu else 2

    def epoch(self, name: str, data: str, run: Run, count: int) -> Measured:
        """The figures that all have."""
        warm_up = WARM_UP if self.is_gpu else 1
        found = parts.measured(run, count, warm_up, self.options.limit, self.device)
        how = "" if found.batches >= EPOCH else f", extrapolated from {found.batches:,}"
        self.table.add(f"{name}: epoch", data, EPOCH * found.batch_seconds, f"s for {EPOCH:,} batches{how}")
        self.table.add(f"{name}: batches", data, 1 / found.batch_seconds, "batches/s")
        self.table.add(f"{name}: peak anonymous memory", data, found.host_bytes / 1e9, "GB")
        self.table.add(f"{name}: read from disk", data, found.disk_bytes / 1e9, "GB")
        self.table.add(f"{name}: cores busy", data, found.cpu_seconds / found.seconds, "cores")
        if self.is_gpu:
            self.table.add(f"{name}: peak GPU memory", data, found.gpu_bytes / 1e9, "GB")
            self.look(name, data, run)
        return found

    def look(self, name: str, data: str, run: Run) -> None:
        """Where the time of a batch goes."""
        seen = parts.profiled(run, 2 * self.options.threads + 10)
        if seen is None:
            print("The profiler has seen no kernels: nothing is known of the GPU's waiting.", flush=True)
            return
        self.table.add(f"{name}: GPU waited", data, 100 * seen.waited, "% of the time")
        busy = (1 - seen.waited) * seen.batch_ms
        self.table.add(f"{name}: GPU busy", data, busy, "ms a batch, if nobody had to be waited for")
        for group, ms in sorted(seen.groups.items(), key=lambda item: -item[1]):
            self.table.add(f"{name}: {group}", data, ms, "ms a batch")
        print(f"  a batch took {seen.batch_ms:.2f} ms while it was looked at; the longest kernels, in ms:")
        for kernel, ms in seen.longest:
            print(f"    {ms:8.3f}  {kernel[:90]}", flush=True)


@contextmanager
def told(what: str) -> Iterator[None]:
    """What fails is said, and the next one begins."""
    try:
        yield
    except Exception:
        traceback.print_exc()
        print(f"{what}: failed", flush=True)


# Stages.


def ceilings(bench: Bench) -> None:
    found, data = bench.ceilings, "one device"
    bench.table.add("copy on the device: read and written", data, found.copy / 1e12, "TB/s")
    for hidden, rate in found.matmul.items():
        shape = f"{data}, {NODES // 1000} k rows, 128 and {hidden} columns"
        bench.table.add("bfloat16 products of f", shape, rate / 1e12, "TFLOP/s")
    if bench.is_gpu:
        bench.table.add("copy from pinned memory", data, found.from_host / 1e9, "GB/s")
    else:
        print("Copies from the host, the GPU's waiting and its memory need a GPU.", flush=True)


def graph(bench: Bench) -> None:
    if (bench.work / "graph").exists():
        print(f"{bench.graph.name} is there: {bench.graph.num_nodes:,} nodes", flush=True)
        return
    with Peak() as peak:
        found = bench.graph
    assert found.stored is not None
    data = f"{bench.shape}: {found.num_nodes:,} nodes, {found.num_edges // 2:,} undirected edges"
    cores = f"s, {default_workers()} threads"
    bench.table.add("graph: drawn and imported, with features", data, peak.seconds, cores)
    bench.table.add("graph: bytes of the store", data, found.stored.num_bytes / 1e9, "GB")
    bench.table.add("graph: peak anonymous memory", data, peak.bytes / 1e9, "GB")
    bench.table.add("graph: largest degree", data, int(np.diff(found.indptr).max()), "neighbors")


def samples(bench: Bench) -> None:
    out = bench.options.samples
    if (out / "header.json").exists():
        print(f"{bench.data}: they are there", flush=True)
        return

    def announce(plan: Plan, num_there: int) -> None:
        free = shutil.disk_usage(out.parent).free
        first = plan.first["train"]
        print(f"{plan.num_samples:,} samples like {first}: {plan.num_bytes / 1e9:.1f} GB")
        print(f"{free / 1e9:.1f} GB are free; --samples-most makes them fewer", flush=True)

    out.parent.mkdir(parents=True, exist_ok=True)
    sampler, workers = ShadowKHop(FANOUTS), default_workers()
    given = {"batch_size": BATCH_SIZE, "splits": ("train",), "workers": workers, "announce": announce}
    with Peak() as peak:
        store = musegnn.sample(bench.graph, sampler, out, **given)
    bench.store = store
    bench.table.add("samples: drawn and stored", bench.data, peak.seconds, f"s, {workers} threads")
    bench.table.add("samples: rate", bench.data, len(store["train"]) / peak.seconds, "samples/s")
    bench.table.add("samples: bytes of the store", bench.data, store.stored.num_bytes / 1e9, "GB")
    bench.table.add("samples: peak anonymous memory", bench.data, peak.bytes / 1e9, "GB")


def train(bench: Bench) -> None:
    if bench.has_time("the first epoch"):
        first_epoch(bench)
    for setting in SETTINGS:
        if bench.has_time(f"train, {setting}"):
            with told(f"train, {setting}"):
                train_one(bench, setting)
            bench.free()


def first_epoch(bench: Bench) -> None:
    """The one that reads and checks every file of the samples. Those below find them checked."""
    features, setting = bench.features("gpu" if bench.is_gpu else "mapped"), SETTINGS[0]
    data = f"{bench.data}, {setting}, K {parts.STEPS}"
    run = parts.ours(bench.graph, bench.store["train"], features, setting, bench.options.threads)
    bench.epoch("musegnn, first epoch", data, run, bench.count(bench.options.batches))
    bench.free()


def train_one(bench: Bench, setting: Setting) -> None:
    features, chosen = bench.features("gpu" if bench.is_gpu else "mapped"), bench.store["train"]
    data = f"{bench.data}, {setting}, K {parts.STEPS}"
    run = parts.ours(bench.graph, chosen, features, setting, bench.options.threads)
    found = bench.epoch("musegnn", data, run, bench.count(bench.options.batches))
    sizes = parts.width_of(features), bench.graph.num_classes
    indices = np.linspace(0, len(chosen) - 1, 8).astype(int).tolist()
    rows = [parts.least_seconds(chosen[i], *sizes, setting, bench.ceilings) for i in indices]
    least = {part: float(np.mean([row[part] for row in rows])) for part in rows[0]}
    for part, seconds in least.items():
        bench.table.add(f"musegnn: bound, {part}", data, 1e3 * seconds, "ms a batch")
    # Copies run beside.
    bound = max(least["copies"], sum(least.values()) - least["copies"])
    bench.table.add("musegnn: bound", data, EPOCH * bound, f"s for {EPOCH:,} batches")
    bench.table.add("musegnn: epoch / bound", data, found.batch_seconds / bound, "ratio of times")


def sage(bench: Bench) -> None:
    features = bench.features("gpu" if bench.is_gpu else "mapped")
    hidden, threads = SETTINGS[0].hidden, default_workers()
    run, draws = parts.sage(bench.graph, features, FANOUTS, hidden, threads)
    one = draws[0]
    size = f"n_s {one.num_nodes / 1e3:.0f} k, {one.num_entries / 1e6:.2f} M entries"
    data = f"{bench.shape}, NeighborSampling while training, {size}, hidden {hidden}, {threads} threads"
    bench.epoch("PyG SAGE", data, run, bench.options.sage_batches if bench.is_gpu else 2)


def disk(bench: Bench) -> None:
    setting, seconds = SETTINGS[0], {}
    for home in ("gpu", "mapped", "ram") if bench.is_gpu else ("mapped", "ram"):
        if not bench.has_time(f"features {home}"):
            return
        where = f" ({file_system(bench.work)})" if home == "mapped" else ""
        data = f"{bench.data}, {setting}, K {parts.STEPS}, features {home}{where}"
        with told(f"features {home}"):
            given = bench.graph, bench.store["train"], bench.features(home), setting
            run = parts.ours(*given, bench.options.threads)
            found = bench.epoch("musegnn", data, run, min(SOME, bench.count(SOME)))
            seconds[home] = found.batch_seconds
            del run, given
            if home != "gpu" and "gpu" in seconds:
                ratio = seconds[home] / seconds["gpu"]
                bench.table.add("musegnn: epoch / with features on the GPU", data, ratio, "ratio of times")


def wide(bench: Bench) -> None:
    bench.drop_features()
    for columns, (other, seeds) in OTHERS.items():
        if bench.has_time(f"{columns} columns"):
            with told(f"{columns} columns"):
                wide_one(bench, columns, other, -(-seeds // BATCH_SIZE))
            bench.free()


def wide_one(bench: Bench, columns: int, other: str, batches: int) -> None:
    setting, threads = SETTINGS[0], min(WIDE_THREADS, bench.options.threads)
    table = np.empty((WIDE_ROWS, columns), dtype=np.float16)
    block = np.random.default_rng(0).standard_normal((1 << 14, columns), dtype=np.float32)
    for first in range(0, WIDE_ROWS if bench.is_gpu else 1 << 16, len(block)):
        table[first : first + len(block)] = block[: len(table) - first]
    features = Wide(table, "mapped", bench.device)
    run = parts.ours(bench.graph, bench.store["train"], features, setting, threads)
    data = f"{bench.data}, {setting}, K {parts.STEPS}, {columns} float16 columns in memory"
    found = bench.epoch("musegnn", data, run, min(SOME, bench.count(SOME)))
    bench.table.add("musegnn: a batch", data, 1e3 * found.batch_seconds, "ms")
    of = f"s for {batches:,} batches, extrapolated"
    bench.table.add(f"musegnn: an epoch of {other}", data, batches * found.batch_seconds, of)


def file_system(folder: Path) -> str:
    """Of a folder: what is mounted there."""
    mounts = [line.split()[1:3] for line in Path("/proc/mounts").read_text().splitlines()]
    inside = [(point, kind) for point, kind in mounts if folder.resolve().is_relative_to(point)]
    return max(inside, key=lambda mount: len(mount[0]))[1]


STAGES: dict[str, Callable[[Bench], None]] = {
    "ceilings": ceilings,
    "graph": graph,
    "samples": samples,
    "train": train,
    "sage": sage,
    "disk": disk,
    "wide": wide,
}


def parse() -> tuple[argparse.Namespace, str]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="all of them if none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="1: the full size")
    parser.add_argument("--work", type=Path, default=Path(".benchmarks"), help="for the graph")
    parser.add_argument("--samples", type=Path, help="for the samples, perhaps on another disk")
    parser.add_argument("--samples-most", type=int, default=EPOCH, help="told when the graph is drawn")
    parser.add_argument("--batches", type=int, default=300, help="at least so many are timed")
    parser.add_argument("--sage-batches", type=int, default=300, help="of SAGE")
    parser.add_argument("--threads", type=int, default=default_workers(), help="that read ahead")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds of each timing, about")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds of all")
    add_options(parser)
    options = parser.parse_args()
    if unknown := [name for name in options.stages if name not in STAGES]:
        parser.error(f"there is no stage {unknown[0]!r}; there are {', '.join(STAGES)}")
    options.samples = (options.samples or options.work / "samples").absolute()
    kept = "scale", "samples_most", "batches", "sage_batches", "threads", "device"
    return options, command_of(parser, options, *kept)


def main() -> None:
    options, command = parse()
    if options.source:
        return finish(options, json.loads(options.source.read_text()))
    keep_freed_memory()
    table = Table(command, options.device, options.out)
    bench = Bench(options, table)
    options.work.mkdir(parents=True, exist_ok=True)
    for name in STAGES:
        if (not options.stages or name in options.stages) and bench.has_time(name):
            started = time.perf_counter()
            with told(name):
                STAGES[name](bench)
            print(f"== {name}: {time.perf_counter() - started:.1f} s", flush=True)
    finish(options, table.figures)


if __name__ == "__main__":
    main()
