"""A X against the dense matrix, its gradients, and torch.sparse."""

import numpy as np
import problems
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn.sampling.record import Sample
from musegnn.unfolding import propagate as room
from musegnn.unfolding.propagate import propagate, scattered, sparse
from musegnn.unfolding.subgraph import as_sample
from strategies import csrs

GRAPHS = {name: as_sample(graph, graph.num_nodes) for name, graph in problems.ZOO.items()}
DTYPES = [torch.float32, torch.float64]
every_graph = pytest.mark.parametrize("s", GRAPHS.values(), ids=GRAPHS)
# torch says so once in each process.
beta = pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")


def dense(s):
    return torch.from_numpy(oracles.dense(s.indptr, s.indices))


def sample(csr):
    ids = np.arange(csr.num_nodes, dtype=np.int32)
    indices = csr.indices.astype(np.int32)
    return Sample(node_ids=ids, indptr=csr.indptr, indices=indices, num_seeds=0, bounds=np.zeros(4))


@beta
@given(csr=csrs(), dim=st.sampled_from([1, 3, 65]), dtype=st.sampled_from(DTYPES), seed=st.integers(0, 99))
@settings(max_examples=50)
def test_neighbors_are_added_up_on_any_graph(csr, dim, dtype, seed):
    """Whole numbers, so that the order of the sums does not matter."""
    s = sample(csr)
    X = torch.randint(-9, 10, (s.num_nodes, dim), generator=torch.Generator().manual_seed(seed)).to(dtype)
    expected = (dense(s) @ X.double()).to(dtype)
    torch.testing.assert_close(propagate(s, X), expected, rtol=0, atol=0)
    torch.testing.assert_close(sparse(s, X) @ X, expected, rtol=0, atol=0)
    torch.testing.assert_close(scattered(s, X), expected, rtol=0, atol=0)


@beta
@every_graph
def test_the_sparse_matrix_is_the_dense_one(s):
    for dtype in DTYPES:
        matrix = sparse(s, torch.empty(0, dtype=dtype))
        assert (matrix.layout, matrix.dtype) == (torch.sparse_csr, dtype)
        assert torch.equal(matrix.to_dense(), dense(s).to(dtype))


@beta
def test_no_nodes_have_no_sums():
    s = as_sample(torch.empty(2, 0, dtype=torch.int64), 0)
    X = torch.empty(0, 3)
    assert propagate(s, X).shape == (sparse(s, X) @ X).shape == (0, 3)


@every_graph
def test_the_gradient_is_that_of_the_dense_product(s):
    X, G = problems.normal(s, count=2, grad=True)
    (found,) = torch.autograd.grad(propagate(s, X), X, G)
    torch.testing.assert_close(found, dense(s) @ G, **problems.CLOSE)


@every_graph
def test_gradients_of_gradients(s):
    X = problems.normal(s, dim=2, grad=True)
    assert torch.autograd.gradcheck(lambda X: propagate(s, X), X)
    assert torch.autograd.gradgradcheck(lambda X: propagate(s, X), X)
    # A function that is not linear, so that its second derivative is not zero.
    assert torch.autograd.gradgradcheck(lambda X: propagate(s, X * X) * X, X)


def test_an_input_that_wants_no_gradient_gets_none():
    s = GRAPHS["path"]
    X = problems.normal(s)
    before = X.clone()
    assert not propagate(s, X).requires_grad
    assert torch.equal(X, before)


def test_rows_may_lie_apart_in_memory():
    s = GRAPHS["random"]
    X = problems.normal(s, dim=8)
    for part in (X[:, ::2], X.T.contiguous().T, X[:, 1:2].expand(-1, 5)):
        torch.testing.assert_close(propagate(s, part), dense(s) @ part, **problems.CLOSE)


def test_a_gradient_may_lie_apart_in_memory():
    """The gradient of a sum is one number seen everywhere."""
    s = GRAPHS["random"]
    X = problems.normal(s, grad=True)
    propagate(s, X).sum().backward()
    torch.testing.assert_close(X.grad, dense(s).sum(dim=1)[:, None].expand(-1, 3), **problems.CLOSE)


@beta
def test_what_the_kernel_cannot_do_torch_sparse_does(monkeypatch):
    """Complex numbers, of which NumPy's kernel knows nothing."""
    s, made = GRAPHS["random"], []
    monkeypatch.setattr(room, "sparse", lambda *args: made.append(1) or sparse(*args))
    X, imaginary = problems.normal(s, count=2)
    for kernel in (X, X.float()):
        propagate(s, kernel)
    assert not made
    Y = room._Summed.apply(torch.complex(X, imaginary), s, s)
    assert made
    torch.testing.assert_close(Y.real, dense(s) @ X, **problems.CLOSE)
    torch.testing.assert_close(Y.imag, dense(s) @ imaginary, **problems.CLOSE)


def test_torchs_number_of_threads_is_taken(monkeypatch):
    asked, kernel = [], room.ops.propagate
    monkeypatch.setattr(
        room.ops, "propagate", lambda *args, threads: asked.append(threads) or kernel(*args, threads=threads)
    )
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    s = GRAPHS["star"]
    X = problems.normal(s, dim=130)
    torch.testing.assert_close(propagate(s, X), dense(s) @ X, **problems.CLOSE)
    assert asked == [3]
