"""Descent on a whole graph, in mapped files: for graphs whose embeddings do not fit in memory.

A step treats all columns alike, and apart from each other. So the columns are cut into bands: f fills all of
them, a block of rows at a time, and then each band does its K steps. The rows of neighbors come from a band,
which stays in memory; those of all columns at once would come from the disk, for each edge anew.
"""

import warnings
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Float32
from torch import Tensor, nn

from musegnn.errors import DivergenceError, InputError
from musegnn.features.inputs import Inputs
from musegnn.graph import Graph
from musegnn.inference import scratch
from musegnn.inference.certificate import FILES, Certificate
from musegnn.inference.scratch import Numbers, blocks
from musegnn.means import MeanEmbeddings
from musegnn.means.sharded import MappedShares
from musegnn.memory import total_memory
from musegnn.models import MLP, MuseGNN
from musegnn.progress import progress
from musegnn.sampling.record import Sample
from musegnn.unfolding import AbstractEnergy, AbstractProblem, unfold
from musegnn.unfolding.checks import check_rows
from musegnn.unfolding.contract import Seen
from musegnn.unfolding.kernel import CpuKernel
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.subgraph import as_sample

Unseen = Literal["zero", "mask"]
Band = tuple[int, int]
"""Columns from the first to before the last."""

RESULT = "embeddings.bin"
"""The rows of Y, raw float32, if they are kept."""
_BLOCK_BYTES = 1 << 25
"""Of a block of rows."""
_IN_MEMORY, _IN_MEMORY_WITH_BOUND = 6, 24
"""How many times Y unfolding in memory takes; the bound is computed in float64."""


WholeMeans = MeanEmbeddings | MappedShares


@dataclass(frozen=True)
class Embeddings:
    """Y^(K) of all nodes of a graph."""

    Y: Rows
    """Mapped; unless it is kept, the file goes with the tensor."""
    alpha: float
    error_bound: float | None = None
    """At least |Y - Y*|_F, if asked for; inf if there were no steps."""
    path: Path | None = None
    """The file, if it is kept."""


def embed_graph(
    model: MuseGNN,
    graph: Graph,
    means: WholeMeans | None,
    folder: Path,
    *,
    unseen: Unseen = "zero",
    inputs: Inputs | None = None,
    block_rows: int | None = None,
    bound: bool = False,
    keep: bool = False,
) -> Embeddings:
    """Y^(K) of all nodes, as `model.embed(graph, ...)` computes it, but with Y in mapped files.

        Z = f(X),   B = Z + gamma M,   Y^0 = Z,   Y^k = prox(Y^{k-1} - a (H Y^{k-1} - B))

    Memory is taken for a block of rows and for some columns of a number a node, whatever d is. At most three
    times Y lies in `folder` (six with the bound), in files without a name, of which a kill leaves nothing.
    An energy without a kernel (`AbstractProblem.fused`) is unfolded in memory, if it fits.

    Args:
        model: f runs in evaluation mode, where its parameters are; the steps are the CPU's.
        graph: With features; mapped or not.
        means: M; None if gamma is 0.
        folder: An existing one, for the files.
        unseen: Nodes without an embedding so far are drawn to 0 ("zero", the paper), or not drawn ("mask").
        inputs: What f sees beside the features; here also the classes of training nodes themselves.
        block_rows: Rows of a block; 32 MiB of them unless given.
        bound: Also bound |Y - Y*|_F; costs a few passes more, in float64.
        keep: Leave the result in `folder`, as `embeddings.bin`.
    """
    whole = _whole(model, graph, means, unseen, inputs or Inputs(graph, None), block_rows)
    # Shapes are looked at, not numbers: Z and mu come in blocks.
    nothing = torch.zeros(()).expand(whole.shape)
    problem = whole.problem(nothing, None if means is None else nothing)
    is_alone = len(whole.energy.stages(model.steps)) == 1
    kernel, bands = problem.fused() if is_alone else None, _bands(*whole.shape)
    if isinstance(kernel, CpuKernel):
        columns = 2 * whole.dim + _widest(bands) + (2 * FILES * _half(bands) if bound else 0)
    else:
        _check_memory(whole, _IN_MEMORY_WITH_BOUND if bound else _IN_MEMORY)
        columns = whole.dim
    scratch.check_free(folder, whole.num_nodes * columns, f"Embedding {whole.name}")
    kept = folder / RESULT if keep else None
    with scratch.result(folder, whole.num_nodes * whole.dim, kept) as numbers:
        Y = numbers.view(whole.shape)
        if isinstance(kernel, CpuKernel):
            watch = None if problem.is_proven else _Watch(whole, problem)
            certificate = _certificate(whole, folder, _half(bands)) if bound and model.steps else None
            _descend(whole, kernel, bands, folder, numbers, watch, certificate)
            error_bound = inf if certificate is None else certificate.error_bound
        else:
            error_bound = _unfold(whole, Y, bound)
    return Embeddings(Y, problem.alpha, error_bound if bound else None, kept)


