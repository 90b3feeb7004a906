"""Why a run says what it says of a node, and what it would say if the graph were another."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from musegnn.errors import InputError
from musegnn.explaining import Change, Explanation, Tension, draw, explain, tension, what_if
from musegnn.graph import Graph
from musegnn.inference.nodes import read_nodes
from musegnn.models import MuseGNN
from musegnn.runs.prediction import Predictor
from musegnn.training.batches import Batch, Loader
from musegnn.training.forward import Asked, device_of, gather_means, relations_of
from musegnn.unfolding import Energy

if TYPE_CHECKING:
    from musegnn.runs.run import Run

Node = int | str
"""An id, or a name where the graph has names."""


class Neighborhood(NamedTuple):
    """A node in the sample that `Run.predict` draws around it, and all that the model is given of it."""

    node: int
    model: MuseGNN
    graph: Graph
    batch: Batch
    asked: Asked

    @classmethod
    def of(cls, run: "Run", model: MuseGNN, node: Node, hops: int | None) -> "Neighborhood":
        """Draw it."""
        predictor = Predictor(run, hops=hops)
        graph = predictor.graph
        number = find_node(node, graph)
        draws = predictor.draws(np.array([number]))
        relations = relations_of(model)
        loader = Loader(draws, graph, None, device=device_of(model), relations=relations)
        # A sampler that draws freely may have the node in a later one.
        index = next(i for i in range(len(draws)) if number in draws[i].seeds)
        batch = next(loader.batches([index]))
        asked = gather_means(run.means, batch, run.config.means.unseen, device_of(model))
        return cls(number, model, graph, batch, asked)

    def explain(self) -> Explanation:
        """Exact shares of its logits."""
        return explain(
            self.model,
            self.batch.sample,
            self.batch.features,
            self.asked.mu,
            seen=self.asked.seen,
            node=self.node,
            node_name=self.name,
            class_name=self.class_name,
        )

    def tension(self) -> Tension | None:
        """The energy by node and edge; None of an energy that is not the paper's."""
        if not isinstance(self.model.energy, Energy):
            return None
        return tension(
            self.model, self.batch.sample, self.batch.features, self.asked.mu, seen=self.asked.seen
        )

    def draw(self) -> str:
        """A page of HTML."""
        return draw(self.explain(), self.batch.sample, self.tension())

    def what_if(
        self,
        without: Sequence[tuple[Node, Node]] = (),
        features_of: Mapping[Node, ArrayLike] | None = None,
    ) -> Change:
        """Its logits as they are, and without some edges or with other features; M stays as it is."""
        pairs = [self._edge(u, v) for u, v in without]
        rows: dict[int, Float[torch.Tensor, " in_dim"]] = {
            self._inside(node): torch.as_tensor(np.asarray(row, dtype=np.float32))
            for node, row in (features_of or {}).items()
        }
        given = self.model, self.batch.sample, self.batch.features, self.asked.mu
        return what_if(*given, seen=self.asked.seen, node=self.node, without=pairs, features_of=rows)

    def _edge(self, u: Node, v: Node) -> tuple[int, int]:
        first, second = find_node(u, self.graph), find_node(v, self.graph)
        row = slice(self.graph.indptr[first], self.graph.indptr[first + 1])
        if second not in self.graph.indices[row]:
            raise InputError(
                f"There is no edge between {self.name(first)} and {self.name(second)}. Name two neighbors."
            )
        return self._inside(first), self._inside(second)

    def _inside(self, node: Node) -> int:
        found = find_node(node, self.graph)
        if found not in self.batch.sample.node_ids:
            raise InputError(
                f"{self.name(found)} is not in the sample that was drawn around {self.name(self.node)}. "
                "Take all its neighbors: hops=1 (--hops 1), or more."
            )
        return found

    def name(self, node: int) -> str:
        """As a person calls it."""
        return str(node) if self.graph.node_names is None else self.graph.node_names[node]

    def class_name(self, number: int) -> str:
        """As a person calls it."""
        return str(number) if self.graph.class_names is None else self.graph.class_names[number]


def find_node(node: Node, graph: Graph) -> int:
    """The id of one node."""
    found = read_nodes(node if isinstance(node, str) else f"id:{node}", graph)
    if len(found) != 1:
        raise InputError(f"{node} is not one node, but {len(found):,}. Pass an id or a name.")
    return int(found[0])
