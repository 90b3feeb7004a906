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
import re
from pathlib import Path
from types import TracebackType
from typing import Any

from musegnn.errors import StoreError
from musegnn.store import file_errors
from musegnn.store.header import check_seal, checksum, read_json
from musegnn.training.checkpoint import KEPT, finite, write_json
from musegnn.training.config import Config

_LOCK = ".lock"
_OURS = {
    "config.toml",
    "run.json",
    "events.jsonl",
    "checkpoint",
    "analysis.json",
    "result.json",
    "means",
    "report.html",
    "trace.json",
    _LOCK,
}
_SHARE = re.compile(r"means-\d+-of-\d+")
_PARTS = {"config.toml", "config.toml.partial", "events.jsonl", "run.json.partial"}
"""What there may be before run.json, which is written last, says that a run has begun."""


class RunFolder:
    """`with RunFolder(path) as folder:` holds the lock; a kill frees it."""

    def __init__(self, path: Path, *, is_there: bool = False, is_read: bool = False) -> None:
        self.path = path.absolute()
        self.is_there = is_there
        """Whether it is to be found, not made."""
        self.is_read = is_read
        """Whether another rank writes it: no lock is taken, and nothing is logged."""
        self.checkpoints = self.path / "checkpoint"
        self.means = self.path / "means"

    def share_of_means(self, rank: int, size: int) -> Path:
        """Where a rank has its rows of a mapped M."""
        return self.means if size == 1 else self.path / f"means-{rank}-of-{size}"

    def other_means(self, size: int) -> list[Path]:
        """Folders of a mapped M that was shared by another number of ranks."""
        own = {self.share_of_means(rank, size) for rank in range(size)}
        there = [self.means, *self.path.glob("means-*-of-*")]
        return [path for path in there if path.is_dir() and path not in own]

    def __enter__(self) -> "RunFolder":
        if self.is_read:
            return self
        with file_errors(self.path):
            if self.is_there and not self.path.is_dir():
                raise StoreError(f"{self.path} does not exist. Pass the folder of a run.")
            self.path.mkdir(parents=True, exist_ok=True)
            if not self.is_there:
                # Before anything is left in a folder of others.
                self._check_own()
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
        if not self.is_read:
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
        if self.is_read:
            return
        with file_errors(self.path):
            for path in (self.checkpoints, self.means, *self.path.glob("means-*-of-*")):
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
            return Config.read(path)

    def record(self) -> dict[str, Any]:
        """Where graph and samples lie."""
        path = self.path / "run.json"
        with file_errors(path):
            if not path.is_file():
                raise StoreError(f"{self.path} is not a run: it has no run.json. Pass the folder of a run.")
            record = _read_sealed(path)
        if not _is_record(record):
            raise StoreError(f"{path} does not say what the run was trained on. Train again.")
        return record

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
        if not os.path.lexists(path):
            return None
        with file_errors(path):
            result = _read_sealed(path)
        if not _is_result(result):
            raise StoreError(
                f"{path} is not the result of a run. Remove it, then go on: muse train --resume."
            )
        return result

    def log(self, event: str, **facts: Any) -> dict[str, Any]:
        """Append one line to events.jsonl."""
        entry = {"event": event, **facts}
        if self.is_read:
            return entry
        with file_errors(self.path, KEPT), (self.path / "events.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(finite(entry), allow_nan=False) + "\n")
        return entry

    def events(self) -> list[dict[str, Any]]:
        """All whole lines of events.jsonl."""
        path = self.path / "events.jsonl"
        if not path.is_file():
            return []
        try:
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            return [json.loads(line) for line in lines if line.endswith("\n")]
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{path} is damaged ({error}). Nothing else of the run depends on it."
            ) from error

    def events_size(self) -> int:
        """Bytes of events.jsonl."""
        with file_errors(self.path):
            return (self.path / "events.jsonl").stat().st_size

    def rewind_events(self, size: int) -> None:
        """Forget what happened after a checkpoint: it will happen again."""
        if type(size) is not int or size < 0:
            raise StoreError(
                f"The checkpoint in {self.path} is damaged: {size!r} bytes of events. Train again."
            )
        if not self.is_read:
            with file_errors(self.path), (self.path / "events.jsonl").open("ab") as file:
                file.truncate(min(size, file.tell()))

    def check_free(self, overwrite: bool) -> None:
        """Refuse a folder that holds something that a new run may not replace."""
        there = self._check_own()
        if there and not overwrite:
            state = "a finished run" if "result.json" in there else "an unfinished run"
            go_on = "" if "result.json" in there else f"go on with `muse train --resume {self.path}`, "
            raise StoreError(
                f"{self.path} holds {state}: {go_on}choose another folder, "
                "or pass overwrite=True (--overwrite)."
            )

    def _check_own(self) -> set[str]:
        """Refuse a folder of others; what there is of a run."""
        with file_errors(self.path):
            there = {path.name for path in self.path.iterdir()} - {_LOCK} if self.path.is_dir() else set()
        known = {name for name in there if _SHARE.fullmatch(name)} | _OURS
        foreign = sorted({name.removesuffix(".partial") for name in there} - known)
        if foreign:
            raise StoreError(
                f"{self.path} also holds {foreign[0]}, which is no part of a run. Choose another folder."
            )
        return there

    def drop_share(self, rank: int, size: int) -> None:
        """What an earlier try to share out a mapped M has left; no checkpoint knows of it."""
        path = self.share_of_means(rank, size)
        with file_errors(path):
            if path.exists():
                _remove(path)

    def drop_other_means(self, size: int) -> None:
        """A checkpoint has the means of this number of ranks now."""
        for path in [] if self.is_read else self.other_means(size):
            with file_errors(path):
                _remove(path)

    def _clear(self) -> None:
        there = {path.name for path in self.path.iterdir()} - {_LOCK}
        # First what says that there is a run: half of one must not be gone on with.
        for name in sorted(there, key=lambda name: (name != "run.json", name)):
            _remove(self.path / name)


