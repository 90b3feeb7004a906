"""One batch through the model: mu is gathered, Z = f(X), K steps, g on the seeds."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from musegnn.baselines.contract import AnyModel, Baseline
from musegnn.features.inputs import Inputs
from musegnn.graph import Graph
from musegnn.means.embeddings import Ids
from musegnn.means.sharded import Means, Movable, Note, Request, ShardedMeans
from musegnn.models import MuseGNN
from musegnn.sampling.record import Sample
from musegnn.training.batches import Batch
from musegnn.unfolding import Trace, unfold
from musegnn.unfolding.contract import Seen
from musegnn.unfolding.descent import last_stage, unfold_seeds
from musegnn.unfolding.penalty import Rows, SeedRows
from musegnn.unfolding.resident import Matrix

Unseen = Literal["zero", "mask"]


class Asked(NamedTuple):
    """mu, which of its rows count, and by which request M is told of Y."""

    mu: Rows | None
    seen: Seen | None
    request: Request | Ids | None


def gather_means(means: Means | None, batch: Batch | None, unseen: Unseen, device: torch.device) -> Asked:
    """The rows of M of a batch; of a rank without a batch none, but it answers the others."""
    if means is None:
        return Asked(None, None, None)
    if isinstance(means, ShardedMeans):
        request = means.ask(np.empty(0, dtype=np.int64) if batch is None else batch.sample.node_ids)
        mu = means.gather(request, device)
        return Asked(mu, means.seen(request, device) if unseen == "mask" else None, request)
    if batch is None:
        return Asked(None, None, None)
    # Where M is, so that no ids travel.
    check = means.device.type == "cpu"
    ids = batch.sample.node_ids if check else batch.node_ids
    mu = means.gather(ids, device, check=check)
    return Asked(mu, means.seen(ids, device, check=check) if unseen == "mask" else None, ids)


def update_means(means: Movable, asked: Asked, Y: Rows, note: Note | None = None) -> None:
    """M and c (eq. 9); the nodes of a sample differ, and on a GPU the step's outcome tells of NaN.

    `note` is told of the rows before they change.
    """
    if isinstance(means, ShardedMeans):
        assert isinstance(asked.request, Request)
        means.update(asked.request, Y, note)
        return
    ids = asked.request
    assert isinstance(ids, np.ndarray | Tensor)
    if note is not None:
        note(ids if isinstance(ids, np.ndarray) else ids.cpu().numpy())
    means.update(ids, Y, check=means.M.device.type == "cpu")


def embed(
    model: MuseGNN, batch: Batch, mu: Rows | None, seen: Seen | None, *, precision: str = "float32"
) -> Rows:
    """Y^(K) of all nodes of the batch."""
    Z = transform(model, batch, precision=precision)
    return unfold(Z, batch.sample, model.energy, model.steps, model.alpha, mu, seen=seen).float()


def embed_seeds(
    model: MuseGNN, batch: Batch, Z: Rows, mu: Rows | None, seen: Seen | None, *, keeps_all: bool
) -> tuple[SeedRows, Rows | None]:
    """Y^(K) of the seeds, and of all nodes without a gradient if it is kept.

    On a GPU nobody looks for NaN here: that would wait until it has done its work.
    """
    given = Z, batch.sample, model.energy, model.steps, model.alpha, mu
    found: tuple[SeedRows, Rows | None] = unfold_seeds(
        *given, seen=seen, keeps_all=keeps_all, check=Z.device.type != "cuda"
    )
    return found


def transform(model: MuseGNN, batch: Batch, *, precision: str) -> Rows:
    """Z = f(X), in bfloat16 where the steps can be."""
    with cast(precision, batch.features.device):
        Z: Tensor = model.f(batch.features)
    return Z if Z.device.type == "cuda" else Z.float()


def traced(
    model: MuseGNN,
    batch: Batch,
    mu: Rows | None,
    seen: Seen | None,
    *,
    steps: int | None = None,
    precision: str = "float32",
) -> Trace:
    """As `embed`, with energies and error bounds of the last `steps` steps, or of all of the last stage."""
    Z = transform(model, batch, precision=precision)
    given = batch.sample, model.energy, model.steps, model.alpha, mu
    (energy, count, _), init = last_stage(Z, *given, seen=seen)
    # Momentum does not begin in the middle.
    last = count if steps is None or energy.acceleration != "none" else min(steps, count)
    start = unfold(Z, batch.sample, energy, count - last, model.alpha, mu, init=init, seen=seen)
    return unfold(Z, batch.sample, energy, last, model.alpha, mu, trace=True, init=start, seen=seen)


def classify(model: MuseGNN, Y: Rows, *, precision: str = "float32") -> Float[Tensor, "nodes out_dim"]:
    """Logits."""
    with cast(precision, Y.device):
        logits: Tensor = model.g(Y.to(next(model.g.parameters(), Y).dtype))
    return logits.float()


def answer(model: Baseline, batch: Batch, *, precision: str) -> Float[Tensor, "seeds out_dim"]:
    """A peer's logits of the seeds."""
    with cast(precision, batch.features.device):
        logits: Tensor = model(batch.sample, batch.features)
    return logits.float()


def cast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def relations_of(model: AnyModel) -> int:
    """How many relations samples must tell; 0: none."""
    return (model.energy if isinstance(model, MuseGNN) else model).num_relations


def matrices_of(model: AnyModel) -> Callable[[Sample], list[Matrix]]:
    """What it reads of a sample."""
    return (model.energy if isinstance(model, MuseGNN) else model).matrices


def inputs_of(model: AnyModel, graph: Graph, targets: np.ndarray | None) -> Inputs:
    """What the model sees of the nodes of a graph beside their features."""
    return Inputs(graph, targets, num_types=model.type_inputs, num_classes=model.label_inputs)


def device_of(model: AnyModel) -> torch.device:
    """Where the model is."""
    return next((part.device for part in model.parameters()), torch.device("cpu"))
