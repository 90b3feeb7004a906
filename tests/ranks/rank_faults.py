"""Training on ranks of which one has a fault: for the tests, and for benchmarks/faults.py."""

import os
from errno import ENOSPC

import numpy as np
import small_runs
import torch
from together import at_call

import musegnn
from musegnn.errors import RankError
from musegnn.means.undo import UndoLog
from musegnn.training import checkpoint

GRAPH = small_runs.graph(unlabeled=20)
EPOCHS = 3


def train(store, folder, gamma=0.5, **options):
    model = small_runs.model(gamma, dropout=0.2)
    musegnn.train(GRAPH, store, model, folder, **{"epochs": EPOCHS, "lr": 0.02, **options})


def left(store, folder):
    """Weights, and M with its counts from whatever number of shares."""
    run = musegnn.load_run(folder, graph=GRAPH, samples=store, model=small_runs.model(dropout=0.2))
    tensors = checkpoint.load(folder / "checkpoint", "state").tensors
    found = {name: part for name, part in tensors.items() if not name.startswith("means.")}
    ids = np.arange(GRAPH.num_nodes)
    return found | {"mu": run.means.gather(ids), "seen": run.means.seen(ids).float()}


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for key, part in expected.items():
        torch.testing.assert_close(
            found[key], part, rtol=1e-5, atol=1e-5, msg=lambda text, key=key: f"{key}: {text}"
        )


def said(found, victim):
    """What the survivors of a fault said; the victim said nothing, or its own."""
    errors = [error for rank, (_, error) in enumerate(found) if rank != victim]
    assert all(type(error) is RankError for error in errors), errors
    return [str(error) for error in errors]


def full_checkpoint(rank):
    def refuse(_):
        raise OSError(ENOSPC, os.strerror(ENOSPC))

    at_call(checkpoint, "save_file", 4, refuse)


def full_undo_log(rank):
    def fill(log):
        log._file = open("/dev/full", "ab")

    at_call(UndoLog, "note", 4, fill)
