"""What came of a step: on a GPU it is known only later, and nobody waits for it."""

from dataclasses import dataclass

import torch
from jaxtyping import Float64
from torch import Tensor

from musegnn.training.batches import Batch
from musegnn.unfolding.penalty import Rows


def place_of(batch: Batch, epoch: int) -> str:
    """Which step."""
    return f"Epoch {epoch + 1}, training sample {batch.index}"


@dataclass(frozen=True)
class Outcome:
    """Loss, norm of the gradient, labels that were met, labels there were, whether Y is finite."""

    where: str
    numbers: Float64[Tensor, "5"]
    """In memory that the GPU writes to by itself."""
    event: torch.cuda.Event | None
    """When it has."""

    @classmethod
    def of(
        cls, batch: Batch, epoch: int, loss: Tensor, norm: Tensor, logits: Tensor, Y: Rows | None
    ) -> "Outcome":
        """Nothing is waited for. Y is what M was moved by, if it was."""
        targets = batch.targets
        if targets.ndim == 2:
            known = ~targets.isnan()
            correct = ((logits > 0) == (targets > 0.5)) & known
        else:
            known = targets >= 0
            correct = (logits.argmax(dim=1) == targets) & known
        if logits.device.type != "cuda":
            # Whoever moved M has looked at Y.
            parts = (loss, norm, correct.sum(), known.sum(), torch.ones(()))
            return cls(place_of(batch, epoch), torch.stack([part.cpu().double() for part in parts]), None)
        is_finite = loss.new_ones(()) if Y is None else Y.isfinite().all()
        parts = (loss, norm, correct.sum(), known.sum(), is_finite)
        numbers = torch.stack([part.double() for part in parts])
        there = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        there.copy_(numbers, non_blocking=True)
        event = torch.cuda.current_stream(numbers.device).record_event()
        return cls(place_of(batch, epoch), there, event)

    def read(self) -> tuple[float, float, float, float, bool]:
        """The numbers, as soon as they are there."""
        if self.event is not None:
            self.event.synchronize()
        loss, norm, correct, known, is_finite = self.numbers.tolist()
        return loss, norm, correct, known, bool(is_finite)
