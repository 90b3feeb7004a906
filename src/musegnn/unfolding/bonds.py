"""What an energy wants of the ends of an edge, told edge by edge: for explanations, not for steps."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor
from torch.nn import functional as F

from musegnn.sampling.record import Sample
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.weighed_edges import apart, ends_of

Edges = Int64[Tensor, "2 edges"]
PerEdge = Float[Tensor, " edges"]


class Bond(NamedTuple):
    """Edges i, j of one term of an energy, which asks that `here` of i is `there` of j.

    The term is the sum of `by_edge`, or, where nodes pay and not edges, of `by_node`.
    """

    name: str
    edges: Edges
    """Local nodes; an edge that has no direction may be there in both."""
    here: Rows
    there: Rows
    by_edge: PerEdge | None = None
    by_node: Float[Tensor, " nodes"] | None = None
    trust: PerEdge | None = None
    """How much of its weight an edge has, where that depends on Y: of one bond of an energy at most."""
    is_along: bool = True
    """Whether edges lead from i to j; if not, another bond has them."""

    def contrast(self) -> PerEdge:
        """1 - cos(here_i, there_j): of directions alone, since lengths follow the degrees."""
        return apart(F.normalize(self.here), F.normalize(self.there), self.edges) / 2


def edges_of(sample: Sample, device: torch.device) -> Edges:
    """All edges, i < j."""
    rows, columns, _ = ends_of(sample, device)
    is_first = rows < columns
    return torch.stack([rows[is_first], columns[is_first]])
