"""Against scikit-learn, and against cases worked by hand; batch by batch as at once."""

import math
import os

import numpy as np
import problems
import pytest
import sklearn.metrics
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from musegnn.errors import DivergenceError
from musegnn.training.metrics import METRICS, ScoreBook, accuracy, evaluate_scores, macro_f1, roc_auc

EXAMPLES = 1000 if os.environ.get("MUSEGNN_PROOF") else 20
SEEDS = st.integers(0, 2**32 - 1)


def classes_case(seed):
    """Some unlabeled nodes, some classes that are never answered or never true, scores with many ties."""
    rng = np.random.default_rng(seed)
    n, num_classes = int(rng.integers(2, 60)), int(rng.integers(2, 7))
    labels = rng.integers(-1, num_classes, n)
    labels[:2] = [0, 1]
    logits = rng.integers(-3, 4, (n, num_classes)) * rng.choice([0.5, 1.0, 2.5])
    return labels, logits.astype(np.float32)


def tasks_case(seed):
    """0, 1 and NaN; the first task has both outcomes, the last may have one or none."""
    rng = np.random.default_rng(seed)
    n, tasks = int(rng.integers(2, 60)), int(rng.integers(1, 5))
    truth = rng.choice([0.0, 1.0, np.nan], (n, tasks))
    truth[:2, 0] = [0, 1]
    return truth, rng.integers(-3, 4, (n, tasks)).astype(np.float32)


def softmax(logits):
    exps = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


def sklearn_auc(labels, scores):
    """Each class against the rest, where there is a rest."""
    found = [c for c in np.unique(labels) if (labels != c).any()]
    return np.mean([sklearn.metrics.roc_auc_score(labels == c, scores[:, c]) for c in found])


def sklearn_tasks(truth, logits):
    """Task by task over its known entries: accuracy of all, F1 and AUC as means."""
    known = ~np.isnan(truth)
    right = ((logits > 0) == truth)[known].mean()
    columns = [(truth[some, t], logits[some, t]) for t, some in enumerate(known.T) if some.any()]
    f1 = [sklearn.metrics.f1_score(y, x > 0, zero_division=0.0) for y, x in columns]
    auc = [sklearn.metrics.roc_auc_score(y, x) for y, x in columns if len(np.unique(y)) == 2]
    return {"accuracy": right, "macro_f1": np.mean(f1), "roc_auc": np.mean(auc)}


def close(value):
    return pytest.approx(value, rel=1e-12, abs=1e-15)


@settings(max_examples=EXAMPLES)
@given(SEEDS)
def test_classes_are_scored_as_by_scikit_learn(seed):
    labels, logits = classes_case(seed)
    answers, known = logits.argmax(axis=1), labels >= 0
    y, x = labels[known], answers[known]
    assert accuracy(labels, answers) == close(sklearn.metrics.accuracy_score(y, x))
    assert macro_f1(labels, answers) == close(sklearn.metrics.f1_score(y, x, average="macro"))
    scores = softmax(logits)
    assert roc_auc(labels, scores) == close(sklearn_auc(y, scores[known]))
    is_one = np.where(known, labels == 1, -1)
    assert roc_auc(is_one, logits[:, 0]) == close(sklearn.metrics.roc_auc_score(y == 1, logits[known, 0]))


def test_all_classes_at_once_are_scikit_learns_one_against_the_rest():
    rng = np.random.default_rng(0)
    labels, scores = rng.integers(0, 4, 200), softmax(rng.normal(size=(200, 4)))
    theirs = sklearn.metrics.roc_auc_score(labels, scores, multi_class="ovr", average="macro")
    assert roc_auc(labels, scores) == close(theirs)


@settings(max_examples=EXAMPLES)
@given(SEEDS)
def test_tasks_are_scored_as_by_scikit_learn(seed):
    truth, logits = tasks_case(seed)
    theirs = sklearn_tasks(truth, logits)
    assert accuracy(truth, logits) == close(theirs["accuracy"])
    assert macro_f1(truth, logits) == close(theirs["macro_f1"])
    assert roc_auc(truth, logits) == close(theirs["roc_auc"])
    # Answers in place of logits, and -1 in place of NaN.
    codes = np.nan_to_num(truth, nan=-1).astype(np.int8)
    assert macro_f1(codes, logits > 0) == macro_f1(truth, logits)
    assert accuracy(codes, (logits > 0).astype(int)) == accuracy(truth, logits)


