"""`muse sample`: graph -> sample store."""

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.graphs import check_out, open_graph
from musegnn.cli.info_samples import record_of
from musegnn.cli.settings import parse
from musegnn.graph.building import free_bytes
from musegnn.graph.threads import default_workers
from musegnn.ops import is_cold
from musegnn.sampling import sample as draw
from musegnn.sampling.base import FreeSampler, describe, spell
from musegnn.sampling.catalog import SAMPLERS, make
from musegnn.sampling.plan import Plan, estimate

_NAMES = ", ".join(SAMPLERS)


def sample(
    graph: Annotated[str, typer.Argument(help="A graph store or a dataset (`muse info` lists them).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the sample store to write.")],
    sampler: Annotated[str, typer.Option(help=f"{_NAMES}.", metavar="NAME")] = "ShadowKHop",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Setting of the sampler, as in --set fanouts=15,10,5.", metavar="KEY=VALUE"
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Seeds in a sample.")] = 1000,
    seed: Annotated[int, typer.Option(help="Another seed draws other samples.")] = 0,
    splits: Annotated[
        str, typer.Option(help="Whose nodes are the seeds; none: nodes without a split.", metavar="NAMES")
    ] = "train,valid,test",
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; all cores if not given.")] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with a dataset's raw files.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace samples that are there.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--estimate", help="Draw a few, print time and disk needed, then stop.")
    ] = False,
) -> Answer:
    """Draw subgraphs once and store them. The same command goes on after an interruption, and mends damage.

    Samples depend on the graph, the sampler, the seed, the batch size and the splits; never on the workers.
    Examples: `muse sample debian --out samples`, `muse sample graphs/arxiv --set fanouts=15,10,5 --out s3`,
    `muse sample debian --sampler UniformInduced --set p=0.2 --out uniform`.
    """
    check_out(out)
    chosen = make(sampler, parse(settings or [], "fanouts=10,5"))
    opened = open_graph(graph, root)
    names = [name.strip() for name in splits.split(",") if name.strip()]
    workers = workers or default_workers()
    batches = "" if isinstance(chosen, FreeSampler) else f"batches of {batch_size:,}, "
    show.text(f"Sampling {opened.name}: {spell(describe(chosen))}, {batches}seed {seed}")
    drawn: dict[str, Any] = {"batch_size": batch_size, "seed": seed}
    if dry_run:
        return _estimated(Plan(opened, chosen, names, **drawn), out, workers)
    began: list[float] = []

    def announce(plan: Plan, num_there: int) -> None:
        _estimated(plan, out, workers).tell()
        if num_there:
            show.text(f"Going on: {num_there:,} of {plan.num_samples:,} samples are there.")
        began.append(time.monotonic())

    how: dict[str, Any] = {"splits": names, "workers": workers, "overwrite": overwrite, "announce": announce}
    store = draw(opened, chosen, out, **drawn, **how)
    seconds = time.monotonic() - began[0] if began else 0.0
    told = f"{out} is complete; every byte was checked."
    if began:
        num_samples = sum(len(samples) for samples in store.values())
        told = f"Wrote {out}: {show.count(num_samples, 'sample')}, "
        told += f"{show.size(store.stored.num_bytes)} in {show.duration(seconds)}."
    record = {"folder": str(out), "seconds": seconds, **record_of(store, verified=not began)}
    return Answer(record, lambda: show.text(told), f"muse info {shlex.quote(str(out))}")


def _estimated(plan: Plan, out: Path, workers: int) -> Answer:
    """What it will take."""
    estimates = estimate(plan, workers=workers)
    rows: list[tuple[str, ...]] = [("split", "samples", "its nodes", "mean n_s", "mean entries", "about")]
    rows += [
        (
            split,
            f"{one.num_samples:,}",
            f"{one.num_seeds:,}",
            f"{one.mean_nodes:,.0f}",
            f"{one.mean_entries:,.0f}",
            show.size(one.num_bytes),
        )
        for split, one in estimates.items()
    ]
    needed = sum(one.num_bytes for one in estimates.values())
    seconds = sum(one.seconds for one in estimates.values())
    free = free_bytes(out.absolute())
    line = (
        f"Needs about {show.size(needed)} of disk ({show.size(free)} free), "
        f"{show.duration(seconds)} with {show.count(workers, 'worker')}."
    )
    if is_cold():
        line += " The first run after an installation compiles its kernels: some seconds more."
    if needed > free:
        line += " That is more than is free."

    def tell() -> None:
        show.table(rows)
        show.text(line)

    splits = {split: asdict(one) for split, one in estimates.items()}
    record = {"num_bytes": needed, "free_bytes": free, "seconds": seconds, "workers": workers}
    return Answer({**record, "splits": splits}, tell)
