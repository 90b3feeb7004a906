"""gamma -> inf: the minimizers of eq. 4 approach that of eq. 7 as 1 / gamma."""

from math import inf
from typing import NamedTuple

import numpy as np
import pytest
import torch

import oracles
from machine import one_thread as one_thread
from machine import with_proof
from musegnn import Draws, Energy, Graph, Sample, UniformInduced, alternate, consensus, solve, unfold
from musegnn.errors import InputError

LAMBDA = 1.5
LAPLACIANS = ["normalized", "combinatorial"]
NUM_NODES = 24


class Case(NamedTuple):
    Z: torch.Tensor
    samples: list[Sample]


@pytest.fixture(scope="module")
def case():
    """Six overlapping samples; node 0 is in none of them."""
    rng = np.random.default_rng(1)
    graph = Graph.from_edges(rng.integers(0, NUM_NODES, (2, 60)), num_nodes=NUM_NODES)
    draws = Draws(graph, UniformInduced(p=0.5, num_samples=40), "none")
    samples = [sample for sample in draws if 0 not in sample.node_ids][:6]
    assert len(samples) == 6
    return Case(torch.from_numpy(rng.standard_normal((NUM_NODES, 2))), samples)


def matrices(case, laplacian):
    """S_s and K_s = I + lambda L_s of each sample, dense."""
    for sample in case.samples:
        S = np.eye(NUM_NODES)[sample.node_ids]
        L = oracles.laplacians(sample.indptr, sample.indices)[LAPLACIANS.index(laplacian)]
        yield S, np.eye(len(L)) + LAMBDA * L


def limit(case, laplacian):
    """argmin of eq. 7: (sum S' K S) M = sum S' S Z."""
    parts = list(matrices(case, laplacian))
    return least(sum(S.T @ K @ S for S, K in parts), sum(S.T @ S for S, _ in parts) @ case.Z.numpy())


def joint(case, laplacian, gamma):
    """argmin of eq. 4 over all Y_s and M at once, one dense system of all unknowns; M and the Y_s."""
    parts = list(matrices(case, laplacian))
    sizes = [len(K) for _, K in parts]
    total, Z = sum(sizes), case.Z.numpy()
    system, right = np.zeros((total + NUM_NODES,) * 2), np.zeros((total + NUM_NODES, Z.shape[1]))
    first = 0
    for S, K in parts:
        rows = slice(first, first + len(K))
        system[rows, rows] = K + gamma * np.eye(len(K))
        system[rows, total:] = -gamma * S
        system[total:, rows] = -gamma * S.T
        system[total:, total:] += gamma * S.T @ S
        right[rows] = S @ Z
        first += len(K)
    solved = least(system, right)
    return solved[total:], np.split(solved[:total], np.cumsum(sizes)[:-1])


def least(system, right):
    """The solution, 0 where a node is in no sample."""
    there = np.flatnonzero(np.abs(system).sum(axis=1))
    result = np.zeros_like(right)
    result[there] = np.linalg.solve(system[np.ix_(there, there)], right[there])
    return result


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_consensus_is_the_minimizer_of_eq_7(case, laplacian):
    M = consensus(case.Z, case.samples, Energy(LAMBDA, inf, laplacian, "none")).numpy()
    np.testing.assert_allclose(M, limit(case, laplacian), atol=1e-11)
    assert (M[0] == 0).all()

    # And nothing near it is lower.
    energy, rng = Energy(LAMBDA, inf, laplacian, "none"), np.random.default_rng(0)
    best = eq_7(case, M, energy)
    for _ in range(20):
        assert eq_7(case, M + 1e-3 * rng.standard_normal(M.shape), energy) > best


def eq_7(case, M, energy):
    values = torch.from_numpy(M)
    at = [torch.from_numpy(sample.node_ids.astype(np.int64)) for sample in case.samples]
    return sum(
        float(energy.value(values[i], case.Z[i], sample, mu=values[i]))
        for i, sample in zip(at, case.samples, strict=True)
    )


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_minimizers_of_eq_4_approach_eq_7_as_one_over_gamma(case, laplacian):
    M_limit = consensus(case.Z, case.samples, Energy(LAMBDA, inf, laplacian, "none")).numpy()
    gammas = np.array([1e1, 1e2, 1e3, 1e4, 1e5])
    found = [joint(case, laplacian, gamma) for gamma in gammas]
    away = np.array([np.linalg.norm(M - M_limit) for M, _ in found])
    apart = np.array([split(case, M, Y) for M, Y in found])
    # gamma times the distance settles on a constant that is not 0: the order is 1 and no better.
    for distance in (away, apart):
        scaled = gammas * distance
        assert scaled[-1] > 0.1
        assert (distance[1:] < distance[:-1]).all()
        np.testing.assert_allclose(scaled[3:], scaled[2], rtol=0.02)
        np.testing.assert_allclose(np.diff(np.log(distance[1:])) / np.log(10), -1, atol=0.05)


