"""What `training.py` compares: peers, and how they and we take turns. One turn of a peer:

    PYTHON training_peers.py SPEC

Needs no musegnn, so that a Python that has PyG, or DGL, may run it. SPEC is JSON: `contestant`, a key of
`CONTESTANTS` below; `graph`, a graph store, read as the raw arrays it consists of; `pickles`, a folder of
subgraphs; `num_batches`, how many are timed behind `warm_up` others; and the settings of the model. The last
line printed is JSON: `seconds` of each batch, loading or sampling included, and the mean `nodes` of a batch.

The precursor is the design of the authors' earlier code, written anew: subgraphs with loops, pickled one by
one; a single thread that loads them ahead, gathers their features, and fills a queue of 5; f, then K steps

    Y <- relu((1 - a l - a) Y + a l A^ Y + a Z),    a = 1 / (1 + l),  l = lambda,  A^ = D^-1/2 (A + I) D^-1/2

with autograd over all of them, then g for all nodes, of which the seeds' rows are taken; Adam. It has no M
(gamma = 0). Only the product A^ Y differs between its variants.
"""

import itertools
import json
import os
import queue
import resource
import statistics
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

CORES = 2
TUNED = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "100000000000",
    "MALLOC_TOP_PAD_": "268435456",
    "THP_MEM_ALLOC_ENABLE": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
}
READ_AHEAD = 5
HEADS = 4
BATCH_SIZE = 1000
LEARNING_RATE = 1e-3

Spec = dict[str, Any]
Subgraph = dict[str, Tensor]
Product = Callable[[Tensor], Tensor]


class Arrays(NamedTuple):
    """A graph store in memory."""

    indptr: Tensor
    indices: Tensor
    features: Tensor
    labels: Tensor
    split: Tensor

    @property
    def num_classes(self) -> int:
        return int(self.labels.max()) + 1


def read(folder: Path) -> Arrays:
    types = {"indptr": "<i8", "indices": "<i4", "features": "<f4", "labels": "<i4", "split": "<i1"}
    arrays = {
        name: torch.from_numpy(np.fromfile(folder / f"{name}.bin", dtype)) for name, dtype in types.items()
    }
    arrays["features"] = arrays["features"].view(len(arrays["labels"]), -1)
    arrays["labels"] = arrays["labels"].long()
    return Arrays(**arrays)


def timed(batches: Iterable[Any], step: Callable[[Any], int], spec: Spec) -> Spec:
    """Seconds of each batch, from asking for it to the end of its step, and the mean of its nodes."""
    ends, nodes = [time.perf_counter()], []
    for batch in itertools.islice(batches, spec["warm_up"] + spec["num_batches"]):
        nodes.append(step(batch))
        ends.append(time.perf_counter())
    return {"seconds": np.diff(ends)[spec["warm_up"] :].tolist(), "nodes": float(np.mean(nodes))}


