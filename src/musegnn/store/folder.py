"""A folder of arrays that is written under another name and moved into place when it is complete."""

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import DTypeLike

from musegnn.errors import StoreError
from musegnn.progress import progress
from musegnn.store.arrays import ArraySpec, ArrayWriter, file_digest, map_array
from musegnn.store.header import HEADER_NAME, Header

PARTIAL_SUFFIX = ".partial"
_LOCK_NAME = ".lock"
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says about a file into one sentence with a next step."""
    try:
        yield
    except FileNotFoundError as error:
        raise StoreError(f"{error.filename or path} does not exist. Check the path.") from error
    except PermissionError as error:
        raise StoreError(f"{error.filename or path} may not be accessed. Check its permissions.") from error
    except OSError as error:
        name = error.filename or path
        if error.errno in _DISK_FULL:
            raise StoreError(
                f"The disk is full (or a size limit was reached) while writing {path}. "
                "Nothing was kept; free some space or choose another folder."
            ) from error
        reason = " ".join(str(error.strerror or error).split())
        raise StoreError(f"{name} cannot be used: {reason}.") from error


class FolderWriter:
    """Writes a store: `array` for each array, then `publish`. Leaving without it leaves nothing behind.

    The files go to `<folder>.partial`, which is locked, so that two processes cannot write one store. A kill
    frees the lock; the next writer removes what the dead one left. Readers never look into a partial folder.
    """

    def __init__(self, folder: Path, kind: str, *, overwrite: bool = False) -> None:
        # A link is followed: what it points to is written and replaced, not the link.
        self.folder = Path(os.path.realpath(folder))
        self.kind = kind
        self.overwrite = overwrite
        self.partial = _beside(self.folder, PARTIAL_SUFFIX)
        self.scratch = self.partial / "scratch"
        self._published = False
        self._writers: dict[str, ArrayWriter] = {}
        self._specs: dict[str, ArraySpec] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "FolderWriter":
        with self._stack, file_errors(self.folder):
            self._check_target()
            self.partial.mkdir(parents=True, exist_ok=True)
            self._lock()
            self._stack.callback(self._discard)
            # Another writer may have finished between the check and the lock.
            self._check_target()
            _empty(self.partial, keep=_LOCK_NAME)
            self.scratch.mkdir()
            self._stack.enter_context(file_errors(self.folder))
            self._stack = self._stack.pop_all()
        return self

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Begin the file of one array; it is finished by `publish` if not before."""
        writer = ArrayWriter(self.partial / f"{name}.bin", dtype, row_shape)
        self._writers[name] = self._stack.enter_context(writer)
        return writer

    def write(self, name: str, values: np.ndarray) -> None:
        """Write one whole array."""
        self.array(name, values.dtype, values.shape[1:]).append(values)
        self.finish(name)

    def finish(self, name: str) -> np.ndarray:
        """Close the file of one array and map it for reading."""
        writer = self._writers.pop(name)
        self._specs[name] = writer.finish()
        return map_array(writer.path, self._specs[name])

    def publish(self, attributes: dict[str, Any], provenance: dict[str, Any]) -> None:
        """Finish all arrays, write the header last, and move the folder into place."""
        for name in list(self._writers):
            self.finish(name)
        shutil.rmtree(self.scratch)
        header = Header(
            kind=self.kind,
            attributes=attributes,
            arrays=dict(sorted(self._specs.items())),
            provenance=provenance,
        )
        with (self.partial / HEADER_NAME).open("x", encoding="utf-8") as file:
            file.write(header.to_json())
            file.flush()
            os.fsync(file.fileno())
        self._move_into_place()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._stack.__exit__(kind, error, trace)

    def _check_target(self) -> None:
        if not self.folder.exists() or (self.folder.is_dir() and not any(self.folder.iterdir())):
            return
        if not _is_store(self.folder):
            raise StoreError(f"{self.folder} exists and is not a store. Choose another folder.")
        if not self.overwrite:
            raise StoreError(f"{self.folder} exists already. Choose another folder, or allow overwriting.")

    def _lock(self) -> None:
        lock = FileLock(self.partial / _LOCK_NAME, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            raise StoreError(
                f"{self.folder} is being written by another process. Wait for it, or choose another folder."
            ) from None
        self._stack.callback(lock.release)

    def _discard(self) -> None:
        # After publishing, a folder of this name would be another writer's.
        if not self._published:
            shutil.rmtree(self.partial, ignore_errors=True)

    def _move_into_place(self) -> None:
        _sync_folder(self.partial)
        # What somebody else has put there meanwhile is not ours to replace.
        self._check_target()
        # The old store moves into the new one and goes from there: no third name is left behind by a kill.
        replaced = self.partial / "replaced"
        with ExitStack() as undo:
            if self.folder.exists():
                self.folder.rename(replaced)
                undo.callback(replaced.rename, self.folder)
            self.partial.rename(self.folder)
            undo.pop_all()
        self._published = True
        # Not before the move: a second writer would make a new lock and empty the folder under our hands.
        (self.folder / _LOCK_NAME).unlink()
        _sync_folder(self.folder.parent)
        shutil.rmtree(self.folder / replaced.name, ignore_errors=True)


class StoredFolder:
    """A complete store, opened: the header is checked, the arrays are mapped when asked for."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.folder = folder.absolute()
        with file_errors(self.folder):
            if not (self.folder / HEADER_NAME).is_file():
                raise StoreError(self._why_not(kind))
            self.header = Header.read(self.folder / HEADER_NAME, kind)
            # Sizes are compared now, so that a truncated array is found before it is read.
            self.arrays = {
                name: map_array(self._path(name), spec) for name, spec in self.header.arrays.items()
            }

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays on disk."""
        return sum(spec.num_bytes for spec in self.header.arrays.values())

    def verify(self, threads: int = os.cpu_count() or 1) -> None:
        """Read every byte and compare it with the digests; the first damaged array is named."""
        with file_errors(self.folder), progress("Verifying", self.num_bytes, unit="B") as advance:
            for name, spec in self.header.arrays.items():
                if file_digest(self._path(name), advance, threads) != spec.digest:
                    raise StoreError(
                        f"{self._path(name)} is damaged: its bytes do not have the digest in the header. "
                        "Write the store again."
                    )

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.bin"

    def _why_not(self, kind: str) -> str:
        if _beside(Path(os.path.realpath(self.folder)), PARTIAL_SUFFIX).is_dir():
            return (
                f"{self.folder} is not complete: a process is writing it, or one was stopped while it did. "
                "Wait for it, or run the same command again."
            )
        if self.folder.is_dir():
            return f"{self.folder} has no {HEADER_NAME}: not a {kind} store. Pass the folder of one."
        return f"{self.folder} does not exist. Pass the folder of a {kind} store."


def _beside(folder: Path, suffix: str) -> Path:
    return folder.parent / (folder.name + suffix)


def _is_store(folder: Path) -> bool:
    """Whether the header, damaged or not, is one of ours: overwriting deletes the whole folder."""
    header = folder / HEADER_NAME
    if not header.is_file():
        return False
    with header.open("rb") as file:
        return b'"musegnn ' in file.read(256)


def _empty(folder: Path, keep: str) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name != keep:
            path.unlink()


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be opened for this; there it is no loss.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
