"""The peers, by name."""

import importlib

from musegnn.baselines.contract import Baseline, Shape
from musegnn.graph import Graph

BASELINES: dict[str, str] = {
    "GCN": "convolutions",
    "SAGE": "convolutions",
    "RSAGE": "relational",
    "GAT": "convolutions",
    "MLP": "propagation",
    "SGC": "propagation",
    "SIGN": "propagation",
    "APPNP": "propagation",
    "LabelPropagation": "labels",
    "LazyGNN": "lazy",
    "USP": "stochastic",
    "SGFormer": "transformer",
}
"""Name of a class -> the module of this room that has it."""


def make(name: str, graph: Graph, out_dim: int, shape: Shape) -> Baseline:
    """The peer of this name, its predictions smoothed if that is asked for."""
    kind: type[Baseline] = getattr(importlib.import_module(f"musegnn.baselines.{BASELINES[name]}"), name)
    model = kind(graph, out_dim, shape)
    if not shape.correct_and_smooth:
        return model
    from musegnn.baselines.labels import CorrectAndSmooth

    return CorrectAndSmooth(model)
