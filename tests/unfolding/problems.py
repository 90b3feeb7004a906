"""Small graphs, and what the unfolding must compute on them: dense matrices, one step after the other."""

from contextlib import contextmanager
from functools import cache
from itertools import combinations

import jaxtyping
import numpy as np
import pytest
import torch

import musegnn
import oracles
from musegnn.errors import InputError

LAPLACIANS = ["normalized", "combinatorial"]
PENALTIES = ["none", "relu", "l1", "nonnegative_l1", "group", "box"]
ENTRYWISE = [name for name in PENALTIES if name != "group"]
PRECONDITIONS = ["none", "jacobi", "authors"]
CLOSE = {"rtol": 1e-10, "atol": 1e-10}


def graph(edges, num_nodes: int) -> musegnn.Graph:
    pairs = np.array(list(edges), dtype=np.int64).reshape(-1, 2).T
    return musegnn.Graph.from_edges(pairs, num_nodes=num_nodes)


def complete(n: int) -> musegnn.Graph:
    return graph(combinations(range(n), 2), n)


def bipartite(m: int) -> musegnn.Graph:
    """K_{m,m}: the largest eigenvalue of D - A is its bound, 2m; theta is m + 1."""
    return graph(((i, m + j) for i in range(m) for j in range(m)), 2 * m)


def path(n: int) -> musegnn.Graph:
    return graph(((i, i + 1) for i in range(n - 1)), n)


def star(n: int) -> musegnn.Graph:
    return graph(((0, i) for i in range(1, n)), n)


def random(n: int = 17, seed: int = 0) -> musegnn.Graph:
    """A hub, isolated nodes at the end, and edges without a pattern."""
    edges = np.random.default_rng(seed).integers(0, n - 2, (2 * n, 2))
    edges[::4, 0] = 3
    return graph(edges, n)


ZOO = {
    "random": random(),
    "path": path(6),
    "star": star(9),
    "complete": complete(5),
    "bipartite": bipartite(3),
    "no edges": graph([], 3),
    "one node": graph([], 1),
}


@cache
def sample(seed: int = 0) -> musegnn.Sample:
    """Drawn from a graph, so that its nodes are some, and the seeds are fewer."""
    whole = random(60, seed)
    split = np.where(np.arange(60) % 3 == 0, 0, -1).astype(np.int8)
    edges = oracles.entries(whole.indptr, whole.indices)
    labeled = musegnn.Graph.from_edges(
        np.array(edges).T, num_nodes=60, labels=np.zeros(60, dtype=np.int64), split=split
    )
    return musegnn.Draws(labeled, musegnn.ShadowKHop(fanouts=[3, 2]), "train", batch_size=8, seed=seed)[0]


def laplacian(s, name: str) -> torch.Tensor:
    return torch.from_numpy(oracles.laplacians(s.indptr, s.indices)[LAPLACIANS.index(name)])


def hessian(s, name: str, lambda_, gamma, seen=None) -> torch.Tensor:
    """H, dense; `lambda_` and `gamma` may be tensors that want a gradient."""
    matrix = laplacian(s, name)
    ones = torch.ones(len(matrix), dtype=torch.float64)
    return torch.diag(1 + gamma * (ones if seen is None else seen.double())) + lambda_ * matrix


def zeta(Y: torch.Tensor, name: str) -> torch.Tensor:
    """The penalty of each name, written down once more."""
    bad = {"none": False, "relu": bool((Y < 0).any()), "nonnegative_l1": bool((Y < 0).any())}
    bad |= {"l1": False, "group": False, "box": bool((Y.abs() > 1).any())}
    if bad[name]:
        return Y.new_tensor(float("inf"))
    if name in ("l1", "nonnegative_l1"):
        return 0.1 * Y.abs().sum()
    return 0.1 * Y.square().sum(dim=1).sqrt().sum() if name == "group" else Y.new_zeros(())


def prox(X: torch.Tensor, step, name: str) -> torch.Tensor:
    """argmin |Y - X|^2 / 2 + step zeta(Y), by the textbook."""
    if name == "none":
        return X
    if name == "relu":
        return torch.relu(X)
    if name == "l1":
        return X.sign() * torch.relu(X.abs() - 0.1 * step)
    if name == "nonnegative_l1":
        return torch.relu(X - 0.1 * step)
    if name == "box":
        return X.clamp(-1, 1)
    norm = X.square().sum(dim=1, keepdim=True).sqrt()
    return X * torch.relu(1 - 0.1 * step / norm)


