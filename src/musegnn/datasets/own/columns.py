"""What the columns of a user's table mean: by its header, or by what its first row looks like."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from musegnn.datasets.raw.table import Table
from musegnn.datasets.raw.text import is_number
from musegnn.errors import InputError

ENDS = (
    ("source", "target"),
    ("src", "dst"),
    ("from", "to"),
    ("u", "v"),
    ("head", "tail"),
    ("id1", "id2"),
    ("node1", "node2"),
)
RELATION = ("relation", "type", "edge_type", "rel")
ID = ("id", "node", "node_id", "name")
LABEL = ("label", "labels", "class")
SPLIT = ("split",)
TYPE = ("type", "node_type")


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column of a table that has a row for each node, or for some of them."""

    table: Table
    key: int | None
    """The column of the node ids; None if the rows are in node order."""
    number: int

    @property
    def columns(self) -> list[int]:
        """All that is read."""
        return [self.number] if self.key is None else sorted((self.key, self.number))


def find(names: Sequence[str] | None, wanted: Sequence[str]) -> int | None:
    """The first column that has one of some names."""
    return next((i for i, name in enumerate(names or ()) if name in wanted), None)


def find_ends(names: Sequence[str]) -> tuple[int, int] | None:
    """The columns of source and target."""
    for source, target in ENDS:
        if source in names and target in names:
            return names.index(source), names.index(target)
    return None


def is_edge_header(fields: list[str]) -> bool:
    """Whether the first line of an edge list names both ends."""
    return find_ends(fields) is not None


def is_node_header(fields: list[str]) -> bool:
    """Whether the first line of a nodes, labels or split table names a column."""
    # "type" alone is more likely a node or a label.
    has_types = find(fields, ID) is not None and find(fields, TYPE) is not None
    has_values = find(fields, LABEL) is not None or find(fields, SPLIT) is not None
    return fields[0] in ID or has_values or has_types


def is_feature_header(fields: list[str]) -> bool:
    """Whether the first line of a feature table names columns: no number in it, or numbers behind an id."""
    if fields[0] in ID:
        return True
    # pandas leaves its index without a name and numbers the rest; other rows may lack their first number.
    if not fields[0] and fields[1:] == [str(i) for i in range(len(fields) - 1)]:
        return True
    return any(fields) and not any(is_number(field) for field in fields)


def find_key(table: Table, *values: int | None) -> int | None:
    """The column of node ids: by its name, or the first one if it holds words and is none of `values`."""
    named = find(table.columns, ID)
    if named is not None:
        return named
    # The index of pandas has no name.
    if table.columns is not None and not table.columns[0]:
        return 0
    is_free = table.num_columns > 1 and 0 not in values
    return 0 if is_free and not is_number(table.head[0][0]) else None


def value_column(table: Table, names: Sequence[str]) -> Column:
    """The labels or the split of a table of its own."""
    what = names[0]
    number = find(table.columns, names)
    if table.num_columns == 1:
        return Column(table=table, key=None, number=0)
    if number is None and table.num_columns == 2:
        number = 1
    key = find_key(table, number)
    if number is None or key is None or key == number:
        raise InputError(
            f"{table.path} has {_described(table)}, so it is not clear which node a row is about. "
            f"Begin it with the header id,{what}, or leave one column with a {what} for each node."
        )
    warn_unused(table, [key, number])
    return Column(table=table, key=key, number=number)


def warn_unused(table: Table, used: Sequence[int | None], hint: str = "") -> None:
    """Say which named columns are left out, and what to do if one of them is meant to be read."""
    unused = [name or "(no name)" for i, name in enumerate(table.columns or ()) if i not in used]
    if unused:
        warnings.warn(f"{table.path}: not used: {', '.join(unused)}.{hint}", stacklevel=2)


def _described(table: Table) -> str:
    if table.columns is None:
        return f"{table.num_columns} columns and no header"
    return f"the columns {', '.join(table.columns)}"
