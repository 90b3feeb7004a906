"""`muse pack`: graph and samples -> the features in the order in which they will be read."""

import shlex
import time
from pathlib import Path
from typing import Annotated

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.graphs import check_out, open_graph
from musegnn.cli.info_pack import record_of
from musegnn.features import pack as write
from musegnn.features.packed import pack_folder
from musegnn.features.packing import PackPlan
from musegnn.graph.building import free_bytes
from musegnn.sampling import SampleStore


def pack(
    samples: Annotated[Path, typer.Argument(help="A sample store.", metavar="SAMPLES")],
    graph: Annotated[str, typer.Option(help="The graph it was drawn from: a store or a dataset.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the pack; SAMPLES.pack if not given.")
    ] = None,
    cache: Annotated[
        float | None,
        typer.Option(
            help="Rows held in memory: bytes, or up to 1 their share; as memory allows if not given.",
            metavar="BYTES",
        ),
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="Refuse to take more disk than this.", metavar="BYTES")
    ] = None,
    splits: Annotated[
        str | None, typer.Option(help="Whose samples are packed; all if not given.", metavar="NAMES")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; all cores if not given.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a pack that is there.")] = False,
) -> Answer:
    """Write the features of stored samples in the order in which they are read, for graphs past memory.

    Training then reads each sample at the speed of the disk. Disk and time it takes are printed first; the
    same command goes on after an interruption.
    Examples: `muse pack samples --graph graphs/mine`, `muse pack samples --graph graphs/mine --cache 8e9
    --limit 500e9 --splits train,valid`.
    """
    if out is not None:
        check_out(out)
    store = SampleStore.open(samples)
    opened = open_graph(graph, None)
    folder = pack_folder(store) if out is None else out
    began: list[float] = []

    def announce(plan: PackPlan, there: int) -> None:
        _print_plan(plan, there, folder)
        began.append(time.monotonic())

    names = None if splits is None else [name.strip() for name in splits.split(",") if name.strip()]
    found = write(
        opened,
        store,
        out,
        cache=cache,
        limit=limit,
        splits=names,
        workers=workers,
        overwrite=overwrite,
        announce=announce,
    )
    seconds = time.monotonic() - began[0] if began else 0.0
    told = f"{folder} is complete."
    if began:
        told = f"Wrote {folder}: {show.size(found.stored.num_bytes)} in {show.duration(seconds)}."
    record = {"folder": str(folder), "seconds": seconds, **record_of(found, verified=False)}
    then = f"muse info {shlex.quote(str(folder))}, or muse train with --set features_home=packed"
    return Answer(record, lambda: show.text(told), then)


def _print_plan(plan: PackPlan, there: int, folder: Path) -> None:
    rows: list[tuple[str, ...]] = [("split", "samples", "rows to read", "on disk")]
    for split, cold in plan.cold.items():
        count = int(cold.sum())
        rows.append((split, f"{len(cold):,}", f"{count:,}", show.size(count * plan.row_bytes)))
    show.table(rows)
    hot = plan.num_hot * plan.row_bytes
    show.line("in memory", f"{show.size(hot)}, {show.count(plan.num_hot, 'row')} that are read most often")
    free = free_bytes(folder.absolute())
    show.text(
        f"Needs {show.size(plan.num_bytes)} of disk ({show.size(free)} free), "
        f"about {show.duration(plan.seconds)}."
    )
    if there:
        show.text(f"Going on: {show.size(there)} are there.")