def learn(optimizer: torch.optim.Optimizer, logits: Tensor, labels: Tensor) -> None:
    loss = nn.functional.cross_entropy(logits, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# The precursor.


def pickled(sample: Any) -> Subgraph:
    """What the precursor keeps of a musegnn.Sample: ids of 64 bits, and a loop at each node."""
    n = sample.num_nodes
    matrix = scipy.sparse.csr_array((np.ones(sample.num_entries), sample.indices, sample.indptr), (n, n))
    matrix = matrix + scipy.sparse.eye_array(n, format="csr")
    arrays = {"node_ids": sample.node_ids, "indptr": matrix.indptr, "indices": matrix.indices}
    tensors = {name: torch.from_numpy(array.astype(np.int64)) for name, array in arrays.items()}
    return {**tensors, "num_seeds": torch.tensor(sample.num_seeds)}


def weights(subgraph: Subgraph) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and values of A^."""
    degrees = subgraph["indptr"].diff()
    rows = torch.repeat_interleave(torch.arange(len(degrees)), degrees)
    scale = degrees.double().rsqrt()
    return rows, subgraph["indices"], scale[rows] * scale[subgraph["indices"]]


class Messages(torch.autograd.Function):
    """Gather the rows, multiply each by its edge's weight, add up.

    By autograd alone `index_add` would keep the messages of each step, 13 GB of them; DGL's call keeps none.
    """

    @staticmethod
    def forward(ctx: Any, Y: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
        ctx.save_for_backward(rows, columns, values)
        return torch.zeros_like(Y).index_add_(0, rows, Y.index_select(0, columns).mul_(values))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        rows, columns, values = ctx.saved_tensors
        return Messages.apply(gradient, columns, rows, values), None, None, None


def messages(subgraph: Subgraph, dtype: torch.dtype = torch.float32) -> Product:
    """Message passing, written in torch."""
    rows, columns, values = weights(subgraph)
    values = values.to(dtype)[:, None]
    return lambda Y: Messages.apply(Y, rows, columns, values)


def sparse(subgraph: Subgraph, dtype: torch.dtype = torch.float32) -> Product:
    """A product of torch.sparse, the matrix made for each batch."""
    _, columns, values = weights(subgraph)
    size = 2 * (len(subgraph["indptr"]) - 1,)
    matrix = torch.sparse_csr_tensor(subgraph["indptr"], columns, values.to(dtype), size)
    return lambda Y: matrix @ Y


def dgl_graph(subgraph: Subgraph) -> Any:
    import dgl

    entries = (subgraph["indptr"], subgraph["indices"], torch.empty(0, dtype=torch.int64))
    return dgl.graph(("csc", entries), num_nodes=len(subgraph["indptr"]) - 1)


def dgl_weighted(subgraph: Subgraph, dtype: torch.dtype = torch.float32) -> Product:
    """DGL's u_mul_e and sum: the call of the authors' code."""
    import dgl.function as fn

    graph = dgl_graph(subgraph)
    graph.edata["weight"] = weights(subgraph)[2].to(dtype)[:, None]

    def product(Y: Tensor) -> Tensor:
        graph.ndata["Y"] = Y
        graph.update_all(fn.u_mul_e("Y", "weight", "message"), fn.sum("message", "product"))
        return graph.ndata["product"]

    return product


def dgl_plain(subgraph: Subgraph, dtype: torch.dtype = torch.float32) -> Product:
    """DGL's copy_u and sum between two scalings of the rows, which is much faster."""
    import dgl.function as fn

    graph = dgl_graph(subgraph)
    scale = subgraph["indptr"].diff().double().rsqrt().to(dtype)[:, None]

    def product(Y: Tensor) -> Tensor:
        graph.ndata["Y"] = scale * Y
        graph.update_all(fn.copy_u("Y", "message"), fn.sum("message", "product"))
        return scale * graph.ndata["product"]

    return product


def mlp(widths: list[int], dropout: float) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
    return layers[:-2]


class Precursor(nn.Module):
    """f and g of three layers each, and K steps between them."""

    def __init__(
        self, in_dim: int, out_dim: int, hidden: int, steps: int, lambda_: float, dropout: float
    ) -> None:
        super().__init__()
        self.f = nn.Sequential(nn.Dropout(dropout), *mlp([in_dim, hidden, hidden, hidden], dropout))
        self.g = nn.Sequential(
            nn.ReLU(), nn.Dropout(dropout), *mlp([hidden, hidden, hidden, out_dim], dropout)
        )
        self.steps, self.lambda_, self.alpha = steps, lambda_, 1 / (1 + lambda_)

    def forward(self, product: Product, features: Tensor) -> Tensor:
        """The logits of all nodes."""
        Z = self.f(features)
        a, l, Y = self.alpha, self.lambda_, Z  # noqa: E741
        for _ in range(self.steps):
            Y = torch.relu((1 - a * l - a) * Y + a * l * product(Y) + a * Z)
        logits: Tensor = self.g(Y)
        return logits


def loaded_ahead(paths: list[Path], graph: Arrays) -> Iterator[tuple[Subgraph, Tensor, Tensor]]:
    """Pickled subgraphs, each with its features and its seeds' labels, loaded by a thread of its own."""
    ready: queue.Queue[tuple[Subgraph, Tensor, Tensor]] = queue.Queue(READ_AHEAD)

    def load() -> None:
        for path in paths:
            subgraph = torch.load(path)
            ids = subgraph["node_ids"]
            ready.put((subgraph, graph.features[ids], graph.labels[ids[: int(subgraph["num_seeds"])]]))

    threading.Thread(target=load, daemon=True).start()
    for _ in paths:
        yield ready.get()


def check_product(make_product: Callable[[Subgraph], Product], subgraph: Subgraph) -> None:
    """Before a clock runs, each product is compared with the first of them, which stands for all."""
    Y = torch.randn(len(subgraph["node_ids"]), 8)
    torch.testing.assert_close(make_product(subgraph)(Y), messages(subgraph)(Y), rtol=1e-4, atol=1e-4)


def train_precursor(make_product: Callable[[Subgraph], Product], spec: Spec) -> Spec:
    graph = read(Path(spec["graph"]))
    settings = {name: spec[name] for name in ("hidden", "steps", "lambda_", "dropout")}
    model = Precursor(graph.features.shape[1], graph.num_classes, **settings)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)

    def step(batch: tuple[Subgraph, Tensor, Tensor]) -> int:
        subgraph, features, labels = batch
        learn(optimizer, model(make_product(subgraph), features)[: len(labels)], labels)
        return len(features)

    paths = sorted(Path(spec["pickles"]).glob("*.pt"))
    check_product(make_product, torch.load(paths[0]))
    return timed(loaded_ahead(paths, graph), step, spec)


