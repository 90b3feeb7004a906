"""A graph, samples of it, and what peers are compared with: dense matrices in float64, the same weights."""

from dataclasses import replace

import numpy as np
import torch

import musegnn
import oracles
from musegnn.baselines.contract import Shape
from tiny_runs import tiny_graph

CLOSE = {"rtol": 1e-9, "atol": 1e-10}
GRAPH = tiny_graph(45, dim=70, seed=3)
"""More features than fit in one band; isolated nodes, and nodes of no split."""
SHAPE = Shape(
    hidden=5, layers=2, steps=3, dropout=0.0, input_dropout=0.0, normalize=False, norm="none", residual=False,
    heads=2, history="none", momentum=0.4, restart=0.2, correct_and_smooth=False,
    label_inputs=False, type_inputs=False,
)  # fmt: skip


def shape(**settings):
    return replace(SHAPE, **settings)


def peer(kind, graph=GRAPH, *, like=torch.float64, **settings):
    """With weights that are all of one size, biases too."""
    torch.manual_seed(0)
    model = kind(graph, graph.num_classes, shape(**settings)).to(like)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def whole(split="train", graph=GRAPH):
    """All nodes, those of the split first."""
    return musegnn.Draws(graph, musegnn.Cluster(parts=1), split, batch_size=1, seed=0)[0]


def part(split="train", graph=GRAPH, index=0):
    """Some nodes, without those that no fanout reached."""
    return musegnn.Draws(graph, musegnn.ShadowKHop(fanouts=[2]), split, batch_size=5, seed=0)[index]


def features(sample, graph=GRAPH):
    return torch.from_numpy(graph.features[sample.node_ids]).double()


def dense_s(subgraph):
    """S of a sample or of a graph: I - L."""
    L, _ = oracles.laplacians(subgraph.indptr, subgraph.indices)
    return torch.from_numpy(np.eye(len(L)) - L)


def by_hand(mlp, x):
    """A network of two layers, and the Linear past it."""
    first, _, second = mlp.layers
    y = torch.relu(x @ first.weight.T + first.bias) @ second.weight.T + second.bias
    return y if mlp.skip is None else y + x @ mlp.skip.weight.T + mlp.skip.bias


def divided(x):
    """Each row by the sum of its absolute values."""
    return x / x.abs().sum(dim=1, keepdim=True)


def check_alike(model, got, expected, **close):
    """Values, and the gradient of each weight by its name, for a loss without a pattern."""
    close = close or CLOSE
    torch.testing.assert_close(got, expected, **close)
    assert got.dtype == torch.float64
    loss = torch.randn(got.shape, dtype=got.dtype, generator=torch.Generator().manual_seed(1))
    weights = dict(model.named_parameters())
    found, wanted = (
        torch.autograd.grad((logits * loss).sum(), list(weights.values())) for logits in (got, expected)
    )
    for name, one, other in zip(weights, found, wanted, strict=True):
        torch.testing.assert_close(one, other, **close, msg=lambda text, name=name: f"{name}: {text}")
        assert one.any()
