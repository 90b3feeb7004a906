"""Draw all samples of a graph once, into a store: in parallel, resumable, the same bytes every time."""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from musegnn.errors import StoreError
from musegnn.graph import Graph
from musegnn.graph.building import free_bytes
from musegnn.graph.checks import SPLITS, num_workers
from musegnn.progress import Advance, progress
from musegnn.sampling import layout, salvage
from musegnn.sampling.base import Sampler
from musegnn.sampling.draws import Draws
from musegnn.sampling.plan import Plan
from musegnn.sampling.sample_store import KIND, SampleStore
from musegnn.store import ArrayWriter, FolderWriter, Journal
from musegnn.store.provenance import provenance


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
    announce: Callable[[Plan], None] = lambda plan: None,
) -> SampleStore:
    """Draw the samples of these splits into a store at `out`, and open it.

    Sample i of a split is `Draws(graph, sampler, split, ...)[i]`: the same bytes for any number of `workers`
    (threads) and after any number of interruptions. Called again with the same arguments, it goes on where it
    was stopped; of a store that is complete it reads every byte and draws again what is missing or damaged.
    A worker needs 0.3 bytes for each node of the graph and a few times the size of a sample. `announce` is
    told what is about to be drawn; it is not called if nothing is.
    """
    num_workers(workers)
    folder = Path(out)
    # What is there is looked at under the lock, and replaced only as far as it is ours to mend.
    with FolderWriter(folder, KIND, overwrite=True, keep=True) as writer:
        finished = None if overwrite else salvage.finished(folder)
        plan = Plan(graph, sampler, splits, batch_size=batch_size, seed=seed)
        if finished is not None:
            salvage.check_plan(folder, finished, plan.attributes)
        journal = Journal(writer, plan.attributes)
        salvage.drop_damaged(journal, workers)
        if finished is not None and not salvage.adopt_intact(folder, finished, writer, journal, workers):
            return SampleStore.open(folder)
        salvage.check_drawn_alike(writer, journal, plan, overwrite=overwrite)
        _check_disk(writer, journal, plan)
        announce(plan)
        _draw_missing(writer, journal, plan, workers)
        if finished is not None:
            salvage.check_redrawn(finished, journal)
        _write_tables(writer, journal, plan)
        writer.publish(plan.attributes, provenance(graph.name, {"versions": _versions()}))
    return SampleStore.open(folder)


def _versions() -> dict[str, str]:
    return {package: version(package) for package in ("numpy", "numba")}


def _check_disk(writer: FolderWriter, journal: Journal, plan: Plan) -> None:
    there = sum(entry.spec.num_bytes for entry in journal.entries.values())
    needed, free = plan.num_bytes - there, free_bytes(writer.folder)
    if needed > free:
        raise StoreError(
            f"The samples will take about {needed / 1e9:.1f} GB more, but {writer.folder.parent} has "
            f"{free / 1e9:.1f} GB free. Free some space, or choose another folder, smaller fanouts or splits."
        )


def _draw_missing(writer: FolderWriter, journal: Journal, plan: Plan, workers: int) -> None:
    """Every worker takes the next shard that is missing, draws it alone and begins another.

    A shard is pushed to the disk while its worker draws the next one, and noted in the journal thereafter.
    """
    todo: queue.SimpleQueue[tuple[str, Draws, range]] = queue.SimpleQueue()
    missing = 0
    for name, split, indices in plan.shards():
        if name not in journal.entries:
            todo.put((name, plan.draws[split], indices))
            missing += len(indices)
    stop = threading.Event()
    with (
        progress("Sampling", plan.num_samples, unit="samples") as advance,
        ThreadPoolExecutor(workers) as disk,
        ThreadPoolExecutor(workers) as pool,
    ):
        advance(plan.num_samples - missing)
        tasks = [pool.submit(_work, todo, writer, journal, disk, advance, stop) for _ in range(workers)]
        try:
            for task in wait(tasks, return_when=FIRST_EXCEPTION).done:
                task.result()
        finally:
            stop.set()


def _work(
    todo: "queue.SimpleQueue[tuple[str, Draws, range]]",
    writer: FolderWriter,
    journal: Journal,
    disk: ThreadPoolExecutor,
    advance: Advance,
    stop: threading.Event,
) -> None:
    before: Future[None] | None = None
    while not stop.is_set():
        try:
            name, draws, indices = todo.get_nowait()
        except queue.Empty:
            break
        written = _write_shard(writer.path(name), draws, indices, advance, stop)
        # One shard behind at most: a slow disk must not gather shards in memory.
        if before is not None:
            before.result()
        if written is None:
            return
        before = disk.submit(_finish, journal, name, *written)
    if before is not None:
        before.result()


def _write_shard(
    path: Path, draws: Draws, indices: range, advance: Advance, stop: threading.Event
) -> tuple[ArrayWriter, dict[str, Any]] | None:
    """Draw some samples into one file, and say where each lies; None when told to stop."""
    sizes, bounds = [], []
    with ExitStack() as on_error:
        shard = on_error.enter_context(ArrayWriter(path, np.uint8))
        for index in indices:
            if stop.is_set():
                return None
            drawn = draws[index]
            sizes.append(list(layout.append(shard, drawn)))
            bounds.append(drawn.bounds.tolist())
            advance(1)
        on_error.pop_all()
    return shard, {"sizes": sizes, "bounds": bounds}


def _finish(journal: Journal, name: str, shard: ArrayWriter, facts: dict[str, Any]) -> None:
    with shard:
        journal.add(name, shard.finish(), facts)


def _write_tables(writer: FolderWriter, journal: Journal, plan: Plan) -> None:
    """Sizes and bounds of all samples, in their order, from what the journal says of each shard."""
    facts: dict[str, dict[str, list[list[float]]]] = {
        split: {"sizes": [], "bounds": []} for split in plan.draws
    }
    for name, split, _ in plan.shards():
        entry = journal.entries[name]
        writer.adopt(name, entry.spec)
        for table, rows in facts[split].items():
            rows.extend(entry.facts[table])
    for split, tables in facts.items():
        writer.write(f"{split}_sizes", np.array(tables["sizes"], dtype=np.int64).reshape(-1, 4))
        writer.write(f"{split}_bounds", np.array(tables["bounds"], dtype=np.float64).reshape(-1, 4))
