"""The edges of a subgraph by relation and direction."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

from musegnn import ops
from musegnn.errors import InputError
from musegnn.sampling.record import Sample
from musegnn.unfolding.resident import Matrix, degree_of

Columns = Float[Tensor, "nodes 1"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Csr:
    """Rows of a matrix of zeros and ones."""

    indptr: Int64[np.ndarray, " nodes_plus_1"]
    indices: Integer[np.ndarray, " entries"]


class Tie(NamedTuple):
    """A relation: A with A_ij = 1 for each edge i -> j, and its transpose."""

    A: Matrix
    At: Matrix

    @property
    def back(self) -> "Tie":
        """The same edges, the other way."""
        return Tie(self.At, self.A)

    def degrees(self, device: torch.device) -> tuple[Columns, Columns]:
        """Edges that leave each node, and those that arrive, in float64."""
        leaving, arriving = (degree_of(matrix, device).double()[:, None] for matrix in self)
        return leaving, arriving


_ties: "WeakKeyDictionary[Sample, dict[int, list[Tie]]]" = WeakKeyDictionary()
_columns: "WeakKeyDictionary[Matrix, dict[object, tuple[Columns, ...]]]" = WeakKeyDictionary()


def ties(sample: Sample, num_relations: int) -> list[Tie]:
    """The relations of a subgraph; of 0 there is one all the same, without a direction."""
    if not num_relations:
        return [Tie(sample, sample)]
    found = _ties.setdefault(sample, {})
    if num_relations not in found:
        found[num_relations] = split(sample, num_relations)
    return found[num_relations]


def split(sample: Sample, num_relations: int) -> list[Tie]:
    """The relations of a subgraph, one or more; not kept."""
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
    # A code has bits for the relations of the graph; of any further one there is no entry.
    none = Csr(np.zeros_like(sample.indptr), sample.indices[:0])
    ways = [
        Csr(*ops.split_by_bit(sample.indptr, sample.indices, codes, bit))
        if bit < 8 * codes.itemsize
        else none
        for bit in range(2 * num_relations)
    ]
    return [Tie(*ways[2 * r : 2 * r + 2]) for r in range(num_relations)]


def kept(
    tie: Tie, name: object, like: Tensor, make: Callable[[Columns, Columns], tuple[Columns, ...]]
) -> tuple[Columns, ...]:
    """What `make` makes of the degrees of a relation, once for each subgraph: every step asks for it.

    In float32 or more: rows in bfloat16 are added up with such weights.
    """
    made = _columns.setdefault(tie.A, {})
    exact = torch.promote_types(like.dtype, torch.float32)
    key = name, like.device, exact
    if key not in made:
        with torch.no_grad():
            made[key] = tuple(part.to(exact) for part in make(*tie.degrees(like.device)))
    return made[key]
