"""Proposition 3.1: what the energy of uniform samples is in expectation, and where the statement ends."""

import itertools
from functools import cache
from math import inf, sqrt
from typing import NamedTuple

import numpy as np
import pytest
import torch

import oracles
from machine import one_thread as one_thread
from machine import with_proof
from musegnn import L1, Draws, Energy, Graph, UniformInduced

LAMBDA = 2.0
NUM_NODES = 1500
NUM_SAMPLES = 600
DEVIATION = 0.02
"""What the Monte Carlo mean must be able to tell from zero."""


class Case(NamedTuple):
    graph: Graph
    Z: torch.Tensor
    M: torch.Tensor


def a_case(num_nodes, mean_degree, dim=3, *, nonnegative=True):
    rng = np.random.default_rng(0)
    edges = rng.integers(0, num_nodes, (2, num_nodes * mean_degree // 2))
    Z, M = rng.standard_normal((2, num_nodes, dim))
    means = np.abs(M) if nonnegative else M
    return Case(Graph.from_edges(edges, num_nodes=num_nodes), torch.from_numpy(Z), torch.from_numpy(means))


def muse_energy(sample, case, energy):
    """One term of eq. 7: gamma = inf, Y = mu."""
    at = torch.from_numpy(sample.node_ids.astype(np.int64))
    return float(energy.value(case.M[at], case.Z[at], sample, mu=case.M[at]))


def full_energy(case, lambda_, laplacian="combinatorial", weight=0.0):
    """l(M), eq. 2, edge by edge; the penalty is weight |M|_1, and none where M >= 0 with relu."""
    M, Z = case.M.numpy(), case.Z.numpy()
    degree = np.diff(case.graph.indptr)
    scaled = M / np.sqrt(degree + 1)[:, None] if laplacian == "normalized" else M
    rows, columns = np.repeat(np.arange(len(M)), degree), case.graph.indices
    # Every edge is there twice.
    smoothness = ((scaled[rows] - scaled[columns]) ** 2).sum() / 2
    return float(((M - Z) ** 2).sum() + lambda_ * smoothness + weight * np.abs(M).sum())


@cache
def monte_carlo(p, laplacian, prox, nonnegative):
    """The mean energy of a sample over p l(M), with lambda -> p lambda, and its standard error."""
    case = a_case(NUM_NODES, 8, nonnegative=nonnegative)
    energy = Energy(LAMBDA, inf, laplacian, prox)
    draws = Draws(case.graph, UniformInduced(p=p, num_samples=NUM_SAMPLES), "none", seed=0)
    values = np.array([muse_energy(sample, case, energy) for sample in draws]) / p
    expected = full_energy(case, p * LAMBDA, laplacian)
    return values.mean() / expected, values.std(ddof=1) / sqrt(NUM_SAMPLES) / expected


@pytest.mark.parametrize("p", [0.2, 0.5])
@pytest.mark.parametrize(("prox", "nonnegative"), [("relu", True), ("none", False)])
def test_the_mean_over_uniform_samples_is_the_full_energy_with_p_lambda(p, prox, nonnegative):
    ratio, error = monte_carlo(p, "combinatorial", prox, nonnegative)
    assert 4 * error < DEVIATION
    assert abs(ratio - 1) < 4 * error


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_the_mean_is_not_the_full_energy_with_lambda_unchanged(p):
    case = a_case(NUM_NODES, 8)
    ratio, error = monte_carlo(p, "combinatorial", "relu", True)
    unchanged = ratio * full_energy(case, p * LAMBDA) / full_energy(case, LAMBDA)
    assert unchanged < 1 - 4 * error - DEVIATION
    # The smoothness of the mean is p times too small; at this lambda it is most of the energy.
    assert unchanged == pytest.approx({0.2: 0.404, 0.5: 0.628}[p], abs=0.01)


@pytest.mark.parametrize(
    ("p", "prox", "nonnegative", "expected"),
    [
        (0.2, "relu", True, 1.12),
        (0.2, "none", False, 1.28),
        *with_proof([], [(0.5, "relu", True, 1.10), (0.5, "none", False, 1.22)]),
    ],
)
def test_with_the_normalized_laplacian_the_mean_is_larger(p, prox, nonnegative, expected):
    """Degrees are taken inside the sample: they shrink, and the weight of an edge that is left grows."""
    ratio, error = monte_carlo(p, "normalized", prox, nonnegative)
    assert 4 * error < DEVIATION
    assert ratio > 1 + 4 * error + DEVIATION
    assert ratio == pytest.approx(expected, abs=0.02)


def test_with_the_normalized_laplacian_lambda_unchanged_does_not_hold_either():
    p, case = 0.2, a_case(NUM_NODES, 8, nonnegative=False)
    ratio, error = monte_carlo(p, "normalized", "none", False)
    scale = full_energy(case, p * LAMBDA, "normalized") / full_energy(case, LAMBDA, "normalized")
    assert ratio * scale < 1 - 4 * error * scale - DEVIATION
    assert ratio * scale == pytest.approx(0.80, abs=0.02)


def every_subset(case, p, energy):
    """The exact expectation of a sample's energy: all 2^n of them, each with its probability."""
    n, total = case.graph.num_nodes, 0.0
    for inside in itertools.product([False, True], repeat=n):
        nodes = np.flatnonzero(inside)
        chance = p ** len(nodes) * (1 - p) ** (n - len(nodes))
        at = {int(v): i for i, v in enumerate(nodes)}
        kept = [(at[u], at[v]) for u, v in oracles.induced(case.graph, nodes)]
        edges = torch.tensor(sorted(kept), dtype=torch.int64).reshape(-1, 2).T
        M, Z = case.M[nodes], case.Z[nodes]
        total += chance * float(energy.value(M, Z, edges, mu=M))
    return total


@pytest.mark.parametrize(
    ("prox", "nonnegative", "weight"), [("none", False, 0.0), ("relu", True, 0.0), (L1(0.3), False, 0.3)]
)
@pytest.mark.parametrize("p", [0.3, 0.8])
def test_the_expectation_over_all_subsets_is_exact(p, prox, nonnegative, weight):
    case = a_case(7, 4, nonnegative=nonnegative)
    expectation = every_subset(case, p, Energy(LAMBDA, inf, "combinatorial", prox))
    assert expectation == pytest.approx(p * full_energy(case, p * LAMBDA, weight=weight), rel=1e-12)


def test_no_factor_repairs_the_normalized_laplacian():
    """E[l(M)] = p (|M - Z|^2 + c lambda tr(M' L M)) would need the same c for every M."""
    case, p = a_case(6, 4), 0.5
    energy, factors = Energy(LAMBDA, inf, "normalized", "none"), []
    for node in np.flatnonzero(np.diff(case.graph.indptr)):
        M = torch.zeros_like(case.M)
        M[node] = 1
        bump = case._replace(M=M, Z=M)
        factors.append(every_subset(bump, p, energy) / (p * full_energy(bump, LAMBDA, "normalized")))
    assert len(factors) >= 4
    assert max(factors) / min(factors) > 1.1


def test_with_p_one_both_laplacians_give_the_full_energy():
    case = a_case(60, 6)
    for laplacian in ("normalized", "combinatorial"):
        sample = Draws(case.graph, UniformInduced(p=1.0, num_samples=1), "none")[0]
        value = muse_energy(sample, case, Energy(LAMBDA, inf, laplacian, "relu"))
        L = oracles.laplacians(case.graph.indptr, case.graph.indices)[laplacian == "combinatorial"]
        M, Z = case.M.numpy(), case.Z.numpy()
        assert value == pytest.approx(((M - Z) ** 2).sum() + LAMBDA * np.trace(M.T @ L @ M), rel=1e-12)
        assert value == pytest.approx(full_energy(case, LAMBDA, laplacian), rel=1e-12)
