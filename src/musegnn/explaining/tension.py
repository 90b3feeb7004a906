"""Where the energy of a sample sits: in which nodes, and on which edges."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64, Int64, Integer
from torch import Tensor
from torch.nn import functional as F

from musegnn.errors import InputError
from musegnn.explaining.contributions import Features, base_predictions, check_mode
from musegnn.models import MuseGNN
from musegnn.sampling.record import Sample
from musegnn.unfolding.bonds import Bond
from musegnn.unfolding.contract import Seen
from musegnn.unfolding.descent import last_stage, unfold
from musegnn.unfolding.penalty import Rows

PerNode = Float64[np.ndarray, " nodes"]
PerEdge = Float64[np.ndarray, " edges"]


_TERMS = {"fidelity", "relations", "consensus", "penalty"}
"""Of energies; names that a relation may have, too."""


class Disagreement(NamedTuple):
    """An edge between two nodes, by their ids."""

    u: int
    v: int
    contrast: float
    trust: float | None
    """How much it counts, of an energy for which that depends on Y."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Tension:
    """The energy of Y, by node and by edge; of several stages that of the last."""

    nodes: Integer[np.ndarray, " nodes"]
    """Of the sample, by their ids in the graph."""
    by_node: dict[str, PerNode]
    """Its terms: fidelity |Y_v - Z_v|^2, what a node pays for its neighbors, of each relation and direction
    where these are told apart, consensus gamma |Y_v - mu_v|^2. Of what an edge costs each end pays half."""
    rest: dict[str, float]
    """Its terms that are not told by node, such as the penalty."""
    anomaly: PerNode
    """|Y_v - Z_v|: how far a node was moved from what its features say. It finds noise.

    Features that are those of another node are found by `contradiction`.
    """
    edges: Int64[np.ndarray, "2 edges"]
    """Local nodes u < v, each edge once."""
    by_edge: PerEdge | None
    """What each edge costs, in all relations; None of an energy for which nodes pay, not edges."""
    contrast: PerEdge
    """1 - cos of what the energy wants to be alike: of Y_u and Y_v, or, seen through H, of what the ends say
    along the direction of the edge; the mean over relations. Not of lengths, which follow the degree."""
    trust: PerEdge | None
    """How much an edge counts, of an energy for which that depends on Y."""
    contradiction: PerNode | None
    """1 - cos(Z_v, what the neighbors say), Z_v as the penalty allows it; 0 without neighbors. None of
    an energy that does not tell what they say."""

    def __repr__(self) -> str:
        terms = ", ".join(f"{name} {value:.4g}" for name, value in self.terms().items())
        return f"Tension({len(self.nodes)} nodes, {self.edges.shape[1]} edges: {terms})"

    def terms(self) -> dict[str, float]:
        """The sums over all nodes, and the rest: together, the energy."""
        return {name: float(cost.sum()) for name, cost in self.by_node.items()} | self.rest

    def of_node(self, node: int) -> dict[str, float]:
        """The terms of one node, by its id."""
        row = self._row(node)
        return {name: float(cost[row]) for name, cost in self.by_node.items()}

    def scores_of(self, node: int) -> tuple[float, float | None]:
        """Its anomaly and its contradiction."""
        row, given = self._row(node), self.contradiction
        return float(self.anomaly[row]), None if given is None else float(given[row])

    def _row(self, node: int) -> int:
        found = np.flatnonzero(self.nodes == node)
        if not len(found):
            raise InputError(
                f"Node {node} is not among the {len(self.nodes):,} nodes of the sample. Pass the id of one."
            )
        return int(found[0])

    def suspicious_edges(self, top: int = 10, *, node: int | None = None) -> list[Disagreement]:
        """The edges with the highest contrast; of one node, if given: the neighbors it disagrees with.

        What the energy pays for an edge, `by_edge`, depends on the degrees and finds fewer wrong ones.
        """
        if top < 0:
            raise InputError(f"top must be 0 or more; got {top}.")
        chosen = np.arange(self.edges.shape[1])
        if node is not None:
            chosen = np.flatnonzero((self.edges == self._row(node)).any(axis=0))
        order = chosen[np.argsort(-self.contrast[chosen], kind="stable")[:top]]
        ids = self.nodes[self.edges[:, order]].tolist()
        trust = [None] * len(order) if self.trust is None else self.trust[order].tolist()
        return [Disagreement(*one) for one in zip(*ids, self.contrast[order].tolist(), trust, strict=True)]


