"""How a peer is asked for one repetition at a time, so that its repetitions and ours can take turns.

The process is started with a graph store and a file of seeds. Each line it reads is a request, `{"fanouts":
..., "batches": ..., "num_workers": ...}`; each line it writes the answer: seconds, mean nodes, mean entries.
The peers' own Python has no musegnn: the store is read as the raw arrays it consists of.
"""

import itertools
import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

BATCH_SIZE = 1000


def read_arguments() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """indptr and indices of the graph store, and the seeds, batch after batch."""
    store, seeds = Path(sys.argv[1]), Path(sys.argv[2])
    return (
        np.fromfile(store / "indptr.bin", "<i8"),
        np.fromfile(store / "indices.bin", "<i4"),
        np.load(seeds).astype(np.int64),
    )


def serve(loader: Callable[[list[int], int], Iterable[Any]], size: Callable[[Any], tuple[int, int]]) -> None:
    """Answer requests until there are none; `loader(fanouts, num_workers)` goes over all batches once."""
    # What a library prints must not stand among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        batches = loader(request["fanouts"], request["num_workers"])
        started = time.perf_counter()
        sizes = [size(batch) for batch in itertools.islice(batches, request["batches"])]
        seconds = time.perf_counter() - started
        nodes, entries = np.mean(sizes, axis=0)
        print(json.dumps({"seconds": seconds, "nodes": nodes, "entries": entries}), file=answers, flush=True)
