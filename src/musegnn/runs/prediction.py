"""Predictions for any nodes, of the graph a run was trained on or of another with the same features."""

import shlex
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float32, Integer
from numpy.typing import ArrayLike

from musegnn.errors import InputError
from musegnn.features.inputs import Inputs
from musegnn.graph import Graph
from musegnn.inference.tables import Predictions
from musegnn.means import MeanEmbeddings
from musegnn.ranks import ALONE, Ranks
from musegnn.sampling import Draws
from musegnn.sampling.base import FreeSampler, Sampler
from musegnn.training.batches import Loader
from musegnn.training.evaluation import Scored, score
from musegnn.training.forward import device_of, inputs_of, matrices_of, relations_of

if TYPE_CHECKING:
    from musegnn.runs.run import Run

_PARTS = ("nodes", "classes", "probabilities", "error_bounds")
AnyGraph = Graph | str | Path
"""A graph, or the folder of its store."""


class Predictor:
    """Draws samples around nodes and runs the model of a run on them.

    Means belong to the nodes of the graph that was trained on. On another graph (`graph`), whose nodes have
    none, there is no term of the means.
    """

    def __init__(
        self, run: "Run", *, graph: AnyGraph | None = None, hops: int | None = None, threads: int = 1
    ) -> None:
        self.run, self.threads = run, threads
        self.graph = run.graph if graph is None else _checked(open_graph(graph), run)
        self.is_inductive = self.graph.digest != run.graph.digest
        if self.is_inductive and run.config.is_baseline:
            name = run.config.baseline.architecture
            raise InputError(
                f"{name} predicts for the graph it was trained on only. Leave graph (--graph) out."
            )
        self.hops = hops

    def num_batches(self, ids: Integer[np.ndarray, " ids"]) -> int:
        """Samples that these nodes take."""
        return len(self.draws(ids))

    def batches(
        self, ids: Integer[np.ndarray, " ids"], numbers: list[int] | None = None, ranks: Ranks = ALONE
    ) -> Iterator[tuple[int, Predictions]]:
        """Number of a batch and its predictions, each node in one batch; `ids` ascend.

        Several ranks take turns, and all of them get all.
        """
        for found in self._scored(ids, numbers, ranks=ranks):
            own = None if found is None else self._answers(*found)
            number = -1 if found is None else found[0].batch.index
            for other, arrays in ranks.gather_arrays(
                number, [] if own is None else [getattr(own, part) for part in _PARTS]
            ):
                if other >= 0:
                    yield other, Predictions(**dict(zip(_PARTS, arrays, strict=True)))

    def _answers(self, found: Scored, rows: np.ndarray) -> Predictions:
        logits = found.logits[torch.from_numpy(rows)]
        is_multi_label = self.run.config.training.loss == "bce"
        probabilities = torch.sigmoid(logits) if is_multi_label else torch.softmax(logits, dim=1)
        return Predictions(
            nodes=found.batch.sample.seeds[rows],
            classes=probabilities.argmax(dim=1).numpy(),
            probabilities=probabilities.numpy(),
            # Of a peer none is known.
            error_bounds=np.full(len(rows), found.error_bound, dtype=np.float32),
        )

    def embed(self, ids: Integer[np.ndarray, " ids"]) -> Float32[np.ndarray, "nodes dim"]:
        """Y of these nodes, which ascend."""
        Y = np.empty((len(ids), self.run.config.model.hidden), dtype=np.float32)
        for scored in self._scored(ids, None, bounds=0):
            assert scored is not None
            found, rows = scored
            places = np.searchsorted(ids, found.batch.sample.seeds[rows])
            assert found.Y is not None
            Y[places] = found.Y.cpu().numpy()[rows]
        return Y

    def _scored(
        self, ids: np.ndarray, numbers: list[int] | None, bounds: int | None = None, ranks: Ranks = ALONE
    ) -> Iterator[tuple[Scored, np.ndarray] | None]:
        """Batches, each with the rows of its seeds that are answered in it; None at the end of a rank's."""
        draws = self.draws(ids)
        model = self.run.model
        how = {"device": device_of(model), "relations": relations_of(model), "inputs": self.inputs}
        how["matrices"] = matrices_of(model)
        loader = Loader(draws, self.graph, None, threads=self.threads, **how)  # type: ignore[arg-type]
        config, means = self.run.config, self.run.means
        if self.is_inductive and means is not None:
            means = _no_means(means.shape[1], self.graph.num_nodes)
            config = config.with_settings({"unseen": "mask"})
        first = _first_batches(draws, ids) if isinstance(self.sampler, FreeSampler) else None
        given = self.run.model, means, loader, config
        for found in score(*given, bounds=bounds, indices=numbers, ranks=ranks):
            if found is None:
                yield None
                continue
            seeds = found.batch.sample.seeds
            is_here = (
                np.ones(len(seeds), dtype=bool)
                if first is None
                else first[np.searchsorted(ids, seeds)] == found.batch.index
            )
            yield found, np.flatnonzero(is_here)

    @cached_property
    def sampler(self) -> Sampler:
        """That of the run, or the one that takes all neighbors."""
        return self.run.drawing.sampler(self.hops)

    @cached_property
    def inputs(self) -> Inputs:
        """What the model sees beside the features: of classes, those of the graph's own training nodes."""
        model, targets = self.run.model, None
        if model.label_inputs:
            targets = self.graph.labels if self.is_inductive else self.run.targets()
        return inputs_of(model, self.graph, targets)

    def draws(self, ids: Integer[np.ndarray, " ids"]) -> Draws:
        """The samples around these nodes, which ascend."""
        drawing = self.run.drawing
        return Draws(self.graph, self.sampler, ids, batch_size=drawing.batch_size, seed=drawing.seed)


