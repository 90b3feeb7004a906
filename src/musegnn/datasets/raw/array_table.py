"""Edges in NumPy files as a table: columns source, target and, in an `.npz` that has it, relation."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Shaped
from numpy.typing import DTypeLike

from musegnn.datasets.raw.fields import Fields
from musegnn.datasets.raw.npy import NpzMember, npz_names, open_npy
from musegnn.errors import InputError
from musegnn.graph import checks

BLOCK_ROWS = 1 << 20
WORD_BLOCK_ROWS = 1 << 16
"""Of a block that becomes strings: they take ten times the room, and the cache is small."""

Columns = tuple[np.ndarray, ...]


class ArrayBlock:
    """Some edges, as one array of whole numbers for each column."""

    def __init__(self, path: Path, arrays: Columns, first_row: int) -> None:
        self.num_rows = len(arrays[0])
        self._path = path
        self._arrays = arrays
        self._first_row = first_row

    def where(self, row: int) -> str:
        """File and edge, counted from 0 as NumPy does, for messages."""
        return f"{self._path}, edge {self._first_row + row}"

    def numbers(
        self, columns: Sequence[int], dtype: DTypeLike, *, missing: bool = False, hint: str = ""
    ) -> Shaped[np.ndarray, "rows columns"]:
        """Some columns side by side."""
        return np.stack([self._arrays[column].astype(dtype) for column in columns], axis=1)

    def strings(self, columns: Sequence[int]) -> list[str]:
        """The numbers in decimal, row by row in one list."""
        rows = np.stack([self._arrays[column] for column in columns], axis=1)
        return list(map(str, rows.reshape(-1).tolist()))

    def fields(self, columns: Sequence[int]) -> Fields:
        """The numbers in decimal, row by row."""
        return Fields.of(self.strings(columns))


class ArrayTable:
    """A `.npy` with shape (2, edges) or (edges, 2), or an `.npz` with `edge_index` or CSR arrays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: tuple[str, ...] | None = ("source", "target")
        self.head: list[list[str]] = []
        self.num_nodes: int | None = None
        """As CSR arrays or `num_nodes` in the file say."""
        self._relation: NpzMember | None = None
        if path.suffix.lower() == ".npy":
            self._pairs, self._num_rows = _npy_pairs(path)
        else:
            self._open_npz(npz_names(path))
        self.num_columns = len(self.columns)

    def blocks(self, columns: Sequence[int] | None = None, *, words: bool = False) -> Iterator[ArrayBlock]:
        """All edges."""
        size = WORD_BLOCK_ROWS if words else BLOCK_ROWS
        first_row = 0
        pairs = _even(self._pairs(), size)
        relation = _even(((rows,) for rows in self._relation.rows()), size) if self._relation else None
        for block in pairs:
            arrays = block if relation is None else block + next(relation)
            yield ArrayBlock(self.path, arrays, first_row)
            first_row += len(arrays[0])

    def width(self, columns: Sequence[int]) -> int:
        """How many numbers some columns hold in each row."""
        return len(columns)

    def num_rows(self) -> int:
        """As the arrays' shapes say."""
        return self._num_rows

    def estimate_rows(self) -> int:
        """Exact."""
        return self._num_rows

    def _open_npz(self, members: set[str]) -> None:
        if "edge_index" in members:
            index = NpzMember(self.path, "edge_index")
            _check(index, f"{self.path}, member edge_index", pair=True)
            self._pairs = index.pairs
            self._num_rows = index.shape[1] if index.shape[0] == 2 else index.shape[0]
        elif {"indptr", "indices"} <= members:
            indices = NpzMember(self.path, "indices")
            _check(indices, f"{self.path}, member indices")
            self._num_rows = len(indices)
            indptr = _indptr(self.path, self._num_rows)
            self._pairs = lambda: _csr_pairs(indptr, indices)
            self.num_nodes = len(indptr) - 1
        else:
            raise InputError(
                f"{self.path} has no edges; it must hold edge_index, or indptr and indices. "
                f"It has: {', '.join(sorted(members)) or 'nothing'}."
            )
        if "relation" in members:
            self._relation = NpzMember(self.path, "relation")
            _check(self._relation, f"{self.path}, member relation")
            if len(self._relation) != self._num_rows:
                raise InputError(
                    f"{self.path} has {self._num_rows} edges, but {len(self._relation)} values of relation. "
                    "Give each edge one."
                )
            self.columns = ("source", "target", "relation")
        if "num_nodes" in members:
            count = NpzMember(self.path, "num_nodes").read()
            if count.size != 1 or count.dtype.kind not in "iu":
                raise InputError(f"{self.path}, member num_nodes must be one whole number, got {count}.")
            self.num_nodes = checks.num_nodes(count.item())


def _check(array: np.ndarray | NpzMember, what: str, *, pair: bool = False) -> None:
    if array.dtype.kind not in "iu":
        raise InputError(f"{what} must hold whole numbers, got {array.dtype}. Convert it to int64.")
    if pair and (len(array.shape) != 2 or 2 not in array.shape):
        raise InputError(
            f"{what} must have the shape (2, edges) or (edges, 2), got {array.shape}. "
            "Stack sources and targets."
        )
    if not pair and len(array.shape) != 1:
        raise InputError(f"{what} must have one dimension, got the shape {array.shape}. Flatten it.")


def _npy_pairs(path: Path) -> tuple[Callable[[], Iterator[Columns]], int]:
    mapped = open_npy(path)
    _check(mapped, str(path), pair=True)
    ends = mapped if mapped.shape[0] == 2 else mapped.T
    return lambda: iter([(ends[0], ends[1])]), ends.shape[1]


def _indptr(path: Path, num_edges: int) -> np.ndarray:
    member = NpzMember(path, "indptr")
    _check(member, f"{path}, member indptr")
    indptr = member.read().astype(np.int64)
    if not len(indptr) or indptr[0] or indptr[-1] != num_edges or (np.diff(indptr) < 0).any():
        raise InputError(
            f"{path}: indptr must ascend from 0 to {num_edges}, the length of indices. Save both again."
        )
    return indptr


def _csr_pairs(indptr: np.ndarray, indices: NpzMember) -> Iterator[Columns]:
    first = 0
    for target in indices.rows():
        last = first + len(target)
        row = int(np.searchsorted(indptr, first, side="right")) - 1
        stop = int(np.searchsorted(indptr, last))
        lengths = np.diff(np.clip(indptr[row : stop + 1], first, last))
        yield np.repeat(np.arange(row, stop), lengths), target
        first = last


def _even(blocks: Iterator[Columns], size: int) -> Iterator[Columns]:
    """The same columns in blocks of `size` rows, but for the last one."""
    held: Columns = ()
    for block in blocks:
        joined = tuple(map(np.concatenate, zip(held, block, strict=True))) if held else block
        count = len(joined[0])
        for start in range(0, count - size + 1, size):
            yield tuple(column[start : start + size] for column in joined)
        held = tuple(column[count - count % size :] for column in joined) if count % size else ()
    if held:
        yield held
