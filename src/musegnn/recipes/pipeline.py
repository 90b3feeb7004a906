"""From a name to a graph, its samples and a run: each step is skipped where its output is there and fits."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from musegnn import datasets
from musegnn.datasets import CATALOG
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.models import MuseGNN
from musegnn.recipes import catalog
from musegnn.sampling import SampleStore, sample
from musegnn.sampling.base import describe
from musegnn.store import kind_of
from musegnn.training.building import build_model
from musegnn.training.config import Config

Say = Callable[[str, str], None]
"""Told of each step: what it is, and what came of it."""

_OWN: dict[str, Any] = {"hidden": 256, "lambda_": 2.0, "dropout": 0.3, "skip": True, "schedule": "cosine"}
"""For a graph that has no recipe."""


@dataclass(frozen=True)
class Prepared:
    """All that training takes."""

    config: Config
    graph: Graph
    samples: SampleStore
    model: MuseGNN


def find(target: str) -> tuple[Config, Graph | None]:
    """What a command was given: a recipe, a TOML file, a dataset, or the folder of a graph store."""
    path = Path(target)
    if catalog.is_known(target):
        return catalog.load(target), None
    if path.suffix == ".toml":
        if not path.is_file():
            raise InputError(f"{target} does not exist. `muse recipes` lists the recipes that are shipped.")
        return Config.from_toml(path.read_text(encoding="utf-8"), target), None
    if path.is_dir():
        if kind_of(path) == "samples":
            raise InputError(f"{target} is a sample store. Pass the graph; its samples go to --samples.")
        graph = Graph.open(path)
        source = str(graph.provenance.get("source", ""))
        found = catalog.find_for_dataset(source) if source else None
        return found or Config(name=path.name).with_settings(_OWN), graph
    name = next((known for known in CATALOG if known.lower() == target.lower()), None)
    if name is not None:
        return catalog.find_for_dataset(name) or Config(name=name, dataset=name).with_settings(_OWN), None
    near = catalog.nearest([*catalog.names(), *CATALOG], target)
    raise InputError(
        f"{target!r} is no recipe, no dataset and no folder here.{near} `muse recipes` lists the recipes."
    )


def prepare(
    config: Config,
    graph: Graph | None,
    *,
    stores: Path,
    root: Path | None = None,
    samples: Path | None = None,
    workers: int = 1,
    device: str = "cpu",
    say: Say = lambda step, text: None,
) -> Prepared:
    """Import the graph, draw its samples, make the model, as far as that was not done before."""
    if graph is None:
        folder = stores / config.dataset / "graph"
        there = kind_of(folder) == "graph"
        graph = datasets.load(config.dataset, root, folder, workers=workers, **config.options)
        say("graph", f"{folder} {'is there' if there else 'imported'}: {graph.num_nodes:,} nodes")
    _check(graph)
    store = _samples(
        config, graph, samples or stores / (config.dataset or config.name), samples, workers, say
    )
    assert graph.features is not None
    model = build_model(config, graph.features.shape[1], graph.num_classes).to(torch.device(device))
    return Prepared(replace(config, dataset=config.dataset or ""), graph, store, model)


def _samples(
    config: Config, graph: Graph, folder: Path, given: Path | None, workers: int, say: Say
) -> SampleStore:
    """Those that were given, or those of this config, drawn if they are not there."""
    sampler, settings = config.sampling.build(), config.sampling
    if given is not None:
        store = SampleStore.open(given, graph=graph)
    else:
        plan = [graph.digest, describe(sampler), settings.batch_size, settings.sample_seed]
        key = hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()[:8]
        folder = folder / f"samples-{key}"
        splits = [name for code, name in enumerate(("train", "valid", "test")) if _has(graph, code)]
        store = sample(
            graph,
            sampler,
            folder,
            batch_size=settings.batch_size,
            seed=settings.sample_seed,
            splits=splits,
            workers=workers,
        )
    total = sum(len(part) for part in store.values())
    nodes = sum(int(part.num_nodes.sum()) for part in store.values()) / max(total, 1)
    say("samples", f"{store.stored.folder}: {total:,} samples of {nodes:,.0f} nodes")
    return store


def _has(graph: Graph, code: int) -> bool:
    return graph.split is not None and bool((graph.split == code).any())


def _check(graph: Graph) -> None:
    """What training cannot do without."""
    if graph.features is None:
        raise InputError(f"{graph.name} has no features, which f needs. Import it with --features.")
    if graph.labels is None:
        raise InputError(f"{graph.name} has no labels. Import it with --labels.")
    if not _has(graph, 0):
        raise InputError(f"{graph.name} has no training nodes. Import it with a split (--split).")
