"""UniformInduced: each node with probability p, independently of all others; all edges among those inside."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import Graph, InputError
from musegnn.sampling import Draws, UniformInduced, uniform
from musegnn.sampling.base import describe
from strategies import graph_parts

NUM_NODES, NUM_SAMPLES, P = 12, 1500, 0.3


@pytest.fixture(scope="module")
def graph():
    """A ring with chords, a hub, and an isolated node."""
    nodes = np.arange(NUM_NODES - 1)
    ring = [nodes, (nodes + 1) % (NUM_NODES - 1)]
    edges = np.concatenate([ring, [np.zeros(6, int), np.arange(2, 8)]], axis=1)
    return Graph.from_edges(edges, num_nodes=NUM_NODES)


@pytest.fixture(scope="module")
def samples(graph):
    return list(Draws(graph, UniformInduced(p=P, num_samples=NUM_SAMPLES), "none", seed=0))


@pytest.fixture(scope="module")
def inside(samples):
    """(samples, nodes): whether the node is in the sample."""
    table = np.zeros((NUM_SAMPLES, NUM_NODES), dtype=bool)
    for i, sample in enumerate(samples):
        table[i, sample.node_ids] = True
    return table


def test_the_number_of_nodes_is_binomial(inside):
    counts = np.bincount(inside.sum(axis=1), minlength=NUM_NODES + 1)
    expected = NUM_SAMPLES * scipy.stats.binom.pmf(np.arange(NUM_NODES + 1), NUM_NODES, P)
    # The rare ends together, so that each class expects more than ten.
    low, high = 1, 7
    counts = [counts[: low + 1].sum(), *counts[low + 1 : high], counts[high:].sum()]
    expected = [expected[: low + 1].sum(), *expected[low + 1 : high], expected[high:].sum()]
    assert min(expected) > 10
    assert oracles.p_value(counts, expected) > 1e-3


def test_each_node_is_inside_with_probability_p(inside):
    for column in inside.T:
        assert abs(column.mean() - P) < 5 * np.sqrt(P * (1 - P) / NUM_SAMPLES)


def test_pairs_of_nodes_and_of_samples_are_independent(inside):
    sigma = np.sqrt(P**2 * (1 - P**2) / NUM_SAMPLES)
    for u in range(NUM_NODES):
        for v in range(u):
            assert abs((inside[:, u] & inside[:, v]).mean() - P**2) < 5 * sigma
        assert abs((inside[1:, u] & inside[:-1, u]).mean() - P**2) < 5 * sigma


def test_each_edge_is_inside_with_probability_p_squared(graph, samples):
    """The fact under Proposition 3.1: E[A_s] = p^2 A off the diagonal."""
    edges = set(oracles.entries(graph.indptr, graph.indices))
    counts = dict.fromkeys(edges, 0)
    for sample in samples:
        for edge in oracles.edges_of(sample):
            counts[edge] += 1
    sigma = np.sqrt(P**2 * (1 - P**2) / NUM_SAMPLES)
    assert all(abs(count / NUM_SAMPLES - P**2) < 5 * sigma for count in counts.values())


@settings(max_examples=50)
@given(
    parts=graph_parts(),
    p=st.floats(0, 1, exclude_min=True),
    seed=st.integers(0, 99),
    split=st.sampled_from(["train", "test", "none"]),
)
def test_a_sample_is_node_induced_and_its_seeds_are_the_splits_nodes(parts, p, seed, split):
    graph = parts.graph()
    sample = Draws(graph, UniformInduced(p=p, num_samples=3), split, seed=seed)[2]
    nodes = sample.node_ids.tolist()
    code = {"train": 0, "test": 2, "none": -1}[split]
    seeds = [node for node in nodes if graph.split[node] == code]
    oracles.check_sample(sample, graph, seeds, nodes, oracles.induced(graph, nodes))


@pytest.mark.parametrize("p", [1, 1.0])
def test_p_of_one_is_everything(graph, p):
    for sample in Draws(graph, UniformInduced(p=p, num_samples=3), "none"):
        assert sample.node_ids.tolist() == list(range(NUM_NODES))
        assert sample.num_entries == graph.num_edges


@pytest.mark.parametrize("p", [1e-9, 1e-300])
def test_a_tiny_p_gives_empty_samples(graph, p):
    for sample in Draws(graph, UniformInduced(p=p, num_samples=3), "none"):
        oracles.check_sample(sample, graph, [], [], set())
        assert sample.indptr.tolist() == [0]


@pytest.mark.parametrize("block", [1, 5, 12, 13])
def test_nodes_are_counted_in_blocks_without_a_trace(graph, samples, monkeypatch, block):
    monkeypatch.setattr(uniform, "_BLOCK", block)
    again = Draws(graph, UniformInduced(p=P, num_samples=NUM_SAMPLES), "none", seed=0)[:20]
    assert [s.node_ids.tolist() for s in again] == [s.node_ids.tolist() for s in samples[:20]]


def test_a_node_that_is_inside_stays_inside_when_p_grows(graph):
    """Whether a number is below p, to the last of 53 bits."""
    rng = np.random.Philox
    drawn = [
        UniformInduced(p=p).draw(graph, 0, np.random.Generator(rng(key=5))).tolist()
        for p in (0.1, 0.3, 0.5, 0.9, 1 - 2**-53, 1)
    ]
    assert all(set(small) <= set(large) for small, large in zip(drawn, drawn[1:], strict=False))
    assert drawn[-1] == list(range(NUM_NODES))


@pytest.mark.parametrize(
    ("p", "inside"),
    [(1, [0, 1, 2, 3]), (1 - 2**-53, [0, 1, 2]), (2**-52, [0, 1]), (2**-53, [0]), (1e-300, [])],
)
def test_the_threshold_is_exact(monkeypatch, p, inside):
    """Numbers k / 2**53 below p, whatever their eleven lowest bits are."""
    numbers = np.array([0, 1, 2**53 - 2, 2**53 - 1], dtype=np.uint64) << np.uint64(11) | np.uint64(2047)
    monkeypatch.setattr("musegnn.ops.random_bits", lambda key, nodes: numbers[nodes])
    four = Graph.from_edges(np.empty((2, 0), int), num_nodes=4)
    assert UniformInduced(p=p).draw(four, 0, np.random.default_rng(0)).tolist() == inside


@pytest.mark.parametrize("p", [0, -0.1, 1.0001, float("nan"), float("inf"), "0.5", None, True], ids=repr)
def test_other_probabilities_are_refused(unchecked, p):
    with pytest.raises(InputError, match=r"^p of UniformInduced must lie in \(0, 1\], got ") as it:
        UniformInduced(p=p)
    assert str(it.value).endswith(f"got {p!r}.")


@pytest.mark.parametrize("num_samples", [0, -3, 2.0, True, None, 1 << 63], ids=repr)
def test_other_numbers_of_samples_are_refused(unchecked, num_samples):
    with pytest.raises(
        InputError, match=r"^num_samples of UniformInduced must be a positive integer below 2\*\*63, got "
    ):
        UniformInduced(num_samples=num_samples)


def test_one_in_ten_and_a_hundred_samples_unless_told(graph):
    assert UniformInduced() == UniformInduced(p=0.1, num_samples=100)
    assert len(Draws(graph, UniformInduced(), "none")) == 100


def test_one_is_one_whether_whole_or_not(unchecked):
    """1 and 1.0 are the same setting: the same description, and so the same samples."""
    assert type(UniformInduced(p=1).p) is float
    assert type(UniformInduced(p=np.float64(0.5)).p) is float
    assert describe(UniformInduced(p=1)) == describe(UniformInduced(p=1.0))
    assert repr(describe(UniformInduced(p=1))) == repr(describe(UniformInduced(p=1.0)))
