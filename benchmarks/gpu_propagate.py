"""K descent steps on a GPU, forward and backward: time, bandwidth, memory and error, against torch.sparse.

    python benchmarks/gpu_propagate.py [--out FILE] [--record]
    python benchmarks/gpu_propagate.py --from FILE [--record]

One random graph: 300 k nodes with expected degrees ~ (i + 2)^-0.72, 4.3 M entries, a hub of 21 k neighbors;
normalized Laplacian, lambda 4, ReLU, K = 8. All take turns in one process; a figure is the median of its
turns behind a warm-up, between two events on the GPU's own clock.

    unfold           as anyone calls it; it looks for NaN in Z, mu and Y, for which the GPU is waited for
    passes           `unfold_seeds` with every node a seed and no such look: the kernels, and one copy of Y
    1000 seeds       `unfold_seeds` as training calls it: what the seeds do not depend on is left out
    torch.sparse     the same steps with a CSR matrix and autograd; int32 or int64 ids, whichever is faster
    , tuned          the same without the term that is 0 at this step size
    , own backward   tuned, and autograd is told that the matrix is symmetric: it transposes nothing

Errors are relative Frobenius norms, of Y and of dZ for a random dY, against torch.sparse in float64 on the
same rounded inputs. Where the argument of a ReLU is zero up to rounding, its mask may differ: counted, too,
over all K steps. Bandwidth is that of the rows gathered (entries * d * bytes a step); the ceiling is a copy
of 4 GiB, its bytes read and written. Extra memory is what torch has at its peak beyond matrix, inputs, Y and
dZ. `--out` is written after each figure; `--from` takes the figures of such a file, of another machine.
"""

import argparse
import itertools
import json
import shlex
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from accuracy import machine, record_all
from torch import Tensor

import musegnn
from musegnn import Energy, Sample
from musegnn.unfolding.descent import unfold_seeds

LAMBDA, STEPS, NUM_SEEDS = 4.0, 8, 1000
NODES, DRAWS, EXPONENT = 300_000, 2_320_000, 0.72
WARM_UP, COPIED = 3, 1 << 32
DTYPES = {torch.bfloat16: "bf16", torch.float32: "fp32"}
FORMS = ("unfold", "passes", f"{NUM_SEEDS} seeds")

Figure = dict[str, Any]
Means = Tensor | None
Pass = Callable[[Tensor, Means], Tensor]


# Figures, also for papers100m_shaped.py.


class Table:
    """Figures as they come: printed, and written to a file if there is one. Known ones are replaced."""

    def __init__(self, command: str, device: str, out: Path | None) -> None:
        self.origin = {"hardware": machine(device), "command": command}
        self.device, self.out = device, out
        self.figures: list[Figure] = json.loads(out.read_text()) if out and out.exists() else []

    def add(self, name: str, data: str, value: float, unit: str) -> None:
        """One more."""
        rounded = float(f"{value:.4g}") if abs(value) < 1000 else round(value, 1)
        figure = {"name": name, "data": data, "value": rounded, "unit": unit, **self.origin}
        if not self.figures or self.figures[-1]["data"] != data:
            print(f"\n{data}")
        print(f"  {name:<62} {rounded:>12,} {unit}", flush=True)
        self.figures = [one for one in self.figures if (one["name"], one["data"]) != (name, data)]
        self.figures.append(figure)
        if self.out:
            self.out.write_text(json.dumps(self.figures, indent=1) + "\n")


def finish(options: argparse.Namespace, figures: list[Figure]) -> None:
    """The table once more, and into results.json if asked."""
    for data in dict.fromkeys(figure["data"] for figure in figures):
        print(f"\n{data}")
        for figure in figures:
            if figure["data"] == data:
                print(f"  {figure['name']:<62} {figure['value']:>12,} {figure['unit']}")
    if options.record:
        record_all(figures)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What both benchmarks take."""
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, help="a file for the figures, written after each of them")
    parser.add_argument("--from", dest="source", type=Path, help="a file that --out wrote; nothing is run")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")


def command_of(parser: argparse.ArgumentParser, options: argparse.Namespace, *names: str) -> str:
    """As it was run, without paths of this machine and what does not matter to the figures."""
    words = [f"python benchmarks/{Path(parser.prog).name}"]
    for name in names:
        if (value := getattr(options, name)) != parser.get_default(name):
            values = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", *(shlex.quote(str(part)) for part in values)]
    return " ".join(words)


def now(device: torch.device) -> Any:
    """A moment on the device's own clock."""
    if device.type != "cuda":
        return time.perf_counter()
    return torch.cuda.current_stream().record_event(torch.cuda.Event(enable_timing=True))


