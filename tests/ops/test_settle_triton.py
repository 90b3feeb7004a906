"""Sums with a weight for each entry, and a step, on a GPU or in Triton's interpreter, against the reference.

Small multiples of 1/64 are exact in float32 and float64, and the test asks for equality; bfloat16 is added up
in float32, and rounded once, by the interpreter towards zero. All memory lies between NaN: who reads or
writes behind an end is seen.

Places are counted in 64 bits; rows behind the first 2**31 numbers are not tested, as they take gigabytes.
"""
# The symbols of the room: M, R, X, B.
# ruff: noqa: N803, N806

from itertools import product

import numpy as np
import pytest
import torch
from test_descend import CLIPS, ODD_CLIPS
from test_settle import Case, Matrix, exact_case, matrix, random_case

from machine import DEVICE, needs_kernels, only_on_a_gpu
from musegnn.ops import Clip
from musegnn.ops.settle import reference

pytest.importorskip("triton")
from musegnn.ops.descend import triton as descend
from musegnn.ops.settle import triton

pytestmark = needs_kernels
DIMS = [1, 5, 8, 63, 256, 300]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]
EDGE = 64
"""Numbers of NaN before and behind each part: of at most 512 bytes, as a GPU wants its rows to begin."""

SMALL = matrix([7, 3, 0, 4, 1, 6], 5)
"""With pieces of 3: rows of three (3, 3, 1), two (3, 1), two (3, 3), one just not cut, and an empty one."""


@pytest.fixture
def cut_small(monkeypatch):
    """Rows of more than three entries are cut."""
    monkeypatch.setattr(descend, "PIECE", 3)


def in_turn(names, *values):
    """Each value at least once: the interpreter is slow, and a GPU compiles each combination."""
    few = [[each[i % len(each)] for each in values] for i in range(max(map(len, values)))]
    return pytest.mark.parametrize(names, few, ids=str)


def between_nan(part):
    """A copy among NaN; among -1 of numbers of integers."""
    empty = torch.nan if part.is_floating_point() else -1
    wide = part.new_full((part.numel() + 2 * EDGE,), empty)
    inside = wide[EDGE : EDGE + part.numel()].view(part.shape)
    inside.copy_(part)
    return inside


def edges(part):
    """What lies before and behind it."""
    wide = part.as_strided((part.numel() + 2 * EDGE,), (1,), part.storage_offset() - EDGE)
    return torch.cat([wide[:EDGE], wide[-EDGE:]])


def bytes_of(parts):
    return [part.cpu().contiguous().view(torch.uint8).numpy().tobytes() for part in parts if part is not None]


class Device:
    """A case where the kernels are, its rows in `dtype`, all else in float32 or more."""

    def __init__(self, case: Case, dtype: torch.dtype) -> None:
        exact = torch.promote_types(dtype, torch.float32)
        kinds = [exact, dtype, dtype, exact, exact, exact, dtype, dtype]
        csr = descend.cut_rows(case.indptr, case.indices)
        self.csr = descend.Csr(*(between_nan(part.to(DEVICE)) for part in csr))
        self.weight, self.M, *self.step = (
            None if part is None else between_nan(torch.from_numpy(part.copy()).to(DEVICE, kind))
            for part, kind in zip(case[2:], kinds, strict=True)
        )
        self.out = torch.full(case.X.shape, torch.nan, dtype=dtype, device=DEVICE)

    def spread(self):
        """On memory that is not zero by luck; what is only read stays as it is."""
        return self._run(lambda out: triton.spread(self.csr, self.weight, self.M, out))

    def settle(self, clip):
        """Likewise."""
        return self._run(lambda out: triton.settle(self.csr, self.weight, self.M, *self.step, clip, out))

    def _run(self, work):
        out, read = between_nan(self.out), [*self.csr, self.weight, self.M, *self.step]
        before = bytes_of(read)
        work(out)
        assert bytes_of(read) == before
        assert edges(out).isnan().all()
        return out


def expect_sums(case):
    case = case.exactly
    out = np.empty_like(case.X)
    reference.spread(*case[:4], out)
    return out


