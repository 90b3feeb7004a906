"""Predictions into one file, `.parquet`, `.npy` or `.csv`: part by part, whole or not at all.

A row is a node. Columns of `.parquet` and `.csv`:

    node          its id (int64)
    name          its name, if the graph has names
    class         the class of the largest probability (int32)
    class_name    its name, if classes have names
    error_bound   of the sample the node was predicted in, |Y - Y*|_F / |Y|_F is at most this (float32)
    p_<class>     one column for each class in the order of their numbers (float32): `p_web`, or `p_7` where
                  classes have no names, or two have the same; in pandas, `table.filter(regex="^p_")`

A `.npy` file is an array with the fields node, class, error_bound and probability (one number per class):
`numpy.load(path, mmap_mode="r")["probability"]`.
"""

import fcntl
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from jaxtyping import Float, Integer
from numpy.lib import format as npy_format

from musegnn.errors import InputError, StoreError
from musegnn.extras import require
from musegnn.progress import Advance, progress
from musegnn.store import file_errors
from musegnn.store.header import checksum, read_json
from musegnn.store.provenance import plain

VERSION = 1
BLOCK_BYTES = 1 << 25
BLOCK_ROWS = 1 << 17
"""Of a row group: parts are joined or cut to it, so that a footer stays small and a block fits in memory."""
_TEXT_VALUES = 1 << 18
"""Numbers that are text at once; NumPy takes 128 bytes for each."""

_LOCK, _PLAN, _TABLE, _PUBLISHED = ".lock", "plan.json", "table.new", "published.json"
_DIGEST_BYTES = 32
_KEPT = "Finished parts are kept; free some space and run the same command again."


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictions:
    """What is known about some nodes, a row for each."""

    nodes: Integer[np.ndarray, " rows"]
    classes: Integer[np.ndarray, " rows"]
    probabilities: Float[np.ndarray, "rows classes"]
    error_bounds: Float[np.ndarray, " rows"]
    """Of the sample that each node was predicted in."""

    def as_rows(self) -> np.ndarray:
        """As a `.npy` table holds them."""
        assert len(self.nodes) == len(self.classes) == len(self.probabilities) == len(self.error_bounds)
        rows = np.empty(len(self.nodes), dtype=_dtype(self.probabilities.shape[1]))
        rows["node"], rows["class"] = self.nodes, self.classes
        rows["error_bound"], rows["probability"] = self.error_bounds, self.probabilities
        return rows


