"""What a stopped writer had finished: one small file for each complete array, written after it.

Neither waits for the disk. What a power cut loses is found by the entry's checksum or the array's digest.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from musegnn.errors import StoreError
from musegnn.progress import ignore
from musegnn.store.arrays import ArraySpec, check_size, file_digest
from musegnn.store.folder import FolderWriter
from musegnn.store.header import array_spec, checksum, read_json

PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One complete array."""

    spec: ArraySpec
    path: Path

    @property
    def facts(self) -> dict[str, Any]:
        """What its writer wanted to know of it later; read anew, since there may be very many."""
        body = _read(self.path)
        if body is None:
            raise StoreError(f"{self.path} was changed while it was in use. Do the same again.")
        return dict(body["facts"])


class Journal:
    """The complete arrays of an unfinished store, so far as they belong to the same plan.

    An entry is written under another name and renamed, after its array: what stands in the journal is
    complete. Whatever else lies in the unfinished store is removed.
    """

    def __init__(self, writer: FolderWriter, plan: dict[str, Any]) -> None:
        self._writer = writer
        self.entries: dict[str, Entry] = {}
        if _read(writer.journal / PLAN) == plan:
            for path in sorted(writer.journal.glob("*.json")):
                entry = None if path.name == PLAN else self._entry(path)
                if entry is not None:
                    self.entries[path.stem] = entry
            noted = [entry.path for entry in self.entries.values()]
            writer.clear(writer.journal, spare=[writer.journal / PLAN, *noted])
        else:
            writer.clear(writer.journal, spare=())
            _write(writer.journal / PLAN, plan)
        writer.clear(writer.files, spare=[writer.path(name) for name in self.entries])

    @staticmethod
    def left(writer: FolderWriter) -> dict[str, Any] | None:
        """The plan of what an earlier writer has left, if it had finished anything."""
        has_entries = any(path.name != PLAN for path in writer.journal.glob("*.json"))
        plan: dict[str, Any] | None = _read(writer.journal / PLAN) if has_entries else None
        return plan

    def add(self, name: str, spec: ArraySpec, facts: dict[str, Any]) -> None:
        """Note that an array is complete."""
        self.entries[name] = note(self._writer.journal, name, spec, facts)

    def look(self, name: str) -> None:
        """Take in an array that another process has noted."""
        entry = self._entry(self._writer.journal / f"{name}.json")
        if entry is None:
            raise StoreError(f"{self._writer.path(name)} is not complete. Do the same again.")
        self.entries[name] = entry

    def drop(self, name: str) -> None:
        """Forget an array and remove its file."""
        self.entries.pop(name).path.unlink()
        self._writer.path(name).unlink(missing_ok=True)

    def is_intact(self, name: str) -> bool:
        """Whether an array still has the digest it was noted with; reads all of it."""
        digest = file_digest(self._writer.path(name), ignore, threads=1)
        return digest == self.entries[name].spec.digest

    def _entry(self, path: Path) -> Entry | None:
        body = _read(path)
        try:
            spec = array_spec(path.stem, body["spec"])
            dict(body["facts"])
            check_size(self._writer.path(path.stem), spec)
        except (KeyError, TypeError, ValueError, StoreError):
            return None
        return Entry(spec, path)


def note(journal: Path, name: str, spec: ArraySpec, facts: dict[str, Any]) -> Entry:
    """Note in the folder of a journal that an array is complete."""
    path = journal / f"{name}.json"
    _write(path, {"spec": asdict(spec), "facts": facts})
    return Entry(spec, path)


def _read(path: Path) -> Any:
    """The body of a file with its own checksum; None if it is missing, has changed or had another name."""
    try:
        file = read_json(path)
    except (OSError, StoreError):
        return None
    body = file.get("body")
    return body if isinstance(body, dict) and file.get("checksum") == checksum({path.name: body}) else None


def _write(path: Path, body: dict[str, Any]) -> None:
    fresh = path.with_suffix(".new")
    with fresh.open("w", encoding="utf-8") as file:
        json.dump({"body": body, "checksum": checksum({path.name: body})}, file)
    fresh.rename(path)
