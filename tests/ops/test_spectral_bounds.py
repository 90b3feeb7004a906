"""spectral_bounds: theta <= lmax <= bound of both Laplacians, by NumPy's dense eigenvalues in float64."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings

import oracles
from musegnn import ops
from musegnn.ops.spectral_bounds import numba, reference
from strategies import csrs

IMPLEMENTATIONS = [
    pytest.param(partial(ops.spectral_bounds, compiled=False), id="reference"),
    pytest.param(partial(ops.spectral_bounds, compiled=True), id="numba"),
]


GOLDEN = ["0x1.510a847b2b22fp+0", "0x1.aaaaaaaaac7fep+0", "0x1.8000000000000p+2", "0x1.4000000000000p+3"]


def csr(source, target, num_nodes):
    matrix = oracles.symmetric_csr(source, target, num_nodes)
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


def complete(n):
    return csr(*np.triu_indices(n, 1), n)


def star(n):
    """The hub is the last node."""
    return csr(np.arange(n - 1), np.full(n - 1, n - 1), n)


def path(n):
    return csr(np.arange(n - 1), np.arange(1, n), n)


def cycle(n):
    return csr(np.arange(n), np.roll(np.arange(n), 1), n)


def bipartite(a, b):
    return csr(np.repeat(np.arange(a), b), np.tile(np.arange(a, a + b), a), a + b)


def empty(n):
    return csr([], [], n)


def scattered(source, target, num_nodes, seed):
    """Other numbers for the nodes, since the start vector depends on them."""
    number = np.random.default_rng(seed).permutation(num_nodes)
    return csr(number[source], number[target], num_nodes)


def random_graph(num_nodes, num_edges, seed):
    rng = np.random.default_rng(seed)
    return csr(*rng.integers(0, num_nodes, (2, num_edges)) // rng.integers(1, 4, num_edges), num_nodes)


def lmax(indptr, indices):
    return [np.linalg.eigvalsh(laplacian)[-1] for laplacian in oracles.laplacians(indptr, indices)]


GRAPHS = {
    "K1": complete(1),
    "K2": complete(2),
    "K3": complete(3),
    "K40": complete(40),
    "star 3": star(3),
    "star 50": star(50),
    "star 501": star(501),
    "path 3": path(3),
    "path 100": path(100),
    "cycle 4": cycle(4),
    "cycle 11": cycle(11),
    "bipartite": bipartite(3, 17),
    "empty 7": empty(7),
    "isolated nodes": csr([1, 1, 5], [4, 5, 4], 130),
    "K5 and a star": csr([0, 0, 0, 1, 1, 2, *[9] * 6], [1, 2, 3, 2, 3, 3, *range(10, 16)], 18),
    "sparse": random_graph(300, 300, 0),
    "dense": random_graph(60, 1500, 1),
    "skewed": random_graph(200, 2000, 2),
}


@pytest.mark.parametrize("spectral_bounds", IMPLEMENTATIONS)
@given(csr=csrs())
def test_any_graph_lies_between_its_bounds(spectral_bounds, csr):
    indptr, indices = csr.indptr, csr.indices.astype(np.int32)
    oracles.check_bounds(indptr, indices, spectral_bounds(indptr, indices))


@pytest.mark.parametrize("spectral_bounds", IMPLEMENTATIONS)
@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_known_graphs_lie_between_their_bounds(spectral_bounds, graph):
    oracles.check_bounds(*graph, spectral_bounds(*graph))


@given(csr=csrs())
@settings(max_examples=200)
def test_the_kernel_does_what_the_reference_does(csr):
    indptr, indices = csr.indptr, csr.indices.astype(np.int32)
    expected = ops.spectral_bounds(indptr, indices, compiled=False)
    np.testing.assert_allclose(ops.spectral_bounds(indptr, indices), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_kernel_does_what_the_reference_does_on_known_graphs(graph):
    expected = ops.spectral_bounds(*graph, compiled=False)
    np.testing.assert_allclose(ops.spectral_bounds(*graph), expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("spectral_bounds", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    "graph", [star(3), star(50), star(501), complete(2), complete(3), complete(40), bipartite(3, 17)]
)
def test_few_distinct_eigenvalues_are_found(spectral_bounds, graph):
    """Lanczos breaks down before its steps are done, and theta is lmax."""
    theta = spectral_bounds(*graph)[0]
    assert theta == pytest.approx(lmax(*graph)[0], rel=1e-9)


@pytest.mark.parametrize("spectral_bounds", IMPLEMENTATIONS)
@pytest.mark.parametrize("graph", [path(100), random_graph(300, 900, 1)])
def test_signs_that_oppose_their_neighbors_are_a_good_start(spectral_bounds, graph):
    """x'Lx / x'x = 4 cut / (n + entries) is less than theta, and more than random signs would give."""
    indptr, indices = graph
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    signs = np.sign(reference.start(indptr, indices))
    cut = (signs[rows] != signs[indices]).sum() / 2
    quotient = 4 * cut / (len(indptr) - 1 + len(indices))
    assert 1.1 * len(indices) / (len(indptr) - 1 + len(indices)) < quotient < spectral_bounds(*graph)[0]


@pytest.mark.parametrize("spectral_bounds", IMPLEMENTATIONS)
@pytest.mark.parametrize(
    ("graph", "bound", "theta_combinatorial", "bound_combinatorial"),
    [
        (star(50), 2 - 2 / 50, 50, 50),
        (complete(40), 2 - 2 / 40, 40, 78),
        (path(100), 2 - 2 / 3, 3, 4),
        (path(2), 1, 2, 2),
        (path(3), 2 - 2 / 3, 3, 3),
        (bipartite(3, 17), 2 - 2 / 18, 18, 20),
        (empty(7), 0, 0, 0),
        (complete(1), 0, 0, 0),
        # Two hubs that are no neighbors: 5 + 1, not 5 + 4.
        (csr([0] * 5 + [6] * 4, [*range(1, 6), *range(7, 11)], 11), 2 - 2 / 6, 6, 6),
    ],
)
def test_bounds_from_degrees(spectral_bounds, graph, bound, theta_combinatorial, bound_combinatorial):
    bounds = spectral_bounds(*graph)
    assert bounds[1] == pytest.approx(bound, rel=2e-12)
    assert bounds[1] >= bound
    assert bounds[2:].tolist() == [theta_combinatorial, bound_combinatorial]


@pytest.mark.parametrize("compiled", [True, False])
def test_no_nodes_have_zeros(compiled):
    bounds = ops.spectral_bounds(np.zeros(1, np.int64), np.empty(0, np.int32), compiled=compiled)
    assert bounds.tolist() == [0, 0, 0, 0]


def test_the_bytes_are_the_same_each_time_and_in_each_thread():
    graph = random_graph(5000, 40_000, 3)
    expected = ops.spectral_bounds(*graph).tobytes()
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ops.spectral_bounds(*graph).tobytes(), range(20)))
    assert found == [expected] * 20


def test_the_bytes_are_the_same_on_every_machine():
    """Sums in one order, nothing fused. From this very call, on x86-64; only another algorithm changes it."""
    nodes = np.arange(101)
    graph = csr([*nodes, *nodes], [*(nodes + 1) % 101, *(nodes * nodes) % 101], 101)
    assert [float(value).hex() for value in ops.spectral_bounds(*graph)] == GOLDEN


def test_theta_does_not_exceed_the_eigenvalue_of_many_nodes():
    """A perfect matching: lmax is 1 exactly, and a sum over 4 million nodes must not lift theta above it."""
    n = 4_000_000
    indptr, indices = np.arange(n + 1), (np.arange(n) ^ 1).astype(np.int32)
    theta, bound, *_ = ops.spectral_bounds(indptr, indices)
    assert theta <= 1 <= bound
    assert theta > 1 - 1e-7


@pytest.mark.parametrize("length", range(10))
def test_row_sums_of_every_length(length):
    """Four entries at a time, then the rest; nothing before or behind."""
    x = 2.0 ** np.arange(12)
    indices = np.arange(12, dtype=np.uint32)
    assert numba._row_sum(x, indices, 1, 1 + length) == 2.0 * (2**length - 1)


def test_the_kernel_writes_all_of_its_memory(on_poison):
    graph = GRAPHS["sparse"][0], GRAPHS["sparse"][1].view(np.uint32)
    expected = numba._ritz_value(*graph)
    # From Python a kernel gives an int back, which would not stay unsigned.
    found = on_poison(
        numba._ritz_value,
        bits_at=lambda *place: np.uint64(numba.bits_at(*place)),
        _first_product=on_poison(numba._first_product),
    )(*graph)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    made = calls(numba, "spectral_bounds")
    oracles.check_bounds(*star(5), ops.spectral_bounds(*star(5), compiled=compiled))
    assert len(made) == compiled
