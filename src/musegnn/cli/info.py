"""`muse info`: what a graph is, how large, and whether it is intact; what a run is, and where it stands."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from musegnn.cli import info_pack, info_samples, show
from musegnn.cli.answer import Answer
from musegnn.cli.graphs import open_graph
from musegnn.cli.telling import following, tell_result
from musegnn.datasets import catalog
from musegnn.features import packed
from musegnn.graph import Graph
from musegnn.graph.statistics import Statistics, statistics
from musegnn.memory import total_memory
from musegnn.sampling.sample_store import KIND
from musegnn.store import kind_of

MAX_CLASSES = 12


def info(
    graph: Annotated[
        str | None,
        typer.Argument(help="A graph store, samples, a pack, a run or a dataset; none lists the datasets."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the dataset's raw files.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and check it.")] = False,
) -> Answer:
    """Show sizes, degrees, homophily, splits and classes of a graph, what samples or a pack hold, or a run.

    Examples: `muse info debian`, `muse info graphs/arxiv --verify`, `muse info runs/debian`.
    """
    if graph is None:
        return Answer(list(catalog.CATALOG), _print_catalog)
    path = Path(graph)
    if not catalog.is_known(graph):
        if kind_of(path) == KIND:
            return info_samples.about_samples(path, verify=verify)
        if kind_of(path) == packed.KIND:
            return info_pack.about_pack(path, verify=verify)
        if (path / "config.toml").is_file():
            return _about_run(path, verify=verify)
    opened = open_graph(graph, root)
    if verify:
        opened.verify()
    figures = statistics(opened)

    def tell() -> None:
        _print_graph(opened, figures)
        if verify and opened.stored is not None:
            show.line("verified", "every byte has the digest in its header")
        if verify:
            show.line("verified", "the adjacency is sorted and symmetric, all values are in range")

    return Answer(_record(opened, figures, verify), tell)


def _print_catalog() -> None:
    show.lines({dataset.name: dataset.about for dataset in catalog.CATALOG.values()})
    print()
    show.text(
        "Look at one with `muse info debian`. "
        "Raw files become a graph store with `muse import NAME --root RAW --out FOLDER`."
    )


def _about_run(folder: Path, *, verify: bool) -> Answer:
    """The settings of a run, where it stands, its result, and how to go on."""
    from musegnn.training import checkpoint
    from musegnn.training.config import Config, settings_of_tables
    from musegnn.training.folder import RunFolder
    from musegnn.training.loop import BEST, STATE
    from musegnn.training.state import Position

    run = RunFolder(folder)
    config, record, result, usual = run.config(), run.record(), run.result(), Config()
    there = [name for name in (STATE, BEST) if checkpoint.exists(run.checkpoints, name)]
    facts = checkpoint.facts_of(run.checkpoints, STATE) if STATE in there else {}
    position = Position.read(facts.get("position")) if facts else Position()
    for name in there if verify else ():
        loaded = checkpoint.load(run.checkpoints, name)
        for share in loaded.shares:
            checkpoint.load_share(*share)
    # Those that were chosen; config.toml has all of them.
    settings: dict[str, object] = {
        one.name: getattr(getattr(config, table), one.name)
        for table, one in settings_of_tables()
        if getattr(getattr(config, table), one.name) != getattr(getattr(usual, table), one.name)
        and one.name != "settings"
    } | config.sampling.settings
    places = {part: record[part] for part in ("graph", "samples")}
    state = {"epoch": position.epoch, "step": position.step, "is_finished": result is not None}
    body = {"name": config.name, "settings": settings, **places, **state, "result": result}

    def tell() -> None:
        show.text(f"run of {config.name}  {folder}")
        for part, place in places.items():
            show.line(part, place["digest"][:12], place["folder"] or "never saved")
        show.line("settings", ", ".join(f"{name}={value}" for name, value in settings.items()))
        best = f", the best was epoch {position.best_epoch + 1}" if position.best_epoch >= 0 else ""
        epochs = config.training.epochs
        show.line("state", f"{position.epoch} of {epochs} epochs, {position.step:,} steps{best}")
        if verify:
            show.line("verified", "every byte of its checkpoints has its digest")
        if result is None:
            print("It is not finished.")
        else:
            tell_result(folder, result)

    then = f"muse train --resume {shlex.quote(str(folder))}" if result is None else following(folder)
    return Answer(body | {"verified": verify}, tell, then)


def _record(graph: Graph, figures: Statistics, verified: bool) -> dict[str, object]:
    return {
        "name": graph.name,
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": 0 if graph.features is None else graph.features.shape[1],
        "num_classes": graph.num_classes,
        "digest": graph.digest,
        "verified": verified,
        **asdict(figures),
    }


def _print_graph(graph: Graph, figures: Statistics) -> None:
    print(f"{graph.name}  {graph.digest[:12]}")
    show.line("nodes", f"{graph.num_nodes:,}", f"({figures.num_isolated:,} without a neighbor)")
    show.line("edges", f"{graph.num_edges // 2:,} undirected, stored both ways")
    if figures.relation_counts:
        show.line(
            "relations", ", ".join(f"{name} {count:,}" for name, count in figures.relation_counts.items())
        )
    if figures.node_type_counts:
        show.line("node types", _largest(figures.node_type_counts))
    if graph.features is not None:
        show.line("features", f"{graph.features.shape[1]} columns of {graph.features.dtype}")
    _print_degrees(figures)
    _print_labels(graph, figures)
    _print_bytes(graph)


def _largest(counts: dict[str, int]) -> str:
    """All of a few, in their order; of many the largest."""
    shown = list(counts.items())
    if len(shown) > MAX_CLASSES:
        shown = sorted(shown, key=lambda one: -one[1])[:MAX_CLASSES]
    more = f" and {len(counts) - len(shown)} more" if len(shown) < len(counts) else ""
    return ", ".join(f"{name} {count:,}" for name, count in shown) + more


def _shares(shares: dict[str, float | None]) -> str:
    return ", ".join(
        f"{name} {'unknown' if share is None else f'{share:.3f}'}" for name, share in shares.items()
    )


def _print_degrees(figures: Statistics) -> None:
    mean, median, largest = figures.degree_mean, figures.degree_median, figures.degree_max
    show.line("degree", f"mean {mean:.1f}, median {median:,}, largest {largest:,}; nodes by degree:")
    ranges = ["0", "1"] + [f"{1 << k:,} - {(2 << k) - 1:,}" for k in range(1, 64)]
    show.bars(list(zip(ranges, figures.degree_histogram, strict=False)))


def _print_labels(graph: Graph, figures: Statistics) -> None:
    if figures.homophily is not None:
        show.line("homophily", f"{figures.homophily:.3f} of the edges join nodes of one class")
        if len(figures.relation_homophily) > 1:
            show.line("", "by relation: " + _shares(figures.relation_homophily))
        if figures.homophily < 0.5:
            show.line(
                "", "most neighbors differ: look at energy.kind=predictive and relational, docs/energies.md"
            )
    if figures.split_counts:
        parts = [part for part in figures.split_counts if not part.endswith("labeled")]
        text = (f"{part} {figures.split_counts[part]:,}" for part in parts)
        unlabeled = sum(figures.split_counts[p] - figures.split_counts[f"{p} labeled"] for p in parts)
        show.line("split", ", ".join(text) + (f" ({unlabeled:,} of them unlabeled)" if unlabeled else ""))
    if graph.num_classes:
        unlabeled = graph.num_nodes - sum(figures.class_counts)
        show.line("classes", f"{graph.num_classes}, {unlabeled:,} nodes unlabeled; the largest:")
        names = graph.class_names or [f"class {c}" for c in range(graph.num_classes)]
        rows = sorted(zip(names, figures.class_counts, strict=True), key=lambda row: -row[1])
        show.bars(rows[:MAX_CLASSES])
        if len(rows) > MAX_CLASSES:
            print(f"  and {len(rows) - MAX_CLASSES} more")


def _print_bytes(graph: Graph) -> None:
    adjacency = (
        graph.indptr.nbytes
        + graph.indices.nbytes
        + (graph.relation.nbytes if graph.relation is not None else 0)
    )
    features = 0 if graph.features is None else graph.features.nbytes
    where = "on disk" if graph.stored is not None else "in memory"
    show.line("bytes", f"{show.size(adjacency)} adjacency, {show.size(features)} features, {where}")
    memory = total_memory()
    fits = [
        ("adjacency", adjacency),
        ("features", adjacency + features),
        ("mean embeddings of width 512 (float32)", adjacency + features + graph.num_nodes * 512 * 4),
    ]
    held = [name for name, needed in fits if needed < 0.8 * memory]
    left = [name for name, needed in fits if needed >= 0.8 * memory]
    show.line("memory", f"of {show.size(memory)}: {', '.join(held) or 'nothing'} fit together")
    if left:
        show.line("", f"stay on disk: {', '.join(left)}")
