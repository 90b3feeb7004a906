"""What came of a step: on a GPU it is known only later, and nobody waits for it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from musegnn.training.batches import Batch


def place_of(batch: Batch, epoch: int) -> str:
    """Which step."""
    return f"Epoch {epoch + 1}, training sample {batch.index}"


@dataclass(frozen=True)
class Outcome:
    """Loss, norm of the gradient, labels that were met, labels there were."""

    where: str
    numbers: Float64[Tensor, "4"]
    """In memory that the GPU writes to by itself."""
    event: torch.cuda.Event | None
    """When it has."""

    @classmethod
    def of(cls, batch: Batch, epoch: int, loss: Tensor, norm: Tensor, logits: Tensor) -> "Outcome":
        """Nothing is waited for."""
        targets = batch.targets
        if targets.ndim == 2:
            known = ~targets.isnan()
            correct = ((logits > 0) == (targets > 0.5)) & known
        else:
            known = targets >= 0
            correct = (logits.argmax(dim=1) == targets) & known
        numbers = torch.stack([part.double() for part in (loss, norm, correct.sum(), known.sum())])
        if numbers.device.type != "cuda":
            return cls(place_of(batch, epoch), numbers.cpu(), None)
        there = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        there.copy_(numbers, non_blocking=True)
        return cls(place_of(batch, epoch), there, torch.cuda.current_stream().record_event())

    def read(self) -> tuple[float, float, float, float]:
        """The numbers, as soon as they are there."""
        if self.event is not None:
            self.event.synchronize()
        loss, norm, correct, known = self.numbers.tolist()
        return loss, norm, correct, known
