"""The operator Omega: split and index -> sample. Nothing here is stored; `offline` stores it."""

import difflib
import hashlib
import json
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Integer
from numpy.typing import ArrayLike

from musegnn import ops
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.graph.checks import SPLITS
from musegnn.sampling.base import FreeSampler, Sampler, SeededSampler, check_positive, describe
from musegnn.sampling.record import Sample
from musegnn.sampling.sequence import Samples

MAX_NODES = (1 << 31) - 1
"""Of a sample: local ids are int32."""
NO_SPLIT = "none"
"""The nodes that belong to no split; all nodes of a graph that has none."""


class Draws(Samples):
    """The samples of a split, drawn when asked for: `Draws(graph, sampler, "train")[i]`.

    Sample i is a function of (graph digest, sampler, seed, split, i) and of the batch size: never of threads,
    of the order in which samples are asked for, or of what was asked before. A stored sample is this one,
    byte by byte. A seeded sampler gets the split's nodes in random order, cut into batches; ids in place of a
    split's name are cut as they are. For online sampling, pass another `seed` in each epoch.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: Sampler,
        split: str | ArrayLike = "train",
        *,
        batch_size: int = 1000,
        seed: int = 0,
    ) -> None:
        if not isinstance(sampler, SeededSampler | FreeSampler):
            raise InputError(
                f"A sampler is a SeededSampler or a FreeSampler, got {sampler!r}. "
                "Pass one such as musegnn.ShadowKHop(fanouts=[10, 5])."
            )
        check_graph_type(graph)
        self.graph = graph
        self.sampler = sampler
        self.batch_size = check_positive(batch_size, "batch_size")
        self.seed = _seed(seed)
        self._ids = None if isinstance(split, str) else _ids(split, graph)
        self.split = check_split(split) if isinstance(split, str) else _name_of(self._ids)
        self._description = describe(sampler)
        if isinstance(sampler, FreeSampler):
            check_positive(getattr(sampler, "num_samples", None), f"num_samples of {type(sampler).__name__}")

    @property
    def ids(self) -> Integer[np.ndarray, " ids"]:
        """The nodes of the split, ascending."""
        return split_nodes(self.graph, self.split) if self._ids is None else self._ids

    @cached_property
    def num_ids(self) -> int:
        """How many nodes the split has."""
        return len(self.ids)

    def __len__(self) -> int:
        if isinstance(self.sampler, FreeSampler):
            return self.sampler.num_samples
        return -(-self.num_ids // self.batch_size)

    def sample(self, index: int) -> Sample:
        """Draw one sample."""
        rng = np.random.Generator(np.random.Philox(key=self._key(index)))
        if isinstance(self.sampler, FreeSampler):
            drawn = self._checked(self.sampler.draw(self.graph, index, rng))
            nodes = _ascending(drawn)
            return _assemble(self.graph, self._seeds_among(nodes), nodes, drawn)
        seeds = self.seeds(index)
        drawn = self._checked(self.sampler.draw(self.graph, seeds, rng))
        return _assemble(self.graph, seeds, _ascending(drawn), drawn)

    def seeds(self, index: int) -> Integer[np.ndarray, " seeds"]:
        """The seeds of a seeded sampler's batch, ascending."""
        begin = self.number(index) * self.batch_size
        return np.sort(self._order[begin : begin + self.batch_size])

    @cached_property
    def _order(self) -> Integer[np.ndarray, " ids"]:
        if self._ids is not None:
            return self._ids
        order = self.ids
        ops.shuffle(order, self._key("order") & (1 << 64) - 1)
        return order

    def _key(self, index: int | str) -> int:
        """128 bits for the random numbers of one sample."""
        cause = ["musegnn sample", 1, self.graph.digest, self._description, self.seed, self.split, index]
        digest = hashlib.sha256(json.dumps(cause, sort_keys=True).encode()).digest()
        return int.from_bytes(digest[:16], "little")

    def _seeds_among(self, nodes: np.ndarray) -> np.ndarray:
        if self._ids is not None:
            return np.intersect1d(nodes, self._ids, assume_unique=True)
        seeds: np.ndarray = nodes[is_in_split(self.graph, self.split, nodes)]
        return seeds

    def _checked(self, drawn: object) -> np.ndarray:
        name, last = type(self.sampler).__name__, self.graph.num_nodes - 1
        if not isinstance(drawn, np.ndarray) or drawn.dtype.kind not in "iu" or not _is_drawn(drawn.shape):
            got = f"{drawn.dtype}{list(drawn.shape)}" if isinstance(drawn, np.ndarray) else repr(drawn)
            raise InputError(
                f"{name}.draw must return an array of integers, node ids or edges as (2, edges); got {got}."
            )
        if drawn.size and not (0 <= int(drawn.min()) and int(drawn.max()) <= last):
            raise InputError(
                f"{name}.draw returned node ids from {drawn.min()} to {drawn.max()}; "
                f"{self.graph.name} has 0 to {last}."
            )
        return drawn.astype(self.graph.indices.dtype, copy=False)


