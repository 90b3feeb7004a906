"""`muse predict`: classes, probabilities and error bounds of any nodes, into one table."""

import hashlib
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.runs import Device, MovedSamples, check_run, pick_device
from musegnn.graph import Graph
from musegnn.ranks import current

if TYPE_CHECKING:
    from musegnn.runs import Run
    from musegnn.runs.prediction import Predictor


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    nodes: Annotated[
        str,
        typer.Option(
            "--nodes",
            help="all, a split (train, valid, test, none), a file of ids or names, one id, or one name.",
            metavar="NODES",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The table to write: .csv, .npy, or .parquet.", metavar="FILE")
    ],
    graph: Annotated[
        Path | None,
        typer.Option(
            help="The run's graph store, if it was moved; or another with the same features, without means."
        ),
    ] = None,
    samples: MovedSamples = None,
    hops: Annotated[
        int | None, typer.Option(min=1, help="Take all neighbors up to this many hops, draw none.")
    ] = None,
    device: Device = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="That read ahead; the result is the same.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a table that is there.")] = False,
) -> Answer:
    """Predict the classes of nodes, batch by batch, in bounded memory. The same command goes on after a kill.

    Examples: `muse predict runs/debian --nodes all --out all.parquet`,
    `muse predict runs/debian --nodes curl --out curl.csv`, `muse predict RUN --nodes ids.txt --out p.npy`.
    """
    check_run(run)
    from musegnn.inference.nodes import read_nodes
    from musegnn.memory import keep_freed_memory
    from musegnn.runs.prediction import Predictor

    keep_freed_memory()
    started = time.monotonic()
    opened, other = _opened(run, graph, samples, pick_device(device))
    is_finished = opened.folder.result() is not None
    if not is_finished:
        show.text(f"{run} is not finished: predicting with its best weights so far.")
    predictor = Predictor(opened, graph=other, hops=hops, threads=threads)
    ids = read_nodes(nodes, predictor.graph)
    _write(predictor, ids, out, hops, overwrite=overwrite)
    took = time.monotonic() - started
    record = {"out": str(out), "num_nodes": len(ids), "is_finished": is_finished, "seconds": took}
    told = f"Wrote {out}: {show.count(len(ids), 'node')} in {show.duration(took)}."
    return Answer(record, lambda: show.text(told))


def _write(predictor: "Predictor", ids: np.ndarray, out: Path, hops: int | None, *, overwrite: bool) -> None:
    """All ranks predict; the first one writes, and what it refuses is said once."""
    from musegnn.inference.tables import PredictionWriter
    from musegnn.progress import progress

    run, ranks, num_batches = predictor.run, current(), predictor.num_batches(ids)
    plan = _plan(predictor, ids, hops)
    ranks.check_same(plan)
    with ExitStack() as stack:
        writers: list[PredictionWriter] = []

        def begin() -> None:
            writer = PredictionWriter(
                out,
                plan,
                num_batches=num_batches,
                class_names=None if run.config.training.loss == "bce" else run.graph.class_names,
                node_names=predictor.graph.node_names,
                overwrite=overwrite,
            )
            writers.append(stack.enter_context(writer))

        ranks.once(begin)
        missing = ranks.tell([number for writer in writers for number in writer.missing()])
        if len(missing) < num_batches:
            show.text(f"Going on: {num_batches - len(missing):,} of {num_batches:,} batches are there.")
        with progress("Predicting", num_batches, unit="batches", done=num_batches - len(missing)) as advance:
            for number, part in predictor.batches(ids, missing, ranks):
                for writer in writers:
                    writer.add(number, part)
                advance(1)


def _opened(run: Path, graph: Path | None, samples: Path | None, device: str) -> tuple["Run", Graph | None]:
    """The run, and the graph if it is another than the run's own, which may have been moved."""
    from musegnn.runs import load_run

    opened = load_run(run, samples=samples, device=device)
    other = None if graph is None else Graph.open(graph)
    if other is not None and other.digest == opened.record["graph"]["digest"]:
        return load_run(run, graph=other, samples=samples, device=device), None
    return opened, other


def _plan(predictor: "Predictor", ids: np.ndarray, hops: int | None) -> dict[str, Any]:
    """What decides the bytes of the table."""
    return {
        "weights": predictor.run.weights_digest,
        "means": predictor.run.means_digest,
        "device": predictor.run.device.type,
        "graph": predictor.graph.digest,
        "nodes": hashlib.sha256(np.ascontiguousarray(ids).data).hexdigest(),
        "hops": hops,
    }
