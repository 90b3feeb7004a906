"""The loss on the seeds of a batch (eq. 10), and whether there is something to learn."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Integer, Shaped
from torch import Tensor

from musegnn.errors import InputError

LOSSES = ("cross_entropy", "bce")
UNLABELED = -1
Labels = Shaped[np.ndarray, "..."] | Shaped[Tensor, "..."]


@dataclass(frozen=True, eq=False)
class Loss:
    """(logits, targets) -> scalar: a weighted sum over the seeds, divided by the sum of the weights."""

    summed: Callable[[Tensor, Tensor], Tensor]
    weight: Callable[[Tensor], Tensor]
    """Of all seeds of a batch together; 0 if none has a label."""

    def __call__(self, logits: Tensor, targets: Tensor, total: Tensor | None = None) -> Tensor:
        """With the `total` weight of several batches, the share of this one."""
        summed = self.summed(logits, targets)
        total = self.weight(targets) if total is None else total
        # torch's own mean is 0 / 0 where nothing is labeled; divided by infinity, value and gradient are 0.
        return summed / total.to(summed).masked_fill(total == 0, torch.inf)


def make_loss(
    name: str, *, class_weights: Float[Tensor, " classes"] | None = None, label_smoothing: float = 0.0
) -> Loss:
    """The loss (logits, targets) -> scalar.

        cross_entropy:  sum_i -w_i log softmax(logits_i)[y_i] / sum_i w_i,   w_i = class_weights[y_i], or 1
        bce:            mean of softplus(x) - x y over the known entries y of the tasks

    Targets are class numbers with -1 for unlabeled seeds, or 0, 1 and NaN for each task. A batch without a
    label has the loss 0 and the gradient 0. Narrow logits are computed in float32.
    """
    if name not in LOSSES:
        near = difflib.get_close_matches(name, LOSSES, n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise InputError(f"There is no loss {name!r}; allowed are {', '.join(LOSSES)}.{hint}")
    if not 0 <= label_smoothing <= 1:
        raise InputError(f"label_smoothing must lie between 0 and 1, got {label_smoothing}.")
    if name == "bce":
        if class_weights is not None or label_smoothing:
            given = "label_smoothing" if class_weights is None else "class_weights"
            raise InputError(
                f"{given} belongs to loss 'cross_entropy', got loss 'bce'. Leave one of them out."
            )
        return Loss(_bce, lambda targets: (targets >= 0).sum())
    if class_weights is not None and not bool(((class_weights >= 0) & class_weights.isfinite()).all()):
        raise InputError(
            "class_weights must be finite and at least 0. Take class_weights_of(labels, classes)."
        )
    return Loss(
        partial(_cross_entropy, class_weights=class_weights, label_smoothing=label_smoothing),
        partial(_weight, class_weights),
    )


def _weight(class_weights: Float[Tensor, " classes"] | None, targets: Integer[Tensor, " seeds"]) -> Tensor:
    is_labeled = targets != UNLABELED
    if class_weights is None:
        return is_labeled.sum()
    weights = class_weights.to(targets.device)
    return torch.where(is_labeled, weights[targets.long().clamp(min=0)], 0).sum()


def _cross_entropy(
    logits: Float[Tensor, "seeds classes"],
    targets: Integer[Tensor, " seeds"],
    class_weights: Float[Tensor, " classes"] | None,
    label_smoothing: float,
) -> Float[Tensor, ""]:
    _check_shapes(logits, targets, logits.shape[:1])
    logits, targets = _exact(logits), targets.long()
    num_classes = logits.shape[1]
    # On a GPU the look would wait for the device at each step; torch stops there by itself.
    if targets.device.type == "cpu" and bool(((targets < UNLABELED) | (targets >= num_classes)).any()):
        raise InputError(
            f"Targets reach from {targets.min()} to {targets.max()}; a model of {num_classes} outputs allows "
            f"0 to {num_classes - 1}, and -1 for unlabeled. Give the model an output for each class."
        )
    weight = None if class_weights is None else class_weights.to(logits)
    if weight is not None and weight.shape != (num_classes,):
        raise InputError(
            f"class_weights must hold one weight for each of the {num_classes} outputs, got shape "
            f"{tuple(weight.shape)}. Take class_weights_of(labels, {num_classes})."
        )
    return F.cross_entropy(
        logits, targets, weight, ignore_index=UNLABELED, reduction="sum", label_smoothing=label_smoothing
    )


def _bce(logits: Float[Tensor, "seeds tasks"], targets: Shaped[Tensor, "seeds tasks"]) -> Float[Tensor, ""]:
    _check_shapes(logits, targets, logits.shape)
    logits = _exact(logits)
    # False for NaN as well.
    known = targets >= 0
    # Both sides are filled, since 0 * inf is no 0, on the way back either.
    return F.binary_cross_entropy_with_logits(
        torch.where(known, logits, 0),
        torch.where(known, targets, 0).to(logits),
        known.to(logits),
        reduction="sum",
    )


def class_weights_of(labels: Labels, num_classes: int) -> Float[Tensor, " classes"]:
    """1 / (training nodes of the class), scaled to the mean 1 over the labeled nodes; 0 for absent classes.

    Args:
        labels: Class numbers of the training nodes, -1 where unlabeled.
        num_classes: Outputs of the model.
    """
    check_learnable(labels)
    known = np.asarray(labels)
    known = known[known >= 0].astype(np.int64)
    if known.max() >= num_classes:
        raise InputError(
            f"A label is class {known.max()}, but num_classes is {num_classes}. Classes are numbered from 0."
        )
    counts = np.bincount(known, minlength=num_classes)
    present = counts > 0
    # The mean over the nodes of 1 / counts[label] is (classes present) / (labeled nodes).
    weights = np.where(present, len(known) / (present.sum() * np.maximum(counts, 1)), 0.0)
    return torch.from_numpy(weights)


def check_learnable(labels: Labels) -> None:
    """Training nodes have labels, and not all the same: class numbers, or 0 and 1 for each task."""
    values = np.asarray(labels)
    # False for NaN as well.
    known = values >= 0
    if not known.any():
        raise InputError(
            f"None of the {len(values)} training nodes has a label: there is nothing to learn from. "
            "Label some of them, or choose another train split."
        )
    columns = ((values, known),) if values.ndim == 1 else zip(values.T, known.T, strict=True)
    found = [np.unique(column[some]) for column, some in columns]
    if max(map(len, found)) < 2:
        which = f"of class {int(found[0][0])}" if values.ndim == 1 else "labeled the same in every task"
        count = len(known[known if values.ndim == 1 else known.any(axis=1)])
        raise InputError(
            f"All labeled training nodes ({count}) are {which}: there is nothing to learn. "
            "Label nodes of two classes or more, or choose another train split."
        )


def _exact(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _check_shapes(logits: Tensor, targets: Tensor, expected: torch.Size) -> None:
    if logits.ndim != 2 or targets.shape != expected:
        raise InputError(
            f"Logits of shape {tuple(logits.shape)} do not fit targets of shape {tuple(targets.shape)}. "
            "Pass logits (seeds, outputs) with targets (seeds,) for cross_entropy, (seeds, outputs) for bce."
        )
