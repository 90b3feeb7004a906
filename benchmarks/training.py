"""Training: the time of an epoch against peers, and memory with features on disk.

    python benchmarks/training.py COMMAND [--record]

    epoch     seconds per epoch and peak memory, next to the authors' precursor and PyG's SAGE and GAT
    memory    peak memory with 1 M and with 10 M nodes, samples of the same size, features and M on disk

`epoch`: arxiv-shaped, batches of 1000 seeds, float32, dropout 0.2, Adam, two cores and threads. Fanouts stand
in our order, the seeds' own hop first. Ours: the normalized energy with lambda 4 and gamma 0.5, f and g of
three layers, M updated after each batch. The peers (`training_peers.py`):

    precursor   the design of the authors' earlier code, written anew, on the same samples; it knows no M. As
                published, a product multiplies each gathered row by the weight of its edge; mended, it is one
                of torch.sparse, and the allocator is tuned
    on DGL      the same with the very call of the authors, DGL's u_mul_e; mended, copy_u
    SAGE, GAT   PyG's, as many layers as hops, the same hidden width; NeighborLoader samples in the process

A tuned allocator keeps large blocks and takes huge pages; ours is as `muse train` sets it. Each turn of a
contestant is a process of its own that drops its first batch and times the next ones; an epoch is the median
time of a batch times the number of batches. Memory is the most anonymous memory that process has had. Before
a clock runs, loss and gradients of the precursor are compared with ours in float64 (no dropout, gamma 0). How
many cores were busy with other processes is a figure, too: with more than 0.1 the others are of little worth.

`memory`: one graph whose nodes lie among ever more others without edges, so that the samples stay as they are
while the rows of the features (128, float16) and of M, in a mapped file, become more. `musegnn.train` trains,
validates, writes its checkpoints and evaluates. Takes 6 GB of disk.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
import training_peers
from record import record
from torch import Tensor, nn
from training_peers import CORES, Contestant, Spec, Turns, take_turns

import musegnn
from musegnn import Energy, Graph, MuseGNN, Sample, SampleStore, ShadowKHop
from musegnn.cli.main import ENVIRONMENT
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource, Topology
from musegnn.memory import keep_freed_memory
from musegnn.runs.means import make_means
from musegnn.sampling.sample_store import StoredSamples
from musegnn.training.batches import Loader
from musegnn.training.building import build_model
from musegnn.training.config import Config
from musegnn.training.folder import RunFolder
from musegnn.training.loop import Trainer
from musegnn.training.losses import make_loss
from musegnn.training.signals import Stop
from musegnn.training.state import Position, State

WARM_UP = 1
LAMBDA, GAMMA, DROPOUT = 4.0, 0.5, 0.2
# M of 10 M nodes then takes 2.6 GB of disk, and so do the features.
MEMORY_HIDDEN, MEMORY_FANOUTS, MEMORY_BATCHES, MEMORY_EPOCHS = 64, [15, 10], 4, 2
FEATURE_DIM, FEATURE_BLOCK = 128, 1 << 16

Figure = dict[str, Any]


# Ours.


def inputs(graph: Graph, sample: Sample, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """The features of a sample and its seeds' labels."""
    assert graph.features is not None
    assert graph.labels is not None
    labels = torch.as_tensor(graph.labels[sample.seeds], dtype=torch.int64)
    return torch.as_tensor(graph.features[sample.node_ids], dtype=dtype), labels


def ours(graph: Graph, store: SampleStore, hidden: int, steps: int, batches: int) -> list[float]:
    """Seconds of each batch behind the warm-up: the step of `muse train` with its loader and allocator."""
    assert graph.features is not None
    keep_freed_memory()
    rates = {"dropout": DROPOUT, "input_dropout": DROPOUT, "samples_per_step": 1}
    config = Config().with_settings(
        {"hidden": hidden, "steps": steps, "lambda_": LAMBDA, "gamma": GAMMA, **rates}
    )
    model = build_model(config, graph.features.shape[1], graph.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), training_peers.LEARNING_RATE)
    loss = make_loss("cross_entropy", class_weights=None, label_smoothing=0.0)
    loader = Loader(store["train"], graph, graph.labels)
    with tempfile.TemporaryDirectory() as temporary:
        folder = RunFolder(Path(temporary))
        means = make_means(config, graph.num_nodes, folder, torch.device("cpu"))
        state = State(model, optimizer, means, Position())
        trainer = Trainer(folder, config, state, loader, None, loss, Stop(), None)
        ends = [time.perf_counter()]
        for batch in loader.batches(range(WARM_UP + batches)):
            trainer.step([batch])
            ends.append(time.perf_counter())
    return np.diff(ends)[WARM_UP:].tolist()


