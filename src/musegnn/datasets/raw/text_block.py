"""Lines of a text table as numbers or strings, by column; the line and the field at fault in every error."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Shaped
from numpy.typing import DTypeLike

from musegnn.datasets.raw.fields import PADDING, Fields
from musegnn.datasets.raw.text import SEPARATORS, decode, parse_numbers
from musegnn.errors import InputError


class TextBlock:
    """Some lines of a table whose fields are free of quotes and of blanks at their ends."""

    def __init__(
        self, data: bytes, *, path: Path, num_columns: int, separator: bytes, first_line: int
    ) -> None:
        self.num_rows = data.count(b"\n")
        self._data = data
        self._path = path
        self._num_columns = num_columns
        self._separator = separator
        self._first_line = first_line

    def where(self, row: int) -> str:
        """File and line of a row, for messages."""
        return f"{self._path}, line {self._first_line + row}"

    def numbers(
        self, columns: Sequence[int], dtype: DTypeLike, *, missing: bool = False, hint: str = ""
    ) -> Shaped[np.ndarray, "rows columns"]:
        """Some columns, which ascend, as numbers; `missing` reads one column's empty fields as NaN."""
        values = self._parse(columns, dtype, missing)
        if values is None:
            raise self._no_number(columns, dtype, missing, hint)
        return values

    def strings(self, columns: Sequence[int]) -> list[str]:
        """The fields of some columns, which ascend, row by row in one list."""
        separator = self._separator.decode()
        try:
            text = self._select(columns).decode()
        except UnicodeDecodeError:
            # Selected bytes have lost their lines: all of them know which one it is.
            text = decode(self._data, self._path, self._first_line)
        fields = text.replace("\n", separator).split(separator)
        fields.pop()
        return fields

    def fields(self, columns: Sequence[int]) -> Fields:
        """As `strings`, without a Python object for each."""
        decode(self._data, self._path, self._first_line)
        ends = self._ends
        starts = np.concatenate([[0], ends.reshape(-1)[:-1] + 1]).reshape(ends.shape)[:, list(columns)]
        text = np.frombuffer(self._data + bytes(PADDING), dtype=np.uint8)
        return Fields(text, starts.reshape(-1), (ends[:, list(columns)] - starts).reshape(-1))

    @cached_property
    def _ends(self) -> Int64[np.ndarray, "rows columns"]:
        """Where each field ends."""
        text = np.frombuffer(self._data, dtype=np.uint8)
        ends = np.flatnonzero((text == ord(self._separator)) | (text == ord("\n")))
        if len(ends) != self.num_rows * self._num_columns:
            raise self._no_table()
        table = ends.reshape(-1, self._num_columns)
        # As many newlines as rows: if each stands in the last column, none stands in another.
        if not (text[table[:, -1]] == ord("\n")).all():
            raise self._no_table()
        return table

    def _select(self, columns: Sequence[int]) -> bytes:
        """The bytes of some columns, each field with what ends it."""
        ends = self._ends
        if len(columns) == ends.shape[1]:
            return self._data
        is_kept = np.zeros(ends.shape, dtype=bool)
        is_kept[:, list(columns)] = True
        lengths = np.diff(ends.reshape(-1), prepend=-1)
        text = np.frombuffer(self._data, dtype=np.uint8)
        kept: bytes = text[np.repeat(is_kept.reshape(-1), lengths)].tobytes()
        return kept

    def _parse(self, columns: Sequence[int], dtype: DTypeLike, missing: bool) -> np.ndarray | None:
        text = self._select(columns)
        if missing:
            text = _fill(text.replace(self._separator, b"\n"))
        values = parse_numbers(text, dtype, self._separator)
        if values is None or len(values) != self.num_rows * len(columns):
            return None
        return values.reshape(self.num_rows, len(columns))

    def _rows(self, start: int, stop: int) -> "TextBlock":
        ends = self._ends[:, -1] + 1
        data = self._data[ends[start - 1] if start else 0 : ends[stop - 1]]
        return TextBlock(
            data,
            path=self._path,
            num_columns=self._num_columns,
            separator=self._separator,
            first_line=self._first_line + start,
        )

    def _no_number(self, columns: Sequence[int], dtype: DTypeLike, missing: bool, hint: str) -> InputError:
        row, stop = 0, self.num_rows
        while stop - row > 1:
            middle = (row + stop) // 2
            if self._rows(row, middle)._parse(columns, dtype, missing) is None:
                stop = middle
            else:
                row = middle
        line = self._rows(row, row + 1)
        column = next(c for c in columns if line._parse([c], dtype, missing) is None)
        field = line._select([column])[:-1].decode("utf-8", "replace")
        kind = "whole number" if np.dtype(dtype).kind in "iu" else "number"
        is_decimal = self._separator == b";" and "," in field
        hint = "Write a decimal point, not a comma." if is_decimal else hint or "Correct or remove that line."
        return InputError(f"{self.where(row)}: {field[:60]!r} in column {column + 1} is no {kind}. {hint}")

    def _no_table(self) -> InputError:
        lines = self._data.split(b"\n")
        counts = [line.count(self._separator) + 1 for line in lines]
        row = next(i for i, count in enumerate(counts) if count != self._num_columns)
        got = f"{counts[row]} in {lines[row][:60].decode('utf-8', 'replace')!r}" if lines[row] else "none"
        return InputError(
            f"{self.where(row)}: expected {self._num_columns} columns separated by "
            f"{SEPARATORS.get(self._separator, 'separators')}, got {got}. Correct or remove that line."
        )


def _fill(column: bytes) -> bytes:
    """One field a line, `nan` where there is none."""
    filled = b"\n" + column
    # Twice: neighboring gaps share a newline, and replace does not look back.
    for _ in range(2):
        filled = filled.replace(b"\n\n", b"\nnan\n")
    return filled[1:]
