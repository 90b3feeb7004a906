"""Everything that a run carries from one step to the next."""

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from musegnn.baselines.contract import AnyModel
from musegnn.errors import StoreError
from musegnn.means import MeanEmbeddings
from musegnn.means.sharded import MappedShares, Means, Movable, ShardedMeans, copy_share
from musegnn.ranks import ALONE
from musegnn.training.checkpoint import Loaded, load_share


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

    @classmethod
    def read(cls, facts: Any) -> "Position":
        """From a checkpoint: nothing lies before the beginning of a run."""
        first = asdict(cls())
        is_one = isinstance(facts, dict) and facts.keys() == first.keys()
        best = facts["best"] if is_one else None
        for name, least in first.items() if is_one else ():
            if name == "best":
                kinds = [type(part) for part in best] if isinstance(best, list) else []
                is_one &= best is None or kinds == [float, float]
            else:
                is_one &= type(facts[name]) is type(least) and facts[name] >= least
        if not is_one:
            raise StoreError(f"The checkpoint is at no position of a run, {str(facts)[:200]}. Train again.")
        return cls(**facts)

    def begin_epoch(self) -> None:
        """The next epoch."""
        self.epoch += 1
        self.batch = 0
        self.loss_sum, self.num_correct, self.num_labeled, self.epoch_seconds = 0.0, 0, 0, 0.0


@dataclass
class State:
    """Weights, optimizer, M, and the position. Random numbers are a function of the seed and the step."""

    model: AnyModel
    optimizer: torch.optim.Optimizer
    means: Movable | None
    position: Position

    def tensors(self) -> dict[str, Tensor]:
        """All of it but mapped means."""
        return {**self.prediction_tensors(), **_optimizer_tensors(self.optimizer)}

    def prediction_tensors(self) -> dict[str, Tensor]:
        """What predictions depend on."""
        tensors = {f"model.{name}": part for name, part in self.model.state_dict().items()}
        if isinstance(self.means, MeanEmbeddings):
            tensors |= _means_tensors(self.means)
        return tensors

    def share(self) -> dict[str, Tensor] | None:
        """The rows of M that are this rank's, of several, unless they lie on disk."""
        return (_means_tensors(self.means.own) or None) if isinstance(self.means, ShardedMeans) else None

    def facts(self) -> dict[str, Any]:
        """The position as JSON."""
        return asdict(self.position)

    def load(self, saved: Loaded) -> None:
        """Go back to where it was taken."""
        self.load_prediction(saved)
        _load_optimizer(self.optimizer, saved.tensors)
        self.position = Position.read(saved.facts.get("position"))

    def load_prediction(self, saved: Loaded) -> None:
        """Weights and means only."""
        load_prediction(self.model, self.means, saved)


@torch.no_grad()
def load_prediction(model: AnyModel, means: Means | None, saved: Loaded) -> None:
    """Weights, and means that lie in memory, of whatever number of ranks."""
    prefix, tensors = "model.", saved.tensors
    weights = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise StoreError(
            f"The checkpoint is of another model: {reason} Pass the model it began with."
        ) from error
    if means is None or isinstance(means, MappedShares) or means.home not in ("device", "host"):
        return
    ranks = means.ranks if isinstance(means, ShardedMeans) else ALONE
    own = means.own if isinstance(means, ShardedMeans) else means
    num_nodes = means.shape[0]
    num_shares = max(len(saved.shares), 1)
    for number in range(num_shares):
        part = load_share(*saved.shares[number]) if saved.shares else tensors
        rows = len(range(number, num_nodes, num_shares))
        for name, shape in (("means.M", [rows, own.M.shape[1]]), ("means.count", [rows])):
            if name not in part or list(part[name].shape) != shape:
                raise StoreError(f"The checkpoint has no {name} of {shape}. Train again.")
        shares = (ranks.rank, ranks.size), part["means.M"], part["means.count"], (number, num_shares)
        copy_share(own, *shares)


def _means_tensors(means: MeanEmbeddings) -> dict[str, Tensor]:
    is_in_memory = means.home in ("device", "host")
    return {"means.M": means.M, "means.count": means.count} if is_in_memory else {}


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    return {
        f"optimizer.{number}.{name}": torch.as_tensor(value)
        for number, entry in optimizer.state_dict()["state"].items()
        for name, value in entry.items()
    }


def _load_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Adam's numbers of each weight; one that had no gradient so far has none."""
    state: dict[int, dict[str, Tensor]] = {}
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    for number, weight in enumerate(weights):
        shapes = {"step": torch.Size(), "exp_avg": weight.shape, "exp_avg_sq": weight.shape}
        keys = {name: f"optimizer.{number}.{name}" for name in shapes}
        entry = {name: tensors[key] for name, key in keys.items() if key in tensors}
        if entry and {name: tensor.shape for name, tensor in entry.items()} != shapes:
            raise StoreError(f"The checkpoint has other numbers of Adam than weight {number}. Train again.")
        state |= {number: entry} if entry else {}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
