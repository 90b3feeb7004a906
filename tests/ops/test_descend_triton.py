"""The kernels of a GPU against the float64 reference: on a GPU if there is one, else in Triton's interpreter.

Small multiples of 1/64 are exact in float32 and float64, and the test asks for equality; bfloat16 is added up
in float32, and rounded once, by the interpreter towards zero.
"""
# The symbols of the room: X, B, V.
# ruff: noqa: N806

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_descend import CLIPS, GRAPHS, ODD_CLIPS, Case, exact_case, graph, hub_among_leaves, random_case

from machine import DEVICE, needs_kernels, only_on_a_gpu
from musegnn.ops import Clip, Step
from musegnn.ops.descend import plan, reference
from strategies import Csr, csrs

pytest.importorskip("triton")
from musegnn.ops.descend import triton

pytestmark = needs_kernels
WIDTHS = [1, 7, 8, 13, 65]
DTYPES = [torch.float64, torch.float32, torch.bfloat16]

every_dtype = pytest.mark.parametrize("dtype", DTYPES if DEVICE.type == "cuda" else DTYPES[1:2], ids=str)


def mixed(names, *values):
    """All combinations on a GPU; the interpreter is slow, and meets each value at least once."""
    longest = max(map(len, values))
    few = [[each[i % len(each)] for each in values] for i in range(longest)]
    return pytest.mark.parametrize(names, list(product(*values)) if DEVICE.type == "cuda" else few, ids=str)


SMALL = graph([4, 4, 4, 4, 4, 4, 4, 1, 1, 0], [0, 1, 2, 3, 5, 6, 7, 2, 3, 2], 9)
"""With pieces of 3: a row of three pieces (3, 3, 1), two of exactly one, one of two, and an isolated node."""
LEVELS = np.array([0, 2, 1, 0, 1, 2, 255, 0, 1], dtype=np.uint8)


@pytest.fixture
def cut_small(monkeypatch):
    """Rows of more than three neighbors are cut: the interpreter takes its time for each."""
    monkeypatch.setattr(triton, "PIECE", 3)


def put(array, dtype):
    return torch.from_numpy(np.array(array)).to(DEVICE, dtype)


def poison(shape, dtype):
    return torch.full(shape, torch.nan, dtype=dtype, device=DEVICE)


def bits(mask, dim):
    return np.unpackbits(mask.cpu().numpy(), axis=1, count=dim, bitorder="little").astype(bool)


def packed(is_free):
    return torch.from_numpy(np.packbits(is_free, axis=1, bitorder="little")).to(DEVICE)


def bytes_of(parts):
    return [part.double().cpu().numpy().tobytes() for part in parts]


