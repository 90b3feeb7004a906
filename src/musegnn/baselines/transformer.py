"""SGFormer (Wu et al., 2023), as PyG has it: linear attention over all nodes of a sample, and a GCN."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from musegnn import extras
from musegnn.baselines.contract import Baseline, Shape, edges
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.models.dropout import Dropout
from musegnn.sampling.record import Sample


class SGFormer(Baseline):
    """The mean of one layer of attention, as in the paper, and of a GCN with `layers` layers; then a Linear.

    A sample is one graph: every node attends to all others of it, and to no node outside.
    """

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__(graph, out_dim, shape)
        pyg = extras.require("torch_geometric.nn.models", "The baseline SGFormer")
        if shape.hidden % shape.heads:
            raise InputError(
                f"heads of SGFormer must divide hidden, {shape.hidden}; got {shape.heads}. Take heads=1."
            )
        self.input_dropout = Dropout(shape.input_dropout)
        self.inner = pyg.SGFormer(
            self.in_dim,
            shape.hidden,
            out_dim,
            trans_num_layers=1,
            trans_num_heads=shape.heads,
            trans_dropout=shape.dropout,
            gnn_num_layers=shape.layers,
            gnn_dropout=shape.dropout,
        )

    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """Log-probabilities, which are logits as well."""
        X = F.normalize(features, p=1.0, dim=1) if self.shape.normalize else features
        one_graph = torch.zeros(sample.num_nodes, dtype=torch.int64, device=X.device)
        with _ones_in(X.dtype):
            result: Tensor = self.inner(self.input_dropout(X), edges(sample, X.device), one_graph)
        return result[: sample.num_seeds]


@contextmanager
def _ones_in(dtype: torch.dtype) -> Iterator[None]:
    """PyG's attention makes a vector of ones without asking for the dtype of the rest."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
