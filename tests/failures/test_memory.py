"""A graph larger than the memory it is given is imported in that memory, in a process of its own."""

import subprocess
import sys

import numpy as np

CHILD = """
import sys, threading
from pathlib import Path
from musegnn.datasets import own
from musegnn.graph import Graph
from musegnn.memory import anonymous_memory
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.005):
        peak = max(peak, anonymous_memory())
import musegnn.ops.partition_edges.numba, musegnn.ops.merge_entries.numba
before = anonymous_memory()
watcher = threading.Thread(target=watch)
watcher.start()
source = own.read(Path("edges.npz"), features=Path("features.npy"), keep_direction=False)
graph = Graph.from_source(source, "g", memory=32 << 20, workers=1)
done.set()
watcher.join()
print(graph.num_nodes, peak - before)
"""


def test_a_graph_of_512_megabytes_is_imported_in_half_of_that(tmp_path):
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "edges.npz", edge_index=rng.integers(0, 1_000_000, (2, 16_000_000)))
    np.save(tmp_path / "features.npy", rng.random((1_000_000, 64), dtype=np.float32))
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    num_nodes, peak = map(int, done.stdout.split())
    assert num_nodes == 1_000_000
    assert peak < 256 << 20
