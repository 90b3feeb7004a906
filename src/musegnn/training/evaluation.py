"""Evaluation: the same pipeline on other samples, M read-only, so that twice gives the same answer."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from musegnn.baselines.contract import AnyModel, Baseline
from musegnn.errors import InputError
from musegnn.means import MeanEmbeddings
from musegnn.means.sharded import Means
from musegnn.models import MuseGNN
from musegnn.progress import progress
from musegnn.ranks import ALONE, Ranks, current
from musegnn.training.batches import Batch, Loader
from musegnn.training.config import Config
from musegnn.training.forward import (
    Asked,
    answer,
    classify,
    device_of,
    embed,
    gather_means,
    traced,
    update_means,
)
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
    asked: Asked
    Y: Rows | None
    """Of all nodes; None of a peer."""
    logits: Tensor
    error_bound: float | None
    energies: list[float]


def score(
    model: AnyModel,
    means: Means | None,
    loader: Loader,
    config: Config,
    *,
    bounds: int | None = None,
    indices: Sequence[int] | None = None,
    ranks: Ranks = ALONE,
) -> Iterator[Scored | None]:
    """Batch by batch; `bounds` of them with an error bound, all if None, which takes about twice the time.

    Several ranks take turns: each yields as often, None where there is no batch left for it.
    """
    order = range(len(loader)) if indices is None else indices
    batches = loader.batches(order, ranks)
    for first in range(0, len(order), ranks.size):
        number, batch = first + ranks.rank, next(batches, None)
        # The curve of the first sample; of the others the last step, which is all that a bound takes.
        traced_steps = model.steps if number == 0 and isinstance(model, MuseGNN) else 1
        is_traced = bounds is None or number < bounds
        yield score_batch(model, means, batch, config, traced_steps if is_traced else None)


@torch.no_grad()
def score_batch(
    model: AnyModel, means: Means | None, batch: Batch | None, config: Config, traced_steps: int | None
) -> Scored | None:
    """One batch; with energies and a bound of its last steps unless that is None."""
    model.eval()
    precision = config.training.precision
    asked = gather_means(means, batch, config.means.unseen, device_of(model))
    if batch is None:
        return None
    if isinstance(model, Baseline):
        return Scored(batch, asked, None, answer(model, batch, precision=precision).cpu(), None, [])
    if traced_steps is None:
        Y, bound, energies = embed(model, batch, asked.mu, asked.seen, precision=precision), None, []
    else:
        trace = traced(model, batch, asked.mu, asked.seen, steps=traced_steps, precision=precision)
        Y, bound = trace.Y, trace.error_bound / max(float(trace.Y.norm()), 1e-30)
        energies = trace.energies.tolist()
    logits = classify(model, Y[: batch.sample.num_seeds], precision=precision)
    return Scored(batch, asked, Y, logits.cpu(), bound, energies)


def evaluate(
    model: AnyModel,
    means: Means | None,
    loader: Loader,
    config: Config,
    *,
    bounds: int | None = 1,
    loss: Callable[[Tensor, Tensor], Tensor] | None = None,
    update: bool = False,
    is_stopped: Callable[[], bool] = lambda: False,
    watch: Callable[[Scored], None] = lambda scored: None,
    label: str = "Evaluating",
) -> Evaluation:
    """Metrics over all seeds of a loader, on every rank. `update` moves M as well, as the authors' code.

    `watch` is told of each batch of this rank.
    """
    book, ranks = ScoreBook(("accuracy", "macro_f1", config.training.metric)), current()
    if update and not ranks.is_alone:
        raise InputError(f"update_means=true needs one process, got {ranks.size} ranks. Leave M alone.")
    largest, energies, losses = math.nan, list[float](), list[float]()
    with progress(label, len(loader), unit="samples") as advance:
        for found in score(model, means, loader, config, bounds=bounds, ranks=ranks):
            if found is not None:
                watch(found)
            if update and isinstance(means, MeanEmbeddings) and found is not None and found.Y is not None:
                update_means(means, found.asked, found.Y)
            told = [_told(found, is_stopped())] if ranks.is_alone else _tell(found, is_stopped(), ranks)
            for one in told:
                if one.logits is not None and one.targets is not None:
                    book.add(one.logits, one.targets)
                    if loss is not None:
                        device = loader.device
                        losses.append(float(loss(one.logits.to(device), one.targets.to(device))))
                    advance(1)
                if one.error_bound is not None:
                    largest = one.error_bound if math.isnan(largest) else max(largest, one.error_bound)
                energies = energies or one.energies
            if any(one.is_stopped for one in told):
                raise KeyboardInterrupt
    mean_loss = sum(losses) / len(losses) if losses else math.nan
    return Evaluation(book.metrics(), book.num_labeled, mean_loss, largest, energies)


class _Told(NamedTuple):
    """What all ranks are told of a batch."""

    logits: Tensor | None
    targets: Tensor | None
    error_bound: float | None
    energies: list[float]
    is_stopped: bool


def _told(found: Scored | None, is_stopped: bool) -> _Told:
    if found is None:
        return _Told(None, None, None, [], is_stopped)
    return _Told(found.logits, found.batch.targets.cpu(), found.error_bound, found.energies, is_stopped)


def _tell(found: Scored | None, is_stopped: bool, ranks: Ranks) -> list[_Told]:
    """What every rank has found, in the order of the samples."""
    logits, targets, *facts = _told(found, is_stopped)
    own = [part.numpy() for part in (logits, targets) if part is not None]
    told = []
    for others, arrays in ranks.gather_arrays(facts, own):
        rows = map(torch.from_numpy, arrays) if arrays else (None, None)
        told.append(_Told(*rows, *others))
    return told
