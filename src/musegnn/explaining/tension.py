"""Where the energy of a sample sits: in which nodes, and on which edges."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, Integer
from torch import Tensor
from torch.nn import functional as F

from musegnn.errors import InputError
from musegnn.explaining.contributions import Features, base_predictions, check_mode
from musegnn.models import MuseGNN
from musegnn.sampling.record import Sample
from musegnn.unfolding import Energy, unfold
from musegnn.unfolding.contract import Seen
from musegnn.unfolding.energy import number
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.propagate import propagate

_EDGES = 1 << 16
"""Whose rows are in memory at a time."""
PerNode = Float64[np.ndarray, " nodes"]
PerEdge = Float64[np.ndarray, " edges"]
Disagreement = tuple[int, int, float]
"""Two nodes, by their ids, and the contrast between them."""


@dataclass(frozen=True, kw_only=True)
class Tension:
    """The energy of Y (eq. 4), term by term: by node, or by edge."""

    nodes: Integer[np.ndarray, " nodes"]
    """Of the sample, by their ids in the graph."""
    fidelity: PerNode
    """|Y_v - Z_v|^2."""
    consensus: PerNode
    """gamma |Y_v - mu_v|^2."""
    edges: Int64[np.ndarray, "2 edges"]
    """Local nodes u < v, each edge once."""
    smoothness: PerEdge
    """lambda |s_u Y_u - s_v Y_v|^2, with s = (d + 1)^-1/2 or, with the combinatorial Laplacian, 1."""
    contrast: PerEdge
    """1 - cos(Y_u, Y_v): of directions alone, since the length of Y_v follows the degree."""
    contradiction: PerNode
    """1 - cos(Z_v, what the neighbors say), Z_v as the penalty allows it; 0 without neighbors."""
    penalty: float

    def terms(self) -> dict[str, float]:
        """As `Energy.terms`."""
        return {
            "fidelity": float(self.fidelity.sum()),
            "smoothness": float(self.smoothness.sum()),
            "consensus": float(self.consensus.sum()),
            "penalty": self.penalty,
        }

    @property
    def anomaly(self) -> PerNode:
        """|Y_v - Z_v|: how far a node was moved from what its features say. It finds noise.

        Features that are those of another node are found by `contradiction`.
        """
        scores: np.ndarray = np.sqrt(self.fidelity)
        return scores

    def of_node(self, node: int) -> dict[str, float]:
        """The terms of one node, by its id, that of smoothness over all its edges; and both its scores."""
        (row,) = np.flatnonzero(self.nodes == node)
        return {
            "fidelity": float(self.fidelity[row]),
            "smoothness": float(self.smoothness[(self.edges == row).any(axis=0)].sum()),
            "consensus": float(self.consensus[row]),
            "anomaly": float(self.anomaly[row]),
            "contradiction": float(self.contradiction[row]),
        }

    def suspicious_edges(self, top: int = 10, *, node: int | None = None) -> list[Disagreement]:
        """The edges with the highest contrast; of one node, if given: the neighbors it disagrees with.

        What the energy pays for an edge, `smoothness`, depends on the degrees and finds fewer wrong ones.
        """
        chosen = np.arange(self.edges.shape[1])
        if node is not None:
            chosen = np.flatnonzero((self.nodes[self.edges] == node).any(axis=0))
        order = chosen[np.argsort(-self.contrast[chosen], kind="stable")[:top]]
        ids = self.nodes[self.edges[:, order]]
        values = zip(ids[0], ids[1], self.contrast[order], strict=True)
        return [(int(u), int(v), float(value)) for u, v, value in values]


@torch.no_grad()
def tension(
    model: MuseGNN,
    sample: Sample,
    features: Features,
    mu: Rows | None = None,
    *,
    seen: Seen | None = None,
) -> Tension:
    """The energy after K steps, by node and edge; its terms add up to those of `Energy.terms`."""
    check_mode(model)
    energy = model.energy
    if not isinstance(energy, Energy):
        raise InputError(f"Tension is known of musegnn.Energy only, got {type(energy).__name__}.")
    Z = base_predictions(model, sample, features)
    Y = unfold(Z, sample, energy, model.steps, model.alpha, mu, seen=seen)
    gamma, consensus = number(energy.gamma), torch.zeros(len(Z))
    if mu is not None and gamma:
        weight = gamma if seen is None else gamma * seen.to(Y)
        consensus = weight * (Y - mu.to(Y)).square().sum(dim=1)
    edges = sample.edge_index()
    edges = edges[:, edges[0] < edges[1]]
    degree = np.diff(sample.indptr)
    scale = (degree + 1.0) ** -0.5 if energy.laplacian == "normalized" else np.ones(len(degree))
    scaled = Y * torch.from_numpy(scale).to(Y)[:, None]
    said = F.cosine_similarity(propagate(sample, scaled), energy.penalty.prox(Z, 0.0))
    return Tension(
        nodes=sample.node_ids,
        fidelity=_array((Y - Z).square().sum(dim=1)),
        consensus=_array(consensus),
        edges=edges,
        smoothness=number(energy.lambda_) * _apart(scaled, edges),
        contrast=_apart(F.normalize(Y), edges) / 2,
        contradiction=np.where(degree > 0, 1 - _array(said), 0.0),
        penalty=float(energy.penalty.value(Y)),
    )


def _apart(Y: Rows, edges: Int64[np.ndarray, "2 edges"]) -> PerEdge:
    """|Y_u - Y_v|^2 of each edge."""
    sources, targets = torch.from_numpy(edges).to(Y.device)
    found = [
        _array((Y[u] - Y[v]).square().sum(dim=1))
        for u, v in zip(sources.split(_EDGES), targets.split(_EDGES), strict=True)
    ]
    apart: np.ndarray = np.concatenate(found)
    return apart


def _array(values: Float[Tensor, " n"]) -> Float64[np.ndarray, " n"]:
    array: np.ndarray = values.double().cpu().numpy()
    return array