class PredictionWriter:
    """Writes a table of predictions, batch by batch in any order.

        with PredictionWriter(path, plan, num_batches=n, class_names=..., node_names=...) as writer:
            for i in writer.missing():
                writer.add(i, predictions)

    Each batch becomes a file in `<path>.partial`, beside the `plan`: whatever decides what the rows are, as
    JSON. On leaving, these parts are joined in the order of their numbers, one at a time. A process that is
    stopped leaves its parts; the next one with the same plan makes what is missing or damaged, and the table
    has the same bytes. Parts of another plan are thrown away. A lock keeps two processes apart.
    """

    def __init__(
        self,
        path: Path,
        plan: dict[str, Any],
        *,
        num_batches: int,
        class_names: Sequence[str] | None,
        node_names: Sequence[str] | None,
        overwrite: bool = False,
    ) -> None:
        if path.suffix.lower() not in _FORMATS:
            raise InputError(f"Predictions are written to {', '.join(_FORMATS)}, got {path}. Choose one.")
        if path.suffix.lower() == ".parquet":
            require("pyarrow.parquet", "Writing Parquet")
        # A link is followed: what it points to is written and replaced, not the link.
        self.path = Path(os.path.realpath(path))
        self.partial = self.path.with_name(self.path.name + ".partial")
        self.num_batches = num_batches
        self.class_names = class_names
        self.node_names = node_names
        self.overwrite = overwrite
        self._plan = plain({"version": VERSION, "num_batches": num_batches, "plan": plan})
        self._plan_digest = checksum(self._plan)
        self._num_classes = None if class_names is None else len(class_names)
        self._sizes: dict[int, int] = {}
        self._is_published = False

    def __enter__(self) -> "PredictionWriter":
        with file_errors(self.path):
            self._lock()
            try:
                self._is_published = self._was_published()
                if not self._is_published:
                    self._check_target()
                    self._resume()
            except BaseException:
                self._leave()
                raise
        return self

    def missing(self) -> list[int]:
        """The batches that are yet to be added."""
        return [] if self._is_published else [i for i in range(self.num_batches) if i not in self._sizes]

    def add(self, number: int, rows: Predictions) -> None:
        """Keep the rows of one batch."""
        assert 0 <= number < self.num_batches, number
        num_classes = rows.probabilities.shape[1]
        if self._num_classes not in (None, num_classes):
            raise InputError(f"Batch {number} has {num_classes} classes, but there are {self._num_classes}.")
        buffer = io.BytesIO()
        np.save(buffer, rows.as_rows(), allow_pickle=False)
        with file_errors(self.path, _KEPT):
            _write(self._part(number), buffer.getvalue() + self._digest(number, buffer.getvalue()))
        self._num_classes = num_classes
        self._sizes[number] = len(rows.nodes)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None and not self._is_published:
                with file_errors(self.path, _KEPT):
                    self._publish()
        finally:
            self._leave()

    def _lock(self) -> None:
        self._made = [parent for parent in self.partial.parents if not parent.exists()]
        self.partial.mkdir(parents=True, exist_ok=True)
        lock, self._descriptor = self.partial / _LOCK, -1
        try:
            # The lock is made first and removed last, so contents without one are somebody else's.
            if not lock.exists() and any(path != lock for path in self.partial.iterdir()):
                raise StoreError(
                    f"{self.partial} is in the way and not ours. Move it, or choose another file."
                )
            self._descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its holder removes the file in the end: a lock on a file without a name guards nothing.
            is_busy = os.fstat(self._descriptor).st_nlink == 0
        except (FileNotFoundError, BlockingIOError):
            is_busy = True
        if is_busy:
            if self._descriptor >= 0:
                os.close(self._descriptor)
            raise StoreError(
                f"{self.path} is being written by another process. Wait, or choose another file."
            )

    def _was_published(self) -> bool:
        """Whether a process with this plan was stopped when all was done but the cleaning."""
        noted = _read_json(self.partial / _PUBLISHED)
        return noted is not None and noted == {"plan": self._plan, "identity": _identity(self.path)}

    def _check_target(self) -> None:
        if self.path.is_dir():
            raise StoreError(f"{self.path} is a folder. Choose another name.")
        if self.path.exists() and not self.overwrite:
            raise StoreError(f"{self.path} exists already. Choose another, or overwrite=True (--overwrite).")

    def _resume(self) -> None:
        """Keep the intact parts of this plan, and nothing else."""
        kept = {_LOCK}
        if _read_json(self.partial / _PLAN) == self._plan:
            kept.add(_PLAN)
            for number in range(self.num_batches):
                rows = self._read(number)
                if rows is not None:
                    self._num_classes = rows["probability"].shape[1]
                    self._sizes[number] = len(rows)
                    kept.add(self._part(number).name)
        for path in self.partial.iterdir():
            if path.name not in kept:
                path.unlink()
        if _PLAN not in kept:
            _write(self.partial / _PLAN, self._plan)

    def _publish(self) -> None:
        left = self.missing()
        if left:
            raise StoreError(
                f"{self.path} was not written: {len(left)} of {self.num_batches} batches are missing. "
                "Finished parts are kept; run the same command again."
            )
        table, num_rows = self.partial / _TABLE, sum(self._sizes.values())
        with table.open("xb") as file, progress("Writing predictions", num_rows, "rows") as advance:
            layout = _Layout(self._num_classes or 0, num_rows, self.class_names, self.node_names)
            _FORMATS[self.path.suffix.lower()](file, layout, self._blocks(layout, advance))
            file.flush()
            os.fsync(file.fileno())
        # What somebody else has put there meanwhile is not ours to replace.
        self._check_target()
        # A kill between the move and the cleaning must not make the same command fail.
        _write(self.partial / _PUBLISHED, {"plan": self._plan, "identity": _identity(table)})
        table.replace(self.path)
        _sync_folder(self.path.parent)
        self._is_published = True

    def _blocks(self, layout: "_Layout", advance: Advance) -> Iterator[np.ndarray]:
        """The rows of all parts in their order, in blocks that do not depend on how they were cut."""
        step = min(BLOCK_ROWS, max(1, BLOCK_BYTES // _dtype(layout.num_classes).itemsize))
        held: list[np.ndarray] = []
        room = step
        for number in range(self.num_batches):
            rows = self._read(number)
            if rows is None:
                raise StoreError(f"{self._part(number)} was damaged. Run the same command again.")
            advance(len(rows))
            while len(rows) >= room:
                yield np.concatenate([*held, rows[:room]])
                held, rows, room = [], rows[room:], step
            held.append(rows)
            room -= len(rows)
        if room < step:
            yield np.concatenate(held)

    def _part(self, number: int) -> Path:
        return self.partial / f"part-{number:06d}.npy"

    def _digest(self, number: int, data: bytes) -> bytes:
        # With the plan: a power cut may undo the removal of other parts and keep the new plan.
        digest = hashlib.sha256(f"{self._plan_digest} {number} ".encode())
        digest.update(data)
        return digest.digest()

    def _read(self, number: int) -> np.ndarray | None:
        """The rows of a part, unless it is missing or damaged."""
        try:
            part = self._part(number).read_bytes()
            data = part[:-_DIGEST_BYTES]
            if part[len(data) :] != self._digest(number, data):
                return None
            rows: np.ndarray = np.load(io.BytesIO(data), allow_pickle=False)
            is_ours = rows.ndim == 1 and rows.dtype == _dtype(rows.dtype["probability"].shape[0])
        except (FileNotFoundError, ValueError, LookupError, EOFError):
            return None
        return rows if is_ours else None

    def _leave(self) -> None:
        """Free the lock, and remove everything unless there are parts to go on from."""
        with suppress(OSError):
            contents = [path for path in self.partial.iterdir() if path.name != _LOCK]
            is_kept = not self._is_published and any(path.suffix == ".npy" for path in contents)
            # Last what says that all is done, so that a kill in between is no loss.
            for path in sorted(contents, key=lambda path: path.name == _PUBLISHED):
                if not is_kept or path.suffix == ".new":
                    path.unlink()
            if not is_kept:
                # The lock goes last: from then on the folder may be another writer's, and is not empty.
                (self.partial / _LOCK).unlink()
                self.partial.rmdir()
                for parent in self._made if not self.path.exists() else ():
                    parent.rmdir()
        os.close(self._descriptor)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The size of a table and the names of its columns."""

    num_classes: int
    num_rows: int
    class_names: Sequence[str] | None
    node_names: Sequence[str] | None

    def probability_names(self) -> list[str]:
        """By the names of the classes, if that tells them apart."""
        names = self.class_names or ()
        by_name = len(set(names)) == self.num_classes
        return [f"p_{name}" for name in (names if by_name else range(self.num_classes))]

    def texts(self, rows: np.ndarray) -> dict[str, list[str]]:
        """The columns that are text."""
        found: dict[str, list[str]] = {}
        if self.node_names is not None:
            found["name"] = [self.node_names[node] for node in rows["node"].tolist()]
        if self.class_names is not None:
            found["class_name"] = [self.class_names[number] for number in rows["class"].tolist()]
        return found

    def columns(self) -> list[str]:
        """All but the probabilities."""
        names = {"node": (), "name": self.node_names, "class": (), "class_name": self.class_names}
        return [name for name, values in names.items() if values is not None] + ["error_bound"]


def _write_npy(file: BinaryIO, layout: _Layout, blocks: Iterator[np.ndarray]) -> None:
    descr = npy_format.dtype_to_descr(_dtype(layout.num_classes))
    header = {"descr": descr, "fortran_order": False, "shape": (layout.num_rows,)}
    npy_format.write_array_header_1_0(file, header)
    for rows in blocks:
        file.write(rows.tobytes())


def _write_csv(file: BinaryIO, layout: _Layout, blocks: Iterator[np.ndarray]) -> None:
    names = layout.columns()
    header = [_quoted(name) for name in (*names, *layout.probability_names())]
    file.write((",".join(header) + "\n").encode())
    step = max(1, _TEXT_VALUES // (layout.num_classes + 1))
    for block in blocks:
        for rows in (block[start : start + step] for start in range(0, len(block), step)):
            texts = {name: [_quoted(text) for text in column] for name, column in layout.texts(rows).items()}
            # NumPy's text of a float32 is the shortest that gives it back.
            columns = [texts[name] if name in texts else rows[name].astype(str).tolist() for name in names]
            columns += [column.tolist() for column in rows["probability"].astype(str).T]
            lines = (",".join(fields) + "\n" for fields in zip(*columns, strict=True))
            file.write("".join(lines).encode())


def _write_parquet(file: BinaryIO, layout: _Layout, blocks: Iterator[np.ndarray]) -> None:
    pyarrow = require("pyarrow", "Writing Parquet")
    parquet = require("pyarrow.parquet", "Writing Parquet")
    kinds = {"node": pyarrow.int64(), "class": pyarrow.int32(), "error_bound": pyarrow.float32()}
    names = layout.columns()
    fields = [(name, kinds.get(name, pyarrow.string())) for name in names]
    fields += [(name, pyarrow.float32()) for name in layout.probability_names()]
    schema = pyarrow.schema(fields)
    few = [name for name in names if name.startswith("class")]
    # Through our own file, so that a full disk is an OSError and the file can be pushed to the disk.
    with parquet.ParquetWriter(file, schema, use_dictionary=few) as writer:
        for rows in blocks:
            texts = layout.texts(rows)
            columns = [texts[name] if name in texts else np.ascontiguousarray(rows[name]) for name in names]
            columns += list(np.ascontiguousarray(rows["probability"].T))
            arrays = [
                pyarrow.array(column, type_) for column, type_ in zip(columns, schema.types, strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema), row_group_size=len(rows))


_FORMATS: dict[str, Callable[[BinaryIO, _Layout, Iterator[np.ndarray]], None]] = {
    ".parquet": _write_parquet,
    ".npy": _write_npy,
    ".csv": _write_csv,
}


def _dtype(num_classes: int) -> np.dtype[Any]:
    return np.dtype(
        [("node", "<i8"), ("class", "<i4"), ("error_bound", "<f4"), ("probability", "<f4", (num_classes,))]
    )


def _quoted(text: str) -> str:
    """As RFC 4180 wants it. Python's own writer leaves a lonely carriage return bare."""
    return '"' + text.replace('"', '""') + '"' if re.search('[,"\r\n]', text) else text


def _identity(path: Path) -> list[int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    # Numbers of deleted files are given again; times are not.
    return [status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size]


def _read_json(path: Path) -> Any:
    with suppress(OSError, StoreError):
        return read_json(path)
    return None


def _write(path: Path, content: bytes | dict[str, Any]) -> None:
    """Whole or not at all; what a power cut has torn cannot be read."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    fresh.replace(path)


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be opened for this; there it is no loss.
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