def open_graph(graph: AnyGraph) -> Graph:
    """The graph itself, or that of a folder."""
    return graph if isinstance(graph, Graph) else Graph.open(graph)


def places_of(node_ids: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """The nodes, ascending and each once, and where each of `node_ids` is among them."""
    wanted = np.asarray(node_ids)
    if wanted.ndim != 1 or not len(wanted) or wanted.dtype.kind not in "iu":
        raise InputError(
            f"node_ids must be a list with at least one node id, got {wanted.dtype}{list(wanted.shape)}."
        )
    ids, places = np.unique(wanted, return_inverse=True)
    return ids, places


def joined(parts: list[Predictions], places: np.ndarray) -> Predictions:
    """Rows of several batches, each batch ascending, in the order that was asked for."""
    rows = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _PARTS}
    order = np.argsort(rows["nodes"], kind="stable")[places]
    return Predictions(**{name: values[order] for name, values in rows.items()})


def _first_batches(draws: Draws, ids: np.ndarray) -> Integer[np.ndarray, " ids"]:
    """The first batch that has each node: a sampler that draws freely repeats some, and may miss others."""
    first = np.full(len(ids), -1, dtype=np.int64)
    for number, sample in enumerate(draws):
        places = np.searchsorted(ids, sample.seeds)
        first[places[first[places] < 0]] = number
    num_missed = int((first < 0).sum())
    if num_missed:
        raise InputError(
            f"{type(draws.sampler).__name__} draws freely and missed {num_missed:,} of {len(ids):,} nodes. "
            "Predict on whole neighborhoods: hops=2 (--hops 2)."
        )
    return first


def _checked(graph: Graph, run: "Run") -> Graph:
    wanted = run.record["model"]["in_dim"] if run.record["model"] else None
    if graph.features is None:
        raise InputError(f"{graph.name} has no features, which f needs. Import it with --features.")
    if wanted is not None and graph.features.shape[1] != wanted:
        raise InputError(
            f"{graph.name} has {graph.features.shape[1]} features, the run was trained with {wanted}. "
            "Pass a graph with the same features."
        )
    sizes = run.record["model"] or {}
    told = {
        "node_type_names": ("types of nodes", "type_inputs", run.config.model.type_inputs),
        "class_names": ("classes", "label_inputs", run.config.model.label_inputs),
        "relation_names": ("relations", f"kind={run.config.energy.kind}", "num_relations" in sizes),
    }
    for what, (words, sees, is_seen) in told.items():
        there, before = getattr(graph, what), getattr(run.graph, what)
        # Numbers are all that a model sees of them.
        if is_seen and there != before and (there is not None or what == "relation_names"):
            raise InputError(
                f"{graph.name} has {_few(there, words)}, the run was trained with {_few(before, words)}, "
                f"which {sees} looks at. Pass a graph with the same, in the same order"
                f"{_declared(what, before)}."
            )
    return graph


def _declared(what: str, names: tuple[str, ...] | None) -> str:
    """How a graph gets relations of which it has no edge."""
    if what != "relation_names" or not names:
        return ""
    return f", as by `muse import --relations {shlex.quote(','.join(names))}`"


def _few(names: tuple[str, ...] | None, words: str) -> str:
    """'the relations a, b', or 'no names of relations'."""
    return (
        f"the {words} {', '.join(names[:4])}{', ...' * (len(names) > 4)}" if names else f"no names of {words}"
    )


def _no_means(dim: int, num_nodes: int) -> MeanEmbeddings:
    """Means of nodes that never had an embedding; they take no memory."""
    empty = MeanEmbeddings(0, dim)
    empty.M = torch.zeros(1, dim).expand(num_nodes, -1)
    empty.count = torch.zeros(1, dtype=torch.int32).expand(num_nodes)
    return empty
