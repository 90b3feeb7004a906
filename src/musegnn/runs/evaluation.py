"""How good a run is, on stored samples, fresh ones, whole neighborhoods or the whole graph."""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from musegnn.baselines.contract import AnyModel
from musegnn.baselines.labels import check_labels, correct_and_smooth
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.inference.full import WholeMeans, embed_graph, scores_of
from musegnn.means.sharded import Means
from musegnn.memory import total_memory
from musegnn.models import MLP, MuseGNN
from musegnn.sampling import Draws, FullKHop, SampleStore
from musegnn.sampling.base import FreeSampler, Sampler
from musegnn.sampling.catalog import SAMPLERS, make
from musegnn.sampling.draws import split_nodes
from musegnn.sampling.sequence import Samples
from musegnn.training.batches import Loader
from musegnn.training.config import Config, SamplingConfig
from musegnn.training.evaluation import Evaluation, evaluate
from musegnn.training.forward import device_of, inputs_of, matrices_of, relations_of
from musegnn.training.metrics import ScoreBook

How = Literal["stored", "online", "hops", "full"]
_BATCH_SIZE = 1000
"""Seeds in a sample where the sampler chose its own."""


@dataclass(frozen=True)
class Drawing:
    """How samples were drawn, so that others can be drawn alike."""

    name: str
    settings: dict[str, Any]
    batch_size: int
    seed: int

    @classmethod
    def of_store(cls, store: SampleStore) -> "Drawing":
        """As a store was."""
        sampler = store.sampler
        return cls(sampler["name"], sampler["settings"], store.batch_size or _BATCH_SIZE, store.seed)

    @classmethod
    def of_config(cls, config: SamplingConfig) -> "Drawing":
        """As a config says."""
        is_free = isinstance(config.build(), FreeSampler)
        batch_size = _BATCH_SIZE if is_free else config.batch_size
        return cls(config.sampler, config.settings, batch_size, config.sample_seed)

    def sampler(self, hops: int | None = None) -> Sampler:
        """The sampler, or the one that takes all neighbors up to so many hops."""
        if hops is not None:
            return FullKHop(hops)
        if self.name not in SAMPLERS:
            raise InputError(
                f"The samples were drawn by {self.name}, a sampler of your own, which cannot be made again "
                "from its name. Evaluate on stored samples, or take how='hops' (--hops N) or how='full' "
                "(--full)."
            )
        return make(self.name, self.settings)


def fresh_samples(
    graph: Graph, drawing: Drawing, split: str, how: How, *, hops: int, seed: int | None
) -> Draws:
    """Samples to evaluate on that were not stored; unless told, they have another seed than those."""
    sampler = drawing.sampler(hops if how == "hops" else None)
    fresh = drawing.seed + 1 if seed is None else seed
    return Draws(graph, sampler, split, batch_size=drawing.batch_size, seed=fresh)


def splits_of(source: SampleStore | Graph) -> tuple[str, ...]:
    """Of valid and test those that have samples, or nodes where no samples are read."""
    usual = ("valid", "test")
    if isinstance(source, SampleStore):
        return tuple(split for split in usual if split in source)
    return tuple(split for split in usual if source.split is not None and len(split_nodes(source, split)))


def evaluate_split(
    model: AnyModel,
    means: Means | None,
    graph: Graph,
    samples: Samples,
    targets: np.ndarray,
    config: Config,
    *,
    is_free: bool,
    threads: int = 1,
    update_means: bool = False,
    label: str = "Evaluating",
) -> Evaluation:
    """On samples; every sample with its error bound."""
    how: dict[str, Any] = {"threads": threads, "device": device_of(model), "counts_once": is_free}
    how |= {"relations": relations_of(model), "matrices": matrices_of(model)}
    how |= {"inputs": inputs_of(model, graph, targets)}
    loader = Loader(samples, graph, targets, **how)
    return evaluate(model, means, loader, config, bounds=None, update=update_means, label=label)


def evaluate_full(
    model: MuseGNN,
    means: WholeMeans | None,
    graph: Graph,
    targets: np.ndarray,
    splits: list[str],
    config: Config,
    scratch: Path | None = None,
    *,
    corrects: bool = False,
) -> dict[str, Evaluation]:
    """On the whole graph, out of core: K passes with Y in mapped files; `corrects` and smooths in memory."""
    if scratch is not None and not scratch.is_dir():
        raise InputError(f"{scratch} is no folder. Create it, or leave scratch (--scratch) out.")
    if model.label_inputs and "train" in splits:
        raise InputError(
            "On the whole graph training nodes see their own classes (label_inputs); got the split 'train'. "
            "Take stored samples, in which they do not."
        )
    if corrects and "train" in splits:
        raise InputError(
            "Smoothed predictions of training nodes are their own classes (correct_and_smooth); got the "
            "split 'train'. Take other splits."
        )
    if corrects:
        _check_corrected(model, graph, targets)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="musegnn-") as folder:
        how: dict[str, Any] = {"unseen": config.means.unseen, "inputs": inputs_of(model, graph, targets)}
        found = embed_graph(model, graph, means, Path(folder), **how, bound=True)
        bound = (found.error_bound or 0.0) / max(float(torch.linalg.vector_norm(found.Y)), 1e-30)
        books = {split: ScoreBook(("accuracy", "macro_f1", config.training.metric)) for split in splits}
        nodes = {split: split_nodes(graph, split) for split in splits}
        parts = scores_of(model, found.Y)
        if corrects:
            P = torch.cat([logits.softmax(dim=1) for _, logits in parts])
            parts = iter([(0, correct_and_smooth(graph, P, _RESTART))])
        for first, logits in parts:
            for split, ids in nodes.items():
                inside = ids[np.searchsorted(ids, first) : np.searchsorted(ids, first + len(logits))]
                if len(inside):
                    rows = torch.from_numpy(inside.astype(np.int64) - first)
                    books[split].add(logits[rows], torch.from_numpy(np.array(targets[inside])))
    return {
        split: Evaluation(book.metrics(), book.num_labeled, math.nan, bound) for split, book in books.items()
    }


_RESTART = 0.1
"""Of correct-and-smooth behind MuseGNN."""
_MATRICES = 8
"""As large as the scores of all nodes, that correcting them takes."""


def _check_corrected(model: MuseGNN, graph: Graph, targets: np.ndarray) -> None:
    outputs = model.g.widths[-1] if isinstance(model.g, MLP) else graph.num_classes or 0
    check_labels(graph, outputs, "correct_and_smooth")
    if not np.array_equal(targets, graph.labels if graph.labels is not None else ()):
        raise InputError(
            f"correct_and_smooth spreads the classes that {graph.name} has, but this run was trained on "
            "others. Leave it out."
        )
    needed, half = _MATRICES * 4 * graph.num_nodes * outputs, total_memory() // 2
    if needed > half:
        raise InputError(
            f"correct_and_smooth takes {needed / 1e9:.3g} GB for the scores of all nodes, but half of the "
            f"memory is {half / 1e9:.3g} GB. Leave it out, or take a larger machine."
        )
