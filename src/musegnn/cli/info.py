"""`muse info`: what a graph is, how large, and whether it is intact."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from musegnn.cli import info_pack, info_samples, show
from musegnn.cli.graphs import open_graph
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
        typer.Argument(help="A graph store, samples, a pack or a dataset; none lists the datasets."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the dataset's raw files.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Read every byte and check it.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show sizes, degrees, homophily, splits and classes of a graph, or what samples or a pack hold.

    Examples: `muse info debian`, `muse info graphs/arxiv --verify`, `muse info samples`.
    """
    if graph is None:
        if as_json:
            print(json.dumps([dataset.name for dataset in catalog.CATALOG.values()]))
        else:
            _print_catalog()
        return
    if kind_of(Path(graph)) == KIND and not catalog.is_known(graph):
        info_samples.show_samples(Path(graph), verify=verify, as_json=as_json)
        return
    if kind_of(Path(graph)) == packed.KIND and not catalog.is_known(graph):
        info_pack.show_pack(Path(graph), verify=verify, as_json=as_json)
        return
    opened = open_graph(graph, root)
    if verify:
        opened.verify()
    figures = statistics(opened)
    if as_json:
        print(json.dumps(_record(opened, figures, verify), indent=1))
    else:
        _print_graph(opened, figures)
        if verify and opened.stored is not None:
            show.line("verified", "every byte has the digest in its header")
        if verify:
            show.line("verified", "the adjacency is sorted and symmetric, all values are in range")


def _print_catalog() -> None:
    width = max(len(name) for name in catalog.CATALOG)
    for dataset in catalog.CATALOG.values():
        print(f"{dataset.name:<{width}}  {dataset.about}")
    print(
        "\nLook at one with `muse info debian`. "
        "Raw files become a graph store with `muse import NAME --root RAW --out FOLDER`."
    )


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
    if graph.features is not None:
        show.line("features", f"{graph.features.shape[1]} columns of {graph.features.dtype}")
    _print_degrees(figures)
    _print_labels(graph, figures)
    _print_bytes(graph)


def _print_degrees(figures: Statistics) -> None:
    mean, median, largest = figures.degree_mean, figures.degree_median, figures.degree_max
    show.line("degree", f"mean {mean:.1f}, median {median:,}, largest {largest:,}; nodes by degree:")
    ranges = ["0", "1"] + [f"{1 << k:,} - {(2 << k) - 1:,}" for k in range(1, 64)]
    show.bars(list(zip(ranges, figures.degree_histogram, strict=False)))


def _print_labels(graph: Graph, figures: Statistics) -> None:
    if figures.homophily is not None:
        show.line("homophily", f"{figures.homophily:.3f} of the edges join nodes of one class")
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
