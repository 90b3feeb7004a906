"""NumPy files in blocks: `.npy` mapped, members of an `.npz` unpacked as they are read. Never a pickle."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from math import prod
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.lib import format as npy_format

from musegnn.errors import InputError
from musegnn.store import file_errors

BLOCK_BYTES = 1 << 25


def open_npy(path: Path) -> np.ndarray:
    """Map one `.npy` file."""
    with file_errors(path), _format_errors(path):
        with path.open("rb") as file:
            _read_header(file, path)
        mapped: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
        return mapped


class NpzMember:
    """One array of an `.npz`, read front to back without holding it."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        with self._open() as file:
            self.shape, self.fortran_order, self.dtype = _read_header(file, self._what)
        self._row_bytes = self.dtype.itemsize * prod(self.shape[1:])

    @property
    def _what(self) -> str:
        return f"{self.path}, member {self.name}"

    def __len__(self) -> int:
        return self.shape[0] if self.shape else 0

    def rows(self) -> Iterator[np.ndarray]:
        """The rows in blocks of about 32 MiB."""
        if self.fortran_order and len(self.shape) > 1:
            raise InputError(f"{self._what} is stored by columns. Save it with np.ascontiguousarray first.")
        step = max(1, BLOCK_BYTES // max(1, self._row_bytes))
        with self._open() as file:
            _read_header(file, self._what)
            for start in range(0, len(self), step):
                count = min(step, len(self) - start)
                yield self._read(file, count * prod(self.shape[1:])).reshape(count, *self.shape[1:])

    def pairs(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Both rows of a (2, n) array, or both columns of an (n, 2) array, in matching blocks."""
        if len(self.shape) != 2 or 2 not in self.shape:
            raise InputError(f"{self._what} must have shape (2, edges), got {self.shape}.")
        by_row = self.shape[0] == 2
        # Both ends of an edge lie side by side in a (2, n) array stored by columns, or (n, 2) by rows.
        if by_row == self.fortran_order:
            yield from self._interleaved(self.shape[1] if by_row else self.shape[0])
        else:
            yield from self._apart(self.shape[1] if by_row else self.shape[0])

    def read(self) -> np.ndarray:
        """The whole array, for small ones."""
        with self._open() as file:
            _read_header(file, self._what)
            values = self._read(file, prod(self.shape))
        return values.reshape(self.shape, order="F" if self.fortran_order else "C")

    def _interleaved(self, num_pairs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        step = BLOCK_BYTES // (2 * self.dtype.itemsize)
        with self._open() as file:
            _read_header(file, self._what)
            for start in range(0, num_pairs, step):
                block = self._read(file, 2 * min(step, num_pairs - start)).reshape(-1, 2)
                yield block[:, 0], block[:, 1]

    def _apart(self, num_pairs: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Two readers, the second one moved to the middle: a compressed first half is unpacked twice."""
        step = BLOCK_BYTES // self.dtype.itemsize
        with self._open() as first, self._open() as second:
            _read_header(first, self._what)
            _read_header(second, self._what)
            self._skip(second, num_pairs * self.dtype.itemsize)
            for start in range(0, num_pairs, step):
                count = min(step, num_pairs - start)
                yield self._read(first, count), self._read(second, count)

    def _skip(self, file: BufferedIOBase, num_bytes: int) -> None:
        while num_bytes:
            passed = len(file.read(min(num_bytes, BLOCK_BYTES)))
            if not passed:
                raise InputError(f"{self._what} is cut off. Download it again.")
            num_bytes -= passed

    def _read(self, file: BufferedIOBase, count: int) -> np.ndarray:
        data = file.read(count * self.dtype.itemsize)
        if len(data) != count * self.dtype.itemsize:
            raise InputError(f"{self._what} is cut off. Download it again.")
        return np.frombuffer(data, dtype=self.dtype)

    @contextmanager
    def _open(self) -> Iterator[BufferedIOBase]:
        with file_errors(self.path), _format_errors(self.path), zipfile.ZipFile(self.path) as archive:
            try:
                file = archive.open(f"{self.name}.npy")
            except KeyError:
                names = ", ".join(sorted(npz_names(self.path)))
                raise InputError(f"{self.path} has no member {self.name}; it has: {names}.") from None
            with file:
                yield cast(BufferedIOBase, file)


def npz_names(path: Path) -> set[str]:
    """Names of the arrays in an `.npz`."""
    with file_errors(path), _format_errors(path), zipfile.ZipFile(path) as archive:
        return {name.removesuffix(".npy") for name in archive.namelist()}


@contextmanager
def _format_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (InputError, OSError, GeneratorExit):
        raise
    except Exception as error:
        # NumPy parses the header as Python text and zipfile trusts its flags: damage raises anything there.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{path} is not a readable NumPy file ({reason}). Write or download it again."
        ) from error


def _read_header(file: BufferedIOBase, what: object) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy_format.read_magic(file)
    read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
    shape, fortran_order, dtype = read(file)
    if not all(type(size) is int and 0 <= size < 1 << 62 for size in shape):
        raise InputError(f"{what} has the shape {shape}: its header is damaged. Write or download it again.")
    if dtype.hasobject:
        raise InputError(f"{what} holds Python objects, which are never loaded. Save plain numbers instead.")
    return shape, fortran_order, dtype
