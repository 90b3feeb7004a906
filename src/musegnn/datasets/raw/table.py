"""One view of tables in files: column names or none, and rows in blocks of numbers or of strings."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike

from musegnn.datasets.raw.fields import Fields
from musegnn.datasets.raw.parquet_table import ParquetTable
from musegnn.datasets.raw.text_table import TextTable
from musegnn.errors import InputError

TEXT = (".csv", ".tsv", ".txt")
SUFFIXES = (".npy", ".npz", *TEXT, *(f"{suffix}.gz" for suffix in TEXT), ".parquet")


@runtime_checkable
class Block(Protocol):
    """Some rows of a table. Columns are asked for by number, in ascending order."""

    num_rows: int

    def numbers(
        self, columns: Sequence[int], dtype: DTypeLike, *, missing: bool = False, hint: str = ""
    ) -> np.ndarray:
        """A (rows, width) matrix; `missing` reads empty fields of one column as NaN, `hint` ends errors."""
        ...

    def strings(self, columns: Sequence[int]) -> list[str]:
        """All fields, row by row, in one list; an empty string where there is none."""
        ...

    def fields(self, columns: Sequence[int]) -> Fields:
        """As `strings`, without a Python object for each."""
        ...

    def where(self, row: int) -> str:
        """File and line of a row of this block, for messages."""
        ...


@runtime_checkable
class Table(Protocol):
    """A table in a file."""

    path: Path
    columns: tuple[str, ...] | None
    """Names in lower case; None without a header."""
    num_columns: int
    head: list[list[str]]
    """The first two rows, or the only one."""

    def blocks(self, columns: Sequence[int] | None = None, *, words: bool = False) -> Iterator[Block]:
        """All rows; only `columns` may be asked of the blocks. They are smaller if they become `words`."""
        ...

    def width(self, columns: Sequence[int]) -> int:
        """How many numbers some columns hold in each row: one each, but for lists in Parquet."""
        ...

    def num_rows(self) -> int:
        """Exact; reads a text file once."""
        ...

    def estimate_rows(self) -> int:
        """At no cost; exact where the file knows it."""
        ...


def open_table(path: Path, is_header: Callable[[list[str]], bool], *, blanks: bool = True) -> Table:
    """A table by the suffix of its file.

    `is_header` is asked about the first line of a text file, in lower case. Without a comma, a tab or a
    semicolon, `blanks` separate columns; if they shall not, they still do so in `.txt` files and between
    numbers.
    """
    if suffix(path) == ".parquet":
        return ParquetTable(path)
    return TextTable(path, is_header, blanks=blanks)


def suffix(path: Path) -> str:
    """The format of a file by its name, in lower case, without `.gz`."""
    name = path.name.lower()
    for known in SUFFIXES:
        if name.endswith(known):
            return known.removesuffix(".gz")
    raise InputError(
        f"{path} has an unknown format. Allowed are {', '.join(SUFFIXES)}; convert or rename it."
    )
