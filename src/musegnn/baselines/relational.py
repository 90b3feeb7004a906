"""Relational GraphSAGE: a matrix for each relation and direction, as R-GCN has them."""

from jaxtyping import Float
from torch import Tensor, float32, nn, ones_like, promote_types

from musegnn.baselines.contract import Shape
from musegnn.baselines.convolutions import Convolutions
from musegnn.baselines.histories import Block
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.unfolding.propagate import Weights, weighed
from musegnn.unfolding.resident import Matrix
from musegnn.unfolding.ties import Columns, Tie, kept, ties


class RelationalConv(nn.Module):
    """h = X W_0 + b + sum_w P_w X W_w, and P_w X is the mean over the neighbors of way w, 0 without any.

    Args:
        in_dim: Of X.
        out_dim: Of h.
        num_ways: Relations, times directions.
    """

    def __init__(self, in_dim: int, out_dim: int, num_ways: int) -> None:
        super().__init__()
        self.own = nn.Linear(in_dim, out_dim)
        self.others = nn.ModuleList(nn.Linear(in_dim, out_dim, bias=False) for _ in range(num_ways))

    def forward(self, x: Float[Tensor, "nodes in_dim"], ways: list[Tie]) -> Float[Tensor, "nodes out_dim"]:
        """h; P_w (X W_w) or (P_w X) W_w."""
        h: Tensor = self.own(x)
        # A mean reads a row for each edge: of x before W, of h behind it, so it is on the narrower side.
        # Features have no gradient: 768 of them once are fewer bytes than 512 twice, but measured no less
        # time, and each mean would be kept for the gradient of its W, where x is kept for all.
        is_mean_first = x.shape[1] < h.shape[1]
        for way, project in zip(ways, self.others, strict=True):
            left, one = _mean(way, x)
            if is_mean_first:
                h = h + project(weighed(*way, Weights(left, one), x))
            else:
                h = weighed(*way, Weights(left, one, one), project(x), h)
        return h


class RSAGE(Convolutions):
    """Relational GraphSAGE, after Schlichtkrull et al. 2018 and Hamilton et al. 2017.

        h = X W_0 + b + sum over relations r of  mean over i -> j of X_j W_r + mean over j -> i of X_j W_r'

    A graph that keeps directions alone has one relation; one without either has no directions: this is SAGE.
    """

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        if shape.history != "none":
            raise InputError(
                "history of RSAGE must be 'none', since no history knows of relations; "
                f"got {shape.history!r}. Take architecture=SAGE, or history=none."
            )
        super().__init__(graph, out_dim, shape)

    @property
    def num_relations(self) -> int:
        """Of the graph."""
        return self.graph.num_relations

    def matrices(self, sample: Sample) -> list[Matrix]:
        """Each relation and its transpose."""
        return [matrix for tie in ties(sample, self.num_relations) for matrix in tie]

    def convolution(self, in_dim: int, out_dim: int, *, is_last: bool) -> nn.Module:
        """Two ways for each relation."""
        return RelationalConv(in_dim, out_dim, 2 * self.num_relations or 1)

    def where(self, block: Block) -> list[Tie]:
        """Along each relation and against it."""
        there = ties(block.sample, self.num_relations)
        return [way for tie in there for way in (tie, tie.back)] if self.num_relations else there


def _mean(way: Tie, x: Tensor) -> tuple[Columns, ...]:
    """1 / d for the sums, and 1; never in half precision."""
    like = x.new_empty((), dtype=promote_types(x.dtype, float32))
    return kept(way, "mean", like, lambda to, of: (1 / to.clamp(min=1), ones_like(of)))
