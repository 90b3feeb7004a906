"""A graph as a command names it: a store or a dataset."""

from pathlib import Path

from musegnn.cli.runs import near_folder
from musegnn.datasets import catalog
from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph
from musegnn.recipes.catalog import nearest


def open_graph(graph: str, root: Path | None) -> Graph:
    """Open a graph store, or load a dataset by its name."""
    path = Path(graph)
    if not graph:
        raise InputError("The name of the graph is empty. Pass a graph store or a dataset.")
    if path.is_file():
        raise InputError(f"{graph} is a file. Make it a graph store: muse import {graph} --out FOLDER.")
    is_name = not (path.is_dir() or len(path.parts) > 1)
    hint = "" if path.is_dir() else near_folder(path, ("header.json", "config.toml"))
    if catalog.is_known(graph) or (is_name and (nearest(list(catalog.CATALOG), graph) or not hint)):
        return catalog.load(graph, root)
    if root is not None:
        raise InputError(f"--root belongs to a dataset, but {graph} is a folder. Leave it out.")
    if not path.is_dir():
        raise StoreError(f"{graph} does not exist.{hint or ' Pass the folder of a graph store.'}")
    return Graph.open(path)


def check_out(out: Path) -> None:
    """An empty name, as from a variable that is not set, would be the current folder."""
    if out == Path("."):
        raise InputError("--out is the current folder or empty. Name a folder to write.")
    if out.is_file():
        raise InputError(f"--out {out} is a file. Name a folder to write.")
