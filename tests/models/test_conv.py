"""Descent steps as a layer of a PyG model."""

import problems
import pytest
import torch
from problems import CLOSE, ZOO
from torch import nn

from musegnn import MuseConv, unfold

torch_geometric = pytest.importorskip("torch_geometric")


def edges_of(s):
    return torch.from_numpy(problems.edges_of(s))


@pytest.mark.parametrize("name", problems.LAPLACIANS)
@pytest.mark.parametrize("prox", ["none", "relu", "group"])
def test_it_is_unfold_and_the_naive_loop(name, prox):
    s = ZOO["random"]
    x = problems.normal(s, grad=True)
    conv = MuseConv(steps=4, lambda_=3.0, laplacian=name, prox=prox, precondition="jacobi")
    y = conv(x, edges_of(s))
    assert torch.equal(y, unfold(x, s, conv.energy, 4))
    naive = problems.descend(x, s, prox, name, 3.0, precondition="jacobi", steps=4)[-1]
    torch.testing.assert_close(y, naive, **CLOSE)
    found, expected = (torch.autograd.grad(part.square().sum(), x)[0] for part in (y, naive))
    torch.testing.assert_close(found, expected, **CLOSE)


def test_its_defaults_and_an_own_alpha():
    s = ZOO["random"]
    x = problems.normal(s)
    torch.testing.assert_close(MuseConv()(x, edges_of(s)), problems.descend(x, s, steps=8)[-1], **CLOSE)
    sizes = torch.full((len(x), 1), 0.1, dtype=torch.float64)
    naive = problems.descend(x, s, steps=8, sizes=sizes)[-1]
    torch.testing.assert_close(MuseConv(alpha=0.1)(x, edges_of(s)), naive, **CLOSE)


def test_between_the_layers_of_a_pyg_model():
    s = ZOO["random"]
    torch.manual_seed(0)
    model = torch_geometric.nn.Sequential(
        "x, edge_index",
        [
            (torch_geometric.nn.GCNConv(5, 4), "x, edge_index -> x"),
            (MuseConv(lambda_=2.0), "x, edge_index -> x"),
            (nn.Linear(4, 3), "x -> x"),
        ],
    ).double()
    x, edges = problems.normal(s, 5), edges_of(s)
    gcn, _, linear = model.children()
    # GCNConv is I - L, with the loops of the normalized Laplacian.
    spread = torch.eye(s.num_nodes, dtype=torch.float64) - problems.laplacian(s, "normalized")
    hidden = spread @ x @ gcn.lin.weight.T + gcn.bias
    expected = linear(problems.descend(hidden, s, lambda_=2.0)[-1])
    result = model(x, edges)
    torch.testing.assert_close(result, expected, **CLOSE)
    parameters = [*model.parameters()]
    found, slopes = (torch.autograd.grad(part.square().sum(), parameters) for part in (result, expected))
    for pair in zip(found, slopes, strict=True):
        torch.testing.assert_close(*pair, **CLOSE)


def test_permuted_nodes_and_edges_have_permuted_rows():
    s = ZOO["random"]
    generator = torch.Generator().manual_seed(2)
    order, edges = torch.randperm(s.num_nodes, generator=generator), edges_of(s)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    shuffled = place[edges][:, torch.randperm(edges.shape[1], generator=generator)]
    x, conv = problems.normal(s), MuseConv(lambda_=4.0, laplacian="combinatorial", prox="l1")
    torch.testing.assert_close(conv(x[order], shuffled), conv(x, edges)[order], **CLOSE)


def test_learned_weights_are_its_parameters():
    weight = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    conv = MuseConv(lambda_=weight)
    assert [*conv.parameters()] == [weight]


def test_settings_that_cannot_be():
    with problems.refused("laplacian must be 'normalized' or 'combinatorial', got 'random'."):
        MuseConv(laplacian="random")


def test_a_layer_has_no_means():
    with problems.refused("A layer has no means: gamma must be 0. Take musegnn.MuseGNN for gamma > 0."):
        MuseConv(gamma=0.5)
