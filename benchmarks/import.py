"""Import of large edge lists: time, throughput and peak memory, against np.load and a copy of the same bytes.

    python benchmarks/import.py [--edges 20 63 200] [--folder .benchmarks] [--record]

Each size (in millions of directed edges) has a twentieth as many nodes and 64 float16 features each. The raw
files are written first; then, in processes of their own and with the raw files in the page cache, `np.load` +
copy, and the import into a graph store. The import must write 24 bytes of scratch for each edge, and the
store; the disk's own speed is measured beside it.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from measure import Peak, disk_speed
from record import record

DIM = 64
CHUNK = 1 << 22
SCRATCH_BYTES = 24
"""Key and direction of both entries of an edge."""


def write_raw(folder: Path, num_edges: int, num_nodes: int) -> None:
    """A (2, E) int64 edge list whose targets follow a power law, and features, written in chunks."""
    folder.mkdir(parents=True, exist_ok=True)
    edges = np.lib.format.open_memmap(folder / "edges.npy", "w+", np.int64, (2, num_edges))
    for start in range(0, num_edges, CHUNK):
        rng = np.random.default_rng([0, start])
        count = min(CHUNK, num_edges - start)
        edges[0, start : start + count] = rng.integers(0, num_nodes, count)
        edges[1, start : start + count] = (num_nodes * rng.random(count) ** 2.5).astype(np.int64)
    features = np.lib.format.open_memmap(folder / "features.npy", "w+", np.float16, (num_nodes, DIM))
    for start in range(0, num_nodes, CHUNK // 8):
        rng = np.random.default_rng([1, start])
        features[start : start + CHUNK // 8] = rng.random(
            (min(CHUNK // 8, num_nodes - start), DIM), np.float32
        )
    edges.flush()
    features.flush()
    # The disk is quiet before the clock starts; the raw files stay in the page cache for both.
    os.sync()


def in_memory_copy(folder: Path) -> dict[str, float]:
    """The baseline: load both files whole and copy them once."""
    started = time.perf_counter()
    for name in ("edges.npy", "features.npy"):
        np.load(folder / name).copy()
    return {"seconds": time.perf_counter() - started}


def import_(folder: Path) -> dict[str, float]:
    """The import, as `muse import edges.npy --features features.npy` does it."""
    from musegnn.datasets import own
    from musegnn.graph import Graph

    with Peak() as peak:
        source = own.read(folder / "edges.npy", features=folder / "features.npy")
        graph = Graph.from_source(source, folder / "graph")
    assert graph.stored is not None
    started = time.perf_counter()
    Graph.open(folder / "graph")
    opened = time.perf_counter() - started
    return {"seconds": peak.seconds, "peak": peak.bytes, "store": graph.stored.num_bytes, "open": opened}


def in_process(function: str, folder: Path) -> dict[str, float]:
    """Run one of the two above in a fresh process, so that memory and caches of one do not help the other."""
    command = [sys.executable, __file__, "--only", function, "--folder", str(folder)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(millions: int, folder: Path) -> list[dict[str, object]]:
    num_edges, num_nodes = millions * 1_000_000, millions * 50_000
    shutil.rmtree(folder, ignore_errors=True)
    write_raw(folder, num_edges, num_nodes)
    raw_bytes = num_edges * 16 + num_nodes * DIM * 2
    in_process("in_memory_copy", folder)
    copied = in_process("in_memory_copy", folder)
    imported = in_process("import_", folder)
    written = SCRATCH_BYTES * num_edges + imported["store"]
    disk = disk_speed(folder)
    shutil.rmtree(folder)
    data = f"{millions} M directed edges, {num_nodes / 1e6:g} M nodes, {DIM} float16 features"
    rows = [
        ("import: time", imported["seconds"], "s"),
        ("import: raw bytes read", raw_bytes / 1e6 / imported["seconds"], "MB/s"),
        ("import: edges", num_edges / 1e6 / imported["seconds"], "M edges/s"),
        ("np.load + copy of the same bytes", copied["seconds"], "s"),
        ("import / (np.load + copy)", imported["seconds"] / copied["seconds"], "ratio of times"),
        ("disk, sequential writes in the same run", disk / 1e6, "MB/s"),
        ("import / (writing scratch and store at that speed)", imported["seconds"] * disk / written, "ratio"),
        ("import: peak anonymous memory", imported["peak"] / 2**20, "MiB"),
        ("import: store", imported["store"] / 1e9, "GB"),
        ("open the store", imported["open"] * 1000, "ms"),
    ]
    return [
        {"name": name, "data": data, "value": round(value, 3), "unit": unit} for name, value, unit in rows
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--edges", type=int, nargs="+", default=[20, 63, 200], help="millions of directed edges"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(".benchmarks"), help="where to work (30 GB at 200 M)"
    )
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    parser.add_argument("--only", choices=["in_memory_copy", "import_"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(globals()[arguments.only](arguments.folder)))
        return
    figures = []
    for millions in arguments.edges:
        for figure in measure(millions, arguments.folder / "import"):
            print(
                f"{figure['data']:<60}  {figure['name']:<50}  {figure['value']:>12,} {figure['unit']}",
                flush=True,
            )
            figures.append(figure)
    seconds = {figure["data"]: figure["value"] for figure in figures if figure["name"] == "import: time"}
    if len(seconds) > 1:
        (small, first), *_, (large, last) = zip(seconds, seconds.values(), strict=True)
        growth = last / first / (arguments.edges[-1] / arguments.edges[0])
        row = {
            "name": "growth: time ratio / edge ratio",
            "data": f"{small} to {large}",
            "value": round(growth, 3),
        }
        figures.append(row | {"unit": "1 is linear"})
        print(figures[-1])
    if arguments.record:
        record(figures, "python benchmarks/import.py")


if __name__ == "__main__":
    main()
