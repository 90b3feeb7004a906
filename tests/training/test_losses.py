"""Against torch's own losses and a loop in plain Python, value and gradient, in float64."""

import math

import numpy as np
import problems
import pytest
import torch
import torch.nn.functional as F
from sklearn.utils.class_weight import compute_class_weight

from musegnn.training.losses import check_learnable, class_weights_of, make_loss

CLASSES = 5
WEIGHTS = torch.tensor([0.5, 2.0, 0.0, 1.5, 1.0], dtype=torch.float64)


def batch(seed, *, unlabeled=True, n=23):
    rng = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, CLASSES, generator=rng, dtype=torch.float64)
    targets = torch.randint(-1 if unlabeled else 0, CLASSES, (n,), generator=rng)
    return logits.requires_grad_(), targets


def tasks(seed, n=23):
    rng = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, 4, generator=rng, dtype=torch.float64)
    targets = torch.randint(0, 3, (n, 4), generator=rng).double()
    targets[targets == 2] = torch.nan
    return logits.requires_grad_(), targets


def looped_cross_entropy(logits, targets, weights, smoothing):
    """sum_i ((1 - e) w[y_i] l_i[y_i] + e mean_c w[c] l_i[c]) / sum_i w[y_i], l = -log softmax, by hand."""
    value, gradient, total = 0.0, np.zeros(logits.shape), 0.0
    w = [1.0] * CLASSES if weights is None else weights.tolist()
    for i, y in enumerate(targets.tolist()):
        if y == -1:
            continue
        row = logits[i].tolist()
        exps = [math.exp(x - max(row)) for x in row]
        p = [e / sum(exps) for e in exps]
        total += w[y]
        for c in range(CLASSES):
            share = (1 - smoothing) * w[y] * (c == y) + smoothing / CLASSES * w[c]
            value -= share * math.log(p[c])
            for d in range(CLASSES):
                gradient[i, d] -= share * ((c == d) - p[d])
    return value / total, gradient / total


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["plain", "weighted"])
@pytest.mark.parametrize("smoothing", [0.0, 0.2, 1.0])
def test_cross_entropy_is_torchs_and_the_loop(weights, smoothing):
    for seed in range(5):
        logits, targets = batch(seed)
        loss = make_loss("cross_entropy", class_weights=weights, label_smoothing=smoothing)(logits, targets)
        theirs = F.cross_entropy(logits, targets, weights, ignore_index=-1, label_smoothing=smoothing)
        value, gradient = looped_cross_entropy(logits.detach(), targets, weights, smoothing)
        assert loss.item() == pytest.approx(value, rel=1e-12)
        torch.testing.assert_close(loss, theirs, rtol=1e-13, atol=1e-13)
        (ours,) = torch.autograd.grad(loss, logits)
        torch.testing.assert_close(ours, torch.from_numpy(gradient), rtol=1e-11, atol=1e-13)
        torch.testing.assert_close(ours, *torch.autograd.grad(theirs, logits), rtol=1e-11, atol=1e-13)


def test_bce_is_the_loop_over_known_entries():
    for seed in range(5):
        logits, targets = tasks(seed)
        loss = make_loss("bce")(logits, targets)
        value, gradient, count = 0.0, np.zeros(logits.shape), 0
        for i, row in enumerate(targets.tolist()):
            for t, y in enumerate(row):
                if math.isnan(y):
                    continue
                x = logits[i, t].item()
                p = 1 / (1 + math.exp(-x))
                value -= math.log(p if y else 1 - p)
                gradient[i, t] = p - y
                count += 1
        assert loss.item() == pytest.approx(value / count, rel=1e-12)
        (ours,) = torch.autograd.grad(loss, logits)
        torch.testing.assert_close(ours, torch.from_numpy(gradient / count), rtol=1e-11, atol=1e-14)
        known = ~targets.isnan()
        theirs = F.binary_cross_entropy_with_logits(logits[known], targets[known])
        torch.testing.assert_close(loss, theirs, rtol=1e-13, atol=1e-13)
        # -1 is as unknown as NaN, and the tasks may be whole numbers.
        for codes in (targets.nan_to_num(nan=-1), targets.nan_to_num(nan=-1).to(torch.int8)):
            assert torch.equal(make_loss("bce")(logits, codes), loss)


