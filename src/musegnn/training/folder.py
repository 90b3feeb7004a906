"""The folder of a run: one process writes it, anybody reads it.

config.toml    every setting
run.json       graph and samples: where they lie, their digests
events.jsonl   one JSON object a line: start, profile, epoch, end
checkpoint/    state (to go on from) and best (to predict with)
trace.json     of some steps, if asked for
result.json    written last: a run without it is not finished
"""

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from musegnn.errors import StoreError
from musegnn.store import file_errors
from musegnn.store.header import checksum, read_json
from musegnn.training.checkpoint import KEPT, finite, write_json
from musegnn.training.config import Config

_LOCK = ".lock"
_OURS = {
    "config.toml",
    "run.json",
    "events.jsonl",
    "checkpoint",
    "result.json",
    "means",
    "report.html",
    "trace.json",
    _LOCK,
}
_PARTS = {"config.toml", "config.toml.partial", "events.jsonl", "run.json.partial"}
"""What there may be before run.json, which is written last, says that a run has begun."""


class RunFolder:
    """`with RunFolder(path) as folder:` holds the lock; a kill frees it."""

    def __init__(self, path: Path, *, is_there: bool = False) -> None:
        self.path = path.absolute()
        self.is_there = is_there
        """Whether it is to be found, not made."""
        self.checkpoints = self.path / "checkpoint"
        self.means = self.path / "means"

    def __enter__(self) -> "RunFolder":
        with file_errors(self.path):
            if self.is_there and not self.path.is_dir():
                raise StoreError(f"{self.path} does not exist. Pass the folder of a run.")
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(self._lock)
                raise StoreError(
                    f"{self.path} is being written by another process. Wait for it, or choose another folder."
                ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def create(self, config: Config, record: dict[str, Any], *, overwrite: bool) -> None:
        """Begin a run: nothing of an earlier one may be there, unless it is to be replaced."""
        with file_errors(self.path):
            if not self.is_half_made(config):
                self.check_free(overwrite)
                self._clear()
            _write_text(self.path / "config.toml", config.to_toml())
            (self.path / "events.jsonl").write_bytes(b"")
            write_json(self.path / "run.json", record)

    def is_half_made(self, config: Config) -> bool:
        """Whether `create` was killed while it began a run with these very settings."""
        there = {path.name for path in self.path.iterdir()} - {_LOCK}
        if not there or not there <= _PARTS:
            return False
        path = self.path / "config.toml"
        return not path.is_file() or path.read_bytes() == config.to_toml().encode()

    def empty(self) -> None:
        """Remove what a run wrote before its first checkpoint."""
        with file_errors(self.path):
            for path in (self.checkpoints, self.means):
                if path.exists():
                    _remove(path)
            self.rewind_events(0)

    def config(self) -> Config:
        """The settings."""
        path = self.path / "config.toml"
        with file_errors(path):
            if not path.is_file():
                raise StoreError(
                    f"{self.path} is not a run: it has no config.toml. Pass the folder of a run."
                )
            return Config.from_toml(path.read_text(encoding="utf-8"), str(path))

    def record(self) -> dict[str, Any]:
        """Where graph and samples lie."""
        path = self.path / "run.json"
        with file_errors(path):
            if not path.is_file():
                raise StoreError(f"{self.path} is not a run: it has no run.json. Pass the folder of a run.")
            return read_json(path)

    def identity(self) -> str:
        """SHA-256 of settings, graph, samples and labels: whose checkpoint it is."""
        with file_errors(self.path, KEPT):
            config = (self.path / "config.toml").read_text(encoding="utf-8")
        record = self.record()
        parts = {part: record[part]["digest"] for part in ("graph", "samples")}
        return checksum({"config": config, **parts, "labels": record["labels"], "model": record["model"]})

    def result(self) -> dict[str, Any] | None:
        """What came of it; None if it is not finished."""
        path = self.path / "result.json"
        return read_json(path) if path.is_file() else None

    def log(self, event: str, **facts: Any) -> dict[str, Any]:
        """Append one line to events.jsonl."""
        entry = {"event": event, **facts}
        with file_errors(self.path, KEPT), (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(entry), allow_nan=False) + "\n")
        return entry

    def events(self) -> list[dict[str, Any]]:
        """All whole lines of events.jsonl."""
        path = self.path / "events.jsonl"
        if not path.is_file():
            return []
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def events_size(self) -> int:
        """Bytes of events.jsonl."""
        with file_errors(self.path):
            return (self.path / "events.jsonl").stat().st_size

    def rewind_events(self, size: int) -> None:
        """Forget what happened after a checkpoint: it will happen again."""
        with file_errors(self.path), (self.path / "events.jsonl").open("ab") as file:
            file.truncate(min(size, file.tell()))

    def check_free(self, overwrite: bool) -> None:
        """Refuse a folder that holds something that a new run may not replace."""
        with file_errors(self.path):
            there = {path.name for path in self.path.iterdir()} - {_LOCK} if self.path.is_dir() else set()
        foreign = sorted({name.removesuffix(".partial") for name in there} - _OURS)
        if foreign:
            raise StoreError(
                f"{self.path} also holds {foreign[0]}, which is no part of a run. Choose another folder."
            )
        if there and not overwrite:
            state = "a finished run" if "result.json" in there else "an unfinished run"
            go_on = "" if "result.json" in there else f"go on with `muse train --resume {self.path}`, "
            raise StoreError(
                f"{self.path} holds {state}: {go_on}choose another folder, "
                "or pass overwrite=True (--overwrite)."
            )

    def _clear(self) -> None:
        there = {path.name for path in self.path.iterdir()} - {_LOCK}
        # First what says that there is a run: half of one must not be gone on with.
        for name in sorted(there, key=lambda name: (name != "run.json", name)):
            _remove(self.path / name)


def _write_text(path: Path, text: str) -> None:
    fresh = path.with_name(path.name + ".partial")
    fresh.write_text(text, encoding="utf-8")
    fresh.rename(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        for inner in path.iterdir():
            _remove(inner)
        path.rmdir()
    else:
        path.unlink()
