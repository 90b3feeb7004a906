"""A sample, a graph and an edge_index are the same subgraph; what is none is refused."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import problems
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import refused

import musegnn
import oracles
from musegnn.sampling.record import Sample
from musegnn.unfolding import subgraph
from musegnn.unfolding.subgraph import as_sample, from_edge_index
from strategies import csrs

KINDS = [torch.int64, torch.int32, torch.int16, torch.uint8]


def edges_of(s):
    return torch.tensor(oracles.entries(s.indptr, s.indices), dtype=torch.int64).reshape(-1, 2).T


def check_whole(sample, graph):
    """All nodes, each a seed, and all edges, with the bounds of dense eigenvalues."""
    n = len(graph.indptr) - 1
    assert isinstance(sample, Sample)
    assert sample.node_ids.tolist() == list(range(n))
    assert (sample.num_nodes, sample.num_seeds) == (n, n)
    assert (sample.indptr.dtype, sample.indices.dtype) == (np.int64, np.int32)
    assert sample.indptr.tolist() == graph.indptr.tolist()
    assert sample.indices.tolist() == graph.indices.tolist()
    oracles.check_bounds(sample.indptr, sample.indices, sample.bounds)
    assert (sample.bounds[1::2] > 0).all() or not sample.num_entries


@pytest.mark.parametrize("graph", problems.ZOO.values(), ids=problems.ZOO)
def test_a_graph_and_its_edges_are_the_same_sample(graph):
    n = graph.num_nodes
    whole, edges = as_sample(graph, n), as_sample(edges_of(graph), n)
    check_whole(whole, graph)
    check_whole(edges, graph)
    assert whole.bounds.tolist() == edges.bounds.tolist()


@given(csr=csrs(), kind=st.sampled_from(KINDS), seed=st.integers(0, 99))
@settings(max_examples=50)
def test_any_order_loops_and_repeats_are_the_same_edges(csr, kind, seed):
    edges = edges_of(csr)
    rng = np.random.default_rng(seed)
    loops = torch.from_numpy(rng.integers(0, csr.num_nodes, 3)).expand(2, -1)
    again = torch.from_numpy(rng.integers(0, max(edges.shape[1], 1), min(edges.shape[1], 5)))
    mixed = torch.cat([edges, loops, edges[:, again], edges[:, again]], dim=1)
    mixed = mixed[:, torch.from_numpy(rng.permutation(mixed.shape[1]))]
    before = mixed.clone()
    check_whole(from_edge_index(mixed.to(kind), csr.num_nodes), csr)
    assert torch.equal(mixed, before)


@pytest.mark.parametrize("laplacian", problems.LAPLACIANS)
def test_all_forms_give_the_same_results(laplacian, tmp_path):
    """And those of dense matrices."""
    graph = problems.random()
    Z = problems.normal(graph, grad=True)
    energy = musegnn.Energy(2.0, laplacian=laplacian)
    expected = problems.descend(Z, graph, name=laplacian, lambda_=2.0)[-1]
    (gradient,) = torch.autograd.grad(expected.square().sum(), Z)
    value = sum(problems.energy(expected, Z, graph, name=laplacian, lambda_=2.0).values())
    graph.save(tmp_path / "graph")
    edges = edges_of(graph)
    forms = [
        graph,
        musegnn.Graph.open(tmp_path / "graph"),
        as_sample(graph, 17),
        edges,
        edges.flip(1).int(),
        edges.T.contiguous().T,
    ]
    bytes_ = set()
    for form in forms:
        Y = musegnn.unfold(Z, form, energy)
        torch.testing.assert_close(Y, expected, **problems.CLOSE)
        torch.testing.assert_close(energy.value(Y, Z, form), value, **problems.CLOSE)
        (found,) = torch.autograd.grad(Y.square().sum(), Z)
        torch.testing.assert_close(found, gradient, **problems.CLOSE)
        bytes_.add(Y.detach().numpy().tobytes())
    assert len(bytes_) == 1


def test_a_sample_is_taken_as_it_is():
    s = problems.sample()
    assert as_sample(s, s.num_nodes) is s


def test_isolated_nodes_behind_the_edges_are_there():
    s = as_sample(torch.tensor([[0, 1], [1, 0]]), 5)
    assert s.indptr.tolist() == [0, 1, 2, 2, 2, 2]


def test_no_edges_and_no_nodes():
    for n in (0, 3):
        s = as_sample(torch.empty(2, 0, dtype=torch.int64), n)
        assert (s.num_nodes, s.num_entries, s.bounds.tolist()) == (n, 0, [0] * 4)


def test_loops_alone_are_no_edges():
    assert as_sample(torch.tensor([[0, 2], [0, 2]]), 3).num_entries == 0


def test_ids_that_fill_half_a_key_stay_apart():
    """Row and column share 64 bits: one edge among two million nodes."""
    n = 1 << 21
    s = as_sample(torch.tensor([[5, n - 1, 0], [n - 1, 5, 0]]), n)
    assert s.edge_index().tolist() == [[5, n - 1], [n - 1, 5]]


def test_the_sample_of_a_graph_is_made_once_and_goes_with_it(monkeypatch):
    graph, made, bounds = problems.path(5), [], subgraph.ops.spectral_bounds
    monkeypatch.setattr(subgraph.ops, "spectral_bounds", lambda *csr: made.append(1) or bounds(*csr))
    first = as_sample(graph, 5)
    assert as_sample(graph, 5) is first
    assert len(made) == 1
    assert as_sample(problems.path(5), 5) is not first
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None


def test_edges_are_sorted_once_and_go_with_their_tensor():
    edges = edges_of(problems.path(5))
    first = as_sample(edges, 5)
    assert as_sample(edges, 5) is first
    # Other tensors, and other numbers of rows, are other subgraphs.
    assert as_sample(edges.clone(), 5) is not first
    assert as_sample(edges, 6).indptr.tolist() == [0, 1, 3, 5, 7, 8, 8]
    check_whole(as_sample(edges, 5), problems.path(5))
    gone = weakref.ref(as_sample(edges, 5).indptr)
    del edges
    gc.collect()
    assert gone() is None


def test_edges_that_are_written_to_are_sorted_again():
    edges = torch.tensor([[0, 1], [1, 0]])
    assert as_sample(edges, 3).edge_index().tolist() == [[0, 1], [1, 0]]
    edges += 1
    assert as_sample(edges, 3).edge_index().tolist() == [[1, 2], [2, 1]]


def test_edges_made_for_inference_are_edges():
    with torch.inference_mode():
        edges = torch.tensor([[0, 1], [1, 0]])
        assert as_sample(edges, 3).edge_index().tolist() == [[0, 1], [1, 0]]
        edges += 1
        assert as_sample(edges, 3).edge_index().tolist() == [[1, 2], [2, 1]]


@pytest.mark.parametrize("form", [np.zeros((2, 0), dtype=np.int64), None, [[0], [1]]])
def test_what_is_no_subgraph_is_refused(form):
    kind = type(form).__name__
    message = f"A subgraph is a musegnn.Sample, a musegnn.Graph or an edge_index tensor, got {kind}."
    with refused(message):
        as_sample(form, 2)


@pytest.mark.parametrize("rows", [0, 4, 1200])
def test_a_row_for_each_node_or_none_at_all(rows):
    message = f"The subgraph has 5 nodes, but there are {rows:,} rows. Pass a row for each node."
    graph = problems.path(5)
    for form in (graph, as_sample(graph, 5)):
        with refused(message):
            as_sample(form, rows)
        with refused(message):
            musegnn.unfold(torch.zeros(rows, 2), form, musegnn.Energy())


@pytest.mark.parametrize(
    ("edges", "got"),
    [
        (torch.zeros(3, 4, dtype=torch.int64), "int64(3, 4)"),
        (torch.zeros(4, 2, dtype=torch.int32), "int32(4, 2)"),
        (torch.zeros(2, dtype=torch.int64), "int64(2,)"),
        (torch.zeros(2, 1, 1, dtype=torch.int64), "int64(2, 1, 1)"),
        (torch.zeros(2, 3), "float32(2, 3)"),
        (torch.zeros(2, 3, requires_grad=True), "float32(2, 3)"),
        (torch.zeros(2, 0), "float32(2, 0)"),
        (torch.zeros(2, 3, dtype=torch.bool), "bool(2, 3)"),
    ],
)
def test_another_shape_or_dtype_is_refused(edges, got):
    with refused(f"edge_index must have shape (2, edges) and hold node ids, got {got}."):
        as_sample(edges, 5)


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 5), (2, 1 << 40), (-(1 << 40), 2)])
def test_ids_out_of_range_are_refused(low, high):
    message = f"edge_index has nodes from {low} to {high}, but there are 5 rows: ids must lie in 0..4."
    with refused(message):
        as_sample(torch.tensor([[low, high], [high, low]]), 5)


@pytest.mark.parametrize("edges", [[[0], [1]], [[0, 1, 1], [1, 0, 2]], [[0, 1, 2], [1, 2, 0]]])
def test_one_direction_alone_is_refused(edges):
    message = (
        "edge_index is not symmetric, so that it has no energy. "
        "Pass each edge in both directions (torch_geometric.utils.to_undirected)."
    )
    with refused(message):
        as_sample(torch.tensor(edges), 3)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_the_next_step_of_the_message_helps():
    from torch_geometric.utils import to_undirected

    s = as_sample(to_undirected(torch.tensor([[0, 1, 2], [1, 2, 0]])), 3)
    check_whole(s, problems.complete(3))


def test_a_graph_too_large_for_32_bits_is_refused(monkeypatch):
    graph = replace(problems.path(5), name="web")
    limit = type("int32", (), {"max": 4})
    monkeypatch.setattr(subgraph.np, "iinfo", lambda kind: limit)
    with refused("web has 5 nodes, too many for one step. Draw samples."):
        as_sample(graph, 5)
