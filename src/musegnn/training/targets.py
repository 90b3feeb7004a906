"""What is to be predicted."""

import hashlib

import numpy as np
from numpy.typing import ArrayLike

from musegnn.errors import InputError
from musegnn.graph import Graph


def check_targets(graph: Graph, labels: ArrayLike | None, loss: str) -> np.ndarray:
    """The graph's labels, or those that were passed: one number a node, or a row of 0, 1 and NaN (bce)."""
    if labels is None:
        if loss == "bce":
            raise InputError(
                "loss='bce' needs labels: pass an array with a row of 0, 1 and NaN for each node."
            )
        if graph.labels is None:
            raise InputError(f"{graph.name} has no labels. Import it with labels, or pass labels.")
        return graph.labels
    targets = np.asarray(labels)
    if len(targets) != graph.num_nodes or targets.ndim not in (1, 2):
        raise InputError(
            f"labels must have {graph.num_nodes:,} rows, one for each node; got {targets.shape}."
        )
    if (targets.ndim == 2) != (loss == "bce"):
        raise InputError(
            f"loss={loss!r} does not fit labels of shape {targets.shape}: rows are for loss='bce'."
        )
    if targets.ndim == 2 and not bool((np.isnan(targets) | (targets == 0) | (targets == 1)).all()):
        raise InputError("labels of loss='bce' must be 0, 1 or NaN.")
    if targets.ndim == 1 and targets.dtype.kind not in "iu":
        raise InputError(f"labels must be whole numbers, -1 where there is none; got {targets.dtype}.")
    return targets


def digest_of(targets: np.ndarray) -> str:
    """SHA-256 of labels that no store knows."""
    head = f"{targets.dtype.str} {targets.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(targets).tobytes()).hexdigest()
