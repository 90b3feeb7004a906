"""What a descent step of each energy costs, next to the sums and products that it is made of.

    python benchmarks/energies.py [--device cuda] [--json FILE] [--record]
    python benchmarks/energies.py --from FILE [--record]

debian, which has two relations: one sample as training loads it (ShadowKHop, fanouts 10,5, 1000 seeds), and
the whole graph. A step is one of `unfold`, with the problem made beforehand. Its ingredients, on the same
matrices, in the same width and dtype, as plain functions that return a new tensor:

    predictive   for each relation and direction 2 sums over neighbors (`musegnn.unfolding.propagate.summed`:
                 along the relation and back) and 2 products X @ H; of rank r, 2 times X * h (a diagonal),
                 X @ U and the result @ V'; of rank 0, 2 times X * h
    relational   for each relation 2 sums and 3 products
    robust, paper    1 sum over the neighbors of the whole graph, without relations

    forward              time of a step / time of the ingredients
    forward + backward   time of `unfold` with K = 4 steps and of its gradients of Z and all that is learned
                         / K times the ingredients forward and backward (of X, and of H)

Step and ingredients take turns in one process; a figure is the median of its turns behind a warm-up: at least
two, at most `--repeats`, fewer where a turn is long. On a GPU it is the time between two events; on one core,
that of the process on its CPU, so that others do not count. What `unfold` looks at once (NaN, norms of H)
counts in the second. The robust energy computes in float32 what is given in bfloat16; its
ingredients are in bfloat16 all the same. Where a step takes seconds, on a CPU, backward is
measured of the predictive energy alone, and the whole graph with few channels only.

Memory is the peak of `unfold` and its gradients beyond inputs, result and gradients, in MiB and in matrices
of the shape and dtype of Y: on a GPU as torch counts it, on a CPU as the process has it (anonymous memory, of
a process of its own, in which what is freed is given back). Of the Y^k about 2 sqrt(K) are kept, all up to
K = 4, and with momentum twice as many; the rest is one step with its tape. The paper's energy keeps a bit for
each entry and step.

`--json` is written after each figure; `--from` takes the figures of such a file, of another machine. What
fails is told as it fails, and left out; nothing starts later than `--budget` seconds after the start.
"""

import argparse
import ctypes
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from gpu_propagate import Table, command_of, finish, ms_between, now
from measure import Peak
from torch import Tensor

import musegnn
from musegnn import Draws, Energy, Predictive, Relational, Robust, Sample, ShadowKHop, unfold
from musegnn.memory import anonymous_memory, keep_freed_memory
from musegnn.training.batches import Loader
from musegnn.unfolding import kernel
from musegnn.unfolding.acceleration import pace_of
from musegnn.unfolding.contract import AbstractEnergy
from musegnn.unfolding.propagate import propagate, summed
from musegnn.unfolding.subgraph import as_sample
from musegnn.unfolding.ties import ties

RELATIONS, STEPS, RANK, WARM_UP, LEAST = 2, 4, 16, 1, 2
ENOUGH = 2.0
"""Seconds of turns after which no further one is taken."""
DTYPES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
MEMORY_STEPS = (4, 8, 16)
LONG = 1 << 22
"""Entries of Y from which on a step takes a CPU seconds."""

ENERGIES: dict[str, Callable[[int], AbstractEnergy]] = {
    "predictive": lambda dim: Predictive(dim, RELATIONS),
    f"predictive, rank {RANK}": lambda dim: Predictive(dim, RELATIONS, rank=RANK),
    "predictive, rank 0": lambda dim: Predictive(dim, RELATIONS, rank=0),
    "predictive, momentum": lambda dim: Predictive(dim, RELATIONS, acceleration="momentum"),
    "relational": lambda dim: Relational(dim, RELATIONS),
    "robust": lambda dim: Robust(),
    "paper": lambda dim: Energy(),
}
REMEMBERED = ("predictive", "predictive, momentum", "robust", "paper")
"""Energies whose memory is measured."""

Work = Callable[[], object]


class Case(NamedTuple):
    """A subgraph and the rows on it."""

    data: str
    sample: Sample
    dim: int
    dtype: torch.dtype
    device: torch.device

    @property
    def label(self) -> str:
        return f"{self.data}, d {self.dim}, {DTYPES[self.dtype]}"

    @property
    def is_long(self) -> bool:
        return self.device.type == "cpu" and self.sample.num_nodes * self.dim > LONG

    def rows(self, seed: int) -> Tensor:
        made = torch.Generator(self.device).manual_seed(seed)
        drawn = torch.randn(self.sample.num_nodes, self.dim, device=self.device, generator=made)
        return drawn.to(self.dtype)

    def energy(self, name: str) -> AbstractEnergy:
        torch.manual_seed(0)
        return ENERGIES[name](self.dim).to(self.device)


# The step and what it is made of.


