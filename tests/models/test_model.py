"""The model is f, the naive dense loop, and g of the seeds' rows."""

import re

import jaxtyping
import numpy as np
import problems
import pytest
import torch
from problems import CLOSE, ZOO
from torch import nn

from musegnn import MLP, Energy, InputError, MuseGNN
from musegnn.models.dropout import Dropout

IN, OUT, HIDDEN = 5, 3, 6


def model_of(seed=0, **settings):
    torch.manual_seed(seed)
    return MuseGNN(IN, OUT, HIDDEN, **settings).double()


@pytest.mark.parametrize("name", problems.LAPLACIANS)
@pytest.mark.parametrize("gamma", [0.0, 0.6])
def test_it_is_f_then_the_naive_loop_then_g(name, gamma):
    s = problems.sample()
    X, mu = problems.normal(s, IN), problems.normal(s, HIDDEN)
    seen = torch.arange(s.num_nodes) % 2 == 0
    model = model_of(energy=Energy(2.0, gamma, name), steps=5)
    settings = {"steps": 5, "mu": mu, "seen": seen}
    Y = problems.descend(model.f(X), s, "relu", name, 2.0, gamma, **settings)[-1]
    expected = model.g(Y[: s.num_seeds])
    logits = model(s, X, mu, seen=seen)
    torch.testing.assert_close(logits, expected, **CLOSE)
    torch.testing.assert_close(model.embed(s, X, mu, seen=seen), Y, **CLOSE)
    parameters = [*model.parameters()]
    found, slopes = (torch.autograd.grad(part.square().sum(), parameters) for part in (logits, expected))
    for pair in zip(found, slopes, strict=True):
        torch.testing.assert_close(*pair, **CLOSE)


def test_g_reads_only_the_rows_of_the_seeds():
    s, read = problems.sample(), []
    model = model_of()
    model.g.register_forward_pre_hook(lambda module, inputs: read.append(inputs[0]))
    X = problems.normal(s, IN)
    logits = model(s, X)
    assert 0 < s.num_seeds < s.num_nodes
    assert read[0].shape == (s.num_seeds, HIDDEN)
    assert torch.equal(read[0], model.embed(s, X)[: s.num_seeds])
    assert logits.shape == (s.num_seeds, OUT)


def test_all_rows_of_a_graph_and_of_an_edge_index():
    s = problems.sample()
    edges = torch.from_numpy(s.edge_index())
    X, whole, model = problems.normal(s, IN), ZOO["random"], model_of()
    expected = model.g(problems.descend(model.f(X), s)[-1])
    torch.testing.assert_close(model(edges, X), expected, **CLOSE)
    rows = problems.normal(whole, IN)
    torch.testing.assert_close(
        model(whole, rows), model.g(problems.descend(model.f(rows), whole)[-1]), **CLOSE
    )


@pytest.mark.parametrize("layers", [1, 2, 4])
def test_layers_and_widths(layers):
    model = MuseGNN(IN, OUT, HIDDEN, layers=layers, dropout=0.2, input_dropout=0.1, skip=True)
    assert model.f.widths == [IN] + [HIDDEN] * layers
    assert model.g.widths == [HIDDEN] * layers + [OUT]
    shares = [
        [module.p for module in part.modules() if isinstance(module, Dropout)] for part in (model.f, model.g)
    ]
    assert shares == [[0.1] + [0.2] * (layers - 1), [0.0] + [0.2] * (layers - 1)]
    assert model.f.skip.weight.shape == (HIDDEN, IN)
    assert model.g.skip.weight.shape == (OUT, HIDDEN)


def test_the_defaults_are_those_of_the_paper():
    model = MuseGNN(IN, OUT)
    assert model.f.widths == [IN, 512, 512, 512]
    assert model.g.widths == [512, 512, 512, OUT]
    assert repr(model.energy) == repr(Energy(1.0, 0.0, "normalized", "relu"))
    assert (model.steps, model.alpha) == (8, "auto")
    assert (model.f.skip, model.g.skip) == (None, None)
    assert all(module.p == 0 for module in model.modules() if isinstance(module, Dropout))


def test_an_own_alpha_and_number_of_steps():
    s = ZOO["random"]
    X = problems.normal(s, IN)
    model = model_of(energy=Energy(2.0, prox="l1"), steps=3, alpha=0.2)
    sizes = torch.full((s.num_nodes, 1), 0.2, dtype=torch.float64)
    Y = problems.descend(model.f(X), s, "l1", lambda_=2.0, steps=3, sizes=sizes)[-1]
    torch.testing.assert_close(model(s, X), model.g(Y), **CLOSE)


