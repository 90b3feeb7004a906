"""The record of one sampled subgraph; it travels from the sampler to the model."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer, UInt

from musegnn.errors import InputError

Laplacian = Literal["normalized", "combinatorial"]


class Spectrum(NamedTuple):
    """What is known of the largest eigenvalue of a Laplacian: theta <= lmax <= bound."""

    theta: float
    """A Ritz value."""
    bound: float
    """Rigorous."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False, weakref_slot=True)
class Sample:
    """A subgraph s of a graph: some of its nodes, edges among them, and the seeds, for which it was drawn.

    The neighbors of local node i are `indices[indptr[i] : indptr[i + 1]]`, ascending; the matrix is symmetric
    and has no loops. The seeds are the local nodes 0, ..., num_seeds - 1; their ids ascend, and so do those
    of the nodes behind them.
    """

    node_ids: Integer[np.ndarray, " nodes"]
    """Local node -> its id in the graph; int32 below 2**31 nodes."""
    indptr: Int64[np.ndarray, " nodes_plus_1"]
    indices: Int32[np.ndarray, " entries"]
    num_seeds: int
    bounds: Float64[np.ndarray, "4"]
    """theta, bound of the normalized Laplacian, then of the combinatorial (`musegnn.ops.spectral_bounds`)."""
    relation: UInt[np.ndarray, " entries"] | None = None
    """Relation and direction of each entry, as bits (`musegnn.graph.relation`), where an energy asks."""

    @property
    def num_nodes(self) -> int:
        """n_s."""
        return len(self.node_ids)

    @property
    def num_entries(self) -> int:
        """Number of stored entries: each undirected edge counts twice."""
        return len(self.indices)

    @property
    def seeds(self) -> Integer[np.ndarray, " seeds"]:
        """The ids of the seeds."""
        return self.node_ids[: self.num_seeds]

    def edge_index(self) -> Int64[np.ndarray, "2 entries"]:
        """Rows and columns of all entries, as PyG takes them; a copy."""
        rows = np.repeat(np.arange(self.num_nodes, dtype=np.int64), np.diff(self.indptr))
        return np.stack([rows, self.indices.astype(np.int64)])

    def spectrum(self, laplacian: Laplacian) -> Spectrum:
        """Bounds on the largest eigenvalue of L_s, from below and from above."""
        if laplacian not in ("normalized", "combinatorial"):
            raise InputError(f"laplacian must be 'normalized' or 'combinatorial', got {laplacian!r}.")
        first = 0 if laplacian == "normalized" else 2
        return Spectrum(float(self.bounds[first]), float(self.bounds[first + 1]))

    def __repr__(self) -> str:
        return (
            f"Sample(num_nodes={self.num_nodes}, num_entries={self.num_entries}, num_seeds={self.num_seeds})"
        )
