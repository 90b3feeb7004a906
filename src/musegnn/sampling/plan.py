"""Everything that decides the bytes of a sample store, and an estimate of what it takes to draw it."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.graph.checks import SPLITS
from musegnn.sampling import layout
from musegnn.sampling.base import FreeSampler, Sampler, describe
from musegnn.sampling.draws import NO_SPLIT, Draws
from musegnn.sampling.sample_store import shard_name
from musegnn.store.arrays import dtype_name

SHARD_BYTES = 1 << 26
"""A shard is about this large: what a kill loses for each worker, and what a reader maps at once."""
MIN_SHARDS = 64
"""A split with as many samples has as many shards at the least, so that several workers end together."""
DISK_SPEED = 400e6
"""Bytes a second that an estimate takes for granted."""


class Plan:
    """What will be drawn. The first sample of each split is drawn at once, to choose the size of shards."""

    def __init__(
        self, graph: Graph, sampler: Sampler, splits: Sequence[str], *, batch_size: int, seed: int
    ) -> None:
        self.draws = {
            split: Draws(graph, sampler, split, batch_size=batch_size, seed=seed)
            for split in _distinct(splits)
        }
        for split, draws in self.draws.items():
            if draws.num_ids == 0:
                raise InputError(
                    f"{graph.name} has no nodes in the split {split!r}. Leave it out (--splits)."
                )
        self.first = {split: draws[0] for split, draws in self.draws.items()}
        self.attributes: dict[str, Any] = {
            "graph": graph.digest,
            "num_nodes": graph.num_nodes,
            "id_dtype": dtype_name(graph.indices.dtype),
            "sampler": describe(sampler),
            "contract": "free" if isinstance(sampler, FreeSampler) else "seeded",
            "seed": int(seed),
            "batch_size": 0 if isinstance(sampler, FreeSampler) else int(batch_size),
            # In one order, whatever order they were named in: the header is the same bytes.
            "splits": {split: self._split(split) for split in (*SPLITS, NO_SPLIT) if split in self.draws},
        }

    @property
    def num_samples(self) -> int:
        """Samples of all splits."""
        return sum(len(draws) for draws in self.draws.values())

    @property
    def num_bytes(self) -> int:
        """Bytes of the shards, if all samples are as large as the first of their split."""
        return sum(len(self.draws[split]) * layout.size_of(first) for split, first in self.first.items())

    def shards(self) -> Iterator[tuple[str, str, range]]:
        """Name, split and samples of each shard."""
        for split, draws in self.draws.items():
            size = self.attributes["splits"][split]["shard_size"]
            for number, begin in enumerate(range(0, len(draws), size)):
                yield shard_name(split, number), split, range(begin, min(begin + size, len(draws)))

    def _split(self, split: str) -> dict[str, int]:
        draws = self.draws[split]
        fitting = max(1, SHARD_BYTES // layout.size_of(self.first[split]))
        return {
            "num_nodes": draws.num_ids,
            "num_samples": len(draws),
            "shard_size": min(fitting, -(-len(draws) // MIN_SHARDS)),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """What drawing the samples of a split will take, from a few of them."""

    num_samples: int
    num_seeds: int
    """Nodes of the split."""
    mean_nodes: float
    mean_entries: float
    num_bytes: int
    seconds: float


def estimate(plan: Plan, *, workers: int, tries: int = 4) -> dict[str, Estimate]:
    """Draw a few samples of each split and say what all of them take; nothing is written."""
    estimates = {}
    for split, draws in plan.draws.items():
        # From the middle of as many equal parts: the last batch, which may be small, is not typical.
        indices = np.unique((np.arange(tries) + 0.5) * len(draws) // tries).astype(int).tolist()
        started = time.perf_counter()
        samples = [draws[index] for index in indices]
        seconds = (time.perf_counter() - started) / len(samples)
        num_bytes = int(np.mean([layout.size_of(sample) for sample in samples]) * len(draws))
        estimates[split] = Estimate(
            num_samples=len(draws),
            num_seeds=draws.num_ids,
            mean_nodes=float(np.mean([sample.num_nodes for sample in samples])),
            mean_entries=float(np.mean([sample.num_entries for sample in samples])),
            num_bytes=num_bytes,
            seconds=max(seconds * len(draws) / workers, num_bytes / DISK_SPEED),
        )
    return estimates


def _distinct(splits: Sequence[str]) -> list[str]:
    names = [splits] if isinstance(splits, str) else list(splits)
    if not names:
        raise InputError("splits is empty. Name at least one, for example splits=('train',).")
    return list(dict.fromkeys(names))
