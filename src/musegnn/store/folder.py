"""A folder of arrays that is written under another name and moved into place when it is complete."""

import contextlib
import errno
import fcntl
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from musegnn.errors import StoreError
from musegnn.progress import progress
from musegnn.store.arrays import ArraySpec, ArrayWriter, check_size, file_digest, map_array, row_blocks
from musegnn.store.header import HEADER_NAME, Header

PARTIAL_SUFFIX = ".partial"
_LOCK_NAME = ".lock"
_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


_NOTHING_KEPT = "Nothing was kept; free some space or choose another folder."
_KEPT = "What was finished is kept; free some space and do the same again."


@contextmanager
def file_errors(path: Path, when_full: str = _NOTHING_KEPT) -> Iterator[None]:
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
                f"The disk is full (or a size limit was reached) while writing {path}. {when_full}"
            ) from error
        reason = " ".join(str(error.strerror or error).split())
        raise StoreError(f"{name} cannot be used: {reason}.") from error


def file_of(folder: Path, name: str) -> Path:
    """The file of an array."""
    return folder / f"{name}.bin"


class FolderWriter:
    """Writes a store: `array` for each array, then `publish`. Leaving without it leaves nothing behind.

    The files go to `<folder>.partial/store`, which becomes `<folder>`. The folder around it never moves and
    holds a lock, so that two processes cannot write one store. A kill frees the lock; the next writer removes
    what the dead one left. Readers never look into a partial folder.

    With `keep`, what a writer has finished when it is stopped stays, and the next one goes on from there
    (`musegnn.store.journal`).
    """

    def __init__(self, folder: Path, kind: str, *, overwrite: bool = False, keep: bool = False) -> None:
        # A link is followed: what it points to is written and replaced, not the link.
        self.folder = Path(os.path.realpath(folder))
        self.kind = kind
        self.overwrite = overwrite
        self.keep = keep
        self.partial = _beside(self.folder, PARTIAL_SUFFIX)
        self.scratch = self.partial / "scratch"
        self.journal = self.partial / "journal"
        self.files = self.partial / "store"
        self._replaced = self.partial / "replaced"
        self._writers: dict[str, ArrayWriter] = {}
        self.specs: dict[str, ArraySpec] = {}
        self._stack = ExitStack()

    def __enter__(self) -> "FolderWriter":
        with self._stack, file_errors(self.folder):
            self._lock()
            self._stack.push(self._clean)
            if self._replaced.exists() and not self.folder.exists():
                # A kill between the two moves of an earlier writer: the old store goes back.
                self._replaced.rename(self.folder)
            self._check_target()
            kept = {self.files, self.journal} if self.keep else set()
            for left in self._contents():
                if left not in kept:
                    _remove(left)
            for folder in (self.files, self.scratch, self.journal):
                folder.mkdir(exist_ok=True)
            self._stack.enter_context(file_errors(self.folder, _KEPT if self.keep else _NOTHING_KEPT))
            self._stack = self._stack.pop_all()
        return self

    def array(self, name: str, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> ArrayWriter:
        """Begin the file of one array; it is finished by `publish` if not before."""
        writer = ArrayWriter(self.path(name), dtype, row_shape)
        self._writers[name] = self._stack.enter_context(writer)
        return writer

    def path(self, name: str) -> Path:
        """Where the file of an array lies while the store is written."""
        return file_of(self.files, name)

    def adopt(self, name: str, spec: ArraySpec) -> None:
        """Take a file that was written and finished at `path(name)` into the store."""
        self.specs[name] = spec

    def clear(self, folder: Path, spare: Collection[Path]) -> None:
        """Remove what lies in one of the writer's folders."""
        for path in folder.iterdir():
            if path not in spare:
                _remove(path)

    def write(self, name: str, values: np.ndarray) -> None:
        """Write one whole array."""
        writer = self.array(name, values.dtype, values.shape[1:])
        with progress(f"Writing {name}", values.nbytes, unit="B") as advance:
            for block in row_blocks(values):
                writer.append(block)
                advance(block.nbytes)
        self.finish(name)

    def finish(self, name: str) -> np.ndarray:
        """Close the file of one array and map it for reading."""
        writer = self._writers.pop(name)
        # What is kept and can be written again need not wait for the disk: its digest tells if it was lost.
        self.specs[name] = writer.finish(wait=not self.keep)
        return map_array(writer.path, self.specs[name])

    def publish(self, attributes: dict[str, Any], provenance: dict[str, Any]) -> None:
        """Finish all arrays, write the header last, and move the folder into place."""
        for name in list(self._writers):
            self.finish(name)
        header = Header(
            kind=self.kind,
            attributes=attributes,
            arrays=dict(sorted(self.specs.items())),
            provenance=provenance,
        )
        with (self.files / HEADER_NAME).open("x", encoding="utf-8") as file:
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
        kind = kind_of(self.folder)
        if kind is None:
            raise StoreError(
                f"{self.folder} exists and is not a store (or lost its {HEADER_NAME}). "
                "Choose another folder, or remove it."
            )
        if kind != self.kind:
            raise StoreError(
                f"{self.folder} is a {kind} store, not one of {self.kind}. Choose another folder."
            )
        foreign = [path.name for path in self.folder.iterdir() if not _is_ours(path)]
        if foreign:
            raise StoreError(
                f"{self.folder} also holds {foreign[0]}, which is no part of the store. Move it first."
            )
        if not self.overwrite:
            raise StoreError(
                f"{self.folder} exists already. Choose another folder, or pass overwrite=True (--overwrite)."
            )

    def _lock(self) -> None:
        self._made = [parent for parent in self.partial.parents if not parent.exists()]
        with contextlib.suppress(FileExistsError):
            self.partial.mkdir(parents=True)
        lock = self.partial / _LOCK_NAME
        try:
            descriptor, is_new = _open_lock(lock)
            self._stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its holder removes the file in the end: a lock on a file without a name guards nothing.
            busy = os.fstat(descriptor).st_nlink == 0
        except (FileNotFoundError, BlockingIOError):
            busy = True
        # Our writers make the lock first and remove it last, so contents without a lock are somebody else's.
        if not busy and is_new and self._contents():
            lock.unlink()
            raise StoreError(
                f"{self.partial} is in the way and is not ours. Move it, or choose another folder."
            )
        if busy:
            raise StoreError(
                f"{self.folder} is being written by another process. Wait for it, or choose another folder."
            )

    def _contents(self) -> list[Path]:
        return [path for path in self.partial.iterdir() if path.name != _LOCK_NAME]

    def _clean(self, kind: type[BaseException] | None, *_: object) -> None:
        # An impatient second Ctrl-C must not leave half of it behind.
        with _no_interrupts(), contextlib.suppress(OSError):
            if (
                self.keep
                and kind is not None
                and self.journal.is_dir()
                and len(list(self.journal.iterdir())) > 1
            ):
                # Something besides the plan was noted.
                return
            for path in self._contents():
                _remove(path, ignore_errors=True)
            # The lock goes last: from then on the folder may be another writer's, and is not empty.
            (self.partial / _LOCK_NAME).unlink()
            self.partial.rmdir()
            if not self.folder.exists():
                for parent in self._made:
                    parent.rmdir()

    def _move_into_place(self) -> None:
        _sync_folder(self.files)
        # What somebody else has put there meanwhile is not ours to replace.
        self._check_target()
        with ExitStack() as undo:
            if self.folder.exists():
                self.folder.rename(self._replaced)
                undo.callback(self._replaced.rename, self.folder)
            self.files.rename(self.folder)
            undo.pop_all()
        _sync_folder(self.folder.parent)


class StoredFolder:
    """A complete store, opened: header and sizes are checked, the arrays that `maps` chooses are mapped.

    A mapping holds a file open, of which a process may have a thousand; the others are mapped by `map`.
    """

    def __init__(self, folder: Path, kind: str, *, maps: Callable[[str], bool] = lambda name: True) -> None:
        self.folder = folder.absolute()
        with file_errors(self.folder):
            if not (self.folder / HEADER_NAME).is_file():
                raise StoreError(self._why_not(kind))
            self._opened = _identity(self.folder / HEADER_NAME)
            self.header = Header.read(self.folder / HEADER_NAME, kind)
            # Sizes are compared now, so that a truncated array is found before it is read.
            for name, spec in self.header.arrays.items():
                check_size(self.path(name), spec)
            self.arrays = {
                name: map_array(self.path(name), spec)
                for name, spec in self.header.arrays.items()
                if maps(name)
            }
            self._check_same()

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays on disk."""
        return sum(spec.num_bytes for spec in self.header.arrays.values())

    def verify(
        self,
        names: Collection[str] | None = None,
        *,
        threads: int = os.cpu_count() or 1,
        shown: bool = True,
    ) -> None:
        """Compare every byte of these arrays, or of all, with the digests; the first damaged is named."""
        specs = {name: spec for name, spec in self.header.arrays.items() if names is None or name in names}
        total = sum(spec.num_bytes for spec in specs.values()) if shown else 0
        with file_errors(self.folder), progress("Verifying", total, unit="B") as advance:
            for name, spec in specs.items():
                check_size(self.path(name), spec)
                if file_digest(self.path(name), advance, threads) != spec.digest:
                    raise StoreError(
                        f"{self.path(name)} is damaged: its bytes do not have the digest in the header. "
                        "Write the store again."
                    )

    def path(self, name: str) -> Path:
        """The file of an array."""
        return file_of(self.folder, name)

    def map(self, name: str) -> np.ndarray:
        """Map one array now."""
        with file_errors(self.path(name)):
            self._check_same()
            array = map_array(self.path(name), self.header.arrays[name])
            self._check_same()
        return array

    def _check_same(self) -> None:
        # The header of one store and the arrays of another would not be noticed where the sizes agree.
        if _identity(self.folder / HEADER_NAME) != self._opened:
            raise StoreError(f"{self.folder} was replaced after it was opened. Open it again.")

    def _why_not(self, kind: str) -> str:
        if _beside(Path(os.path.realpath(self.folder)), PARTIAL_SUFFIX).is_dir():
            return (
                f"{self.folder} is not complete: a process is writing it, or one was stopped while it did. "
                "Wait for it, or run the same command again."
            )
        if self.folder.is_dir():
            return f"{self.folder} has no {HEADER_NAME}: not a {kind} store. Pass the folder of one."
        return f"{self.folder} does not exist. Pass the folder of a {kind} store."


def _open_lock(path: Path) -> tuple[int, bool]:
    """The lock file, and whether it was made just now."""
    flags = os.O_RDWR | os.O_NOFOLLOW
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666), True
    except FileExistsError:
        return os.open(path, flags), False


def _beside(folder: Path, suffix: str) -> Path:
    return folder.parent / (folder.name + suffix)


def kind_of(folder: Path) -> str | None:
    """The kind of the store in a folder, complete or damaged; None if its header is missing or not ours."""
    header = folder / HEADER_NAME
    if not header.is_file():
        return None
    with header.open("rb") as file:
        found = re.search(rb'"musegnn (\w*)', file.read(256))
    return None if found is None else found[1].decode()


def _is_ours(path: Path) -> bool:
    return path.name == HEADER_NAME or path.suffix == ".bin"


def _identity(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    # Numbers of deleted files are given again; times are not.
    return status.st_dev, status.st_ino, status.st_mtime_ns


def _remove(path: Path, ignore_errors: bool = False) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=ignore_errors)
    else:
        path.unlink()


@contextmanager
def _no_interrupts() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _sync_folder(folder: Path) -> None:
    # Not every file system lets a folder be opened for this; there it is no loss.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
