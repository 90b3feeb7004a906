"""How a peer is asked for one repetition at a time, so that its repetitions and ours can take turns.

The process is started with a graph store and a file of seeds. Each line it reads is a request, a
number of batches and what `loader` takes; each line it writes the answer: seconds, mean nodes, mean entries.
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


def serve(loader: Callable[..., Iterable[Any]], size: Callable[[Any], tuple[int, int]]) -> None:
    """Answer requests until there are none; what `loader` returns goes over all batches once."""
    # What a library prints must not stand among the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        request = json.loads(line)
        count = request.pop("batches")
        batches = loader(**request)
        started = time.perf_counter()
        sizes = [size(batch) for batch in itertools.islice(batches, count)]
        seconds = time.perf_counter() - started
        nodes, entries = np.mean(sizes, axis=0)
        print(json.dumps({"seconds": seconds, "nodes": nodes, "entries": entries}), file=answers, flush=True)