def _read_sealed(path: Path) -> dict[str, Any]:
    again = "Put back what was there, or train again."
    body = read_json(path, "file of a run", again)
    check_seal(body, path, again)
    return body


def _is_record(record: dict[str, Any]) -> bool:
    """Whether it names a graph and samples as `musegnn.train` does."""
    model = record.get("model")
    sizes = {name: type(size) for name, size in model.items()} if isinstance(model, dict) else {}
    # Of an energy with relations, and of a model that sees types.
    kinds = {"in_dim": int, "out_dim": int}
    kinds |= {name: int for name in ("num_relations", "num_types") if name in sizes}
    return (
        all(_is_place(record.get(part)) for part in ("graph", "samples"))
        and (model is None or sizes == kinds)
        and isinstance(record.get("labels"), str | None)
    )


def _is_place(part: Any) -> bool:
    """A store with its digest, and where it lies from both sides, or one that was never saved."""
    if not (isinstance(part, dict) and isinstance(part.get("digest"), str)):
        return False
    folders = [part.get("folder"), part.get("from_here")]
    return folders == [None, None] or all(isinstance(one, str) and "\0" not in one for one in folders)


def _is_result(result: dict[str, Any]) -> bool:
    """Whether it has what a command shows of it, as numbers."""
    splits = [name.removesuffix("_accuracy") for name in result if name.endswith("_accuracy")]
    shown = {f"{split}_{name}" for split in splits for name in ("accuracy", "macro_f1")}
    times, expected = ("seconds", "peak_rss_mb"), result.get("expected")
    return (
        all(isinstance(result.get(name), int | float) for name in times)
        and all(isinstance(result.get(name, ""), int | float | None) for name in (*shown, "error_bound"))
        and isinstance(expected, dict)
        and all(isinstance(expected.get(f"{split}_accuracy", 0), int | float) for split in ("test", "valid"))
        and isinstance(expected.get("source", ""), str)
    )


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
