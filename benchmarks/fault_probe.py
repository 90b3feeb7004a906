"""What the experiments of `faults.py` share: a workspace, commands in forked children, rows of the table."""

import io
import os
import resource
import signal
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS), str(TESTS / "training"), str(TESTS / "ranks")]

import together  # noqa: E402
import torch._dynamo  # noqa: E402, F401 (what a command imports late, its forks need not)

import musegnn  # noqa: E402
import tiny_runs  # noqa: E402
from musegnn.cli.main import main  # noqa: E402
from musegnn.inference.tables import PredictionWriter  # noqa: E402
from musegnn.store import Journal  # noqa: E402
from musegnn.training.building import build_model  # noqa: E402
from musegnn.training.config import Config  # noqa: E402
from musegnn.training.loop import Trainer  # noqa: E402

SECONDS = 60
"""A command that takes longer hangs."""
MEMORY = 1 << 30
"""Address space that a command may take beyond what it begins with."""
DEAD = 77


@dataclass(frozen=True)
class Row:
    """A line of the table; `faults` are what did not hold."""

    done: str
    times: int
    must: str
    happened: str
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    """How a command ended."""

    code: int
    out: str
    err: str
    grown: int
    """Bytes of memory at its peak beyond what it began with."""

    @property
    def is_refusal(self) -> bool:
        """One line and exit code 2; warnings may stand before it."""
        lines = self.err.splitlines()
        said = [line for line in lines if not line.startswith("muse: warning:")]
        return self.code == 2 and len(said) == 1 and said[0].startswith("muse: ")

    def __str__(self) -> str:
        return f"exit {self.code}: {self.err.strip()[-300:]}"


class Command:
    """`muse ARGUMENTS` in a fork of this process, which has imported torch; `patch` is called first there."""

    def __init__(self, *arguments: object, patch=lambda: None, memory: int = MEMORY) -> None:
        self._files = [os.memfd_create(name) for name in ("out", "err")]
        self.process = os.fork()
        if not self.process:
            _be_a_command([str(argument) for argument in arguments], self._files, patch, memory)
        self._before = _resident(self.process)

    def is_over(self) -> bool:
        """Whether it has ended; it is still to be waited for."""
        flags = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self.process, flags) is not None

    def wait(self) -> Answer:
        """How it ended."""
        _, status, used = os.wait4(self.process, 0)
        out, err = (
            os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace") for file in self._files
        )
        for file in self._files:
            os.close(file)
        grown = max(0, used.ru_maxrss * 1024 - self._before)
        return Answer(os.waitstatus_to_exitcode(status), out, err, grown)


def muse(*arguments: object, **how) -> Answer:
    """A command, waited for."""
    return Command(*arguments, **how).wait()


def _be_a_command(arguments: list[str], files: list[int], patch, memory: int) -> None:
    code = 1
    try:
        for number, file in zip((1, 2), files, strict=True):
            os.dup2(file, number)
        signal.alarm(SECONDS)
        patch()
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + memory, size + memory))
        code = main(["--quiet", *arguments])
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def dying_at(owner: type, name: str, number: int):
    """A patch: the process dies, as by kill -9, at the `number`-th call of a method."""

    def patch() -> None:
        before, calls = getattr(owner, name), []

        def call(*given, **named):
            calls.append(0)
            if len(calls) == number:
                os._exit(DEAD)
            return before(*given, **named)

        setattr(owner, name, call)

    return patch


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


class Workspace:
    """Every kind of file that musegnn writes, whole and unfinished, of a graph of 150 nodes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        tiny_runs.tiny_run(root)
        self.graph, self.samples, self.run = root / "graph", root / "samples", root / "run"
        self.disk, self.half, self.half_disk = root / "disk", root / "half", root / "half_disk"
        self.drawn, self.table, self.parts = root / "drawn", root / "table.npy", root / "parts.npy"
        graph, store = musegnn.Graph.open(self.graph), musegnn.SampleStore.open(self.samples)
        config = Config(name="tiny").with_settings(tiny_runs.SETTINGS | {"means_home": "disk"})
        model = build_model(config, graph.features.shape[1], graph.num_classes)
        musegnn.train(graph, store, model, self.disk, config=config)
        self.packed = root / "packed"
        assert self.pack(root / "pack").code == 0
        # As a kill leaves them: with a checkpoint in the middle, and with updates that are to be undone.
        killed = [
            self.begin(folder, patch=dying_at(Trainer, "step", 6)) for folder in (self.half, self.half_disk)
        ]
        killed.append(self.draw(patch=dying_at(Journal, "add", 6)))
        killed.append(self.pack(self.packed, patch=dying_at(Journal, "add", 3)))
        killed.append(self.predict(self.run, self.parts, patch=dying_at(PredictionWriter, "add", 5)))
        assert [answer.code for answer in killed] == [DEAD] * len(killed), killed
        for home in ("memory", "disk"):
            self._share(root / f"shared_{home}", home)
            self._share(root / f"half_shared_{home}", home, at=3)

    def _share(self, folder: Path, home: str, at: int = 0) -> None:
        """A run of two ranks, each with its share of M; with `at`, as a kill at this step leaves it."""
        given = self._arguments(folder, home, 0 if home == "memory" else 1e9)

        def work(ranks):
            if at:
                together.at_call(Trainer, "step", at, together.die)
            return main(["--quiet", *map(str, given)])

        with redirect_stdout(io.StringIO()):
            found = together.results(together.start(2, work))
        assert [code for code, _ in found] == [None if at else 0] * 2, found

    def _arguments(self, folder: Path, home: str, every: float, epochs: int = 4) -> list[object]:
        place = ["--samples", self.samples, "--out", folder, "--checkpoint-seconds", every]
        return ["train", self.graph, *place, *tiny_runs.flags(means_home=home, epochs=epochs)]

    def begin(self, folder: Path, **how) -> Answer:
        """Train from the beginning; with M on disk, all updates are to be undone."""
        home, every = ("disk", 1e9) if folder == self.half_disk else ("memory", 0)
        return self.training(folder, home, every, **how).wait()

    def training(self, folder: Path, home: str, every: float = 0, epochs: int = 4, **how) -> Command:
        """A run that trains beside us."""
        return Command(*self._arguments(folder, home, every, epochs), **how)

    def draw(self, **how) -> Answer:
        """Samples, or go on with them."""
        settings = ["--set", "fanouts=4,3", "--batch-size", 5, "--workers", 1, "--splits", "train,valid"]
        return muse("sample", self.graph, "--out", self.drawn, *settings, **how)

    def pack(self, folder: Path, **how) -> Answer:
        """A pack, or go on with it."""
        return muse("pack", self.samples, "--graph", self.graph, "--out", folder, "--cache", 0.1, **how)

    def resume(self, folder: Path, **how) -> Answer:
        """Go on with a run."""
        return muse("train", "--resume", folder, **how)

    def predict(self, run: Path, table: Path, **how) -> Answer:
        """All nodes into a table, or go on with it."""
        return muse("predict", run, "--nodes", "all", "--out", table, **how)
