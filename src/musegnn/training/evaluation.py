"""Evaluation: the same pipeline on other samples, M read-only, so that twice gives the same answer."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from musegnn.means import MeanEmbeddings
from musegnn.models import MuseGNN
from musegnn.progress import progress
from musegnn.training.batches import Batch, Loader
from musegnn.training.config import Config
from musegnn.training.forward import classify, device_of, embed, gather_means, traced, update_means
from musegnn.training.metrics import ScoreBook
from musegnn.unfolding.penalty import Rows


@dataclass(frozen=True)
class Evaluation:
    """What was found on the seeds of a split."""

    metrics: dict[str, float]
    num_labeled: int
    loss: float
    """Mean over the batches that have a label; NaN where no loss was asked for."""
    error_bound: float
    """The largest bound of |Y - Y*|_F / |Y|_F over the samples it was asked of; NaN if of none."""
    energies: list[float] = field(default_factory=list)
    """E(Y^0), ..., E(Y^K) on the first sample."""


@dataclass(frozen=True, eq=False)
class Scored:
    """A batch with what the model makes of it."""

    batch: Batch
    Y: Rows
    logits: Tensor
    error_bound: float | None
    energies: list[float]


def score(
    model: MuseGNN,
    means: MeanEmbeddings | None,
    loader: Loader,
    config: Config,
    *,
    bounds: int | None = None,
    indices: range | list[int] | None = None,
) -> Iterator[Scored]:
    """Batch by batch; `bounds` of them with an error bound, all if None, which takes about twice the time."""
    for number, batch in enumerate(loader.batches(range(len(loader)) if indices is None else indices)):
        # The curve of the first sample; of the others the last step, which is all that a bound takes.
        traced_steps = model.steps if number == 0 else 1
        is_traced = bounds is None or number < bounds
        yield score_batch(model, means, batch, config, traced_steps if is_traced else None)


@torch.no_grad()
def score_batch(
    model: MuseGNN, means: MeanEmbeddings | None, batch: Batch, config: Config, traced_steps: int | None
) -> Scored:
    """One batch; with energies and a bound of its last steps unless that is None."""
    model.eval()
    precision = config.training.precision
    mu, seen = gather_means(means, batch, config.means.unseen, device_of(model))
    if traced_steps is None:
        Y, bound, energies = embed(model, batch, mu, seen, precision=precision), None, []
    else:
        trace = traced(model, batch, mu, seen, steps=traced_steps, precision=precision)
        Y, bound = trace.Y, trace.error_bound / max(float(trace.Y.norm()), 1e-30)
        energies = trace.energies.tolist()
    logits = classify(model, Y[: batch.sample.num_seeds], precision=precision)
    return Scored(batch, Y, logits.cpu(), bound, energies)


def evaluate(
    model: MuseGNN,
    means: MeanEmbeddings | None,
    loader: Loader,
    config: Config,
    *,
    bounds: int | None = 1,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    update: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    label: str = "Evaluating",
) -> Evaluation:
    """Metrics over all seeds of a loader. `update` moves M as well, as the authors' code does."""
    book = ScoreBook(("accuracy", "macro_f1", config.training.metric))
    largest, energies, losses = math.nan, list[float](), list[float]()
    with progress(label, len(loader), unit="samples") as advance:
        for found in score(model, means, loader, config, bounds=bounds):
            book.add(found.logits, found.batch.targets.cpu())
            if loss is not None:
                targets = found.batch.targets
                losses.append(float(loss(found.logits.to(targets.device), targets)))
            if update and means is not None:
                update_means(means, found.batch, found.Y)
            if found.error_bound is not None:
                largest = found.error_bound if math.isnan(largest) else max(largest, found.error_bound)
            energies = energies or found.energies
            advance(1)
            if is_stopped():
                raise KeyboardInterrupt
    mean_loss = sum(losses) / len(losses) if losses else math.nan
    return Evaluation(book.metrics(), book.num_labeled, mean_loss, largest, energies)