def split(case, M, Y):
    """How far the embeddings of a node in its samples are from their mean."""
    return np.sqrt(sum(((y - M[s.node_ids]) ** 2).sum() for y, s in zip(Y, case.samples, strict=True)))


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_the_minimum_of_eq_4_rises_to_that_of_eq_7(case, laplacian):
    M_limit = consensus(case.Z, case.samples, Energy(LAMBDA, inf, laplacian, "none")).numpy()
    top = eq_7(case, M_limit, Energy(LAMBDA, inf, laplacian, "none"))
    gaps = []
    for gamma in (0.1, 1.0, 10.0, 1e2, 1e3, 1e4):
        M, Y = joint(case, laplacian, gamma)
        energy, means = Energy(LAMBDA, gamma, laplacian, "none"), torch.from_numpy(M)
        value = 0.0
        for y, sample in zip(Y, case.samples, strict=True):
            at = torch.from_numpy(sample.node_ids.astype(np.int64))
            value += float(energy.value(torch.from_numpy(y), case.Z[at], sample, mu=means[at]))
        gaps.append(top - value)
    assert (np.array(gaps) > 0).all()
    assert (np.diff(gaps) < 0).all()
    assert gaps[-2] / gaps[-1] == pytest.approx(10, rel=0.02)


@pytest.mark.parametrize("laplacian", LAPLACIANS)
@pytest.mark.parametrize("gamma", with_proof([0.5], [2.0]))
def test_alternation_reaches_the_joint_minimum_that_the_limit_is_taken_of(case, laplacian, gamma):
    result = alternate(case.Z, case.samples, Energy(LAMBDA, gamma, laplacian, "none"), rounds=60)
    M, Y = joint(case, laplacian, gamma)
    np.testing.assert_allclose(result.M, M, atol=1e-8)
    for mine, expected in zip(result.Y, Y, strict=True):
        np.testing.assert_allclose(mine, expected, atol=1e-8)


@pytest.mark.parametrize("laplacian", LAPLACIANS)
@pytest.mark.parametrize("prox", ["none", "relu", "l1"])
def test_gamma_inf_has_the_value_of_eq_7_at_the_means_and_none_elsewhere(case, laplacian, prox):
    energy, sample = Energy(LAMBDA, inf, laplacian, prox), case.samples[0]
    at = torch.from_numpy(sample.node_ids.astype(np.int64))
    Z = case.Z[at]
    mu = Z.abs()
    L = oracles.laplacians(sample.indptr, sample.indices)[LAPLACIANS.index(laplacian)]
    y, z = mu.numpy(), Z.numpy()
    zeta = 0.1 * np.abs(y).sum() if prox == "l1" else 0.0
    expected = ((y - z) ** 2).sum() + LAMBDA * np.trace(y.T @ L @ y) + zeta
    assert float(energy.value(mu, Z, sample, mu=mu)) == pytest.approx(expected, rel=1e-12)
    terms = energy.terms(mu, Z, sample, mu=mu)
    assert float(terms["consensus"]) == 0

    away = mu.clone()
    away[-1, -1] += 1e-9
    assert float(energy.value(away, Z, sample, mu=mu)) == inf

    # A node without a mean is free.
    seen = torch.ones(len(mu), dtype=torch.bool)
    seen[-1] = False
    assert float(energy.value(away, Z, sample, mu=mu, seen=seen)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("precondition", ["none", "jacobi"])
@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_gamma_inf_is_refused_where_there_is_nothing_to_descend_on(case, laplacian, precondition):
    sample = case.samples[0]
    Z = case.Z[torch.from_numpy(sample.node_ids.astype(np.int64))]
    for prox in ("none", "relu", "group"):
        energy = Energy(LAMBDA, inf, laplacian, prox, precondition=precondition)
        for steps in (lambda e: unfold(Z, sample, e, mu=Z), lambda e: solve(Z, sample, e, Z)):
            with pytest.raises(InputError, match=r"gamma=inf .*finite gamma") as caught:
                steps(energy)
            assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="needs 0 < gamma < inf"):
        alternate(case.Z, case.samples, Energy(LAMBDA, inf, laplacian, "none"), rounds=1)
