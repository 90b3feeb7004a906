"""kill -9 at random moments: whatever was killed is done again, and must end with the same bytes."""

import io
import mmap
import shutil
import struct
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import killed_runs
import numpy as np
import small_runs
from fault_probe import Row, contents, main

import musegnn
import sample_stores
import tiny_runs
from musegnn import features
from musegnn.errors import StoreError
from musegnn.sampling import plan
from musegnn.training import checkpoint
from musegnn.training.loop import Trainer

SUFFIXES = (".npy", ".csv", ".parquet")


def command(*arguments: object) -> None:
    """A command that must not fail."""
    with redirect_stdout(io.StringIO()):
        code = main(["--quiet", *map(str, arguments)])
    assert code == 0, code


class Kept:
    """Files that were complete when a process was killed: nobody makes them again, and none is lost."""

    def __init__(self) -> None:
        self.files: dict[str, tuple[int, int]] = {}

    def look(self, files: list[Path]) -> None:
        found = {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}
        lost = [name for name, known in self.files.items() if found.get(name) != known]
        assert not lost, f"made again: {lost}"
        self.files = found


class Stored:
    """What writes a store part by part, with a journal."""

    def __init__(self, folder: Path, draw: Callable[[Path], object]) -> None:
        self.folder, self.draw, self.kept = folder, draw, Kept()
        started = time.monotonic()
        self.work()
        self.seconds = time.monotonic() - started
        self.expected = contents(folder)
        self._clear()

    def work(self) -> None:
        self.draw(self.folder)

    def is_done(self) -> bool:
        return self.folder.exists()

    def look(self) -> None:
        """What was finished stays; a store that can be opened is whole."""
        if self.folder.exists():
            assert contents(self.folder) == self.expected, "a store was accepted that is not whole"
            self.kept.look([self.folder / name for name in self.kept.files])
        else:
            parts = self.folder.with_name(self.folder.name + ".partial") / "store"
            self.kept.look([parts / f"{name}.bin" for name in sample_stores.finished_shards(self.folder)])

    def check(self) -> None:
        assert contents(self.folder) == self.expected, "other bytes"
        left = self.folder.with_name(self.folder.name + ".partial")
        assert not left.exists(), f"{left.name} was left: {[path.name for path in left.iterdir()]}"
        self.kept.look([self.folder / name for name in self.kept.files])
        self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.folder)
        self.kept = Kept()


def drawing(root: Path) -> Stored:
    """`musegnn.sample`, each sample after a pause."""
    graph, sampler = sample_stores.a_graph(), sample_stores.Logged(pause=0.003)
    plan.MIN_SHARDS = 8
    options = {"batch_size": 10, "splits": ("train", "valid"), "workers": 2}
    return Stored(root / "s", lambda folder: musegnn.sample(graph, sampler, folder, **options))


def packing(root: Path) -> Stored:
    """`muse pack`, in small groups."""
    tiny_runs.tiny_graph(3000, dim=128).save(root / "graph")
    graph = musegnn.Graph.open(root / "graph")
    store = musegnn.sample(graph, musegnn.ShadowKHop([4, 3]), root / "samples", batch_size=10, splits="train")
    features.packing.SHARD_BYTES, features.packing.GROUP_BYTES = 1 << 17, 1 << 18
    return Stored(root / "s", lambda folder: features.pack(graph, store, folder, cache=0.1, workers=1))


class Training(killed_runs.Runs):
    """`musegnn.train`, which says in shared memory how far it is."""

    def __init__(self, root: Path, name: str, store) -> None:
        super().__init__(root, name, store, epochs=3)
        self.shared = mmap.mmap(-1, 8)
        self.lost = 0

    def work(self) -> None:
        step = Trainer.step

        def told(trainer, batch):
            step(trainer, batch)
            self.shared[:] = struct.pack("<q", trainer.state.position.step)

        Trainer.step = told
        self.train()

    def check(self) -> None:
        super().check()
        self.shared[:] = bytes(8)

    def look(self) -> None:
        """How many steps are lost."""
        (done,) = struct.unpack("<q", self.shared)
        self.shared[:] = bytes(8)
        try:
            kept = checkpoint.facts_of(self.folder / "checkpoint", "state")["position"]["step"]
        except StoreError:
            kept = 0
        self.lost = max(self.lost, done - kept)


class Prediction:
    """`muse predict`, into each kind of table."""

    def __init__(self, root: Path, suffix: str) -> None:
        self.run, self.table, self.kept = root / "run", root / "tables" / f"p{suffix}", Kept()
        if not self.run.exists():
            tiny_runs.tiny_run(root, batch_size=6)
        # What is imported at the first time is no part of its time.
        self.work()
        started = time.monotonic()
        self.work()
        self.seconds = time.monotonic() - started
        self.expected = self.table.read_bytes()
        self.table.unlink()

    def work(self) -> None:
        command(
            "predict", self.run, "--nodes", "all", "--out", self.table, *["--overwrite"] * self.table.exists()
        )

    def is_done(self) -> bool:
        return self.table.exists()

    def look(self) -> None:
        if self.table.exists():
            assert self.table.read_bytes() == self.expected, "a table was accepted that is not whole"
        else:
            self.kept.look(list(self.table.with_name(self.table.name + ".partial").glob("part-*.npy")))

    def check(self) -> None:
        assert self.table.read_bytes() == self.expected, "other bytes"
        there = [path.name for path in self.table.parent.iterdir()]
        assert there == [self.table.name], f"{there} were left"
        self.table.unlink()
        self.kept = Kept()


def kills(root: Path, count: int) -> list[Row]:
    """`count` in all: a quarter of them in training, by turns with M in memory and on disk."""
    rng, rows = np.random.default_rng(count), []
    ways = ["memory, each step", "disk, each step", "drawn anew", "disk, now and then"]
    shares = {"sampling": 5, "packing": 3, **dict.fromkeys(ways, 2), **dict.fromkeys(SUFFIXES, 4 / 3)}
    dealt = np.diff(np.rint(np.cumsum([0, *shares.values()]) / sum(shares.values()) * count).astype(int))
    (root / "training").mkdir()
    store = small_runs.store(root / "training" / "samples")
    for name, number in zip(shares, dealt.tolist(), strict=True):
        place = root / ("training" if name in ways else "tables" if name in SUFFIXES else name)
        place.mkdir(exist_ok=True)
        must = "same bytes; what was finished is not made again; no half file accepted"
        if name in ways:
            target: Any = Training(place, name, store)
            what = f"training, {name}"
        else:
            makers = {"sampling": drawing, "packing": packing}
            target = Prediction(place, name) if name in SUFFIXES else makers[name](place)
            what = f"prediction into {name}" if name in SUFFIXES else name
        fault = killed(target, number, rng)
        happened = "held" if not fault else "did not hold"
        if name in ways and not fault:
            is_each = "now and then" not in name
            must, happened = "same bits; at most one step lost", f"held; {target.lost} lost at most"
            if not is_each:
                must, happened = (
                    "same bits; 0.05 s and a step lost",
                    f"held; {target.lost} steps lost at most",
                )
            fault = f"{target.lost} steps lost" if is_each and target.lost > 1 else ""
        rows.append(Row(f"kill -9: {what}", number, must, happened, (fault,) if fault else ()))
    return rows


def killed(target: Any, count: int, rng: np.random.Generator) -> str:
    """What did not hold, if anything."""
    try:
        killed_runs.kill_at_random(target.work, target, count, rng, target.look)
    except AssertionError as error:
        return f"{type(error).__name__}: {error}"[:500]
    return ""
