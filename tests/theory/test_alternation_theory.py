"""Theorem 5.3, its two lemmas, eq. 5 and the limit of gamma; against one dense solve over all Y_s and M."""

from math import inf

import numpy as np
import pytest
import torch

import musegnn
import oracles
from machine import with_proof
from musegnn import Energy

NODES = 30
GAMMAS = with_proof([0.1, 1.0], [10.0])
LAPLACIANS = ["normalized", "combinatorial"]
LAMBDA = 2.0


def samples_of_a_random_graph() -> list[musegnn.Sample]:
    """Overlapping; node 29 is in none, and some are in one only."""
    rng = np.random.default_rng(1)
    edges = rng.integers(0, NODES, (2, 60))
    edges[0, ::5] = 3  # A hub.
    graph = musegnn.Graph.from_edges(edges, num_nodes=NODES)
    draws = musegnn.Draws(graph, musegnn.FullKHop(hops=1), np.arange(NODES - 1), batch_size=8, seed=0)
    return [draws[i] for i in range(4)]


def random_rows(seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(NODES, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Joint:
    """l_muse(Y, M) as one quadratic in all rows: |Y - Z|^2 + lambda <Y, L Y> + gamma |Y - S M|^2."""

    def __init__(self, samples: list[musegnn.Sample], Z: torch.Tensor, gamma: float, laplacian: str) -> None:
        ids = np.concatenate([sample.node_ids for sample in samples])
        self.cuts = np.cumsum([0] + [sample.num_nodes for sample in samples])
        self.S = np.zeros((len(ids), NODES))
        self.S[np.arange(len(ids)), ids] = 1
        self.there = self.S.any(axis=0)
        self.L = np.zeros((len(ids), len(ids)))
        for begin, end, sample in zip(self.cuts[:-1], self.cuts[1:], samples, strict=True):
            L = oracles.laplacians(sample.indptr, sample.indices)[laplacian == "combinatorial"]
            self.L[begin:end, begin:end] = L
        self.Z, self.gamma = self.S @ Z.numpy(), gamma
        self.H = (1 + gamma) * np.eye(len(ids)) + LAMBDA * self.L

    def value(self, Y: np.ndarray, M: np.ndarray) -> float:
        smooth = LAMBDA * np.trace(Y.T @ self.L @ Y)
        return ((Y - self.Z) ** 2).sum() + smooth + self.gamma * ((Y - self.S @ M) ** 2).sum()

    def minimum(self) -> tuple[np.ndarray, np.ndarray]:
        """Y and M at once: the gradient of a quadratic is zero."""
        S, gamma = self.S[:, self.there], self.gamma
        system = np.block([[self.H, -gamma * S], [-gamma * S.T, gamma * S.T @ S]])
        found = np.linalg.solve(system, np.vstack([self.Z, np.zeros((S.shape[1], self.Z.shape[1]))]))
        M = np.zeros((NODES, self.Z.shape[1]))
        M[self.there] = found[len(S) :]
        return found[: len(S)], M

    def contraction(self) -> float:
        """By how much a round shrinks the error of M: the top eigenvalue of gamma R^-1/2 S' H^-1 S R^-1/2."""
        S = self.S[:, self.there]
        root = S.sum(axis=0) ** -0.5
        G = self.gamma * root[:, None] * (S.T @ np.linalg.solve(self.H, S)) * root
        return float(np.linalg.eigvalsh((G + G.T) / 2)[-1])

    def stack(self, Y: list[torch.Tensor]) -> np.ndarray:
        return torch.cat(Y).numpy()


@pytest.mark.parametrize("laplacian", LAPLACIANS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_alternation_reaches_the_joint_minimum_from_any_start_at_the_known_rate(gamma, laplacian):
    samples, Z = samples_of_a_random_graph(), random_rows(0)
    joint = Joint(samples, Z, gamma, laplacian)
    Y, M = joint.minimum()
    least, rate = joint.value(Y, M), joint.contraction()
    assert rate <= gamma / (1 + gamma) + 1e-12, "the rate of any graph"
    energy = Energy(LAMBDA, gamma, laplacian, "none")
    rounds = int(np.ceil(np.log(1e-8) / np.log(rate)))
    for start in (None, random_rows(1, 100.0)):
        done = musegnn.alternate(Z, samples, energy, rounds, M=start)
        energies = done.energies.numpy()
        assert energies[-1] == pytest.approx(joint.value(joint.stack(done.Y), done.M.numpy()), rel=1e-12)
        excess, rounding = energies - least, 1e-12 * energies[0]
        assert (np.diff(energies) <= rounding).all(), "it never rises"
        assert (excess >= -rounding).all()
        assert (excess[1:] <= rate**2 * excess[:-1] + rounding).all()
        assert excess[-1] <= rounding
        size = 1 if start is None else 100
        np.testing.assert_allclose(done.M.numpy(), M, atol=1e-7 * size)
        np.testing.assert_allclose(joint.stack(done.Y), Y, atol=1e-7 * size)
        assert (done.M[~torch.from_numpy(joint.there)] == 0).all()


@pytest.mark.parametrize("gamma", [*GAMMAS, 1e4])
def test_the_joint_minimum_stays_where_it_is(gamma):
    samples, Z = samples_of_a_random_graph(), random_rows(0)
    joint = Joint(samples, Z, gamma, "normalized")
    Y, M = joint.minimum()
    done = musegnn.alternate(Z, samples, Energy(LAMBDA, gamma, prox="none"), 1, M=torch.from_numpy(M))
    np.testing.assert_allclose(done.M.numpy(), M, atol=1e-10)
    np.testing.assert_allclose(joint.stack(done.Y), Y, atol=1e-10)


def test_alternation_also_reaches_the_joint_minimum_under_a_penalty():
    """The theorem says zeta = 0; ReLU's constraint is on Y alone, and a dense projected descent agrees."""
    samples, Z, gamma = samples_of_a_random_graph(), random_rows(0), 0.3
    joint = Joint(samples, Z, gamma, "normalized")
    Y, R = np.maximum(joint.Z, 0), np.maximum(joint.S.sum(axis=0), 1)[:, None]
    for _ in range(600):
        M = joint.S.T @ Y / R
        Y = np.maximum(Y - (joint.H @ Y - joint.Z - gamma * joint.S @ M) / 6, 0)
    done = musegnn.alternate(Z, samples, Energy(LAMBDA, gamma, prox="relu"), 14, M=random_rows(2))
    np.testing.assert_allclose(joint.stack(done.Y), Y, atol=1e-7)
    assert (done.energies.diff() <= 1e-9 * done.energies[0]).all()


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_large_gamma_approaches_consensus_in_inverse_proportion(laplacian):
    """|M_gamma - M_inf| ~ 1 / gamma, and Y_s - mu_s vanishes likewise (eq. 4 becomes eq. 7)."""
    samples, Z = samples_of_a_random_graph(), random_rows(0)
    limit = musegnn.consensus(Z, samples, Energy(LAMBDA, inf, laplacian, "none")).numpy()
    joint = Joint(samples, Z, 0.0, laplacian)
    S = joint.S[:, joint.there]
    system = S.T @ (np.eye(len(S)) + LAMBDA * joint.L) @ S
    np.testing.assert_allclose(limit[joint.there], np.linalg.solve(system, S.T @ joint.Z), atol=1e-10)
    assert (limit[~joint.there] == 0).all()
    gammas, away, apart = np.array([1e2, 1e3, 1e4, 1e5]), [], []
    for gamma in gammas:
        joint = Joint(samples, Z, gamma, laplacian)
        energy = Energy(LAMBDA, float(gamma), laplacian, "none")
        done = musegnn.alternate(Z, samples, energy, 1, M=torch.from_numpy(joint.minimum()[1]))
        away.append(np.linalg.norm(done.M.numpy() - limit))
        apart.append(np.linalg.norm(joint.stack(done.Y) - joint.S @ done.M.numpy()))
    for sizes in (away, apart):
        slopes = np.diff(np.log(sizes)) / np.diff(np.log(gammas))
        np.testing.assert_allclose(slopes[1:], -1, atol=0.02)
    assert away[-1] < 1e-3


@pytest.mark.parametrize("laplacian", LAPLACIANS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_the_three_point_and_four_point_properties_hold_with_their_exact_remainders(gamma, laplacian):
    """delta(Y, Y') = (1 + gamma) |Y - Y'|^2, for any Y and M:

    l(Y, M^k) - l(Y^(k+1), M^k) - delta(Y, Y^(k+1)) = lambda <D, L D>,  D = Y - Y^(k+1)
    delta(Y, Y^k) - l(Y, M^k) + l(Y, M) = |Y - Y^k|^2 + gamma |mu^k - Y^k + Y - mu|^2
    """
    samples, Z = samples_of_a_random_graph(), random_rows(0)
    joint, energy = Joint(samples, Z, gamma, laplacian), Energy(LAMBDA, gamma, laplacian, "none")

    def value(Y: np.ndarray, M: np.ndarray) -> float:
        total = 0.0
        for begin, end, sample in zip(joint.cuts[:-1], joint.cuts[1:], samples, strict=True):
            at = torch.from_numpy(sample.node_ids.astype(np.int64))
            rows, mu = torch.from_numpy(Y[begin:end]), torch.from_numpy(M)[at]
            total += float(energy.value(rows, Z[at], sample, mu=mu))
        return total

    rng = np.random.default_rng(0)
    for k in (1, 3):
        now = musegnn.alternate(Z, samples, energy, k, M=random_rows(1))
        after = musegnn.alternate(Z, samples, energy, 1, M=now.M)
        Y_k, M_k, Y_next = joint.stack(now.Y), now.M.numpy(), joint.stack(after.Y)
        # Far, near, constant in each sample (where the first is sharp for D - A), and where both are sharp.
        for Y in (3 * rng.normal(size=Y_k.shape), Y_k + 1e-3, Y_next + 1.0, Y_k, Y_next):
            for M in (3 * rng.normal(size=M_k.shape), M_k, after.M.numpy()):
                size = 1e-10 * (1 + value(Y, M) + value(Y, M_k))
                D = Y - Y_next
                three = value(Y, M_k) - value(Y_next, M_k) - (1 + gamma) * (D**2).sum()
                assert three >= -size
                assert three == pytest.approx(LAMBDA * np.trace(D.T @ joint.L @ D), abs=size)
                four = (1 + gamma) * ((Y - Y_k) ** 2).sum() - value(Y, M_k) + value(Y, M)
                rest = ((joint.S @ (M_k - M) - Y_k + Y) ** 2).sum()
                assert four >= -size
                assert four == pytest.approx(((Y - Y_k) ** 2).sum() + gamma * rest, abs=size)


PENALTIES = [
    (musegnn.NoPenalty(), lambda share: musegnn.NoPenalty()),
    (musegnn.Nonnegative(), lambda share: musegnn.Nonnegative()),
    (musegnn.Box(-0.4, 0.7), lambda share: musegnn.Box(-0.4, 0.7)),
    (musegnn.L1(0.6), lambda share: musegnn.L1(0.6 * share)),
    (musegnn.GroupNorm(0.9), lambda share: musegnn.GroupNorm(0.9 * share)),
]


@pytest.mark.parametrize(("penalty", "rescaled"), PENALTIES, ids=lambda part: type(part).__name__)
@pytest.mark.parametrize("laplacian", LAPLACIANS)
@pytest.mark.parametrize("gamma", GAMMAS)
def test_with_fixed_means_the_energy_is_the_rescaled_one(gamma, laplacian, penalty, rescaled):
    """Eq. 5: E(Y) = (1 + gamma) E'(Y) + gamma / (1 + gamma) |Z - mu|^2; the same minimizer, the same steps.

    E' has no means; Z' = (Z + gamma mu) / (1 + gamma), and lambda and zeta are divided by 1 + gamma too.
    """
    sample = samples_of_a_random_graph()[0]
    n = sample.num_nodes
    share = 1 / (1 + gamma)
    Z, mu = random_rows(0)[:n], random_rows(1)[:n]
    first = Energy(LAMBDA, gamma, laplacian, penalty)
    second = Energy(LAMBDA * share, 0.0, laplacian, rescaled(share))
    Z_ = share * Z + gamma * share * mu
    constant = gamma * share * float((Z - mu).square().sum())
    L = torch.from_numpy(oracles.laplacians(sample.indptr, sample.indices)[laplacian == "combinatorial"])
    for seed in range(3):
        Y = penalty.prox(random_rows(seed + 2)[:n], 0.1)
        ours = (1 + gamma) * float(second.value(Y, Z_, sample)) + constant
        assert float(first.value(Y, Z, sample, mu=mu)) == pytest.approx(ours, rel=1e-12)
        smooth = LAMBDA * torch.trace(Y.T @ L @ Y) + penalty.value(Y)
        dense = (Y - Z).square().sum() + gamma * (Y - mu).square().sum() + smooth
        assert ours == pytest.approx(float(dense), rel=1e-12)
    alpha = first.problem(Z, sample, mu=mu).alpha
    one = musegnn.unfold(Z, sample, first, 5, alpha, mu=mu, init=Z)
    two = musegnn.unfold(Z_, sample, second, 5, alpha * (1 + gamma), init=Z)
    torch.testing.assert_close(one, two, rtol=1e-12, atol=1e-12)
    exact = musegnn.solve(Z, sample, first, mu=mu, tolerance=1e-11)
    torch.testing.assert_close(exact, musegnn.solve(Z_, sample, second, tolerance=1e-11), rtol=0, atol=1e-9)