def expect_step(case, clip):
    case = case.exactly
    out = np.empty_like(case.X)
    reference.settle(*case, clip, out)
    return out


def assert_rounded(found, expected):
    """Equal; in bfloat16, one of the two neighbors."""
    values = found.double().cpu().numpy()
    slack = 2.0**-7 * np.abs(expected) if found.dtype == torch.bfloat16 else 0
    assert (np.abs(values - expected) <= slack).all()


def check(of, dim, dtype, clip=None, **options):
    case = exact_case(of, dim, np.float64, seed=dim, **options)
    on, clip = Device(case, dtype), CLIPS["l1 in a box"] if clip is None else clip
    assert_rounded(on.spread(), expect_sums(case))
    assert_rounded(on.settle(clip), expect_step(case, clip))


@in_turn("dim, dtype, terms", DIMS, DTYPES, [2, 1, 3, 1])
@pytest.mark.usefixtures("cut_small")
def test_rows_of_any_width(dim, dtype, terms):
    """Above 256, a row is several programs."""
    check(SMALL, dim, dtype, terms=terms)


@in_turn("clip, dtype, has_B", list(CLIPS), DTYPES, [False, True])
@pytest.mark.usefixtures("cut_small")
def test_any_penalty_with_and_without_b(clip, dtype, has_B):
    check(SMALL, 7, dtype, CLIPS[clip], has_B=has_B)


@in_turn("clip, dtype", ODD_CLIPS[-2:], DTYPES[:2])
@pytest.mark.usefixtures("cut_small")
def test_numbers_that_are_rounded(clip, dtype):
    """The limits of a box are as exact as the rows: 0.1 of float32 is none of float64."""
    kind = np.float64 if dtype == torch.float64 else np.float32
    case = random_case(SMALL, 7, kind, seed=3)
    found = Device(case, dtype).settle(clip).double().cpu().numpy()
    assert (np.abs(found - expect_step(case, clip)) <= case.slack).all()


@pytest.mark.parametrize(
    "of",
    [
        matrix([], 4),
        matrix([], 0),
        matrix([0, 0], 0),
        matrix([0, 0, 0], 3),
        matrix([2], 9),
        matrix([9, 8, 17, 0, 1], 30),
    ],
    ids=["no rows", "nothing", "no columns", "no entries", "a row", "turns"],
)
def test_known_matrices(of):
    """Eight entries are read in one turn, or more; nine and seventeen in two or three."""
    check(of, 5, torch.float32)


def test_rows_of_no_width():
    case = exact_case(SMALL, 0, np.float64, seed=0)
    on = Device(case, torch.float32)
    assert on.spread().shape == on.settle(Clip()).shape == (6, 0)


@in_turn("dim, dtype", [9, 3], DTYPES[:2])
def test_a_hub_of_pieces_of_their_true_length(dim, dtype):
    """One row is just not cut, one has a second piece of a few entries, and one two whole ones."""
    piece = descend.PIECE
    of = matrix([0, piece, piece + 9, 2 * piece, 1], 4)
    csr = descend.cut_rows(of.indptr, of.indices)
    assert csr.hubs.tolist() == [[2, 3], [0, 2], [2, 4]]
    assert (csr.pieces[2] - csr.pieces[1]).tolist() == [piece, 9, piece, piece]
    check(of, dim, dtype)


@pytest.mark.usefixtures("cut_small")
def test_the_sums_of_pieces_are_written_and_lie_apart(monkeypatch):
    """Their memory is not zero by luck, and nothing behind its end is written."""
    made, empty = [], torch.empty

    def poison(*shape, **options):
        made.append(between_nan(empty(*shape, **options).fill_(torch.nan)))
        return made[-1]

    case = exact_case(SMALL, 5, np.float64, seed=1)
    on = Device(case, torch.float32)
    monkeypatch.setattr(torch, "empty", poison)
    triton.settle(on.csr, on.weight, on.M, *on.step, Clip(), on.out)
    monkeypatch.undo()
    assert [tuple(part.shape) for part in made] == [(7, 5)]
    assert edges(made[0]).isnan().all()
    assert_rounded(on.out, expect_step(case, Clip()))


