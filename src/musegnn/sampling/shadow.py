"""ShadowKHop: the paper's operator."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Integer

from musegnn import ops
from musegnn.graph import Graph
from musegnn.sampling.base import SeededSampler, check_fanouts, key_of


@dataclass(frozen=True)
class ShadowKHop(SeededSampler):
    """One subgraph for a batch of seeds: sampled neighbors, hop by hop, then all edges among those reached.

        V_0 = seeds,   V_h = V_(h-1) and, for every node of V_(h-1), up to fanouts[h-1] of its neighbors
        E   = all edges of the graph with both ends in V_H

    Neighbors are drawn without replacement, anew at each hop, for every node reached so far and not only for
    the newest. `fanouts` lists the seeds' own hop first (DGL's [5, 10, 15] is [15, 10, 5] here).
    """

    fanouts: Sequence[int] = field(default_factory=lambda: [10, 5])

    def __post_init__(self) -> None:
        object.__setattr__(self, "fanouts", check_fanouts(self.fanouts, "ShadowKHop"))

    def draw(
        self, graph: Graph, seeds: Integer[np.ndarray, " seeds"], rng: np.random.Generator
    ) -> Integer[np.ndarray, " nodes"]:
        """V_H, ascending."""
        nodes = seeds
        for fanout in self.fanouts:
            nodes = ops.reach(graph.indptr, graph.indices, nodes, fanout, key_of(rng))
        return nodes
