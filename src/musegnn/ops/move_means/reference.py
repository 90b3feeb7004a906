"""Means move towards new embeddings, as eq. 9 says."""

import numpy as np
from jaxtyping import Float, Integer


def move_means(
    M: Float[np.ndarray, "nodes dim"],
    count: Integer[np.ndarray, " nodes"],
    ids: Integer[np.ndarray, " rows"],
    Y: Float[np.ndarray, "rows dim"],
    rho: float,
) -> None:
    """M_v <- w M_v + (1 - w) Y_v, w = rho c_v / (c_v + 1), c_v <- c_v + 1; no id comes twice."""
    weight = (rho * count[ids] / (count[ids] + 1))[:, None]
    M[ids] = weight * M[ids] + (1 - weight) * Y
    count[ids] += 1