# PyG.


def train_pyg(make: Callable[[Any, int, int, Spec], nn.Module], spec: Spec) -> Spec:
    """A model of PyG with as many layers as there are hops, on batches of its NeighborLoader."""
    import torch_geometric
    from torch_sparse import SparseTensor

    graph = read(Path(spec["graph"]))
    n = len(graph.labels)
    adjacency = SparseTensor(
        rowptr=graph.indptr, col=graph.indices.long(), sparse_sizes=(n, n), is_sorted=True, trust_data=True
    )
    data = torch_geometric.data.Data(x=graph.features, y=graph.labels, adj_t=adjacency)
    loader = torch_geometric.loader.NeighborLoader(
        data,
        spec["fanouts"],
        input_nodes=torch.nonzero(graph.split == 0)[:, 0],
        batch_size=BATCH_SIZE,
        shuffle=True,
    )
    model = make(torch_geometric.nn, data.num_features, graph.num_classes, spec)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE)

    def step(batch: Any) -> int:
        learn(optimizer, model(batch.x, batch.adj_t)[: batch.batch_size], batch.y[: batch.batch_size])
        return int(batch.num_nodes)

    return timed(loader, step, spec)


def sage(library: Any, in_dim: int, out_dim: int, spec: Spec) -> nn.Module:
    layers = len(spec["fanouts"])
    return library.GraphSAGE(in_dim, spec["hidden"], layers, out_dim, dropout=spec["dropout"])


def gat(library: Any, in_dim: int, out_dim: int, spec: Spec) -> nn.Module:
    layers = len(spec["fanouts"])
    return library.GAT(in_dim, spec["hidden"], layers, out_dim, dropout=spec["dropout"], heads=HEADS)


CONTESTANTS: dict[str, Callable[[Spec], Spec]] = {
    "messages": partial(train_precursor, messages),
    "sparse": partial(train_precursor, sparse),
    "dgl_weighted": partial(train_precursor, dgl_weighted),
    "dgl_plain": partial(train_precursor, dgl_plain),
    "sage": partial(train_pyg, sage),
    "gat": partial(train_pyg, gat),
}


# Turns.


class Contestant(NamedTuple):
    """Who takes turns."""

    name: str
    python: str
    spec: Spec
    environment: dict[str, str] = {}


class Turns(NamedTuple):
    """What came of them."""

    seconds: list[float]
    """Of each batch."""
    peak: int
    """Bytes."""
    nodes: float
    """Mean of a batch."""
    disturbance: float
    """Cores busy with other processes."""


def anonymous_memory(process: int) -> int:
    """Bytes of another process; 0 when it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return 1024 * next((int(line.split()[1]) for line in status.splitlines() if "RssAnon" in line), 0)


def busy_seconds() -> float:
    """Of all cores since the machine started."""
    user, nice, system, _, _, *others = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + sum(others)) / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
    """Of the cores, by the processes that have been waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def turn(contestant: Contestant) -> Turns:
    """One turn in a new process, watched every 20 ms."""
    is_ours = contestant.spec["contestant"] == "ours"
    script = [str(Path(__file__).with_name("training.py")), "--call"] if is_ours else [__file__]
    command = [contestant.python, *script, json.dumps(contestant.spec)]
    environment = os.environ | {"OMP_NUM_THREADS": str(CORES)} | contestant.environment
    peak, started, others = 0, time.perf_counter(), busy_seconds() - own_seconds()
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            peak = max(peak, anonymous_memory(process.pid))
            time.sleep(0.02)
        assert process.stdout is not None
        output = process.stdout.read()
    if process.returncode:
        raise SystemExit(f"{contestant.name} ended with exit code {process.returncode}.")
    disturbance = (busy_seconds() - own_seconds() - others) / (time.perf_counter() - started)
    answer = json.loads(output.splitlines()[-1])
    return Turns(answer["seconds"], peak, answer["nodes"], disturbance)


def take_turns(contestants: list[Contestant], repeats: int) -> dict[str, Turns]:
    """All batches of each; its largest memory and disturbance, and the mean of its nodes."""
    found: dict[str, list[Turns]] = {contestant.name: [] for contestant in contestants}
    for _ in range(repeats):
        for contestant in contestants:
            found[contestant.name].append(turn(contestant))
    return {name: together(turns) for name, turns in found.items()}


def together(turns: list[Turns]) -> Turns:
    seconds, peaks, nodes, disturbances = zip(*turns, strict=True)
    return Turns(list(itertools.chain(*seconds)), max(peaks), statistics.mean(nodes), max(disturbances))


if __name__ == "__main__":
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    given = json.loads(sys.argv[1])
    print(json.dumps(CONTESTANTS[given["contestant"]](given)))
