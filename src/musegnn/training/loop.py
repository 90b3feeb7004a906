"""Algorithm 1, resumable: all that happens is a function of the settings, the data and the step's number."""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from musegnn.baselines.contract import AnyModel, Baseline
from musegnn.errors import DivergenceError, StoreError
from musegnn.means.sharded import ShardedMeans
from musegnn.means.undo import UndoLog
from musegnn.memory import anonymous_memory
from musegnn.progress import progress
from musegnn.ranks import ALONE, Ranks
from musegnn.store import file_errors
from musegnn.training import checkpoint
from musegnn.training.batches import Batch, Loader
from musegnn.training.config import Config
from musegnn.training.evaluation import Evaluation, evaluate
from musegnn.training.folder import RunFolder
from musegnn.training.forward import (
    Asked,
    answer,
    classify,
    device_of,
    embed_seeds,
    gather_means,
    transform,
    update_means,
)
from musegnn.training.losses import Loss
from musegnn.training.outcome import Outcome
from musegnn.training.profile import Profile
from musegnn.training.schedule import epoch_order, learning_rate, num_steps, sample_seed
from musegnn.training.signals import Stop
from musegnn.training.state import State
from musegnn.training.told import told_divergence, told_memory, told_where
from musegnn.unfolding.penalty import Rows

STATE, BEST = "state", "best"
_AHEAD = 2
"""Steps that a GPU may be behind: nobody waits for it to learn a loss."""
Listener = Callable[[dict[str, Any]], None]
"""Told of every event that is written to events.jsonl."""