def train_ours(spec: Spec) -> Spec:
    graph, store = Graph.open(spec["graph"]), SampleStore.open(spec["store"])
    sizes = spec["hidden"], spec["steps"], spec["num_batches"]
    seconds = ours(graph, store, *sizes)
    return {"seconds": seconds, "nodes": float(store["train"].num_nodes[: WARM_UP + len(seconds)].mean())}


def train_whole(spec: Spec) -> Spec:
    """A run from its first batch to its result, as anyone calls it, with the allocator of `muse train`."""
    graph, store = Graph.open(spec["graph"]), SampleStore.open(spec["store"])
    assert graph.features is not None
    keep_freed_memory()
    torch.manual_seed(0)
    energy = Energy(LAMBDA, gamma=GAMMA)
    model = MuseGNN(graph.features.shape[1], graph.num_classes, spec["hidden"], energy, spec["steps"])
    started = time.perf_counter()
    musegnn.train(graph, store, model, spec["run"], overwrite=True, epochs=MEMORY_EPOCHS, means_home="disk")
    nodes = float(store["train"].num_nodes.mean())
    return {"seconds": [time.perf_counter() - started], "nodes": nodes}


def agree(graph: Graph, sample: Sample, steps: int, hidden: int = 8) -> None:
    """Loss and gradients of the precursor are ours, to float64."""
    torch.manual_seed(0)
    features, labels = inputs(graph, sample, torch.float64)
    sizes = features.shape[1], graph.num_classes, hidden
    model = MuseGNN(*sizes, Energy(LAMBDA), steps).double()
    expected = nn.functional.cross_entropy(model(sample, features), labels)
    gradients = torch.autograd.grad(expected, list(model.parameters()))
    precursor = training_peers.Precursor(*sizes, steps, LAMBDA, dropout=0.0).double()
    with torch.no_grad():
        for theirs, mine in zip(precursor.parameters(), model.parameters(), strict=True):
            theirs.copy_(mine)
    for make_product in (training_peers.messages, training_peers.sparse):
        product = make_product(training_peers.pickled(sample), torch.float64)
        loss = nn.functional.cross_entropy(precursor(product, features)[: sample.num_seeds], labels)
        torch.testing.assert_close(loss, expected, rtol=1e-10, atol=0)
        found = torch.autograd.grad(loss, list(precursor.parameters()))
        torch.testing.assert_close(found, gradients, rtol=1e-7, atol=1e-12)


# epoch

OURS = "musegnn"


def contestants(options: argparse.Namespace, spec: Spec) -> list[Contestant]:
    """Ours first; a peer whose Python is not given is left out."""

    def one(name: str, python: str, key: str, *, tuned: bool) -> Contestant:
        return Contestant(name, python, spec | {"contestant": key}, training_peers.TUNED if tuned else {})

    here = sys.executable
    found = [
        Contestant(OURS, here, spec | {"contestant": "ours"}, ENVIRONMENT),
        one("precursor as published", here, "messages", tuned=False),
        one("precursor mended", here, "sparse", tuned=True),
    ]
    if options.dgl:
        found.append(one("precursor on DGL as published", options.dgl, "dgl_weighted", tuned=False))
        found.append(one("precursor on DGL mended", options.dgl, "dgl_plain", tuned=True))
    if options.pyg:
        for name, key in (("PyG GraphSAGE", "sage"), ("PyG GAT", "gat")):
            found.append(one(name, options.pyg, key, tuned=False))
            found.append(one(f"{name} tuned", options.pyg, key, tuned=True))
    return found