def step_sizes(s, name: str, precondition: str, lambda_: float, gamma: float, seen=None) -> torch.Tensor:
    """a_i of alpha="auto", as they are defined."""
    n, degree = len(s.indptr) - 1, np.diff(s.indptr)
    rows = np.repeat(np.arange(n), degree)
    largest = 1 + gamma
    if precondition == "authors":
        return torch.from_numpy(1 / (1 + lambda_ * degree))[:, None]
    if precondition == "jacobi":
        return 1 / hessian(s, name, lambda_, gamma, seen).diagonal()[:, None]
    if name == "normalized":
        alpha = 1 / (largest + lambda_)
    else:
        alpha = 1 / (largest + lambda_ * float((degree[rows] + degree[s.indices]).max(initial=0)))
    return torch.full((n, 1), alpha, dtype=torch.float64)


def descend(
    Z, s, penalty="relu", name="normalized", lambda_=1.0, gamma=0.0, *, precondition="none", steps=8, mu=None,
    init=None, seen=None, sizes=None,
):  # fmt: skip
    """Y^0, ..., Y^K of the naive loop, with dense matrices; autograd goes through all of it."""
    H = hessian(s, name, lambda_, gamma, seen)
    fixed = [float(w.detach() if isinstance(w, torch.Tensor) else w) for w in (lambda_, gamma)]
    a = step_sizes(s, name, precondition, *fixed, seen) if sizes is None else sizes
    pull = gamma * (torch.ones(len(Z)) if seen is None else seen).double()[:, None]
    means = torch.zeros_like(Z) if mu is None else mu
    made = [Z if init is None else init]
    for _ in range(steps):
        U = made[-1]
        if precondition == "authors":
            A = torch.from_numpy(oracles.dense(s.indptr, s.indices))
            tilde = 1 + lambda_ * A.sum(dim=1, keepdim=True)
            alpha = float(a[0] * tilde.detach()[0])
            loops = A + torch.eye(len(A), dtype=A.dtype)
            spread = tilde**-0.5 * (loops @ (tilde**-0.5 * U))
            X = (1 - alpha) * U + alpha * lambda_ * spread + alpha / tilde * (Z - pull * (U - means))
        else:
            X = U - a * (H @ U - Z - pull * means)
        made.append(prox(X, a / 2, penalty))
    return made


def energy(Y, Z, s, penalty="relu", name="normalized", lambda_=1.0, gamma=0.0, *, mu=None, seen=None):
    """E(Y), term by term, from dense matrices."""
    ones = torch.ones(len(Y)) if seen is None else seen
    apart = torch.zeros_like(Y) if mu is None else Y - mu
    return {
        "fidelity": ((Y - Z) ** 2).sum(),
        "smoothness": lambda_ * torch.trace(Y.T @ laplacian(s, name) @ Y),
        "consensus": (gamma * ones.double()[:, None] * apart**2).sum(),
        "penalty": zeta(Y, penalty),
    }


def normal(s, dim: int = 3, count: int = 1, seed: int = 0, **options):
    """Random rows for a graph or a sample."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, s.num_nodes, dim)
    made = [
        part.clone().requires_grad_(options.get("grad", False))
        for part in torch.randn(shape, generator=generator, dtype=torch.float64)
    ]
    return made[0] if count == 1 else made


@contextmanager
def refused(message: str, error: type[Exception] = InputError):
    """The error a user gets; `message` is all of it."""
    with unchecked(), pytest.raises(error) as caught:
        yield caught
    assert str(caught.value) == message


@contextmanager
def unchecked():
    """What a user runs: the library without the shape checks of the tests."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.jaxtyping_disable = True
    try:
        yield
    finally:
        jaxtyping.config.jaxtyping_disable = before


def edges_of(s) -> np.ndarray:
    """Rows and columns of all entries, as PyG takes them."""
    return np.array(oracles.entries(s.indptr, s.indices), dtype=np.int64).reshape(-1, 2).T.copy()