@pytest.mark.parametrize("empty", [nn.Identity, nn.Sequential])
def test_other_modules_for_f_and_g(empty):
    """An empty Sequential is a module, though it counts as False."""
    s = ZOO["random"]
    X = problems.normal(s, 4)
    expected = problems.descend(X, s, lambda_=2.0)[-1]
    model = MuseGNN(4, 4, 4, Energy(2.0), f=empty(), g=empty())
    assert [*model.parameters()] == []
    torch.testing.assert_close(model(s, X), expected, **CLOSE)
    torch.manual_seed(0)
    f, g = nn.Linear(4, 2).double(), nn.Sequential(nn.Tanh(), nn.Linear(2, 3)).double()
    mixed = MuseGNN(4, 3, 2, Energy(2.0), f=f, g=g)
    assert mixed.f is f
    assert mixed.g is g
    torch.testing.assert_close(mixed(s, X), g(problems.descend(f(X), s, lambda_=2.0)[-1]), **CLOSE)


def test_parameters_are_drawn_anew():
    """As they were drawn first: Xavier, no bias, though a Linear alone would draw otherwise."""
    model = model_of(skip=True, f=nn.Sequential(nn.Dropout(0.1), MLP([IN, HIDDEN]), nn.LayerNorm(HIDDEN)))
    for parameter in model.parameters():
        nn.init.constant_(parameter, 7.0)
    torch.manual_seed(3)
    model.reset_parameters()
    torch.manual_seed(3)
    model.f[1].reset_parameters()
    expected = model.f[1].layers[0].weight.detach().clone()
    torch.manual_seed(3)
    model.reset_parameters()
    assert torch.equal(model.f[1].layers[0].weight, expected)
    assert model.f[2].weight.tolist() == [1.0] * HIDDEN
    for module in model.modules():
        if isinstance(module, nn.Linear):
            assert not module.bias.any()
            assert not (module.weight == 7).any()


def test_learned_weights_of_the_energy_are_parameters_of_the_model():
    s = ZOO["random"]
    weight = nn.Parameter(torch.tensor(2.0, dtype=torch.float64))
    model = model_of(energy=Energy(weight))
    assert any(parameter is weight for parameter in model.parameters())
    X = problems.normal(s, IN)
    (found,) = torch.autograd.grad(model(s, X).square().sum(), weight)
    other = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    expected = model.g(problems.descend(model.f(X), s, lambda_=other)[-1]).square().sum()
    torch.testing.assert_close(found, torch.autograd.grad(expected, other)[0], **CLOSE)


def test_permuted_nodes_have_permuted_logits():
    s = ZOO["random"]
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(s.num_nodes, generator=generator)
    edges = torch.from_numpy(problems.edges_of(s))
    X, model = problems.normal(s, IN), model_of(energy=Energy(4.0, prox="nonnegative_l1"))
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    shuffled = place[edges][:, torch.randperm(edges.shape[1], generator=generator)]
    torch.testing.assert_close(model(shuffled, X[order]), model(edges, X)[order], **CLOSE)


def test_dropout_is_off_in_evaluation():
    s = ZOO["random"]
    X, model = problems.normal(s, IN), model_of(dropout=0.5, input_dropout=0.5)
    assert not torch.equal(model(s, X), model(s, X))
    model.eval()
    assert torch.equal(model(s, X), model(s, X))
    plain = model_of()
    plain.load_state_dict(model.state_dict())
    assert torch.equal(model(s, X), plain(s, X))


@pytest.mark.parametrize("layers", [0, -1])
def test_layers_that_cannot_be(layers):
    with problems.refused(
        f"MuseGNN needs layers >= 1, output_layers >= 1 and steps >= 0, got {layers}, {layers} and 8."
    ):
        MuseGNN(IN, OUT, layers=layers)


def test_an_energy_that_is_none():
    with problems.refused("energy must be a musegnn.Energy or another AbstractEnergy, got 4.0."):
        MuseGNN(IN, OUT, HIDDEN, 4.0)


@pytest.mark.parametrize(
    ("features", "got"),
    [
        (np.zeros((6, 4), dtype=np.float32), "ndarray"),
        (torch.zeros(6, 4, dtype=torch.int64), "torch.int64[6, 4]"),
        (torch.zeros(6), "torch.float32[6]"),
    ],
)
def test_features_that_are_none(features, got, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    s = problems.ZOO["path"]
    with pytest.raises(
        InputError, match=re.escape(f"got {got}. Take torch.as_tensor(g.features[s.node_ids]")
    ):
        MuseGNN(4, 2, 8)(s, features)


def test_features_of_other_nodes():
    s = problems.ZOO["path"]
    message = "There are 5 rows of features, but 6 nodes. Pass a row for each node, g.features[s.node_ids]."
    with problems.refused(message):
        MuseGNN(4, 2, 8)(s, torch.zeros(5, 4))
