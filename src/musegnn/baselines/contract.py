"""What a peer is: a model that the same loop trains on the same samples."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.models import MuseGNN
from musegnn.sampling.record import Sample
from musegnn.unfolding.resident import Matrix


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What a config says of a baseline; none of them heeds all of it."""

    hidden: int
    layers: int
    steps: int
    dropout: float
    input_dropout: float
    normalize: bool
    norm: Literal["none", "layer", "batch"]
    residual: bool
    heads: int
    history: Literal["none", "gas", "graphfm", "freshgnn"]
    momentum: float
    restart: float
    correct_and_smooth: bool
    label_inputs: bool
    type_inputs: bool


class Baseline(nn.Module, ABC):
    """Logits of a sample's seeds.

    A baseline sees the whole graph when it is made, and one sample at a time from then on. What it remembers
    from step to step are buffers, so that a checkpoint holds them; what follows from the graph is made anew.
    """

    takes_inputs = False
    """Whether it can see more of a node than its features."""

    def __init__(self, graph: Graph, out_dim: int, shape: Shape) -> None:
        super().__init__()
        assert graph.features is not None
        if (shape.label_inputs or shape.type_inputs) and not (self.takes_inputs and shape.history == "none"):
            name = "label_inputs" if shape.label_inputs else "type_inputs"
            raise InputError(
                f"{name}=true is for MuseGNN, and for convolutions without a history; got "
                f"{type(self).__name__}, history={shape.history!r}. Leave it out."
            )
        self.graph, self.shape, self.out_dim = graph, shape, out_dim
        self.label_inputs = out_dim if shape.label_inputs else 0
        self.type_inputs = len(graph.node_type_names or ()) if shape.type_inputs else 0
        self.in_dim = int(graph.features.shape[1]) + self.type_inputs + self.label_inputs

    @property
    def architecture(self) -> str:
        """Its name in a config."""
        return type(self).__name__

    @property
    def num_relations(self) -> int:
        """How many relations samples must tell; 0: none."""
        return 0

    def matrices(self, sample: Sample) -> list[Matrix]:
        """What it reads of a sample, so that a loader may bring it to a GPU ahead of it."""
        return [sample]

    @abstractmethod
    def forward(
        self, sample: Sample, features: Float[Tensor, "nodes in_dim"]
    ) -> Float[Tensor, "seeds out_dim"]:
        """The seeds are the first rows."""


AnyModel = MuseGNN | Baseline


def edges(sample: Sample, device: torch.device) -> Int64[Tensor, "2 entries"]:
    """Both directions of each edge, without loops, as PyG takes them."""
    return torch.from_numpy(sample.edge_index()).to(device)
