"""Samples with their features and labels, read ahead by threads, in the order that was asked for."""

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from musegnn.errors import InputError
from musegnn.extras import has_triton
from musegnn.features.homes import Features
from musegnn.features.inputs import Inputs
from musegnn.graph import Graph
from musegnn.graph.relation import codes_of
from musegnn.ranks import ALONE, Ranks
from musegnn.sampling.record import Sample
from musegnn.sampling.sample_store import StoredSamples
from musegnn.sampling.sequence import Samples
from musegnn.training.profile import timer
from musegnn.unfolding.resident import Matrix, Resident, keep, prepared

AHEAD = 4
"""Batches in memory beside the one that is worked on, or two for each thread if that is more."""

_SWITCH = 2e-4
"""Seconds after which a thread gives way to another; 5e-3 in Python by itself."""


def default_threads(device: torch.device) -> int:
    """A GPU asks for 100 samples a second, which takes a few threads; a CPU has one to spare."""
    return min(8, os.cpu_count() or 1) if device.type == "cuda" else 1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """What a step needs of one sample."""

    index: int
    """Its number among the samples of its split."""
    sample: Sample
    node_ids: Integer[Tensor, " nodes"]
    """As the sample's, where the model is."""
    features: Float[Tensor, "nodes in_dim"]
    """And what else the model sees (`Inputs`)."""
    targets: Tensor
    """Of the seeds: class numbers, -1 where there is none; or 0 and 1 for each label, NaN where unknown."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Read:
    """A batch as a thread leaves it, in memory that the device can read by itself."""

    index: int
    sample: Sample
    node_ids: Integer[Tensor, " nodes"]
    rows: Tensor | None
    columns: Tensor | None
    targets: Tensor
    resident: list[tuple[Matrix, Resident]]


class Loader:
    """Reads batches with `threads` threads, never more than a few that nobody has asked for yet.

    What comes out depends on the order alone, not on the threads.
    """

    def __init__(
        self,
        samples: Samples,
        graph: Graph,
        targets: np.ndarray | None,
        *,
        threads: int = 1,
        device: torch.device | None = None,
        features: Features | None = None,
        counts_once: bool = False,
        relations: int = 0,
        matrices: Callable[[Sample], Sequence[Matrix]] | None = None,
        inputs: Inputs | None = None,
        fresh: Callable[[int], Samples] | None = None,
    ) -> None:
        if graph.features is None:
            raise InputError(f"{graph.name} has no features, which f needs. Import it with features.")
        self.samples, self.graph, self.targets = samples, graph, targets
        self.threads = threads
        self.device = device or torch.device("cpu")
        self.features = features or Features(graph.features, "mapped", self.device)
        self.counts_once = counts_once
        """Whether a seed that an earlier sample had is left out of the targets: for samplers that repeat."""
        self.relations = relations
        """How many relations samples tell; 0: they tell none."""
        self.matrices = matrices or (lambda sample: [sample])
        """What the model reads of a sample, which goes to a GPU ahead of it."""
        self.inputs = inputs or Inputs(graph, None)
        self.fresh = fresh
        """The samples of an epoch, where each epoch has its own."""
        self.waited = 0.0
        """Seconds that the caller waited for batches."""
        self._copies: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque(maxlen=1)

    def __len__(self) -> int:
        return len(self.samples)

    def copying(self) -> float | None:
        """Seconds of the last copy to the GPU, beside the steps; None without one."""
        for began, ended in self._copies:
            ended.synchronize()
            return float(began.elapsed_time(ended)) / 1e3
        return None

    def begin_epoch(self, epoch: int) -> None:
        """From now on the samples of this epoch."""
        if self.fresh is not None:
            self.samples = self.fresh(epoch)

    def batches(
        self, order: Sequence[int] | Integer[np.ndarray, " samples"], ranks: Ranks = ALONE
    ) -> Iterator[Batch]:
        """The batches of these samples, in this order; of several ranks each has its own share."""
        own = ranks.share(len(order))
        seen = np.zeros(self.graph.num_nodes, dtype=bool) if self.counts_once else None
        for place, batch in zip(own, self._moved(self._read_ahead([order[i] for i in own])), strict=True):
            if seen is None:
                yield batch
                continue
            # What the others have between the last one and this one is theirs.
            for i in range(max(place - ranks.size + 1, 0), place):
                seen[self.samples.sample(int(order[i])).seeds] = True
            yield _once(batch, seen)

    def first_row(self) -> Float[Tensor, "1 in_dim"]:
        """What the model sees of node 0."""
        node = np.zeros(1, dtype=np.int64)
        rows = self.features.rows(self.features.read(None, 0, node), torch.from_numpy(node).to(self.device))
        columns = torch.from_numpy(self.inputs.columns(node, 1)).to(self.device)
        return self.inputs.extend(rows, columns)

    def _read_ahead(self, order: Sequence[int] | Integer[np.ndarray, " samples"]) -> Iterator[_Read]:
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="musegnn-loader")
        waiting: deque[Future[_Read]] = deque()
        try:
            left = iter([int(index) for index in order])
            while True:
                while len(waiting) < max(AHEAD, 2 * self.threads) and (index := next(left, None)) is not None:
                    waiting.append(pool.submit(self._read, index))
                if not waiting:
                    return
                started = time.perf_counter()
                read = waiting.popleft().result()
                self.waited += time.perf_counter() - started
                yield read
        finally:
            # Not waited for: what nobody reads on may be closed by the garbage collector, in a thread that
            # holds the very locks that waiting for another takes.
            pool.shutdown(wait=False, cancel_futures=True)

    def _read(self, index: int) -> _Read:
        stored = self.samples.sample(index)
        # Copies: the model must not wait for the disk behind a mapped page.
        sample = Sample(
            node_ids=self._copy(stored.node_ids),
            indptr=self._copy(stored.indptr),
            indices=self._copy(stored.indices),
            num_seeds=stored.num_seeds,
            bounds=np.array(stored.bounds),
            relation=self._relation(stored) if self.relations else None,
        )
        split = self.samples.split if isinstance(self.samples, StoredSamples) else None
        targets = _targets(self.targets, sample.seeds)
        is_cuda = self.device.type == "cuda"
        return _Read(
            index=index,
            sample=sample,
            node_ids=torch.from_numpy(sample.node_ids),
            rows=self.features.read(split, index, sample.node_ids),
            columns=self._columns(sample),
            targets=targets.pin_memory() if is_cuda else targets,
            resident=self._prepare(sample) if is_cuda and has_triton() else [],
        )

    def _prepare(self, sample: Sample) -> list[tuple[Matrix, Resident]]:
        """Its matrices, in memory that the device can read by itself."""
        return [(matrix, prepared(matrix).pin_memory()) for matrix in dict.fromkeys(self.matrices(sample))]

    def _columns(self, sample: Sample) -> Tensor | None:
        if not self.inputs.width:
            return None
        columns = torch.from_numpy(self.inputs.columns(sample.node_ids, sample.num_seeds))
        return columns.pin_memory() if self.device.type == "cuda" else columns

    def _relation(self, sample: Sample) -> np.ndarray | None:
        return codes_of(self.graph, np.asarray(sample.node_ids), sample.indptr, sample.indices)

    def _copy(self, array: np.ndarray) -> np.ndarray:
        """In memory that a GPU reads by itself, if there is one."""
        if self.device.type != "cuda":
            return np.array(array)
        copy = torch.empty(array.shape, dtype=torch.from_numpy(array[:0].copy()).dtype, pin_memory=True)
        np.copyto(copy.numpy(), array)
        return copy.numpy()

    def _moved(self, batches: Iterator[_Read]) -> Iterator[Batch]:
        """Each batch is on its way to the device while the one before it is worked on."""
        if self.device.type != "cuda":
            yield from (self._move(read)[0] for read in batches)
            return
        # The thread that feeds the GPU gives way at each call of torch, and must not wait long to go on.
        interval = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)
        try:
            yield from self._copied_ahead(batches)
        finally:
            sys.setswitchinterval(interval)

    def _copied_ahead(self, batches: Iterator[_Read]) -> Iterator[Batch]:
        stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        waiting: deque[tuple[Batch, list[Tensor], torch.cuda.Event]] = deque()
        for read in batches:
            began, ended = timer(), timer()
            with torch.cuda.stream(stream):
                began.record()
                moved = self._move(read)
                ended.record()
            self._copies.append((began, ended))
            waiting.append((*moved, ended))
            if len(waiting) > 1:
                yield _handed_over(*waiting.popleft())
        while waiting:
            yield _handed_over(*waiting.popleft())

    def _move(self, read: _Read) -> tuple[Batch, list[Tensor]]:
        """A batch where the model is, and all tensors that belong to it."""
        node_ids = read.node_ids.to(self.device, non_blocking=True)
        targets = read.targets.to(self.device, non_blocking=True)
        features = self.features.rows(read.rows, node_ids)
        tensors = [node_ids, targets]
        if read.columns is not None:
            columns = read.columns.to(self.device, non_blocking=True)
            features = self.inputs.extend(features, columns)
            tensors.append(columns)
        tensors.append(features)
        for matrix, prepared_one in read.resident:
            resident = prepared_one.to(self.device, non_blocking=True)
            keep(matrix, resident)
            tensors += resident.tensors()
        batch = Batch(
            index=read.index, sample=read.sample, node_ids=node_ids, features=features, targets=targets
        )
        return batch, tensors


def _handed_over(batch: Batch, tensors: list[Tensor], event: torch.cuda.Event) -> Batch:
    """From the stream of the copies to that of the model."""
    stream = torch.cuda.current_stream(batch.features.device)
    stream.wait_event(event)
    for tensor in tensors:
        tensor.record_stream(stream)
    return batch


def _targets(targets: np.ndarray | None, seeds: Integer[np.ndarray, " seeds"]) -> Tensor:
    if targets is None:
        return torch.full((len(seeds),), -1)
    rows = np.array(targets[seeds])
    return torch.from_numpy(rows).float() if rows.ndim == 2 else torch.from_numpy(rows).long()


def _once(batch: Batch, seen: Bool[np.ndarray, " nodes"]) -> Batch:
    seeds = batch.sample.seeds
    targets = batch.targets.clone()
    targets[torch.from_numpy(seen[seeds]).to(targets.device)] = float("nan") if targets.ndim == 2 else -1
    seen[seeds] = True
    return replace(batch, targets=targets)
