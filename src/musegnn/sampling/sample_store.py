"""Samples on disk: tables of sizes and spectral bounds, and shards that are mapped when they are needed."""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, Integer

from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph
from musegnn.graph.structure import check_structure
from musegnn.ops import MAX_NODES
from musegnn.progress import progress
from musegnn.sampling import layout
from musegnn.sampling.draws import check_split, split_nodes
from musegnn.sampling.record import Sample
from musegnn.sampling.sequence import Samples
from musegnn.store import ArraySpec, StoredFolder

KIND = "samples"
_SHARD = re.compile(r"_shard_\d{6,}$")
_NAME = re.compile(r"[\w.]{1,200}")
MAX_MAPPED = 64
"""Shards of a split that stay mapped: each holds a file open."""


def shard_name(split: str, number: int) -> str:
    """The array that holds a shard."""
    return f"{split}_shard_{number:06d}"


def _mapper(stored: StoredFolder, split: str) -> Callable[[int], np.ndarray]:
    """Maps a shard by its number; the first time, its bytes are compared with its digest."""
    checked = set()

    def map_shard(number: int) -> np.ndarray:
        name = shard_name(split, number)
        if number not in checked:
            # Each thread that reads ahead hashes for itself.
            stored.verify({name}, threads=1, shown=False)
            checked.add(number)
        return stored.map(name)

    return map_shard


class StoredSamples(Samples):
    """The samples of one split: `store["train"][i]` is a view of the mapped shard and copies nothing.

    A shard is compared with its digest when it is mapped for the first time: damage is found, not used.
    """

    def __init__(self, stored: StoredFolder, split: str) -> None:
        attributes = stored.header.attributes
        plan = attributes["splits"][split]
        self.split = split
        self.num_split_nodes: int = plan["num_nodes"]
        """How many nodes the split has in the graph; a free sampler may have missed some."""
        self._stored = stored
        self._graph_digest: str = attributes["graph"]
        self._num_graph_nodes: int = attributes["num_nodes"]
        self._num_samples: int = plan["num_samples"]
        self._shard_size: int = plan["shard_size"]
        self._id_dtype = np.dtype(attributes["id_dtype"])
        self._sizes = stored.arrays[f"{split}_sizes"].view(np.ndarray)
        self._bounds = stored.arrays[f"{split}_bounds"].view(np.ndarray)
        self._shard = lru_cache(MAX_MAPPED)(_mapper(stored, split))

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

    def sample(self, index: int) -> Sample:
        """One sample, where it lies."""
        shard = self._shard(index // self._shard_size)
        sizes = layout.Sizes(*self._sizes[index].tolist())
        end = sizes.offset + layout.num_bytes(sizes.num_nodes, sizes.num_entries, self._id_dtype)
        if min(sizes) < 0 or sizes.num_seeds > sizes.num_nodes or end > len(shard):
            raise StoreError(
                f"{self._stored.folder} is damaged: sample {index} of {self.split} does not fit its shard. "
                "Mend it by running `muse sample` as before."
            )
        return layout.read(shard, sizes, self._bounds[index], self._id_dtype)

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
        check_graph(self._stored.folder, self._graph_digest, graph)
        is_seed = np.zeros(graph.num_nodes, dtype=bool)
        for sample in self:
            is_seed[sample.seeds] = True
        ids = split_nodes(graph, self.split)
        missed: np.ndarray = ids[~is_seed[ids]]
        return missed


class SampleStore(Mapping[str, StoredSamples]):
    """Samples drawn once and stored: split -> its samples. Opening reads header and tables, no more."""

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
        stored = StoredFolder(Path(folder), KIND, maps=lambda name: _SHARD.search(name) is None)
        try:
            is_consistent = _is_consistent(stored)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise StoreError(
                f"{stored.folder} is not a valid sample store ({error!r}). Draw it again."
            ) from error
        if not is_consistent:
            raise StoreError(f"{stored.folder} is damaged: its parts do not fit each other. Draw it again.")
        stored.verify(stored.arrays.keys(), shown=False)
        if graph is not None:
            check_graph(stored.folder, stored.header.attributes["graph"], graph)
        return cls(stored)

    def check_graph(self, graph: Graph) -> None:
        """Refuse samples of another graph."""
        check_graph(self.stored.folder, self.graph_digest, graph)

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


def check_graph(folder: Path, digest: str, graph: Graph) -> None:
    """Refuse samples of another graph."""
    if graph.digest != digest:
        raise StoreError(
            f"{folder} was drawn from the graph {digest[:12]}, but {graph.name} is {graph.digest[:12]}. "
            "Draw samples of this graph with `muse sample`."
        )


def _is_consistent(stored: StoredFolder) -> bool:
    """Numbers are in range, tables and shards are there and have their shapes; the values are `verify`'s."""
    attributes, sampler = stored.header.attributes, stored.header.attributes["sampler"]
    num_nodes, batch_size = attributes["num_nodes"], attributes["batch_size"]
    return (
        _is_number(num_nodes, 1, MAX_NODES)
        and _is_number(batch_size, 0, 1 << 63)
        and type(attributes["seed"]) is int
        and attributes["id_dtype"] in ("<i4", "<i8")
        and attributes["contract"] in ("seeded", "free")
        and isinstance(attributes["graph"], str)
        and _NAME.fullmatch(sampler["name"]) is not None
        and isinstance(sampler["settings"], dict)
        and all(
            _has_parts(stored.header.arrays, split, plan, num_nodes) for split, plan in _splits(attributes)
        )
    )


def _splits(attributes: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(check_split(name), plan) for name, plan in attributes["splits"].items()]


def _has_parts(arrays: dict[str, ArraySpec], split: str, plan: dict[str, Any], num_nodes: int) -> bool:
    num_samples, shard_size = plan["num_samples"], plan["shard_size"]
    if not (_is_number(num_samples, 1, len(arrays) * shard_size) and _is_number(shard_size, 1, 1 << 40)):
        return False
    tables = [arrays[f"{split}_sizes"], arrays[f"{split}_bounds"]]
    shards = [arrays[shard_name(split, number)] for number in range(-(-num_samples // shard_size))]
    return (
        _is_number(plan["num_nodes"], 0, num_nodes)
        and [(table.dtype, table.shape) for table in tables]
        == [("<i8", (num_samples, 4)), ("<f8", (num_samples, 4))]
        and all(shard.dtype == "<u1" and len(shard.shape) == 1 for shard in shards)
    )


def _is_number(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _check_sample(sample: Sample, num_nodes: int) -> None:
    """Ids in range, ascending among the seeds and among the others, none twice; A is an adjacency."""
    ids: Integer[np.ndarray, " nodes"] = sample.node_ids
    seeds, others = ids[: sample.num_seeds], ids[sample.num_seeds :]
    for part in (seeds, others):
        if len(part) and not (0 <= part[0] and part[-1] < num_nodes and bool((part[1:] > part[:-1]).all())):
            raise InputError("its node ids do not ascend or are no nodes of the graph.")
    if len(np.intersect1d(seeds, others, assume_unique=True)):
        raise InputError("a seed stands among the other nodes, too.")
    check_structure(sample.indptr, sample.indices, shown=False)
