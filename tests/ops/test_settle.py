"""spread, settle: a matrix filled entry by entry, and the formulas, in float64.

Where all numbers are small multiples of 1/64, float32 and float64 are exact and the test asks for equality;
elsewhere it asks for the error that rounding each sum can make.
"""
# The symbols of the room: P, M, R, X, B.
# ruff: noqa: N806

from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_descend import CLIPS, ODD_CLIPS, prox

from musegnn import ops
from musegnn.ops import Clip
from musegnn.ops.descend import plan
from musegnn.ops.settle import numba

DIMS = [0, 1, 3, 7, 33, 130]
DTYPES = [np.float32, np.float64]

both = pytest.mark.parametrize("compiled", [False, True], ids=["reference", "numba"])
dims, dtypes, terms_ = st.sampled_from(DIMS), st.sampled_from(DTYPES), st.integers(1, 3)
threads_, seeds = st.sampled_from([1, 2, 3]), st.integers(0, 2**32 - 1)


class Matrix(NamedTuple):
    indptr: np.ndarray
    indices: np.ndarray
    num_columns: int


class Case(NamedTuple):
    """What a step is made from, but for its penalty."""

    indptr: np.ndarray
    indices: np.ndarray
    weight: np.ndarray
    M: np.ndarray
    R: np.ndarray
    scale: np.ndarray
    keep: np.ndarray
    take: np.ndarray
    X: np.ndarray
    B: np.ndarray | None

    @property
    def exactly(self) -> "Case":
        """The same in float64."""
        rest = (None if part is None else part.astype(np.float64) for part in self[2:])
        return Case(self.indptr, self.indices, *rest)

    @property
    def product(self) -> np.ndarray:
        """P M."""
        P = np.zeros((len(self.X), len(self.M)))
        for row, (begin, end) in enumerate(pairwise(self.indptr)):
            for e in range(begin, end):
                P[row, self.indices[e]] += self.weight[e]
        return P @ self.M.astype(np.float64)

    @property
    def moved(self) -> np.ndarray:
        _, _, _, _, R, scale, keep, take, X, B = self.exactly
        total = np.einsum("tf,tnf->nf", scale, R) - self.product
        return np.diag(keep) @ X + np.diag(take) @ ((np.zeros_like(X) if B is None else B) - total)

    @property
    def half(self) -> np.ndarray:
        return self.take.astype(np.float64)[:, None] / 2

    @property
    def slack(self) -> np.ndarray:
        """What rounding can do to `moved` and a little arithmetic behind it."""
        rest = [None if part is None else np.abs(part) for part in self[2:]]
        size = Case(self.indptr, self.indices, *rest)
        # Everything is added.
        size = size._replace(scale=-size.scale)
        most = max([*np.diff(self.indptr), 0]) + 16
        return most * np.finfo(self.X.dtype).eps * (size.moved + 2 * self.half + 2)


def matrix(lengths, num_columns, dtype=np.int32, seed=0):
    """Rows of so many entries, in no order, and some of them twice."""
    indptr = np.cumsum([0, *lengths]).astype(np.int64)
    columns = np.random.default_rng(seed).integers(0, max(1, num_columns), indptr[-1])
    return Matrix(indptr, columns.astype(dtype), num_columns)


@st.composite
def matrices(draw):
    """Of no rows, no columns, no entries; a hub or none."""
    num_columns = draw(st.integers(0, 12))
    lengths = draw(st.lists(st.integers(0, 9 if num_columns else 0), max_size=9))
    if lengths and num_columns and draw(st.booleans()):
        lengths[draw(st.integers(0, len(lengths) - 1))] = 40
    return matrix(lengths, num_columns, draw(st.sampled_from([np.int32, np.int64])), draw(seeds))