def test_all_tasks_at_once_are_scikit_learns_macro_f1():
    rng = np.random.default_rng(1)
    truth, answers = rng.integers(0, 2, (50, 4)), rng.integers(0, 2, (50, 4))
    truth[:, 3] = answers[:, 3] = 0
    theirs = sklearn.metrics.f1_score(truth, answers, average="macro", zero_division=0.0)
    assert macro_f1(truth, answers) == close(theirs)


def test_by_hand():
    labels, answers = [0, 0, 1, 2, -1], [0, 1, 1, 1, 0]
    assert accuracy(labels, answers) == 0.5
    # Class 0: 2 * 1 / (2 + 1); class 1: 2 * 1 / (1 + 3); class 2 is never answered.
    assert macro_f1(labels, answers) == close((2 / 3 + 1 / 2 + 0) / 3)
    # A class that is answered but never true counts as well.
    assert macro_f1([0, 0], [0, 5]) == close((2 / 3 + 0) / 2)
    # Pairs (0.8, 0.1), (0.8, 0.5), (0.5, 0.1) in order, (0.5, 0.5) tied.
    assert roc_auc([1, 1, 0, 0], [0.8, 0.5, 0.1, 0.5]) == 3.5 / 4
    assert roc_auc([0, 1], [1.0, 1.0]) == 0.5
    assert roc_auc([0, 1, -1], [np.inf, -np.inf, np.nan]) == 0
    assert roc_auc(np.array([0.0, 1.0, np.nan]), torch.tensor([1, 2, 3])) == 1


def test_classes_and_tasks_of_one_outcome_are_left_out():
    scores = np.array([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0]])
    assert roc_auc([0, 1], scores) == 1
    assert math.isnan(roc_auc([1, 1], scores))
    assert math.isnan(roc_auc([1, 1], [0.3, 0.4]))
    truth = np.array([[0, 1, np.nan], [1, 1, np.nan]])
    assert roc_auc(truth, np.array([[1.0, 0, 0], [0, 0, 0]])) == 0
    # The task without an entry is no task; the one without a 1 is.
    assert macro_f1([[0, 1, np.nan], [0, 1, np.nan]], np.array([[0, 1, 1], [0, 1, 1]])) == 0.5


def batches(labels, logits, seed):
    """Cut anywhere, with empty batches and batches without a label, in any order."""
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, len(labels) + 1, 4))
    parts = list(zip(np.split(logits, cuts), np.split(labels, cuts), strict=True))
    return [parts[i] for i in rng.permutation(len(parts))]


@settings(max_examples=EXAMPLES)
@given(SEEDS, st.booleans())
def test_a_book_of_batches_is_the_whole_to_the_bit(seed, has_tasks):
    labels, logits = tasks_case(seed) if has_tasks else classes_case(seed)
    whole = evaluate_scores(labels, logits)
    book = ScoreBook()
    for part, truth in batches(labels, logits, seed):
        book.add(torch.from_numpy(part), torch.from_numpy(truth))
    assert book.metrics() == whole
    known = labels >= 0
    assert book.num_labeled == (known.any(axis=1).sum() if has_tasks else known.sum())
    assert whole["accuracy"] == accuracy(labels, logits if has_tasks else logits.argmax(axis=1))
    assert whole["macro_f1"] == close(macro_f1(labels, logits if has_tasks else logits.argmax(axis=1)))
    if has_tasks:
        assert whole["roc_auc"] == roc_auc(labels, logits)


@pytest.mark.parametrize("seed", range(5))
def test_logits_are_ranked_by_their_probabilities(seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, 60)
    logits = (4 * rng.normal(size=(60, 4)) + 20 * rng.normal(size=(60, 1))).astype(np.float32)
    # Whole rows again: ties.
    logits[50:] = logits[:10]
    ours = evaluate_scores(labels, logits)["roc_auc"]
    assert ours == close(sklearn_auc(labels, softmax(logits)))
    assert ours != close(sklearn_auc(labels, logits))


def test_two_classes_have_the_area_of_their_difference():
    """Also where float32 could tell the probabilities from 1 no more, and where they are tied."""
    rng = np.random.default_rng(0)
    margin = np.concatenate([rng.integers(-60, 60, 300) / 2, rng.integers(36, 60, 100) / 2])
    logits = np.stack([rng.integers(-5, 5, 400).astype(np.float64)] * 2, axis=1)
    logits[:, 1] += margin
    labels = (margin + rng.normal(size=400) * 10 > 5).astype(int)
    ours = evaluate_scores(labels, logits.astype(np.float32), ("roc_auc",))
    assert ours == {"roc_auc": close(sklearn.metrics.roc_auc_score(labels, margin))}


