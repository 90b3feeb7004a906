"""Write a pack: the rows of each stored sample, gathered once, in groups that fit in memory. Resumable."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, Integer

from musegnn.errors import InputError, StoreError
from musegnn.features.hot import appearances, most_read, slots_of
from musegnn.features.packed import (
    HOT,
    HOT_ROWS,
    KIND,
    Pack,
    features_digest,
    pack_folder,
    word_sum,
)
from musegnn.graph import Graph
from musegnn.graph.building import free_bytes
from musegnn.graph.checks import num_workers
from musegnn.graph.threads import default_workers
from musegnn.memory import SHARE, free_memory
from musegnn.progress import progress
from musegnn.sampling import SampleStore
from musegnn.sampling.plan import DISK_SPEED
from musegnn.sampling.salvage import drop_damaged
from musegnn.sampling.sample_store import shard_name
from musegnn.store import ArrayWriter, FolderWriter, Journal, kind_of
from musegnn.store.rows import Rows
from musegnn.version import __version__

READS = {"train": 20, "valid": 20, "test": 1}
"""Whose rows are hot, of a pack: as a run of 20 epochs reads them."""
SHARD_BYTES = 1 << 28
GROUP_BYTES = 1 << 33
"""Rows that are gathered at once, at most: what a kill loses."""
_BLOCK = 1 << 26


@dataclass(frozen=True, kw_only=True, slots=True)
class PackPlan:
    """What will be written."""

    attributes: dict[str, Any]
    cold: dict[str, Int64[np.ndarray, " samples"]]
    """Rows of each sample that are not hot."""
    row_bytes: int
    num_hot: int
    read_bytes: int
    """Of the features, at most."""

    @property
    def num_bytes(self) -> int:
        """Of the pack, all but its tables."""
        return self.row_bytes * (self.num_hot + sum(int(rows.sum()) for rows in self.cold.values()))

    @property
    def seconds(self) -> float:
        """About, with a disk of `DISK_SPEED`."""
        return (self.num_bytes + self.read_bytes) / DISK_SPEED

    def shards(self) -> Iterator[tuple[str, str, range]]:
        """Name, split and samples of each."""
        for split, plan in self.attributes["splits"].items():
            size, count = plan["shard_size"], plan["num_samples"]
            for number, begin in enumerate(range(0, count, size)):
                yield shard_name(split, number), split, range(begin, min(begin + size, count))

    def shard_bytes(self, split: str, indices: range) -> int:
        """Of one shard."""
        return self.row_bytes * int(self.cold[split][indices.start : indices.stop].sum())


def pack(
    graph: Graph,
    store: SampleStore,
    out: str | Path | None = None,
    *,
    cache: float | None = None,
    limit: float | None = None,
    splits: Sequence[str] | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    announce: Callable[[PackPlan, int], None] = lambda plan, there: None,
) -> Pack:
    """Write the features of stored samples in the order in which they will be read (`features_home=packed`).

    The rows that appear most often go to a part that training holds in memory; of each sample the others
    follow each other on disk. The bytes depend on graph, samples and `cache` alone. Called again after a
    kill, it goes on where it was.

    Args:
        graph: With features.
        store: Samples of this graph.
        out: The pack; `<samples>.pack`, where training looks for it, if not given.
        cache: Bytes of the rows held in memory, or up to 1 their share of the features; from the free memory
            if not given.
        limit: Refuse to write more bytes than this.
        splits: Whose samples are packed; all that are stored if not given.
        workers: Threads that read.
        overwrite: Replace a pack that is there.
        announce: Told what will be written, and how many bytes of it are there, before anything is.
    """
    if graph.features is None:
        raise InputError(f"{graph.name} has no features to pack. Import it with features.")
    store.check_graph(graph)
    chosen = list(store) if splits is None else [split for split in store if split in set(splits)]
    for split in splits or ():
        # One that is not there is refused by the store.
        _ = store[split]
    if not chosen:
        raise InputError(
            "splits is empty. Name at least one, for example splits=('train',) (--splits train)."
        )
    folder = pack_folder(store) if out is None else Path(out)
    rows = Rows(graph.features)
    if not overwrite and kind_of(folder) == KIND:
        if folder.with_name(folder.name + ".partial").is_dir():
            # Of one that was killed when all was done but the cleaning; a writer at work is left alone.
            with suppress(StoreError), FolderWriter(folder, KIND, overwrite=True, keep=True):
                pass
        return _complete(Pack.open(folder, graph=graph, store=store), rows, cache, chosen)
    threads = num_workers(workers or default_workers())
    with FolderWriter(folder, KIND, overwrite=overwrite, keep=True) as writer:
        left = None if overwrite else Journal.left(writer)
        if left is not None and cache is None:
            # Memory that is free now must not change what was begun.
            num_hot = int(left.get("num_hot", 0))
        else:
            num_hot = num_hot_rows(cache, rows)
        counts = appearances(store, graph.num_nodes, READS)
        hot = most_read(counts, num_hot)
        del counts
        slots = slots_of(graph.num_nodes, hot)
        plan = _plan(graph, store, rows, chosen, slots, num_hot, len(hot))
        journal = Journal(writer, plan.attributes)
        drop_damaged(journal, threads)
        there = sum(entry.spec.num_bytes for entry in journal.entries.values())
        _check_room(plan, writer.folder, limit, there)
        announce(plan, there)
        _write_missing(writer, journal, plan, store, rows, slots, threads)
        _write_tables(writer, journal, plan, rows, hot, threads)
        writer.publish(plan.attributes, {"name": graph.name, "musegnn": __version__})
    return Pack.open(folder, graph=graph, store=store)


def _complete(pack: Pack, rows: Rows, cache: float | None, splits: list[str]) -> Pack:
    """A pack that is there, if it is the one that was asked for."""
    there = pack.stored.header.attributes
    num_hot = there["num_hot"] if cache is None else num_hot_rows(cache, rows)
    for what, was, now in (("hot rows", there["num_hot"], num_hot), ("splits", list(pack.splits), splits)):
        if was != now:
            raise StoreError(
                f"{pack.stored.folder} was packed with {what} {was}, not {now}. Choose another folder, or "
                "pass overwrite=True (--overwrite)."
            )
    return pack


def num_hot_rows(cache: float | None, rows: Rows) -> int:
    """As told, by their bytes or by a share of the features, or as many as memory has room for."""
    total = rows.table.nbytes
    if cache is None:
        slots = 4 * len(rows.table)
        num_bytes = max(0, int(SHARE * free_memory()) - slots)
    elif 0 <= cache < 1 << 62:
        num_bytes = int(cache * total if cache <= 1 else cache)
    else:
        raise InputError(f"cache must be bytes, or up to 1 a share of the features; got {cache!r}.")
    return int(min(total, num_bytes) // max(1, rows.row_bytes))


def _plan(
    graph: Graph,
    store: SampleStore,
    rows: Rows,
    splits: Sequence[str],
    slots: Integer[np.ndarray, " nodes"],
    num_asked: int,
    num_hot: int,
) -> PackPlan:
    cold = {}
    with progress("Planning", sum(len(store[split]) for split in splits), unit="samples") as advance:
        for split in splits:
            cold[split] = np.zeros(len(store[split]), dtype=np.int64)
            for index, sample in enumerate(store[split]):
                cold[split][index] = np.count_nonzero(slots[sample.node_ids] < 0)
                advance(1)
    row_bytes = rows.row_bytes
    attributes: dict[str, Any] = {
        "features": features_digest(graph),
        "samples": store.digest,
        "num_nodes": graph.num_nodes,
        "num_hot": num_asked,
        "reads": READS,
        "splits": {
            split: {
                "num_samples": len(counts),
                "shard_size": max(1, SHARD_BYTES // max(1, int(counts.mean() * row_bytes))),
            }
            for split, counts in cold.items()
        },
    }
    written = row_bytes * sum(int(counts.sum()) for counts in cold.values())
    passes = 1 + -(-written // _group_bytes())
    read_bytes = min(passes * rows.table.nbytes, 16 * (written + row_bytes * num_hot))
    return PackPlan(
        attributes=attributes, cold=cold, row_bytes=row_bytes, num_hot=num_hot, read_bytes=read_bytes
    )


def _group_bytes() -> int:
    return max(SHARD_BYTES, min(GROUP_BYTES, int(SHARE * free_memory() / 2)))


def _check_room(plan: PackPlan, folder: Path, limit: float | None, there: int) -> None:
    size, free = f"{plan.num_bytes / 1e9:.3g} GB", free_bytes(folder)
    advice = "Pack fewer splits (--splits), or hold more rows in memory (--cache)."
    if limit is not None and plan.num_bytes > limit:
        raise StoreError(f"The pack takes {size}, more than the limit of {limit / 1e9:.3g} GB. {advice}")
    if plan.num_bytes - there > free:
        raise StoreError(f"The pack takes {size}, but {folder.parent} has {free / 1e9:.3g} GB free. {advice}")


def _write_missing(
    writer: FolderWriter,
    journal: Journal,
    plan: PackPlan,
    store: SampleStore,
    rows: Rows,
    slots: Integer[np.ndarray, " nodes"],
    threads: int,
) -> None:
    """Group by group: the more samples ask at once, the closer their rows lie to each other in the file."""
    there = sum(entry.spec.num_bytes for entry in journal.entries.values())
    total = plan.num_bytes - plan.row_bytes * plan.num_hot
    missing = [shard for shard in plan.shards() if shard[0] not in journal.entries]
    with progress("Packing", total, unit="B", done=there) as advance:
        for group in _groups(missing, plan, _group_bytes()):
            samples = [(split, index) for _, split, indices in group for index in indices]
            nodes = [_cold_nodes(store, split, index, slots) for split, index in samples]
            ids = np.concatenate(nodes)
            gathered = np.empty((len(ids), rows.table.shape[1]), rows.table.dtype)
            rows.gather(ids, gathered, threads)
            parts = iter(np.split(gathered, np.cumsum([len(part) for part in nodes])[:-1]))
            for name, _, indices in group:
                sums = []
                with ArrayWriter(writer.path(name), gathered.dtype, gathered.shape[1:]) as shard:
                    for _ in indices:
                        part = next(parts)
                        shard.append(part)
                        sums.append(word_sum(part))
                        advance(part.nbytes)
                    journal.add(name, shard.finish(wait=False), {"sums": sums})


def _groups(
    shards: list[tuple[str, str, range]], plan: PackPlan, most: int
) -> Iterator[list[tuple[str, str, range]]]:
    group: list[tuple[str, str, range]] = []
    size = 0
    for shard in shards:
        more = plan.shard_bytes(*shard[1:])
        if group and size + more > most:
            yield group
            group, size = [], 0
        group.append(shard)
        size += more
    if group:
        yield group


def _cold_nodes(store: SampleStore, split: str, index: int, slots: np.ndarray) -> np.ndarray:
    ids = store[split].sample(index).node_ids
    cold: np.ndarray = ids[slots[ids] < 0]
    return cold


def _write_tables(
    writer: FolderWriter,
    journal: Journal,
    plan: PackPlan,
    rows: Rows,
    hot: Integer[np.ndarray, " hot"],
    threads: int,
) -> None:
    """Where each sample's rows lie, with their sums; then the hot rows."""
    places: Mapping[str, np.ndarray] = {
        split: np.zeros((len(counts), 3), dtype=np.uint64) for split, counts in plan.cold.items()
    }
    for name, split, indices in plan.shards():
        entry = journal.entries[name]
        writer.adopt(name, entry.spec)
        here = places[split][indices.start : indices.stop]
        counts = plan.cold[split][indices.start : indices.stop]
        here[:, 0] = np.cumsum(counts) - counts
        here[:, 1] = counts
        here[:, 2] = np.array(entry.facts["sums"], dtype=np.uint64)
    for split, table in places.items():
        writer.write(f"{split}_places", table)
    writer.write(HOT, hot)
    hot_rows = writer.array(HOT_ROWS, rows.table.dtype, rows.table.shape[1:])
    with progress("Writing hot rows", len(hot) * rows.row_bytes, unit="B") as advance:
        step = max(1, _BLOCK // max(1, rows.row_bytes))
        for begin in range(0, len(hot), step):
            block = np.empty((len(hot[begin : begin + step]), *rows.table.shape[1:]), rows.table.dtype)
            rows.gather(hot[begin : begin + step], block, threads)
            hot_rows.append(block)
            advance(block.nbytes)
    writer.finish(HOT_ROWS)