def split_nodes(graph: Graph, name: str) -> Integer[np.ndarray, " ids"]:
    """The nodes of a split, ascending."""
    return np.flatnonzero(is_in_split(graph, name, slice(None))).astype(graph.indices.dtype)


def is_in_split(graph: Graph, name: str, nodes: Integer[np.ndarray, " n"] | slice) -> Bool[np.ndarray, " n"]:
    """Whether these nodes belong to a split; without splits, all belong to none."""
    code = -1 if name == NO_SPLIT else SPLITS.index(check_split(name))
    if graph.split is not None:
        return np.asarray(graph.split[nodes] == code)
    if name != NO_SPLIT:
        raise InputError(
            f"{graph.name} has no split. Give it one (`muse import --split`, or from_edges(split=...)), "
            f"or take all its nodes: the split {NO_SPLIT!r}."
        )
    return np.ones(graph.num_nodes if isinstance(nodes, slice) else len(nodes), dtype=bool)


def check_split(name: str) -> str:
    """One of the names a split may have."""
    allowed = (*SPLITS, NO_SPLIT)
    if name not in allowed:
        near = difflib.get_close_matches(name, allowed, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InputError(f"There is no split {name!r}; allowed are {', '.join(allowed)}.{hint}")
    return name


def check_graph_type(graph: object) -> None:
    """A name is no graph."""
    if not isinstance(graph, Graph):
        raise InputError(
            f"A musegnn.Graph is needed, got {graph!r}. Load one, as in musegnn.datasets.load('debian')."
        )


def _is_drawn(shape: tuple[int, ...]) -> bool:
    return len(shape) == 1 or (len(shape) == 2 and shape[0] == 2)


def _ascending(drawn: np.ndarray) -> np.ndarray:
    """The nodes drawn, each once; most samplers give them so."""
    nodes = drawn.reshape(-1)
    is_ascending = bool((nodes[1:] > nodes[:-1]).all())
    return nodes if is_ascending else np.unique(nodes)


def _assemble(graph: Graph, seeds: np.ndarray, nodes: np.ndarray, drawn: np.ndarray) -> Sample:
    """Seeds first, the other nodes behind them, both ascending; then the edges in local ids."""
    place = np.searchsorted(nodes, seeds)
    found = place < len(nodes)
    found[found] = nodes[place[found]] == seeds[found]
    is_other = np.ones(len(nodes), dtype=bool)
    is_other[place[found]] = False
    node_ids = np.concatenate([seeds, nodes[is_other]])
    if len(node_ids) > MAX_NODES:
        raise InputError(f"A sample has {len(node_ids):,} nodes, more than {MAX_NODES:,}. Draw smaller ones.")
    if drawn.ndim == 1:
        indptr, indices = ops.induce_subgraph(graph.indptr, graph.indices, node_ids, len(seeds))
    else:
        indptr, indices = _kept_edges(node_ids, drawn, graph.num_nodes)
    return Sample(
        node_ids=node_ids,
        indptr=indptr,
        indices=indices,
        num_seeds=len(seeds),
        bounds=ops.spectral_bounds(indptr, indices),
    )


def _kept_edges(node_ids: np.ndarray, edges: np.ndarray, num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """The drawn edges, both ways, each once, as CSR in local ids."""
    source, target = (ops.local_ids(node_ids, ends, num_nodes) for ends in edges)
    keys, _, _ = ops.partition_edges(source, target, None, shift=32, num_buckets=1)
    lengths, columns, _ = ops.merge_entries(keys, None, 0, len(node_ids))
    return np.concatenate([[0], np.cumsum(lengths)]), columns.view(np.int32)


def _ids(values: ArrayLike, graph: Graph) -> np.ndarray:
    ids = np.asarray(values)
    if ids.shape == (0,):
        return np.empty(0, dtype=graph.indices.dtype)
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise InputError(f"Seeds must be a list of node ids, got {ids.dtype}{list(ids.shape)}.")
    if len(ids) and not (0 <= int(ids.min()) and int(ids.max()) < graph.num_nodes):
        wrong = ids[(ids < 0) | (ids >= graph.num_nodes)][0]
        raise InputError(f"Seed {wrong} is no node of {graph.name}, which has 0 to {graph.num_nodes - 1}.")
    if len(ids) > 1 and not bool((ids[1:] > ids[:-1]).all()):
        at = int(np.flatnonzero(ids[1:] <= ids[:-1])[0])
        raise InputError(
            f"Seeds must ascend and be distinct: {ids[at]} is followed by {ids[at + 1]}. "
            "Pass np.unique(seeds)."
        )
    return ids.astype(graph.indices.dtype)


def _name_of(ids: np.ndarray | None) -> str:
    assert ids is not None
    return "ids " + hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest()


def _seed(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"seed must be an integer, got {value!r}.")
    return int(value)
