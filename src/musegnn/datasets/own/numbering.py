"""Which nodes a user's files speak of, and how many: names in order of appearance, or numbers."""

from dataclasses import dataclass

import numpy as np

from musegnn.datasets.own.columns import Column
from musegnn.datasets.own.edges import Survey
from musegnn.datasets.own.features import FeatureTable
from musegnn.datasets.own.ids import NameIds, NumberIds, all_rows
from musegnn.datasets.own.parts import NodeTable, Parts
from musegnn.errors import InputError
from musegnn.graph.names import Names


@dataclass(frozen=True, kw_only=True, slots=True)
class Numbering:
    """The nodes of a graph."""

    ids: NameIds | NumberIds
    num_nodes: int | None
    """None if only the edges know it and nothing else needs to."""
    survey: Survey | None
    """None if the edges need not be read beforehand."""

    @property
    def names(self) -> Names | None:
        """Of the nodes, if they have any."""
        return self.ids.names if isinstance(self.ids, NameIds) else None

    def count(self) -> int:
        """Number of nodes, where a table with a row for each of them was given."""
        assert self.num_nodes is not None
        return self.num_nodes


def number_names(parts: Parts, num_nodes: int | None) -> Numbering:
    """Number the names of the nodes table, or of every table in turn and then of the edges."""
    ids = NameIds()
    if parts.nodes is not None:
        ids.add(parts.nodes.table, parts.nodes.key, unique=True)
        ids.close()
        parts.edges.check_first_line(ids, parts.nodes.table.path)
        survey = parts.edges.survey(ids) if parts.edges.relation is not None else None
    else:
        survey = _collect(parts, ids)
    if num_nodes not in (None, len(ids)):
        raise InputError(f"num_nodes is {num_nodes}, but the files name {len(ids)} nodes. Leave it out.")
    return Numbering(ids=ids, num_nodes=len(ids), survey=survey)


def _collect(parts: Parts, ids: NameIds) -> Survey:
    tables = parts.tables()
    if not any(part.key is not None for part in tables) and parts.has_plain_rows():
        raise InputError(
            f"{parts.edges.path} has names, but features, labels and split do not say whose each row is. "
            "Give one of them a column id, or pass nodes, a file with the names in the order of the rows."
        )
    num_featured = None
    for part in tables:
        if part.key is not None:
            is_first = isinstance(part, FeatureTable)
            ids.add(part.table, part.key, unique=is_first)
            num_featured = len(ids) if is_first else num_featured
    survey = parts.edges.survey(ids)
    ids.close()
    if num_featured is not None and len(ids) > num_featured:
        raise InputError(
            f"{tables[0].table.path} has no row for node {ids.show(num_featured)}. "
            "Give each node exactly one row."
        )
    return survey


def check_numbers(parts: Parts, num_nodes: int | None) -> Numbering:
    """Find out how many nodes there are, reading the edges only where nothing else tells."""
    count = parts.num_nodes() if num_nodes is None else num_nodes
    keyed = [part for part in parts.tables() if isinstance(part, Column) and part.key is not None]
    survey = None
    if parts.edges.relation is not None or (count is None and keyed):
        survey = parts.edges.survey(NumberIds(count))
    if count is None and survey is not None:
        count = max(survey.num_nodes, *map(_num_listed, keyed), 1)
    ids = NumberIds(count)
    if parts.nodes is not None and count is not None:
        _check_listed(parts.nodes, ids, count, has_plain_rows=parts.has_plain_rows())
    return Numbering(ids=ids, num_nodes=count, survey=survey)


def _check_listed(nodes: NodeTable, ids: NumberIds, num_nodes: int, *, has_plain_rows: bool) -> None:
    """Every number is listed once, and in order if rows without ids could be meant in the table's order."""
    first = 0
    for numbers, block in all_rows(nodes.table, nodes.key, [nodes.key], ids, num_nodes):
        is_moved = numbers != np.arange(first, first + len(numbers))
        if has_plain_rows and is_moved.any():
            row = int(np.flatnonzero(is_moved)[0])
            raise InputError(
                f"{block.where(row)}: node {numbers[row]} is not in its place, and other files have rows "
                "without ids, so it is not clear whose they are. Sort the nodes by id, or pass named=True."
            )
        first += len(numbers)


def _num_listed(column: Column) -> int:
    """The largest id of a table + 1."""
    assert column.key is not None
    ids, key = NumberIds(None), column.key
    return 1 + max(int(ids.of(block, [key]).max(initial=-1)) for block in column.table.blocks([key]))
