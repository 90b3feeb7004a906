"""Where graph and samples of a run lie, and are found again."""

import os
from pathlib import Path
from typing import Any

from musegnn import datasets
from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph
from musegnn.store import StoredFolder


def place_of(stored: StoredFolder | None, out: Path) -> dict[str, str | None]:
    """Where a store lies, and where from the run folder: both may be moved together."""
    if stored is None:
        return {"folder": None, "from_here": None}
    return {"folder": os.fspath(stored.folder), "from_here": os.path.relpath(stored.folder, out.absolute())}


def find(part: str, facts: dict[str, Any], run: Path) -> Path:
    """Where a store lay, or lies now if it was moved along with the run."""
    for folder in (Path(facts["folder"]), run / facts["from_here"]):
        if folder.is_dir():
            return folder
    raise StoreError(
        f"{facts['folder']} does not exist, where {run} had its {part}. Pass {part}=... (--{part} FOLDER)."
    )


def find_graph(facts: dict[str, Any], run: Path) -> Graph:
    """The graph of a run: its store, or a dataset that needs none."""
    if facts["folder"] is not None:
        return Graph.open(find("graph", facts, run))
    try:
        return datasets.load(facts["name"])
    except InputError as error:
        raise StoreError(
            f"The run was trained on {facts['name']!r}, a graph that was never saved. Pass it: graph=... "
            "(--graph FOLDER)."
        ) from error
