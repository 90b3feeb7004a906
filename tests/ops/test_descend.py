"""descend, pull_back, cut, propagate: dense matrices in float64, one-sided differences, torch's autograd.

Where all numbers are small multiples of 1/64, float32 and float64 are exact and the test asks for equality;
elsewhere it asks for the error that rounding each sum can make.
"""
# The symbols of the room: X, B, V, T.
# ruff: noqa: N803, N806

import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import ops
from musegnn.ops import Clip, Step, parallel
from musegnn.ops.descend import numba, plan
from strategies import Csr, csrs

CLIPS = {
    "none": Clip(),
    "relu": Clip(low=0.0),
    "below": Clip(high=0.5),
    "box": Clip(low=-0.5, high=0.75),
    "box without 0": Clip(low=0.25, high=1.5),
    "l1": Clip(weight=0.5),
    "nonnegative l1": Clip(weight=0.5, low=0.0),
    "l1 in a box": Clip(weight=0.5, low=-1.0, high=0.5),
    "l1 in a box without 0": Clip(weight=0.5, low=-1.5, high=-0.25),
}
ODD_CLIPS = [*CLIPS.values(), Clip(weight=0.3, low=-0.7, high=1.1), Clip(low=0.1, high=0.3)]
WIDTHS = [1, 7, 8, 63, 64, 65, 100, 129]
DTYPES = [np.float32, np.float64]

every_clip = pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
both = pytest.mark.parametrize("compiled", [True, False], ids=["numba", "reference"])
clips, widths, dtypes = (st.sampled_from(list(values)) for values in (ODD_CLIPS, WIDTHS, DTYPES))
threads_, seeds = st.sampled_from([1, 2, 3]), st.integers(0, 2**32 - 1)
examples = settings(max_examples=300 if os.environ.get("MUSEGNN_PROOF") else 40)


class Case(NamedTuple):
    csr: Csr
    step: Step
    X: np.ndarray
    B: np.ndarray

    @property
    def matrix(self) -> np.ndarray:
        """T = diag(keep) + diag(left) A diag(right), in float64."""
        keep, left, right, _ = (column.astype(np.float64) for column in self.step)
        return np.diag(keep) + left[:, None] * oracles.dense(*self.csr) * right

    @property
    def take(self) -> np.ndarray:
        return self.step.take.astype(np.float64)[:, None]

    @property
    def moved(self) -> np.ndarray:
        return self.matrix @ self.X.astype(np.float64) + self.take * self.B

    @property
    def slack(self) -> np.ndarray:
        """What rounding can do to `moved` and a little arithmetic behind it."""
        most = max([*np.diff(self.csr.indptr), 0]) + 12
        size = np.abs(self.matrix) @ np.abs(self.X) + self.take * np.abs(self.B) + self.take + 2
        return most * np.finfo(self.X.dtype).eps * size


def exact_case(csr, dim, dtype, seed):
    """Dyadic numbers, so that nothing is rounded and values lie on the edges of a penalty often."""
    rng, n = np.random.default_rng(seed), csr.num_nodes
    keep, left, right, take = (
        rng.choice(values, n).astype(dtype)
        for values in ([-0.5, 0, 0.5, 1], [-1, 0.25, 0.5], [-0.5, 0.25, 1], [0.25, 0.5, 1, 2])
    )
    X, B = (rng.integers(-6, 7, (2, n, dim)) / 4).astype(dtype)
    return Case(csr, Step(keep, left, right, take), X, B)


def random_case(csr, dim, dtype, seed):
    rng, n = np.random.default_rng(seed), csr.num_nodes
    keep, left, right = rng.standard_normal((3, n)).astype(dtype)
    take = rng.uniform(0.1, 1.5, n).astype(dtype)
    X, B = rng.standard_normal((2, n, dim)).astype(dtype)
    return Case(csr, Step(keep, left, right, take), X, B)


def graph(source, target, num_nodes, dtype=np.int32):
    matrix = oracles.symmetric_csr(source, target, num_nodes)
    return Csr(matrix.indptr.astype(np.int64), matrix.indices.astype(dtype))


def hub_among_leaves(leaves, num_edges, seed):
    """A node in the middle of the ids is a neighbor of all; some edges among the others."""
    rng, n = np.random.default_rng(seed), leaves + 1
    hub, others = n // 2, np.delete(np.arange(n), n // 2)
    return graph(
        [*others, *rng.choice(others, num_edges)], [*[hub] * leaves, *rng.choice(others, num_edges)], n
    )