def epoch(options: argparse.Namespace) -> Iterator[Figure]:
    """Seconds per epoch of all, and theirs over ours."""
    graph = musegnn.datasets.load("arxiv-shaped", out=options.work / "graphs" / "arxiv-shaped-features")
    for fanouts in options.fanouts:
        scratch = Path(tempfile.mkdtemp(dir=options.scratch))
        started = time.perf_counter()
        samples = drawn(graph, fanouts, scratch)
        drawing = time.perf_counter() - started
        agree(graph, samples[0], options.steps)
        spec = prepared(graph, samples, scratch, options) | {"fanouts": fanouts}
        data = (
            f"arxiv-shaped, fanouts {','.join(map(str, fanouts))}, {len(samples)} batches, "
            f"d {options.hidden}, K {options.steps}, {CORES} threads"
        )
        yield figure("musegnn: drawing and storing the samples, once", data, drawing, "s")
        found = take_turns(contestants(options, spec), options.repeats)
        yield from compared(found, len(samples), data)
        shutil.rmtree(scratch)


def drawn(graph: Graph, fanouts: list[int], scratch: Path) -> StoredSamples:
    store = musegnn.sample(graph, ShadowKHop(fanouts), scratch / "store", splits=("train",), workers=CORES)
    return store["train"]


def prepared(graph: Graph, samples: StoredSamples, scratch: Path, options: argparse.Namespace) -> Spec:
    """What every contestant is told; the precursor finds its subgraphs."""
    assert graph.stored is not None
    pickles = scratch / "pickles"
    pickles.mkdir()
    for index in range(WARM_UP + options.batches):
        torch.save(training_peers.pickled(samples[index]), pickles / f"train-{index:06d}.pt")
    return {
        "graph": str(graph.stored.folder),
        "store": str(scratch / "store"),
        "pickles": str(pickles),
        "hidden": options.hidden,
        "steps": options.steps,
        "lambda_": LAMBDA,
        "dropout": DROPOUT,
        "warm_up": WARM_UP,
        "num_batches": options.batches,
    }


def compared(found: dict[str, Turns], num_batches: int, data: str) -> Iterator[Figure]:
    disturbance = max(turns.disturbance for turns in found.values())
    yield figure("cores busy with other processes, in the worst turn", data, disturbance, "cores")
    seconds = {name: num_batches * statistics.median(turns.seconds) for name, turns in found.items()}
    for name, turns in found.items():
        yield figure(f"{name}: epoch", data, seconds[name], "s")
        yield figure(f"{name}: peak anonymous memory", data, turns.peak / 2**20, "MiB")
        yield figure(f"{name}: mean nodes of a batch", data, turns.nodes / 1e3, "k nodes")
    for name in found:
        if name != OURS:
            yield figure(f"{name} / musegnn: epoch", data, seconds[name] / seconds[OURS], "ratio of times")


# memory


def memory(options: argparse.Namespace) -> Iterator[Figure]:
    """Peak memory with few and with many rows of features."""
    peaks, linked = [], min(options.nodes)
    for nodes in options.nodes:
        scratch = Path(tempfile.mkdtemp(dir=options.scratch))
        graph = spread_graph(scratch / "graph", round(linked * 1e6), round(nodes * 1e6))
        musegnn.sample(graph, ShadowKHop(MEMORY_FANOUTS), scratch / "store", workers=CORES)
        paths = {name: str(scratch / name) for name in ("graph", "store", "run")}
        sizes = {"hidden": MEMORY_HIDDEN, "steps": options.steps}
        contestant = Contestant(OURS, sys.executable, {"contestant": "ours", **sizes, **paths}, ENVIRONMENT)
        turns = take_turns([contestant], options.repeats)[OURS]
        peaks.append(turns.peak)
        assert graph.features is not None
        size = f"features of {graph.features.nbytes / 1e9:.3g} GB and M on disk"
        data = f"{nodes:g} M nodes, {linked:g} M with edges, {size}, d {MEMORY_HIDDEN}, K {options.steps}"
        yield figure("training: peak anonymous memory", data, turns.peak / 2**20, "MiB")
        yield figure("training: mean nodes of a batch", data, turns.nodes / 1e3, "k nodes")
        yield figure("training: the whole run", data, statistics.median(turns.seconds), "s")
        shutil.rmtree(scratch)
    data = f"{options.nodes[-1]:g} M / {options.nodes[0]:g} M nodes, features and M on disk"
    yield figure("training: peak anonymous memory, ratio", data, peaks[-1] / peaks[0], "ratio of bytes")


