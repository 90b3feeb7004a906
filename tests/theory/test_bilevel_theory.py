"""Theorem 5.2: stochastic descent on the weights, K steps on the embeddings; W* by L-BFGS, Y* dense."""

import os
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
import torch
import torch.nn.functional as F

import musegnn
import oracles
from musegnn import Energy, unfold

LAMBDA, DIM, CLASSES = 4.0, 5, 3
ENERGY = {"lambda_": LAMBDA, "gamma": 0.0, "laplacian": "normalized", "prox": "none"}
RUNS = 48 if os.environ.get("MUSEGNN_PROOF") else 16


class Bilevel(NamedTuple):
    """f(X; W) = X W, no penalty, gamma = 0, cross-entropy: the loss is convex in W."""

    samples: list[musegnn.Sample]
    X: np.ndarray
    labels: np.ndarray
    sigma: float
    """The largest eigenvalue of all I + lambda L_s; the smallest is 1."""

    def inputs(self, steps: int | None) -> np.ndarray:
        """(P_s^(k) X_s) of the seeds, a block for each sample; None for P*."""
        blocks = []
        for sample in self.samples:
            rows = self.X[sample.node_ids]
            if steps is None:
                L = oracles.laplacians(sample.indptr, sample.indices)[0]
                Y = np.linalg.solve(np.eye(len(L)) + LAMBDA * L, rows)
            else:
                Y = unfold(torch.from_numpy(rows), sample, Energy(**ENERGY), steps, 1 / self.sigma).numpy()
            blocks.append(Y[: sample.num_seeds])
        return np.stack(blocks)

    def targets(self) -> np.ndarray:
        return np.stack([np.eye(CLASSES)[self.labels[sample.seeds]] for sample in self.samples])


@cache
def bilevel() -> Bilevel:
    """300 nodes, 6 samples; a quarter of the labels is random, so that the classes overlap."""
    rng = np.random.default_rng(0)
    n = 300
    classes = rng.integers(0, CLASSES, n)
    edges = rng.integers(0, n, (2, 4 * n))
    edges = edges[:, (classes[edges[0]] == classes[edges[1]]) | (rng.random(4 * n) < 0.25)]
    X = rng.normal(size=(n, DIM)) + 0.6 * (np.eye(CLASSES) @ rng.normal(size=(CLASSES, DIM)))[classes]
    X[:, 0] = 1
    labels = np.where(rng.random(n) < 0.25, rng.integers(0, CLASSES, n), classes)
    graph = musegnn.Graph.from_edges(edges, num_nodes=n)
    draws = musegnn.Draws(graph, musegnn.ShadowKHop(fanouts=[3, 2]), np.arange(n), batch_size=50, seed=0)
    samples = [draws[i] for i in range(6)]
    tops = [
        np.linalg.eigvalsh(oracles.laplacians(sample.indptr, sample.indices)[0])[-1] for sample in samples
    ]
    return Bilevel(samples, X, labels, float(1 + LAMBDA * max(tops)))


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def loss(inputs: np.ndarray, targets: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Mean cross-entropy over all seeds; W may be a stack of matrices."""
    Q, T = inputs.reshape(-1, DIM), targets.reshape(-1, CLASSES)
    logits = Q @ W
    return (scipy.special.logsumexp(logits, axis=-1) - (T * logits).sum(axis=-1)).mean(axis=-1)


def gradient(Q: np.ndarray, T: np.ndarray, W: np.ndarray) -> np.ndarray:
    return np.swapaxes(Q, -1, -2) @ (softmax(Q @ W) - T) / Q.shape[-2]


def minimizer(inputs: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """W* by L-BFGS, and Newton's steps where its line search ends: the gradient is below 1e-10."""
    Q, T = inputs.reshape(-1, DIM), targets.reshape(-1, CLASSES)

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(DIM, CLASSES)
        return float(loss(Q, T, W)), gradient(Q, T, W).ravel()

    options = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 0.0, "gtol": 1e-11, "maxcor": 30}
    found = scipy.optimize.minimize(
        both, np.zeros(DIM * CLASSES), jac=True, method="L-BFGS-B", options=options
    )
    W = found.x.reshape(DIM, CLASSES)
    assert np.abs(gradient(Q, T, W)).max() < 1e-6
    for _ in range(3):
        p = softmax(Q @ W)
        curvature = np.einsum("ic,cd->icd", p, np.eye(CLASSES)) - np.einsum("ic,id->icd", p, p)
        hessian = np.einsum("ia,ib,icd->acbd", Q, Q, curvature).reshape(W.size, W.size) / len(Q)
        # Adding the same to all classes changes nothing: lstsq leaves that direction alone.
        W = W - np.linalg.lstsq(hessian, gradient(Q, T, W).ravel(), rcond=1e-10)[0].reshape(W.shape)
    assert np.abs(gradient(Q, T, W)).max() < 1e-10
    return W


