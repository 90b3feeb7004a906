"""Draw all samples of a graph once, into a store: in parallel, resumable, the same bytes every time."""

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from musegnn.errors import StoreError
from musegnn.graph import Graph
from musegnn.graph.building import free_bytes
from musegnn.graph.checks import SPLITS, num_workers
from musegnn.progress import Advance, progress
from musegnn.ranks import Ranks, current
from musegnn.sampling import layout, salvage
from musegnn.sampling.base import Sampler, describe
from musegnn.sampling.draws import check_graph_type
from musegnn.sampling.plan import Plan, estimate
from musegnn.sampling.record import Sample
from musegnn.sampling.sample_store import KIND, SampleStore
from musegnn.store import ArraySpec, ArrayWriter, FolderWriter, Journal
from musegnn.store.folder import file_of
from musegnn.store.journal import note
from musegnn.version import __version__


def sample(
    graph: Graph,
    sampler: Sampler,
    out: str | Path,
    *,
    batch_size: int = 1000,
    seed: int = 0,
    splits: Sequence[str] = SPLITS,
    workers: int = 1,
    overwrite: bool = False,
    announce: Callable[[Plan, int], None] = lambda plan, num_there: None,
) -> SampleStore:
    """Draw the samples of these splits into a store at `out`, and open it.

    Sample i of a split is `Draws(graph, sampler, split, ...)[i]`: the same bytes for any number of `workers`
    (threads) and after any number of interruptions. Called again with the same arguments, it goes on where it
    was stopped; of a store that is complete it reads every byte and draws again what is missing or damaged.
    The adjacency of a stored graph is compared with its digest first. A worker needs 0.2 bytes for each node
    of the graph and a few times the size of a sample. `announce` is told what is about to be drawn, and
    how many of the samples are there already; it is not called if all are.
    """
    num_workers(workers)
    check_graph_type(graph)
    folder, ranks = Path(out), current()
    ranks.check_same(
        {
            "graph with the digest": graph.digest,
            "sampler": describe(sampler),
            **{"batch_size": batch_size, "seed": seed, "splits": list(splits)},
            **_versions(),
        }
    )
    if not ranks.is_first:
        _help(Plan(graph, sampler, splits, batch_size=batch_size, seed=seed), workers, ranks)
        return SampleStore.open(folder)
    store = _sample(graph, sampler, folder, batch_size, seed, splits, workers, overwrite, announce)
    # Nothing is left to help with.
    ranks.tell(None)
    return store


def _sample(
    graph: Graph,
    sampler: Sampler,
    folder: Path,
    batch_size: int,
    seed: int,
    splits: Sequence[str],
    workers: int,
    overwrite: bool,
    announce: Callable[[Plan, int], None],
) -> SampleStore:
    """What one process does, or the first of several."""
    # What is there is looked at under the lock, and replaced only as far as it is ours to mend.
    with FolderWriter(folder, KIND, overwrite=True, keep=True) as writer:
        finished = None if overwrite else salvage.finished(folder)
        graph.verify_topology()
        plan = Plan(graph, sampler, splits, batch_size=batch_size, seed=seed)
        left = None if overwrite else Journal.left(writer)
        if finished is not None:
            salvage.check_plan(folder, finished.attributes, plan.attributes)
        if left is not None:
            salvage.check_plan(writer.partial, left, plan.attributes)
        # What was taken over from a damaged store belongs to its mending alone.
        mends = None if finished is None else finished.digest
        journal = Journal(writer, {**plan.attributes, "mends": mends})
        salvage.drop_damaged(journal, workers)
        if finished is not None and not salvage.adopt_intact(folder, finished, writer, journal, workers):
            return salvage.check_store_alike(folder, plan)
        _check_disk(writer, journal, plan)
        if overwrite:
            salvage.drop_unlike(writer, journal, plan)
        else:
            salvage.check_kept_alike(writer, journal, plan)
        announce(plan, sum(len(indices) for name, _, indices in plan.shards() if name in journal.entries))
        _draw_missing(writer, journal, plan, workers)
        _write_tables(writer, journal, plan)
        if finished is not None:
            salvage.check_redrawn(folder, finished.arrays, writer.specs)
        writer.publish(plan.attributes, {"name": graph.name, "musegnn": __version__, **_versions()})
    return SampleStore.open(folder)


def _versions() -> dict[str, str]:
    return {package: version(package) for package in ("numpy", "numba")}


def _check_disk(writer: FolderWriter, journal: Journal, plan: Plan) -> None:
    there = sum(entry.spec.num_bytes for entry in journal.entries.values())
    free = free_bytes(writer.folder)
    if plan.num_bytes - there <= free:
        return
    # The first sample may be larger than others: a few more are asked before anything is refused.
    needed = sum(one.num_bytes for one in estimate(plan, workers=1).values()) - there
    if needed > free:
        raise StoreError(
            f"The samples will take about {needed / 1e9:.3g} GB more, but {writer.folder.parent} has "
            f"{free / 1e9:.3g} GB free. Free some space, or choose another folder, smaller fanouts or splits."
        )


