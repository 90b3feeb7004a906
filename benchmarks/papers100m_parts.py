"""What `papers100m_shaped.py` runs and how it looks at it: our training, SAGE, the GPU's timeline, the bound.

A contestant is a function `run(count)` that trains on so many batches and waits for the device.
"""

import json
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from gpu_propagate import median_ms
from torch import Tensor, nn

from musegnn import Draws, Graph, NeighborSampling, Sample, ops
from musegnn.features.homes import Features
from musegnn.graph.threads import in_order
from musegnn.memory import Peak
from musegnn.runs.means import make_means
from musegnn.sampling.sequence import Samples
from musegnn.training.batches import Loader
from musegnn.training.building import build_model
from musegnn.training.config import Config
from musegnn.training.folder import RunFolder
from musegnn.training.loop import Trainer
from musegnn.training.losses import make_loss
from musegnn.training.signals import Stop
from musegnn.training.state import Position, State
from musegnn.unfolding.resident import levels_of

LAMBDA, STEPS, LAYERS, LEARNING_RATE = 4.0, 8, 3, 1e-3
PROFILED = 40
MATMUL = re.compile("gemm|nvjet|cutlass|cublas|splitk|wgmma", re.IGNORECASE)
GATHER = re.compile("index|gather|scatter", re.IGNORECASE)

Run = Callable[[int], None]


class Setting(NamedTuple):
    hidden: int
    gamma: float

    def __str__(self) -> str:
        return f"d {self.hidden}, gamma {self.gamma:g}"


# Ours.


def numbers(count: int, samples: Samples) -> list[int]:
    """So many samples, from the first on, again and again."""
    return [index % len(samples) for index in range(count)]


def ours(graph: Graph, samples: Samples, features: Features, setting: Setting, threads: int) -> Run:
    """The product's own loader and step; no checkpoints."""
    device = features.device
    given = {"hidden": setting.hidden, "gamma": setting.gamma, "steps": STEPS, "lambda_": LAMBDA}
    given |= {"layers": LAYERS, "output_layers": LAYERS, "lr": LEARNING_RATE, "samples_per_step": 1}
    config = Config().with_settings({**given, "precision": "bfloat16", "means_dtype": "bfloat16"})
    model = build_model(config, width_of(features), graph.num_classes).to(device)
    # The run folder stays empty: M is in memory, and nothing is saved.
    folder = RunFolder(Path(tempfile.gettempdir()))
    means = make_means(config, graph.num_nodes, folder, device)
    if means is not None:
        print(f"M is on {means.M.device}: {means.M.nbytes / 1e9:.3g} GB", flush=True)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=device.type == "cuda")
    loader = Loader(samples, graph, graph.labels, threads=threads, device=device, features=features)
    loss = make_loss("cross_entropy", class_weights=None, label_smoothing=0.0)
    state = State(model, optimizer, means, Position())
    trainer = Trainer(folder, config, state, loader, None, loss, Stop())

    def run(count: int) -> None:
        for batch in loader.batches(numbers(count, samples)):
            trainer.step([batch])
        wait_for(device)

    return run


def width_of(features: Features) -> int:
    """Columns."""
    node = torch.zeros(1, dtype=torch.int64, device=features.device)
    return int(features.rows(features.read(None, 0, np.zeros(1, np.int64)), node).shape[1])


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# SAGE.


