"""Samples with their features and labels, read ahead by threads, in the order that was asked for."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor

from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.sampling.sequence import Samples

AHEAD = 4
"""Batches in memory beside the one that is worked on, or two for each thread if that is more."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Batch:
    """What a step needs of one sample."""

    index: int
    """Its number among the samples of its split."""
    sample: Sample
    features: Float[Tensor, "nodes in_dim"]
    targets: Tensor
    """Of the seeds: class numbers, -1 where there is none; or 0 and 1 for each label, NaN where unknown."""


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
        counts_once: bool = False,
        fresh: Callable[[int], Samples] | None = None,
    ) -> None:
        if graph.features is None:
            raise InputError(f"{graph.name} has no features, which f needs. Import it with features.")
        self.samples, self.graph, self.targets = samples, graph, targets
        self.threads = threads
        self.device = device or torch.device("cpu")
        self.counts_once = counts_once
        """Whether a seed that an earlier sample had is left out of the targets: for samplers that repeat."""
        self.fresh = fresh
        """The samples of an epoch, where each epoch has its own."""
        self.waited = 0.0
        """Seconds that the caller waited for batches."""

    def __len__(self) -> int:
        return len(self.samples)

    def begin_epoch(self, epoch: int) -> None:
        """From now on the samples of this epoch."""
        if self.fresh is not None:
            self.samples = self.fresh(epoch)

    def batches(self, order: Sequence[int] | Integer[np.ndarray, " samples"]) -> Iterator[Batch]:
        """The batches of these samples, in this order."""
        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="musegnn-loader")
        waiting: deque[Future[Batch]] = deque()
        seen = np.zeros(self.graph.num_nodes, dtype=bool) if self.counts_once else None
        try:
            left = iter([int(index) for index in order])
            while True:
                while len(waiting) < max(AHEAD, 2 * self.threads) and (index := next(left, None)) is not None:
                    waiting.append(pool.submit(self._read, index))
                if not waiting:
                    return
                started = time.perf_counter()
                batch = waiting.popleft().result()
                self.waited += time.perf_counter() - started
                yield batch if seen is None else _once(batch, seen)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _read(self, index: int) -> Batch:
        stored = self.samples.sample(index)
        # Copies: the model must not wait for the disk behind a mapped page.
        sample = Sample(
            node_ids=np.array(stored.node_ids),
            indptr=np.array(stored.indptr),
            indices=np.array(stored.indices),
            num_seeds=stored.num_seeds,
            bounds=np.array(stored.bounds),
        )
        return Batch(
            index=index,
            sample=sample,
            features=self._pinned(gather_rows(self.graph.features, sample.node_ids)),
            targets=self._pinned(_targets(self.targets, sample.seeds)),
        )

    def _pinned(self, tensor: Tensor) -> Tensor:
        return tensor.pin_memory() if self.device.type == "cuda" else tensor


def gather_rows(
    features: np.ndarray | None, node_ids: Integer[np.ndarray, " nodes"]
) -> Float[Tensor, "nodes in_dim"]:
    """Rows of the features, in float32. `take` lets other threads run while the disk is read."""
    assert features is not None
    rows = np.empty((len(node_ids), features.shape[1]), dtype=features.dtype)
    np.take(features, node_ids, axis=0, out=rows, mode="clip")
    return torch.from_numpy(rows).float()


def _targets(targets: np.ndarray | None, seeds: Integer[np.ndarray, " seeds"]) -> Tensor:
    if targets is None:
        return torch.full((len(seeds),), -1)
    rows = np.array(targets[seeds])
    return torch.from_numpy(rows).float() if rows.ndim == 2 else torch.from_numpy(rows).long()


def _once(batch: Batch, seen: Bool[np.ndarray, " nodes"]) -> Batch:
    seeds = batch.sample.seeds
    targets = batch.targets.clone()
    targets[torch.from_numpy(seen[seeds])] = float("nan") if targets.ndim == 2 else -1
    seen[seeds] = True
    return Batch(index=batch.index, sample=batch.sample, features=batch.features, targets=targets)
