"""What a typed energy has learned of each relation, as analysis.json has it."""

from math import inf, isqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from musegnn.graph import Graph
from musegnn.unfolding.typed import TypedEnergy

_CLASSES = 30
_CELLS = 8000
"""Of all affinities together, at most."""
_VALUES = 64
"""Of a spectrum, at most."""


@torch.no_grad()
def relations_of(
    energy: TypedEnergy, graph: Graph, class_sums: Float64[np.ndarray, "classes columns"]
) -> dict[str, Any]:
    """Of each H_r, in each direction: its lambda, its norm, its singular values, and whom classes point to.

        A_r[c, c'] = cos(y_c H_r, y_c'),   y_c: the mean embedding of the nodes of class c, less that of all c

    Less their mean, since after a ReLU all of them point the same way, more or less.

    Args:
        energy: With what it has learned.
        graph: Tells the names.
        class_sums: Of each class the number of nodes, and the sum of their embeddings.
    """
    names = energy.names_of_ways(graph.relation_names)
    nodes = class_sums[:, 0] if class_sums.size else np.zeros(0)
    there = np.flatnonzero(nodes)
    shown = there[np.argsort(-nodes[there], kind="stable")[: min(_CLASSES, isqrt(_CELLS // len(names)))]]
    Y = torch.from_numpy(class_sums[shown, 1:] / nodes[shown, None]) if len(shown) else None
    given, (_, norms), Hs = graph.class_names, energy.mixings(), energy.mixings.matrices()
    began = energy.mixings.begins_at * torch.eye(Hs.shape[-1]).to(Hs)
    return {
        "classes": [given[c] if given is not None and c < len(given) else f"class {c}" for c in shown],
        "ways": [
            {"name": name, "lambdas": _ends(weights), "norm": float(norm), **_way(H.double().cpu(), Y)}
            | {"moved": _short(float(torch.dist(H, began, inf)))}
            for name, weights, norm, H in zip(names, energy.lambdas, norms, Hs, strict=True)
        ],
    }


def _way(H: torch.Tensor, Y: torch.Tensor | None) -> dict[str, Any]:
    values = torch.linalg.svdvals(H).numpy()
    kept = np.unique(np.linspace(0, len(values) - 1, _VALUES).round().astype(np.int64))
    found: dict[str, Any] = {"dim": len(H), "places": (kept + 1).tolist()}
    found["spectrum"] = [_short(value) for value in values[kept]]
    if Y is not None:
        Y = Y - Y.mean(dim=0)
        said = torch.nn.functional.normalize(Y @ H, dim=1)
        heard = torch.nn.functional.normalize(Y, dim=1)
        found["affinity"] = [[_short(value) for value in row] for row in (said @ heard.T).tolist()]
    return found


def _ends(weights: torch.Tensor) -> list[float]:
    """The least and the largest of the channels."""
    return [float(weights.min()), float(weights.max())]


def _short(value: float) -> float:
    """As much of it as a chart can show."""
    return float(f"{value:.4g}")
