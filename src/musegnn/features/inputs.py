"""What a model sees of a node beside its features: its type, and its class if it is a training node."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64, Integer
from torch import Tensor

from musegnn.errors import InputError
from musegnn.graph import Graph


class _Part(NamedTuple):
    """Numbers of nodes, below 0 where there is none, each of which becomes a column."""

    numbers: Integer[np.ndarray, " nodes"]
    width: int
    is_hidden: bool
    """From the seeds of a sample: it is what they are asked for."""


class Inputs:
    """Columns behind the features.

        x_i -> [x_i, onehot(type_i), onehot(class_i) if i is a training node and no seed, else 0]

    Args:
        graph: With types or a split, if they are asked for.
        targets: A class number for each node, -1 where there is none.
        num_types, num_classes: Columns of each; 0 leaves them out.
    """

    def __init__(
        self, graph: Graph, targets: np.ndarray | None, *, num_types: int = 0, num_classes: int = 0
    ) -> None:
        self._parts: list[_Part] = []
        if num_types:
            self._parts.append(_Part(_types(graph, num_types), num_types, is_hidden=False))
        if num_classes:
            self._parts.append(_Part(_known(graph, targets, num_classes), num_classes, is_hidden=True))
        self.width = sum(part.width for part in self._parts)

    def columns(
        self, node_ids: Integer[np.ndarray, " nodes"], num_seeds: int
    ) -> Int64[np.ndarray, "nodes parts"]:
        """Which of the columns are 1, -1 for none; the seeds are the first nodes."""
        found = np.empty((len(node_ids), len(self._parts)), dtype=np.int64)
        first = 0
        for place, part in enumerate(self._parts):
            numbers = part.numbers[node_ids].astype(np.int64)
            if part.is_hidden:
                numbers[:num_seeds] = -1
            found[:, place] = np.where(numbers < 0, -1, numbers + first)
            first += part.width
        return found

    def extend(
        self, rows: Float[Tensor, "nodes in_dim"], columns: Int64[Tensor, "nodes parts"]
    ) -> Float[Tensor, "nodes wider"]:
        """The features with these columns behind them."""
        # One more, for those that have none.
        more = rows.new_zeros(len(rows), self.width + 1)
        more.scatter_(1, columns.masked_fill(columns < 0, self.width), 1.0)
        return torch.cat([rows, more[:, : self.width]], dim=1)


def _types(graph: Graph, num_types: int) -> np.ndarray:
    if graph.node_type is None or graph.node_type_names is None or len(graph.node_type_names) > num_types:
        there = len(graph.node_type_names or ())
        raise InputError(
            f"The model sees {num_types} types of nodes, {graph.name} has {there}. "
            "Take a graph with the same types, or train with type_inputs=false."
        )
    return graph.node_type


def _known(graph: Graph, targets: np.ndarray | None, num_classes: int) -> np.ndarray:
    """The classes of the training nodes."""
    # As narrow as they come: there may be hundreds of millions.
    known = np.full(graph.num_nodes, -1, dtype=np.int16 if num_classes < 1 << 15 else np.int32)
    if graph.split is not None and targets is not None:
        train = np.flatnonzero(np.asarray(graph.split) == 0)
        classes = targets[train]
        if len(train) and classes.max() >= num_classes:
            raise InputError(
                f"The model sees {num_classes} classes, {graph.name} has the class {classes.max()}. "
                "Take a graph with the same classes, or train with label_inputs=false."
            )
        known[train] = classes
    return known
