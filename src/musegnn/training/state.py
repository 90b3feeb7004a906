"""Everything that a run carries from one step to the next."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from musegnn.errors import StoreError
from musegnn.means import MeanEmbeddings
from musegnn.models import MuseGNN


@dataclass
class Position:
    """Where a run is. `step` counts all optimizer steps; `batch` those of this epoch."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    num_correct: int = 0
    num_labeled: int = 0
    best: list[float] | None = None
    """The best validation metric so far, and minus the loss there."""
    best_epoch: int = -1
    seconds: float = 0.0
    """Of all processes that worked on this run."""
    epoch_seconds: float = 0.0
    is_done: bool = False

    def begin_epoch(self) -> None:
        """The next epoch."""
        self.epoch += 1
        self.batch = 0
        self.loss_sum, self.num_correct, self.num_labeled, self.epoch_seconds = 0.0, 0, 0, 0.0


@dataclass
class State:
    """Weights, optimizer, M, and the position. Random numbers are a function of the seed and the step."""

    model: MuseGNN
    optimizer: torch.optim.Optimizer
    means: MeanEmbeddings | None
    position: Position

    def tensors(self) -> dict[str, Tensor]:
        """All of it but mapped means."""
        return {**self.prediction_tensors(), **_optimizer_tensors(self.optimizer)}

    def prediction_tensors(self) -> dict[str, Tensor]:
        """What predictions depend on."""
        tensors = {f"model.{name}": part for name, part in self.model.state_dict().items()}
        if self.means is not None and self.means.home in ("device", "host"):
            tensors |= {"means.M": self.means.M, "means.count": self.means.count}
        return tensors

    def facts(self) -> dict[str, Any]:
        """The position as JSON."""
        return asdict(self.position)

    def load(self, tensors: dict[str, Tensor], position: dict[str, Any]) -> None:
        """Go back to where these were taken."""
        self.load_prediction(tensors)
        _load_optimizer(self.optimizer, tensors)
        self.position = Position(**position)

    @torch.no_grad()
    def load_prediction(self, tensors: dict[str, Tensor]) -> None:
        """Weights and means only."""
        load_prediction(self.model, self.means, tensors)


@torch.no_grad()
def load_prediction(model: MuseGNN, means: MeanEmbeddings | None, tensors: dict[str, Tensor]) -> None:
    """Weights, and means that lie in memory."""
    prefix = "model."
    weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            f"The checkpoint is of another model: {reason} Pass the model it began with."
        ) from error
    if means is not None and "means.M" in tensors:
        means.M.copy_(tensors["means.M"])
        means.count.copy_(tensors["means.count"])


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimizer.{number}.{name}": torch.as_tensor(value)
        for number, entry in optimizer.state_dict()["state"].items()
        for name, value in entry.items()
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        if key.startswith("optimizer."):
            _, number, name = key.split(".", 2)
            state.setdefault(int(number), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
