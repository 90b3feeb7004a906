"""K descent steps, forward and backward, on a sample: time, bandwidth and memory, against torch.sparse.

    python benchmarks/propagate.py [--record]

The subgraphs are ShadowKHop samples of arxiv-shaped with 1000 seeds, fanouts 15,10 and 15,10,5; normalized
Laplacian, lambda 4, gamma 0.5, ReLU, float32, K = 8. The peer is what one would write without us: the same
step with `torch.sparse` (CSR, int64 ids, the matrix with loops and weights made beforehand) and autograd.
Both take turns in one process, and a figure is the median of its turns. Before a clock runs, both are
compared with the step in float64.

Bandwidth is that of the rows gathered (entries * d * 4 bytes for each step); the ceiling is a copy of an
array of the size of Y (its bytes read and written). Memory is what a process of its own has at its peak
beyond its inputs, the result and its gradient.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import Peak
from record import record
from torch import Tensor

import musegnn
from musegnn import Draws, Energy, Sample, ShadowKHop
from musegnn.memory import anonymous_memory

LAMBDA, GAMMA, STEPS = 4.0, 0.5, 8
ALPHA = 1 / (1 + GAMMA + LAMBDA)
FANOUTS = {"15,10": [15, 10], "15,10,5": [15, 10, 5]}

Figure = dict[str, Any]
Pass = Callable[[Tensor, Tensor], Tensor]


def sample_of(work: Path, fanouts: str) -> Sample:
    graph = musegnn.datasets.load("arxiv-shaped", features=False, out=work / "graphs" / "arxiv-shaped")
    return Draws(graph, ShadowKHop(FANOUTS[fanouts]), "train")[0]


def inputs(sample: Sample, dim: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    Z, mu = (torch.randn(sample.num_nodes, dim, generator=generator).to(dtype) for _ in range(2))
    return Z.requires_grad_(), mu


def fused(sample: Sample) -> Pass:
    energy = Energy(LAMBDA, GAMMA)
    return lambda Z, mu: musegnn.unfold(Z, sample, energy, STEPS, mu=mu)


def torch_sparse(sample: Sample, dtype: torch.dtype = torch.float32) -> Pass:
    """Y <- relu((1 - a (1 + gamma + lambda)) Y + a lambda A^ Y + a (Z + gamma mu))."""
    n = sample.num_nodes
    rows, columns = sample.edge_index()
    loops = np.arange(n)
    rows, columns = np.concatenate([rows, loops]), np.concatenate([columns, loops])
    scale = 1 / np.sqrt(np.diff(sample.indptr) + 1)
    values = torch.from_numpy(scale[rows] * scale[columns]).to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        entries = torch.from_numpy(np.stack([rows, columns]))
        matrix = torch.sparse_coo_tensor(entries, values, (n, n)).coalesce().to_sparse_csr()

    def steps(Z: Tensor, mu: Tensor) -> Tensor:
        Y, B = Z, Z + GAMMA * mu
        for _ in range(STEPS):
            Y = torch.relu((1 - ALPHA * (1 + GAMMA + LAMBDA)) * Y + ALPHA * LAMBDA * (matrix @ Y) + ALPHA * B)
        return Y

    return steps


PASSES = {"musegnn": fused, "torch.sparse": torch_sparse}


def agree(sample: Sample, dim: int = 8) -> None:
    """Both passes equal the step in float64, forward and backward, to float32."""
    Z, mu = inputs(sample, dim, torch.float64)
    expected = torch_sparse(sample, torch.float64)(Z, mu)
    weight = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    (gradient,) = torch.autograd.grad(expected, Z, weight)
    for make in PASSES.values():
        z, m = inputs(sample, dim)
        found = make(sample)(z, m)
        torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=1e-4)
        (back,) = torch.autograd.grad(found, z, weight.float())
        torch.testing.assert_close(back.double(), gradient, rtol=1e-3, atol=1e-3)


def measured(sample: Sample, dim: int, data: str, repeats: int) -> Iterator[Figure]:
    Z, mu = inputs(sample, dim)
    weight = torch.randn(Z.shape, generator=torch.Generator().manual_seed(1))
    passes = {name: make(sample) for name, make in PASSES.items()}
    times: dict[tuple[str, str], list[float]] = {}
    copied = torch.empty_like(Z)
    for _ in range(repeats + 1):
        for name, forward in passes.items():
            started = time.perf_counter()
            Y = forward(Z, mu)
            middle = time.perf_counter()
            torch.autograd.grad(Y, Z, weight)
            ended = time.perf_counter()
            del Y
            times.setdefault((name, "forward"), []).append(middle - started)
            times.setdefault((name, "forward + backward"), []).append(ended - started)
        started = time.perf_counter()
        copied.copy_(Z.detach())
        times.setdefault(("copy", ""), []).append(time.perf_counter() - started)
    # The first round warms up.
    seconds = {key: statistics.median(turns[1:]) for key, turns in times.items()}
    for name in PASSES:
        for part in ("forward", "forward + backward"):
            yield figure(f"{name}, {part}", data, 1e3 * seconds[name, part], "ms")
    for part in ("forward", "forward + backward"):
        ratio = seconds["torch.sparse", part] / seconds["musegnn", part]
        yield figure(f"torch.sparse / musegnn, {part}", data, ratio, "ratio of times")
    ceiling = 2 * Z.nbytes / seconds["copy", ""] / 1e9
    yield figure("copy of Y: read and written", data, ceiling, "GB/s")
    for name in PASSES:
        rate = STEPS * sample.num_entries * dim * 4 / seconds[name, "forward"] / 1e9
        yield figure(f"{name}, forward: rows gathered", data, rate, "GB/s")
        yield figure(f"{name}, forward: rows gathered / copy", data, rate / ceiling, "ratio of rates")


def extra_memory(name: str, work: str, fanouts: str, dim: int) -> float:
    """Bytes at the peak of one forward and backward pass, beyond inputs, result and gradient."""
    sample = sample_of(Path(work), fanouts)
    forward = PASSES[name](sample)
    small = torch.zeros(sample.num_nodes, 8, requires_grad=True)
    # Compiled kernels and threads are there before memory is looked at.
    torch.autograd.grad(forward(small, small.detach()).sum(), small)
    Z, mu = inputs(sample, dim)
    weight = torch.randn(Z.shape)
    before = anonymous_memory()
    with Peak() as peak:
        Y = forward(Z, mu)
        (gradient,) = torch.autograd.grad(Y, Z, weight)
    return float(peak.bytes - before - Y.nbytes - gradient.nbytes)


def memory(work: Path, fanouts: str, dim: int, data: str) -> Iterator[Figure]:
    extra = {}
    for name in PASSES:
        arguments = json.dumps([name, str(work), fanouts, dim])
        command = [sys.executable, __file__, "--call", arguments]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        extra[name] = float(done.stdout)
        yield figure(f"{name}, extra memory", data, extra[name] / 2**20, "MiB")
    ratio = extra["torch.sparse"] / extra["musegnn"]
    yield figure("torch.sparse / musegnn, extra memory", data, ratio, "ratio of bytes")


def figure(name: str, data: str, value: float, unit: str) -> Figure:
    digits = 3 if abs(value) < 100 else 1
    return {"name": name, "data": data, "value": round(float(value), digits), "unit": unit}


def run(options: argparse.Namespace, work: Path) -> Iterator[Figure]:
    for fanouts in FANOUTS:
        sample = sample_of(work, fanouts)
        agree(sample)
        for dim in options.dims:
            size = f"n_s {sample.num_nodes / 1e3:.0f} k, {sample.num_entries / 1e6:.2f} M entries"
            data = f"arxiv-shaped {fanouts}, {size}, d {dim}, K {STEPS}, {torch.get_num_threads()} threads"
            yield from measured(sample, dim, data, options.repeats)
            yield from memory(work, fanouts, dim, data)


def main() -> None:
    if sys.argv[1:2] == ["--call"]:
        print(extra_memory(*json.loads(sys.argv[2])))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dims", nargs="+", type=int, default=[256, 512])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--work", type=Path, help="keeps the graph here; a temporary folder if not given")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as temporary:
        for found in run(options, options.work or Path(temporary)):
            print(f"{found['data']}  {found['name']:<45} {found['value']:>10,} {found['unit']}", flush=True)
            figures.append(found)
    if options.record:
        record(figures, "python benchmarks/propagate.py")


if __name__ == "__main__":
    main()
