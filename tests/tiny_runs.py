"""A graph of 150 nodes, runs that are trained on it in no time, and commands that are killed on the way."""

import hashlib
import json
import os
import subprocess
import sys

import numpy as np

import musegnn
from musegnn.training.building import build_model
from musegnn.training.config import Config

SETTINGS = {
    **{"hidden": 8, "steps": 3, "lambda_": 2.0, "gamma": 0.5, "dropout": 0.1, "skip": True},
    **{"batch_size": 20, "fanouts": [4, 3], "epochs": 2, "lr": 0.02},
}
TIMES = {"seconds", "peak_rss_mb", "checksum"}


def tiny_graph(num_nodes=150, *, seed=0, dim=6, **parts):
    """Three classes, two thirds of the edges inside them; a quarter of the nodes in no split."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, num_nodes)
    ends = rng.integers(0, num_nodes, (2, 4 * num_nodes))
    ends = ends[:, (labels[ends[0]] == labels[ends[1]]) | (rng.random(4 * num_nodes) < 0.3)]
    features = (rng.normal(size=(num_nodes, dim)) + 2 * np.eye(3, dim)[labels]).astype(np.float32)
    split = rng.permutation(np.arange(num_nodes) % 4)
    given = {"features": features, "labels": labels, "split": np.where(split == 3, -1, split)}
    return musegnn.Graph.from_edges(ends, num_nodes=num_nodes, **(given | parts))


def tiny_run(folder, sampler=None, **settings):
    """A graph store, a sample store and a run in a folder; the run."""
    graph = tiny_graph(node_names=[f"node {i}" for i in range(150)], class_names=["red", "green", "blue"])
    graph.save(folder / "graph")
    graph = musegnn.Graph.open(folder / "graph")
    return train_on(graph, folder, sampler, **settings)


def train_on(graph, folder, sampler=None, **settings):
    config = Config(name="tiny").with_settings(SETTINGS | settings)
    splits = [name for code, name in enumerate(("train", "valid", "test")) if (graph.split == code).any()]
    drawn = {"batch_size": config.sampling.batch_size, "seed": 0, "splits": splits}
    store = musegnn.sample(graph, sampler or config.sampling.build(), folder / "samples", **drawn)
    told = {"num_relations": graph.num_relations}
    model = build_model(config, graph.features.shape[1], graph.num_classes, **told)
    return musegnn.train(graph, store, model, folder / "run", config=config)


def flags(**settings):
    """SETTINGS as a command takes them."""
    chosen = SETTINGS | settings
    texts = {name: ",".join(map(str, v)) if isinstance(v, list) else v for name, v in chosen.items()}
    return [part for name, text in texts.items() for part in ("--set", f"{name}={text}")]


def bytes_of(folder):
    """Every file below a folder, but the lock."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def strict_json(text):
    """As other programs read it: no NaN, no Infinity."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


_DRIVER = """
import os, signal, sys
import numba, torch._dynamo
from musegnn.cli.main import main
from musegnn.inference.tables import PredictionWriter
from musegnn.training.loop import Trainer

owner, name = {"step": (Trainer, "step"), "add": (PredictionWriter, "add")}[sys.argv[1]]
for wanted, at, *arguments in eval(sys.argv[2]):
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    calls, before = [], getattr(owner, name)
    def patched(*given, **named):
        calls.append(0)
        if len(calls) == at:
            os.kill(os.getpid(), getattr(signal, wanted))
        return before(*given, **named)
    setattr(owner, name, patched)
    os.dup2(2, 1)
    sys.exit(main(arguments))
"""


def interrupted(where, commands, cwd):
    """Exit codes and stderr of commands, each a tuple: a signal, at which call of `where`, the arguments."""
    # One process that imports everything, and a fork of it for each command.
    driver = [sys.executable, "-c", _DRIVER, where, repr(commands)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(driver, cwd=cwd, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()], done.stderr
