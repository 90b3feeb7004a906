"""A program that trains in children and stops them: by kill -9, by signals, by a full disk. It exits with 0.

    python killed_runs.py FOLDER [random=KILLS] [everywhere=STRIDE] [stopped]

Each run is then gone on with, and must end with the bits of one that nobody stopped. Children are forked,
since to import torch takes longer than to train.
"""

import os
import resource
import shutil
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from musegnn.errors import StoreError
from musegnn.means import MeanEmbeddings
from musegnn.means.undo import UndoLog
from musegnn.training import checkpoint
from musegnn.training.loop import Trainer

KILLED, NEVER = 77, 1e9
MEMORY, DISK = {"gamma": 0.5}, {"gamma": 0.5, "means_home": "disk"}
WAYS = {
    "memory, each step": (MEMORY, 0.0),
    "disk, each step": (DISK, 0.0),
    "memory, now and then": (MEMORY, 0.05),
    "disk, now and then": (DISK, 0.05),
    "disk, never": (DISK, NEVER),
    "evaluation moves M": ({"gamma": 0.5, "update_means": True}, 0.0),
    "drawn anew": ({"gamma": 0.5, "online": True, "means_dtype": "bfloat16"}, 0.0),
    "no means": ({"gamma": 0.0, "means_home": "disk"}, 0.0),
}


class Runs:
    """One way to train, and what must come of it."""

    def __init__(self, root, name, store, epochs):
        self.way, self.checkpoint_seconds = WAYS[name]
        self.store, self.epochs, self.folder = store, epochs, root / "run"
        started = time.monotonic()
        self.train(root / "whole")
        self.seconds = time.monotonic() - started
        self.expected = small_runs.outcome(root / "whole")
        shutil.rmtree(root / "whole")

    def train(self, folder=None):
        """Begin, or go on."""
        settings = {name: value for name, value in self.way.items() if name != "gamma"}
        folder = folder or self.folder
        return musegnn.train(
            small_runs.graph(),
            self.store,
            small_runs.model(self.way["gamma"], dropout=0.3),
            folder,
            epochs=self.epochs,
            lr=0.02,
            checkpoint_seconds=self.checkpoint_seconds,
            resume=(folder / "config.toml").exists(),
            **settings,
        )

    def is_done(self):
        return (self.folder / "result.json").exists()

    def check(self):
        """The run is finished, has the same bits, and leaves no file that the other does not."""
        assert not (wrong := small_runs.differences(small_runs.outcome(self.folder), self.expected)), wrong
        names = sorted(path.name for path in (self.folder / "checkpoint").iterdir())
        assert [name.split("-")[0] for name in names] == ["best", "best.json", "state", "state.json"], names
        assert not list(self.folder.glob("*.partial"))
        shutil.rmtree(self.folder)


