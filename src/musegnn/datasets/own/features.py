"""Feature rows: mapped, streamed, or gathered into node order."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from musegnn.datasets.own.columns import find_key, is_feature_header
from musegnn.datasets.own.ids import Ids, all_rows
from musegnn.datasets.raw.npy import NpzMember
from musegnn.datasets.raw.table import Table, open_table
from musegnn.errors import InputError
from musegnn.graph import FeatureSource
from musegnn.graph.source import stored_dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureTable:
    """A table of feature rows, in node order or with the id of each."""

    table: Table
    key: int | None
    columns: list[int]

    @classmethod
    def open(cls, path: Path) -> "FeatureTable":
        """Every column but that of the ids is a feature."""
        table = open_table(path, is_feature_header)
        key = find_key(table)
        columns = [column for column in range(table.num_columns) if column != key]
        if not columns:
            raise InputError(f"{path} has ids, but no features. Write the features of a node behind its id.")
        return cls(table=table, key=key, columns=columns)

    def stream(self) -> FeatureSource:
        """The rows as they come."""
        return self._source(
            lambda: (block.numbers(self.columns, np.float32) for block in self.table.blocks(self.columns))
        )

    def gather(self, ids: Ids, num_nodes: int) -> FeatureSource:
        """The rows by their ids, for which all of them are held in memory."""
        return self._source(lambda: self._gathered(ids, num_nodes))

    def _gathered(self, ids: Ids, num_nodes: int) -> Iterator[np.ndarray]:
        assert self.key is not None
        rows = np.empty((num_nodes, self.table.width(self.columns)), dtype=np.float32)
        for nodes, block in all_rows(self.table, self.key, sorted((self.key, *self.columns)), ids, num_nodes):
            rows[nodes] = block.numbers(self.columns, np.float32)
        yield rows

    def _source(self, blocks: Callable[[], Iterator[np.ndarray]]) -> FeatureSource:
        width = self.table.width(self.columns)
        return FeatureSource(dim=width, dtype=np.float32, blocks=lambda topology: blocks())


def array_features(array: np.ndarray | NpzMember, what: str) -> FeatureSource:
    """The rows of a mapped array, or of a member of an `.npz` as it is unpacked."""
    if len(array.shape) != 2 or array.dtype.kind not in "fiu":
        raise InputError(
            f"{what} must be a (nodes, dim) matrix of numbers, got the shape {array.shape} of {array.dtype}. "
            "Give each node one row."
        )
    if isinstance(array, np.ndarray):
        return FeatureSource.of(array)
    return FeatureSource(
        dim=array.shape[1], dtype=stored_dtype(array.dtype), blocks=lambda topology: array.rows()
    )
