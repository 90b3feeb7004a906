"""NeighborSampling: only the sampled edges (the paper's ablation, and what peers train with)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Integer

from musegnn import ops
from musegnn.graph import Graph
from musegnn.sampling.base import SeededSampler, check_fanouts, key_of


@dataclass(frozen=True)
class NeighborSampling(SeededSampler):
    """The nodes of `ShadowKHop` with the edges along which they were drawn, and no others.

    An edge drawn from either end is kept both ways: without a symmetric matrix there is no energy.
    """

    fanouts: Sequence[int] = field(default_factory=lambda: [10, 5])

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", check_fanouts(self.fanouts, "NeighborSampling"))

    def draw(
        self, graph: Graph, seeds: Integer[np.ndarray, " seeds"], rng: np.random.Generator
    ) -> Integer[np.ndarray, "2 edges"]:
        """The pairs (node, neighbor) drawn at all hops; some repeat."""
        nodes, edges = seeds, []
        for fanout in self.fanouts:
            key = key_of(rng)
            edges.append(ops.sample_neighbors(graph.indptr, graph.indices, nodes, fanout, key))
            nodes = ops.reach(graph.indptr, graph.indices, nodes, fanout, key)
        return np.concatenate(edges, axis=1)
