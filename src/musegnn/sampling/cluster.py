"""Cluster: the graph cut into parts by METIS (the batches of Cluster-GCN, one part each)."""

import threading
from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from musegnn import extras
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.base import FreeSampler, check_positive

_SEED = 0
"""METIS' own: the parts are a function of the graph and of their number alone."""

# One for all objects: METIS draws from the random numbers of the C library, which a process has once.
_lock = threading.Lock()


@dataclass(frozen=True)
class Cluster(FreeSampler):
    """`parts` samples: the parts of a partition with few edges between them, each with all edges inside.

        V = V_1 + ... + V_parts, of about equal sizes,   minimize |{(u, v) in E: u in V_i, v in V_j, i != j}|

    METIS finds a partition by multilevel heuristics, once for each graph, when the first sample is drawn; the
    object keeps it, 4 bytes a node (8 above 2**31 nodes). Nothing is random, so all seeds give the same
    parts; another build of METIS or another C library may cut differently. A part may be empty.

    The whole graph goes into memory here, and other threads wait until METIS is done. Measured with 64-bit
    indices (pymetis 2025.2): about 100 bytes a node, and 50 (communities) to 140 (a random graph) bytes an
    entry, of which 8 are a copy of `indices` and the rest METIS' weights and coarser graphs.
    """

    parts: int = 100

    def __post_init__(self) -> None:
        # These are no fields: `parts` is the only setting.
        object.__setattr__(self, "num_samples", check_positive(self.parts, "parts of Cluster"))
        object.__setattr__(self, "_kept", {})

    def draw(self, graph: Graph, index: int, rng: np.random.Generator) -> Integer[np.ndarray, " nodes"]:
        """The nodes of part `index`, ascending."""
        order, bounds = self._partition(graph)
        return order[bounds[index] : bounds[index + 1]]

    def _partition(self, graph: Graph) -> tuple[np.ndarray, np.ndarray]:
        """All nodes, those of each part together, and where each part begins."""
        kept: dict[str, tuple[np.ndarray, np.ndarray]] = vars(self)["_kept"]
        digest = graph.digest
        if digest not in kept:
            with _lock:
                # Another thread may have been first.
                if digest not in kept:
                    kept[digest] = _partition(graph, self.parts)
        return kept[digest]


def _partition(graph: Graph, parts: int) -> tuple[np.ndarray, np.ndarray]:
    if parts > graph.num_nodes:
        raise InputError(
            f"parts of Cluster must be at most the number of nodes, {graph.num_nodes} in {graph.name}; "
            f"got {parts}. Ask for fewer parts."
        )
    part_of = _metis(graph, parts) if parts > 1 else np.zeros(graph.num_nodes, dtype=np.int64)
    order = np.argsort(part_of, kind="stable").astype(graph.indices.dtype)
    # Draws are views of this one.
    order.flags.writeable = False
    return order, np.concatenate([[0], np.cumsum(np.bincount(part_of, minlength=parts))])


def _metis(graph: Graph, parts: int) -> Integer[np.ndarray, " nodes"]:
    """Node -> part."""
    pymetis = extras.require("pymetis", "The sampler Cluster")
    dtype = pymetis.zero_copy_dtype()
    size, limit = max(graph.num_nodes, graph.num_edges), np.iinfo(dtype).max
    if size > limit:
        raise InputError(
            f"{graph.name} is too large for METIS: it has {graph.num_nodes} nodes and {graph.num_edges} "
            f"entries, and this pymetis has {8 * dtype.itemsize}-bit indices, which end at {limit}. "
            "Install one with wider indices, or take another sampler."
        )
    adjacency = pymetis.CSRAdjacency(
        graph.indptr.astype(dtype, copy=False), graph.indices.astype(dtype, copy=False)
    )
    partition = pymetis.part_graph(parts, adjacency, options=pymetis.Options(seed=_SEED))
    return np.asarray(partition.vertex_part).astype(np.int64)
