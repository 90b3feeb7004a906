"""Accuracy, macro-F1 and ROC-AUC, as scikit-learn defines them: of whole arrays, or batch by batch.

A node has one class number, or, where `y_true` has two dimensions, a 0 or 1 for each task.
Whatever is -1 or NaN in `y_true` is unknown and ignored.
"""

import math
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer, Shaped
from numpy.typing import ArrayLike
from torch import Tensor

from musegnn.errors import DivergenceError, InputError
from musegnn.graph.checks import as_array

METRICS = ("accuracy", "macro_f1", "roc_auc")


def accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Share of the labeled nodes whose class is right; of the known entries, where there are tasks.

    Answers to tasks are 0 or 1, or logits: above 0 means 1.
    """
    labels, answers = _labels_and_answers(y_true, y_pred)
    return float((labels == answers)[labels >= 0].mean())


def macro_f1(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """The plain mean of 2 TP / (2 TP + FP + FN) over the classes that occur in either array.

    With tasks, over those with a known entry; a task without a 1 in either array counts as 0.
    """
    labels, answers = _labels_and_answers(y_true, y_pred)
    known = labels >= 0
    if labels.ndim == 2:
        is_one, is_answer = (labels == 1) & known, (answers == 1) & known
        return _mean_f1((is_one & is_answer).sum(0), is_one.sum(0), is_answer.sum(0), known.sum(0) > 0)
    classes, places = np.unique(np.concatenate([labels[known], answers[known]]), return_inverse=True)
    truth, answer = places.reshape(2, -1)
    hits, labeled, answered = (
        np.bincount(values, minlength=len(classes)) for values in (truth[truth == answer], truth, answer)
    )
    return _mean_f1(hits, labeled, answered, np.ones(len(classes), dtype=bool))


def roc_auc(y_true: ArrayLike, scores: ArrayLike) -> float:
    """The chance that a positive node scores above a negative one, a tie counting half.

    Scores of shape (nodes,) are of class 1 against class 0. Shape (nodes, classes), probabilities as a rule:
    each class against the rest, plain mean over the classes. Tasks: plain mean over the tasks. Classes and
    tasks of one outcome only are left out; NaN if that leaves none.
    """
    labels, values = _some_labels(y_true), _numbers(scores, "scores")
    known = labels >= 0
    if labels.ndim == 2 or values.ndim == 1:
        if values.shape != labels.shape:
            raise _shapes_differ("scores", values, labels)
        truth, is_counted = labels.reshape(len(labels), -1), known.reshape(len(labels), -1)
        if truth.max() > 1:
            raise InputError(
                f"A label is class {truth.max()}, but scores of shape {values.shape} are of class 1 against "
                "class 0. Pass a column of scores for each class."
            )
        columns = zip(values.reshape(truth.shape).T, truth.T, is_counted.T, strict=True)
        return _mean(_area(column[some], answer[some] == 1) for column, answer, some in columns)
    if values.ndim != 2 or len(values) != len(labels):
        raise _shapes_differ("scores", values, labels)
    _check_classes(labels, values.shape[1])
    found, values = labels[known], values[known]
    return _mean(_area(values[:, c], found == c) for c in np.unique(found))


def evaluate_scores(
    y_true: ArrayLike, logits: ArrayLike, metrics: tuple[str, ...] = METRICS
) -> dict[str, float]:
    """Several metrics of the logits of a model, whole; those that are undefined are left out."""
    book = ScoreBook(metrics)
    book.count(_numbers(logits, "logits"), _some_labels(y_true))
    return book.metrics()


class ScoreBook:
    """The metrics of many batches, in the memory of a confusion matrix.

    ROC-AUC alone needs the scores themselves: 4 bytes for each labeled node and class, on the CPU. Logits are
    compared as probabilities there, since a softmax changes the order of the nodes. What is counted is whole
    numbers: neither the order of the batches nor their size changes a bit.

    Args:
        metrics: Which of `METRICS` to keep.
    """

    def __init__(self, metrics: tuple[str, ...] = METRICS) -> None:
        for name in metrics:
            if name not in METRICS:
                raise InputError(f"There is no metric {name!r}; allowed are {', '.join(METRICS)}.")
        self.names = tuple(metrics)
        self.num_labeled = 0
        """Nodes with a label so far."""
        self.confusion: Integer[np.ndarray, "*outputs truth answer"] | None = None
        """How often a class was answered for a class; with tasks, a 2 x 2 matrix for each."""
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []

    def add(
        self,
        logits: Float[Tensor, "seeds outputs"],
        targets: Shaped[Tensor, " seeds"] | Shaped[Tensor, "seeds outputs"],
    ) -> None:
        """Count a batch: class numbers, or 0, 1 or NaN for each task; -1 is unlabeled."""
        # NumPy has no bfloat16; float64 keeps its digits for the argmax.
        values = logits.detach().to("cpu", torch.promote_types(logits.dtype, torch.float32))
        truth = targets.detach().cpu()
        self.count(values.numpy(), _labels((truth.float() if truth.is_floating_point() else truth).numpy()))

    def count(self, logits: Shaped[np.ndarray, "..."], labels: Integer[np.ndarray, "..."]) -> None:
        """Count a batch of arrays, -1 where a label is unknown."""
        if logits.ndim != 2 or labels.shape not in (logits.shape[:1], logits.shape):
            raise _shapes_differ("logits", logits, labels)
        known = labels >= 0
        if not np.isfinite(logits[known]).all():
            raise DivergenceError(
                "The model gave logits that are not finite: it has diverged. Begin again with a lower lr."
            )
        outputs = logits.shape[1]
        if labels.ndim == 1:
            _check_classes(labels, outputs)
        shape = (outputs, outputs) if labels.ndim == 1 else (outputs, 2, 2)
        if self.confusion is None:
            self.confusion = np.zeros(shape, dtype=np.int64)
        if self.confusion.shape != shape:
            raise InputError(
                f"A batch makes a confusion matrix of shape {shape}, the batches before it "
                f"{self.confusion.shape}. Use one ScoreBook for each model and kind of labels."
            )
        if labels.ndim == 1:
            cells: tuple[np.ndarray, ...] = (labels[known], logits[known].argmax(axis=1))
        else:
            cells = (np.nonzero(known)[1], labels[known], (logits[known] > 0).astype(np.int8))
        np.add.at(self.confusion, cells, 1)
        rows = known if labels.ndim == 1 else known.any(axis=1)
        self.num_labeled += int(rows.sum())
        if "roc_auc" in self.names:
            # Indexed by a mask, so a copy: the caller may use its memory again.
            self._kept.append((logits[rows].astype(np.float32, copy=False), labels[rows]))

    def metrics(self) -> dict[str, float]:
        """Those asked for, of all batches so far, except where undefined: no labels, or one class for AUC."""
        if self.num_labeled == 0 or self.confusion is None:
            return {}
        compute = {"accuracy": self._accuracy, "macro_f1": self._macro_f1, "roc_auc": self._roc_auc}
        values = {name: compute[name](self.confusion) for name in self.names}
        return {name: value for name, value in values.items() if not math.isnan(value)}

    def _accuracy(self, confusion: np.ndarray) -> float:
        return float(confusion.trace(axis1=-2, axis2=-1).sum() / confusion.sum())

    def _macro_f1(self, confusion: np.ndarray) -> float:
        if confusion.ndim == 3:
            labeled, answered = confusion[:, 1].sum(axis=1), confusion[:, :, 1].sum(axis=1)
            return _mean_f1(confusion[:, 1, 1], labeled, answered, confusion.sum(axis=(1, 2)) > 0)
        labeled, answered = confusion.sum(axis=1), confusion.sum(axis=0)
        return _mean_f1(confusion.diagonal(), labeled, answered, labeled + answered > 0)

    def _roc_auc(self, confusion: np.ndarray) -> float:
        """A column at a time, so that no second copy of all batches is made."""
        labels = np.concatenate([labels for _, labels in self._kept])
        if labels.ndim == 2:
            columns = (
                np.concatenate([values[:, t] for values, _ in self._kept]) for t in range(len(confusion))
            )
            pairs = zip(columns, labels.T, strict=True)
            return _mean(_area(column[truth >= 0], truth[truth >= 0] == 1) for column, truth in pairs)
        parts = [(values, *_log_sum_exp(values)) for values, _ in self._kept]
        return _mean(
            _area(np.concatenate([values[:, c] - most - rest for values, most, rest in parts]), labels == c)
            for c in np.unique(labels)
        )


def _log_sum_exp(
    logits: Float[np.ndarray, "nodes classes"],
) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """The largest logit, and what is to be added to it.

    In float64 and apart: in float32 all probabilities above 1 - 6e-8 would be tied, and rounding the sum
    would part nodes that are tied.
    """
    largest = logits.max(axis=1).astype(np.float64)
    return largest, np.log(np.exp(logits - largest[:, None]).sum(axis=1))


def _area(scores: Shaped[np.ndarray, " nodes"], is_positive: Bool[np.ndarray, " nodes"]) -> float:
    """(pairs in order + ties / 2) / pairs, which is what midranks give; NaN without a pair."""
    if np.isnan(scores).any():
        raise InputError("scores hold NaN, which has no rank. Give each labeled node a number.")
    positive, negative = np.sort(scores[is_positive]), np.sort(scores[~is_positive])
    if not len(positive) or not len(negative):
        return math.nan
    # Whole numbers, so that the order of the nodes changes no bit.
    below, not_above = (int(np.searchsorted(negative, positive, side).sum()) for side in ("left", "right"))
    return (below + not_above) / (2 * len(positive) * len(negative))


def _mean(values: Iterator[float]) -> float:
    """Of the values that are defined."""
    defined = [value for value in values if not math.isnan(value)]
    return math.fsum(defined) / len(defined) if defined else math.nan


def _mean_f1(
    hits: Integer[np.ndarray, " classes"],
    labeled: Integer[np.ndarray, " classes"],
    answered: Integer[np.ndarray, " classes"],
    counted: Bool[np.ndarray, " classes"],
) -> float:
    return float((2 * hits / np.maximum(labeled + answered, 1))[counted].mean())


def _labels_and_answers(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    labels, answers = _some_labels(y_true), _numbers(y_pred, "y_pred")
    if answers.shape != labels.shape:
        raise _shapes_differ("y_pred", answers, labels)
    return labels, answers if labels.ndim == 1 else (answers > 0).astype(np.int8)


def _some_labels(y_true: ArrayLike) -> np.ndarray:
    labels = _labels(_numbers(y_true, "y_true"))
    if not (labels >= 0).any():
        raise InputError(
            f"None of the {len(labels)} nodes has a label: there is nothing to measure. "
            "Pass labeled nodes; -1 and NaN mean unlabeled."
        )
    return labels


def _labels(values: Shaped[np.ndarray, "..."]) -> Integer[np.ndarray, "..."]:
    """Class numbers (nodes,), or 0 and 1 (nodes, tasks), with -1 where unknown."""
    if values.ndim not in (1, 2):
        raise InputError(
            f"Labels must have shape (nodes,) for class numbers or (nodes, tasks) for 0 and 1, "
            f"got {values.shape}. Flatten the rest."
        )
    is_float = values.dtype.kind == "f"
    whole = np.where(np.isnan(values), -1, values) if is_float else values
    is_bad = (whole < -1) | (whole > (1 if values.ndim == 2 else np.iinfo(np.int64).max // 2))
    is_bad = is_bad | (whole != np.floor(whole)) if is_float else is_bad
    if is_bad.any():
        allowed = (
            "0 or 1 (pass class numbers as one dimension)" if values.ndim == 2 else "a class number from 0"
        )
        raise InputError(
            f"A label is {whole[is_bad][0]}; it must be {allowed}, or -1 or NaN where there is none."
        )
    return np.asarray(whole.astype(np.int8 if values.ndim == 2 else np.int64))


def _numbers(values: ArrayLike, what: str) -> np.ndarray:
    array = as_array(values, what)
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} must hold numbers, got {array.dtype}. Number the classes from 0.")
    return array


def _check_classes(labels: np.ndarray, num_classes: int) -> None:
    if len(labels) and labels.max() >= num_classes:
        raise InputError(
            f"A label is class {labels.max()}, but scores are of the classes 0 to {num_classes - 1}. "
            "Pass a column of scores for each class."
        )


def _shapes_differ(what: str, values: np.ndarray, labels: np.ndarray) -> InputError:
    hint = "Give each node one, in the same order."
    if what == "y_pred" and labels.ndim == 1 and values.ndim == 2:
        hint = "Take the argmax over the classes."
    return InputError(f"{what} of shape {values.shape} do not fit labels of shape {labels.shape}. {hint}")