NAN = {
    # The first entry of the row behind one of seven, of which eight are read at once; the last entry of all.
    "weight": ([7, 20], [1, 5], slice(None)),
    # Row 0 stands in for entries that are not there.
    "M": (([0], [4]), None, 4),
    "R": ((1, 1, 4), [1], 4),
    "scale": ((1, 4), slice(None), 4),
    "keep": (2, [2], slice(None)),
    "take": (3, [3], slice(None)),
    "X": ((0, 4), [0], 4),
    "B": ((5, 8), [5], 8),
}


@in_turn("part, clip, size", list(NAN), ["none", "relu", "l1", "l1 in a box"], [3, 128, 128, 3, 3])
def test_a_nan_is_never_hidden_and_reaches_nobody_else(part, clip, size, monkeypatch):
    monkeypatch.setattr(descend, "PIECE", size)
    case = exact_case(SMALL, 9, np.float64, seed=3)
    # Column 0 is in rows 0 and 5, which are cut, and in row 4.
    case.indices[:] = [0, 1, 2, 3, 4, 1, 2, *[1, 2, 3], *[4, 3, 2, 1], 0, *[4, 0, 0, 1, 2, 3]]
    place, rows, columns = NAN[part]
    getattr(case, part)[place] = np.nan
    is_reached = np.zeros(case.X.shape, dtype=bool)
    is_reached[[0, 4, 5] if rows is None else rows, columns] = True
    on = Device(case, torch.float32)
    np.testing.assert_array_equal(on.settle(CLIPS[clip]).isnan().cpu().numpy(), is_reached)
    # Sums are made of nothing else.
    is_reached &= part in ("weight", "M")
    np.testing.assert_array_equal(on.spread().isnan().cpu().numpy(), is_reached)


@pytest.mark.usefixtures("cut_small")
def test_bfloat16_is_added_up_in_float32():
    """257 is none, and neither is a weight of 1 + 2**-10; both matter here, in pieces and in terms."""
    of = Matrix(np.array([0, 6, 8]), np.array([0, 1, 2, 3, 2, 2, 1, 1], dtype=np.int32), 4)
    case = exact_case(of, 1, np.float64, seed=0)
    case.weight[:] = [1, 1, 1, 1, 1, 1, 1 + 2**-10, -1]
    case.M[:] = np.array([256, 1, 0, -256])[:, None]
    assert Device(case, torch.bfloat16).spread().tolist() == [[1], [2**-10]]
    case.scale[:], case.R[:], case.B[:] = 1 + 2**-10, [[[256], [256]], [[1], [1]]], 256
    case.keep[:], case.take[:] = 0, [1 + 2**-10, 1]
    # 256 + 1 - (1 + 2**-10) 257, times 1 + 2**-10; and 2**-10 more.
    expected = -257 * 2**-10, -1 - 256 * 2**-10
    found = Device(case, torch.bfloat16).settle(Clip()).flatten().tolist()
    assert found == pytest.approx(expected, rel=2**-7)


def random_matrix(num_rows, num_columns, seed=0):
    """Hubs among its rows: several pieces of several, and rows without an entry."""
    lengths = np.random.default_rng(seed).integers(0, 20, num_rows)
    lengths[[0, 5, num_rows // 2, num_rows - 1]] = [1000, 128, 129, 256]
    return matrix(lengths, num_columns, seed=seed)


@only_on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@in_turn("dim, clip", [1, 13, 64, 128, 256, 257, 300, 512, 520, 1100], list(CLIPS))
def test_larger_matrices_on_a_gpu(dim, clip, dtype):
    for shape, (terms, has_B) in product([(700, 1500), (900, 40)], [(1, True), (3, False)]):
        check(random_matrix(*shape, seed=dim), dim, dtype, CLIPS[clip], terms=terms, has_B=has_B)


@only_on_a_gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_gpu_says_the_same_bits_each_time(dtype):
    on = Device(random_case(random_matrix(3000, 5000), 300, np.float64, seed=0), dtype)
    first = bytes_of([on.spread(), on.settle(CLIPS["l1"])])
    assert all(bytes_of([on.spread(), on.settle(CLIPS["l1"])]) == first for _ in range(5))
