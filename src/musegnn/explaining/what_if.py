"""What would the model say if an edge were not there, or if a node had other features? Nothing is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from musegnn import ops
from musegnn.errors import InputError
from musegnn.explaining.contributions import Features, check_mode, row_of
from musegnn.models import MuseGNN
from musegnn.sampling.record import Sample
from musegnn.unfolding.contract import Seen
from musegnn.unfolding.penalty import Rows

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Change:
    """The logits of a node, as it is and as it would be."""

    node: int
    before: Float64[np.ndarray, " classes"]
    after: Float64[np.ndarray, " classes"]

    @property
    def predicted(self) -> tuple[int, int]:
        """The class before, and the one after."""
        return int(self.before.argmax()), int(self.after.argmax())


@torch.no_grad()
def what_if(
    model: MuseGNN,
    sample: Sample,
    features: Features,
    mu: Rows | None = None,
    *,
    seen: Seen | None = None,
    node: int | None = None,
    without: Pairs = (),
    features_of: Mapping[int, Float[Tensor, " in_dim"]] | None = None,
) -> Change:
    """The logits of a node without some edges, or with other features; the means stay as they are.

    Args:
        node: Its id in the graph; the first seed unless given.
        without: Edges to leave out, as pairs of ids; both directions go.
        features_of: Other features, by the id of the node.
    """
    check_mode(model)
    row, other = row_of(sample, node), features.clone()
    for changed, values in (features_of or {}).items():
        if values.shape != features.shape[1:]:
            raise InputError(
                f"Node {changed} has {features.shape[1]} features, got {list(values.shape)} in their place."
            )
        other[row_of(sample, changed)] = values.to(features)

    def logits(subgraph: Sample, x: Features) -> Float64[np.ndarray, " classes"]:
        Y = model.embed(subgraph, x, mu, seen=seen)
        found: np.ndarray = model.g(Y[row : row + 1])[0].double().cpu().numpy()
        return found

    return Change(
        node=int(sample.node_ids[row]),
        before=logits(sample, features),
        after=logits(without_edges(sample, without) if without else sample, other),
    )


def without_edges(sample: Sample, pairs: Pairs) -> Sample:
    """The sample without these edges, given as pairs of ids; degrees and bounds are those of what is left."""
    rows, columns = sample.edge_index()
    gone = np.zeros(sample.num_entries, dtype=bool)
    for u, v in pairs:
        a, b = row_of(sample, u), row_of(sample, v)
        found = ((rows == a) & (columns == b)) | ((rows == b) & (columns == a))
        if not found.any():
            raise InputError(f"The sample has no edge between {u} and {v}. Name two neighbors.")
        gone |= found
    lengths = np.bincount(rows[~gone], minlength=sample.num_nodes)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    indices = sample.indices[~gone]
    return replace(
        sample,
        indptr=indptr,
        indices=indices,
        relation=None if sample.relation is None else sample.relation[~gone],
        bounds=ops.spectral_bounds(indptr, indices),
    )
