"""Relation and direction of an edge, as one bit set per stored entry.

Entry (i, j) of the symmetric adjacency has

    bit 2r      set if the input had the edge i -> j in relation r
    bit 2r + 1  set if the input had the edge j -> i in relation r

so both ends see both directions, nothing is lost when parallel edges are merged, and a graph without
relations that keeps its directions is the case r = 0.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Integer, UInt, UInt32

from musegnn import ops
from musegnn.errors import InputError

if TYPE_CHECKING:
    from musegnn.graph.graph import Graph

MAX_RELATIONS = 16
"""Two bits each, in 32."""


def encode(
    relation: Integer[np.ndarray, " edges"], num_relations: int = MAX_RELATIONS
) -> UInt32[np.ndarray, " edges"]:
    """Relation numbers -> the bit of the edge's own direction, 1 << 2r."""
    check(relation, num_relations)
    return np.uint32(1) << (2 * relation.astype(np.uint32))


def check(relation: Integer[np.ndarray, " edges"], num_relations: int = MAX_RELATIONS) -> None:
    """Every number names a relation."""
    if len(relation) and not 0 <= relation.min() <= relation.max() < num_relations:
        bad = relation.min() if relation.min() < 0 else relation.max()
        raise InputError(
            f"relation has the number {bad}; it must lie in [0, {num_relations - 1}]. "
            "Number the relations from 0."
        )


NO_RELATIONS = "all edges"
"""What stands for the relation of a graph that has none."""


def names_of_ways(relation_names: Sequence[str]) -> list[str]:
    """Of each bit: a relation along its direction, then against it."""
    return [f"{name} {way}" for name in relation_names for way in ("forward", "backward")]


def has_relation(
    code: Integer[np.ndarray, " entries"], relation: int, *, reverse: bool = False
) -> Bool[np.ndarray, " entries"]:
    """Where an entry (i, j) is an edge i -> j of a relation; with `reverse`, an edge j -> i."""
    bit = code.dtype.type(1 << (2 * relation + reverse))
    return np.asarray((code & bit) != 0)


def code_dtype(num_relations: int) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type with two bits for each relation."""
    return np.dtype(np.min_scalar_type((1 << 2 * num_relations) - 1))


def codes_of(
    graph: "Graph",
    node_ids: Integer[np.ndarray, " nodes"],
    indptr: Integer[np.ndarray, " nodes_plus_1"],
    indices: Integer[np.ndarray, " entries"],
) -> UInt[np.ndarray, " entries"] | None:
    """The bit set of each entry of a subgraph, from that of the graph; None where the graph has none."""
    if graph.relation is None:
        return None
    return ops.look_up_codes(graph.indptr, graph.indices, graph.relation, node_ids, indptr, indices)
