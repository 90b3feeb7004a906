"""RandomWalk: what short walks visit (the node sets of GraphSAINT's random walk sampler)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from musegnn import ops
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.base import FreeSampler, check_positive, key_of

MAX_STEPS = 10**9
"""Of one sample: some ten seconds."""


@dataclass(frozen=True)
class RandomWalk(FreeSampler):
    """Nodes that `roots` independent walks of `length` steps visit, and all edges among them.

        v_0 uniform among all nodes,   v_t uniform among the neighbors of v_(t-1),   t = 1, ..., length

    Roots are drawn with replacement; a walk stays at a node without neighbors. Nodes of high degree are
    inside more often; nothing corrects for that (GraphSAINT weights its loss, which is no part of a sample).
    """

    roots: int = 2000
    length: int = 4
    num_samples: int = 100

    def __post_init__(self) -> None:
        for name in ("roots", "length", "num_samples"):
            object.__setattr__(self, name, check_positive(getattr(self, name), f"{name} of RandomWalk"))
        if self.roots * self.length > MAX_STEPS:
            raise InputError(
                f"roots * length of RandomWalk is {self.roots * self.length:,} steps for one sample; at most "
                f"{MAX_STEPS:,} are allowed. Draw more and smaller samples."
            )

    def draw(self, graph: Graph, index: int, rng: np.random.Generator) -> Integer[np.ndarray, " nodes"]:
        """The nodes visited, roots included, ascending."""
        return ops.random_walk(graph.indptr, graph.indices, self.roots, self.length, key_of(rng))
