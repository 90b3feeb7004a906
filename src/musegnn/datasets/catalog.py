"""Every graph that has a name, and `load`."""

import difflib
import inspect
from pathlib import Path
from typing import Any

from musegnn.datasets.base import Dataset
from musegnn.datasets.debian import DATASETS as DEBIAN
from musegnn.datasets.igb import DATASETS as IGB
from musegnn.datasets.mag240m import DATASETS as MAG240M
from musegnn.datasets.ogb import DATASETS as OGB
from musegnn.datasets.planetoid import DATASETS as PLANETOID
from musegnn.datasets.synthetic import DATASETS as SYNTHETIC
from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph, GraphSource
from musegnn.graph.building import estimate
from musegnn.memory import total_memory
from musegnn.store import file_errors
from musegnn.store.provenance import plain

CATALOG: dict[str, Dataset] = {
    dataset.name: dataset for dataset in (*DEBIAN, *PLANETOID, *OGB, *MAG240M, *IGB, *SYNTHETIC)
}


def is_known(name: str) -> bool:
    """Whether a dataset has this name, whatever its capitals."""
    return name.lower() in (known.lower() for known in CATALOG)


def find(name: str) -> Dataset:
    """The dataset of a name, whatever its capitals; an unknown one is answered with the nearest."""
    by_lower = {known.lower(): known for known in CATALOG}
    if name.lower() in by_lower:
        return CATALOG[by_lower[name.lower()]]
    near = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.5)]
    hint = f"Did you mean {' or '.join(near)}?" if near else f"Known are {', '.join(CATALOG)}."
    raise InputError(f"{name!r} is no dataset, nor a folder here. {hint}")


def source(
    name: str, root: str | Path | None = None, *, features: bool = True, **options: Any
) -> GraphSource:
    """The description of a named graph, checked for options it does not have."""
    dataset = find(name)
    if dataset.raw is None and root is not None:
        raise InputError(f"{dataset.name} is read from no raw files. Leave root (--root) out.")
    if root is not None and not Path(root).is_dir():
        raise InputError(f"{root} is no folder. Pass as root (--root) the folder that holds {dataset.raw}.")
    if dataset.raw is not None and root is None:
        raise InputError(
            f"{dataset.name} is read from raw files: pass root (--root), the folder that holds "
            f"{dataset.raw}. {dataset.get}"
        )
    allowed = [
        option for option in inspect.signature(dataset.read).parameters if option not in ("root", "features")
    ]
    for option in options:
        if option in ("root", "features") or (option not in allowed and not _takes_any(dataset)):
            known = f"Allowed: {', '.join(allowed)}." if allowed else "It has none."
            raise InputError(f"{dataset.name} has no option {option!r}. {known}")
    folder = None if root is None else Path(root)
    with file_errors(folder or Path()):
        return dataset.read(folder, features=features, **options)


def load(
    name: str,
    root: str | Path | None = None,
    out: str | Path | None = None,
    *,
    features: bool = True,
    overwrite: bool = False,
    memory: int | None = None,
    workers: int | None = None,
    **options: Any,
) -> Graph:
    """A graph by name: "debian" is embedded, "synthetic" is generated, the others are read from raw files.

    Args:
        name: one of `musegnn.datasets.CATALOG`.
        root: folder with the raw files in their official layout.
        out: graph store to write, with bounded memory; opened as it is if it holds this very import already.
            Without it the graph is built in memory.
        overwrite: replace a store at `out` that holds something else.
        features: False reads the topology without the features.
        memory: bytes that writing to `out` may hold at once, as in `Graph.from_source`.
        workers: threads; None takes all cores.
        options: the dataset's own, such as `seed` or `num_classes`.
    """
    described = source(name, root, features=features, **options)
    if out is None:
        _check_fits(described)
        return Graph.from_source(described, workers=workers)
    existing = _existing(Path(out), described)
    if existing is not None:
        return existing
    return Graph.from_source(described, out, overwrite=overwrite, memory=memory, workers=workers)


def _existing(out: Path, described: GraphSource) -> Graph | None:
    """The store at `out`, if it was made from the same source with the same options."""
    try:
        graph = Graph.open(out)
    except StoreError:
        return None
    made_from = plain(described.provenance)
    same = all(graph.provenance.get(key) == value for key, value in made_from.items())
    return graph if same else None


def _check_fits(described: GraphSource) -> None:
    needs = estimate(described)
    if needs is not None and 2 * needs.store_bytes > total_memory():
        raise InputError(
            f"{described.name} takes {needs.store_bytes / 1e9:.0f} GB, too much for a graph in the "
            f"{total_memory() / 1e9:.0f} GB of this machine's memory. "
            f"Build it in a folder: out= (`muse import {described.name} --out`)."
        )


def _takes_any(dataset: Dataset) -> bool:
    kinds = (parameter.kind for parameter in inspect.signature(dataset.read).parameters.values())
    return inspect.Parameter.VAR_KEYWORD in kinds