class Sage(nn.Module):
    """PyG's SAGEConv, as many layers as hops."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        from torch_geometric.nn import SAGEConv

        self.layers = nn.ModuleList(SAGEConv(*pair) for pair in zip(widths[:-1], widths[1:], strict=True))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x, edge_index))
        result: Tensor = self.layers[-1](x, edge_index)
        return result


def sage(
    graph: Graph, features: Features, fanouts: list[int], hidden: int, threads: int
) -> tuple[Run, Draws]:
    """Neighbors are drawn while it trains; threads draw and a stream copies ahead, as our loader does."""
    device, draws = features.device, Draws(graph, NeighborSampling(fanouts), "train")
    widths = [width_of(features), *[hidden] * (len(fanouts) - 1), graph.num_classes]
    model = Sage(widths).to(device)
    optimizer = torch.optim.Adam(model.parameters(), LEARNING_RATE, fused=device.type == "cuda")

    def read(index: int) -> tuple[int, list[Tensor], Tensor | None]:
        sample = draws.sample(index)
        assert graph.labels is not None
        arrays = sample.node_ids, sample.indptr, sample.indices, graph.labels[sample.seeds].astype(np.int64)
        tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
        rows = features.read(None, 0, sample.node_ids)
        return sample.num_seeds, [pinned(part, device) for part in tensors], rows

    def move(num_seeds: int, tensors: list[Tensor], rows: Tensor | None) -> list[Tensor]:
        node_ids, indptr, indices, labels = (part.to(device, non_blocking=True) for part in tensors)
        x = features.rows(rows, node_ids).to(torch.bfloat16)
        nodes = torch.arange(len(node_ids), device=device)
        target = nodes.repeat_interleave(indptr.diff(), output_size=len(indices))
        return [x, torch.stack([indices.long(), target]), labels]

    def run(count: int) -> None:
        # SAGE needs no spectrum of its samples.
        with mock.patch.object(ops, "spectral_bounds", new=no_bounds), ThreadPoolExecutor(threads) as pool:
            tasks = (partial(read, index) for index in numbers(count, draws))
            for x, edge_index, labels in moved(in_order(pool, tasks, 2 * threads), move, device):
                with torch.autocast(device.type, torch.bfloat16):
                    logits = model(x, edge_index)[: len(labels)]
                loss = nn.functional.cross_entropy(logits.float(), labels)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                optimizer.step()
        wait_for(device)

    return run, draws


def no_bounds(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
    return np.zeros(4)


def pinned(tensor: Tensor, device: torch.device) -> Tensor:
    return tensor.pin_memory() if device.type == "cuda" else tensor


def moved(batches: Iterator[Any], move: Callable[..., list[Tensor]], device: torch.device) -> Iterator[Any]:
    """Each batch is on its way to the device while the one before it is worked on."""
    if device.type != "cuda":
        yield from (move(*batch) for batch in batches)
        return
    stream, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    waiting: deque[tuple[list[Tensor], torch.cuda.Event]] = deque()

    def handed_over(tensors: list[Tensor], event: torch.cuda.Event) -> list[Tensor]:
        current.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(current)
        return tensors

    for batch in batches:
        with torch.cuda.stream(stream):
            waiting.append((move(*batch), stream.record_event()))
        if len(waiting) > 1:
            yield handed_over(*waiting.popleft())
    while waiting:
        yield handed_over(*waiting.popleft())


# What came of it.


class Measured(NamedTuple):
    batches: int
    seconds: float
    """Of all of them, from asking for the first to the end of the last."""
    gpu_bytes: int
    host_bytes: int
    """Anonymous, at the peak."""
    disk_bytes: int
    """That were read from a disk: not in the page cache any more, or not yet."""
    cpu_seconds: float
    """Of all threads."""

    @property
    def batch_seconds(self) -> float:
        return self.seconds / self.batches


def measured(run: Run, count: int, warm_up: int, limit: float, device: torch.device) -> Measured:
    """Of `count` batches, or as many as the limit of seconds has room for."""
    run(warm_up)
    with Peak() as again:
        run(warm_up)
    count = max(warm_up, min(count, int(limit * warm_up / again.seconds)))
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    read, worked = bytes_read(), time.process_time()
    with Peak() as peak:
        run(count)
    gpu_bytes = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    spent = bytes_read() - read, time.process_time() - worked
    return Measured(count, peak.seconds, gpu_bytes, peak.bytes, *spent)


def bytes_read() -> int:
    """From disks, by this process so far; 0 where nobody counts."""
    try:
        lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    except OSError:
        return 0
    return int(lines["read_bytes"])


class Timeline(NamedTuple):
    """Of the GPU, over `PROFILED` batches."""

    waited: float
    """Share of the time in which no kernel ran."""
    batch_ms: float
    groups: dict[str, float]
    """ms a batch, by kind of kernel."""
    longest: list[tuple[str, float]]


def profiled(run: Run, lead: int) -> Timeline | None:
    """`lead` batches come before and as many behind: the loader fills its stock, and later reads no more."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run(lead + PROFILED + lead)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    return timeline(events, lead / (2 * lead + PROFILED))