def step(case: Case, name: str) -> Work:
    """A step from one tensor to the next, as `unfold` takes it."""
    Y, Z, energy = case.rows(0), case.rows(1), case.energy(name)
    with torch.no_grad():
        problem = energy.on(case.sample, None, None, like=Z.float())
    fused = problem.fused()
    if fused is not None:
        out, mask = torch.empty_like(Y), fused.mask(Y)
        return lambda: fused.descend(Y, Z, out, mask, watch=False)
    dtype = Z.dtype if Z.dtype in problem.dtypes else torch.float32
    Y, Z, before = Y.to(dtype), Z.to(dtype), case.rows(2).to(dtype)
    with torch.no_grad():
        pace = pace_of(energy.on(case.sample, None, None, like=Z), energy.acceleration)
    return lambda: pace.step(2, Y, before, Z).to(dtype)


def passes(case: Case, name: str, steps: int = STEPS) -> Work:
    """K steps, and back."""
    Z, G, energy = case.rows(1).requires_grad_(), case.rows(2), case.energy(name)
    wanted = [Z, *energy.parameters()]
    return lambda: torch.autograd.grad(unfold(Z, case.sample, energy, steps), wanted, G)


def sums_of(case: Case, name: str) -> list[Callable[[Tensor], Tensor]]:
    """The sums over neighbors of one step."""
    if not name.startswith(("predictive", "relational")):
        return [partial(propagate, case.sample)]
    ways = [way for tie in ties(case.sample, RELATIONS) for way in (tie, tie.back)]
    return [partial(summed, *way) for way in ways] * (2 if name.startswith("predictive") else 1)


def matrices_of(case: Case, name: str) -> list[Tensor]:
    """The matrices of its products, a diagonal as a vector; one behind the other where a product is three."""
    draw = partial(torch.randn, device=case.device, dtype=case.dtype)
    counts = {"predictive": 4 * RELATIONS, "relational": 3 * RELATIONS}
    shapes: list[tuple[int, ...]] = [(case.dim, case.dim)]
    if "rank" in name:
        thin = [(case.dim, RANK), (RANK, case.dim)]
        shapes = [(case.dim,), *(thin if str(RANK) in name else [])]
    return [draw(*shape) for _ in range(counts.get(name.split(",")[0], 0)) for shape in shapes]


def ingredients(case: Case, name: str, *, back: bool) -> Work:
    """All of them, forward, or forward and backward."""
    X, sums, matrices = case.rows(3), sums_of(case, name), matrices_of(case, name)
    thin, G = X[:, :RANK].contiguous(), case.rows(4)
    if back:
        for part in (X, thin, *matrices):
            part.requires_grad_()

    def work() -> None:
        for add_up in sums:
            out = add_up(X)
            if back:
                torch.autograd.grad(out, X, G)
        for H in matrices:
            of = X if len(H) == case.dim else thin
            out = of @ H if H.ndim == 2 else of * H
            if back:
                torch.autograd.grad(out, [of, H], G[:, : out.shape[1]])

    return work


# Time.


def moment(device: torch.device) -> Any:
    return time.process_time() if torch.get_num_threads() == 1 and device.type == "cpu" else now(device)


def turns(works: dict[str, Work], device: torch.device, repeats: int) -> dict[str, float]:
    """Median ms of each, one after the other in every round."""
    moments: dict[str, list[tuple[Any, Any]]] = {name: [] for name in works}
    started = time.perf_counter()
    for turn in range(WARM_UP + repeats):
        for name, work in works.items():
            begin = moment(device)
            work()
            moments[name].append((begin, moment(device)))
        if turn >= WARM_UP + LEAST - 1 and time.perf_counter() - started > ENOUGH:
            break
    return {
        name: statistics.median(ms_between(*pair) for pair in pairs[WARM_UP:])
        for name, pairs in moments.items()
    }


def forward(case: Case, name: str, table: Table, repeats: int) -> None:
    with torch.no_grad():
        works = {"step": step(case, name), "parts": ingredients(case, name, back=False)}
        ms = turns(works, case.device, repeats)
    told(case, table, f"{name}: forward", ms["step"], ms["parts"])


def backward(case: Case, name: str, table: Table, repeats: int) -> None:
    works = {"steps": passes(case, name), "parts": ingredients(case, name, back=True)}
    ms = turns(works, case.device, repeats)
    told(case, table, f"{name}: forward + backward", ms["steps"] / STEPS, ms["parts"])


def told(case: Case, table: Table, what: str, step_ms: float, parts_ms: float) -> None:
    print(f"  {what}: a step takes {step_ms:.3g} ms, its ingredients {parts_ms:.3g} ms", flush=True)
    table.add(f"step / its sums and products, {what}", case.label, step_ms / parts_ms, "ratio of times")
    table.add(f"step, {what}", case.label, step_ms, "ms")


# Memory.


def gpu_memory(case: Case, name: str, steps: int) -> float:
    """Bytes at the peak of one forward and backward pass, beyond inputs, result and gradients."""
    work = passes(case, name, steps)
    # What is freed on the way would count against it.
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    gradients = work()
    return torch.cuda.max_memory_allocated() - before - results(case, gradients)