class Device:
    """A case where the kernels are, its rows in `dtype`."""

    def __init__(self, case: Case, dtype: torch.dtype) -> None:
        exact = torch.promote_types(dtype, torch.float32)
        self.csr = triton.cut_rows(*case.csr).to(DEVICE)
        self.step = triton.Coefficients(*(put(column, exact) for column in case.step))
        self.X, self.B = put(case.X, dtype), put(case.B, dtype)

    def descend(self, clip, levels=None, *, with_mask=True, **options):
        """out and mask, on memory that is not zero by luck; what is only read stays as it is."""
        n, dim = self.X.shape
        out = poison(self.X.shape, self.X.dtype)
        mask = torch.full((n, -(-dim // 8)), 0xA5, dtype=torch.uint8, device=DEVICE) if with_mask else None
        read = [*self.csr, *self.step, self.X, self.B]
        before = bytes_of(read)
        triton.descend(self.csr, self.step, self.X, self.B, clip, out, mask, levels, **options)
        assert bytes_of(read) == before
        return out, mask

    def pull_back(self, mask, levels=None, **options):
        """out and total, which begins as B."""
        out, total = poison(self.X.shape, self.X.dtype), self.B.clone()
        read = [*self.csr, *self.step, self.X, *([] if mask is None else [mask])]
        before = bytes_of(read)
        triton.pull_back(self.csr, self.step, self.X, mask, total, out, levels, **options)
        assert bytes_of(read) == before
        return out, total


def exactly(case):
    """The same in float64, for the reference."""
    step = Step(*(column.astype(np.float64) for column in case.step))
    return case._replace(step=step, X=case.X.astype(np.float64), B=case.B.astype(np.float64))


def expect_step(case, clip):
    case, dim = exactly(case), case.X.shape[1]
    out, mask = np.empty_like(case.X), np.empty((len(case.X), plan.num_bytes(dim)), dtype=np.uint8)
    reference.descend(*case.csr, case.step, case.X, case.B, clip, out, mask)
    return out, plan.unpack(mask, dim)


def expect_way_back(case, is_free):
    case = exactly(case)
    out, total = np.empty_like(case.X), case.B.copy()
    mask = None if is_free is None else plan.pack(is_free)
    reference.pull_back(*case.csr, case.step, case.X, mask, total, out)
    return out, total


def assert_rounded(found, expected):
    """Equal; in bfloat16, one of the two neighbors."""
    values = found.double().cpu().numpy()
    slack = 2.0**-7 * np.abs(expected) if found.dtype == torch.bfloat16 else 0
    assert (np.abs(values - expected) <= slack).all()


def check_step(case, clip, dtype, levels=None):
    on = Device(case, dtype)
    some = None if levels is None else triton.Levels(put(levels, torch.uint8), 1)
    out, mask = on.descend(clip, some)
    expected, is_free = expect_step(case, clip)
    rows = slice(None) if levels is None else levels <= 1
    assert_rounded(out[rows], expected[rows])
    dim, marks = case.X.shape[1], bits(mask, 8 * mask.shape[1])
    np.testing.assert_array_equal(marks[rows, :dim], is_free[rows])
    # Behind the last column nothing is read, which would show in these bits.
    assert (marks[rows, dim:] == marks[rows, dim:][:1]).all()
    if levels is not None:
        assert out[~rows].isnan().all()
        assert (mask[~rows] == 0xA5).all()


def check_way_back(case, dtype, is_free=None, levels=None):
    on = Device(case, dtype)
    some = None if levels is None else triton.Levels(put(levels, torch.uint8), 1)
    out, total = on.pull_back(None if is_free is None else packed(is_free), some)
    expected, expected_total = expect_way_back(case, is_free)
    rows = slice(None) if levels is None else levels <= 1
    assert_rounded(out[rows], expected[rows])
    assert_rounded(total[rows], expected_total[rows])
    if levels is not None:
        assert out[~rows].isnan().all()
        assert torch.equal(total[~rows], on.B[~rows])


def random_bits(case, seed=0):
    return np.random.default_rng(seed).random(case.X.shape) < 0.5


@mixed("clip, dtype", list(CLIPS), DTYPES[1:])
@pytest.mark.usefixtures("cut_small")
def test_a_step_is_the_reference(clip, dtype):
    check_step(exact_case(SMALL, 13, np.float64, seed=1), CLIPS[clip], dtype)


@mixed("dim, dtype", [*WIDTHS, 300], DTYPES)
@pytest.mark.usefixtures("cut_small")
def test_a_step_of_any_width(dim, dtype):
    """Above 256, a row is several programs."""
    case = exact_case(SMALL, dim, np.float64, seed=dim)
    check_step(case, CLIPS["l1 in a box"], dtype)


@mixed("dim, dtype", [*WIDTHS, 300], DTYPES)
@pytest.mark.usefixtures("cut_small")
def test_a_way_back_of_any_width(dim, dtype):
    case = exact_case(SMALL, dim, np.float64, seed=dim)
    check_way_back(case, dtype, random_bits(case))


@every_dtype
@pytest.mark.usefixtures("cut_small")
def test_a_way_back_without_a_mask(dtype):
    check_way_back(exact_case(SMALL, 13, np.float64, seed=5), dtype)


@pytest.mark.parametrize("name", ["no nodes", "isolated nodes", "an edge", "complete 10"])
def test_known_graphs(name):
    """Nine neighbors are read in two turns."""
    case = exact_case(GRAPHS[name], 7, np.float64, seed=2)
    check_step(case, CLIPS["relu"], torch.float32)
    check_way_back(case, torch.float32, random_bits(case))


@mixed("clip, dtype", ODD_CLIPS[-3:], DTYPES[:2])
@pytest.mark.usefixtures("cut_small")
def test_numbers_that_are_rounded(clip, dtype):
    """The limits of a box are as exact as the rows: 0.1 of float32 is none of float64."""
    kind = np.float64 if dtype == torch.float64 else np.float32
    case = random_case(SMALL, 7, kind, seed=3)
    out, _ = Device(case, dtype).descend(clip)
    expected, _ = expect_step(case, clip)
    assert (np.abs(out.double().cpu().numpy() - expected) <= case.slack).all()


@every_dtype
@pytest.mark.usefixtures("cut_small")
def test_rows_above_the_limit_are_left_alone(dtype):
    case = exact_case(SMALL, 13, np.float64, seed=4)
    for levels in (LEVELS, (LEVELS + 1) % 3):
        check_step(case, CLIPS["relu"], dtype, levels)
        check_way_back(case, dtype, random_bits(case), levels)


@pytest.mark.usefixtures("cut_small")
def test_a_limit_may_pass_the_largest_level():
    case = exact_case(SMALL, 7, np.float64, seed=4)
    on = Device(case, torch.float32)
    out, _ = on.descend(Clip(), triton.Levels(put(LEVELS, torch.uint8), 300))
    assert_rounded(out, expect_step(case, Clip())[0])


@pytest.mark.parametrize("is_scaled", [(True, False), (False, True), (True, True)], ids=str)
@every_dtype
@pytest.mark.usefixtures("cut_small")
def test_rows_may_be_kept_as_their_neighbors_need_them(is_scaled, dtype):
    """Scaled by powers of two, which rounds nothing; bits are those of rows that are not."""
    case = exact_case(SMALL, 9, np.float64, seed=8)
    for is_way_back in (False, True):
        scale = (case.step.left if is_way_back else case.step.right)[:, None]
        on = Device(case._replace(X=case.X * scale if is_scaled[0] else case.X), dtype)
        is_free, kept = random_bits(case), triton.Kept(*is_scaled)
        if is_way_back:
            out, total = on.pull_back(packed(is_free), kept=kept)
            expected, expected_total = expect_way_back(case, is_free)
            assert_rounded(total, expected_total)
        else:
            out, mask = on.descend(CLIPS["l1 in a box"], kept=kept)
            expected, is_free = expect_step(case, CLIPS["l1 in a box"])
            np.testing.assert_array_equal(bits(mask, 9), is_free)
        assert_rounded(out, expected * scale if is_scaled[1] else expected)


@pytest.mark.parametrize("clip", ODD_CLIPS[-2:])
@pytest.mark.usefixtures("cut_small")
def test_without_a_mask_the_step_is_the_same(clip):
    on = Device(exact_case(SMALL, 7, np.float64, seed=1), torch.float32)
    assert torch.equal(on.descend(clip, with_mask=False)[0], on.descend(clip)[0])


@mixed("clip, part", ["none", "relu", "l1", "l1 in a box"], ["X", "B"])
@pytest.mark.usefixtures("cut_small")
def test_a_nan_is_never_hidden(clip, part):
    """In a leaf: it reaches the hub, whose row is cut, and a row that is not."""
    case = exact_case(SMALL, 9, np.float32, seed=3)
    case = case._replace(step=case.step._replace(keep=np.zeros(9, dtype=np.float32)))
    getattr(case, part)[0, 8] = np.nan
    out, mask = Device(case, torch.float32).descend(CLIPS[clip])
    is_reached = np.zeros((9, 9), dtype=bool)
    is_reached[[0, 2, 4] if part == "X" else [0], 8] = True
    np.testing.assert_array_equal(out.isnan().cpu().numpy(), is_reached)
    assert not bits(mask, 9)[is_reached].any()


@pytest.mark.usefixtures("cut_small")
def test_a_nan_in_a_gradient_goes_back_unless_it_is_masked():
    case = exact_case(SMALL, 9, np.float32, seed=3)
    case.X[0, 8] = np.nan
    is_free = np.ones((9, 9), dtype=bool)
    is_free[4] = False
    out, total = Device(case, torch.float32).pull_back(packed(is_free))
    assert sorted(map(tuple, out.isnan().nonzero().tolist())) == [(0, 8), (2, 8)]
    assert (out[4] == 0).all()
    assert total.isnan().nonzero().tolist() == [[0, 8]]


@mixed("dim, dtype", [1, 13, 300], DTYPES)
def test_cut_puts_zeros_where_the_mask_has_them(dim, dtype):
    rng = np.random.default_rng(dim)
    values, is_free = rng.integers(-3, 4, (4, dim)) / 4, rng.random((4, dim)) < 0.5
    values[rng.random(values.shape) < 0.1] = np.nan
    V, mask = put(values, dtype), packed(is_free)
    before = mask.clone()
    triton.cut(V, mask)
    np.testing.assert_array_equal(V.double().cpu().numpy(), np.where(is_free, values, 0))
    assert torch.equal(mask, before)


def test_cut_of_nothing():
    V = torch.empty((0, 5), device=DEVICE)
    triton.cut(V, torch.empty((0, 1), dtype=torch.uint8, device=DEVICE))
    assert V.shape == (0, 5)


@mixed("dim, dtype", [7, 300], DTYPES[1:])
@pytest.mark.usefixtures("cut_small")
def test_propagate_adds_up_the_neighbors(dim, dtype):
    case = exact_case(SMALL, dim, np.float64, seed=6)
    on = Device(case, dtype)
    out = poison(on.X.shape, dtype)
    triton.propagate(on.csr, on.X, out)
    expected = np.empty_like(case.X)
    reference.propagate(*case.csr, case.X, expected)
    assert_rounded(out, expected)


@pytest.mark.usefixtures("cut_small")
def test_pieces_of_bfloat16_are_added_up_in_float32():
    """257 is none."""
    csr = triton.cut_rows(*graph([6] * 6, range(6), 7)).to(DEVICE)
    X = put(np.array([256, 1, 0, -256, 0, 0, 0])[:, None], torch.bfloat16)
    out = poison(X.shape, torch.bfloat16)
    triton.propagate(csr, X, out)
    assert out[6].tolist() == [1]


@every_dtype
def test_a_hub_of_pieces_of_their_true_length(dtype):
    """Rows of 128 and 129 neighbors or more; the others are above the limit, which is soon done."""
    case = exact_case(hub_among_leaves(triton.PIECE + 9, 0, seed=0), 9, np.float64, seed=7)
    csr = triton.cut_rows(*case.csr)
    assert (csr.hubs.shape[1], csr.pieces.shape[1]) == (1, 2)
    levels = np.full(len(case.X), 2, dtype=np.uint8)
    levels[[3, int(csr.hubs[0, 0])]] = 1
    check_step(case, CLIPS["box"], dtype, levels)
    check_way_back(case, dtype, random_bits(case), levels)


@given(csr=csrs(), size=st.integers(1, 9))
def test_pieces_are_the_entries_of_long_rows_once(csr, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triton, "PIECE", size)
        found = triton.cut_rows(*csr)
    np.testing.assert_array_equal(found.indptr, csr.indptr)
    np.testing.assert_array_equal(found.indices, csr.indices)
    assert [part.dtype for part in found] == [torch.int64, torch.int32, torch.int64, torch.int64]
    pieces, lengths = found.pieces.T.tolist(), np.diff(csr.indptr)
    entries = [entry for row, first, last in pieces for entry in range(first, last)]
    is_long = lengths > size
    assert entries == np.flatnonzero(np.repeat(is_long, lengths)).tolist()
    assert all(0 < last - first <= size for _, first, last in pieces)
    assert all(csr.indptr[row] <= first < last <= csr.indptr[row + 1] for row, first, last in pieces)
    assert found.hubs[0].tolist() == np.flatnonzero(is_long).tolist()
    for row, first, last in found.hubs.T.tolist():
        assert [piece for piece, (owner, *_) in enumerate(pieces) if owner == row] == list(range(first, last))


def test_a_matrix_is_a_copy_of_what_may_not_be_written_to():
    csr = Csr(*(part.copy() for part in SMALL))
    for part in csr:
        part.flags.writeable = False
    found = triton.cut_rows(*csr)
    found.indices.zero_()
    assert csr.indices.any()


def random_graph(num_nodes, seed=0):
    """Hubs among them: several pieces of several rows."""
    rng = np.random.default_rng(seed)
    source = rng.integers(0, num_nodes, 6 * num_nodes)
    source[::3] = rng.choice([5, num_nodes // 2, num_nodes - 1], len(source[::3]))
    return graph(source, rng.integers(0, num_nodes, len(source)), num_nodes)


@only_on_a_gpu
@every_dtype
@pytest.mark.parametrize("dim", [*WIDTHS, 64, 100, 256, 257, 300, 512, 520])
def test_larger_graphs_on_a_gpu(dim, dtype):
    case = exact_case(random_graph(1500), dim, np.float64, seed=dim)
    levels = np.random.default_rng(dim).choice([0, 1, 2, 255], len(case.X)).astype(np.uint8)
    for some, name in product((None, levels), ("relu", "l1 in a box")):
        check_step(case, CLIPS[name], dtype, some)
        check_way_back(case, dtype, random_bits(case), some)


@only_on_a_gpu
@every_dtype
def test_a_gpu_says_the_same_bits_each_time(dtype):
    on = Device(random_case(random_graph(3000), 300, np.float64, seed=0), dtype)
    first = on.descend(CLIPS["relu"])
    for _ in range(5):
        assert bytes_of(on.descend(CLIPS["relu"])) == bytes_of(first)


@only_on_a_gpu
def test_a_pinned_matrix_is_the_same():
    csr = triton.cut_rows(*SMALL)
    moved = csr.pin_memory().to(DEVICE, non_blocking=True)
    torch.cuda.synchronize()
    assert all(torch.equal(*pair) for pair in zip(moved.to(torch.device("cpu")), csr, strict=True))
