"""One batch through the model: mu is gathered, Z = f(X), K steps, g on the seeds."""

from contextlib import AbstractContextManager
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from musegnn.means import MeanEmbeddings
from musegnn.models import MuseGNN
from musegnn.training.batches import Batch
from musegnn.unfolding import Trace, unfold
from musegnn.unfolding.contract import Seen
from musegnn.unfolding.penalty import Rows

Unseen = Literal["zero", "mask"]


def gather_means(
    means: MeanEmbeddings | None, batch: Batch, unseen: Unseen, device: torch.device
) -> tuple[Rows | None, Seen | None]:
    """mu, and which of its rows count."""
    if means is None:
        return None, None
    ids = batch.sample.node_ids
    return means.gather(ids, device), means.seen(ids, device) if unseen == "mask" else None


def embed(
    model: MuseGNN, batch: Batch, mu: Rows | None, seen: Seen | None, *, precision: str = "float32"
) -> Rows:
    """Y^(K) of all nodes of the batch."""
    device = device_of(model)
    with cast(precision, device):
        Z = model.f(batch.features.to(device, non_blocking=True))
    return unfold(Z.float(), batch.sample, model.energy, model.steps, model.alpha, mu, seen=seen)


def traced(
    model: MuseGNN,
    batch: Batch,
    mu: Rows | None,
    seen: Seen | None,
    *,
    steps: int | None = None,
    precision: str = "float32",
) -> Trace:
    """As `embed`, with energies and error bounds of the last `steps` steps, or of all."""
    device = device_of(model)
    with cast(precision, device):
        Z = model.f(batch.features.to(device, non_blocking=True))
    Z = Z.float()
    last = model.steps if steps is None else min(steps, model.steps)
    given = batch.sample, model.energy
    start = unfold(Z, *given, model.steps - last, model.alpha, mu, seen=seen)
    return unfold(Z, *given, last, model.alpha, mu, trace=True, init=start, seen=seen)


def classify(
    model: MuseGNN, batch: Batch, Y: Rows, *, precision: str = "float32"
) -> Float[Tensor, "seeds out_dim"]:
    """The seeds' logits."""
    with cast(precision, Y.device):
        logits: Tensor = model.g(Y[: batch.sample.num_seeds])
    return logits.float()


def cast(precision: str, device: torch.device) -> AbstractContextManager[object]:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast(device.type, torch.bfloat16, enabled=precision == "bfloat16")


def device_of(model: MuseGNN) -> torch.device:
    """Where the model is."""
    return next((part.device for part in model.parameters()), torch.device("cpu"))
