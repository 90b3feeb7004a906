"""Tables of numbers in text (CSV, also gzip), parsed in blocks: 5 M edges a second on one core."""

import gzip
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import DTypeLike

from musegnn.errors import InputError
from musegnn.store import file_errors

BLOCK_BYTES = 1 << 24


@contextmanager
def open_text(path: Path) -> Iterator[BinaryIO]:
    """Open a text file, unpacking `.gz`; a damaged archive becomes one sentence."""
    try:
        with file_errors(path), path.open("rb") as file:
            yield cast(BinaryIO, gzip.GzipFile(fileobj=file)) if path.suffix == ".gz" else file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(
            f"{path} is not a complete gzip file ({error}). Write or download it again."
        ) from error


def number_rows(
    path: Path, dtype: DTypeLike, num_columns: int | None = None, skip_lines: int = 0
) -> Iterator[np.ndarray]:
    """Blocks of rows of a comma-separated table of numbers; the first line fixes the number of columns.

    Every line must be a row: an empty one, a comment or one of another length is named in the error.
    """
    dtype = np.dtype(dtype)
    for block, first_line in line_blocks(path, skip_lines):
        if num_columns is None:
            num_columns = block[: block.index(b"\n")].count(b",") + 1
        num_rows = block.count(b"\n")
        values = _parse(block, dtype)
        if values is None or len(values) != num_rows * num_columns or not _is_table(block, num_columns):
            raise _bad_line(block, first_line, path, dtype, num_columns)
        yield values.reshape(num_rows, num_columns)


def line_blocks(path: Path, skip_lines: int = 0) -> Iterator[tuple[bytes, int]]:
    """Whole lines in blocks of about 16 MiB, each ended by a newline, and the number of the first one."""
    line = 1 + skip_lines
    with open_text(path) as file:
        for _ in range(skip_lines):
            file.readline()
        while data := file.read(BLOCK_BYTES):
            data += file.readline()
            data = data.replace(b"\r\n", b"\n")
            if not data.endswith(b"\n"):
                data += b"\n"
            yield data, line
            line += data.count(b"\n")


def _parse(block: bytes, dtype: np.dtype[np.generic]) -> np.ndarray | None:
    # Each newline becomes a separator, so the text ends with one; NumPy accepts that.
    text = block.replace(b"\n", b",")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, dtype=dtype, sep=",")
        except (DeprecationWarning, ValueError):
            return None


def _is_table(block: bytes, num_columns: int) -> bool:
    """Each line has its own commas: counting values alone lets a long line make up for a short one."""
    text = np.frombuffer(block, dtype=np.uint8)
    separators = text[(text == ord(",")) | (text == ord("\n"))]
    if len(separators) % num_columns:
        return False
    is_end = separators.reshape(-1, num_columns) == ord("\n")
    return bool(is_end[:, -1].all() and not is_end[:, :-1].any())


def _bad_line(
    block: bytes, first_line: int, path: Path, dtype: np.dtype[np.generic], num_columns: int
) -> InputError:
    kind = int if dtype.kind in "iu" else float
    for number, line in enumerate(block.splitlines(), start=first_line):
        fields = line.split(b",")
        try:
            fits = len([kind(field) for field in fields]) == num_columns
        except ValueError:
            fits = False
        if not fits:
            shown = line[:60].decode("utf-8", "replace")
            what = "whole numbers" if kind is int else "numbers"
            return InputError(
                f"{path}, line {number}: expected {num_columns} {what} separated by commas, got {shown!r}. "
                "Correct or remove that line."
            )
    return InputError(f"{path}, lines {first_line} and following: numbers out of range of {dtype}.")