def scores_of(
    model: MuseGNN,
    Y: Rows,
    device: torch.device | str | None = None,
    block_rows: int | None = None,
) -> Iterator[tuple[int, Float32[Tensor, "rows out_dim"]]]:
    """g of all rows, block by block: the first row of a block, and its logits, in host memory."""
    for rows in blocks(len(Y), _rows_of_a_block(Y.shape[1], block_rows)):
        yield rows.start, _apply(model.g, Y[rows], device)


@dataclass(frozen=True)
class _Whole:
    """An energy on all nodes, and where its rows come from."""

    model: MuseGNN
    name: str
    features: Float[np.ndarray, "nodes in_dim"]
    inputs: Inputs
    sample: Sample
    energy: AbstractEnergy
    """The model's, with nothing to be learned."""
    means: WholeMeans | None
    seen: Seen | None
    dim: int
    block_rows: int

    @property
    def num_nodes(self) -> int:
        return len(self.features)

    @property
    def shape(self) -> tuple[int, int]:
        return self.num_nodes, self.dim

    def problem(self, like: Rows, mu: Rows | None) -> AbstractProblem:
        return self.energy.on(self.sample, mu, self.seen, like=like, alpha=self.model.alpha)

    def blocks(self) -> Iterator[slice]:
        return blocks(self.num_nodes, self.block_rows)

    def start(self, rows: slice) -> Rows:
        """Z."""
        return _apply(self.model.f, _seen(self.features, self.inputs, rows))

    def mu(self, rows: slice) -> Rows | None:
        ids = torch.arange(rows.start, rows.stop)
        return None if self.means is None else self.means.gather(ids, "cpu").float()


def _whole(
    model: MuseGNN,
    graph: Graph,
    means: WholeMeans | None,
    unseen: Unseen,
    inputs: Inputs,
    block_rows: int | None,
) -> _Whole:
    if unseen not in ("zero", "mask"):
        raise InputError(f"unseen must be 'zero' or 'mask', got {unseen!r}.")
    if graph.features is None:
        raise InputError(f"{graph.name} has no features, but f needs them. Import it with features.")
    n, in_dim = graph.features.shape
    if isinstance(model.f, MLP) and model.f.widths[0] != in_dim + inputs.width:
        raise InputError(
            f"{graph.name} has {in_dim} features a node and {inputs.width} inputs more, but the model takes "
            f"{model.f.widths[0]}. Pass a graph with the features it was trained on, and its `inputs`."
        )
    sample = as_sample(graph, n)
    dim = _apply(model.f, _seen(graph.features, inputs, slice(0, 1))).shape[1]
    if means is not None and means.shape != (n, dim):
        raise InputError(
            f"{graph.name} has embeddings of shape {(n, dim)}, but the means have {means.shape}. "
            "Pass the means of this graph and this model."
        )
    return _Whole(
        model=model,
        name=graph.name,
        features=graph.features,
        inputs=inputs,
        sample=sample,
        energy=deepcopy(model.energy).cpu().requires_grad_(False),
        means=means,
        seen=None if means is None or unseen == "zero" else means.seen(np.arange(n), "cpu"),
        dim=dim,
        block_rows=_rows_of_a_block(max(in_dim, dim), block_rows),
    )


