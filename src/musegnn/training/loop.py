"""Algorithm 1, resumable: all that happens is a function of the settings, the data and the step's number."""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from musegnn.errors import DivergenceError, InputError
from musegnn.means.undo import UndoLog
from musegnn.memory import anonymous_memory, is_out_of_memory
from musegnn.progress import progress
from musegnn.store import file_errors
from musegnn.training import checkpoint
from musegnn.training.batches import Batch, Loader
from musegnn.training.config import Config
from musegnn.training.evaluation import Evaluation, evaluate
from musegnn.training.folder import RunFolder
from musegnn.training.forward import (
    classify,
    device_of,
    embed_seeds,
    gather_means,
    transform,
    update_means,
)
from musegnn.training.outcome import Outcome, place_of
from musegnn.training.profile import Profile
from musegnn.training.schedule import epoch_order, learning_rate, step_seed
from musegnn.training.signals import Stop
from musegnn.training.state import State

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
    loss: Callable[[Tensor, Tensor], Tensor]
    stop: Stop
    undo: UndoLog | None = None
    checkpoint_seconds: float = 120.0
    listen: Listener = lambda event: None
    profile: Profile | None = None

    def __post_init__(self) -> None:
        self._saved = self._began = time.monotonic()
        self._outcomes = deque[Outcome]()

    def count_from(self, began: float) -> None:
        """The seconds of this process count from here."""
        self._began = began

    def run(self) -> None:
        """All epochs that are left."""
        settings, position = self.config.training, self.state.position
        while position.epoch < settings.epochs and not position.is_done:
            with _told_memory(f"Epoch {position.epoch + 1}, reading or evaluating", self.config):
                self._epoch()
                with _told_divergence(f"Epoch {position.epoch + 1}, validation"):
                    self._end_epoch()
        position.is_done = True
        self.save()
        self._end_profile()

    def _epoch(self) -> None:
        """One pass over all samples, from the batch on where the state is."""
        position, started, waited = self.state.position, time.monotonic(), self.train.waited
        self.train.begin_epoch(position.epoch)
        order = epoch_order(len(self.train), seed=self.config.training.seed, epoch=position.epoch)
        before, total = position.epoch_seconds, len(order)
        label = f"Epoch {position.epoch + 1}/{self.config.training.epochs}"
        with progress(label, total, unit="samples", done=position.batch) as advance:
            before_batch = self.train.waited
            if self.profile is not None:
                self.profile.begin_epoch()
            for batch in self.train.batches(order[position.batch :]):
                self.step(batch)
                self._look_at_profile(self.train.waited - before_batch)
                before_batch = self.train.waited
                position.batch += 1
                position.epoch_seconds = before + time.monotonic() - started
                share = (self.train.waited - waited) / max(time.monotonic() - started, 1e-9)
                right = position.num_correct / max(position.num_labeled, 1)
                shown = (
                    f"loss {self._mean_loss():.3f}, {100 * right:.1f} % right, {100 * share:.0f} % waiting"
                )
                advance(1, f"{shown} for data")
                if self.stop.is_asked:
                    self.save()
                    raise KeyboardInterrupt
                if time.monotonic() - self._saved >= self.checkpoint_seconds:
                    self.save()
        self._settle()
        self._share = (self.train.waited - waited) / max(time.monotonic() - started, 1e-9)

    def step(self, batch: Batch) -> None:
        """Lines 4 to 10 of algorithm 1: mu, Z, K steps, the loss of the seeds, Adam, then M and c."""
        state, settings, position = self.state, self.config.training, self.state.position
        torch.manual_seed(step_seed(settings.seed, position.step))
        for group in state.optimizer.param_groups:
            group["lr"] = self._lr(position.step)
        state.model.train()
        with _told_where(batch, position.epoch, self.config):
            self._mark("")
            mu, seen = gather_means(state.means, batch, self.config.means.unseen, device_of(state.model))
            self._mark("means")
            Z = transform(state.model, batch, precision=settings.precision)
            self._mark("f")
            seeds, Y = embed_seeds(state.model, batch, Z, mu, seen, keeps_all=state.means is not None)
            self._mark("descent")
            logits = classify(state.model, seeds, precision=settings.precision)
            loss = self.loss(logits, batch.targets)
            self._mark("g")
            state.optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self._mark("backward")
            norm = nn.utils.clip_grad_norm_(state.model.parameters(), settings.clip or math.inf)
            state.optimizer.step()
            self._mark("optimizer")
            if state.means is not None:
                assert Y is not None
                if self.undo is not None:
                    self.undo.note(position.step, batch.sample.node_ids)
                update_means(state.means, batch, Y)
                self._mark("M")
        self._outcomes.append(Outcome.of(batch, position.epoch, loss.detach(), norm, logits.detach(), Y))
        position.step += 1
        self._settle(_AHEAD if logits.device.type == "cuda" else 0)

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
        position = self.state.position
        while len(self._outcomes) > left:
            outcome = self._outcomes.popleft()
            with _told_divergence(outcome.where):
                loss, norm, num_correct, num_labeled, is_finite = outcome.read()
                if not math.isfinite(loss):
                    raise DivergenceError(f"The loss is {loss}. Take a smaller lr (--set lr=...), or clip.")
                if not math.isfinite(norm):
                    raise DivergenceError(f"The gradient is {norm}. Take a smaller lr (--set lr=...).")
                if not is_finite:
                    raise DivergenceError("The embeddings are not finite. Scale the features down.")
            position.loss_sum += loss
            position.num_labeled += int(num_labeled)
            position.num_correct += int(num_correct)

    def save(self) -> None:
        """A checkpoint to go on from."""
        self._settle()
        position = self.state.position
        now = time.monotonic()
        position.seconds += now - self._began
        self._began = now
        if self.undo is not None and self.state.means is not None:
            with file_errors(self.folder.means):
                self.state.means.flush()
        facts = {
            "position": self.state.facts(),
            "events": self.folder.events_size(),
            "belongs_to": self.folder.identity(),
        }
        checkpoint.save(self.folder.checkpoints, STATE, self.state.tensors(), facts)
        if self.undo is not None:
            self.undo.clear()
        self._saved = time.monotonic()

    def _end_epoch(self) -> None:
        """Look at the validation nodes, keep what is best, write down what happened."""
        state, settings, position = self.state, self.config.training, self.state.position
        found = None
        is_last = position.epoch + 1 == settings.epochs
        if self.valid is not None and (is_last or (position.epoch + 1) % settings.evaluate_every == 0):
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
            # Of epochs that do equally well, as they often do on few nodes, the one with the least loss.
            reached = [found.metrics.get(settings.metric, -math.inf), -found.loss]
            if math.isfinite(reached[0]) and (position.best is None or reached > position.best):
                position.best, position.best_epoch = reached, position.epoch
                checkpoint.save(
                    self.folder.checkpoints, BEST, state.prediction_tensors(), {"position": state.facts()}
                )
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
        total = settings.epochs * len(self.train)
        return learning_rate(
            step, total=total, lr=settings.lr, schedule=settings.schedule, warmup=settings.warmup
        )

    def _mean_loss(self) -> float:
        # Of the last few steps nothing is known yet.
        return self.state.position.loss_sum / max(self.state.position.batch - len(self._outcomes), 1)


@contextmanager
def _told_where(batch: Batch, epoch: int, config: Config) -> Iterator[None]:
    """What goes wrong in a step is said with the sample and the epoch it went wrong in."""
    where = place_of(batch, epoch)
    memory = _told_memory(f"{where} of {batch.sample.num_nodes:,} nodes", config)
    with _told_divergence(where), memory:
        yield


@contextmanager
def _told_divergence(where: str) -> Iterator[None]:
    """A run that diverges is said with the place; with the same settings it would do so again."""
    try:
        yield
    except DivergenceError as error:
        raise DivergenceError(
            f"{where}: {error} The last checkpoint is kept.", step=error.step, energy=error.energy
        ) from error


@contextmanager
def _told_memory(where: str, config: Config) -> Iterator[None]:
    """Out of memory is said with what to lower."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"{where}: out of memory with hidden={config.model.hidden} and steps={config.model.steps}. "
            "Lower batch_size or fanouts (smaller samples), or hidden; "
            "with gamma > 0 and M too large for memory, --set means_home=disk."
        ) from error
