"""Differences with weights on a GPU, or in Triton's interpreter, against the float64 reference.

Rows are rounded to their dtype first: what is compared is the kernel's own rounding.
"""
# The symbols of the room: X, G.
# ruff: noqa: N803, N806

import numpy as np
import pytest
import torch
from test_descend import GRAPHS, graph

from machine import DEVICE, needs_kernels, only_on_a_gpu
from musegnn.ops import Rho
from musegnn.ops.reweigh import reference
from strategies import Csr

pytest.importorskip("triton")
from musegnn.ops.descend import triton as descend
from musegnn.ops.reweigh import triton

pytestmark = needs_kernels
DIMS = [1, 5, 8, 63, 256, 300, 700, 2049]
RHOS = [Rho(-2.0), Rho(1.0), Rho(2.0, cutoff=1.0), Rho(0.5, cutoff=1.3)]
GEMAN = RHOS[0]
CLOSE = {torch.float64: 1e-12, torch.float32: 3e-6, torch.bfloat16: 2.0**-7, torch.float16: 2.0**-10}
"""Of the largest entry; the last two are rounded once, by the interpreter towards zero."""
WORKS = ["sum", "back", "frozen"]
SMALL = graph([4, 4, 4, 4, 4, 4, 4, 1, 1, 0], [0, 1, 2, 3, 5, 6, 7, 2, 3, 2], 9)
"""With pieces of 3: a row of three pieces (3, 3, 1), two of exactly one, one of two, and an isolated node."""


@pytest.fixture
def cut_small(monkeypatch):
    """Rows of more than three neighbors are cut."""
    monkeypatch.setattr(descend, "PIECE", 3)


def in_turn(names, *values):
    """Each value at least once: the interpreter is slow, and a GPU compiles each combination."""
    few = [[each[i % len(each)] for each in values] for i in range(max(map(len, values)))]
    return pytest.mark.parametrize(names, few, ids=str)


def normal(csr, dim, dtype, seed=0, *, count=2):
    """Rows where the kernels are."""
    made = torch.Generator().manual_seed(seed)
    shape = count, len(csr.indptr) - 1, dim
    return torch.randn(shape, generator=made, dtype=torch.float64).to(DEVICE, dtype).unbind()


def found_by_kernel(csr, X, G, rho, work, out=None):
    """On memory that is not zero by luck; what is only read stays as it is."""
    out = torch.full_like(X, torch.nan) if out is None else out
    matrix, before = descend.cut_rows(*csr).to(DEVICE), (X.clone(), G.clone())
    if work == "sum":
        triton.reweigh(matrix, X, rho, out)
    else:
        triton.reweigh_back(matrix, X, G, rho, out, frozen=work == "frozen")
    assert all(torch.equal(*pair) for pair in zip(before, (X, G), strict=True))
    return out


def expect(csr, X, G, rho, work):
    X, G = (part.double().cpu().numpy() for part in (X, G))
    out = np.empty_like(X)
    if work == "sum":
        reference.reweigh(*csr, X, rho, out)
    else:
        reference.reweigh_back(*csr, X, G, rho, out, frozen=work == "frozen")
    return torch.from_numpy(out)


def check(csr, X, G, rho, works=WORKS):
    for work in works:
        out = found_by_kernel(csr, X, G, rho, work).double().cpu()
        expected = expect(csr, X, G, rho, work)
        slack = CLOSE[X.dtype] * float(expected.abs().amax()) if out.numel() else 0.0
        torch.testing.assert_close(out, expected, rtol=0, atol=slack, msg=lambda text, w=work: f"{w}: {text}")


@in_turn("dim, dtype, rho", DIMS, [torch.float64, torch.float32, torch.bfloat16], RHOS)
@pytest.mark.usefixtures("cut_small")
def test_rows_of_any_width(dim, dtype, rho):
    """The scale is one of float64, which 1.9 of float32 is not."""
    check(SMALL, *normal(SMALL, dim, dtype, seed=dim), rho._replace(scale=1.9 * dim))


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@pytest.mark.usefixtures("cut_small")
def test_any_kind_of_number(rho, dtype):
    """Some edges are cut by the scale, and some are not."""
    check(SMALL, *normal(SMALL, 5, dtype, seed=1), rho._replace(scale=9.0))


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("rho", RHOS)
def test_weights_matter(rho):
    """Some of them are far from 1 and from 0, so that the comparisons above can tell them apart."""
    X, G = normal(SMALL, 13, torch.float64)
    made = [expect(SMALL, X, G, rho._replace(scale=25.0), work) for work in WORKS]
    made.append(expect(SMALL, X, G, rho._replace(scale=1e9), "sum"))
    assert not torch.allclose(made[0], made[3], rtol=0.1)
    assert torch.equal(made[1], made[2]) == (rho.power == 2)