def forked(work, kill_after=None):
    """The exit code of a child, negative if it was killed."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def kill_at_random(work, target, kills, rng, look=lambda: None):
    """Kill what works on a target until it is done, each time a bit later; `look` at what each kill left."""
    while kills:
        code = forked(work, rng.uniform(0, target.seconds))
        assert code in (0, -signal.SIGKILL), code
        if code == 0 and target.is_done():
            # It was faster than the kill, which counts only where it kills.
            target.check()
        else:
            kills -= 1
            look()
    assert forked(work) == 0
    target.check()


def killed_at_random(root, kills):
    """`kills` of them over all ways; a run is killed until it is done, each time a bit later."""
    store, rng = small_runs.store(root / "samples"), np.random.default_rng(kills)
    names = list(WAYS)[: min(kills, len(WAYS))]
    for number, name in enumerate(names):
        runs, left = Runs(root, name, store, epochs=3), kills // len(names) + (number < kills % len(names))
        kill_at_random(runs.train, runs, left, rng)


class Deadly:
    """From its `last`-th operation on files on, a process is dead."""

    def __init__(self, last):
        self.calls, self.last = 0, last

    def is_over(self):
        self.calls += 1
        return self.calls > self.last

    def wrap(self, owner, name, torn=None):
        """Die before the call, or in the middle of it."""
        function = getattr(owner, name)

        def call(*args, **kwargs):
            if self.is_over():
                if torn is not None:
                    torn(function, *args, **kwargs)
                os._exit(KILLED)
            return function(*args, **kwargs)

        setattr(owner, name, call)

    def arm(self):
        for name in ("rename", "unlink", "mkdir", "open", "write_bytes", "write_text"):
            self.wrap(Path, name)
        for name in ("fsync", "posix_fallocate"):
            self.wrap(os, name)
        self.wrap(checkpoint, "save_file")
        self.wrap(UndoLog, "clear")
        self.wrap(UndoLog, "_read")
        self.wrap(UndoLog, "note", torn=half_noted)
        self.wrap(MeanEmbeddings, "update", torn=half_updated)


def half_noted(note, log, step, node_ids):
    note(log, step, node_ids)
    os.truncate(log.path, log.path.stat().st_size - 5)


def half_updated(update, means, node_ids, Y, **options):
    half = len(node_ids) // 2
    update(means, node_ids[:half], Y[:half], **options)


def killed_everywhere(root, stride):
    """Before (or inside) the 1st, 2nd, ... operation; what goes on is killed as well, once."""
    store = small_runs.store(root / "samples", batch_size=20)
    for name in ("disk, each step", "disk, never", "memory, each step"):
        runs, last, codes = Runs(root, name, store, epochs=2), 0, []

        def work(last, runs=runs):
            Deadly(last).arm()
            runs.train()

        while not codes or codes[-1] == KILLED:
            codes.append(forked(lambda last=last: work(last)))
            if codes[-1] == KILLED:
                second = forked(lambda last=last: work(last % 23))
                assert second in (0, KILLED), (name, last, second)
                runs.train()
            runs.check()
            last += stride
        assert codes[-1] == 0, (name, last, codes)
        assert last > 40, (name, last)


def stopped(root):
    """Signals and full disks: an error with a sentence, and what is there can be gone on with."""
    store = small_runs.store(root / "samples")
    for number, name in ((signal.SIGTERM, "memory, now and then"), (signal.SIGINT, "disk, never")):
        runs = Runs(root, name, store, epochs=2)
        assert forked(lambda runs=runs, number=number: interrupted(runs, number)) == 0
        position = checkpoint.facts_of(runs.folder / "checkpoint", "state")["position"]
        assert position["step"] == 8, position
        runs.train()
        runs.check()
    for name, limit in (("memory, each step", 3000), ("memory, each step", 100), ("disk, never", 5000)):
        runs = Runs(root, name, store, epochs=2)
        assert forked(lambda runs=runs, limit=limit: filled(runs, limit)) == 0, (name, limit)
        runs.train()
        runs.check()


def at_step(number, action):
    """Do something when step `number` has been made."""
    step = Trainer.step

    def call(trainer, batch):
        step(trainer, batch)
        if trainer.state.position.step == number:
            action()

    Trainer.step = call


def interrupted(runs, number):
    handler = signal.getsignal(number)
    at_step(8, lambda: os.kill(os.getpid(), number))
    with pytest.raises(KeyboardInterrupt):
        runs.train()
    assert signal.getsignal(number) is handler


def filled(runs, limit):
    at_step(8, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY)))
    with pytest.raises(StoreError, match="disk is full.* checkpoint is kept") as caught:
        runs.train()
    assert "\n" not in str(caught.value)


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    for argument in sys.argv[2:]:
        name, _, number = argument.partition("=")
        (root := Path(sys.argv[1]) / name).mkdir()
        if name == "stopped":
            stopped(root)
        else:
            {"random": killed_at_random, "everywhere": killed_everywhere}[name](root, int(number))