def exact_case(of, dim, dtype, seed, *, terms=2, has_B=True):  # noqa: N803
    """Dyadic numbers, so that nothing is rounded and values lie on the edges of a penalty often."""
    rng, n = np.random.default_rng(seed), len(of.indptr) - 1
    weight, scale, keep, take = (
        rng.choice(values, shape).astype(dtype)
        for values, shape in (
            ([-1, -0.5, 0.25, 0.5, 1], len(of.indices)),
            ([-0.5, 0.25, 0.75, 1], (terms, dim)),
            ([-0.5, 0, 0.5, 1], n),
            ([0.25, 0.5, 1, 2], n),
        )
    )
    rows = rng.integers(-6, 7, (of.num_columns + (terms + 2) * n, dim)) / 4
    return _case(of, weight, scale, keep, take, rows.astype(dtype), has_B)


def random_case(of, dim, dtype, seed, *, terms=2, has_B=True):  # noqa: N803
    rng, n = np.random.default_rng(seed), len(of.indptr) - 1
    shapes = len(of.indices), (terms, dim), n
    weight, scale, keep = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    take = rng.uniform(0.1, 1.5, n).astype(dtype)
    rows = rng.standard_normal((of.num_columns + (terms + 2) * n, dim))
    return _case(of, weight, scale, keep, take, rows.astype(dtype), has_B)


def _case(of, weight, scale, keep, take, rows, has_B):  # noqa: N803
    n, dim = len(keep), rows.shape[1]
    M, X, B, R = np.split(rows, np.cumsum([of.num_columns, n, n]))
    R = R.reshape(len(scale), n, dim)
    return Case(of.indptr, of.indices, weight, M, R, scale, keep, take, X, B if has_B else None)


EVERY_LENGTH = matrix([*range(14), 60, 0], 11)
"""Up to 13 entries in a row, and a hub."""


def bytes_of(case):
    return [None if part is None else part.tobytes() for part in case]


def spread(case, **options):
    """On memory that is not zero by luck; what is only read stays as it is."""
    out, before = np.full_like(case.X, np.nan), bytes_of(case)
    ops.spread(*case[:4], out, **options)
    assert bytes_of(case) == before
    return out


def settle(case, clip, **options):
    """Likewise."""
    out, before = np.full_like(case.X, np.nan), bytes_of(case)
    ops.settle(*case, clip, out, **options)
    assert bytes_of(case) == before
    return out


def expect(case, clip):
    return prox(case.moved, clip.weight * case.half, clip)


@both
@given(of=matrices(), dim=dims, dtype=dtypes, threads=threads_, seed=seeds)
def test_sums_are_those_of_a_dense_matrix(compiled, of, dim, dtype, threads, seed):
    case = exact_case(of, dim, dtype, seed)
    np.testing.assert_array_equal(spread(case, compiled=compiled, threads=threads), case.product)


@both
@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@given(of=matrices(), dim=dims, dtype=dtypes, terms=terms_, has_B=st.booleans(), threads=threads_, seed=seeds)
def test_a_step_is_the_dense_one(compiled, clip, of, dim, dtype, terms, has_B, threads, seed):  # noqa: N803
    case = exact_case(of, dim, dtype, seed, terms=terms, has_B=has_B)
    found = settle(case, clip, compiled=compiled, threads=threads)
    np.testing.assert_array_equal(found, expect(case, clip))


@both
@pytest.mark.parametrize("dim", DIMS)
def test_rows_of_any_length_and_width(compiled, dim):
    for dtype, (terms, has_B) in product(DTYPES, [(1, True), (2, False), (3, True)]):
        case = exact_case(EVERY_LENGTH, dim, dtype, seed=dim, terms=terms, has_B=has_B)
        np.testing.assert_array_equal(spread(case, compiled=compiled, threads=3), case.product)
        for clip in (CLIPS["none"], CLIPS["l1 in a box"]):
            found = settle(case, clip, compiled=compiled, threads=3)
            np.testing.assert_array_equal(found, expect(case, clip))