def cpu_memory(case: Case, name: str, steps: int) -> float:
    """The same in this process, whose C library gives back what is freed at once."""
    # Compiled kernels and what is kept of the sample are there before memory is looked at.
    passes(case._replace(dim=8), name, 1)()
    work, gradients = passes(case, name, steps), None
    kernel._SPARE.clear()
    gc.collect()
    before, started = anonymous_memory(), time.perf_counter()
    with Peak() as peak:
        # Memory is looked at now and then: a short pass is made more than once.
        while gradients is None or time.perf_counter() - started < 1:
            gradients = None
            gradients = work()
    return peak.bytes - before - results(case, gradients)


def results(case: Case, gradients: Any) -> float:
    """Bytes of Y and of all gradients."""
    return case.sample.num_nodes * case.dim * case.dtype.itemsize + sum(part.nbytes for part in gradients)


def remembered(case: Case, name: str, table: Table) -> None:
    if case.device.type == "cuda":
        found = [gpu_memory(case, name, steps) for steps in MEMORY_STEPS]
    else:
        command = [sys.executable, __file__, "--call", json.dumps([name, case.dim])]
        found = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    for steps, num_bytes in zip(MEMORY_STEPS, found, strict=True):
        rows = num_bytes / (case.sample.num_nodes * case.dim * case.dtype.itemsize)
        table.add(f"extra memory, {name}, K {steps}", case.label, num_bytes / 2**20, "MiB")
        table.add(f"extra memory / Y, {name}, K {steps}", case.label, rows, "ratio of bytes")


def called(name: str, dim: int) -> list[float]:
    """In a process of its own."""
    torch.set_num_threads(1)
    # Blocks from 64 kB on are the system's, and go back to it.
    ctypes.CDLL(None).mallopt(-3, 1 << 16)
    cpu = torch.device("cpu")
    case = Case("", loaded(cpu), dim, torch.float32, cpu)
    return [cpu_memory(case, name, steps) for steps in MEMORY_STEPS]


# What is measured.


def loaded(device: torch.device) -> Sample:
    """A sample of debian as training has it."""
    graph = musegnn.datasets.load("debian")
    draws = Draws(graph, ShadowKHop([10, 5]), "train", batch_size=1000)
    loader = Loader(draws, graph, graph.labels, relations=RELATIONS, device=device)
    return next(iter(loader.batches([0]))).sample


def subgraphs(device: torch.device) -> Iterator[tuple[str, Sample]]:
    graph = musegnn.datasets.load("debian")
    for name, sample in (("a sample", loaded(device)), ("whole", as_sample(graph, graph.num_nodes))):
        size = f"n {sample.num_nodes / 1e3:.0f} k, {sample.num_entries / 1e6:.2f} M entries"
        where = f", {torch.get_num_threads()} threads" if device.type == "cpu" else ""
        yield f"debian, {name}, {size}{where}", sample


def cases(options: argparse.Namespace) -> Iterator[Case]:
    device = torch.device(options.device)
    for data, sample in subgraphs(device):
        for dim in options.dims:
            if device.type == "cpu" and "whole" in data and dim > min(options.dims):
                continue
            for dtype in DTYPES if device.type == "cuda" else (torch.float32,):
                yield Case(data, sample, dim, dtype, device)


def works_of(case: Case, name: str, options: argparse.Namespace) -> Iterator[Callable[..., None]]:
    yield partial(forward, repeats=options.repeats)
    if not case.is_long or name == "predictive":
        yield partial(backward, repeats=options.repeats)
    if name in REMEMBERED and (case.device.type == "cuda" or not case.is_long):
        yield remembered


def tried(work: Callable[..., None], case: Case, name: str, table: Table) -> None:
    """A failure is told; the rest goes on."""
    try:
        work(case, name, table)
    except Exception as error:
        what = str(error).splitlines() or [""]
        print(f"  FAILED {name}, {case.label}: {type(error).__name__}: {what[0]}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--call"]:
        return print(json.dumps(called(*json.loads(sys.argv[2]))))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dims", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--energies", nargs="+", choices=ENERGIES, default=list(ENERGIES), metavar="NAME")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1, help="of a CPU")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds; nothing starts later")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", dest="out", type=Path, help="a file for the figures, written after each")
    parser.add_argument("--from", dest="source", type=Path, help="a file that --json wrote; nothing is run")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    if options.source:
        return finish(options, json.loads(options.source.read_text()))
    torch.set_num_threads(options.threads)
    keep_freed_memory()
    names = "dims", "energies", "threads", "device"
    table = Table(command_of(parser, options, *names), options.device, options.out)
    ends = time.monotonic() + options.budget
    for case in cases(options):
        for name in options.energies:
            for work in works_of(case, name, options):
                if time.monotonic() < ends:
                    tried(work, case, name, table)
                else:
                    print(f"  NOT RUN {name}, {case.label}: no time left", flush=True)
    finish(options, table.figures)


if __name__ == "__main__":
    main()