@torch.no_grad()
def tension(
    model: MuseGNN,
    sample: Sample,
    features: Features,
    mu: Rows | None = None,
    *,
    seen: Seen | None = None,
    relation_names: Sequence[str] | None = None,
) -> Tension | None:
    """The energy after K steps, by node and edge; its terms add up to it.

    None of an energy of one's own that does not say what it wants of edges (`AbstractProblem.bonds`).
    """
    check_mode(model)
    Z = base_predictions(model, sample, features)
    stage, init = last_stage(Z, sample, model.energy, model.steps, model.alpha, mu, seen=seen)
    Y = unfold(Z, sample, stage.energy, stage.steps, model.alpha, mu, init=init, seen=seen)
    mu = None if mu is None else mu.to(Y)
    problem = stage.energy.problem(Z, sample, mu=mu, seen=seen, alpha=model.alpha)
    bonds = list(problem.bonds(Y, relation_names))
    if not bonds:
        return None
    pairs = _Pairs(bonds, len(Y))
    heard, apart, terms = problem.heard(Y), (Y - Z).square().sum(dim=1), problem.terms(Y, Z)
    by_node = {"fidelity": _array(apart)} if "fidelity" in terms else {}
    for number, bond in enumerate(bonds):
        # A relation may be called like another, or like a term.
        is_taken = bond.name in by_node or bond.name in _TERMS
        by_node[f"{bond.name} ({number})" if is_taken else bond.name] = _paid(bond, len(Y))
    if "consensus" in terms:
        by_node["consensus"] = _array(problem.consensus(Y))
    contradiction = None
    if heard is not None:
        contradiction = _array(1 - F.cosine_similarity(heard, problem.penalty.prox(Z, 0.0)))
        contradiction = np.where(np.diff(sample.indptr) > 0, contradiction, 0.0)
    # The relations of a typed energy are told one by one.
    told = {*by_node, "relations"}
    return Tension(
        nodes=sample.node_ids,
        by_node=by_node,
        rest={name: float(value) for name, value in terms.items() if name not in told},
        anomaly=_array(apart.sqrt()),
        edges=pairs.edges,
        by_edge=pairs.summed([bond.by_edge for bond in bonds]),
        contrast=pairs.mean([bond.contrast() if bond.is_along else None for bond in bonds]),
        trust=pairs.summed([bond.trust for bond in bonds]),
        contradiction=contradiction,
    )


class _Pairs:
    """The edges of all bonds, each pair of nodes once, whatever the direction."""

    def __init__(self, bonds: Sequence[Bond], num_nodes: int) -> None:
        keys = []
        for bond in bonds:
            i, j = bond.edges.cpu().numpy()
            keys.append(np.minimum(i, j) * np.int64(num_nodes) + np.maximum(i, j))
        found, places = np.unique(np.concatenate(keys), return_inverse=True)
        self.edges = np.stack([found // max(num_nodes, 1), found % max(num_nodes, 1)])
        self._places = np.split(places, np.cumsum([len(key) for key in keys])[:-1])

    def summed(self, values: Sequence[Tensor | None]) -> PerEdge | None:
        """Of all bonds that have a number for each edge; None if there are none."""
        given = [
            (places, _array(one)) for places, one in zip(self._places, values, strict=True) if one is not None
        ]
        if not given:
            return None
        places, numbers = (np.concatenate(parts) for parts in zip(*given, strict=True))
        return _added(numbers, places, self.edges.shape[1])

    def mean(self, values: Sequence[Tensor | None]) -> PerEdge:
        """The same sum by how many they are; every pair has one."""
        counts = self.summed([None if one is None else torch.ones_like(one) for one in values])
        sums = self.summed(values)
        assert sums is not None
        assert counts is not None
        mean: PerEdge = sums / counts
        return mean


def _paid(bond: Bond, num_nodes: int) -> PerNode:
    """By each node; of what an edge costs, half by each end."""
    if bond.by_node is not None:
        return _array(bond.by_node)
    assert bond.by_edge is not None
    cost, ends = _array(bond.by_edge) / 2, bond.edges.cpu().numpy()
    return _added(np.concatenate([cost, cost]), ends.ravel(), num_nodes)


def _added(
    values: Float64[np.ndarray, " n"], places: Int64[np.ndarray, " n"], size: int
) -> Float64[np.ndarray, " size"]:
    """The sum of the values at each place; of none, NumPy would make whole numbers."""
    return np.bincount(places, values, minlength=size).astype(np.float64)


def _array(values: Tensor) -> Float64[np.ndarray, " n"]:
    array: np.ndarray = values.double().cpu().numpy()
    return array
