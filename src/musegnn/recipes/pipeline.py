"""From a name to a graph, its samples and a run: each step is skipped where its output is there and fits."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from musegnn import datasets
from musegnn.baselines.contract import AnyModel
from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph
from musegnn.ranks import current
from musegnn.runs.start import with_samples
from musegnn.sampling import SampleStore, sample
from musegnn.sampling.base import describe
from musegnn.sampling.draws import split_nodes
from musegnn.store import kind_of
from musegnn.training.building import build_model, check_energy
from musegnn.training.config import Config
from musegnn.training.losses import check_learnable

Say = Callable[[str, str], None]
"""Told of each step: what it is, and what came of it."""


@dataclass(frozen=True)
class Prepared:
    """All that training takes."""

    config: Config
    graph: Graph
    samples: SampleStore
    model: AnyModel


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
        given = config, stores / config.dataset / "graph", root, workers, say
        graph = current().first(lambda: _graph(*given))
    elif root is not None:
        raise InputError("--root belongs to a dataset, but this graph is a folder already. Leave it out.")
    _check(graph)
    # What no model can be made of is refused before hours of sampling.
    assert graph.features is not None
    sizes = graph.features.shape[1], graph.num_classes
    relations = graph.num_relations if config.energy.is_typed else 0
    types = len(graph.node_type_names or ())
    check_energy(config)
    model = build_model(config, *sizes, graph, num_relations=relations, num_types=types)
    model = model.to(torch.device(device))
    store = _samples(
        config, graph, samples or stores / (config.dataset or config.name), samples, workers, say
    )
    return Prepared(with_samples(config, store), graph, store, model)


def _graph(config: Config, folder: Path, root: Path | None, workers: int, say: Say) -> Graph:
    """The dataset's, imported if it is not there."""
    is_there = kind_of(folder) == "graph"
    try:
        graph = datasets.load(config.dataset, root, folder, workers=workers, **config.options)
    except StoreError as error:
        if not is_there:
            raise
        raise StoreError(
            f"{folder} is damaged, or was imported from other raw files or with other options. "
            "Remove it, or pass another folder as --stores."
        ) from error
    say("graph", f"{folder} {'is there' if is_there else 'imported'}: {graph.num_nodes:,} nodes")
    return graph


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
        # What is complete needs no lock: many runs share it. Another one may complete it at this moment.
        if not current().tell(_is_complete(folder, graph, splits)):
            sample(
                graph,
                sampler,
                folder,
                batch_size=settings.batch_size,
                seed=settings.sample_seed,
                splits=splits,
                workers=workers,
            )
        store = SampleStore.open(folder, graph=graph)
    total = sum(len(part) for part in store.values())
    nodes = sum(int(part.num_nodes.sum()) for part in store.values()) / max(total, 1)
    say("samples", f"{store.stored.folder}: {total:,} samples of {nodes:,.0f} nodes")
    return store


def _is_complete(folder: Path, graph: Graph, splits: list[str]) -> bool:
    """Whether nothing is missing in a folder that is named after its content."""
    try:
        return set(splits) == set(SampleStore.open(folder, graph=graph))
    except StoreError:
        return False


def _has(graph: Graph, code: int) -> bool:
    return graph.split is not None and bool((graph.split == code).any())


def _check(graph: Graph) -> None:
    """What training cannot do without."""
    if graph.features is None:
        raise InputError(f"{graph.name} has no features, which f needs. Import it with --features.")
    if graph.labels is None:
        raise InputError(f"{graph.name} has no labels. Import it with --labels.")
    if not _has(graph, 0):
        raise InputError(
            f"{graph.name} has no training nodes. Import it with a split: --split, or a column of --nodes."
        )
    check_learnable(graph.labels[split_nodes(graph, "train")])
