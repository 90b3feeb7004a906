"""How good a run is, on stored samples, fresh ones, whole neighborhoods or the whole graph."""

import math
import tempfile
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.inference.full import WholeMeans, embed_graph, scores_of
from musegnn.means.sharded import Means
from musegnn.models import MuseGNN
from musegnn.sampling import Draws, FullKHop, SampleStore
from musegnn.sampling.base import Sampler
from musegnn.sampling.catalog import SAMPLERS, make
from musegnn.sampling.draws import split_nodes
from musegnn.sampling.sequence import Samples
from musegnn.training.batches import Loader
from musegnn.training.config import Config
from musegnn.training.evaluation import Evaluation, evaluate
from musegnn.training.forward import device_of
from musegnn.training.metrics import ScoreBook

How = Literal["stored", "online", "hops", "full"]


def sampler_of(store: SampleStore) -> Sampler:
    """The sampler that drew a store."""
    name, settings = store.sampler["name"], store.sampler["settings"]
    if name not in SAMPLERS:
        raise InputError(
            f"The samples were drawn by {name}, a sampler of your own, which cannot be made again from its "
            "name. Evaluate on stored samples, or take how='hops' (--hops N) or how='full' (--full)."
        )
    return make(name, settings)


def samples_of(
    graph: Graph, store: SampleStore, split: str, how: How, *, hops: int = 2, seed: int | None = None
) -> Samples:
    """The samples to evaluate on. Fresh ones have another seed than those that were stored."""
    if how not in get_args(How):
        raise InputError(f"how must be one of {', '.join(get_args(How))}; got {how!r}.")
    if how == "stored":
        return store[split]
    sampler = FullKHop(hops) if how == "hops" else sampler_of(store)
    fresh = store.seed + 1 if seed is None else seed
    return Draws(graph, sampler, split, batch_size=store.batch_size or 1000, seed=fresh)


def evaluate_split(
    model: MuseGNN,
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
) -> dict[str, Evaluation]:
    """On the whole graph, out of core: K passes with Y in mapped files."""
    if scratch is not None and not scratch.is_dir():
        raise InputError(f"{scratch} is no folder. Create it, or leave scratch (--scratch) out.")
    with tempfile.TemporaryDirectory(dir=scratch, prefix="musegnn-") as folder:
        found = embed_graph(model, graph, means, Path(folder), unseen=config.means.unseen, bound=True)
        bound = (found.error_bound or 0.0) / max(float(torch.linalg.vector_norm(found.Y)), 1e-30)
        books = {split: ScoreBook(("accuracy", "macro_f1", config.training.metric)) for split in splits}
        nodes = {split: split_nodes(graph, split) for split in splits}
        for first, logits in scores_of(model, found.Y):
            for split, ids in nodes.items():
                inside = ids[np.searchsorted(ids, first) : np.searchsorted(ids, first + len(logits))]
                if len(inside):
                    rows = torch.from_numpy(inside.astype(np.int64) - first)
                    books[split].add(logits[rows], torch.from_numpy(np.array(targets[inside])))
    return {
        split: Evaluation(book.metrics(), book.num_labeled, math.nan, bound) for split, book in books.items()
    }