@pytest.mark.parametrize("name", ["cross_entropy", "bce"])
def test_gradcheck(name):
    logits, targets = batch(0, n=6) if name == "cross_entropy" else tasks(0, n=6)
    options = {"class_weights": WEIGHTS, "label_smoothing": 0.1} if name == "cross_entropy" else {}
    loss = make_loss(name, **options)
    assert torch.autograd.gradcheck(lambda x: loss(x, targets), (logits,))


@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_batch_without_labels_has_no_loss_and_no_gradient(n, weights, smoothing):
    logits = torch.randn(n, CLASSES, dtype=torch.float64, requires_grad=True)
    loss = make_loss("cross_entropy", class_weights=weights, label_smoothing=smoothing)
    check_zero(loss(logits, torch.full((n,), -1)), logits)
    logits = torch.randn(n, 4, requires_grad=True)
    check_zero(make_loss("bce")(logits, torch.full((n, 4), torch.nan)), logits)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_seeds_of_weight_zero_are_no_seeds(smoothing):
    logits, _ = batch(0, n=3)
    loss = make_loss("cross_entropy", class_weights=WEIGHTS, label_smoothing=smoothing)
    check_zero(loss(logits, torch.tensor([2, -1, 2])), logits)


def check_zero(loss, logits):
    assert loss.shape == ()
    assert loss.item() == 0
    loss.backward()
    assert logits.grad.shape == logits.shape
    assert not logits.grad.any()


def test_unknown_entries_of_any_size_do_no_harm():
    logits = torch.tensor([[torch.inf, 1.0], [0.0, torch.nan]], requires_grad=True)
    loss = make_loss("bce")(logits, torch.tensor([[torch.nan, 1.0], [0.0, torch.nan]]))
    expected = (math.log1p(math.exp(-1)) + math.log(2)) / 2
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    loss.backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad != 0).tolist() == [[False, True], [True, False]]


def test_narrow_logits_are_computed_in_float32():
    logits, targets = batch(0)
    narrow = logits.detach().bfloat16()
    loss = make_loss("cross_entropy", class_weights=WEIGHTS)(narrow, targets.to(torch.int32))
    assert loss.dtype == torch.float32
    exact = F.cross_entropy(narrow.double(), targets, WEIGHTS, ignore_index=-1)
    assert loss.item() == pytest.approx(exact.item(), rel=1e-5)
    assert make_loss("bce")(narrow, torch.ones_like(narrow)).dtype == torch.float32


def test_by_hand():
    uniform = torch.zeros(2, 4)
    assert make_loss("cross_entropy")(uniform, torch.tensor([1, -1])).item() == pytest.approx(math.log(4))
    assert make_loss("bce")(uniform, torch.ones(2, 4)).item() == pytest.approx(math.log(2))


def test_class_weights_are_scikit_learns():
    rng = np.random.default_rng(0)
    for _ in range(20):
        labels = rng.choice([-1, 0, 2, 3, 6], 50, p=[0.2, 0.5, 0.2, 0.05, 0.05]).astype(np.int32)
        known = labels[labels >= 0]
        present = np.unique(known)
        weights = class_weights_of(labels, 8)
        theirs = compute_class_weight("balanced", classes=present, y=known)
        np.testing.assert_allclose(weights[present].numpy(), theirs, rtol=1e-14)
        assert float(weights[known].mean()) == pytest.approx(1, rel=1e-14)
        assert weights.shape == (8,)
        assert not np.delete(weights.numpy(), present).any()
        assert torch.equal(class_weights_of(torch.from_numpy(labels), 8), weights)


def test_class_weights_by_hand():
    # 3 and 1 of 4 labeled nodes, two classes: 4 / (2 * 3) and 4 / (2 * 1).
    weights = class_weights_of(np.array([0, 0, 0, 2, -1]), 3)
    assert weights.tolist() == [pytest.approx(2 / 3), 0, 2]
    make_loss("cross_entropy", class_weights=weights)