@both
@given(
    of=matrices(),
    clip=st.sampled_from(ODD_CLIPS),
    dim=dims,
    dtype=dtypes,
    terms=terms_,
    has_B=st.booleans(),
    threads=threads_,
    seed=seeds,
)
def test_a_step_is_exact_up_to_rounding(compiled, of, clip, dim, dtype, terms, has_B, threads, seed):  # noqa: N803
    case = random_case(of, dim, dtype, seed, terms=terms, has_B=has_B)
    found = settle(case, clip, compiled=compiled, threads=threads)
    assert found.dtype == dtype
    assert (np.abs(found - expect(case, clip)) <= case.slack).all()
    found = spread(case, compiled=compiled, threads=threads)
    plain = case._replace(keep=0 * case.keep, take=np.ones_like(case.take), R=0 * case.R, B=None)
    assert (np.abs(found - case.product) <= plain.slack).all()


def test_float32_stays_float32_and_is_as_close_as_it_can_be():
    case = random_case(matrix([40, 9, 400], 30), 70, np.float32, seed=0)
    found = [spread(case), settle(case, CLIPS["l1 in a box"])]
    assert [out.dtype for out in found] == [np.float32] * 2
    for out, exact in zip(found, (case.product, expect(case, CLIPS["l1 in a box"])), strict=True):
        np.testing.assert_allclose(out, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dim", [33, 130])
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads_change_no_bit(dtype, dim):
    """The hub's row is cut between blocks of columns, and added up by several."""
    case, found = random_case(EVERY_LENGTH, dim, dtype, seed=1), []
    for threads in (1, 2, 3):
        tasks = plan.tasks(case.indptr, dim, threads)
        assert any(first > 0 for _, _, first, _ in tasks) == (threads > 1 and dim > plan.WIDTH)
        found.append(spread(case, threads=threads).tobytes())
        found.append(settle(case, CLIPS["nonnegative l1"], threads=threads).tobytes())
    assert (len(set(found[::2])), len(set(found[1::2]))) == (1, 1)


@pytest.mark.parametrize("dim", [3, 70])
def test_memory_that_was_never_written_is_never_read(on_poison, dim):
    case, unlimited = random_case(EVERY_LENGTH, dim, np.float64, seed=2), (0.0, -np.inf, np.inf)
    given = case.indptr, case.indices.view(np.uint32), case.weight
    found, n = np.full((2, *case.X.shape), np.nan), len(case.X)
    for first, last in plan.blocks(dim):
        on_poison(numba._spread)(0, n, first, last, *given, case.M, found[0])
        on_poison(numba._settle)(0, n, first, last, *given, *case[3:], *unlimited, found[1])
    np.testing.assert_array_equal(found, [spread(case), settle(case, Clip())])


@pytest.mark.parametrize("clip", CLIPS.values(), ids=CLIPS)
@pytest.mark.parametrize("part", ["weight", "M", "R", "scale", "keep", "take", "X", "B"])
def test_a_nan_is_never_hidden_and_reaches_nobody_else(part, clip):
    """Of a kernel: a dense matrix has zeros for it to meet."""
    case = exact_case(matrix([4, 0, 5, 1, 7], 6), 9, np.float64, seed=3)
    case.indices[:] = np.arange(17) % 6
    is_reached = np.zeros((5, 9), dtype=bool)
    for name, place, reached in (
        ("weight", 6, (2, slice(None))),
        # Entries 0, 6 and 12.
        ("M", (0, 4), ([0, 2, 4], 4)),
        ("R", (1, 1, 4), (1, 4)),
        ("scale", (1, 4), (slice(None), 4)),
        ("keep", 3, (3, slice(None))),
        ("take", 3, (3, slice(None))),
        ("X", (3, 4), (3, 4)),
        ("B", (4, 8), (4, 8)),
    ):
        if name == part:
            getattr(case, part)[place] = np.nan
            is_reached[reached] = True
    np.testing.assert_array_equal(np.isnan(settle(case, clip)), is_reached)
    # Sums are made of nothing else.
    is_reached &= part in ("weight", "M")
    np.testing.assert_array_equal(np.isnan(spread(case)), is_reached)
