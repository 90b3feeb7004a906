"""PersonalizedPageRank: the nodes that matter most to each seed (influence-based batches)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from musegnn import ops
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.base import SeededSampler, check_positive

_LEAST = 1e-9
"""Of teleport * tolerance: a seed may then read up to a billion entries."""


@dataclass(frozen=True)
class PersonalizedPageRank(SeededSampler):
    """For each seed s the `top_k` nodes of largest p, and the seed; all edges among those of the batch.

        p ~ pi_s = teleport (I - (1 - teleport) P^T)^-1 e_s,   P = D^-1 A
        0 <= pi_s(u) - p_u < tolerance d_u   for every node u, d_u its number of neighbors

    pi_s(u) is the chance that a walk from s, which ends at each node with probability `teleport`, ends at u.
    p comes from forward push (Andersen, Chung and Lang 2006; here the walk is not lazy): nodes with a
    residual r_u >= tolerance d_u are pushed, first come, first served, until none is left. That reads at most
    1 / (teleport tolerance) entries for a seed, whatever the size of the graph. Nodes that were not pushed
    are not chosen, so a seed with more than 1 / tolerance neighbors brings only itself. Nothing is random.
    """

    top_k: int = 16
    teleport: float = 0.15
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        check_positive(self.top_k, "top_k of PersonalizedPageRank")
        for name in ("teleport", "tolerance"):
            value = getattr(self, name)
            if isinstance(value, bool) or not (isinstance(value, int | float) and 0 < value < 1):
                raise InputError(f"{name} of PersonalizedPageRank must lie in (0, 1), got {value!r}.")
        if self.teleport * self.tolerance < _LEAST:
            raise InputError(
                f"teleport * tolerance of PersonalizedPageRank must be at least {_LEAST:g}, since a seed may "
                f"read as many entries as its inverse; got {self.teleport!r} * {self.tolerance!r}. "
                "Raise the tolerance."
            )

    def draw(
        self, graph: Graph, seeds: Integer[np.ndarray, " seeds"], rng: np.random.Generator
    ) -> Integer[np.ndarray, " nodes"]:
        """The union over the seeds, ascending."""
        return ops.pagerank(graph.indptr, graph.indices, seeds, self.top_k, self.teleport, self.tolerance)
