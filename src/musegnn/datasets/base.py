"""A dataset: a name, a line about it, and a function from raw files to a `GraphSource`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from musegnn.errors import InputError
from musegnn.graph import GraphSource, checks


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """One entry of the catalog."""

    name: str
    about: str
    """One line: what it is, its size."""
    read: Callable[..., GraphSource]
    """`read(root, features=True, **options)`; `root` is None for what needs no raw files."""
    raw: str | None = None
    """The folder that `root` must be or hold, in its official layout; None if nothing is read from disk."""
    get: str = ""
    """How to get the raw files."""


def find_folder(root: Path, names: tuple[str, ...], holds: str, get: str) -> Path:
    """The first of root, root/name, ... in which the file `holds` lies."""
    for folder in (root, *(root / name for name in names)):
        if (folder / holds).is_file():
            return folder
    looked_for = " or ".join(f"{name}/{holds}" for name in names) or holds
    raise InputError(f"{root} holds no {looked_for}: it is not the raw folder in its official layout. {get}")


def find_files(folder: Path, names: Iterable[str], get: str) -> list[Path]:
    """The paths of files that must all be there; the first missing one is named."""
    paths = [folder / name for name in names]
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path} is missing: the raw folder is not complete. {get}")
    return paths


def place_labels(values: np.ndarray, num_classes: int, num_nodes: int, first: int = 0) -> np.ndarray:
    """Labels of all nodes in two bytes each: `values` from node `first` on, -1 before and behind them."""
    labels = np.full(num_nodes, -1, dtype=np.int16)
    for block in checks.labels(values, len(values), num_classes):
        labels[first : first + len(block)] = block
        first += len(block)
    return labels


def provenance(dataset: str, root: Path, files: Iterable[Path], **options: Any) -> dict[str, Any]:
    """What goes into the store's header: dataset, options, and size and time of each raw file."""
    stamps = {}
    for path in files:
        if path.exists():
            status = path.stat()
            stamps[str(path.relative_to(root))] = [status.st_size, status.st_mtime_ns]
    return {"source": dataset, "options": options, "raw_files": stamps}
