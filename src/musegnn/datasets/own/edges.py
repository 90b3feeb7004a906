"""An edge list of any format: what its columns mean, one pass to look at it, then chunks of node numbers."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from musegnn.datasets.own.columns import RELATION, find, find_ends, is_edge_header, warn_unused
from musegnn.datasets.own.ids import Ids, NameIds
from musegnn.datasets.raw.array_table import ArrayTable
from musegnn.datasets.raw.table import Block, Table, open_table, suffix
from musegnn.datasets.raw.text import is_number, is_whole
from musegnn.errors import InputError
from musegnn.graph import EdgeChunk
from musegnn.graph.relation import MAX_RELATIONS
from musegnn.progress import progress

EDGE_WORDS = {"source", "target", "src", "dst", "id1", "id2", "node1", "node2"}
"""Half of a header: a line with one of these is hardly an edge."""
CHUNK_EDGES = 1 << 19
"""Small blocks of words are joined to chunks of so many edges: sorting them pays for each chunk."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """What one pass over the edges tells."""

    num_edges: int
    num_nodes: int
    """The largest node number + 1."""
    relation_names: list[str] | None


class EdgeList:
    """The edges of one file; `relations` names those that there may be, in their order."""

    def __init__(self, path: Path, relations: Sequence[str] | None = None) -> None:
        self.path, self.names = path, relations
        is_array = suffix(path) in (".npy", ".npz")
        self.table: Table = ArrayTable(path) if is_array else open_table(path, is_edge_header)
        source, target = self._find_ends()
        self._ends = sorted((source, target))
        self._is_swapped = source > target
        self.relation = find(self.table.columns, RELATION)
        self._columns = sorted(c for c in (source, target, self.relation) if c is not None)
        hint = " If the kind of the edges is among them, rename that column to relation."
        warn_unused(self.table, self._columns, hint * (self.relation is None))
        if relations is not None:
            self._check_names(relations)
        row = self.table.head[0] if self.table.head else None
        self._has_words = row is not None and self.relation is not None and not is_whole(row[self.relation])

    def has_names(self, *, named: bool) -> bool:
        """Whether ids are names: as said, or since those of the first edge are no whole numbers."""
        rows = [[row[end] for end in self._ends] for row in self.table.head]
        if not rows or all(map(is_whole, rows[0])):
            return named
        if self.table.columns is None and len(rows) > 1 and all(map(is_whole, rows[1])):
            raise InputError(
                f"{self.path} begins with {','.join(rows[0])!r}, and node numbers follow. If that is a "
                "header, write source,target instead; if it is an edge, put that header above it."
            )
        if self.table.columns is None and any(field.lower() in EDGE_WORDS for field in rows[0]):
            raise InputError(
                f"{self.path} begins with {','.join(rows[0])!r}, which looks like an unknown header. "
                "Write source,target instead; if it is an edge, put that header above it."
            )
        if not named and any(is_number(field) and not is_whole(field) for field in rows[0]):
            raise InputError(
                f"{self.path}: the first edge is {','.join(rows[0])!r}; ids must be whole numbers or names. "
                "Write them without a decimal point, or pass named=True."
            )
        return True

    def check_first_line(self, ids: NameIds, nodes: Path) -> None:
        """Refuse a first line of which the nodes table knows neither name: it is hardly an edge."""
        if self._may_be_header() and not ids.has_any([self.table.head[0][end] for end in self._ends]):
            raise InputError(
                f"{self._beginning()}, and neither is in {nodes}: is line 1 a header? Then write "
                "source,target instead; if it is an edge, add its nodes there, or leave the nodes table out."
            )

    def survey(self, ids: Ids) -> Survey:
        """Read all edges once, numbering new names on the way."""
        num_edges = num_nodes = 0
        relations: set[str] = set()
        is_unsure = isinstance(ids, NameIds) and self._may_be_header()
        known = len(ids) if isinstance(ids, NameIds) else 0
        first, num_met = np.zeros(2, dtype=np.int64), 0
        with progress("Collecting ids", self.table.estimate_rows()) as advance:
            for block in self._blocks(ids):
                nodes = ids.of(block, self._ends)
                num_nodes = max(num_nodes, 1 + int(nodes.max(initial=-1)))
                if is_unsure:
                    first = first if num_edges else nodes[0]
                    num_met += int(np.isin(nodes, first).sum())
                num_edges += len(nodes)
                if self.relation is not None:
                    relations.update(self._relations(block, self.relation))
                    self._check_count(relations)
                advance(len(nodes))
        if is_unsure and num_edges > 1 and num_met == 2 and first.min() >= known:
            warnings.warn(
                f"{self._beginning()}, names that occur nowhere else: is line 1 a header? It is read as an "
                "edge. If it is a header, write source,target instead; if not, put that above it.",
                stacklevel=2,
            )
        return Survey(num_edges=num_edges, num_nodes=num_nodes, relation_names=self._name(relations))

    def chunks(self, ids: Ids, relation_names: Sequence[str] | None) -> Iterator[EdgeChunk]:
        """All edges as node numbers."""
        numbers = {name: number for number, name in enumerate(relation_names or ())}
        held: list[EdgeChunk] = []
        for block in self._blocks(ids):
            held.append(self._chunk(block, ids, numbers))
            if sum(len(chunk.source) for chunk in held) >= CHUNK_EDGES:
                yield _joined(held)
                held = []
        if held:
            yield _joined(held)

    def _blocks(self, ids: Ids) -> Iterator[Block]:
        return self.table.blocks(self._columns, words=self._has_words or isinstance(ids, NameIds))

    def _chunk(self, block: Block, ids: Ids, relation_numbers: dict[str, int]) -> EdgeChunk:
        first, second = np.ascontiguousarray(ids.of(block, self._ends).T)
        source, target = (second, first) if self._is_swapped else (first, second)
        relation = None
        if self.relation is not None and self._has_words:
            words = block.strings([self.relation])
            relation = np.fromiter(map(relation_numbers.__getitem__, words), np.int64, count=len(words))
        elif self.relation is not None:
            relation = block.numbers([self.relation], np.int64)[:, 0]
        return EdgeChunk(source, target, relation)

    def _relations(self, block: Block, column: int) -> set[str]:
        """The relations of a block."""
        if self._has_words:
            words = block.strings([column])
            found = set(words)
            if "" in found:
                raise InputError(f"{block.where(words.index(''))}: no relation. Give each edge one.")
            if self.names is not None and (unknown := found.difference(self.names)):
                row = min(map(words.index, unknown))
                raise InputError(
                    f"{block.where(row)}: relation {words[row]!r}; relations (--relations) has "
                    f"{', '.join(self.names)}. Add it there, or mend the line."
                )
            return found
        hint = "The first relation is a number; use numbers throughout, or words throughout."
        numbers = block.numbers([column], np.int64, hint=hint)[:, 0]
        most = MAX_RELATIONS if self.names is None else len(self.names)
        is_bad = (numbers < 0) | (numbers >= most)
        if is_bad.any():
            row = int(np.flatnonzero(is_bad)[0])
            raise InputError(
                f"{block.where(row)}: relation {numbers[row]}; it must lie in [0, {most - 1}]. "
                + (
                    "Number the relations from 0, or merge some."
                    if self.names is None
                    else "Name it in relations (--relations), or mend the line."
                )
            )
        return set(map(str, np.flatnonzero(np.bincount(numbers)).tolist()))

    def _check_names(self, names: Sequence[str]) -> None:
        if self.relation is None:
            raise InputError(
                f"{self.path} has no column relation, but relations (--relations) names some. "
                "Leave them out, or name the column in the first line."
            )
        if "" in names or len(set(names)) < len(names) or len(names) > MAX_RELATIONS:
            raise InputError(
                f"relations (--relations) must be 1 to {MAX_RELATIONS} different names, as in build,runtime; "
                f"got {','.join(names)!r}. Name each once."
            )

    def _check_count(self, relations: set[str]) -> None:
        if len(relations) > MAX_RELATIONS:
            shown = ", ".join(sorted(relations)[:3])
            raise InputError(
                f"{self.path} has more than {MAX_RELATIONS} relations ({shown}, ...). Merge some, or rename "
                "that column if it is no relation."
            )

    def _name(self, relations: set[str]) -> list[str] | None:
        if self.relation is None:
            return None
        if self.names is not None:
            return list(self.names)
        if self._has_words:
            return sorted(relations)
        return [f"relation {r}" for r in range(1 + max(map(int, relations), default=0))]

    def _may_be_header(self) -> bool:
        """Without a header that is known, a first line of words may be one."""
        return self.table.columns is None and not any(map(is_number, self.table.head[0]))

    def _beginning(self) -> str:
        return f"{self.path} begins with {','.join(self.table.head[0])!r}"

    def _find_ends(self) -> tuple[int, int]:
        names, count = self.table.columns, self.table.num_columns
        ends = find_ends(names) if names is not None else None
        if ends is not None:
            return ends
        if count < 2:
            raise InputError(
                f"{self.path} has one column. An edge list needs two ids in each line, separated by a comma, "
                "a tab, a semicolon or blanks."
            )
        if count > 2 and names is None:
            raise InputError(
                f"{self.path} has {count} columns and no header that is known, but an edge has two ends. "
                "Name the columns in the first line: source,target,relation."
            )
        return 0, 1


def _joined(chunks: list[EdgeChunk]) -> EdgeChunk:
    if len(chunks) == 1:
        return chunks[0]
    source, target = (np.concatenate([chunk[end] for chunk in chunks]) for end in (0, 1))
    relation = [chunk.relation for chunk in chunks if chunk.relation is not None]
    return EdgeChunk(source, target, np.concatenate(relation) if relation else None)
