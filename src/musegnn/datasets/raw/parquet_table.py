"""Parquet files as tables, in batches of rows. Needs the extra `parquet`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped
from numpy.typing import DTypeLike

from musegnn.datasets.raw import arrow
from musegnn.datasets.raw.fields import Fields
from musegnn.errors import InputError
from musegnn.extras import require
from musegnn.store import file_errors

BATCH_ROWS = 1 << 20
WORD_BATCH_ROWS = 1 << 16
"""Of a batch that becomes strings: they take ten times the room, and the cache is small."""


class ParquetBlock:
    """Some rows, as Arrow arrays by column number."""

    def __init__(self, path: Path, arrays: dict[int, Any], widths: Sequence[int], first_row: int) -> None:
        self.num_rows = len(next(iter(arrays.values())))
        self._path = path
        self._arrays = arrays
        self._widths = widths
        self._first_row = first_row

    def where(self, row: int) -> str:
        """File and row, counted from 1, for messages."""
        return f"{self._path}, row {self._first_row + row + 1}"

    def numbers(
        self, columns: Sequence[int], dtype: DTypeLike, *, missing: bool = False, hint: str = ""
    ) -> Shaped[np.ndarray, "rows width"]:
        """Some columns as numbers, lists side by side; `missing` reads nulls as NaN."""
        with _parquet_errors(self._path):
            parts = [self._numbers(column, np.dtype(dtype), missing, hint) for column in columns]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def strings(self, columns: Sequence[int]) -> list[str]:
        """The fields of some columns, row by row in one list."""
        fields = [""] * (self.num_rows * len(columns))
        for i, column in enumerate(columns):
            fields[i :: len(columns)] = arrow.as_strings(self._arrays[column])
        return fields

    def fields(self, columns: Sequence[int]) -> Fields:
        """The fields of some columns, row by row, as pieces of Arrow's own texts."""
        with _parquet_errors(self._path):
            parts = [arrow.as_fields(self._arrays[column]) for column in columns]
        shifts = np.cumsum([0, *(len(part.text) for part in parts[:-1])])
        starts = np.stack([part.starts + shift for part, shift in zip(parts, shifts, strict=True)], axis=1)
        lengths = np.stack([part.lengths for part in parts], axis=1)
        text = np.concatenate([part.text for part in parts])
        return Fields(text, starts.reshape(-1), lengths.reshape(-1))

    def _numbers(self, column: int, dtype: np.dtype[Any], missing: bool, hint: str) -> np.ndarray:
        array = self._arrays[column]
        if arrow.is_list(array):
            array = self._flat(column)
        if missing:
            array = arrow.without_gaps(array)
        values = arrow.as_numbers(array, dtype)
        if values is None:
            row = arrow.first_no_number(array, dtype) // self._widths[column]
            kind = "whole number" if dtype.kind in "iu" else "number"
            field = arrow.as_strings(self._arrays[column].slice(row, 1))[0]
            raise InputError(
                f"{self.where(row)}: {field[:60]!r} in column {column + 1} is no {kind}. "
                f"{hint or 'Correct or remove that row.'}"
            )
        return values.reshape(self.num_rows, self._widths[column])

    def _flat(self, column: int) -> Any:
        """The values of lists that must all be as long as the first one of the file."""
        compute = require("pyarrow.compute", "Reading Parquet")
        lengths = compute.list_value_length(self._arrays[column]).fill_null(0).to_numpy()
        is_bad = (lengths != self._widths[column]) | (lengths == 0)
        if is_bad.any():
            row = int(np.flatnonzero(is_bad)[0])
            raise InputError(
                f"{self.where(row)}: a list of {lengths[row]} numbers in column {column + 1}, but the first "
                f"row has {self._widths[column]}. Give each row as many."
            )
        return self._arrays[column].flatten()


class ParquetTable:
    """A `.parquet` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        parquet = require("pyarrow.parquet", "Reading Parquet")
        with _parquet_errors(path):
            self._file = parquet.ParquetFile(path)
            self._names: list[str] = self._file.schema_arrow.names
            self.columns: tuple[str, ...] | None = tuple(name.lower() for name in self._names)
            self.num_columns = len(self._names)
            self._rows: int = self._file.metadata.num_rows
            if not self._rows or not self._names:
                raise InputError(f"{path} has no rows. Check how it was written.")
            first = next(self._file.iter_batches(batch_size=2), None)
            if first is None:
                raise InputError(f"{path} has no rows. Check how it was written.")
        arrays = [arrow.decoded(array) for array in first.columns]
        self._widths = [len(array[0].as_py() or ()) if arrow.is_list(array) else 1 for array in arrays]
        self.head = [[arrow.as_strings(array)[row] for array in arrays] for row in range(len(first))]

    def blocks(self, columns: Sequence[int] | None = None, *, words: bool = False) -> Iterator[ParquetBlock]:
        """All rows of some columns, or of all of them."""
        chosen = range(self.num_columns) if columns is None else columns
        first_row = 0
        with _parquet_errors(self.path):
            for batch in self._file.iter_batches(
                batch_size=WORD_BATCH_ROWS if words else BATCH_ROWS,
                columns=[self._names[column] for column in chosen],
            ):
                arrays = {
                    column: arrow.decoded(batch.column(batch.schema.get_field_index(self._names[column])))
                    for column in chosen
                }
                yield ParquetBlock(self.path, arrays, self._widths, first_row)
                first_row += len(batch)

    def width(self, columns: Sequence[int]) -> int:
        """How many numbers some columns hold in each row."""
        return sum(self._widths[column] for column in columns)

    def num_rows(self) -> int:
        """As the file's metadata say."""
        return self._rows

    def estimate_rows(self) -> int:
        """Exact."""
        return self._rows


@contextmanager
def _parquet_errors(path: Path) -> Iterator[None]:
    pyarrow = require("pyarrow", "Reading Parquet")
    try:
        with file_errors(path):
            yield
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        first_line = str(error).partition("\n")[0]
        raise InputError(
            f"{path} is not a readable Parquet file ({first_line}). Write or download it again."
        ) from error