def test_a_number_added_to_all_logits_of_a_node_changes_no_bit():
    """Ties stay ties; the unequal scores of float64 would part them."""
    rng = np.random.default_rng(0)
    labels, logits = rng.integers(0, 3, 200), rng.integers(-9, 9, (10, 3))[rng.integers(0, 10, 200)] / 4
    shifted = logits + rng.integers(-40, 40, (200, 1))
    assert evaluate_scores(labels, shifted) == evaluate_scores(labels, logits)


def test_only_what_is_asked_for_is_kept():
    book = ScoreBook(("macro_f1", "accuracy"))
    for _ in range(3):
        book.add(torch.eye(4)[[0, 1, 2, 2]], torch.tensor([0, 1, 3, -1], dtype=torch.int32))
    assert book.metrics() == {"macro_f1": 0.5, "accuracy": close(2 / 3)}
    assert list(book.metrics()) == ["macro_f1", "accuracy"]
    assert book._kept == []
    # Class 3 was taken for class 2; classes are rows, answers columns.
    assert book.confusion.tolist() == [[3, 0, 0, 0], [0, 3, 0, 0], [0, 0, 0, 0], [0, 0, 3, 0]]
    tasks = ScoreBook(("accuracy",))
    tasks.add(torch.tensor([[1.0, -1.0], [1.0, 1.0]]), torch.tensor([[1.0, torch.nan], [0.0, 1.0]]))
    assert tasks.confusion.tolist() == [[[0, 1], [0, 1]], [[0, 0], [0, 1]]]


def test_scores_are_kept_as_float32_of_labeled_nodes_and_copied():
    book = ScoreBook()
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 5.0]], requires_grad=True)
    book.add(logits, torch.tensor([0, 1, -1]))
    assert [(values.dtype, values.shape) for values, _ in book._kept] == [(np.dtype(np.float32), (2, 2))]
    logits.data.zero_()
    assert book.metrics() == {"accuracy": 1, "macro_f1": 1, "roc_auc": 1}


def test_every_dtype_of_logits_and_targets():
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 1.0]])
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64):
        for targets in (torch.int8, torch.int32, torch.int64, torch.float32, torch.bfloat16):
            book = ScoreBook()
            book.add(logits.to(dtype), torch.tensor([0, 1, -1]).to(targets))
            assert book.metrics() == {"accuracy": 1, "macro_f1": 1, "roc_auc": 1}
    # 1e-12 is nothing to float32, and of two equal logits the first is taken.
    book = ScoreBook(("accuracy",))
    book.add(torch.tensor([[1.0, 1 + 1e-12]], dtype=torch.float64), torch.tensor([1]))
    book.add(torch.tensor([[1.0, 1.0]]), torch.tensor([0]))
    assert book.metrics() == {"accuracy": 1}


def test_what_is_undefined_is_left_out():
    book = ScoreBook()
    assert book.metrics() == {}
    book.add(torch.zeros(2, 3), torch.tensor([-1, -1]))
    assert (book.metrics(), book.num_labeled) == ({}, 0)
    book.add(torch.zeros(2, 3), torch.tensor([0, -1]))
    assert (book.metrics(), book.num_labeled) == ({"accuracy": 1, "macro_f1": 1}, 1)


