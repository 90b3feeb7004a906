"""Tables of numbers in text (CSV and other separators, also gzip), parsed in blocks."""

import gzip
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

from musegnn.errors import InputError
from musegnn.store import file_errors

BLOCK_BYTES = 1 << 24
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Excel begins a UTF-8 file with it."""
SEPARATORS = {b",": "commas", b"\t": "tabs", b";": "semicolons", b" ": "blanks"}
"""What may stand between the columns, and how messages call it."""
_BLANKS = bytes.maketrans(b"\t\r\v\f", b"    ")


@contextmanager
def open_text(path: Path) -> Iterator[BufferedIOBase]:
    """Open a text file, unpacking `.gz`; a damaged archive becomes one sentence."""
    with file_errors(path), path.open("rb") as file:
        # Inside file_errors: BadGzipFile is an OSError, too.
        try:
            yield gzip.GzipFile(fileobj=file) if path.suffix.lower() == ".gz" else file
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise InputError(
                f"{path} is not a complete gzip file ({error}). Write or download it again."
            ) from error


def number_rows(
    path: Path,
    dtype: DTypeLike,
    num_columns: int | None = None,
    skip_lines: int = 0,
    separator: bytes = b",",
) -> Iterator[np.ndarray]:
    """Blocks of rows of a table of numbers; the first line fixes the number of columns.

    Every line must be a row: an empty one, a comment or one of another length is named in the error. The
    separator is a comma, a tab, a semicolon, or a blank, which stands for any run of blanks and tabs.
    """
    dtype = np.dtype(dtype)
    for raw_block, first_line in line_blocks(path, skip_lines):
        block = tidy(raw_block, separator)
        if num_columns is None:
            num_columns = block[: block.index(b"\n")].count(separator) + 1
        num_rows = block.count(b"\n")
        values = parse_numbers(block, dtype, separator)
        if (
            values is None
            or len(values) != num_rows * num_columns
            or not _is_table(block, num_columns, separator)
        ):
            raise _bad_line(block, first_line, path, dtype, num_columns, separator)
        yield values.reshape(num_rows, num_columns)


def line_blocks(
    path: Path, skip_lines: int = 0, block_bytes: int | None = None, *, spare_end: bool = False
) -> Iterator[tuple[bytes, int]]:
    """Whole lines in blocks of about 16 MiB, each ended by a newline, and the number of the first one.

    `spare_end` drops blank lines at the end of the file, as editors leave them.
    """
    line = 1 + skip_lines
    with open_text(path) as file:
        for _ in range(skip_lines):
            file.readline()
        following = file.read(block_bytes or BLOCK_BYTES)
        while data := following:
            data += file.readline()
            following = file.read(block_bytes or BLOCK_BYTES)
            data = (data.removeprefix(BYTE_ORDER_MARK) if line == 1 else data).replace(b"\r\n", b"\n")
            if not following and spare_end:
                data = data.rstrip(b"\n") + b"\n"
            elif not data.endswith(b"\n"):
                data += b"\n"
            yield data, line
            line += data.count(b"\n")


def tidy(block: bytes, separator: bytes) -> bytes:
    """Lines without blanks at their ends and around separators; runs of blanks become one separator."""
    if separator == b" ":
        block = block.replace(b"\t", b" ")
        spare = [(b"  ", b" ")]
    else:
        spare = [(b" " + separator, separator), (separator + b" ", separator)]
    if b" " not in block:
        return block
    for found, kept in (*spare, (b" \n", b"\n"), (b"\n ", b"\n")):
        while found in block:
            block = block.replace(found, kept)
    return block.lstrip(b" ")


def parse_numbers(block: bytes, dtype: DTypeLike, separator: bytes = b",") -> np.ndarray | None:
    """All numbers of some lines, or None if anything else is among them.

    Whole numbers beyond 64 bits become the largest one, as in C.
    """
    # A decimal comma between other separators is no number.
    if separator != b"," and b"," in block:
        return None
    # Each newline becomes a separator, so the text ends with one; NumPy accepts that.
    text = block.replace(b"\n", b",").replace(separator, b",")
    # NumPy takes a field of white space for -1.0, and a lonely sign for 0.
    if any(space in text for space in (b" ", b"\t", b"\r", b"\v", b"\f")):
        text = tidy(text.translate(_BLANKS), b",")
        if b" " in text:
            return None
    if np.dtype(dtype).kind in "iu" and any(sign in text and sign + b"," in text for sign in (b"-", b"+")):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(text, dtype=dtype, sep=",")
        except (DeprecationWarning, ValueError):
            return None


def is_whole(field: str) -> bool:
    """Whether a field is a whole number, as the block parser reads it."""
    return field.removeprefix("-").isdecimal() and field.isascii()


def is_number(field: str) -> bool:
    """Whether a field is a number; NaN and infinity are."""
    try:
        float(field)
    except ValueError:
        return False
    return field.isascii() and "_" not in field


def decode(lines: bytes, path: Path, first_line: int) -> str:
    """UTF-8 text, or the line that is none."""
    try:
        return lines.decode()
    except UnicodeDecodeError as error:
        number = first_line + lines[: error.start].count(b"\n")
        byte = f"byte {lines[error.start]:#04x}"
        raise InputError(
            f"{path}, line {number}: {byte} is no UTF-8 text. Save the file as UTF-8."
        ) from error


def _is_table(block: bytes, num_columns: int, separator: bytes) -> bool:
    """Each line has its own separators: counting values alone lets a long line make up for a short one."""
    text = np.frombuffer(block, dtype=np.uint8)
    separators = text[(text == ord(separator)) | (text == ord("\n"))]
    if len(separators) % num_columns:
        return False
    is_end = separators.reshape(-1, num_columns) == ord("\n")
    return bool(is_end[:, -1].all() and not is_end[:, :-1].any())


def _bad_line(
    block: bytes, first_line: int, path: Path, dtype: np.dtype[np.generic], num_columns: int, separator: bytes
) -> InputError:
    kind = int if dtype.kind in "iu" else float
    for number, line in enumerate(block.splitlines(), start=first_line):
        fields = line.split(separator)
        try:
            fits = len([kind(field) for field in fields]) == num_columns
        except ValueError:
            fits = False
        if not fits:
            shown = line[:60].decode("utf-8", "replace")
            what = "whole numbers" if kind is int else "numbers"
            return InputError(
                f"{path}, line {number}: expected {num_columns} {what} separated by {SEPARATORS[separator]}, "
                f"got {shown!r}. Correct or remove that line."
            )
    return InputError(f"{path}, lines {first_line} and following: numbers out of range of {dtype}.")