def descend(
    inputs: np.ndarray, targets: np.ndarray, steps: int, rate: float, marks: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """W^(t) and its mean over t, at the marks, of several runs; a sample at random in each step."""
    rng = np.random.default_rng(1)
    W = np.zeros((RUNS, DIM, CLASSES))
    mean, last, average = W.copy(), [], []
    marked = set(marks.tolist())
    for t in range(1, steps + 1):
        chosen = rng.integers(0, len(inputs), RUNS)
        W = W - rate / np.sqrt(t) * gradient(inputs[chosen], targets[chosen], W)
        mean += (W - mean) / t
        if t in marked:
            last.append(W)
            average.append(mean.copy())
    return np.array(last), np.array(average)


def slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(x, y, 1)[0])


def test_stochastic_descent_through_unfold_is_the_one_that_is_simulated():
    """Autograd through K unfolded steps gives the gradient of the loss in closed form, step after step."""
    setting, k = bilevel(), 6
    inputs, targets = setting.inputs(k), setting.targets()
    W = torch.zeros(DIM, CLASSES, dtype=torch.float64, requires_grad=True)
    by_hand = np.zeros((DIM, CLASSES))
    rng = np.random.default_rng(2)
    for t in range(1, 13):
        s = int(rng.integers(0, len(setting.samples)))
        sample = setting.samples[s]
        Z = torch.from_numpy(setting.X[sample.node_ids]) @ W
        Y = unfold(Z, sample, Energy(**ENERGY), k, 1 / setting.sigma)
        labels = torch.from_numpy(setting.labels[sample.seeds])
        F.cross_entropy(Y[: sample.num_seeds], labels).backward()
        with torch.no_grad():
            W -= 2 / np.sqrt(t) * W.grad
            W.grad = None
        by_hand = by_hand - 2 / np.sqrt(t) * gradient(inputs[s], targets[s], by_hand)
        np.testing.assert_allclose(W.detach().numpy(), by_hand, rtol=1e-10, atol=1e-12)


def test_the_excess_loss_falls_with_the_root_of_the_number_of_weight_steps_or_faster():
    """E[L^(k)(mean of W)] - L*(W*) with k = 60 (converged): slope -1/2 or steeper on logarithmic axes."""
    setting = bilevel()
    inputs, targets, exact = setting.inputs(60), setting.targets(), setting.inputs(None)
    least = loss(exact, targets, minimizer(exact, targets))
    marks = np.unique(np.geomspace(20, 6000, 14).astype(int))
    last, average = descend(inputs, targets, 6000, 2.0, marks)
    excess = np.array([loss(inputs, targets, W).mean() for W in average]) - least
    assert (excess > 0).all()
    assert slope(np.log(marks), np.log(excess)) <= -0.45
    # The bound itself, with a constant from the first point on.
    assert (excess <= 1.5 * excess[0] * np.sqrt(marks[0] / marks)).all()
    # The last iterate, of which the theorem speaks, falls as well; its noise falls with eta_t only.
    newest = np.array([loss(inputs, targets, W).mean() for W in last]) - least
    assert slope(np.log(marks), np.log(newest)) <= -0.4


def test_the_loss_of_few_embedding_steps_nears_the_best_one_exponentially():
    """|L^(k)(W^(k*)) - L*(W*)| <= L_D |(P^(k) - P*) X W|, and both fall at least as the lemma says."""
    setting = bilevel()
    targets, exact = setting.targets(), setting.inputs(None)
    best = minimizer(exact, targets)
    least = loss(exact, targets, best)
    # Cross-entropy is sqrt(2)-Lipschitz in the logits of a row; its mean over N rows sqrt(2 / N).
    lipschitz = np.sqrt(2 / targets[..., 0].size)
    steps, gaps, bounds = [2, 4, 8, 12, 16, 20, 24, 28, 32], [], []
    for k in steps:
        inputs = setting.inputs(k)
        own = minimizer(inputs, targets)
        gap = abs(loss(inputs, targets, own) - least)
        moved = max(np.linalg.norm((inputs - exact) @ W) for W in (best, own))
        assert gap <= lipschitz * moved + 1e-13
        assert abs(loss(inputs, targets, best) - least) <= lipschitz * np.linalg.norm((inputs - exact) @ best)
        gaps.append(gap)
        bounds.append(lipschitz * moved)
    promised = 1 / (2 * setting.sigma)
    assert slope(np.array(steps), np.log(bounds)) <= -2 * promised
    assert slope(np.array(steps), np.log(gaps)) <= -promised
    assert (np.array(bounds) <= bounds[0] * np.exp(-promised * (np.array(steps) - 2))).all()


def test_no_best_weights_exist_if_the_classes_can_be_separated():
    """Convexity alone does not give a minimizer: the infimum 0 is approached at infinity."""
    setting = bilevel()
    exact = setting.inputs(None)
    teacher = np.random.default_rng(3).normal(size=(DIM, CLASSES))
    targets = np.eye(CLASSES)[(exact @ teacher).argmax(axis=-1)]
    losses = [float(loss(exact, targets, scale * teacher)) for scale in (1, 10, 100, 300)]
    assert losses == sorted(losses, reverse=True)
    assert 0 < losses[-1] < 0.02 * losses[0]
    # Any W has a better one: W + c teacher, c large. At the minimum there would be none.
    assert all(np.abs(gradient(exact, targets, scale * teacher)).max() > 0 for scale in (1, 10, 100))
