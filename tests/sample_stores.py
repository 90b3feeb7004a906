"""Small graphs and samplers for the tests of the sample store, and what two stores have in common."""

import itertools
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest

from musegnn import (
    Cluster,
    FreeSampler,
    FullKHop,
    Graph,
    NeighborSampling,
    PersonalizedPageRank,
    RandomWalk,
    SampleStore,
    SeededSampler,
    ShadowKHop,
    UniformInduced,
    sample,
)
from musegnn.errors import StoreError
from musegnn.sampling import offline, plan
from musegnn.store import FolderWriter

FIELDS = ("node_ids", "indptr", "indices", "bounds")
FEW_SHARDS = 4
"""Shards a split that the tests ask for."""
SAMPLERS = [
    ShadowKHop([3, 2]),
    FullKHop(1),
    NeighborSampling([3, 2]),
    PersonalizedPageRank(top_k=4),
    UniformInduced(p=0.05, num_samples=6),
    RandomWalk(roots=20, length=3, num_samples=6),
    Cluster(parts=6),
]


def a_graph(num_nodes=600, seed=0):
    """Every node has a label and a split; some have no neighbors."""
    rng = np.random.default_rng(seed)
    return Graph.from_edges(
        rng.integers(0, num_nodes, (2, 2 * num_nodes)),
        num_nodes=num_nodes,
        labels=rng.integers(0, 3, num_nodes),
        split=rng.integers(0, 3, num_nodes),
        name=f"random {seed}",
    )


@dataclass(frozen=True)
class Logged(SeededSampler):
    """The seeds' neighbors; each draw appends a line to a file that the environment names."""

    pause: float = 0.0

    def draw(self, graph, seeds, rng):
        note(f"{seeds[0]}")
        time.sleep(self.pause)
        return ShadowKHop([2]).draw(graph, seeds, rng)


@dataclass(frozen=True)
class Overlapping(FreeSampler):
    """Sample i: the nodes from 10 i to 10 i + 24, so that neighbors overlap; sample 3 is empty."""

    num_samples: int = 5

    def draw(self, graph, index, rng):
        return np.arange(10 * index, 10 * index + (0 if index == 3 else 25), dtype=np.int32)


def drawn_in_few_shards(graph, folder, **options):
    """The store that `Logged` gives, for a fixture that outlives a test's monkeypatch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MIN_SHARDS", FEW_SHARDS)
        sample(graph, Logged(), folder, **options)
    return folder


def note(line):
    """Append one line, whole even if several threads or processes do it at once."""
    if "MUSEGNN_TEST_LOG" in os.environ:
        log = os.open(os.environ["MUSEGNN_TEST_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(log, f"{line}\n".encode())
        os.close(log)


def contents(folder):
    """Every file of a store, byte by byte: header and arrays."""
    SampleStore.open(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def is_equal(sample, other):
    """All fields, dtypes included."""
    return sample.num_seeds == other.num_seeds and all(
        getattr(sample, name).dtype == getattr(other, name).dtype
        and np.array_equal(getattr(sample, name), getattr(other, name))
        for name in FIELDS
    )


@contextmanager
def refused(match, kind=StoreError):
    """A StoreError of one line."""
    with pytest.raises(kind, match=match) as caught:
        yield
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)


def finished_shards(folder):
    """The shards in the journal of an unfinished store."""
    journal = folder.with_name(folder.name + ".partial") / "journal"
    return {path.stem for path in journal.glob("*_shard_*.json")} if journal.is_dir() else set()


def reseal(folder, changes=(), attributes=None, without=()):
    """Write a store again with other arrays or attributes, and digests that fit them."""
    store = SampleStore.open(folder)
    header, changed = store.stored.header, dict(changes)
    arrays = {name: np.array(store.stored.map(name)) for name in header.arrays if name not in without}
    with FolderWriter(folder, "samples", overwrite=True) as writer:
        for name, values in {**arrays, **changed}.items():
            writer.write(name, values)
        writer.publish({**header.attributes, **(attributes or {})}, header.provenance)


def leave_unfinished(graph, sampler, folder, num_shards, **options):
    """A store that was stopped when so many shards had been begun; one worker had finished all of them."""
    write, begun = offline._write_shard, itertools.count()

    def stopping(*args):
        if next(begun) >= num_shards:
            raise StoreError("stopped")
        return write(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offline, "_write_shard", stopping)
        with pytest.raises(StoreError, match="stopped"):
            sample(graph, sampler, folder, **options)
