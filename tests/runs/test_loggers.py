"""TensorBoard and Weights & Biases are told each epoch, once, and a resumed run goes on in the same curve."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from machine import one_thread as one_thread
from musegnn.cli.main import main
from musegnn.training.loop import Trainer
from tiny_runs import flags, tiny_graph


@pytest.fixture(autouse=True)
def _inside(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny_graph().save("g")


@pytest.fixture
def fakes(monkeypatch):
    """Small modules in place of the real ones; what they were told."""
    told = SimpleNamespace(inits=[], logs=[], scalars=[], finished=[], closed=[])

    def init(**given):
        told.inits.append(given)
        return SimpleNamespace(
            id=given["id"] or f"new{len(told.inits)}",
            log=lambda numbers, step: told.logs.append((step, numbers)),
            finish=lambda: told.finished.append(True),
        )

    class SummaryWriter:
        def __init__(self, folder):
            self.folder = folder

        def add_scalar(self, name, value, epoch):
            told.scalars.append((self.folder.name, name, value, epoch))

        def close(self):
            told.closed.append(True)

    for name, parts in {
        "wandb": {"init": init},
        "tensorboard": {},
        "torch.utils.tensorboard": {"SummaryWriter": SummaryWriter},
    }.items():
        module = ModuleType(name)
        vars(module).update(parts)
        monkeypatch.setitem(sys.modules, name, module)
    return told


def call(*arguments, epochs=1):
    return main(["train", *arguments, *flags(epochs=epochs), "--device", "cpu", "--out", "r"])


def noted():
    return json.loads(Path("r/run.json").read_text()).get("wandb")


def test_each_epoch_is_told(fakes):
    assert call("g", "--log", "tensorboard,wandb") == 0
    assert fakes.inits == [{"project": "musegnn", "name": "r", "dir": ".", "id": None, "resume": "allow"}]
    event = json.loads(Path("r/events.jsonl").read_text().splitlines()[1])
    assert [step for step, _ in fakes.logs] == [1]
    assert fakes.logs[0][1]["valid_accuracy"] == event["valid_accuracy"]
    assert ("r.tensorboard", "loss", event["loss"], 1) in fakes.scalars
    assert fakes.finished == fakes.closed == [True]
    assert noted() == "new1"
    # Another run in the same folder is another one there, too.
    assert call("g", "--overwrite", "--log", "wandb") == 0
    assert fakes.inits[-1]["id"] is None
    assert noted() == "new2"


@contextmanager
def stopped(monkeypatch, at):
    """Ctrl-C before step `at`, counted from now."""
    calls, before = [], Trainer.step

    def step(self, batch):
        calls.append(0)
        if len(calls) == at:
            raise KeyboardInterrupt
        before(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        with pytest.raises(SystemExit):
            yield


def test_a_resumed_run_is_the_same_run_there(fakes, monkeypatch):
    # Two steps are an epoch. No checkpoint comes before the last one: epoch 1 is told again, as step 1.
    with stopped(monkeypatch, 4):
        call("g", "--log", "wandb", epochs=3)
    resume = ["train", "--resume", "r", "--device", "cpu", "--log", "wandb"]
    with stopped(monkeypatch, 3):
        main(resume)
    assert main(resume) == 0
    assert [given["id"] for given in fakes.inits] == [None, "new1", "new1"]
    assert {given["resume"] for given in fakes.inits} == {"allow"}
    assert [step for step, _ in fakes.logs] == [1, 1, 1, 2, 3]
    assert noted() == "new1"
    assert fakes.finished == [True] * 3


def test_a_run_that_was_begun_without_is_noted_when_it_goes_on(fakes, monkeypatch):
    with stopped(monkeypatch, 2):
        call("g")
    assert noted() is None
    assert main(["train", "--resume", "r", "--device", "cpu", "--log", "wandb"]) == 0
    assert noted() == "new1"
