"""Many imports in one process: no file, thread or memory is left behind."""

import os
import threading

import numpy as np

from musegnn import Graph
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource
from musegnn.memory import anonymous_memory

ROUNDS = 100 if "MUSEGNN_PROOF" in os.environ else 4


def test_files_threads_and_memory_stay_flat(tmp_path):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, 500, (2, 5_000))
    source = GraphSource(
        name="soak",
        edges=lambda: [EdgeChunk(*edges)],
        num_nodes=500,
        features=FeatureSource.of(rng.random((500, 50))),
    )

    def once():
        graph = Graph.from_source(source, tmp_path / "g", overwrite=True, memory=1 << 24, workers=2)
        graph.verify()
        return graph.digest

    digest = once()
    files, threads, memory = len(os.listdir("/proc/self/fd")), threading.active_count(), anonymous_memory()
    for _ in range(ROUNDS):
        assert once() == digest
    assert len(os.listdir("/proc/self/fd")) <= files
    assert threading.active_count() <= threads
    assert anonymous_memory() < memory + (32 << 20)
    assert [path.name for path in tmp_path.iterdir()] == ["g"]