@dataclass
class Trainer:
    """What stays the same from step to step."""

    folder: RunFolder
    config: Config
    state: State
    train: Loader
    valid: Loader | None
    loss: Loss
    stop: Stop
    undo: UndoLog | None = None
    checkpoint_seconds: float = 120.0
    listen: Listener = lambda event: None
    profile: Profile | None = None
    ranks: Ranks = ALONE

    def __post_init__(self) -> None:
        self._saved = self._began = time.monotonic()
        self._outcomes = deque[Outcome]()
        self._sums = np.zeros(3)
        """Loss, labels that were met, labels there were, of this rank's steps that no other knows of yet."""
        self._replica: nn.Module = _Replica(self.state.model, self._forward)
        if not self.ranks.is_alone:
            with self.ranks.told():
                self._replica = DistributedDataParallel(self._replica)

    def count_from(self, began: float) -> None:
        """The seconds of this process count from here."""
        self._began = began

    def run(self) -> None:
        """All epochs that are left."""
        settings, position = self.config.training, self.state.position
        try:
            while position.epoch < settings.epochs and not position.is_done:
                with told_memory(f"Epoch {position.epoch + 1}, reading or evaluating", self.config):
                    self._epoch()
                    with told_divergence(f"Epoch {position.epoch + 1}, validation"):
                        self._end_epoch()
        except DivergenceError as error:
            with suppress(StoreError):
                self.listen(self.folder.log("failed", message=str(error)))
            raise
        position.is_done = True
        self.save()
        self._end_profile()

    def _epoch(self) -> None:
        """One pass over all samples, from the step on where the state is."""
        position, started, waited = self.state.position, time.monotonic(), self.train.waited
        self.train.begin_epoch(position.epoch)
        order = epoch_order(len(self.train), seed=self.config.training.seed, epoch=position.epoch).tolist()
        before, size = position.epoch_seconds, self.config.training.samples_per_step
        steps = [order[first : first + size] for first in range(0, len(order), size)][position.batch :]
        label = f"Epoch {position.epoch + 1}/{self.config.training.epochs}"
        with progress(label, len(order), unit="samples", done=size * position.batch) as advance:
            before_batch = self.train.waited
            if self.profile is not None:
                self.profile.begin_epoch()
            own = [index for step in steps for index in step[self.ranks.rank :: self.ranks.size]]
            batches = self.train.batches(own)
            for step in steps:
                # As many turns on every rank, without a batch where there is none left.
                turns = [range(first, len(step)) for first in range(0, len(step), self.ranks.size)]
                self.step([next(batches) if self.ranks.rank < len(turn) else None for turn in turns])
                self._look_at_profile(self.train.waited - before_batch)
                before_batch = self.train.waited
                position.batch += 1
                position.epoch_seconds = before + time.monotonic() - started
                is_stopped, is_due = self._agree()
                share = (self.train.waited - waited) / max(time.monotonic() - started, 1e-9)
                right = position.num_correct / max(position.num_labeled, 1)
                shown = (
                    f"loss {self._mean_loss():.3f}, {100 * right:.1f} % right, {100 * share:.0f} % waiting"
                )
                advance(len(step), f"{shown} for data")
                if is_stopped or is_due:
                    self.save()
                if is_stopped:
                    raise KeyboardInterrupt
            # The threads that read ahead end here.
            assert next(batches, None) is None
        self._settle()
        self._agree()
        self._share = (self.train.waited - waited) / max(time.monotonic() - started, 1e-9)

    def step(self, batches: Sequence[Batch | None]) -> None:
        """Lines 4 to 10 of algorithm 1: mu, Z, K steps, the loss of the seeds, Adam, then M and c.

        With several samples, here or on other ranks, every one of them reads M before any of them moves it,
        and the gradient is that of the mean over all their seeds.
        """
        state, settings, position = self.state, self.config.training, self.state.position
        for group in state.optimizer.param_groups:
            group["lr"] = self._lr(position.step)
        state.model.train()
        state.optimizer.zero_grad(set_to_none=True)
        self._mark("")
        total, done = self._total(batches), list[_Passed]()
        for batch in batches:
            with told_where(batch, position.epoch, self.config):
                done.append(self._pass(batch, total, is_last=len(done) + 1 == len(batches)))
        with told_memory(f"Epoch {position.epoch + 1}, Adam", self.config):
            norm = nn.utils.clip_grad_norm_(state.model.parameters(), settings.clip or math.inf)
            state.optimizer.step()
            if not isinstance(state.model, Baseline):
                state.model.energy.confine()
            self._mark("optimizer")
        for one in done:
            with told_where(one.batch, position.epoch, self.config):
                self._move_means(one)
            if one.batch is not None and one.logits is not None:
                given = one.batch, position.epoch, one.loss, norm, one.logits, one.Y
                self._outcomes.append(Outcome.of(*given))
        position.step += 1
        self._settle(_AHEAD if device_of(state.model).type == "cuda" else 0)

    def _pass(self, batch: Batch | None, total: Tensor | None, *, is_last: bool) -> "_Passed":
        """One sample, forward and backward; the ranks add up their gradients behind the last."""
        state, settings = self.state, self.config.training
        if batch is not None:
            torch.manual_seed(sample_seed(settings.seed, state.position.epoch, batch.index))
        asked = gather_means(state.means, batch, self.config.means.unseen, device_of(state.model))
        self._mark("means")
        replica = self._replica
        is_one_of_more = isinstance(replica, DistributedDataParallel) and not is_last
        with cast(DistributedDataParallel, replica).no_sync() if is_one_of_more else nullcontext():
            passed: _Passed = replica(batch, asked, total)
            # The ranks take the mean of their gradients, where the sum is meant.
            with self.ranks.told():
                (self.ranks.size * passed.loss).backward()  # type: ignore[no-untyped-call]
            self._mark("backward")
        return passed._replace(loss=passed.loss.detach())

    def _forward(self, batch: Batch | None, asked: Asked, total: Tensor | None) -> "_Passed":
        """From the features to the loss; nothing of it where a rank has no batch."""
        state, settings = self.state, self.config.training
        if batch is None:
            nothing = torch.stack([part.sum() for part in state.model.parameters()])
            return _Passed(None, asked, 0 * nothing.sum(), None, None)
        Y = None
        if isinstance(state.model, Baseline):
            logits = answer(state.model, batch, precision=settings.precision)
        else:
            Z = transform(state.model, batch, precision=settings.precision)
            self._mark("f")
            keeps = {"keeps_all": state.means is not None}
            seeds, Y = embed_seeds(state.model, batch, Z, asked.mu, asked.seen, **keeps)
            self._mark("descent")
            logits = classify(state.model, seeds, precision=settings.precision)
        loss = self.loss(logits, batch.targets, total)
        self._mark("g")
        return _Passed(batch, asked, loss, logits.detach(), Y)

    def _total(self, batches: Sequence[Batch | None]) -> Tensor | None:
        """The weight of all seeds of a step, on all ranks; None where the loss of one sample knows it."""
        if self.ranks.is_alone and len(batches) == 1:
            return None
        device = device_of(self.state.model)
        exact = torch.float32 if device.type == "mps" else torch.float64
        total = torch.zeros((), dtype=exact, device=device)
        for batch in batches:
            if batch is not None:
                total += self.loss.weight(batch.targets)
        return self.ranks.add_up_tensor(total)

    def _move_means(self, passed: "_Passed") -> None:
        if self.state.means is None:
            return
        means = self.state.means
        Y = passed.Y
        if Y is None:
            assert isinstance(means, ShardedMeans)
            Y = means.own.M.new_empty((0, means.own.M.shape[1]), dtype=torch.float32)
        note = None if self.undo is None else partial(self.undo.note, self.state.position.step)
        update_means(means, passed.asked, Y, note)
        self._mark("M")

    def _mark(self, part: str) -> None:
        if self.profile is not None:
            self.profile.mark(part)

    def _look_at_profile(self, waited: float) -> None:
        """A step is over; its parts are written down when enough were."""
        if self.profile is None:
            return
        self.profile.add("load", waited)
        if (copying := self.train.copying()) is not None:
            self.profile.add("copy", copying)
        self.profile.end_step()
        if self.profile.is_done:
            self._end_profile()

    def _end_profile(self) -> None:
        if self.profile is not None:
            self.listen(self.folder.log("profile", milliseconds=self.profile.end()))
            self.profile = None

    def _settle(self, left: int = 0) -> None:
        """Read what came of all steps but the last few; a GPU goes on meanwhile."""
        while len(self._outcomes) > left:
            outcome = self._outcomes.popleft()
            with told_divergence(outcome.where):
                loss, norm, num_correct, num_labeled, is_finite = outcome.read()
                if not math.isfinite(loss):
                    raise DivergenceError(f"The loss is {loss}. Take a smaller lr (--set lr=...), or clip.")
                if not math.isfinite(norm):
                    raise DivergenceError(f"The gradient is {norm}. Take a smaller lr (--set lr=...).")
                if not is_finite:
                    raise DivergenceError("The embeddings are not finite. Scale the features down.")
            self._sums += (loss, num_correct, num_labeled)

    def _agree(self) -> tuple[bool, bool]:
        """All ranks: what came of their steps, whether one is to stop, whether a checkpoint is due."""
        is_due = self.ranks.is_first and time.monotonic() - self._saved >= self.checkpoint_seconds
        own = np.array([self.stop.is_asked, is_due, *self._sums], dtype=np.float64)
        num_stopped, num_due, loss, num_correct, num_labeled = self.ranks.add_up(own)
        position, self._sums = self.state.position, np.zeros(3)
        position.loss_sum += float(loss)
        position.num_correct += int(num_correct)
        position.num_labeled += int(num_labeled)
        return bool(num_stopped), bool(num_due)

    def save(self) -> None:
        """A checkpoint to go on from; all ranks write it together."""
        self._settle()
        self._agree()
        position = self.state.position
        now = time.monotonic()
        position.seconds += now - self._began
        self._began = now
        if self.undo is not None and self.state.means is not None:
            with file_errors(self.undo.path.parent):
                self.state.means.flush()
        facts = {
            "position": self.state.facts(),
            "events": self.folder.events_size(),
            "belongs_to": self.folder.identity(),
            "ranks": self.ranks.size,
        }
        given = self.state.tensors(), facts, self.state.share(), self.ranks
        checkpoint.save(self.folder.checkpoints, STATE, *given)
        if self.undo is not None:
            self.undo.clear()
        self._saved = time.monotonic()

    def _end_epoch(self) -> None:
        """Look at the validation nodes, keep what is best, write down what happened."""
        state, settings, position = self.state, self.config.training, self.state.position
        found = None
        is_last = position.epoch + 1 == settings.epochs
        if self.valid is not None and (is_last or (position.epoch + 1) % settings.evaluate_every == 0):
            try:
                found = evaluate(
                    state.model,
                    state.means,
                    self.valid,
                    self.config,
                    bounds=0,
                    loss=self.loss,
                    update=settings.update_means,
                    is_stopped=lambda: self.stop.is_asked,
                )
            except KeyboardInterrupt:
                # Nothing has changed since the last step, unless M has; all ranks are here.
                if not settings.update_means:
                    self.save()
                raise
            # Of epochs that do equally well, as they often do on few nodes, the one with the least loss.
            reached = [found.metrics.get(settings.metric, -math.inf), -found.loss]
            if math.isfinite(reached[0]) and (position.best is None or reached > position.best):
                position.best, position.best_epoch = reached, position.epoch
                facts = {"position": state.facts()}
                given = state.prediction_tensors(), facts, state.share(), self.ranks
                checkpoint.save(self.folder.checkpoints, BEST, *given)
        event = self._event(found)
        position.begin_epoch()
        if (
            settings.patience
            and position.best is not None
            and position.epoch - 1 - position.best_epoch >= settings.patience
        ):
            position.is_done = True
        self.listen(self.folder.log("epoch", **event))

    def _event(self, found: Evaluation | None) -> dict[str, Any]:
        position = self.state.position
        seconds = position.epoch_seconds
        event: dict[str, Any] = {
            "epoch": position.epoch + 1,
            "step": position.step,
            "loss": self._mean_loss(),
            "train_accuracy": position.num_correct / max(position.num_labeled, 1),
            "lr": self._lr(position.step - 1),
            "seconds": round(seconds, 3),
            "samples_per_second": round(len(self.train) / max(seconds, 1e-9), 3),
            "waited": round(self._share, 4),
            "rss_mb": round(anonymous_memory() / 2**20, 1),
        }
        if found is not None:
            event |= {f"valid_{name}": value for name, value in found.metrics.items()}
            event["valid_loss"] = found.loss
            event["best_epoch"] = position.best_epoch + 1
        return event

    def _lr(self, step: int) -> float:
        settings = self.config.training
        total = num_steps(settings.epochs, len(self.train), settings.samples_per_step)
        return learning_rate(
            step, total=total, lr=settings.lr, schedule=settings.schedule, warmup=settings.warmup
        )

    def _mean_loss(self) -> float:
        # Of the last few steps nothing is known yet.
        turns = -(-self.config.training.samples_per_step // self.ranks.size)
        num_known = self.state.position.batch - len(self._outcomes) // turns
        return self.state.position.loss_sum / max(num_known, 1)


class _Passed(NamedTuple):
    """What a sample leaves for the end of its step."""

    batch: Batch | None
    asked: Asked
    loss: Tensor
    logits: Tensor | None
    Y: Rows | None


class _Replica(nn.Module):
    """From a batch to its loss, as one module: what the ranks do with gradients hangs on such a one."""

    def __init__(
        self, model: AnyModel, work: Callable[[Batch | None, Asked, Tensor | None], _Passed]
    ) -> None:
        super().__init__()
        self.model, self.work = model, work

    def forward(self, batch: Batch | None, asked: Asked, total: Tensor | None) -> _Passed:
        """The loss, and what else came of it."""
        return self.work(batch, asked, total)
