"""`muse import`: raw files -> graph store."""

import shlex
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.graphs import check_out
from musegnn.cli.settings import parse
from musegnn.datasets import catalog, own
from musegnn.errors import InputError
from musegnn.graph import Graph, GraphSource
from musegnn.graph.building import estimate, free_bytes
from musegnn.graph.graph import KIND
from musegnn.store import FolderWriter

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def import_(
    source: Annotated[str, typer.Argument(help="A dataset (`muse info` lists them) or a file of edges.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the graph store to write.")],
    root: Annotated[Path | None, typer.Option(help="Folder with a dataset's raw files.")] = None,
    nodes: Annotated[
        Path | None, typer.Option(help="Own data: ids in order; may hold label, split, type.")
    ] = None,
    features: Annotated[Path | None, typer.Option(help="Own data: one row of numbers per node.")] = None,
    labels: Annotated[Path | None, typer.Option(help="Own data: the class of each node.")] = None,
    split: Annotated[Path | None, typer.Option(help="Own data: train, valid or test for each node.")] = None,
    named: Annotated[
        bool, typer.Option("--named", help="Own data: ids are names, even if they are digits.")
    ] = False,
    relations: Annotated[
        str | None, typer.Option(help="Own data: names of all relations in order, as a,b.", metavar="NAMES")
    ] = None,
    num_nodes: Annotated[
        int | None, typer.Option(help="Own data: how many nodes; else as many as are met.")
    ] = None,
    topology: Annotated[bool, typer.Option("--topology", help="Leave a dataset's features out.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Option of a dataset, as in --set seed=1.", metavar="KEY=VALUE"),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="Memory to use, roughly; 1G, or 256M a thread if more.", metavar="SIZE")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Threads; all cores if not given.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--estimate", help="Print time and disk needed, then stop.")
    ] = False,
) -> Answer:
    """Read raw files into a graph store, in bounded memory.

    Examples: `muse import ogbn-arxiv --root raw --out arxiv`, `muse import edges.csv --labels labels.csv
    --features x.npy --out mine`, `muse import arxiv-shaped --set scale=0.1 --out small`.
    """
    check_out(out)
    if not dry_run:
        # A target that cannot be written is found now, not after an hour of reading.
        with FolderWriter(out, KIND, overwrite=overwrite):
            pass
    described = _described(
        source,
        own_files={"nodes": nodes, "features": features, "labels": labels, "split": split},
        num_nodes=num_nodes,
        named=named,
        relations=relations,
        root=root,
        topology=topology,
        options=parse(settings or [], "seed=1"),
        name=out.resolve().name,
    )
    budget = None if memory is None else _bytes(memory)
    plan = _plan(described, out)
    if dry_run:
        return plan
    plan.tell()
    started = time.monotonic()
    graph = Graph.from_source(described, out, overwrite=overwrite, memory=budget, workers=workers)
    return _answer(graph, out, time.monotonic() - started)


def _answer(graph: Graph, out: Path, seconds: float) -> Answer:
    assert graph.stored is not None
    num_bytes = graph.stored.num_bytes
    told = (
        f"Wrote {out}: {graph.num_nodes:,} nodes, {graph.num_edges // 2:,} undirected edges, "
        f"{show.size(num_bytes)} in {show.duration(seconds)}."
    )
    record = {
        **{"folder": str(out), "name": graph.name, "digest": graph.digest, "num_nodes": graph.num_nodes},
        **{"num_edges": graph.num_edges, "num_bytes": num_bytes, "seconds": seconds},
    }
    return Answer(record, lambda: show.text(told), f"muse info {shlex.quote(str(out))}")


def _described(
    source: str,
    *,
    own_files: dict[str, Path | None],
    num_nodes: int | None,
    named: bool,
    relations: str | None,
    root: Path | None,
    topology: bool,
    options: dict[str, Any],
    name: str,
) -> GraphSource:
    """A dataset has its own name; files of one's own are called as the folder that is written."""
    is_file = Path(source).suffix != "" or Path(source).exists()
    if catalog.is_known(source) or not is_file:
        given = [f"--{name}" for name, path in own_files.items() if path is not None]
        given += ["--num-nodes"] * (num_nodes is not None) + ["--named"] * named
        given += ["--relations"] * (relations is not None)
        if given and catalog.is_known(source):
            raise InputError(f"{given[0]} belongs to own data; {source} brings its own. Leave it out.")
        return catalog.source(source, root, features=not topology, **options)
    unfit = ["--root"] * (root is not None) + ["--topology"] * topology + ["--set"] * bool(options)
    if unfit:
        raise InputError(f"{unfit[0]} belongs to a dataset, but {source} is a file. Leave it out.")
    nodes, features, labels, split = own_files.values()
    return own.read(
        Path(source),
        nodes=nodes,
        features=features,
        labels=labels,
        split=split,
        num_nodes=num_nodes,
        named=named,
        relations=None if relations is None else [part.strip() for part in relations.split(",")],
        name=name,
    )


def _plan(described: GraphSource, out: Path) -> Answer:
    """What it will take."""
    needs, free = estimate(described), free_bytes(out.absolute())
    record = {"name": described.name, "free_bytes": free, "needs": None if needs is None else asdict(needs)}
    if needs is None:
        told = f"Importing {described.name} (its size is not known beforehand)."
        return Answer(record, lambda: show.text(told))
    nodes = "nodes yet to be counted" if described.num_nodes is None else f"{described.num_nodes:,} nodes"
    told = (
        f"Importing {described.name}: {nodes}, about {described.num_edges:,} edges. "
        f"Needs about {show.size(needs.peak_bytes)} of disk ({show.size(free)} free), "
        f"{show.size(needs.store_bytes)} of which stay; about {show.duration(needs.seconds)} on two cores."
    )
    return Answer(record, lambda: show.text(told))


def _bytes(text: str) -> int:
    number, unit = text.rstrip("BbIi"), ""
    if number and number[-1].upper() in _UNITS:
        number, unit = number[:-1], number[-1].upper()
    try:
        budget = int(float(number) * _UNITS[unit])
    except (ValueError, OverflowError):
        raise InputError(f"--memory must be a size such as 500M or 2G, got {text!r}.") from None
    if budget < 1 << 24:
        raise InputError(f"--memory must be at least 16M, got {text!r}.")
    return budget
