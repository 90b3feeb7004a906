"""Closed forms, ends, and that nothing but the arguments matters."""

import math
import os

import numpy as np
import problems
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from musegnn.training.schedule import epoch_order, epoch_seed, learning_rate, sample_seed

EXAMPLES = 2000 if os.environ.get("MUSEGNN_PROOF") else 60
NAMES = ["constant", "cosine", "linear"]


def rates(schedule, total, warmup, lr=0.5):
    steps = range(total + 1)
    return [learning_rate(t, total=total, lr=lr, schedule=schedule, warmup=warmup) for t in steps]


@settings(max_examples=EXAMPLES)
@given(st.sampled_from(NAMES), st.integers(1, 60), st.data())
def test_it_rises_to_lr_and_falls_to_zero(schedule, total, data):
    warmup = data.draw(st.integers(0, total - 1))
    found = rates(schedule, total, warmup)
    assert found[warmup] == 0.5
    assert all(0 < rate <= 0.5 for rate in found[:-1])
    rising, falling = found[: warmup + 1], found[warmup:]
    assert all(a < b for a, b in zip(rising[:-1], rising[1:], strict=True))
    # A straight line through 0, one step before the first.
    for t, rate in enumerate(rising):
        assert rate == pytest.approx(0.5 * (t + 1) / (warmup + 1), rel=1e-14)
    if schedule == "constant":
        assert set(falling) == {0.5}
    else:
        assert found[total] == 0
        assert all(a > b for a, b in zip(falling[:-1], falling[1:], strict=True))


def test_by_hand():
    assert rates("linear", 4, 0, lr=1.0) == [1, 0.75, 0.5, 0.25, 0]
    assert rates("linear", 5, 1, lr=1.0) == [0.5, 1, 0.75, 0.5, 0.25, 0]
    half = math.sqrt(0.5) / 2
    assert rates("cosine", 4, 0, lr=1.0) == pytest.approx([1, 0.5 + half, 0.5, 0.5 - half, 0], abs=1e-15)
    assert rates("constant", 4, 3, lr=1.0) == [0.25, 0.5, 0.75, 1, 1]


@pytest.mark.parametrize(("schedule", "end"), [("constant", 1.0), ("cosine", 0.0), ("linear", 0.0)])
def test_behind_the_end_it_stays(schedule, end):
    """A cosine would rise again."""
    assert learning_rate(17, total=10, lr=1.0, schedule=schedule, warmup=2) == end


def test_schedules_that_cannot_be():
    with problems.refused("There is no schedule 'step'; allowed are constant, cosine, linear."):
        learning_rate(0, total=1, lr=1.0, schedule="step", warmup=0)
    for warmup, total in ((5, 5), (7, 5), (-1, 5), (0, 0)):
        with problems.refused(
            f"warmup is {warmup}, but the run has {total} steps; it must be at least 0 and below that. "
            "Lower warmup or raise epochs."
        ):
            learning_rate(0, total=total, lr=1.0, schedule="constant", warmup=warmup)


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 300), st.integers(0, 2**63), st.integers(0, 10**6))
def test_an_epoch_is_a_full_permutation(num_samples, seed, epoch):
    order = epoch_order(num_samples, seed=seed, epoch=epoch)
    assert order.dtype == np.int64
    assert np.array_equal(np.sort(order), np.arange(num_samples))
    assert np.array_equal(order, epoch_order(num_samples, seed=seed, epoch=epoch))


def test_epochs_and_seeds_have_orders_of_their_own():
    orders = {tuple(epoch_order(50, seed=s, epoch=e)) for s in range(8) for e in range(8)}
    assert len(orders) == 64
    # A seed and an epoch do not stand in for each other.
    assert not np.array_equal(epoch_order(50, seed=1, epoch=2), epoch_order(50, seed=2, epoch=1))
    assert not np.array_equal(epoch_order(50, seed=1, epoch=11), epoch_order(50, seed=11, epoch=1))


def test_all_orders_are_equally_likely():
    """Chi squared over the 24 orders of 4 samples; 23 degrees of freedom pass 60 once in 30,000."""
    orders = [tuple(epoch_order(4, seed=0, epoch=e)) for e in range(4800)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 24
    assert sum((count - 200) ** 2 / 200 for count in counts) < 60


def test_random_numbers_ask_for_nothing_and_disturb_nobody():
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state()
    epoch_order(10, seed=0, epoch=0)
    sample_seed(0, 0, 0)
    assert np.random.get_state()[1].tolist() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_every_sample_has_a_seed_torch_takes():
    seeds = [sample_seed(s, e, t) for s in (0, 1, 2**63) for e in (0, 1) for t in range(250)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)
    # Both halves are used: a seed of 32 bits would repeat itself after 77,000 steps.
    assert max(seeds) > 2**62 > min(seeds)
    assert {seed & 1 for seed in seeds} == {0, 1}
    torch.manual_seed(max(seeds))
    with problems.unchecked():
        assert sample_seed(np.int64(1), np.int64(2), np.int64(3)) == sample_seed(1, 2, 3)


def test_the_numbers_are_these_in_every_process_and_version():
    """A run that is resumed under another release goes on as it began. Computed once, by this code."""
    assert epoch_order(8, seed=3, epoch=5).tolist() == [1, 0, 7, 4, 2, 3, 6, 5]
    assert epoch_seed(3, 5) == 2842191518587158926
    assert sample_seed(3, 5, 7) == 4635132862344365841
