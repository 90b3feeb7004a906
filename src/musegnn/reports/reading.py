"""The files of a run folder, as a page takes them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from musegnn.errors import InputError, StoreError
from musegnn.store import file_errors
from musegnn.store.header import check_seal, read_json
from musegnn.training.config import Config
from musegnn.training.folder import RunFolder

_AGAIN = "Remove it: a page without it says less."


@dataclass(frozen=True)
class RunFiles:
    """What is known of a run. The page leaves out what is not."""

    path: Path
    config: Config
    toml: str
    record: dict[str, Any]
    events: list[dict[str, Any]]
    result: dict[str, Any] | None
    """None as long as it is not finished."""
    analysis: dict[str, Any] | None

    @classmethod
    def read(cls, folder: str | Path) -> "RunFiles":
        """Read a run folder; nothing is locked, so that a run under way can be looked at."""
        run = RunFolder(Path(folder), is_there=True, is_read=True)
        if not run.path.is_dir():
            raise StoreError(f"{run.path} does not exist. Pass the folder of a run.")
        config = run.config()
        with file_errors(run.path):
            toml = (run.path / "config.toml").read_text(encoding="utf-8")
        events = [one for one in run.events() if isinstance(one, dict)]
        return cls(run.path, config, toml, run.record(), events, run.result(), _analysis(run.path))

    @property
    def name(self) -> str:
        """That of its folder, which tells it from other runs of one recipe."""
        return self.path.name or str(self.path)

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """The events of the epochs."""
        return [event for event in self.events if event.get("event") == "epoch"]

    @property
    def failure(self) -> str | None:
        """Why it ended before its time, if it did not just stop: it would do so again."""
        last = self.events[-1] if self.events else {}
        return str(last["message"]) if last.get("event") == "failed" else None


def _analysis(folder: Path) -> dict[str, Any] | None:
    path = folder / "analysis.json"
    if not os.path.lexists(path):
        return None
    with file_errors(path):
        body = read_json(path, "file of a run", _AGAIN)
    check_seal(body, path, _AGAIN)
    return body


@contextmanager
def told_damage(path: Path) -> Iterator[None]:
    """Files that hold something else than we write are said to be damaged."""
    try:
        yield
    except InputError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise StoreError(
            f"{path} does not hold what musegnn writes there ({reason}), so there is no page of it. "
            "Train again."
        ) from error
