"""Text tables: their comments, header, separator and quotes, and their rows in blocks."""

import csv
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path

import numpy as np

from musegnn.datasets.raw.text import BYTE_ORDER_MARK, decode, is_number, line_blocks, open_text, tidy
from musegnn.datasets.raw.text_block import TextBlock
from musegnn.errors import InputError

WORD_BLOCK_BYTES = 1 << 20
"""Of a block that becomes strings: they take ten times the room, and the cache is small."""
MAX_LINE_BYTES = 1 << 24
UNQUOTED = b"\x1f"
"""Separates the fields of a block whose quotes were resolved, since they may hold the file's separator."""


class TextTable:
    """A `.csv`, `.tsv` or `.txt` file, also with `.gz`.

    Leading lines that begin with # or % are comments. The first line after them shows what separates the
    columns, and is the header if `is_header` says so of its fields, in lower case. Without `blanks`, they
    separate columns in `.txt` files and between numbers only.
    """

    def __init__(self, path: Path, is_header: Callable[[list[str]], bool], *, blanks: bool = True) -> None:
        self.path = path
        with open_text(path) as file:
            self._skipped, first = _after_comments(file, path)
            lines = [line for line in (first, _read_line(file, path), _read_line(file, path)) if line]
        self.separator = _separator(lines, path, blanks)
        rows = [self._fields(line, i) for i, line in enumerate(lines, start=1 + self._skipped)]
        names = tuple(field.lower() for field in rows[0])
        self.num_columns = len(names)
        self.columns = names if is_header(list(names)) else None
        self.head = rows[:2] if self.columns is None else rows[1:]
        self._skipped += self.columns is not None
        if not self.head:
            raise InputError(f"{path} has a header, but no rows. Write the rows below it.")
        # Raises for a first row of another length than the header, which callers index by column.
        next(self.blocks(words=True)).strings([0])

    def blocks(self, columns: Sequence[int] | None = None, *, words: bool = False) -> Iterator[TextBlock]:
        """All rows, in smaller blocks where they become `words`."""
        block_bytes = WORD_BLOCK_BYTES if words else None
        # In a table of one column, a blank line is a value that is missing.
        spare_end = self.num_columns > 1
        for lines, number in line_blocks(self.path, self._skipped, block_bytes, spare_end=spare_end):
            data, separator = self._clean(lines, number)
            yield TextBlock(
                data, path=self.path, num_columns=self.num_columns, separator=separator, first_line=number
            )

    def width(self, columns: Sequence[int]) -> int:
        """How many numbers some columns hold in each row."""
        return len(columns)

    def num_rows(self) -> int:
        """Counts the lines, which reads the file."""
        blocks = line_blocks(self.path, self._skipped, spare_end=self.num_columns > 1)
        return sum(lines.count(b"\n") for lines, _ in blocks)

    def estimate_rows(self) -> int:
        """From the size of the file and its first megabyte; exact for smaller files."""
        with open_text(self.path) as file:
            start = file.read(WORD_BLOCK_BYTES)
            if len(start) < WORD_BLOCK_BYTES:
                return start.count(b"\n") + (not start.endswith(b"\n")) - self._skipped
            consumed = getattr(file, "fileobj", file).tell()
        return int(start.count(b"\n") * self.path.stat().st_size / consumed)

    def _clean(self, lines: bytes, number: int) -> tuple[bytes, bytes]:
        """Lines without quotes and spare blanks, and what separates their fields now."""
        if b'"' in lines and self.separator != b" ":
            if not _quotes_whole_fields(lines, self.separator):
                return self._unquote(lines, number), UNQUOTED
            lines = lines.replace(b'"', b"")
        return tidy(lines, self.separator), self.separator

    def _fields(self, line: bytes, number: int) -> list[str]:
        data, separator = self._clean(line, number)
        return decode(data, self.path, number)[:-1].split(separator.decode())

    def _unquote(self, lines: bytes, number: int) -> bytes:
        text = decode(lines, self.path, number)
        # Not splitlines, which takes characters such as \x85 for the end of a line.
        reader = csv.reader(
            text.split("\n")[:-1], delimiter=self.separator.decode(), skipinitialspace=True, strict=True
        )
        rows: list[str] = []
        try:
            for row in reader:
                if reader.line_num > len(rows) + 1:
                    raise csv.Error("unexpected end of line")
                rows.append(UNQUOTED.decode().join(field.strip(" ") for field in row))
        except csv.Error as error:
            what = "a quote is not closed" if "unexpected end" in str(error) else error
            raise InputError(
                f"{self.path}, line {number + len(rows)}: {what}. Close each quote in its own line."
            ) from error
        return "".join(row + "\n" for row in rows).encode()


def _quotes_whole_fields(lines: bytes, separator: bytes) -> bool:
    """Whether quotes stand at both ends of fields only, and hide no separator: then they say nothing."""
    text = np.frombuffer(b"\n" + lines, dtype=np.uint8)
    is_limit = (text == ord(separator)) | (text == ord("\n"))
    quotes = np.flatnonzero(text == ord('"'))
    if len(quotes) % 2:
        return False
    opening, closing = quotes[::2], quotes[1::2]
    num_limits = np.cumsum(is_limit)
    return bool(
        is_limit[opening - 1].all()
        and is_limit[closing + 1].all()
        and (num_limits[opening] == num_limits[closing]).all()
    )


def _after_comments(file: BufferedIOBase, path: Path) -> tuple[int, bytes]:
    """How many comments come first, and the line after them."""
    skipped = 0
    line = _read_line(file, path).removeprefix(BYTE_ORDER_MARK)
    while line.startswith((b"#", b"%")):
        skipped += 1
        line = _read_line(file, path)
    if not line:
        what = "holds only comments (lines that begin with # or %)" if skipped else "is empty"
        raise InputError(f"{path} {what}. It must hold at least one row; check how it was written.")
    return skipped, line


def _read_line(file: BufferedIOBase, path: Path) -> bytes:
    line = file.readline(MAX_LINE_BYTES)
    if b"\0" in line or len(line) == MAX_LINE_BYTES:
        raise InputError(f"{path} is no text table: it holds zero bytes or endless lines. Check the file.")
    return line.rstrip(b"\r\n") + b"\n" if line else b""


def _separator(lines: list[bytes], path: Path, blanks: bool) -> bytes:
    """A comma or a tab if the first line has one, the one that the suffix speaks of first; or a semicolon."""
    suffix = path.with_suffix("").suffix if path.suffix.lower() == ".gz" else path.suffix
    usual = b"," if suffix.lower() == ".csv" else b"\t"
    for separator in (usual, b"\t" if usual == b"," else b","):
        if separator in lines[0]:
            return separator
    # One name with a semicolon does not make a list of names a table.
    if all(b";" in line for line in lines):
        return b";"
    fields = [line.decode("utf-8", "replace").split() for line in lines]
    has_numbers = any(len(row) > 1 and all(map(is_number, row)) for row in fields)
    return b" " if blanks or has_numbers or suffix.lower() == ".txt" else usual
