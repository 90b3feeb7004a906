"""Samples on disk: tables of sizes and spectral bounds, and shards that are mapped when they are needed."""

import operator
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, overload

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer

from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph
from musegnn.graph.structure import check_structure
from musegnn.progress import progress
from musegnn.sampling import layout
from musegnn.sampling.draws import split_nodes
from musegnn.sampling.sample import Sample
from musegnn.store import StoredFolder

KIND = "samples"
MAX_MAPPED = 64
"""Shards of a split that stay mapped: each holds a file open."""


def shard_name(split: str, number: int) -> str:
    """The array that holds a shard."""
    return f"{split}_shard_{number:06d}"


class StoredSamples(Sequence[Sample]):
    """The samples of one split: `store["train"][i]` is a view of the mapped shard and copies nothing."""

    def __init__(self, stored: StoredFolder, split: str) -> None:
        plan = stored.header.attributes["splits"][split]
        self.split = split
        self.num_split_nodes: int = plan["num_nodes"]
        """How many nodes the split has in the graph; a free sampler may have missed some."""
        self._num_graph_nodes: int = stored.header.attributes["num_nodes"]
        self._num_samples: int = plan["num_samples"]
        self._shard_size: int = plan["shard_size"]
        self._id_dtype = np.dtype(stored.header.attributes["id_dtype"])
        self._sizes = stored.arrays[f"{split}_sizes"].view(np.ndarray)
        self._bounds = stored.arrays[f"{split}_bounds"].view(np.ndarray)
        self._folder = stored.folder
        self._shard = lru_cache(MAX_MAPPED)(lambda number: stored.map(shard_name(split, number)))

    @property
    def num_nodes(self) -> Int64[np.ndarray, " samples"]:
        """n_s of each sample."""
        return self._sizes[:, 1]

    @property
    def num_entries(self) -> Int64[np.ndarray, " samples"]:
        """Entries of each sample."""
        return self._sizes[:, 2]

    @property
    def num_seeds(self) -> Int64[np.ndarray, " samples"]:
        """Seeds of each sample."""
        return self._sizes[:, 3]

    @property
    def bounds(self) -> Float64[np.ndarray, "samples 4"]:
        """Spectral bounds of each sample, as in `Sample.bounds`."""
        return self._bounds

    def __len__(self) -> int:
        return self._num_samples

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        index = operator.index(index) % len(self)
        shard = self._shard(index // self._shard_size)
        sizes = layout.Sizes(*self._sizes[index].tolist())
        end = sizes.offset + layout.num_bytes(sizes.num_nodes, sizes.num_entries, self._id_dtype)
        if min(sizes) < 0 or sizes.num_seeds > sizes.num_nodes or end > len(shard):
            raise StoreError(
                f"{self._folder} is damaged: sample {index} of {self.split} does not fit its shard. "
                "Mend it by running `muse sample` as before."
            )
        return layout.read(shard, sizes, self._bounds[index], self._id_dtype)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def counted_once(self) -> Iterator[tuple[Sample, Bool[np.ndarray, " seeds"]]]:
        """Each sample with a mask of the seeds that no sample before it had: each node counts once."""
        seen = np.zeros(self._num_graph_nodes, dtype=bool)
        for sample in self:
            is_new = ~seen[sample.seeds]
            seen[sample.seeds] = True
            yield sample, is_new

    def num_uncovered(self) -> int:
        """How many nodes of the split are the seed of no sample; 0 for a seeded sampler."""
        return self.num_split_nodes - sum(int(is_new.sum()) for _, is_new in self.counted_once())

    def uncovered(self, graph: Graph) -> Integer[np.ndarray, " ids"]:
        """The nodes of the split that are the seed of no sample, ascending."""
        is_seed = np.zeros(graph.num_nodes, dtype=bool)
        for sample in self:
            is_seed[sample.seeds] = True
        ids = split_nodes(graph, self.split)
        missed: np.ndarray = ids[~is_seed[ids]]
        return missed


class SampleStore(Mapping[str, StoredSamples]):
    """Samples drawn once and stored: split -> its samples. Opening reads the header and maps, no more."""

    def __init__(self, stored: StoredFolder) -> None:
        self.stored = stored
        attributes = stored.header.attributes
        self.graph_digest: str = attributes["graph"]
        """The digest of the graph the samples were drawn from."""
        self.sampler: dict[str, Any] = attributes["sampler"]
        """Name and settings of the sampler."""
        self.is_free: bool = attributes["contract"] == "free"
        """Whether the sampler drew by itself: seeds may then repeat or be missed."""
        self.seed: int = attributes["seed"]
        self.batch_size: int = attributes["batch_size"]
        self.num_graph_nodes: int = attributes["num_nodes"]
        self._splits = {split: StoredSamples(stored, split) for split in attributes["splits"]}

    @classmethod
    def open(cls, folder: str | Path, *, graph: Graph | None = None) -> "SampleStore":
        """Map a sample store; with `graph`, samples of another graph are refused."""
        stored = StoredFolder(Path(folder), KIND, maps=lambda name: not is_shard(name))
        try:
            is_consistent = _is_consistent(stored)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StoreError(
                f"{stored.folder} is not a valid sample store ({error}). Draw it again."
            ) from error
        if not is_consistent:
            raise StoreError(f"{stored.folder} is damaged: its parts do not fit each other. Draw it again.")
        store = cls(stored)
        if graph is not None:
            store.check_graph(graph)
        return store

    def check_graph(self, graph: Graph) -> None:
        """Refuse samples of another graph."""
        if graph.digest != self.graph_digest:
            raise StoreError(
                f"{self.stored.folder} was drawn from the graph {self.graph_digest[:12]}, but {graph.name} "
                f"is {graph.digest[:12]}. Draw samples of this graph with `muse sample`."
            )

    @property
    def digest(self) -> str:
        """SHA-256 of the content: equal samples have an equal digest, whoever drew them."""
        return self.stored.header.digest

    def verify(self) -> None:
        """Read everything: digests against the header, then what must hold of each sample."""
        self.stored.verify()
        total = sum(len(samples) for samples in self.values())
        with progress("Checking samples", total, unit="samples") as advance:
            for split, samples in self.items():
                for i, sample in enumerate(samples):
                    try:
                        _check_sample(sample, self.num_graph_nodes)
                    except InputError as error:
                        raise StoreError(f"Sample {i} of {split} in {self.stored.folder}: {error}") from error
                    advance(1)

    def __getitem__(self, split: str) -> StoredSamples:
        if split not in self._splits:
            raise InputError(
                f"{self.stored.folder} has no samples of the split {split!r}; it has "
                f"{', '.join(self._splits)}. Draw them with `muse sample --splits`."
            )
        return self._splits[split]

    def __contains__(self, split: object) -> bool:
        return split in self._splits

    def __iter__(self) -> Iterator[str]:
        return iter(self._splits)

    def __len__(self) -> int:
        return len(self._splits)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{split}: {len(samples)}" for split, samples in self.items())
        return f"SampleStore({self.sampler['name']}, {sizes})"


def is_shard(name: str) -> bool:
    """Whether an array of the store is a shard."""
    return "_shard_" in name


def _is_consistent(stored: StoredFolder) -> bool:
    """Tables and shards are there and have their shapes; the values are `verify`'s."""
    attributes, arrays = stored.header.attributes, stored.header.arrays
    sampler, splits = attributes["sampler"], attributes["splits"]
    numbers = [attributes["num_nodes"], attributes["seed"], attributes["batch_size"]]
    for split, plan in splits.items():
        num_samples, shard_size = plan["num_samples"], plan["shard_size"]
        numbers += [plan["num_nodes"], num_samples, shard_size]
        if shard_size < 1 or any(
            (arrays[f"{split}_{table}"].shape, arrays[f"{split}_{table}"].dtype) != ((num_samples, 4), dtype)
            for table, dtype in (("sizes", "<i8"), ("bounds", "<f8"))
        ):
            return False
        shards = [shard_name(split, number) for number in range(-(-num_samples // shard_size))]
        if any(arrays[name].dtype != "<u1" or len(arrays[name].shape) != 1 for name in shards):
            return False
    return (
        all(type(number) is int for number in numbers)
        and isinstance(attributes["graph"], str)
        and isinstance(sampler["name"], str)
        and isinstance(sampler["settings"], dict)
        and attributes["id_dtype"] in ("<i4", "<i8")
        and attributes["contract"] in ("seeded", "free")
    )


def _check_sample(sample: Sample, num_nodes: int) -> None:
    """Ids in range, ascending among the seeds and among the others, none twice; A is an adjacency."""
    ids: Integer[np.ndarray, " nodes"] = sample.node_ids
    seeds, others = ids[: sample.num_seeds], ids[sample.num_seeds :]
    for part in (seeds, others):
        if len(part) and not (0 <= part[0] and part[-1] < num_nodes and bool((part[1:] > part[:-1]).all())):
            raise InputError("its node ids do not ascend or are no nodes of the graph.")
    if len(np.intersect1d(seeds, others, assume_unique=True)):
        raise InputError("a seed stands among the other nodes, too.")
    check_structure(sample.indptr, sample.indices)