@pytest.mark.parametrize("labels", [[], [-1, -1], [[math.nan, -1]]])
def test_no_labels_to_learn_from(labels):
    with problems.refused(
        f"None of the {len(labels)} training nodes has a label: there is nothing to learn from. "
        "Label some of them, or choose another train split."
    ):
        check_learnable(np.array(labels))


def test_one_class_only():
    tail = "there is nothing to learn. Label nodes of two classes or more, or choose another train split."
    for function in (check_learnable, lambda labels: class_weights_of(labels, 4)):
        with problems.refused(f"All labeled training nodes (2) are of class 3: {tail}"):
            function(np.array([3, -1, 3]))
    with problems.refused(f"All labeled training nodes (2) are labeled the same in every task: {tail}"):
        check_learnable(np.array([[0, 1], [math.nan, 1], [math.nan, math.nan]]))
    check_learnable(np.array([0, 1]))
    check_learnable(np.array([[0, 1], [1, 1]]))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        (
            "cross_entrop",
            {},
            "There is no loss 'cross_entrop'; allowed are cross_entropy, bce. Did you mean cross_entropy?",
        ),
        ("hinge", {}, "There is no loss 'hinge'; allowed are cross_entropy, bce."),
        ("cross_entropy", {"label_smoothing": -0.1}, "label_smoothing must lie between 0 and 1, got -0.1."),
        (
            "cross_entropy",
            {"label_smoothing": math.nan},
            "label_smoothing must lie between 0 and 1, got nan.",
        ),
        (
            "bce",
            {"label_smoothing": 0.1},
            "label_smoothing belongs to loss 'cross_entropy', got loss 'bce'. Leave one of them out.",
        ),
        (
            "bce",
            {"class_weights": WEIGHTS},
            "class_weights belongs to loss 'cross_entropy', got loss 'bce'. Leave one of them out.",
        ),
        (
            "cross_entropy",
            {"class_weights": torch.tensor([1.0, -1.0])},
            "class_weights must be finite and at least 0. Take class_weights_of(labels, classes).",
        ),
        (
            "cross_entropy",
            {"class_weights": torch.tensor([1.0, torch.inf])},
            "class_weights must be finite and at least 0. Take class_weights_of(labels, classes).",
        ),
    ],
)
def test_losses_that_do_not_exist(name, options, message):
    with problems.refused(message):
        make_loss(name, **options)


def test_batches_that_do_not_fit():
    hint = "Pass logits (seeds, outputs) with targets (seeds,) for cross_entropy, (seeds, outputs) for bce."
    loss = make_loss("cross_entropy", class_weights=WEIGHTS)
    for targets in (torch.zeros(3, dtype=torch.int64), torch.zeros(2, 5, dtype=torch.int64)):
        with problems.refused(
            f"Logits of shape (2, 5) do not fit targets of shape {tuple(targets.shape)}. {hint}"
        ):
            loss(torch.zeros(2, 5), targets)
    with problems.refused(f"Logits of shape (2, 5) do not fit targets of shape (2,). {hint}"):
        make_loss("bce")(torch.zeros(2, 5), torch.zeros(2))
    with problems.refused(f"Logits of shape (2,) do not fit targets of shape (2,). {hint}"):
        make_loss("bce")(torch.zeros(2), torch.zeros(2))
    for low, high in ((0, 5), (-2, 1)):
        with problems.refused(
            f"Targets reach from {low} to {high}; a model of 5 outputs allows 0 to 4, and -1 for unlabeled. "
            "Give the model an output for each class."
        ):
            loss(torch.zeros(2, 5), torch.tensor([high, low]))
    with problems.refused(
        "class_weights must hold one weight for each of the 4 outputs, got shape (5,). "
        "Take class_weights_of(labels, 4)."
    ):
        loss(torch.zeros(2, 4), torch.tensor([0, 1]))
    with problems.refused("A label is class 5, but num_classes is 3. Classes are numbered from 0."):
        class_weights_of(np.array([0, 5]), 3)
