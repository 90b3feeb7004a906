"""Descent steps as a layer of a PyG model."""

from typing import Any

from torch import Tensor, nn

from musegnn.errors import InputError
from musegnn.unfolding import Energy, unfold
from musegnn.unfolding.contract import Alpha
from musegnn.unfolding.energy import number
from musegnn.unfolding.penalty import Rows


class MuseConv(nn.Module):
    """K descent steps between the layers of any model: `x = MuseConv(lambda_=4.0)(x, edge_index)`.

    The channels stay as many as they are. `edge_index` holds both directions of each edge.

    Args:
        steps: K.
        alpha: The step size, or "auto".
        settings: Of `musegnn.Energy`: lambda_, laplacian, prox, precondition.
    """

    def __init__(self, *, steps: int = 8, alpha: Alpha = "auto", **settings: Any) -> None:
        super().__init__()
        self.steps, self.alpha = steps, alpha
        self.energy = Energy(**settings)
        if number(self.energy.gamma) > 0:
            raise InputError("A layer has no means: gamma must be 0. Take musegnn.MuseGNN for gamma > 0.")

    def forward(self, x: Rows, edge_index: Tensor) -> Rows:
        """Y^(K) from Z = x."""
        return unfold(x, edge_index, self.energy, self.steps, self.alpha)
