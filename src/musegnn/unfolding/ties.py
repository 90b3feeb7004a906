"""The edges of a subgraph by relation and direction, and sums along them, differentiable."""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from jaxtyping import Int32, Int64

from musegnn.errors import InputError
from musegnn.graph.relation import has_relation
from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.propagate import summed


class Csr(NamedTuple):
    """Rows of a matrix of zeros and ones."""

    indptr: Int64[np.ndarray, " nodes_plus_1"]
    indices: Int32[np.ndarray, " entries"]

    @property
    def degree(self) -> Int64[np.ndarray, " nodes"]:
        """Entries of each row."""
        return np.diff(self.indptr)


class Tie(NamedTuple):
    """A relation: A with A_ij = 1 for each edge i -> j, and its transpose."""

    A: Csr
    At: Csr

    @property
    def back(self) -> "Tie":
        """The same edges, the other way."""
        return Tie(self.At, self.A)


_ties: "WeakKeyDictionary[Sample, dict[int, list[Tie]]]" = WeakKeyDictionary()


def ties(sample: Sample, num_relations: int) -> list[Tie]:
    """The relations of a subgraph; of 0 there is one all the same, each edge of it both ways."""
    found = _ties.setdefault(sample, {})
    if num_relations not in found:
        found[num_relations] = _split(sample, num_relations)
    return found[num_relations]


def _split(sample: Sample, num_relations: int) -> list[Tie]:
    if not num_relations:
        whole = Csr(sample.indptr, sample.indices)
        return [Tie(whole, whole)]
    codes = sample.relation
    if codes is None:
        raise InputError(
            f"The energy has {num_relations} relations, but this subgraph does not tell them. Take a graph "
            "with relations, whole or through musegnn.train, or an energy with num_relations=0."
        )
    if len(codes) and int(codes.max()) >> 2 * num_relations:
        raise InputError(
            f"The energy has {num_relations} relations, but the subgraph has more. "
            "Make the energy with as many as the graph has."
        )
    rows = np.repeat(np.arange(sample.num_nodes), np.diff(sample.indptr))

    def part(relation: int, *, reverse: bool) -> Csr:
        kept = has_relation(codes, relation, reverse=reverse)
        counts = np.bincount(rows[kept], minlength=sample.num_nodes)
        return Csr(np.concatenate([[0], np.cumsum(counts)]), np.ascontiguousarray(sample.indices[kept]))

    return [Tie(part(r, reverse=False), part(r, reverse=True)) for r in range(num_relations)]


def along(tie: Tie, X: Rows) -> Rows:
    """A X: row i is the sum of the rows j with an edge i -> j."""
    return summed(tie.A, tie.At, X)
