"""What a step is, from its number alone: learning rate, order, random numbers. No state, so none to save."""

import hashlib
import json
import math
from typing import Literal, get_args

import numpy as np
from jaxtyping import Int64

from musegnn.errors import InputError

Schedule = Literal["constant", "cosine", "linear"]


def learning_rate(step: int, *, total: int, lr: float, schedule: str, warmup: int) -> float:
    """The learning rate of an optimizer step, counted from 0.

        t < warmup:  lr (t + 1) / (warmup + 1)
        constant:    lr
        linear:      lr (1 - p)                   p = (t - warmup) / (total - warmup)
        cosine:      lr (1 + cos(pi p)) / 2

    The first step already moves; step `warmup` has lr; step `total`, the first after the last, would have 0.

    Args:
        step: t.
        total: Steps of the whole run.
        lr: The largest.
        schedule: What follows the warmup.
        warmup: Steps before lr is reached.
    """
    if schedule not in get_args(Schedule):
        raise InputError(f"There is no schedule {schedule!r}; allowed are {', '.join(get_args(Schedule))}.")
    if not 0 <= warmup < total:
        raise InputError(
            f"warmup is {warmup}, but the run has {total} steps; it must be at least 0 and below that. "
            "Lower warmup or raise epochs."
        )
    if step < warmup:
        return lr * (step + 1) / (warmup + 1)
    progress = min((step - warmup) / (total - warmup), 1.0)
    share = {"constant": 1.0, "linear": 1 - progress, "cosine": (1 + math.cos(math.pi * progress)) / 2}
    return lr * share[schedule]


def num_steps(epochs: int, num_samples: int, samples_per_step: int) -> int:
    """Of a whole run; the last one of an epoch may have fewer samples."""
    return epochs * -(-num_samples // samples_per_step)


def epoch_order(num_samples: int, *, seed: int, epoch: int) -> Int64[np.ndarray, " num_samples"]:
    """All samples, each once, in the order of this epoch."""
    # Sorted by raw bits, which no version of NumPy changes; its own permutation may change.
    bits = np.random.Philox(key=_hash("musegnn order", seed, epoch)).random_raw(num_samples)
    return np.argsort(bits, kind="stable")


def sample_seed(seed: int, epoch: int, index: int) -> int:
    """For `torch.manual_seed` before a sample: dropout depends on nothing else, on no rank either."""
    return _hash("musegnn sample", seed, epoch, index) & (1 << 63) - 1


def epoch_seed(seed: int, epoch: int) -> int:
    """For the samples that are drawn for this epoch alone."""
    return _hash("musegnn step", seed, epoch) & (1 << 63) - 1


def _hash(purpose: str, seed: int, *numbers: int) -> int:
    """128 bits."""
    digest = hashlib.sha256(json.dumps([purpose, 1, int(seed), *map(int, numbers)]).encode()).digest()
    return int.from_bytes(digest[:16], "little")