@pytest.mark.parametrize("name", ["no nodes", "isolated nodes", "an edge", "complete 10"])
def test_known_graphs(name):
    """Nine neighbors are read in two turns, or more."""
    csr = GRAPHS[name]
    check(csr, *normal(csr, 7, torch.float64, seed=2), GEMAN._replace(scale=9.0))


def test_no_columns():
    X, G = normal(SMALL, 0, torch.float32)
    assert found_by_kernel(SMALL, X, G, GEMAN, "back").shape == (9, 0)


@in_turn("rho, dtype", RHOS[:2], [torch.float64, torch.float32])
def test_a_hub_of_pieces_of_their_true_length(rho, dtype):
    """Of few rows, again and again: the interpreter takes its time for each. One has just no second piece."""
    columns = np.random.default_rng(0).integers(0, 4, 2 * descend.PIECE + 9).astype(np.int32)
    csr = Csr(np.array([0, 0, descend.PIECE + 9, len(columns), len(columns)]), columns)
    cut = descend.cut_rows(*csr)
    assert (cut.hubs.tolist(), cut.pieces.shape[1]) == ([[1], [0], [2]], 2)
    check(csr, *normal(csr, 9, dtype, seed=7), rho._replace(scale=12.0), WORKS[:2])


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("work", WORKS)
def test_rows_may_be_some_columns_of_wider_ones(work):
    (X, G), wide = normal(SMALL, 12, torch.float64), torch.full((9, 20), torch.nan, dtype=torch.float64)
    wide = wide.to(DEVICE)
    X, G = X[:, 3:10], torch.cat([G, G], dim=1)[:, 1:8]
    rho = GEMAN._replace(scale=7.0)
    out = found_by_kernel(SMALL, X, G, rho, work, wide[:, 5:12])
    expected = expect(SMALL, X, G, rho, work)
    torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=1e-12)
    assert int(wide.isnan().sum()) == 9 * 13


@pytest.mark.usefixtures("cut_small")
@pytest.mark.parametrize("work", WORKS)
def test_a_nan_reaches_the_neighbors_and_nobody_else(work):
    """A leaf's: the hub, whose row is cut, and a row that is not; in all columns, as t is NaN."""
    X, G = normal(SMALL, 5, torch.float32)
    X[0, 4] = torch.nan
    matrix, out = descend.cut_rows(*SMALL).to(DEVICE), torch.zeros_like(X)
    rho = GEMAN._replace(scale=3.0)
    if work == "sum":
        triton.reweigh(matrix, X, rho, out)
    else:
        triton.reweigh_back(matrix, X, G, rho, out, frozen=work == "frozen")
    assert out.isnan().all(dim=1).nonzero().flatten().tolist() == [0, 2, 4]
    assert not out[[1, 3, 5, 6, 7, 8]].isnan().any()


@pytest.mark.usefixtures("cut_small")
def test_pieces_of_bfloat16_are_added_up_in_float32():
    """257 is none."""
    star = graph([6] * 6, range(6), 7)
    X = torch.tensor([-256.0, -1, 0, 256, 0, 0, 0], device=DEVICE, dtype=torch.bfloat16)[:, None]
    out = found_by_kernel(star, X, X, Rho(1.0, scale=1e12), "sum")
    assert out[6].tolist() == [1]


def random_graph(num_nodes, seed=0):
    """Hubs among them: several pieces of several rows."""
    rng = np.random.default_rng(seed)
    source = rng.integers(0, num_nodes, 6 * num_nodes)
    source[::3] = rng.choice([5, num_nodes // 2, num_nodes - 1], len(source[::3]))
    return graph(source, rng.integers(0, num_nodes, len(source)), num_nodes)


@only_on_a_gpu
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
@in_turn("dim, rho", [1, 64, 128, 256, 300, 1100, 2048, 4100], RHOS)
def test_larger_graphs_on_a_gpu(dim, rho, dtype):
    csr = random_graph(700)
    check(csr, *normal(csr, dim, dtype, seed=dim), rho._replace(scale=1.9 * dim))


@only_on_a_gpu
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_a_gpu_says_the_same_bits_each_time(dtype):
    csr = random_graph(3000)
    (X, G), rho = normal(csr, 300, dtype), GEMAN._replace(scale=500.0)
    for work in WORKS:
        first = found_by_kernel(csr, X, G, rho, work)
        assert all(torch.equal(found_by_kernel(csr, X, G, rho, work), first) for _ in range(5))