def ms_between(begin: Any, end: Any) -> float:
    if isinstance(end, float):
        return 1e3 * (end - begin)
    end.synchronize()
    return float(begin.elapsed_time(end))


def median_ms(work: Callable[[], object], device: torch.device, repeats: int = 20) -> float:
    """Of one call, all of them queued one behind the other."""
    for _ in range(WARM_UP):
        work()
    moments = [now(device)]
    for _ in range(repeats):
        work()
        moments.append(now(device))
    return statistics.median(itertools.starmap(ms_between, itertools.pairwise(moments)))


def copy_rate(device: torch.device, num_bytes: int = COPIED) -> float:
    """Bytes read and written in a second by a copy on the device."""
    given = torch.empty(num_bytes if device.type == "cuda" else 1 << 26, dtype=torch.uint8, device=device)
    into = torch.empty_like(given)
    return 2 * given.nbytes / median_ms(lambda: into.copy_(given), device) * 1e3


# The graph and who computes on it.


def random_sample(nodes: int, draws: int, seed: int = 0) -> Sample:
    """Pairs of nodes drawn by their expected degrees, both ways, no loops and no repeats."""
    rng = np.random.default_rng(seed)
    weights = (np.arange(nodes) + 2.0) ** -EXPONENT
    bounds, ids = np.cumsum(weights / weights.sum()), rng.permutation(nodes)
    places = np.minimum(np.searchsorted(bounds, rng.random((2, draws))), nodes - 1)
    i, j = ids[places][:, places[0] != places[1]]
    keys = np.unique(np.concatenate([i * nodes + j, j * nodes + i]))
    degrees = np.bincount(keys // nodes, minlength=nodes)
    return Sample(
        node_ids=np.arange(nodes, dtype=np.int32),
        indptr=np.concatenate([[0], np.cumsum(degrees)]),
        indices=(keys % nodes).astype(np.int32),
        num_seeds=nodes,
        # Of the normalized Laplacian: at most 2.
        bounds=np.array([0.0, 2.0, 0.0, 2.0 * degrees.max()]),
    )


@cache
def csr_matrix(sample: Sample, device: torch.device, dtype: torch.dtype, ids: torch.dtype) -> Tensor:
    """D'^-1/2 (A + I) D'^-1/2."""
    n = sample.num_nodes
    rows, columns = sample.edge_index()
    keys = np.sort(np.concatenate([rows * n + columns, np.arange(n) * (n + 1)]))
    rows, columns = keys // n, keys % n
    degrees = np.diff(sample.indptr) + 1
    values = torch.from_numpy(1 / np.sqrt(degrees[rows] * degrees[columns].astype(np.float64)))
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(degrees)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = indptr.to(device, ids), torch.from_numpy(columns).to(device, ids), values.to(device, dtype)
        return torch.sparse_csr_tensor(*parts, (n, n))


class Symmetric(torch.autograd.Function):
    """A product with a symmetric matrix: the way back is the same product."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, Y: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix @ Y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix @ gradient


def sparse_steps(
    matrix: Tensor, gamma: float, Z: Tensor, mu: Means, *, form: str = "tuned", all_steps: bool = False
) -> Any:
    """Y <- relu((1 - a (1 + gamma + lambda)) Y + a lambda A^ Y + a (Z + gamma mu)).

    Tuned knows that the first term is 0 with this alpha, and leaves it out.
    """
    alpha = 1 / (1 + gamma + LAMBDA)
    Y, B, kept = Z, Z if mu is None else Z + gamma * mu, []
    for _ in range(STEPS):
        product = Symmetric.apply(matrix, Y) if form == "own backward" else matrix @ Y
        moved = alpha * LAMBDA * product + alpha * B
        if form == "plain":
            moved = (1 - alpha * (1 + gamma + LAMBDA)) * Y + moved
        Y = torch.relu(moved)
        kept.append(Y)
    return kept if all_steps else Y


SPARSE_FORMS = {"plain": "", "tuned": ", tuned", "own backward": ", own backward"}


class Contestant(NamedTuple):
    name: str
    dtype: torch.dtype
    forward: Pass
    num_seeds: int | None = None


def ours(sample: Sample, gamma: float, dtype: torch.dtype, form: str, steps: int = STEPS) -> Contestant:
    seeds = NUM_SEEDS if form == FORMS[-1] else None
    around = replace(sample, num_seeds=seeds or sample.num_nodes)

    def forward(Z: Tensor, mu: Means) -> Tensor:
        if form == "unfold":
            return musegnn.unfold(Z, sample, energy, steps, mu=mu)
        return unfold_seeds(Z, around, energy, steps, mu=mu, check=False)[0]

    energy = Energy(LAMBDA, gamma)
    return Contestant(f"musegnn {DTYPES[dtype]}, {form}", dtype, forward, seeds)


def peers(sample: Sample, gamma: float, device: torch.device, dim: int) -> Iterator[Contestant]:
    """Of float32 all forms, each with the faster ids; of bfloat16 what works."""
    forms = [(torch.float32, form) for form in SPARSE_FORMS] + [(torch.bfloat16, "tuned")]
    for dtype, form in forms:
        X = torch.randn(sample.num_nodes, dim, device=device).to(dtype).requires_grad_()
        name, found = f"torch.sparse {DTYPES[dtype]}{SPARSE_FORMS[form]}", {}
        for ids in (torch.int32, torch.int64):
            steps = partial(sparse_steps, csr_matrix(sample, device, dtype, ids), gamma, form=form)
            work = lambda: torch.autograd.grad(steps(X, None).sum(), X)  # noqa: B023, E731
            try:
                ms = median_ms(work, device, repeats=3)
                print(f"{name}, {ids}: {ms:.2f} ms", flush=True)
                found[ms] = steps
            except RuntimeError as error:
                print(f"{name}, {ids}: {str(error).splitlines()[0]}", flush=True)
        if found:
            yield Contestant(name, dtype, found[min(found)])


# What is measured.


class Inputs(NamedTuple):
    Z: Tensor
    mu: Means
    weight: Tensor  # dY

    @classmethod
    def of(cls, nodes: int, dim: int, gamma: float, device: torch.device) -> "Inputs":
        draw = partial(torch.randn, nodes, dim, device=device, generator=torch.Generator(device))
        return cls(draw(), draw() if gamma else None, draw())

    def to(self, dtype: torch.dtype, num_seeds: int | None = None) -> "Inputs":
        """Rounded; Z is what is differentiated."""
        mu = None if self.mu is None else self.mu.to(dtype)
        Z = self.Z.detach().to(dtype, copy=True).requires_grad_()
        return Inputs(Z, mu, self.weight[slice(num_seeds)].to(dtype))


def turns(contestants: list[Contestant], inputs: Inputs, repeats: int) -> dict[str, list[float]]:
    """Median ms of each: forward, and forward + backward."""
    given = {one.name: inputs.to(one.dtype, one.num_seeds) for one in contestants}
    device, moments = inputs.Z.device, {one.name: [] for one in contestants}
    for _ in range(WARM_UP + repeats):
        for one in contestants:
            Z, mu, weight = given[one.name]
            times = [now(device)]
            Y = one.forward(Z, mu)
            times.append(now(device))
            torch.autograd.grad(Y, Z, weight)
            moments[one.name].append([*times, now(device)])
            del Y

    def median(turns: list[list[Any]], part: int) -> float:
        return statistics.median(ms_between(turn[0], turn[part]) for turn in turns[WARM_UP:])

    return {name: [median(turns, 1), median(turns, 2)] for name, turns in moments.items()}


def extra_memory(one: Contestant, inputs: Inputs) -> int:
    """Bytes at the peak of one forward and backward pass, beyond matrix, inputs, Y and dZ."""
    Z, mu, weight = inputs.to(one.dtype, one.num_seeds)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    Y = one.forward(Z, mu)
    (gradient,) = torch.autograd.grad(Y, Z, weight)
    return torch.cuda.max_memory_allocated() - before - Y.nbytes - gradient.nbytes


def errors(one: Contestant, exact: Tensor, gamma: float, inputs: Inputs) -> list[float]:
    """Relative Frobenius errors of Y and of dZ."""
    Z, mu, weight = inputs.to(one.dtype, one.num_seeds)
    Y = one.forward(Z, mu)
    (gradient,) = torch.autograd.grad(Y, Z, weight)
    z = Z.detach().double().requires_grad_()
    expected = sparse_steps(exact, gamma, z, None if mu is None else mu.double())[: len(Y)]
    (back,) = torch.autograd.grad(expected, z, weight.double())
    pairs = (Y.detach(), expected.detach()), (gradient, back)
    return [float((found.double() - true).norm() / true.norm()) for found, true in pairs]


@torch.no_grad()
def flipped(sample: Sample, gamma: float, dtype: torch.dtype, exact: Tensor, inputs: Inputs) -> int:
    """Entries of the K masks that are not those of float64."""
    Z, mu, _ = inputs.to(dtype)
    expected = sparse_steps(exact, gamma, Z.double(), None if mu is None else mu.double(), all_steps=True)
    # The first of K steps are k steps, to the bit.
    return sum(
        int(((ours(sample, gamma, dtype, "unfold", k).forward(Z, mu) > 0) != (true > 0)).sum())
        for k, true in enumerate(expected, start=1)
    )


def one_step(sample: Sample, dim: int, dtype: torch.dtype, device: torch.device) -> float:
    """ms of one launch of the fused step, all rows."""
    X, B, out = (torch.randn(sample.num_nodes, dim, device=device).to(dtype) for _ in range(3))
    kernel = Energy(LAMBDA).on(sample, None, None, like=X.float()).fused()
    assert kernel is not None
    mask = kernel.mask(X)
    return median_ms(lambda: kernel.descend(X, B, out, mask, watch=False), device)


def measure(sample: Sample, dim: int, gamma: float, table: Table, options: argparse.Namespace) -> None:
    device = torch.device(options.device)
    size = f"n_s {sample.num_nodes / 1e3:.0f} k, {sample.num_entries / 1e6:.2f} M entries"
    data = f"{size}, hub of {np.diff(sample.indptr).max():,}, d {dim}, K {STEPS}, gamma {gamma:g}"
    inputs = Inputs.of(sample.num_nodes, dim, gamma, device)
    mine = [ours(sample, gamma, dtype, form) for dtype in DTYPES for form in FORMS]
    exact = csr_matrix(sample, device, torch.float64, torch.int64)
    for one in mine:
        for what, error in zip(("Y", "dZ"), errors(one, exact, gamma, inputs), strict=True):
            table.add(f"{one.name}: relative error of {what}", data, error, "Frobenius, against float64")
    for dtype in DTYPES:
        name, of = f"musegnn {DTYPES[dtype]}", f"of {STEPS * sample.num_nodes * dim / 1e9:.3g} G"
        count = flipped(sample, gamma, dtype, exact, inputs)
        table.add(f"{name}: entries of masks that differ", data, count, of)
    del exact
    others = list(peers(sample, gamma, device, dim))
    ms = turns([*mine, *others], inputs, options.repeats)
    for name, times in ms.items():
        for part, value in zip(("forward", "forward + backward"), times, strict=True):
            table.add(f"{name}: {part}", data, value, "ms")
    for one in mine:
        for other in (f"torch.sparse fp32{form}" for form in SPARSE_FORMS.values()):
            ratio = ms[other][1] / ms[one.name][1]
            table.add(f"{other} / {one.name}: forward + backward", data, ratio, "ratio of times")
    bandwidth(sample, dim, ms, data, table)
    if device.type == "cuda":
        memory([*mine, *others], inputs, data, table)


def bandwidth(sample: Sample, dim: int, ms: dict[str, list[float]], data: str, table: Table) -> None:
    """Rows gathered by one launch, and by the whole forward pass, next to a copy."""
    device = torch.device(table.device)
    ceiling = copy_rate(device)
    table.add("copy of 4 GiB: read and written", data, ceiling / 1e12, "TB/s")
    for dtype in DTYPES if device.type == "cuda" else (torch.float32,):
        gathered = sample.num_entries * dim * dtype.itemsize
        one, passes = one_step(sample, dim, dtype, device), f"musegnn {DTYPES[dtype]}, passes"
        table.add(f"musegnn {DTYPES[dtype]}, one step", data, one, "ms")
        for name, step_ms in ((f"musegnn {DTYPES[dtype]}, one step", one), (passes, ms[passes][0] / STEPS)):
            rate = gathered / step_ms * 1e3
            table.add(f"{name}: rows gathered", data, rate / 1e12, "TB/s")
            table.add(f"{name}: rows gathered / copy", data, rate / ceiling, "ratio of rates")


def memory(contestants: list[Contestant], inputs: Inputs, data: str, table: Table) -> None:
    extra = {one.name: extra_memory(one, inputs) for one in contestants}
    for name, num_bytes in extra.items():
        table.add(f"{name}: extra memory", data, num_bytes / 2**20, "MiB")
        if name.startswith("musegnn"):
            ratio = extra["torch.sparse fp32"] / num_bytes
            table.add(f"torch.sparse fp32 / {name}: extra memory", data, ratio, "ratio of bytes")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dims", nargs="+", type=int, default=[256, 512])
    parser.add_argument("--gammas", nargs="+", type=float, default=[0.0, 0.5])
    parser.add_argument("--nodes", type=int, default=NODES, help="entries in proportion")
    parser.add_argument("--repeats", type=int, default=20)
    add_options(parser)
    options = parser.parse_args()
    if options.source:
        return finish(options, json.loads(options.source.read_text()))
    table = Table(command_of(parser, options, "dims", "gammas", "nodes"), options.device, options.out)
    sample = random_sample(options.nodes, DRAWS * options.nodes // NODES)
    for dim in options.dims:
        for gamma in options.gammas:
            measure(sample, dim, gamma, table, options)
    finish(options, table.figures)


if __name__ == "__main__":
    main()
