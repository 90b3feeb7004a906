"""One array, one file: raw little-endian values in C order. Dtype and shape stand in the header."""

import hashlib
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import DTypeLike

from musegnn.errors import StoreError
from musegnn.progress import Advance

BLOCK_BYTES = 1 << 24
"""Digests are taken over blocks of this size, so that a terabyte is verified by several threads."""

DTYPES = frozenset({"<i1", "<i2", "<i4", "<i8", "<u1", "<u2", "<u4", "<u8", "<f2", "<f4", "<f8"})
"""What a file may hold, as NumPy spells it; one-byte types are written "<i1" and "<u1" too."""


def dtype_name(dtype: DTypeLike) -> str:
    """The header's name of a dtype: '<' and NumPy's kind and size."""
    return "<" + np.dtype(dtype).str[1:]


@dataclass(frozen=True, kw_only=True, slots=True)
class ArraySpec:
    """What the header says about one array file."""

    dtype: str
    """One of DTYPES."""
    shape: tuple[int, ...]
    """Rows first."""
    digest: str
    """`digest_array` of the values."""

    @property
    def num_bytes(self) -> int:
        """The exact size of the file."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class BlockDigest:
    """SHA-256 of the SHA-256 of each 16 MiB block, over a stream of bytes cut anywhere."""

    def __init__(self) -> None:
        self._outer = hashlib.sha256()
        self._block = hashlib.sha256()
        self._filled = 0

    def update(self, data: memoryview) -> None:
        """Take in more bytes."""
        start = 0
        while start < len(data):
            part = data[start : start + BLOCK_BYTES - self._filled]
            self._block.update(part)
            self._filled += len(part)
            start += len(part)
            if self._filled == BLOCK_BYTES:
                self._close_block()

    def hexdigest(self) -> str:
        """The digest; nothing may be added afterwards."""
        if self._filled:
            self._close_block()
        return self._outer.hexdigest()

    def _close_block(self) -> None:
        self._outer.update(self._block.digest())
        self._block, self._filled = hashlib.sha256(), 0


def digest_array(array: np.ndarray) -> str:
    """The digest that `ArrayWriter` would give the same values."""
    digest = BlockDigest()
    for rows in row_blocks(array):
        digest.update(as_bytes(rows))
    return digest.hexdigest()


def as_bytes(array: np.ndarray) -> memoryview:
    """The values as the file holds them: little-endian, C order."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return little.reshape(-1).view(np.uint8).data


class ArrayWriter:
    """Appends rows to one array file and digests them on the way."""

    def __init__(self, path: Path, dtype: DTypeLike, row_shape: tuple[int, ...] = ()) -> None:
        self.path = path
        self.dtype = np.dtype(dtype)
        self.row_shape = row_shape
        self.num_rows = 0
        self._digest = BlockDigest()
        self._file = path.open("xb")

    def append(self, rows: np.ndarray) -> None:
        """Write rows behind those written so far; a mapped input is passed through in blocks."""
        assert rows.shape[1:] == self.row_shape, (rows.shape, self.row_shape)
        for block in row_blocks(rows):
            data = as_bytes(block.astype(self.dtype, copy=False))
            self._file.write(data)
            self._digest.update(data)
            self.num_rows += len(block)

    def written(self) -> np.ndarray:
        """The rows written so far, mapped for reading."""
        self._file.flush()
        return map_array(self.path, self._spec(digest=""))

    def finish(self, *, wait: bool = True) -> ArraySpec:
        """Close the file and describe it; `wait` until it is on the disk, or leave that to the system."""
        self._file.flush()
        if wait:
            os.fsync(self._file.fileno())
        self._file.close()
        return self._spec(digest=self._digest.hexdigest())

    def __enter__(self) -> "ArrayWriter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _spec(self, digest: str) -> ArraySpec:
        return ArraySpec(dtype=dtype_name(self.dtype), shape=(self.num_rows, *self.row_shape), digest=digest)


def map_array(path: Path, spec: ArraySpec) -> np.ndarray:
    """Map one array file read-only, after checking that it has exactly the size its header says."""
    check_size(path, spec)
    if spec.num_bytes == 0:
        return np.empty(spec.shape, dtype=spec.dtype)
    return np.memmap(path, dtype=spec.dtype, mode="r", shape=spec.shape)


def check_size(path: Path, spec: ArraySpec) -> None:
    """Refuse a file that is missing, cut off, or no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        raise StoreError(f"{path} is missing: the store is damaged. Write it again.") from None
    except PermissionError:
        raise
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; the store is damaged. Write it again.") from error
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a regular file: the store is damaged. Write it again.")
    if status.st_size != spec.num_bytes:
        raise StoreError(
            f"{path} has {status.st_size:,} bytes, but its header says {spec.num_bytes:,}: the file was cut "
            "off or overwritten. Write the store again."
        )


def file_digest(path: Path, advance: Advance, threads: int) -> str:
    """`digest_array` of a file's bytes, its blocks hashed by several threads."""

    def blocks() -> Iterator[int]:
        yield from range(0, path.stat().st_size, BLOCK_BYTES)

    def digest_block(start: int) -> bytes:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(BLOCK_BYTES)
        advance(len(data))
        return hashlib.sha256(data).digest()

    outer = hashlib.sha256()
    with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
        for digest in (pool.map if pool else map)(digest_block, blocks()):
            outer.update(digest)
    return outer.hexdigest()


def row_blocks(array: np.ndarray) -> Iterator[np.ndarray]:
    """The rows of an array in blocks of about 16 MiB."""
    row_bytes = max(1, array[:1].nbytes)
    step = max(1, BLOCK_BYTES // row_bytes)
    for start in range(0, len(array), step):
        yield array[start : start + step]
