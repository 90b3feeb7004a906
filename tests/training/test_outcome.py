"""Outcome: what is counted of a step; a GPU may be steps behind, and what went wrong still says where."""

import math
from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from machine import only_on_a_gpu
from musegnn.errors import DivergenceError
from musegnn.ranks import ALONE
from musegnn.training import checkpoint, forward
from musegnn.training.batches import Batch
from musegnn.training.config import Config
from musegnn.training.loop import Trainer
from musegnn.training.outcome import Outcome
from musegnn.training.schedule import epoch_order
from musegnn.training.signals import Stop
from musegnn.training.state import Position

DEVICES = ["cpu", pytest.param("cuda", marks=only_on_a_gpu)]
NAN = math.nan


def outcome(targets, logits, loss=1.5, norm=0.25, index=7, device="cpu"):
    s = SimpleNamespace()
    batch = Batch.__new__(Batch)
    for name, part in {"index": index, "sample": s, "targets": torch.tensor(targets, device=device)}.items():
        object.__setattr__(batch, name, part)
    numbers = (torch.tensor(number, device=device) for number in (loss, norm))
    return Outcome.of(batch, 2, *numbers, torch.tensor(logits, device=device), None)


@pytest.mark.parametrize("device", DEVICES)
def test_a_class_is_met_where_its_logit_is_the_largest(device):
    logits = [[0.0, 1.0, -1.0], [2.0, 1.0, 0.0], [0.0, 0.0, 3.0], [0.0, 9.0, 0.0]]
    found = outcome([1, 2, 2, -1], logits, device=device)
    assert found.read() == (1.5, 0.25, 2, 3, True)
    assert found.read() == (1.5, 0.25, 2, 3, True)
    assert found.where == "Epoch 3, training sample 7"
    assert (found.event is None) == (device == "cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_each_of_several_labels_is_met_or_not(device):
    """NaN where it is not known; a logit of 0 says no."""
    targets = [[1.0, 0.0, NAN], [0.0, 0.0, 1.0], [NAN, NAN, NAN]]
    logits = [[0.5, -0.5, 9.0], [0.0, 0.1, -0.1], [1.0, -1.0, 0.0]]
    assert outcome(targets, logits, device=device).read() == (1.5, 0.25, 3, 5, True)


@pytest.mark.parametrize(("targets", "logits"), [([-1, -1], [[1.0, 0.0]] * 2), ([[NAN] * 2], [[1.0, -1.0]])])
def test_nothing_is_counted_where_nothing_is_known(targets, logits):
    assert outcome(targets, logits, loss=0.0).read() == (0.0, 0.25, 0, 0, True)


def trainer(outcomes):
    made = Trainer.__new__(Trainer)
    made.state, made._outcomes = SimpleNamespace(position=Position()), deque(outcomes)
    made.ranks, made.stop, made._sums = ALONE, Stop(), np.zeros(3)
    made.config, made.checkpoint_seconds, made._saved = Config().with_settings({"samples_per_step": 1}), 0, 0
    return made


def settle(made, left=0):
    made._settle(left)
    made._agree()


def test_all_but_the_last_are_read_in_their_order():
    some = [outcome([0, -1], [[1.0, 0.0]] * 2, loss=10.0**i, index=i) for i in range(5)]
    made = trainer(some)
    position = made.state.position
    settle(made, 2)
    assert (position.loss_sum, position.num_correct, position.num_labeled) == (111, 3, 3)
    assert list(made._outcomes) == some[3:]
    settle(made, 2)
    assert position.loss_sum == 111
    settle(made)
    assert (position.loss_sum, position.num_correct, position.num_labeled) == (11111, 5, 5)
    assert isinstance(position.num_correct, int)
    assert not made._outcomes


@pytest.mark.parametrize(
    ("bad", "said"), [({"loss": NAN}, "The loss is nan."), ({"norm": math.inf}, "The gradient is inf.")]
)
def test_what_is_not_finite_is_said_with_its_own_place(bad, said):
    """Not with that of the step it was read in; and what came before it counts."""
    made = trainer([outcome([0], [[1.0, 0.0]], index=1), outcome([0], [[1.0, 0.0]], index=2, **bad)])
    made._outcomes.append(outcome([0], [[1.0, 0.0]], index=3))
    with pytest.raises(DivergenceError) as caught:
        made._settle()
    assert str(caught.value).startswith(f"Epoch 3, training sample 2: {said}")
    assert "\n" not in str(caught.value)
    assert made._sums.tolist() == [1.5, 1, 1]


def test_embeddings_that_are_not_finite_are_told():
    bad = outcome([0], [[1.0, 0.0]], index=2)
    bad.numbers[4] = 0
    with pytest.raises(DivergenceError, match="Epoch 3, training sample 2: The embeddings are not finite."):
        trainer([bad])._settle()


def test_the_loss_shown_is_that_of_steps_that_are_known():
    made = trainer([outcome([0], [[1.0, 0.0]], loss=2.0, index=i) for i in range(5)])
    made.state.position.batch = 5
    settle(made, 2)
    assert made._mean_loss() == 2
    settle(made)
    assert made._mean_loss() == 2


@pytest.fixture
def lagging(monkeypatch):
    """The CPU as a GPU is: two steps behind, and nobody looks for NaN on the way."""
    settle, unfold_seeds = Trainer._settle, forward.unfold_seeds
    monkeypatch.setattr(Trainer, "_settle", lambda trainer, *left: settle(trainer, 2 if left else 0))
    monkeypatch.setattr(
        forward, "unfold_seeds", lambda *given, check, **named: unfold_seeds(*given, check=False, **named)
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s")


def spoil(monkeypatch, at, what):
    """A loss or a gradient that is no number, at a step."""
    real = Trainer.step

    def step(trainer, batch):
        if trainer.state.position.step == at and what == "loss":
            trainer.loss = lambda logits, targets, total: logits.sum() * NAN
        elif trainer.state.position.step == at:
            next(trainer.state.model.parameters()).register_hook(lambda gradient: gradient * math.inf)
        real(trainer, batch)

    monkeypatch.setattr(Trainer, "step", step)


def check_told(store, folder, at, what, device="cpu"):
    """Each step has its checkpoint, or only the first and the ends of epochs."""
    index = int(epoch_order(6, seed=0, epoch=at // 6)[at % 6])
    for often, kept in ((0, at), (1000, 0)):
        with pytest.raises(DivergenceError) as caught:
            musegnn.train(
                small_runs.graph(), store, small_runs.model(0.0).to(device), folder / str(often),
                epochs=2, checkpoint_seconds=often,
            )  # fmt: skip
        message = str(caught.value)
        assert message.startswith(f"Epoch {at // 6 + 1}, training sample {index}: The {what} is ")
        assert message.endswith("The last checkpoint is kept.")
        tensors, facts, *_ = checkpoint.load(folder / str(often) / "checkpoint", "state")
        assert facts["position"]["step"] == kept
        assert all(part.isfinite().all() for part in tensors.values())


@pytest.mark.parametrize(("at", "what"), [(5, "gradient"), (7, "loss")])
@pytest.mark.usefixtures("lagging")
def test_steps_later_it_is_still_said_where(store, tmp_path, monkeypatch, at, what):
    """Also in the last step of an epoch: nothing is validated before it is known."""
    spoil(monkeypatch, at, what)
    check_told(store, tmp_path, at, what)


def test_who_reads_later_reads_the_same(store, tmp_path, request):
    made = []
    for name in ("at once", "later"):
        if name == "later":
            request.getfixturevalue("lagging")
        musegnn.train(small_runs.graph(), store, small_runs.model(), tmp_path / name, epochs=2)
        made.append(small_runs.outcome(tmp_path / name))
    assert small_runs.differences(*made) == []


@only_on_a_gpu
@pytest.mark.parametrize(("at", "what"), [(1, "loss"), (5, "gradient"), (7, "loss")])
def test_a_gpu_says_where(store, tmp_path, monkeypatch, at, what):
    spoil(monkeypatch, at, what)
    check_told(store, tmp_path, at, what, "cuda")


@only_on_a_gpu
def test_features_that_overflow_are_told_by_a_gpu(tmp_path):
    graph = small_runs.graph()
    features = np.full_like(graph.features, 3e38)
    spoiled = musegnn.Graph.from_edges(
        np.stack(np.nonzero(np.eye(120, k=1))), num_nodes=120, features=features, labels=graph.labels,
        split=graph.split,
    )  # fmt: skip
    drawn = small_runs.store(tmp_path / "s", spoiled)
    with pytest.raises(DivergenceError, match="^Epoch 1, training sample "):
        musegnn.train(spoiled, drawn, small_runs.model().cuda(), tmp_path / "run", epochs=1)