@pytest.mark.parametrize("name", METRICS)
def test_nothing_labeled(name):
    function = {"accuracy": accuracy, "macro_f1": macro_f1, "roc_auc": roc_auc}[name]
    tail = "there is nothing to measure. Pass labeled nodes; -1 and NaN mean unlabeled."
    for labels in ([-1, -1], [math.nan, -1.0], [[math.nan], [math.nan]]):
        with problems.refused(f"None of the 2 nodes has a label: {tail}"):
            function(labels, np.zeros(np.shape(labels)))
    with problems.refused(f"None of the 0 nodes has a label: {tail}"):
        function([], [])
    with problems.refused(f"None of the 2 nodes has a label: {tail}"):
        evaluate_scores([-1, -1], np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("function", "labels", "given", "message"),
    [
        (
            accuracy,
            [0, 1],
            [0],
            "y_pred of shape (1,) do not fit labels of shape (2,). Give each node one, in the same order.",
        ),
        (
            macro_f1,
            [0, 1],
            [[0, 1], [1, 0]],
            "y_pred of shape (2, 2) do not fit labels of shape (2,). Take the argmax over the classes.",
        ),
        (
            roc_auc,
            [0, 1],
            [[0.5, 0.5]],
            "scores of shape (1, 2) do not fit labels of shape (2,). Give each node one, in the same order.",
        ),
        (
            roc_auc,
            [0, 1],
            [1.0],
            "scores of shape (1,) do not fit labels of shape (2,). Give each node one, in the same order.",
        ),
        (
            roc_auc,
            [[0, 1]],
            [[1.0]],
            "scores of shape (1, 1) do not fit labels of shape (1, 2). "
            "Give each node one, in the same order.",
        ),
        (
            roc_auc,
            [0, 1],
            1.0,
            "scores of shape () do not fit labels of shape (2,). Give each node one, in the same order.",
        ),
        (
            roc_auc,
            [0, 2],
            [1.0, 2.0],
            "A label is class 2, but scores of shape (2,) are of class 1 against class 0. "
            "Pass a column of scores for each class.",
        ),
        (
            roc_auc,
            [0, 2],
            [[1.0, 2.0], [1.0, 2.0]],
            "A label is class 2, but scores are of the classes 0 to 1. "
            "Pass a column of scores for each class.",
        ),
        (
            roc_auc,
            [0, 1],
            [1.0, math.nan],
            "scores hold NaN, which has no rank. Give each labeled node a number.",
        ),
        (
            evaluate_scores,
            [0, 1],
            [1.0, 2.0],
            "logits of shape (2,) do not fit labels of shape (2,). Give each node one, in the same order.",
        ),
        (
            accuracy,
            [0.5],
            [0],
            "A label is 0.5; it must be a class number from 0, or -1 or NaN where there is none.",
        ),
        (
            accuracy,
            [math.inf],
            [0],
            "A label is inf; it must be a class number from 0, or -1 or NaN where there is none.",
        ),
        (
            accuracy,
            [0, -2],
            [0, 0],
            "A label is -2; it must be a class number from 0, or -1 or NaN where there is none.",
        ),
        (
            macro_f1,
            [[3]],
            [[1]],
            "A label is 3; it must be 0 or 1 (pass class numbers as one dimension), "
            "or -1 or NaN where there is none.",
        ),
        (
            accuracy,
            [[[0]]],
            [[[0]]],
            "Labels must have shape (nodes,) for class numbers or (nodes, tasks) for 0 and 1, "
            "got (1, 1, 1). Flatten the rest.",
        ),
        (accuracy, ["a"], ["a"], "y_true must hold numbers, got <U1. Number the classes from 0."),
    ],
)
def test_arrays_that_do_not_fit(function, labels, given, message):
    with problems.refused(message):
        function(labels, given)


def test_batches_that_do_not_fit():
    with problems.refused("There is no metric 'f1'; allowed are accuracy, macro_f1, roc_auc."):
        ScoreBook(("accuracy", "f1"))
    book = ScoreBook()
    book.add(torch.zeros(1, 3), torch.tensor([0]))
    before = (book.metrics(), book.num_labeled, book.confusion.tolist())
    with problems.refused(
        "A batch makes a confusion matrix of shape (2, 2), the batches before it (3, 3). "
        "Use one ScoreBook for each model and kind of labels."
    ):
        book.add(torch.zeros(1, 2), torch.tensor([0]))
    with problems.refused(
        "A label is class 3, but scores are of the classes 0 to 2. Pass a column of scores for each class."
    ):
        book.add(torch.zeros(1, 3), torch.tensor([3]))
    with problems.refused(
        "logits of shape (1, 3) do not fit labels of shape (2,). Give each node one, in the same order."
    ):
        book.add(torch.zeros(1, 3), torch.tensor([0, 1]))
    for bad in (torch.nan, torch.inf, -torch.inf):
        with problems.refused(
            "The model gave logits that are not finite: it has diverged. Begin again with a lower lr.",
            DivergenceError,
        ):
            book.add(torch.tensor([[0.0, 0.0, bad]]), torch.tensor([0]))
    # Nobody asks for the answer of an unlabeled node.
    book.add(torch.full((1, 3), torch.nan), torch.tensor([-1]))
    assert (book.metrics(), book.num_labeled, book.confusion.tolist()) == before
