"""A graph as it lies in raw files: a description whose parts are read in chunks, never whole.

Every dataset reader returns a `GraphSource`, and every graph is built from one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

Split = ArrayLike | dict[str, ArrayLike]


class EdgeChunk(NamedTuple):
    """Some edges, source[e] -> target[e]; `relation[e]` is the number of the edge's relation, from 0."""

    source: np.ndarray
    target: np.ndarray
    relation: np.ndarray | None = None


class Topology(NamedTuple):
    """The finished adjacency, for features that are computed from it (means over neighbors)."""

    indptr: np.ndarray
    indices: np.ndarray
    written: Callable[[], np.ndarray]
    """The feature rows yielded so far, mapped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureSource:
    """Feature rows in node order, in blocks of any size."""

    dim: int
    """Number of columns."""
    dtype: DTypeLike
    """float16 or float32, as it will be stored."""
    blocks: Callable[[Topology], Iterable[np.ndarray | Callable[[], np.ndarray]]]
    """Yields the rows; called once, after the adjacency is built. A block may be a function that makes it."""

    @classmethod
    def of(cls, array: np.ndarray) -> "FeatureSource":
        """All rows of an array, in memory or mapped."""
        return cls(dim=array.shape[1], dtype=stored_dtype(array.dtype), blocks=lambda topology: [array])


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphSource:
    """Where the parts of a graph come from."""

    name: str
    """What `Graph.name` will be."""
    edges: Callable[[], Iterable[EdgeChunk | Callable[[], EdgeChunk]]]
    """Yields the edges in chunks of any size; may be called more than once. A chunk may be a function that
    makes it: several threads call these at once, which is how a generated graph uses all cores."""
    num_nodes: int | None = None
    """None takes the largest id + 1, for which the edges are read once more."""
    num_edges: int | None = None
    """Number of edges `edges` will yield, exact or estimated: for progress bars and estimates only."""
    features: FeatureSource | None = None
    labels: ArrayLike | Callable[[], ArrayLike] | None = None
    """One class number per node, -1 or NaN where there is none; or a function that makes them when needed."""
    split: Split | Callable[[], Split] | None = None
    """0, 1, 2, -1 per node, or the node ids (or a mask) of "train", "valid" and "test"; or a function."""
    num_classes: int | None = None
    """None takes the largest label + 1."""
    class_names: Sequence[str] | None = None
    node_names: Sequence[str] | None = None
    node_type: ArrayLike | Callable[[], ArrayLike] | None = None
    """The number of each node's type, from 0 to 254; or a function that makes them when needed."""
    node_type_names: Sequence[str] | None = None
    """None names them "type 0", "type 1", ... up to the largest number."""
    relation_names: Sequence[str] | None = None
    """Given if the edges carry relations; without relations and with `keep_direction`, leave it out."""
    keep_direction: bool = False
    """Keep which way each edge pointed, in `Graph.relation`."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Where it came from: goes into the store's header."""


def stored_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """float16 stays, every other number becomes float32."""
    return np.dtype(np.float16) if np.dtype(dtype) == np.float16 else np.dtype(np.float32)
