"""What a name means: a recipe, a dataset or a folder. Without torch: a misspelled one is told at once."""

from pathlib import Path
from typing import Any

import numpy as np

from musegnn.datasets import CATALOG
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.graph.graph import KIND
from musegnn.recipes import catalog
from musegnn.store import kind_of
from musegnn.training.config import Config

_OWN: dict[str, Any] = {"hidden": 256, "lambda_": 9.0, "dropout": 0.3, "skip": True, "schedule": "cosine"}
"""For a graph that has no recipe."""
STEPS = 400
"""At least so many for it, however few samples an epoch has."""


def find(target: str) -> tuple[Config, Graph | None]:
    """What a command was given: a recipe, a TOML file, a dataset, or the folder of a graph store."""
    path = Path(target)
    if catalog.is_known(target):
        return catalog.load(target), None
    if path.suffix == ".toml":
        if not path.is_file():
            raise InputError(f"{target} does not exist. `muse recipes` lists the recipes that are shipped.")
        config = Config.read(path)
        if not config.dataset:
            raise InputError(
                f'{target} names no dataset. Add one, such as dataset = "debian", or the folder of a graph.'
            )
        return config, Graph.open(config.dataset) if Path(config.dataset).is_dir() else None
    if path.is_dir():
        if kind_of(path) == "samples":
            raise InputError(f"{target} is a sample store. Pass the graph; its samples go to --samples.")
        if (path / "run.json").is_file():
            raise InputError(f"{target} is a run. Go on with it: muse train --resume {target}")
        graph = Graph.open(path)
        source = str(graph.provenance.get("source", ""))
        found = catalog.find_for_dataset(source) if source else None
        return found or _own(path.resolve().name, graph), graph
    name = next((known for known in CATALOG if known.lower() == target.lower()), None)
    if name is not None:
        return catalog.find_for_dataset(name) or Config(name=name, dataset=name).with_settings(_OWN), None
    if path.is_file():
        raise InputError(f"{target} is a file. Make it a graph store: muse import {target} --out FOLDER.")
    beside = [str(header.parent) for header in path.parent.glob("*/header.json")]
    graphs = [folder for folder in beside if kind_of(Path(folder)) == KIND]
    near = catalog.nearest([*catalog.names(), *CATALOG, *graphs], target.rstrip("/"))
    raise InputError(
        f"{target!r} is no recipe, no dataset and no folder here.{near} `muse recipes` lists the recipes."
    )


def _own(name: str, graph: Graph) -> Config:
    """With as many epochs as make `STEPS` steps, of a sample each."""
    config = Config(name=name).with_settings(_OWN)
    if graph.split is None:
        return config
    samples = -(-int(np.count_nonzero(graph.split == 0)) // config.sampling.batch_size)
    return config.with_settings({"epochs": max(config.training.epochs, -(-STEPS // max(1, samples)))})
