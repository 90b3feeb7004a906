"""Features past memory: each home against NumPy's memmap and against a sequential read, cold, with a limit.

    python benchmarks/features.py COMMAND [--record]

    modes     MB/s and time of an epoch of each home, features of 4 GB, rows of 2 KB and of 256 bytes
    growth    the same homes with features of 1, 4 and 16 GB and one limit: memory and time
    means     M in a mapped file larger than the limit: the same bits as in memory, and its cost

Each turn is a process of its own whose memory, page cache included, has a limit: a group of the kernel
(cgroup, version 1 or 2) below the one this process is in, which takes the right to make one. Where that is
missing, the page cache is only dropped, and the data say "no limit". Before each turn the page cache of the
files is dropped (posix_fadvise DONTNEED; no process maps them), so that a turn begins cold. How much it read
from the disk is told by the kernel (/proc/self/io).

The graph is a block model with a power law of degrees (exponent 2.7, seven edges a node), the samples are
`ShadowKHop` 10,5 around 1000 seeds, five samples for each GB. A turn reads the features of all
training samples once, in random order, with one thread, as the loader does, and nothing else: bytes are those
of the samples' rows. `memmap` is `table[node_ids]`, as the published system has it; it is slow, so that only
the first samples are read (`--few`) and the epoch is extrapolated. The kernel reads around a page that is
missing as much as the disk's read_ahead_kb says, which stands in the data; `memmap_random` asks it not to
(madvise), the most that memmap can do. `sequential` reads the
files of the pack without hot rows from end to end into one buffer: the very bytes of the samples. `cached`
and `packed` hold 10 % of the bytes in memory (in growth 0.1 GB), `packed 0` none. What they do once, before
the first sample, is a figure of its own.

The medians of `--repeats` turns. Takes 45 GB of disk (growth), 20 GB (modes).
"""

import argparse
import contextlib
import hashlib
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Peak
from record import record

import musegnn
from musegnn import Graph, SampleStore, ShadowKHop
from musegnn.datasets.synthetic import BlockModel
from musegnn.features.homes import open_features
from musegnn.graph import FeatureSource
from musegnn.means import MeanEmbeddings
from musegnn.memory import keep_freed_memory

GIGA = 10**9
SHAPE = {"community_share": 1.0, "community_size": 80, "homophily": 0.64, "degree_exponent": 2.7}
EDGES, FANOUTS, SAMPLES = 7, [10, 5], 5
READS = {"train": 20}
BLOCK_ROWS = 1 << 14
GROWTH_CACHE = 0.1 * GIGA
MEANS_DIM = 512

Figure = dict[str, Any]
Spec = dict[str, Any]


# Data.


