"""`musegnn.train` against algorithm 1 written plainly: dense matrices, autograd through all steps, Adam."""

import copy

import numpy as np
import problems
import pytest
import small_runs
import torch
from torch import nn

import musegnn
from musegnn import Energy
from musegnn.training.schedule import epoch_order, sample_seed

EPOCHS, LR = 2, 0.02
GRAPH = small_runs.graph(unlabeled=20)
CASES = {
    "without means": {"gamma": 0.0},
    "with means": {},
    "unseen nodes are drawn to 0": {"unseen": "zero", "rho": 0.5},
    "no penalty": {"prox": "none", "rho": 0.0},
    "group penalty": {"prox": "group", "rho": 1.0},
    "clipped": {"clip": 0.05},
    "decayed": {"weight_decay": 0.1, "gamma": 0.0},
    "cosine": {"schedule": "cosine", "warmup": 3, "gamma": 0.0},
    "linear": {"schedule": "linear"},
    "weighted": {"class_weights": True},
    "weighted and smoothed": {"class_weights": True, "label_smoothing": 0.2, "gamma": 0.0},
    "dropped": {"dropout": 0.4, "input_dropout": 0.2, "seed": 3},
    "learned": {"learned": True},
    "learned without means": {"learned": True, "gamma": 0.0, "unseen": "mask"},
    "several labels": {"loss": "bce"},
    "four samples a step": {"samples_per_step": 4, "schedule": "cosine", "dropout": 0.3},
    "four weighted samples a step": {"samples_per_step": 4, "class_weights": True, "clip": 0.05},
    "all samples in a step, several labels": {"samples_per_step": 9, "loss": "bce"},
}
MODEL = ("dropout", "input_dropout")
TRAINING = (
    "samples_per_step",
    "unseen",
    "rho",
    "clip",
    "weight_decay",
    "schedule",
    "warmup",
    "class_weights",
    "label_smoothing",
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Training samples alone, so that the last weights are the best."""
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s", GRAPH, splits=("train",))


def tasks():
    """For each class a yes or no, and every fifth answer is unknown."""
    rows = np.eye(small_runs.CLASSES)[GRAPH.labels]
    rows.flat[::5] = np.nan
    return rows


def rate(case, step, total):
    """The learning rate of a step."""
    warmup = case.get("warmup", 0)
    if step < warmup:
        return LR * (step + 1) / (warmup + 1)
    done = (step - warmup) / (total - warmup)
    return (
        LR
        * {"constant": 1, "linear": 1 - done, "cosine": 0.5 + 0.5 * np.cos(np.pi * done)}[
            case.get("schedule", "constant")
        ]
    )


def loss_of(case, logits, seeds):
    """Equation 10, seed by seed."""
    if case.get("loss") == "bce":
        rows = torch.from_numpy(tasks()[seeds])
        known = ~rows.isnan()
        p = torch.sigmoid(logits)[known]
        return -(rows[known] * p.log() + (1 - rows[known]) * (1 - p).log()).mean()
    train = GRAPH.labels[(GRAPH.split == 0) & (GRAPH.labels >= 0)]
    counts = np.bincount(train)
    weight = len(train) / (len(counts) * counts) if case.get("class_weights") else np.ones(len(counts))
    smooth, total, weights = case.get("label_smoothing", 0), 0, 0
    for row, label in zip(torch.log_softmax(logits, dim=1), GRAPH.labels[seeds], strict=True):
        if label >= 0:
            even = sum(w * -entry for w, entry in zip(weight, row, strict=True)) / len(row)
            total = total + (1 - smooth) * weight[label] * -row[label] + smooth * even
            weights += weight[label]
    return total / weights


class Adam:
    """As published; the decay is part of the gradient."""

    def __init__(self, parameters, decay):
        self.parameters, self.decay, self.t = list(parameters), decay, 0
        self.m = [torch.zeros_like(part) for part in self.parameters]
        self.v = [torch.zeros_like(part) for part in self.parameters]

    @torch.no_grad()
    def step(self, gradients, lr):
        self.t += 1
        for part, m, v, gradient in zip(self.parameters, self.m, self.v, gradients, strict=True):
            g = gradient + self.decay * part
            m.copy_(0.9 * m + 0.1 * g)
            v.copy_(0.999 * v + 0.001 * g**2)
            part -= lr * (m / (1 - 0.9**self.t)) / ((v / (1 - 0.999**self.t)).sqrt() + 1e-8)


def algorithm_one(samples, model, case):
    """The model with its last weights, M and c."""
    gamma, rho, seed = case.get("gamma", 0.5), case.get("rho", 0.9), case.get("seed", 0)
    M = torch.zeros(GRAPH.num_nodes, small_runs.HIDDEN)
    c = torch.zeros(GRAPH.num_nodes, dtype=torch.int32)
    size = case.get("samples_per_step", 1)
    adam, step = Adam(model.parameters(), case.get("weight_decay", 0)), 0
    total = EPOCHS * -(-len(samples) // size)
    for epoch in range(EPOCHS):
        order = epoch_order(len(samples), seed=seed, epoch=epoch).tolist()
        for first in range(0, len(order), size):
            logits, seeds, moved = [], [], []
            for index in order[first : first + size]:
                s = samples[index]
                ids = torch.from_numpy(np.array(s.node_ids)).long()
                torch.manual_seed(sample_seed(seed, epoch, index))
                Z = model.f(torch.from_numpy(GRAPH.features[s.node_ids]).double())
                mu, seen = M[ids].double(), (c[ids] > 0 if case.get("unseen", "mask") == "mask" else None)
                Y = problems.descend(
                    Z, s, case.get("prox", "relu"), lambda_=model.energy.lambda_, gamma=gamma,
                    steps=small_runs.STEPS, mu=mu, seen=seen,
                )[-1]  # fmt: skip
                logits.append(model.g(Y[: s.num_seeds]))
                seeds.append(s.seeds)
                moved.append((ids, Y.detach()))
            loss = loss_of(case, torch.cat(logits), np.concatenate(seeds))
            gradients = torch.autograd.grad(loss, adam.parameters)
            if case.get("clip"):
                norm = sum((part**2).sum() for part in gradients).sqrt()
                assert norm > case["clip"]
                gradients = [part * (case["clip"] / (norm + 1e-6)) for part in gradients]
            adam.step(gradients, rate(case, step, total))
            for ids, Y in moved:
                for v, row in zip(ids.tolist(), Y, strict=True):
                    n = int(c[v])
                    # Kept in float32, as M is.
                    M[v] = rho * n / (n + 1) * M[v].double() + ((1 - rho) * n + 1) / (n + 1) * row
                    c[v] += 1
            step += 1
    return model, M, c


@pytest.mark.parametrize("name", CASES)
def test_training_is_algorithm_one(name, store, tmp_path, monkeypatch):
    """In float64, M in float32: what rounding could hide stays visible."""
    case = CASES[name]
    energy = Energy(
        nn.Parameter(torch.tensor(0.8)) if case.get("learned") else 0.8,
        case.get("gamma", 0.5),
        prox=case.get("prox", "relu"),
    )
    model = small_runs.model(energy=energy, **{key: case[key] for key in MODEL if key in case}).double()
    twin, begun = copy.deepcopy(model), copy.deepcopy(model)
    expected, M, c = algorithm_one(store["train"], twin, case)

    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    settings = {key: case[key] for key in (*TRAINING, "loss", "seed") if key in case}
    labels = tasks() if case.get("loss") == "bce" else None
    run = musegnn.train(
        GRAPH, store, model, tmp_path / "run", labels=labels, epochs=EPOCHS, lr=LR, **settings
    )

    for (key, found), part, before in zip(
        model.named_parameters(), expected.parameters(), begun.parameters(), strict=True
    ):
        assert not torch.equal(part, before), key
        torch.testing.assert_close(
            found, part, rtol=1e-5, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}"
        )
    if case.get("gamma", 0.5) == 0:
        assert run.means is None
    else:
        torch.testing.assert_close(run.means.M, M, rtol=1e-5, atol=1e-6)
        assert torch.equal(run.means.count, c)
        assert len(set(c.tolist())) > 2


def test_training_in_float32_is_near(store, tmp_path):
    """As a user runs it."""
    model = small_runs.model(energy=Energy(0.8, 0.5))
    expected, M, c = algorithm_one(store["train"], copy.deepcopy(model).double(), {})
    run = musegnn.train(GRAPH, store, model, tmp_path / "run", epochs=EPOCHS, lr=LR)
    for found, part in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(found.double(), part, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(run.means.M, M, rtol=1e-4, atol=1e-4)
    assert torch.equal(run.means.count, c)