def _descend(
    whole: _Whole,
    kernel: CpuKernel,
    bands: list[Band],
    folder: Path,
    numbers: Numbers,
    watch: "_Watch | None",
    certificate: Certificate | None,
) -> None:
    """K steps in each band.

    One file has B, then Y^K; `numbers` has Z, every other Y^k, then Y^K row by row; a third has the others.
    """
    n, steps = whole.num_nodes, whole.model.steps
    targets = _cut(scratch.numbers(folder, n * whole.dim), n, bands)
    starts, spare = _cut(numbers, n, bands), scratch.numbers(folder, n * _widest(bands))
    _fill(whole, kernel, bands, targets, starts, watch)
    with progress("Descending", steps * n * len(bands), "rows") as advance:
        for B, Y in zip(targets, starts, strict=True):
            U = spare[: B.numel()].view(B.shape)
            for k in range(steps):
                U, Y = Y, U
                energy = kernel.descend(U, B, Y, None, watch=watch is not None)
                if watch is not None:
                    watch.energies[k] += energy
                advance(n)
            _check_finite(whole, Y)
            if certificate is not None:
                certificate.add(B, U, Y)
            if watch is not None:
                watch.energies[steps] += kernel.descend(Y, B, U, None, watch=True)
            B.copy_(Y)
    if watch is not None:
        watch.check()
    for rows in whole.blocks():
        numbers.view(whole.shape)[rows] = torch.cat([band[rows] for band in targets], dim=1)


def _fill(
    whole: _Whole,
    kernel: CpuKernel,
    bands: list[Band],
    targets: list[Tensor],
    starts: list[Tensor],
    watch: "_Watch | None",
) -> None:
    """B = Z + gamma mu and Z, all columns of some rows at a time."""
    gamma = torch.as_tensor(kernel.gamma, dtype=torch.float32).expand(whole.num_nodes, 1)
    is_drawn = bool(gamma.any())
    with progress("Applying f", whole.num_nodes, "rows") as advance:
        for rows in whole.blocks():
            Z = whole.start(rows)
            mu = whole.mu(rows) if is_drawn else None
            check_rows(Z, mu=mu)
            B = Z if mu is None else torch.addcmul(Z, gamma[rows], mu)
            if watch is not None:
                watch.see(Z, B)
            for (first, last), target, start in zip(bands, targets, starts, strict=True):
                target[rows], start[rows] = B[:, first:last], Z[:, first:last]
            advance(len(Z))


class _Watch:
    """The energies of all bands together, where the step size is not known to descend."""

    def __init__(self, whole: _Whole, problem: AbstractProblem) -> None:
        self.energies = [0.0] * (whole.model.steps + 1)
        """E(Y^0), ..., E(Y^K), up to a constant."""
        self._problem, self._size, self._is_inside = problem, 0.0, True
        warnings.warn(
            f"alpha={problem.alpha:g} is larger than what is known to descend for {whole.energy}. "
            "The energy is watched; alpha='auto' descends for certain.",
            stacklevel=3,
        )

    def see(self, Z: Rows, B: Rows) -> None:
        """Some rows of the start and the target."""
        problem = self._problem
        self._is_inside &= bool(torch.isfinite(problem.penalty.value(Z)))
        self._size += problem.sigma * float(Z.square().sum() + (B / problem.tau).square().sum())

    def check(self) -> None:
        """As `unfold` does: a Y^0 outside the penalty has no energy; a rise below what is rounded is none."""
        first = 0 if self._is_inside else 1
        values = torch.tensor(self.energies[first:], dtype=torch.float64)
        slack = 8 * torch.finfo(torch.float32).eps * (values[:-1].abs().cummax(0).values + self._size)
        rises = torch.nonzero(values[1:] > values[:-1] + slack)
        if len(rises):
            step = first + int(rises[0]) + 1
            raise DivergenceError(
                f"The energy rises at step {step}: alpha={self._problem.alpha:g} is too large for this "
                "graph. Take alpha='auto', which descends for certain.",
                step=step,
            )


