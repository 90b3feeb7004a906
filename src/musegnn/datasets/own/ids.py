"""Node ids as files give them -> node numbers."""

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int64

from musegnn.datasets.raw.fields import Fields
from musegnn.datasets.raw.name_index import NameIndex
from musegnn.datasets.raw.table import Block, Table
from musegnn.errors import InputError
from musegnn.graph.names import Names
from musegnn.ops import MAX_NODES


@runtime_checkable
class Ids(Protocol):
    """Finds the numbers of nodes."""

    def of(self, block: Block, columns: Sequence[int]) -> Int64[np.ndarray, "rows columns"]:
        """The nodes in some columns of a block."""
        ...

    def show(self, node: int) -> str:
        """A node as its user calls it."""
        ...


class NumberIds:
    """Ids that are node numbers, 0 to `num_nodes` - 1 where that is known."""

    def __init__(self, num_nodes: int | None) -> None:
        self.num_nodes = num_nodes

    def of(self, block: Block, columns: Sequence[int]) -> Int64[np.ndarray, "rows columns"]:
        """The nodes in some columns, once they are in range."""
        hint = "Ids are whole numbers here, as in the first edge; pass named=True if they are names."
        nodes = block.numbers(columns, np.int64, hint=hint)
        limit = MAX_NODES - 1 if self.num_nodes is None else self.num_nodes
        if nodes.size and not 0 <= nodes.min() <= nodes.max() < limit:
            row, i = np.argwhere((nodes < 0) | (nodes >= limit))[0]
            count = "" if self.num_nodes is None else f", but the graph has {self.num_nodes} nodes"
            raise InputError(
                f"{block.where(int(row))}: node id {nodes[row, i]}{count}; ids must lie in [0, {limit - 1}]. "
                "Number the nodes from 0, or pass named=True if the ids are names."
            )
        return nodes

    def show(self, node: int) -> str:
        """The number."""
        return str(node)


class NameIds:
    """Names, numbered in the order in which they are met until `close`."""

    def __init__(self) -> None:
        self._index = NameIndex()
        self._is_open = True

    def __len__(self) -> int:
        return len(self._index)

    @property
    def names(self) -> Names:
        """All names, in the order of their numbers."""
        return Names(self._index.text, self._index.offsets)

    def of(self, block: Block, columns: Sequence[int]) -> Int64[np.ndarray, "rows columns"]:
        """The nodes in some columns; new names get a number, or raise after `close`."""
        names = block.fields(columns)
        if not names.lengths.all():
            row = int(np.flatnonzero(names.lengths == 0)[0]) // len(columns)
            raise InputError(f"{block.where(row)}: a node without a name. Correct or remove that line.")
        nodes = self._index.numbers(names, add=self._is_open)
        if not self._is_open and nodes.min(initial=0) < 0:
            at = int(np.flatnonzero(nodes < 0)[0])
            raise InputError(
                f"{block.where(at // len(columns))}: node {names[at]!r} is not in the nodes table. "
                "Add it there, or leave the nodes table out."
            )
        return nodes.reshape(-1, len(columns))

    def has_any(self, names: Sequence[str]) -> bool:
        """Whether one of some names was met."""
        return bool((self._index.numbers(Fields.of(names), add=False) >= 0).any())

    def add(self, table: Table, key: int, *, unique: bool = False) -> None:
        """Number the names of a column; `unique` refuses a name that was met before."""
        for block in table.blocks([key], words=True):
            first = len(self)
            nodes = self.of(block, [key])[:, 0]
            # New names have consecutive numbers.
            is_old = nodes != np.arange(first, first + len(nodes))
            if unique and is_old.any():
                row = int(np.flatnonzero(is_old)[0])
                raise _listed_twice(block, row, self.show(int(nodes[row])))

    def close(self) -> None:
        """Take no new names any more."""
        self._is_open = False

    def show(self, node: int) -> str:
        """The name in quotes."""
        return repr(self.names[node])


def node_rows(
    table: Table, key: int | None, columns: Sequence[int], ids: Ids, num_nodes: int, *, words: bool = False
) -> Iterator[tuple[Int64[np.ndarray, " rows"], Block]]:
    """The blocks of a table and the node of each row; no node may be listed twice.

    Without a key the rows are the nodes in their order, and there must be one for each.
    """
    is_listed = np.zeros(num_nodes, dtype=bool)
    first = 0
    for block in table.blocks(columns, words=words):
        nodes = np.arange(first, first + block.num_rows) if key is None else ids.of(block, [key])[:, 0]
        first += block.num_rows
        if key is not None:
            _mark(is_listed, nodes, block, ids)
        elif first > num_nodes:
            break
        yield nodes, block
    if key is None and first != num_nodes:
        raise InputError(
            f"{table.path} has {table.num_rows()} rows, but the graph has {num_nodes} nodes. Give each node "
            "one row, or add a column id."
        )


def all_rows(
    table: Table, key: int, columns: Sequence[int], ids: Ids, num_nodes: int
) -> Iterator[tuple[Int64[np.ndarray, " rows"], Block]]:
    """As `node_rows`, for a table that must list every node."""
    is_missing = np.ones(num_nodes, dtype=bool)
    for nodes, block in node_rows(table, key, columns, ids, num_nodes):
        is_missing[nodes] = False
        yield nodes, block
    if is_missing.any():
        missing = ids.show(int(np.flatnonzero(is_missing)[0]))
        raise InputError(f"{table.path} has no row for node {missing}. Give each node exactly one row.")


def _mark(is_listed: np.ndarray, nodes: np.ndarray, block: Block, ids: Ids) -> None:
    order = np.argsort(nodes, kind="stable")
    is_repeat = is_listed[nodes]
    is_repeat[order[1:]] |= nodes[order[1:]] == nodes[order[:-1]]
    if is_repeat.any():
        row = int(np.flatnonzero(is_repeat)[0])
        raise _listed_twice(block, row, ids.show(int(nodes[row])))
    is_listed[nodes] = True


def _listed_twice(block: Block, row: int, node: str) -> InputError:
    return InputError(f"{block.where(row)}: node {node} is listed twice. Keep one row for each node.")
