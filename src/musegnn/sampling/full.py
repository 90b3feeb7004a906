"""FullKHop: every neighbor (the paper's setting for ogbn-arxiv)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from musegnn import ops
from musegnn.graph import Graph
from musegnn.sampling.base import SeededSampler, check_positive


@dataclass(frozen=True)
class FullKHop(SeededSampler):
    """All nodes at most `hops` edges away from a seed, and all edges among them. Nothing is random."""

    hops: int = 2

    def __post_init__(self) -> None:
        object.__setattr__(self, "hops", check_positive(self.hops, "hops of FullKHop"))

    def draw(
        self, graph: Graph, seeds: Integer[np.ndarray, " seeds"], rng: np.random.Generator
    ) -> Integer[np.ndarray, " nodes"]:
        """The ball around the seeds, ascending."""
        nodes, before = seeds, -1
        for _ in range(self.hops):
            if len(nodes) == before:
                break
            before, nodes = len(nodes), ops.reach(graph.indptr, graph.indices, nodes, None, 0)
        return nodes
