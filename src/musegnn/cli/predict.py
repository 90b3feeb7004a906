"""`muse predict`: classes, probabilities and error bounds of any nodes, into one table."""

import hashlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from musegnn.cli import show

if TYPE_CHECKING:
    from musegnn.runs.prediction import Predictor


def predict(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    nodes: Annotated[
        str,
        typer.Option(
            help="all, a split (train, valid, test, none), a file of ids or names, one id, or one name.",
            metavar="NODES",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The table to write: .csv, .npy, or .parquet.", metavar="FILE")
    ],
    graph: Annotated[
        Path | None, typer.Option(help="Another graph store with the same features; it has no means.")
    ] = None,
    hops: Annotated[
        int | None, typer.Option(min=1, help="Take all neighbors up to this many hops, draw none.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="That read ahead; the result is the same.")] = 1,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a table that is there.")] = False,
) -> None:
    """Predict the classes of nodes, batch by batch, in bounded memory. The same command goes on after a kill.

    Examples: `muse predict runs/debian --nodes all --out all.parquet`,
    `muse predict runs/debian --nodes curl --out curl.csv`, `muse predict RUN --nodes ids.txt --out p.npy`.
    """
    from musegnn.graph import Graph
    from musegnn.inference.nodes import read_nodes
    from musegnn.inference.tables import PredictionWriter
    from musegnn.memory import keep_freed_memory
    from musegnn.progress import progress
    from musegnn.runs import load_run
    from musegnn.runs.prediction import Predictor

    keep_freed_memory()
    started = time.monotonic()
    opened = load_run(run)
    if opened.folder.result() is None:
        print(f"{run} is not finished: predicting with its best weights so far.")
    predictor = Predictor(
        opened, graph=None if graph is None else Graph.open(graph), hops=hops, threads=threads
    )
    ids = read_nodes(nodes, predictor.graph)
    num_batches = predictor.num_batches(ids)
    writer = PredictionWriter(
        out,
        _plan(predictor, ids, hops),
        num_batches=num_batches,
        class_names=None if opened.config.training.loss == "bce" else opened.graph.class_names,
        node_names=predictor.graph.node_names,
        overwrite=overwrite,
    )
    with writer:
        missing = writer.missing()
        if len(missing) < num_batches:
            print(f"Going on: {num_batches - len(missing):,} of {num_batches:,} batches are there.")
        with progress("Predicting", num_batches, unit="batches", done=num_batches - len(missing)) as advance:
            for number, part in predictor.batches(ids, missing):
                writer.add(number, part)
                advance(1)
    took = show.duration(time.monotonic() - started)
    print(f"Wrote {out}: {show.count(len(ids), 'node')} in {took}.")


def _plan(predictor: "Predictor", ids: np.ndarray, hops: int | None) -> dict[str, Any]:
    """What decides the bytes of the table."""
    return {
        "weights": predictor.run.weights_digest,
        "graph": predictor.graph.digest,
        "nodes": hashlib.sha256(ids.astype("<i8").tobytes()).hexdigest(),
        "hops": hops,
    }
