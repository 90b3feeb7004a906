"""Peers that spread the labels of the training nodes over the whole graph; no other label is ever read."""

from itertools import chain

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from musegnn.baselines.contract import Baseline, Shape
from musegnn.baselines.propagation import NodeBaseline, spread
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.record import Sample
from musegnn.unfolding.subgraph import as_sample

_STEPS = 50
"""Of correct-and-smooth, each time, as in its paper: `steps` belongs to the model inside."""
_CHUNK = 1 << 14
"""Nodes whose predictions are made at once."""
_LARGEST_SCALE = 1000.0
"""A correction that would be blown up further is next to nothing, and is left as it is."""

Scores = Float[Tensor, "nodes out_dim"]


class LabelPropagation(Baseline):
    """Y <- (1 - t) S Y + t Y_train (Zhou et al., 2004). Its only weight is a temperature: logits Y / T.

    It decides how sure the probabilities are, and no class. Training nodes see their own label, so that it
    falls as long as there is an epoch left.
    """

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        check_labels(graph, out_dim, "LabelPropagation")
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self._scores: Tensor | None = None

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """Rows of Y, which is made once."""
        like = features.new_empty(0)
        if self._scores is None or (self._scores.dtype, self._scores.device) != (like.dtype, like.device):
            Y = train_labels(self.graph, self.out_dim, like)
            whole = as_sample(self.graph, self.graph.num_nodes)
            self._scores = spread(whole, Y, Y, self.shape.restart, self.shape.steps)
        return rows(self._scores, sample) * torch.exp(-self.log_temperature)


class CorrectAndSmooth(Baseline):
    """Another model, whose predictions are moved by the labels of the training nodes (`correct_and_smooth`).

    While training it is the model alone. The result is kept until a weight changes.
    """

    def __init__(self, base: Baseline) -> None:
        super().__init__(base.graph, base.out_dim, base.shape)
        if not isinstance(base, NodeBaseline):
            raise InputError(
                "correct_and_smooth needs predictions of all nodes, which MLP, SGC and SIGN make without "
                f"neighbors; got {type(base).__name__}. Take one of these, or correct_and_smooth=false."
            )
        check_labels(base.graph, base.out_dim, "correct_and_smooth")
        self.base = base
        self._scores: Tensor | None = None
        self._made_of: tuple[object, ...] = ()

    @property
    def architecture(self) -> str:
        """That of the model inside."""
        return self.base.architecture

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """In evaluation the logarithm of the scores, whose softmax they are."""
        if self.training:
            # Weights change from here on, which fused optimizers do without a sign that torch would count.
            self._scores = None
            result: Tensor = self.base(sample, features)
            return result
        weights = chain(self.base.parameters(), self.base.buffers())
        made_of = tuple((part.data_ptr(), part._version, part.dtype) for part in weights)
        if self._scores is None or self._made_of != made_of:
            self._scores, self._made_of = self._corrected(features.new_empty(0)), made_of
        return rows(self._scores, sample)

    @torch.no_grad()
    def _corrected(self, like: Tensor) -> Scores:
        return correct_and_smooth(self.graph, self._probabilities(like), self.shape.restart)

    def _probabilities(self, like: Tensor) -> Scores:
        assert self.graph.features is not None
        base, parts = self.base, []
        for first in range(0, self.graph.num_nodes, _CHUNK):
            read = self.graph.features[first : first + _CHUNK].astype(np.float32)
            ids = np.arange(first, first + len(read))
            parts.append(base.logits(ids, torch.from_numpy(read).to(like)).softmax(dim=1))
        return torch.cat(parts).to(like.dtype)


@torch.no_grad()
def correct_and_smooth(graph: Graph, P: Scores, restart: float) -> Scores:
    """Probabilities of all nodes, moved by the labels of the training nodes (Huang et al., 2021).

        E = Y - P of training nodes, 0 elsewhere
        correct   Q = P + s E',   E' = spread(E),   s_i = mean_train |E_j|_1 / |E'_i|_1  (1 where above 1000)
        smooth    spread(Q with the labels of training nodes in place of their rows)

    and spread(X) is Y <- (1 - t) S Y + t X, 50 times, t = `restart`. Returns the logarithm of the scores.
    """
    whole, labels = as_sample(graph, graph.num_nodes), train_labels(graph, P.shape[1], P)
    is_train = labels.sum(dim=1, keepdim=True) > 0
    E = torch.where(is_train, labels - P, 0)
    size = E.abs().sum() / is_train.sum().clamp(min=1)
    E = spread(whole, E, E, restart, _STEPS)
    tiny = torch.finfo(P.dtype).tiny
    scale = size / E.abs().sum(dim=1, keepdim=True).clamp(min=tiny)
    Q = P + torch.where(scale > _LARGEST_SCALE, 1, scale) * E
    Q = torch.where(is_train, labels, Q)
    # A row of Q sums to 1, so that one entry at least stays above 0.
    return spread(whole, Q, Q, restart, _STEPS).clamp(min=tiny).log()


def train_labels(graph: Graph, out_dim: int, like: Tensor) -> Scores:
    """A 1 in the class of each training node; zeros for all others, labeled or not."""
    assert graph.labels is not None
    assert graph.split is not None
    known = np.flatnonzero((graph.split == 0) & (graph.labels >= 0))
    Y = torch.zeros(graph.num_nodes, out_dim)
    Y[torch.from_numpy(known), torch.from_numpy(graph.labels[known].astype(np.int64))] = 1
    return Y.to(like)


def rows(scores: Scores, sample: Sample) -> Float[Tensor, "seeds out_dim"]:
    """Those of the seeds."""
    return scores[torch.from_numpy(sample.seeds.astype(np.int64)).to(scores.device)]


def check_labels(graph: Graph, out_dim: int, name: str) -> None:
    """Refuse a graph whose training nodes have no classes, or others than the outputs are of."""
    if graph.labels is None or graph.split is None or out_dim != graph.num_classes:
        raise InputError(
            f"{name} spreads the classes of the training nodes of {graph.name}; got {out_dim} outputs for "
            f"{graph.num_classes} classes. Give the graph labels and a split, with one class for each node."
        )