Shard = tuple[str, str, range]
"""Name, split, numbers of its samples."""
Note = Callable[[str, ArraySpec, dict[str, Any]], object]


def _draw_missing(writer: FolderWriter, journal: Journal, plan: Plan, workers: int) -> None:
    """All ranks draw, each its own share; what is drawn is noted in files, which the first one then reads.

    Nobody waits for the disk here: a shard that a power cut takes from under its note does not have its
    digest any more, and is drawn again.
    """
    ranks = current()
    missing = [shard for shard in plan.shards() if shard[0] not in journal.entries]
    ranks.tell([str(writer.files), str(writer.journal), [name for name, _, _ in missing]])
    own = [missing[number] for number in ranks.share(len(missing))]
    _draw(own, plan, writer.path, journal.add, workers, num_ranks=ranks.size)
    ranks.wait()
    for name, _, _ in missing:
        if name not in journal.entries:
            journal.look(name)


def _help(plan: Plan, workers: int, ranks: Ranks) -> None:
    """Draw this rank's share of what the first one says is missing, until it says that nothing is."""
    while (said := ranks.tell(None)) is not None:
        files, journal, names = Path(said[0]), Path(said[1]), said[2]
        shards = {shard[0]: shard for shard in plan.shards()}
        own = [shards[names[number]] for number in ranks.share(len(names))]
        _draw(own, plan, partial(file_of, files), partial(note, journal), workers)
        ranks.wait()


def _draw(
    shards: list[Shard], plan: Plan, path: Callable[[str], Path], done: Note, workers: int, num_ranks: int = 1
) -> None:
    """Every worker takes the next shard, draws it alone, notes it and begins another."""
    todo: queue.SimpleQueue[Shard] = queue.SimpleQueue()
    for shard in shards:
        todo.put(shard)
    missing = num_ranks * sum(len(indices) for _, _, indices in shards)
    stop, workers = threading.Event(), max(1, min(workers, todo.qsize()))
    there = max(plan.num_samples - missing, 0)
    with (
        progress("Sampling", plan.num_samples, "samples", done=there) as advance,
        ThreadPoolExecutor(workers) as pool,
    ):
        try:
            tell = partial(_advance_all, advance, num_ranks)
            tasks = [pool.submit(_work, todo, plan, path, done, tell, stop) for _ in range(workers)]
            for task in wait(tasks, return_when=FIRST_EXCEPTION).done:
                task.result()
        finally:
            stop.set()


def _advance_all(advance: Advance, num_ranks: int, amount: int, note: str = "") -> None:
    """The others are about as far."""
    advance(num_ranks * amount, note)


def _work(
    todo: "queue.SimpleQueue[Shard]",
    plan: Plan,
    path: Callable[[str], Path],
    done: Note,
    advance: Advance,
    stop: threading.Event,
) -> None:
    while not stop.is_set():
        try:
            name, split, indices = todo.get_nowait()
        except queue.Empty:
            return
        samples = (plan.draws[split][index] for index in indices)
        written = _write_shard(path(name), samples, advance, stop)
        if written is not None:
            done(name, *written)


def _write_shard(
    path: Path, samples: Iterable[Sample], advance: Advance, stop: threading.Event
) -> tuple[ArraySpec, dict[str, Any]] | None:
    """Write samples, which are drawn on the way, and say where each lies; None when told to stop."""
    sizes, bounds = [], []
    with ArrayWriter(path, np.uint8) as shard:
        for drawn in samples:
            if stop.is_set():
                return None
            sizes.append(list(layout.append(shard, drawn)))
            bounds.append(drawn.bounds.tolist())
            advance(1)
            # Its memory serves the next one: fresh pages would cost a sixth of the time.
            del drawn
        return shard.finish(wait=False), {"sizes": sizes, "bounds": bounds}


def _write_tables(writer: FolderWriter, journal: Journal, plan: Plan) -> None:
    """Sizes and bounds of all samples, in their order, from what the journal says of each shard."""
    facts: dict[str, dict[str, list[np.ndarray]]] = {
        split: {"sizes": [], "bounds": []} for split in plan.draws
    }
    for name, split, indices in plan.shards():
        writer.adopt(name, journal.entries[name].spec)
        noted = journal.entries[name].facts
        for table, rows in facts[split].items():
            try:
                numbers = np.array(noted[table], dtype=np.float64 if table == "bounds" else np.int64)
                rows.append(numbers.reshape(len(indices), 4))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                where = journal.entries[name].path
                raise StoreError(
                    f"{where} is of no shard. Remove {writer.partial}, then draw again."
                ) from error
    for split, tables in facts.items():
        for table, rows in tables.items():
            writer.write(f"{split}_{table}", np.concatenate(rows))