def spread_graph(folder: Path, num_nodes: int, among: int) -> Graph:
    """A block model with six neighbors per node, whose nodes are every few of all nodes of the graph."""
    batch_share = training_peers.BATCH_SIZE / num_nodes
    shares = {
        "train_share": MEMORY_BATCHES * batch_share,
        "valid_share": batch_share,
        "test_share": batch_share,
    }
    inner = musegnn.datasets.load(
        "synthetic", features=False, num_nodes=num_nodes, num_edges=3 * num_nodes, **shares
    )
    stride = among // num_nodes
    rows = np.repeat(np.arange(num_nodes), np.diff(inner.indptr))
    labels, split = np.full(among, -1, dtype=np.int32), np.full(among, -1, dtype=np.int8)
    labels[: num_nodes * stride : stride] = inner.labels
    split[: num_nodes * stride : stride] = inner.split

    def feature_blocks(topology: Topology) -> Iterator[np.ndarray]:
        rng = np.random.default_rng(0)
        for start in range(0, among, FEATURE_BLOCK):
            shape = min(FEATURE_BLOCK, among - start), FEATURE_DIM
            yield rng.standard_normal(shape, dtype=np.float32).astype(np.float16)

    source = GraphSource(
        name="spread",
        edges=lambda: [EdgeChunk(stride * rows, stride * inner.indices.astype(np.int64))],
        num_nodes=among,
        features=FeatureSource(dim=FEATURE_DIM, dtype=np.float16, blocks=feature_blocks),
        labels=labels,
        split=split,
    )
    return Graph.from_source(source, folder)


# The command line.


def figure(name: str, data: str, value: float, unit: str) -> Figure:
    digits = 3 if abs(value) < 100 else 1
    return {"name": name, "data": data, "value": round(float(value), digits), "unit": unit}


COMMANDS = {"epoch": epoch, "memory": memory}


def parse() -> tuple[argparse.Namespace, str]:
    """The options, and the command that repeats them: without paths of this machine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    ours = [
        parser.add_argument("--fanouts", nargs="+", default=["15,10", "15,10,5"], metavar="15,10"),
        parser.add_argument("--hidden", type=int, default=256, help="d (epoch)"),
        parser.add_argument("--steps", type=int, default=8, help="K"),
        parser.add_argument("--batches", type=int, default=6, help="timed in each turn (epoch)"),
        parser.add_argument("--repeats", type=int, default=2, help="turns of each contestant"),
        parser.add_argument("--nodes", nargs="+", type=float, default=[1.0, 10.0], help="millions (memory)"),
    ]
    parser.add_argument("--dgl", metavar="PYTHON", help="a Python that has DGL")
    parser.add_argument("--pyg", metavar="PYTHON", help="a Python that has PyG and torch-sparse")
    parser.add_argument("--work", type=Path, help="keeps graphs here; a temporary folder if not given")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    words = ["python benchmarks/training.py", options.command]
    for action in ours:
        value = getattr(options, action.dest)
        if value != action.default:
            values = value if isinstance(value, list) else [value]
            words += [
                action.option_strings[0],
                *(f"{v:g}" if isinstance(v, float) else str(v) for v in values),
            ]
    words += [f"--{peer} ${peer.upper()}_PYTHON" for peer in ("dgl", "pyg") if getattr(options, peer)]
    options.fanouts = [[int(number) for number in text.split(",")] for text in options.fanouts]
    return options, " ".join(words)


def main() -> None:
    if sys.argv[1:2] == ["--call"]:
        spec = json.loads(sys.argv[2])
        print(json.dumps(train_whole(spec) if "run" in spec else train_ours(spec)))
        return
    # torch warns of its own sparse matrices.
    warnings.filterwarnings("ignore", "Sparse")
    options, command = parse()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    with ExitStack() as stack:
        if options.work is None:
            options.work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        options.work.mkdir(parents=True, exist_ok=True)
        options.scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.work)))
        figures = []
        for found in COMMANDS[options.command](options):
            print(f"{found['data']}  {found['name']:<55} {found['value']:>12,} {found['unit']}", flush=True)
            figures.append(found)
    if options.record and figures:
        record(figures, command)


if __name__ == "__main__":
    main()
