"""What a stopped writer had finished: one small file for each complete array, written after it."""

import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from musegnn.errors import StoreError
from musegnn.store.arrays import ArraySpec, check_size, file_digest
from musegnn.store.folder import FolderWriter
from musegnn.store.header import array_spec

_PLAN = "plan.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One complete array."""

    spec: ArraySpec
    facts: dict[str, Any]
    """What its writer needs to know of it later, as JSON."""


class Journal:
    """The complete arrays of an unfinished store, so far as they belong to the same plan.

    An entry is written under another name and renamed, after its array has reached the disk: what stands in
    the journal is complete. Whatever else lies in the unfinished store is removed.
    """

    def __init__(self, writer: FolderWriter, plan: dict[str, Any]) -> None:
        self._writer = writer
        self.entries: dict[str, Entry] = {}
        if self._read(_PLAN) == plan:
            for path in sorted(writer.journal.glob("*.json")):
                entry = None if path.name == _PLAN else self._entry(path.stem)
                if entry is not None:
                    self.entries[path.stem] = entry
        else:
            for path in writer.journal.iterdir():
                path.unlink()
            self._write(_PLAN, plan)
        known = {writer.path(name) for name in self.entries}
        for path in writer.path("x").parent.iterdir():
            if path not in known:
                path.unlink()

    def add(self, name: str, spec: ArraySpec, facts: dict[str, Any]) -> None:
        """Note that an array is complete and on the disk."""
        self._write(f"{name}.json", {"spec": asdict(spec), "facts": facts})
        self.entries[name] = Entry(spec, facts)

    def drop(self, name: str) -> None:
        """Forget an array and remove its file."""
        del self.entries[name]
        (self._writer.journal / f"{name}.json").unlink()
        self._writer.path(name).unlink(missing_ok=True)

    def is_intact(self, name: str, threads: int = 1) -> bool:
        """Whether an array still has the digest it was noted with; reads all of it."""
        digest = file_digest(self._writer.path(name), lambda amount: None, threads)
        return digest == self.entries[name].spec.digest

    def _entry(self, name: str) -> Entry | None:
        body = self._read(f"{name}.json")
        try:
            entry = Entry(array_spec(name, body["spec"]), dict(body["facts"]))
            check_size(self._writer.path(name), entry.spec)
        except (KeyError, TypeError, ValueError, StoreError):
            return None
        return entry

    def _read(self, name: str) -> Any:
        try:
            return json.loads((self._writer.journal / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None

    def _write(self, name: str, body: dict[str, Any]) -> None:
        path = self._writer.journal / name
        fresh = path.with_suffix(".new")
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(body, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(path)
