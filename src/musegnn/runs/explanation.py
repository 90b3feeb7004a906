"""Why a run says what it says of a node, and what it would say if the graph were another."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike

from musegnn.errors import InputError
from musegnn.explaining import Change, Drawing, Explanation, Tension, draw, explain, tension, what_if
from musegnn.graph import Graph
from musegnn.graph.names import Names
from musegnn.graph.relation import names_of_ways
from musegnn.inference.nodes import read_nodes
from musegnn.models import MuseGNN
from musegnn.runs.prediction import Predictor
from musegnn.training.batches import Batch, Loader
from musegnn.training.forward import Asked, device_of, gather_means, matrices_of, relations_of

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

    def __repr__(self) -> str:
        size = f"{self.batch.sample.num_nodes:,} nodes, {self.batch.sample.num_entries // 2:,} edges"
        return f"Neighborhood(of {self.name(self.node)}: {size})"

    @classmethod
    def of(cls, run: "Run", model: MuseGNN, node: Node, hops: int | None) -> "Neighborhood":
        """Draw it."""
        if hops is not None and (isinstance(hops, bool) or not isinstance(hops, Integral) or hops < 1):
            raise InputError(f"hops must be a whole number, 1 or more, or None; got {hops!r}.")
        predictor = Predictor(run, hops=hops)
        graph = predictor.graph
        number = find_node(node, graph)
        draws = predictor.draws(np.array([number]))
        how: dict[str, Any] = {"relations": relations_of(model), "matrices": matrices_of(model)}
        loader = Loader(draws, graph, None, device=device_of(model), inputs=predictor.inputs, **how)
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
            relations=self._relations(),
        )

    def tension(self) -> Tension | None:
        """The energy by node and edge; None of an energy of one's own that does not tell."""
        return tension(
            self.model,
            self.batch.sample,
            self.batch.features,
            self.asked.mu,
            seen=self.asked.seen,
            relation_names=self.graph.relation_names,
        )

    def draw(self) -> Drawing:
        """A page of HTML, which a notebook shows."""
        return draw(self.explain(), self.batch.sample, self.tension())

    def what_if(
        self,
        without: Sequence[Node | Sequence[Node]] = (),
        features_of: Mapping[Node, ArrayLike] | None = None,
    ) -> Change:
        """Its logits as they are, and without some edges or with other features; M stays as it is.

        With those of another node: `features_of={"curl": around.features("wget")}`. An edge is named by its
        ends, or by the neighbor alone if the other end is the node itself.
        """
        ends = [(self.node, one) if isinstance(one, (str, int, Integral)) else one for one in without]
        pairs = [self._edge(*pair) for pair in ends]
        rows = {self._inside(node): self._seen_as(node, row) for node, row in (features_of or {}).items()}
        given = self.model, self.batch.sample, self.batch.features, self.asked.mu
        return what_if(*given, seen=self.asked.seen, node=self.node, without=pairs, features_of=rows)

    def features(self, node: Node) -> Float[np.ndarray, " in_dim"]:
        """Those of any node of the graph."""
        assert self.graph.features is not None
        return np.asarray(self.graph.features[find_node(node, self.graph)], dtype=np.float32)

    def _seen_as(self, node: Node, row: ArrayLike) -> Float[torch.Tensor, " inputs"]:
        """Other features, with the type and class that the model sees of a node as they are."""
        assert self.graph.features is not None
        place = np.flatnonzero(self.batch.sample.node_ids == find_node(node, self.graph))[0]
        num_features, other = self.graph.features.shape[1], torch.from_numpy(np.array(row, dtype=np.float32))
        if other.shape != (num_features,):
            raise InputError(
                f"{self.name(find_node(node, self.graph))} has {num_features} features, got "
                f"{list(other.shape)} in their place."
            )
        return torch.cat([other, self.batch.features[int(place), num_features:].cpu()])

    def _relations(self) -> dict[int, str]:
        """By which relations, and in which direction, the node and each neighbor are joined, in words."""
        if self.graph.relation is None:
            return {}
        row = slice(self.graph.indptr[self.node], self.graph.indptr[self.node + 1])
        ways = names_of_ways(self.graph.relation_names or ("directed",))
        return {
            int(node): ", ".join(way for bit, way in enumerate(ways) if int(code) >> bit & 1)
            for node, code in zip(self.graph.indices[row], self.graph.relation[row], strict=True)
        }

    def _edge(self, u: Node, v: Node) -> tuple[int, int]:
        first, second = find_node(u, self.graph), find_node(v, self.graph)
        row = slice(self.graph.indptr[first], self.graph.indptr[first + 1])
        if second not in self.graph.indices[row]:
            raise InputError(
                f"There is no edge between {self.name(first)} and {self.name(second)}. Name neighbors."
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
    """The id of one node; `id:17` and `name:17` say which of them a number is."""
    text = str(node)
    kinds = ("id:", "name:") if isinstance(node, str) else ("id:",)
    specs = [text] if text.startswith(kinds) else [kind + text for kind in kinds]
    found: set[int] = set()
    for spec in specs:
        with suppress(InputError):
            found.add(int(read_nodes(spec, graph)[0]))
    if len(found) == 1:
        return found.pop()
    if found:
        raise InputError(
            f"{text} is the id of one node and the name of another. Pass id:{text} or name:{text}."
        )
    last = graph.num_nodes - 1
    if graph.node_names is None:
        raise InputError(
            f"{text[:60]!r} is no node of {graph.name}: its nodes have no names. Pass 0 to {last}."
        )
    near = _nearest(text.removeprefix("name:"), graph.node_names)
    raise InputError(
        f"No node of {graph.name} is called {text[:60]!r}.{near} Pass a name, or an id from 0 to {last}."
    )


def _nearest(text: str, names: Names) -> str:
    """' Did you mean ...?', of a bounded number of names that are about as long; or nothing."""
    lengths = np.diff(names.offsets[: 1 << 20]) - 1
    about = np.flatnonzero(np.abs(lengths - len(text)) <= 2)[:20_000]
    # By lower case, so that Curl is nearest to curl.
    by_lower = {names[int(i)].lower(): names[int(i)] for i in about}
    near = get_close_matches(text[:60].lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[near[0]]}?" if near else ""
