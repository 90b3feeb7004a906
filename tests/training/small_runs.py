"""A run small enough to be trained a hundred times: 120 nodes, 6 training samples, d = 8, K = 3."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import torch

import musegnn
from musegnn import Energy, Graph, MuseGNN, SampleStore, ShadowKHop
from musegnn.training import checkpoint

NUM_NODES, IN_DIM, CLASSES, HIDDEN, STEPS = 120, 5, 3, 8, 3
TIMES = ("seconds", "samples_per_second", "waited", "rss_mb", "peak_rss_mb", "epoch_seconds", "checksum")
"""What an undisturbed run and a resumed one do not have in common."""


@cache
def graph(seed: int = 0, unlabeled: int = 0) -> Graph:
    """Two edges a node, features that tell of the class; 60, 30 and 30 nodes to train, validate and test."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, CLASSES, NUM_NODES)
    features = rng.normal(size=(NUM_NODES, IN_DIM)) + labels[:, None]
    labels[rng.permutation(NUM_NODES)[:unlabeled]] = -1
    return Graph.from_edges(
        rng.integers(0, NUM_NODES, (2, 2 * NUM_NODES)),
        num_nodes=NUM_NODES,
        features=features.astype(np.float32),
        labels=labels,
        split=rng.permutation(np.repeat([0, 1, 2], [60, 30, 30])),
        name="small",
    )


def store(folder: Path, of=None, sampler=None, **options) -> SampleStore:
    """6 training samples, 3 of each other split."""
    options = {"batch_size": 10, "splits": ("train", "valid", "test"), **options}
    return musegnn.sample(of or graph(), sampler or ShadowKHop([3, 2]), folder, workers=1, **options)


def model(gamma: float = 0.5, *, out_dim: int = CLASSES, seed: int = 0, energy=None, **options) -> MuseGNN:
    """Two layers before and one behind the steps."""
    options = {"hidden": HIDDEN, "steps": STEPS, "layers": 2, "output_layers": 1, **options}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MuseGNN(IN_DIM, out_dim, energy=energy or Energy(1.0, gamma), **options)


def outcome(folder: Path) -> dict[str, object]:
    """All that a run leaves behind but times: every bit of both checkpoints, of M, events and result."""
    found: dict[str, object] = {}
    for name in ("state", "best"):
        tensors, facts, *_ = checkpoint.load(folder / "checkpoint", name)
        found |= {
            f"{name} {key}": part.view(torch.uint8).tolist() if part.ndim else float(part)
            for key, part in tensors.items()
        }
        found[f"{name} position"] = timeless(facts["position"])
    for name in ("M.bin", "count.bin"):
        if (folder / "means").is_dir():
            found[name] = (folder / "means" / name).read_bytes()
    lines = (folder / "events.jsonl").read_text().splitlines()
    found["events"] = [timeless(json.loads(line)) for line in lines]
    found["result"] = timeless(json.loads((folder / "result.json").read_text()))
    return found


def timeless(facts: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in facts.items() if name not in TIMES}


def differences(found: dict[str, object], expected: dict[str, object]) -> list[str]:
    """The names of what differs: a short answer where two outcomes are compared."""
    return [name for name in {**found, **expected} if found.get(name) != expected.get(name)]