def timeline(events: list[dict[str, Any]], skipped: float) -> Timeline | None:
    """Without the first and the last share of the kernels, which all batches have about as many of."""
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    found = sorted((one for one in events if one.get("cat") in kinds), key=lambda one: one["ts"])
    found = found[round(skipped * len(found)) : round((1 - skipped) * len(found))]
    if not found:
        return None
    begin, end, busy = found[0]["ts"], found[0]["ts"], 0.0
    groups: dict[str, float] = {}
    names: dict[str, float] = {}
    for one in found:
        group = group_of(one["name"])
        groups[group] = groups.get(group, 0.0) + one["dur"] / 1e3 / PROFILED
        names[one["name"]] = names.get(one["name"], 0.0) + one["dur"] / 1e3 / PROFILED
        if group != "copies":
            last = one["ts"] + one["dur"]
            busy += max(0.0, last - max(end, one["ts"]))
            end = max(end, last)
    longest = sorted(names.items(), key=lambda item: -item[1])[:14]
    span = max(one["ts"] + one["dur"] for one in found) - begin
    return Timeline(1 - busy / span, span / 1e3 / PROFILED, groups, longest)


def group_of(name: str) -> str:
    """Copies to and from the host need no kernel."""
    if "HtoD" in name or "DtoH" in name:
        return "copies"
    if name in descent_kernels():
        return "descent"
    return "matmul" if MATMUL.search(name) else "gather" if GATHER.search(name) else "rest"


def descent_kernels() -> set[str]:
    from musegnn.ops.descend import triton

    return {name for name, part in vars(triton).items() if hasattr(part, "warmup")}


# What must be done at least.


class Ceilings(NamedTuple):
    """Bytes read and written in a second on the device; those that come from the host; operations."""

    copy: float
    from_host: float
    matmul: dict[int, float]
    """By hidden."""


def matmul_rate(nodes: int, in_dim: int, hidden: int, device: torch.device) -> float:
    """Operations in a second of the products of f, forward."""
    draw = partial(torch.randn, device=device, dtype=torch.bfloat16)
    x, y, first, other = (
        draw(*shape) for shape in ((nodes, in_dim), (nodes, hidden), (in_dim, hidden), (hidden, hidden))
    )
    seconds = sum(median_ms(work, device) for work in (lambda: x @ first, *[lambda: y @ other] * 2)) / 1e3
    return 2 * nodes * hidden * (in_dim + 2 * hidden) / seconds


def host_rate(device: torch.device, num_bytes: int = 1 << 28) -> float:
    """Bytes in a second from pinned memory."""
    given = torch.empty(num_bytes, dtype=torch.uint8).pin_memory()
    into = torch.empty(num_bytes, dtype=torch.uint8, device=device)
    return num_bytes / median_ms(lambda: into.copy_(given, non_blocking=True), device) * 1e3


def least_seconds(
    sample: Sample, in_dim: int, num_classes: int, setting: Setting, ceilings: Ceilings
) -> dict[str, float]:
    """What a step takes if it does nothing but move and compute what it must, at the ceilings.

    A step of the descent gathers a row of 2 d bytes and an id for each entry, and for each row reads Y and B
    and writes Y and a bit mask; the way back reads and writes the gradient of B as well. Only rows that the
    seeds depend on count, all of them going forward if M is kept. Copies from the host run beside.
    """
    d, n = setting.hidden, sample.num_nodes
    levels, degrees = levels_of(sample), np.diff(sample.indptr)

    def step_bytes(limit: int | None, row_bytes: float) -> float:
        is_in = slice(None) if limit is None else levels <= limit
        return float(degrees[is_in].sum() * (2 * d + 4) + len(degrees[is_in]) * row_bytes)

    forward = sum(step_bytes(None if setting.gamma else k, (6 + 1 / 8) * d) for k in range(STEPS))
    backward = sum(step_bytes(k, (8 + 1 / 8) * d) for k in range(1, STEPS + 1))
    # No gradient of the features is needed.
    of_f = 2 * n * d * (2 * in_dim + 3 * (LAYERS - 1) * d)
    of_g = 6 * sample.num_seeds * d * ((LAYERS - 1) * d + num_classes)
    # Z + gamma mu; then M is read and written, and Y read.
    of_means = 2 * n * d * (2 + 3 + 3) if setting.gamma else 0
    return {
        "descent": (forward + backward) / ceilings.copy,
        "f and g": (of_f + of_g) / ceilings.matmul[d],
        "features": 4 * n * in_dim / ceilings.copy,
        "M": of_means / ceilings.copy,
        "copies": (13 * n + 4 * sample.num_entries) / ceilings.from_host,
    }