GRAPHS = {
    "no nodes": graph([], [], 0),
    "isolated nodes": graph([], [], 5),
    "an edge": graph([0], [1], 2, np.int64),
    "star": graph([30] * 30, range(30), 31),
    "path": graph(range(8), range(1, 9), 9, np.int64),
    **{f"complete {n}": graph(*np.triu_indices(n, 1), n) for n in range(3, 15)},
}


def prox(moved, half, clip):
    return np.clip(np.sign(moved) * np.maximum(np.abs(moved) - half, 0), clip.low, clip.high)


def place(column, dim):
    """The byte and the bit of a column: 64 columns lie in w bytes, column q w + c at bit q of byte c."""
    block, inside = divmod(column, 64)
    bit, byte = divmod(inside, -(-min(64, dim - 64 * block) // 8))
    return 8 * block + byte, bit


def bits(mask, dim):
    columns = [mask[:, byte] >> bit & 1 for byte, bit in (place(f, dim) for f in range(dim))]
    return np.stack(columns, axis=1).astype(bool)


def empty_mask(case):
    n, dim = case.X.shape
    return np.full((n, -(-dim // 8)), 0xFF, dtype=np.uint8)


def descend(case, clip, **options):
    """out, mask and energy, on memory that is not zero by luck; what is only read stays as it is."""
    out, mask = np.full_like(case.X, np.nan), empty_mask(case)
    before = [part.tobytes() for part in (*case.csr, *case.step, case.X, case.B)]
    energy = ops.descend(*case.csr, case.step, case.X, case.B, clip, out, mask, **options)
    assert [part.tobytes() for part in (*case.csr, *case.step, case.X, case.B)] == before
    return out, mask, energy


def pull_back(case, V, mask, total, **options):
    out, total, before = np.full_like(V, np.nan), total.copy(), V.tobytes()
    ops.pull_back(*case.csr, case.step, V, mask, total, out, **options)
    assert V.tobytes() == before
    return out, total


def propagate(case, **options):
    out = np.full_like(case.X, np.nan)
    ops.propagate(*case.csr, case.X, out, **options)
    return out


def check_exactly(case, clip, compiled, threads):
    """Equality with the dense step; a bit is set where both one-sided derivatives of the prox are 1."""
    moved, half, tiny, dim = case.moved, clip.weight * case.take / 2, 2.0**-12, case.X.shape[1]
    out, mask, energy = descend(case, clip, compiled=compiled, threads=threads)
    assert energy is None
    expected = prox(moved, half, clip)
    np.testing.assert_array_equal(out, expected)
    up, down = prox(moved + tiny, half, clip) - expected, expected - prox(moved - tiny, half, clip)
    is_free = (up == tiny) & (down == tiny)
    np.testing.assert_array_equal(bits(mask, dim), is_free)
    assert np.unpackbits(mask).sum() == is_free.sum()


@both
@given(
    csr=csrs(),
    clip=st.sampled_from(list(CLIPS.values())),
    dim=widths,
    dtype=dtypes,
    threads=threads_,
    seed=seeds,
)
@examples
def test_a_step_on_any_graph_is_the_dense_one(compiled, csr, clip, dim, dtype, threads, seed):
    check_exactly(exact_case(csr, dim, dtype, seed), clip, compiled, threads)


@both
@pytest.mark.parametrize("csr", GRAPHS.values(), ids=GRAPHS)
def test_a_step_on_known_graphs_is_the_dense_one(compiled, csr):
    """Among them every number of neighbors from 0 to 13."""
    for dim, clip in product((1, 65), CLIPS.values()):
        check_exactly(exact_case(csr, dim, np.float32, dim), clip, compiled, 2)


@both
@every_clip
def test_a_step_of_any_width_is_the_dense_one(compiled, clip):
    for dim, dtype in product(WIDTHS, DTYPES):
        check_exactly(exact_case(GRAPHS["star"], dim, dtype, dim), clip, compiled, 3)


@both
@given(csr=csrs(), clip=clips, dim=widths, dtype=dtypes, threads=threads_, seed=seeds)
@examples
def test_a_step_is_exact_up_to_rounding(compiled, csr, clip, dim, dtype, threads, seed):
    case = random_case(csr, dim, dtype, seed)
    out, _, _ = descend(case, clip, compiled=compiled, threads=threads)
    assert out.dtype == dtype
    expected = prox(case.moved, clip.weight * case.take / 2, clip)
    assert (np.abs(out - expected) <= case.slack).all()


@given(csr=csrs(), clip=clips, dim=widths, dtype=dtypes, seed=seeds)
@examples
def test_a_step_solves_its_proximal_problem(csr, clip, dim, dtype, seed):
    """0 is a subgradient of |y - moved|^2 / 2 + half |y| on [low, high]: no formula of y is used."""
    case = random_case(csr, dim, dtype, seed)
    y = descend(case, clip)[0].astype(np.float64)
    low, high = (np.float64(dtype(limit)) for limit in (clip.low, clip.high))
    assert ((low <= y) & (y <= high)).all()
    half = clip.weight * case.take / 2
    pull, slack = case.moved - y, case.slack
    # pull must lie in half * [slope from the left, slope from the right], opened at the limits.
    least = np.where(y == low, -np.inf, half * np.where(y > 0, 1.0, -1.0))
    most = np.where(y == high, np.inf, half * np.where(y < 0, -1.0, 1.0))
    assert ((least - slack <= pull) & (pull <= most + slack)).all()


@given(csr=csrs(), clip=clips, dim=widths, dtype=dtypes, threads=threads_, seed=seeds)
@examples
def test_without_a_mask_the_step_is_the_same(csr, clip, dim, dtype, threads, seed):
    case = random_case(csr, dim, dtype, seed)
    out, alone = descend(case, clip)[0], np.full_like(case.X, np.nan)
    assert ops.descend(*case.csr, case.step, case.X, case.B, clip, alone, threads=threads) is None
    assert alone.tobytes() == out.tobytes()


@both
@given(csr=csrs(), dim=widths, dtype=dtypes, threads=threads_, masked=st.booleans(), seed=seeds)
@examples
def test_the_way_back_is_the_dense_one(compiled, csr, dim, dtype, threads, masked, seed):
    case = exact_case(csr, dim, dtype, seed)
    is_free = np.random.default_rng(seed).random(case.X.shape) < 0.5
    mask = plan.pack(is_free) if masked else None
    out, total = pull_back(case, case.X, mask, case.B, compiled=compiled, threads=threads)
    np.testing.assert_array_equal(total, case.B + case.take * case.X)
    expected = case.matrix.T @ case.X.astype(np.float64)
    np.testing.assert_array_equal(out, np.where(is_free, expected, 0) if masked else expected)


@both
@given(csr=csrs(), dim=widths, dtype=dtypes, seed=seeds)
@examples
def test_the_way_back_is_the_transpose(compiled, csr, dim, dtype, seed):
    """<T X + take B, V> = <X, T' V> + <B, take V>, without rounding."""
    case = exact_case(csr, dim, dtype, seed)
    V = (np.random.default_rng(seed).integers(-4, 5, case.X.shape) / 4).astype(dtype)
    there, _, _ = descend(case, Clip(), compiled=compiled)
    back, total = pull_back(case, V, None, np.zeros_like(V), compiled=compiled)
    forward = np.sum(there.astype(np.float64) * V)
    assert forward == np.sum(back.astype(np.float64) * case.X) + np.sum(total.astype(np.float64) * case.B)


@both
@every_clip
@pytest.mark.parametrize("dim", [1, 7, 65])
def test_steps_and_the_way_back_are_autograd_through_dense_steps(compiled, clip, dim):
    case = random_case(hub_among_leaves(12, 20, seed=dim), dim, np.float64, seed=dim)
    # Small steps: the gradient goes through all of them.
    case = case._replace(step=Step(*(0.4 * column for column in case.step)))
    T, take = torch.from_numpy(case.matrix), torch.from_numpy(case.take)
    start, B = (torch.tensor(part, requires_grad=True) for part in (case.X, case.B))
    U, masks, X = start, [], case.X
    for _ in range(3):
        moved = T @ U + take * B
        U = (moved.sign() * torch.relu(moved.abs() - clip.weight * take / 2)).clamp(clip.low, clip.high)
        X, mask, _ = descend(case._replace(X=X), clip, compiled=compiled)
        masks.append(mask)
    np.testing.assert_allclose(X, U.detach(), rtol=0, atol=1e-13)
    G = np.random.default_rng(0).standard_normal(case.X.shape)
    expected = torch.autograd.grad(U, (start, B), torch.from_numpy(G))
    V, total = G.copy(), np.zeros_like(G)
    ops.cut(V, masks[-1], compiled=compiled)
    for mask in (*masks[-2::-1], None):
        V, total = pull_back(case, V, mask, total, compiled=compiled)
    assert clip.is_free or (masks[-1] != 0).any()
    np.testing.assert_allclose(V, expected[0], rtol=0, atol=1e-13)
    np.testing.assert_allclose(total, expected[1], rtol=0, atol=1e-13)


@both
@given(dim=widths, num_nodes=st.integers(0, 20), dtype=dtypes, threads=threads_, seed=seeds)
@examples
def test_cut_puts_zeros_where_the_mask_has_them(compiled, dim, num_nodes, dtype, threads, seed):
    rng = np.random.default_rng(seed)
    V, is_free = rng.standard_normal((num_nodes, dim)).astype(dtype), rng.random((num_nodes, dim)) < 0.5
    V[rng.random(V.shape) < 0.1] = np.nan
    expected = np.where(is_free, V, 0)
    ops.cut(V, plan.pack(is_free), threads=threads, compiled=compiled)
    np.testing.assert_array_equal(V, expected)


@both
@given(csr=csrs(), dim=widths, dtype=dtypes, threads=threads_, seed=seeds)
@examples
def test_propagate_adds_up_the_neighbors(compiled, csr, dim, dtype, threads, seed):
    case = exact_case(csr, dim, dtype, seed)
    out = propagate(case, compiled=compiled, threads=threads)
    np.testing.assert_array_equal(out, oracles.dense(*csr) @ case.X)


@both
@pytest.mark.parametrize("adds", [False, True])
@given(csr=csrs(), dim=widths, dtype=dtypes, threads=threads_, seed=seeds)
@examples
def test_weighed_sums_are_those_of_dense_matrices(compiled, adds, csr, dim, dtype, threads, seed):
    case = exact_case(csr, dim, dtype, seed)
    _, left, right, take = (part[:, None] for part in case.step)
    expected = left * (oracles.dense(*csr) @ (right * case.X)) + (take * case.B if adds else 0)
    out, weights = np.full_like(case.X, np.nan), (case.step.left, case.step.right)
    added = (case.step.take, case.B) if adds else ()
    ops.propagate_weighed(*csr, *weights, case.X, out, *added, compiled=compiled, threads=threads)
    np.testing.assert_array_equal(out, expected)


@both
@given(csr=csrs(), clip=clips, dim=widths, dtype=dtypes, threads=threads_, seed=seeds)
@examples
def test_the_watched_number_is_what_its_formula_says(compiled, csr, clip, dim, dtype, threads, seed):
    case = random_case(csr, dim, dtype, seed)
    X, B = case.X.astype(np.float64), case.B.astype(np.float64)
    out, mask, energy = descend(case, clip, watch=True, compiled=compiled, threads=threads)
    expected = np.sum(X * ((X - case.moved) / case.take - B)) + clip.weight * np.abs(X).sum()
    sizes = np.abs(X) * ((np.abs(X) + case.slack / np.finfo(dtype).eps) / case.take + np.abs(B) + clip.weight)
    assert abs(energy - expected) <= 8 * np.finfo(dtype).eps * sizes.sum()
    unwatched = descend(case, clip, compiled=compiled, threads=threads)
    assert (out.tobytes(), mask.tobytes()) == (unwatched[0].tobytes(), unwatched[1].tobytes())


@both
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("which", [0, 1], ids=["normalized", "combinatorial"])
def test_the_watched_number_is_the_dense_energy(compiled, threads, which):
    """<X, H X> - 2 <X, B> + weight |X|_1, H = h I + lambda L, with a step size for each row."""
    csr = hub_among_leaves(20, 30, seed=which)
    rng, n = np.random.default_rng(which), csr.num_nodes
    H = 1.5 * np.eye(n) + 2.5 * oracles.laplacians(*csr)[which]
    scale = (np.diff(csr.indptr) + 1.0) ** -0.5 if which == 0 else np.ones(n)
    take = rng.uniform(0.1, 1, n)
    X, B = rng.standard_normal((2, n, 70))
    step = Step(1 - take * np.diag(H), 2.5 * take * scale, scale, take)
    clip = Clip(weight=0.7)
    _, _, energy = descend(Case(csr, step, X, B), clip, watch=True, compiled=compiled, threads=threads)
    expected = np.sum(X * (H @ X)) - 2 * np.sum(X * B) + 0.7 * np.abs(X).sum()
    assert energy == pytest.approx(expected, rel=1e-12)


@both
def test_the_watched_number_is_added_up_in_float64(compiled):
    """In float32 the sum over half a million rows of 0.1 would be off by more than 1e-4."""
    n, blocks = 500_000 if compiled else 2000, 1 if compiled else 250
    ones = np.ones(n, dtype=np.float32)
    X = np.full((n, blocks), 0.1, dtype=np.float32)
    case = Case(
        Csr(np.zeros(n + 1, dtype=np.int64), np.empty(0, np.int32)), Step(ones, ones, ones, ones), X, X
    )
    _, _, energy = descend(case, Clip(), watch=True, compiled=compiled)
    # keep X + take B = 2 X, so that each entry counts X (-X - X).
    assert energy == pytest.approx(-2 * float(X[0, 0]) ** 2 * n * blocks, rel=1e-6)


@both
@every_clip
@pytest.mark.parametrize("part", ["X", "B"])
def test_a_nan_is_never_hidden(compiled, clip, part):
    case = exact_case(GRAPHS["path"], 70, np.float32, seed=3)
    case = case._replace(step=case.step._replace(keep=np.zeros(9, dtype=np.float32)))
    for column in (0, 63, 64, 69):
        spoiled = getattr(case, part).copy()
        spoiled[4, column] = np.nan
        out, mask, energy = descend(case._replace(**{part: spoiled}), clip, watch=True, compiled=compiled)
        reached = [3, 4, 5] if part == "X" else [4]
        assert np.isnan(out[reached, column]).all()
        assert np.isnan(energy)
        assert not bits(mask, 70)[reached, column].any()
        assert np.isfinite(np.delete(out, column, axis=1)).all()
        if compiled:
            assert np.isnan(out).sum() == len(reached)


@every_clip
def test_an_infinite_number_goes_where_the_penalty_lets_it(clip):
    """The dense reference has 0 * inf in its sums, and so only the kernel is asked."""
    case = exact_case(GRAPHS["path"], 3, np.float64, seed=1)
    ones = np.ones(9)
    case = case._replace(step=Step(ones, ones, ones, ones))
    case.X[1] = [np.inf, -np.inf, np.inf]
    case.X[3, 2] = -np.inf
    out, mask, _ = descend(case, clip)
    ends = [max(clip.high, clip.low), min(clip.high, clip.low)]
    assert out[0, :2].tolist() == out[1, :2].tolist() == out[2, :2].tolist() == ends
    assert not bits(mask, 3)[:3].any()
    assert np.isnan(out[2, 2])


@both
def test_a_nan_in_a_gradient_goes_back_to_the_neighbors(compiled):
    case = exact_case(GRAPHS["path"], 70, np.float32, seed=3)
    V = case.X.copy()
    V[4, 66] = np.nan
    out, total = pull_back(case, V, None, case.B, compiled=compiled)
    assert np.isnan(out[3:6, 66]).all()
    assert np.argwhere(np.isnan(total)).tolist() == [[4, 66]]
    assert np.isnan(propagate(case._replace(X=V), compiled=compiled)[[3, 5], 66]).all()


@both
@given(
    csr=csrs(), clip=clips, dim=widths, dtype=dtypes, threads=threads_, limit=st.integers(0, 4), seed=seeds
)
@examples
def test_rows_above_the_limit_are_left_alone(compiled, csr, clip, dim, dtype, threads, limit, seed):
    """Of the others every bit is that of all rows; what is watched are they."""
    case, n = random_case(csr, dim, dtype, seed), csr.num_nodes
    levels = np.random.default_rng(seed).choice([0, 1, 2, 3, 255], n).astype(np.uint8)
    rows, options = levels <= limit, {"compiled": compiled, "threads": threads}
    before = levels.copy()
    whole, whole_mask, _ = descend(case, clip, **options)
    out, mask, energy = descend(case, clip, **options, levels=levels, limit=limit, watch=True)
    assert out[rows].tobytes() == whole[rows].tobytes()
    assert mask[rows].tobytes() == whole_mask[rows].tobytes()
    assert np.isnan(out[~rows]).all()
    assert (mask[~rows] == 0xFF).all()
    X, B = case.X.astype(np.float64), case.B.astype(np.float64)
    each = X * ((X - case.moved) / case.take - B) + clip.weight * np.abs(X)
    sizes = np.abs(X) * ((np.abs(X) + case.slack / np.finfo(dtype).eps) / case.take + np.abs(B) + clip.weight)
    assert abs(energy - each[rows].sum()) <= 8 * np.finfo(dtype).eps * sizes.sum()
    is_free = np.random.default_rng(seed).random(case.X.shape) < 0.5
    marks = plan.pack(is_free) if seed % 2 else None
    whole, whole_total = pull_back(case, case.X, marks, case.B, **options)
    out, total = pull_back(case, case.X, marks, case.B, **options, levels=levels, limit=limit)
    assert out[rows].tobytes() == whole[rows].tobytes()
    assert total[rows].tobytes() == whole_total[rows].tobytes()
    assert np.isnan(out[~rows]).all()
    assert total[~rows].tobytes() == case.B[~rows].tobytes()
    np.testing.assert_array_equal(levels, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_limit_may_pass_the_largest_level(dtype):
    """Levels are bytes, limits are not."""
    case = exact_case(GRAPHS["path"], 7, dtype, seed=1)
    levels = np.array([0, 1, 2, 3, 254, 255, 255, 0, 1], dtype=np.uint8)
    for limit, some in ((254, levels <= 254), (255, levels >= 0), (256, levels >= 0), (1000, levels >= 0)):
        out, _, _ = descend(case, Clip(), levels=levels, limit=limit)
        np.testing.assert_array_equal(np.isnan(out).any(axis=1), ~some)
        back, _ = pull_back(case, case.X, None, case.B, levels=levels, limit=limit)
        np.testing.assert_array_equal(np.isnan(back).any(axis=1), ~some)


def big_case(dtype=np.float32):
    """A hub of 20,000 neighbors."""
    return random_case(hub_among_leaves(20_000, 30_000, seed=0), 129, dtype, seed=0)


def test_no_byte_depends_on_the_number_of_threads():
    case, clip = big_case(), Clip(weight=0.3, low=-0.7)
    results, energies = [], []
    for threads in (1, 2, 3, 7):
        out, mask, energy = descend(case, clip, watch=True, threads=threads)
        back, total = pull_back(case, case.B, mask, case.X, threads=threads)
        summed, marked = propagate(case, threads=threads), case.B.copy()
        ops.cut(marked, mask, threads=threads)
        results.append([part.tobytes() for part in (out, mask, back, total, summed, marked)])
        energies.append(energy)
    assert all(result == results[0] for result in results)
    # The order of this sum is the only one that changes.
    assert energies == pytest.approx([energies[0]] * 4, rel=1e-12)


@given(csr=csrs(), dim=widths, threads=st.integers(1, 9))
@examples
def test_tasks_are_all_rows_and_columns_once(csr, dim, threads):
    count = np.zeros((csr.num_nodes, dim), dtype=int)
    for begin, end, first, last in plan.tasks(csr.indptr, dim, threads):
        assert 0 <= begin < end <= csr.num_nodes
        assert 0 <= first < last <= dim
        # A byte of a mask is never written by two.
        assert first % 64 == 0
        assert last % 64 == 0 or last == dim
        # Only a hub is cut: who needs the indices of many rows twice pays for them twice.
        assert end == begin + 1 or (first, last) == (0, dim)
        count[begin:end, first:last] += 1
    assert (count == 1).all()


@given(csr=csrs(), threads=st.integers(2, 9))
@examples
def test_no_task_has_more_than_two_shares_unless_it_is_one_block_of_a_hub(csr, threads):
    work = np.diff(csr.indptr) + 1
    share = work.sum() / (8 * threads)
    for begin, end, first, last in plan.tasks(csr.indptr, 129, threads):
        if end - begin > 1:
            assert work[begin:end].sum() <= 2 * share
        else:
            assert last - first <= 64


@pytest.mark.parametrize("hub", [0, 1, 5_000, 10_000, 19_999, 20_000])
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_a_hub_is_cut_wherever_it_stands(hub, threads):
    """A third of all work: uncut, it would keep one thread busy while all others wait."""
    n = 20_001
    csr = graph(np.full(n - 1, hub), np.delete(np.arange(n), hub), n)
    pieces = plan.tasks(csr.indptr, 256, threads)
    assert [piece for piece in pieces if piece[0] <= hub < piece[1]] == [
        (hub, hub + 1, first, first + 64) for first in range(0, 256, 64)
    ]
    work = np.diff(csr.indptr) + 1
    largest = max(work[begin:end].sum() * (last - first) / 256 for begin, end, first, last in pieces)
    assert largest <= max(work.sum() / (4 * threads), n / 4)


def test_there_are_enough_tasks_for_threads_to_end_together():
    csr = graph(range(9999), range(1, 10_000), 10_000)
    for threads in (2, 5):
        pieces = plan.tasks(csr.indptr, 64, threads)
        lengths = [end - begin for begin, end, _, _ in pieces]
        assert len(pieces) >= 6 * threads
        assert max(lengths) <= 2 * min(lengths)


def test_one_thread_has_one_task():
    assert plan.tasks(np.arange(8), 300, 1) == [(0, 7, 0, 300)]


def test_nothing_to_do_is_no_task():
    assert plan.tasks(np.zeros(1, dtype=np.int64), 300, 3) == []


@pytest.mark.parametrize("dim", [*range(1, 18), 24, *WIDTHS[3:], 128, 191, 192])
def test_the_place_of_every_bit(dim):
    assert ops.num_bytes(dim) == -(-dim // 8)
    for column in range(dim):
        byte, bit = place(column, dim)
        mask = plan.pack(np.arange(dim)[None] == column)
        assert np.flatnonzero(mask[0]).tolist() == [byte]
        assert mask[0, byte] == 1 << bit
        assert np.flatnonzero(plan.unpack(mask, dim)[0]).tolist() == [column]


@given(dim=st.integers(1, 300), num_nodes=st.integers(0, 5), seed=seeds)
@examples
def test_a_mask_is_packed_and_unpacked(dim, num_nodes, seed):
    is_free = np.random.default_rng(seed).random((num_nodes, dim)) < 0.5
    mask = plan.pack(is_free)
    assert (mask.dtype, mask.shape) == (np.uint8, (num_nodes, ops.num_bytes(dim)))
    np.testing.assert_array_equal(plan.unpack(mask, dim), is_free)
    np.testing.assert_array_equal(bits(mask, dim), is_free)


@pytest.mark.parametrize(("clip", "is_free"), [(clip, name == "none") for name, clip in CLIPS.items()])
def test_only_a_clip_without_weight_and_limits_is_free(clip, is_free):
    assert clip.is_free == is_free


@pytest.mark.parametrize("threads", [1, 2])
def test_mapped_and_read_only_arrays_give_what_others_do_and_keep_their_flags(tmp_path, threads):
    case = random_case(graph(range(8), range(1, 9), 9), 65, np.float32, seed=0)
    expected = [part.tobytes() for part in descend(case, CLIPS["relu"])[:2]]

    def mapped(part, mode):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        part.tofile(path)
        return np.memmap(path, dtype=part.dtype, mode=mode, shape=part.shape)

    indptr, indices, X, B = (mapped(part, "r") for part in (*case.csr, case.X, case.B))
    out, mask = mapped(np.full_like(case.X, np.nan), "r+"), mapped(empty_mask(case), "r+")
    ops.descend(indptr, indices, case.step, X, B, CLIPS["relu"], out, mask, threads=threads)
    assert [out.tobytes(), mask.tobytes()] == expected
    assert all(part.flags.writeable for part in (*case.csr, case.X, case.B))
    back, total = pull_back(case, case.X, mask, case.B, threads=threads)
    total_mapped, back_mapped = mapped(case.B, "r+"), mapped(np.full_like(case.X, np.nan), "r+")
    ops.pull_back(indptr, indices, case.step, X, mask, total_mapped, back_mapped, threads=threads)
    assert (back_mapped.tobytes(), total_mapped.tobytes()) == (back.tobytes(), total.tobytes())
    ops.propagate(indptr, indices, X, out, threads=threads)
    assert out.tobytes() == propagate(case).tobytes()
    gradient, expected_cut = mapped(case.B, "r+"), case.B.copy()
    ops.cut(gradient, mask, threads=threads)
    ops.cut(expected_cut, np.array(mask))
    assert gradient.tobytes() == expected_cut.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_indices_of_both_kinds_give_the_same_bytes(dtype):
    csr = hub_among_leaves(50, 100, seed=2)
    narrow = random_case(csr, 65, dtype, seed=0)
    wide = narrow._replace(csr=Csr(csr.indptr, csr.indices.astype(np.int64)))
    results = [
        [
            part.tobytes()
            for part in (
                *descend(case, CLIPS["l1"])[:2],
                propagate(case),
                *pull_back(case, case.X, None, case.B),
            )
        ]
        for case in (narrow, wide)
    ]
    assert results[0] == results[1]


def sparse_file(shape, dtype):
    """Zeros on a disk that need no room there until they are written."""
    with tempfile.TemporaryFile() as file:
        file.truncate(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype=dtype, shape=shape).view(np.ndarray)


def test_entries_beyond_32_bits_are_found():
    """The last columns of five rows of 2**30: row 4 begins at entry 2**32."""
    dim, first = 1 << 30, (1 << 30) - 70
    csr = graph([0, 1, 2], [4, 4, 4], 5)
    tail = exact_case(csr, 70, np.float32, seed=0)
    X, B, out, V, total, back = (sparse_file((5, dim), np.float32) for _ in range(6))
    mask = sparse_file((5, dim // 8), np.uint8)
    X[:, first:], B[:, first:], V[:, first:], total[:, first:] = tail.X, tail.B, tail.B, tail.X
    # The kernels themselves, for two blocks only: all other columns would take minutes.
    begin = dim - 128
    X_, B_, V_ = (ops.plain(part) for part in (X, B, V))
    arrays = ops.plain(csr.indptr), numba._unsigned(ops.plain(csr.indices)), *tail.step
    limits = (np.float32(0), np.float32(-np.inf), np.float32(np.inf))
    no_energy, no_levels = np.zeros((0, dim)), (np.empty(0, dtype=np.uint8), 0)
    numba._descend(0, 5, begin, dim, 0, *arrays, X_, B_, *limits, out, mask, no_energy, *no_levels)
    np.testing.assert_array_equal(out[:, first:], tail.moved)
    assert not out[:, begin:first].any()
    numba._pull_back(0, 5, begin, dim, *arrays, V_, mask, total, back, *no_levels)
    np.testing.assert_array_equal(back[:, first:], tail.matrix.T @ tail.B)
    np.testing.assert_array_equal(total[:, first:], tail.X + tail.take * tail.B)
    numba._propagate(0, 5, begin, dim, *arrays[:2], np.ones(5, np.float32), X_, out)
    np.testing.assert_array_equal(out[:, first:], oracles.dense(*csr) @ tail.X)


def test_kernels_write_all_of_their_memory(on_poison):
    case, clip = exact_case(GRAPHS["path"], 65, np.float64, seed=0), Clip()
    arrays = case.csr.indptr, case.csr.indices.view(np.uint64), *case.step
    no_levels = np.empty(0, dtype=np.uint8), 0
    out, mask = np.full_like(case.X, np.nan), empty_mask(case)
    on_poison(numba._descend)(
        0, 9, 0, 65, 0, *arrays, case.X, case.B, *clip, out, mask, np.zeros((0, 65)), *no_levels
    )
    np.testing.assert_array_equal(out, case.moved)
    assert bits(mask, 65).all()
    total = case.X.copy()
    on_poison(numba._pull_back)(0, 9, 0, 65, *arrays, case.B, mask, total, out, *no_levels)
    np.testing.assert_array_equal(out, case.matrix.T @ case.B)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    case = exact_case(GRAPHS["path"], 7, np.float64, seed=0)
    made = [calls(numba, name) for name in ("descend", "pull_back", "cut", "propagate")]
    check_exactly(case, Clip(), compiled, 1)
    pull_back(case, case.X, None, case.B, compiled=compiled)
    ops.cut(case.X.copy(), empty_mask(case), compiled=compiled)
    propagate(case, compiled=compiled)
    assert [len(one) for one in made] == [int(compiled)] * 4


def test_python_threads_may_call_at_once():
    case = random_case(hub_among_leaves(500, 900, seed=1), 129, np.float32, seed=1)
    expected = [part.tobytes() for part in descend(case, CLIPS["relu"])[:2]]

    def call(k):
        return [part.tobytes() for part in descend(case, CLIPS["relu"], threads=1 + k % 3)[:2]]

    with ThreadPoolExecutor(4) as pool:
        assert all(found == expected for found in pool.map(call, range(24)))


FORKING = """
import os
import numpy as np
from musegnn import ops
indptr, indices = np.arange(7), np.arange(6, dtype=np.int32) ^ 1
ones, X = np.ones(6), np.arange(12.0).reshape(6, 2)
def call():
    out = np.empty_like(X)
    ops.descend(indptr, indices, ops.Step(ones, ones, ones, ones), X, X, ops.Clip(), out, threads=2)
    return out.tolist() == (2 * X + X[indices]).tolist()
assert call()
child = os.fork()
if child == 0:
    # Stopped by this clock if it waits for threads that stayed with its parent.
    import signal
    signal.alarm(30)
    os._exit(0 if call() and call() else 3)
assert call()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_process_has_threads_of_its_own():
    """In a process of its own: this one has threads of all kinds."""
    source = str(Path(parallel.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout.strip(), done.returncode) == ("0", 0), done.stderr


@pytest.mark.parametrize("threads", [1, 3])
def test_run_calls_each_task_once(threads):
    found = []
    parallel.run(lambda a, b: found.append((a, b)), [(k, -k) for k in range(40)], threads)
    assert sorted(found) == [(k, -k) for k in range(40)]


def test_run_works_in_as_many_threads_as_it_is_told():
    """Three tasks that wait for one another, and a fourth thread that there must not be."""
    barrier, names = threading.Barrier(3), set()

    def meet():
        names.add(threading.current_thread().name)
        barrier.wait(timeout=20)

    for _ in range(3):
        parallel.run(meet, [()] * 3, 3)
    assert len(names) == 3
    assert all(name.startswith("musegnn-kernel") for name in names)


def test_one_thread_is_the_caller_itself():
    found = []
    parallel.run(lambda: found.append(threading.get_ident()), [()], 1)
    assert found == [threading.get_ident()]


@pytest.mark.parametrize("threads", [1, 3])
def test_run_passes_errors_on(threads):
    def fail(k):
        if k == 5:
            raise ZeroDivisionError(k)

    with pytest.raises(ZeroDivisionError, match="5"):
        parallel.run(fail, [(k,) for k in range(9)], threads)
    # And the pool still works.
    parallel.run(fail, [(k,) for k in range(5)], threads)