def feature_block(columns: int, number: int, rows: int) -> np.ndarray:
    """Random float16 numbers below 2, as fast as a disk takes them."""
    bits = np.random.default_rng(number).integers(0, 1 << 64, rows * columns // 4, dtype=np.uint64)
    return (bits & np.uint64(0x3FFF3FFF3FFF3FFF)).view(np.float16).reshape(rows, columns)


def make_graph(folder: Path, gigabytes: float, columns: int) -> None:
    """A graph whose features have so many bytes."""
    num_nodes = round(gigabytes * GIGA / (2 * columns))
    blocks = [
        partial(feature_block, columns, number, min(BLOCK_ROWS, num_nodes - first))
        for number, first in enumerate(range(0, num_nodes, BLOCK_ROWS))
    ]
    model = BlockModel(
        num_nodes=num_nodes,
        num_edges=EDGES * num_nodes,
        train_share=1000 * round(SAMPLES * gigabytes) / num_nodes,
        valid_share=0.0,
        test_share=0.0,
        **SHAPE,
    )
    rows = FeatureSource(dim=columns, dtype=np.float16, blocks=lambda topology: iter(blocks))
    Graph.from_source(replace(model.source(features=False), features=rows), folder)


def prepare(spec: Spec) -> Spec:
    """Graph, samples and packs, in a process of its own: nothing stays mapped."""
    work = Path(spec["work"])
    make_graph(work / "graph", spec["gigabytes"], spec["columns"])
    graph = Graph.open(work / "graph")
    store = musegnn.sample(graph, ShadowKHop(FANOUTS), work / "samples", splits=("train",), workers=2)
    answer: Spec = {"samples": len(store["train"]), "nodes": float(store["train"].num_nodes.mean())}
    for name, cache in spec["packs"].items():
        started = time.perf_counter()
        pack = musegnn.pack(graph, store, work / name, cache=cache)
        answer[f"{name} bytes"] = pack.stored.num_bytes
        answer[f"{name} seconds"] = time.perf_counter() - started
    os.sync()
    return answer


# A turn: what runs under the limit.


def disk_bytes() -> int:
    """That this process has had read from the disk."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


def sequential(files: list[Path]) -> None:
    """Read files from end to end into one buffer."""
    buffer = np.empty(1 << 24, dtype=np.uint8)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def epoch(spec: Spec) -> Spec:
    """Read all samples' rows once."""
    work, mode = Path(spec["work"]), spec["mode"]
    keep_freed_memory()
    graph, store = Graph.open(work / "graph"), SampleStore.open(work / "samples")
    table, samples = graph.features, store["train"]
    assert table is not None
    order = np.random.default_rng(0).permutation(len(samples)).tolist()
    # The samples' own files are neither timed nor counted.
    nodes = {index: np.array(samples[index].node_ids) for index in order}
    rows, features = np.empty(0), None
    with Peak() as peak:
        started, before = time.perf_counter(), disk_bytes()
        if mode not in ("memmap", "memmap_random", "sequential"):
            home = "packed" if mode == "packed_0" else mode
            given: Spec = {"reads": READS, "cache": spec["cache"], "pack": work / mode}
            features = open_features(graph, store, home, torch.device("cpu"), **given)
        start_seconds, start_disk = time.perf_counter() - started, disk_bytes() - before
        started, before = time.perf_counter(), disk_bytes()
        if mode.startswith("memmap"):
            order = order[: spec["few"]]
        if mode == "memmap_random":
            table.base.madvise(mmap.MADV_RANDOM)  # type: ignore[union-attr]
        if mode == "sequential":
            sequential(sorted((work / "packed_0").glob("train_shard_*.bin")))
        else:
            for index in order:
                # One sample at a time: the loader decides how many more there are.
                del rows
                read = None if features is None else features.read("train", index, nodes[index])
                rows = table[nodes[index]] if read is None else read.numpy()
                del read
        seconds, disk = time.perf_counter() - started, disk_bytes() - before
    if mode != "sequential":
        assert np.array_equal(rows, table[nodes[order[-1]]])
    row_bytes = table.shape[1] * table.itemsize
    return {
        "seconds": seconds,
        "disk": disk,
        "read": sum(len(nodes[index]) for index in order) * row_bytes,
        "start_seconds": start_seconds,
        "start_disk": start_disk,
        "useful": sum(len(ids) for ids in nodes.values()) * row_bytes,
        "peak": peak.bytes,
    }


def move_means(spec: Spec) -> Spec:
    """Read and move the means of a few samples twice; a digest of M tells whether they are right."""
    work = Path(spec["work"])
    keep_freed_memory()
    store = SampleStore.open(work / "samples")
    samples = store["train"]
    nodes = [np.array(samples[index].node_ids) for index in range(spec["few"])]
    home: Any = work / "means" if spec["mode"] == "mapped" else "host"
    shutil.rmtree(work / "means", ignore_errors=True)
    with Peak() as peak:
        means = MeanEmbeddings(store.num_graph_nodes, MEANS_DIM, 0.9, home=home)
        started = time.perf_counter()
        for turn in range(2):
            for index, ids in enumerate(nodes):
                mu = means.gather(ids)
                means.update(ids, mu + 0.5 + turn + index)
        seconds = time.perf_counter() - started
    digest = hashlib.sha256()
    for rows in means.M.split(1 << 14):
        digest.update(rows.numpy().tobytes())
    return {
        "seconds": seconds / 2 / len(nodes),
        "peak": peak.bytes,
        "digest": digest.hexdigest(),
        "bytes": means.M.nbytes,
    }


CALLS = {"prepare": prepare, "epoch": epoch, "means": move_means}


# The limit.


@contextlib.contextmanager
def memory_group(limit: float) -> Iterator[Path | None]:
    """A group of the kernel below ours, with a limit; None where none can be made."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    below = [
        *(
            (Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes")
            for _, c, path in lines
            if c == "memory"
        ),
        *((Path("/sys/fs/cgroup" + path), "memory.max") for _, c, path in lines if not c),
    ]
    for parent, file in below:
        group = parent / f"musegnn-benchmark-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / file).write_text(str(int(limit)))
        except OSError:
            group.rmdir()
            continue
        try:
            yield group
        finally:
            group.rmdir()
        return
    yield None


def drop_cache(folder: Path) -> None:
    """Of all files below; those that a process maps would stay."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def call(name: str, spec: Spec, group: Path | None = None) -> Spec:
    """Run a function of this file in a process of its own, in a group."""

    def join() -> None:
        if group is not None:
            (group / "cgroup.procs").write_text(str(os.getpid()))

    command = [sys.executable, __file__, "--call", name, json.dumps(spec)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, preexec_fn=join)
    if done.returncode:
        raise SystemExit(f"{name} of {spec} ended with exit code {done.returncode}.")
    answer: Spec = json.loads(done.stdout.splitlines()[-1])
    return answer


def turns(name: str, spec: Spec, modes: tuple[str, ...], limit: float, repeats: int) -> dict[str, list[Spec]]:
    """Of each mode, in turn: what disturbs a while disturbs all."""
    found: dict[str, list[Spec]] = {mode: [] for mode in modes}
    for mode in repeats * modes:
        drop_cache(Path(spec["work"]))
        with memory_group(limit) as group:
            found[mode].append(call(name, spec | {"mode": mode}, group))
    return found


def said(limit: float) -> str:
    with memory_group(limit) as group:
        return "no limit" if group is None else f"{limit / GIGA:g} GB of memory"


def read_ahead(folder: Path) -> str:
    """Of the disk below a folder."""
    device = folder.stat().st_dev
    link = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    for place in (link, link / ".."):
        if (place / "queue" / "read_ahead_kb").exists():
            return f"{(place / 'queue' / 'read_ahead_kb').read_text().strip()} kB"
    return "unknown"


# Commands.


def modes(options: argparse.Namespace) -> Iterator[Figure]:
    """Every home, both widths."""
    for columns in options.columns:
        packs = {"packed": 0.1, "packed_0": 0.0}
        gigabytes = options.gigabytes[min(1, len(options.gigabytes) - 1)]
        names = ("sequential", "memmap", "memmap_random", "mapped", "cached", "packed", "packed_0")
        yield from measured(options, gigabytes, columns, packs, 0.1, names)


def growth(options: argparse.Namespace) -> Iterator[Figure]:
    """The homes past memory, with more and more features."""
    for gigabytes in options.gigabytes:
        packs, names = {"packed": GROWTH_CACHE}, ("mapped", "cached", "packed")
        yield from measured(options, gigabytes, options.columns[0], packs, GROWTH_CACHE, names)


def measured(
    options: argparse.Namespace,
    gigabytes: float,
    columns: int,
    packs: dict[str, float],
    cache: float,
    names: tuple[str, ...],
) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory(dir=options.work) as temporary:
        spec: Spec = {"work": temporary, "gigabytes": gigabytes, "columns": columns, "packs": packs}
        made = call("prepare", spec)
        held = f"{cache:.0%}" if cache <= 1 else f"{cache / GIGA:g} GB"
        data = (
            f"{gigabytes:g} GB of features, rows of {2 * columns:,} bytes, {made['samples']} samples of "
            f"{made['nodes'] / 1e3:.0f} k nodes, {said(options.limit)}, {held} held, "
            f"read-ahead {read_ahead(Path(temporary))}"
        )
        rates = {}
        given = spec | {"cache": cache, "few": options.few}
        for name, found in turns("epoch", given, names, options.limit, options.repeats).items():
            rates[name] = statistics.median(turn["read"] / turn["seconds"] for turn in found) / 1e6
            seconds = found[0]["useful"] / rates[name] / 1e6
            spread = max(t["seconds"] for t in found) / min(t["seconds"] for t in found)
            yield figure(f"{name}: an epoch", data, seconds, "s")
            yield figure(f"{name}: slowest / fastest turn", data, spread, "ratio of times")
            yield figure(f"{name}: rows of samples", data, rates[name], "MB/s")
            yield figure(
                f"{name}: read from the disk / rows",
                data,
                found[0]["disk"] / found[0]["read"],
                "ratio of bytes",
            )
            yield figure(f"{name}: peak anonymous memory", data, max(t["peak"] for t in found) / 2**20, "MiB")
            if name in ("cached", "packed"):
                start = statistics.median(turn["start_seconds"] for turn in found)
                yield figure(f"{name}: before the first sample", data, start, "s")
            if name in packs:
                yield figure(f"{name}: written once", data, made[f"{name} bytes"] / GIGA, "GB")
                yield figure(f"{name}: writing it", data, made[f"{name} seconds"], "s")
        for name in names:
            for other in ("memmap", "memmap_random", "sequential"):
                if other in rates and name not in ("memmap", "memmap_random", "sequential"):
                    yield figure(f"{name} / {other}", data, rates[name] / rates[other], "ratio of MB/s")


def means(options: argparse.Namespace) -> Iterator[Figure]:
    """M mapped, with the limit, and in memory, without it."""
    gigabytes = options.gigabytes[min(1, len(options.gigabytes) - 1)]
    with tempfile.TemporaryDirectory(dir=options.work) as temporary:
        spec: Spec = {"work": temporary, "gigabytes": gigabytes, "columns": options.columns[0], "packs": {}}
        made = call("prepare", spec)
        spec |= {"few": 3 * options.few}
        mapped = turns("means", spec, ("mapped",), options.limit, options.repeats)["mapped"]
        held = turns("means", spec, ("memory",), 1 << 60, options.repeats)["memory"]
        assert {turn["digest"] for turn in mapped} == {turn["digest"] for turn in held}
        data = (
            f"M of {mapped[0]['bytes'] / GIGA:.3g} GB, d {MEANS_DIM}, {made['samples']} samples of "
            f"{made['nodes'] / 1e3:.0f} k nodes, {said(options.limit)}"
        )
        seconds = {}
        for name, found in (("mapped", mapped), ("in memory, no limit", held)):
            seconds[name] = statistics.median(turn["seconds"] for turn in found)
            yield figure(f"M {name}: gather and update of a sample", data, seconds[name], "s")
            yield figure(f"M {name}: peak anonymous memory", data, found[0]["peak"] / 2**20, "MiB")
        ratio = seconds["mapped"] / seconds["in memory, no limit"]
        yield figure("M mapped / in memory", data, ratio, "ratio of times")
        yield figure("M mapped: rows of another value than in memory", data, 0, "rows")


def figure(name: str, data: str, value: float, unit: str) -> Figure:
    digits = 3 if abs(value) < 100 else 1
    return {"name": name, "data": data, "value": round(float(value), digits), "unit": unit}


LIMITS = {"modes": 1.5 * GIGA, "growth": GIGA, "means": GIGA}
COMMANDS = {"modes": modes, "growth": growth, "means": means}


def main() -> None:
    if sys.argv[1:2] == ["--call"]:
        print(json.dumps(CALLS[sys.argv[2]](json.loads(sys.argv[3]))))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    ours = [
        parser.add_argument(
            "--gigabytes", nargs="+", type=float, default=[1.0, 4.0, 16.0], help="of features"
        ),
        parser.add_argument("--columns", nargs="+", type=int, default=[1024, 128], help="of float16"),
        parser.add_argument("--limit", type=float, default=0, help="bytes of memory of a turn"),
        parser.add_argument("--few", type=int, default=1, help="samples that memmap reads"),
        parser.add_argument("--repeats", type=int, default=3, help="turns of each"),
    ]
    parser.add_argument(
        "--work", type=Path, help="a folder on the disk to be measured; the system's temporary"
    )
    parser.add_argument("--out", type=Path, help="a file for the figures")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    words = ["python benchmarks/features.py", options.command]
    for action in ours:
        value = getattr(options, action.dest)
        if value != action.default:
            values = value if isinstance(value, list) else [value]
            words += [action.option_strings[0], *(f"{one:g}" for one in values)]
    options.limit = options.limit or LIMITS[options.command]
    figures = []
    for found in COMMANDS[options.command](options):
        print(f"{found['data']}  {found['name']:<50} {found['value']:>12,} {found['unit']}", flush=True)
        figures.append(found | {"command": " ".join(words)})
        if options.out:
            options.out.write_text(json.dumps(figures, indent=1) + "\n")
    if options.record and figures:
        record([{k: v for k, v in one.items() if k != "command"} for one in figures], " ".join(words))


if __name__ == "__main__":
    main()