def _unfold(whole: _Whole, out: Rows, bound: bool) -> float:
    """In memory, where there is no kernel; the bound, if asked for."""
    for rows in whole.blocks():
        out[rows] = whole.start(rows)
    mu = whole.mu(slice(0, whole.num_nodes))
    settings = whole.sample, whole.energy, whole.model.steps, whole.model.alpha, mu
    with torch.no_grad():
        if not bound:
            out.copy_(unfold(out, *settings, seen=whole.seen))
            return inf
        trace = unfold(out, *settings, trace=True, seen=whole.seen)
        out.copy_(trace.Y)
        return trace.error_bound


def _bands(num_nodes: int, dim: int) -> list[Band]:
    """Columns that go together: as many as keep their B, Y^{k-1} and Y^k in half of the memory."""
    fitting = max(1, total_memory() // 2 // (3 * scratch.ITEM_BYTES * num_nodes))
    width = -(-dim // -(-dim // fitting))
    return [(first, min(first + width, dim)) for first in range(0, dim, width)]


def _widest(bands: list[Band]) -> int:
    return max(last - first for first, last in bands)


def _half(bands: list[Band]) -> int:
    """Columns of the bound: in float64, they take what a band takes."""
    return -(-_widest(bands) // 2)


def _certificate(whole: _Whole, folder: Path, width: int) -> Certificate:
    settings = whole.energy, whole.sample, whole.seen, whole.model.alpha
    return Certificate(*settings, folder=folder, width=width, block_rows=whole.block_rows)


def _cut(numbers: Numbers, num_nodes: int, bands: list[Band]) -> list[Tensor]:
    """The bands of a file: one behind the other, each row by row."""
    return [numbers[num_nodes * first : num_nodes * last].view(num_nodes, -1) for first, last in bands]


def _rows_of_a_block(dim: int, block_rows: int | None) -> int:
    if block_rows is None:
        return max(1, _BLOCK_BYTES // (scratch.ITEM_BYTES * dim))
    if block_rows < 1:
        raise InputError(f"block_rows must be 1 or more, got {block_rows}.")
    return block_rows


def _seen(features: np.ndarray, inputs: Inputs, rows: slice) -> Tensor:
    """What f sees of some nodes."""
    # A copy: those of a stored graph are read-only, which torch does not know.
    some = torch.from_numpy(np.array(features[rows])).float()
    if not inputs.width:
        return some
    columns = inputs.columns(np.arange(rows.start, rows.start + len(some)), num_seeds=0)
    return inputs.extend(some, torch.from_numpy(columns))


def _apply(module: nn.Module, rows: Tensor, device: torch.device | str | None = None) -> Rows:
    """A module in evaluation mode, where its parameters are unless told; what it gives, in host memory."""
    like = next(module.parameters(), torch.empty(0))
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            result: Tensor = module(rows.to(like.device if device is None else device, like.dtype))
            return result.to("cpu", torch.float32)
    finally:
        for part, mode in modes:
            part.training = mode


def _check_finite(whole: _Whole, Y: Rows) -> None:
    # In float64 the sum of finite numbers is finite.
    if not all(bool(Y[rows].double().sum().isfinite()) for rows in whole.blocks()):
        raise DivergenceError(
            f"The embeddings of {whole.name} are not finite after {whole.model.steps} steps. "
            "Take alpha='auto', or scale the features down.",
            step=whole.model.steps,
        )


def _check_memory(whole: _Whole, matrices: int) -> None:
    needed, half = matrices * scratch.ITEM_BYTES * whole.num_nodes * whole.dim, total_memory() // 2
    if needed > half:
        raise InputError(
            f"The steps of this energy are done in memory: {whole.name} takes {needed / 1e9:.3g} GB, but "
            f"half of the memory is {half / 1e9:.3g} GB. Take prox='relu', or stored samples."
        )
