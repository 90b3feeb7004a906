"""GCN, SAGE, RSAGE and GAT on dense matrices in float64, and models to compare with them."""

import numpy as np
import pytest
import torch

import oracles
from musegnn.baselines.contract import Shape
from musegnn.baselines.convolutions import GAT, GCN, SAGE
from musegnn.sampling.draws import Draws
from tiny_runs import tiny_graph

# Here, since PyG warns when it is imported.
pytest.importorskip("torch_geometric.nn")

KINDS = {"GCN": GCN, "SAGE": SAGE, "GAT": GAT}
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
PLAIN = Shape(
    **{"hidden": 6, "layers": 3, "steps": 0, "dropout": 0.0, "input_dropout": 0.0, "normalize": False},
    **{"norm": "none", "residual": False, "heads": 2, "history": "none", "momentum": 0.4, "restart": 0.1},
    correct_and_smooth=False,
    label_inputs=False,
    type_inputs=False,
)
TUNED = {"norm": "layer", "residual": True}


def small_graph():
    return tiny_graph(40, dim=5)


def model_of(kind, graph, **settings):
    torch.manual_seed(0)
    shape = Shape(**(vars(PLAIN) | settings))
    return KINDS[kind](graph, 3, shape).double().train()


def drawn(graph, sampler, split="train", **settings):
    return [*Draws(graph, sampler, split, **settings)]


def rows_of(graph, ids):
    return torch.from_numpy(graph.features[ids].astype(np.float64))


def matrix(graph):
    return torch.from_numpy(oracles.dense(graph.indptr, graph.indices))


def convolve(kind, conv, x, A, degree):
    """The rows h of all nodes; `degree` may count neighbors that A does not have."""
    weights = dict(conv.named_parameters())
    if kind == "GCN":
        eye, root = torch.eye(len(A), dtype=A.dtype), torch.diag((degree + 1) ** -0.5)
        return root @ (A + eye) @ root @ x @ weights["lin.weight"].T + weights["bias"]
    if kind == "SAGE":
        mean = torch.stack([x[row > 0].mean(dim=0) if row.any() else 0 * x[0] for row in A])
        return mean @ weights["lin_l.weight"].T + weights["lin_l.bias"] + x @ weights["lin_r.weight"].T
    if kind == "RSAGE":
        # A matrix for each way.
        h = x @ weights["own.weight"].T + weights["own.bias"]
        for number, way in enumerate(A):
            mean = torch.stack([x[row > 0].mean(dim=0) if row.any() else 0 * x[0] for row in way])
            h = h + mean @ weights[f"others.{number}.weight"].T
        return h
    heads = []
    for head, rows in enumerate((x @ weights["lin.weight"].T).chunk(conv.heads, dim=1)):
        to, of = rows @ weights["att_dst"][0, head], rows @ weights["att_src"][0, head]
        score = torch.nn.functional.leaky_relu(to[:, None] + of[None, :], 0.2)
        there = (A + torch.eye(len(A), dtype=A.dtype)) > 0
        heads.append(score.masked_fill(~there, -torch.inf).softmax(dim=1) @ rows)
    joined = torch.cat(heads, dim=1) if conv.concat else sum(heads) / len(heads)
    return joined + weights["bias"]


def combine(kind, layer, x, A, degree):
    h = convolve(kind, layer.conv, x, A, degree)
    if layer.skip is None:
        return h
    linear = isinstance(layer.skip, torch.nn.Linear)
    return h + (x @ layer.skip.weight.T + layer.skip.bias if linear else x)


def finish(kind, layer, h):
    if isinstance(layer.norm, torch.nn.LayerNorm | torch.nn.BatchNorm1d):
        over = 1 if isinstance(layer.norm, torch.nn.LayerNorm) else 0
        mean, var = h.mean(dim=over, keepdim=True), h.var(dim=over, keepdim=True, correction=0)
        h = (h - mean) / (var + 1e-5).sqrt() * layer.norm.weight + layer.norm.bias
    return torch.where(h > 0, h, torch.expm1(h)) if kind == "GAT" else h.clamp(min=0)


def embed(kind, model, x, A):
    """The rows behind each layer, of all nodes; the last are logits."""
    degree, found = A.sum(dim=1), []
    *hidden, last = model.layers
    for layer in hidden:
        x = finish(kind, layer, combine(kind, layer, x, A, degree))
        found.append(x)
    return [*found, combine(kind, last, x, A, degree)]


def check_equal(model, logits, expected):
    """The logits, and the gradient of each weight by its name."""
    torch.testing.assert_close(logits, expected, **CLOSE)
    names, weights = zip(*model.named_parameters(), strict=True)
    # Not a constant: each row and column counts differently.
    slope = torch.arange(1.0, 1 + logits.numel(), dtype=logits.dtype).reshape(logits.shape).sin()
    settings = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    found = torch.autograd.grad((slope * logits).sum(), weights, **settings)
    truth = torch.autograd.grad((slope * expected).sum(), weights, **settings)
    for name, one, other in zip(names, found, truth, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}", **CLOSE)
