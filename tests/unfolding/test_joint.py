"""All samples at once, against dense solves of the whole quadratic program."""

from math import inf

import numpy as np
import problems
import pytest
import torch
from problems import CLOSE, LAPLACIANS

from musegnn import Energy, UniformInduced, alternate, consensus
from musegnn.errors import DivergenceError
from musegnn.sampling import Draws

N = 24


def samples(count=4):
    graph = problems.random(N, seed=4)
    draws = Draws(graph, UniformInduced(p=0.5, num_samples=count), "none", seed=1)
    return [draws[i] for i in range(count)]


def places(drawn):
    return [torch.from_numpy(sample.node_ids.astype(np.int64)) for sample in drawn]


def rows(seed=0):
    return torch.randn(N, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def joint(Z, drawn, name, lambda_, gamma):
    """The minimum over all Y_s and M at once: its gradient is zero, one dense system."""
    sizes = [sample.num_nodes for sample in drawn]
    total = sum(sizes)
    system, right = torch.zeros(total + N, total + N, dtype=torch.float64), torch.zeros(total + N, 3).double()
    begin = 0
    for sample, at in zip(drawn, places(drawn), strict=True):
        mine, means = torch.arange(begin, begin + len(at)), total + at
        system[mine[:, None], mine] = problems.hessian(sample, name, lambda_, gamma)
        system[mine, means] -= gamma
        system[means, mine] -= gamma
        system[means, means] += gamma
        right[mine] = Z[at]
        begin += len(at)
    nowhere = system.diagonal() == 0
    system[nowhere, nowhere] = 1
    solution = torch.linalg.solve(system, right)
    return solution[total:], torch.split(solution[:total], sizes)


@pytest.mark.parametrize("name", LAPLACIANS)
@pytest.mark.parametrize(("gamma", "rounds"), [(0.3, 14), (1.0, 32)])
def test_alternation_reaches_the_joint_minimum(name, gamma, rounds):
    """By a factor of gamma / (1 + gamma) or less in each round."""
    drawn, Z = samples(), rows()
    M, Y = joint(Z, drawn, name, 1.5, gamma)
    found = alternate(Z, drawn, Energy(1.5, gamma, name, "none"), rounds)
    torch.testing.assert_close(found.M, M, rtol=0, atol=1e-8)
    for pair in zip(found.Y, Y, strict=True):
        torch.testing.assert_close(*pair, rtol=0, atol=1e-8)
    assert bool((found.energies.diff() <= 1e-12 * found.energies[0]).all())


@pytest.mark.parametrize("name", LAPLACIANS)
def test_each_round_is_two_dense_minimizations(name):
    drawn, Z, M = samples(), rows(), rows(1)
    found = alternate(Z, drawn, Energy(1.5, 0.8, name, "none"), 2, M=M)
    energies = []
    for _ in range(2):
        Y = [
            torch.linalg.solve(problems.hessian(sample, name, 1.5, 0.8), Z[at] + 0.8 * M[at])
            for sample, at in zip(drawn, places(drawn), strict=True)
        ]
        M = torch.zeros_like(Z)
        for v in range(N):
            its = [y[at == v] for y, at in zip(Y, places(drawn), strict=True)]
            if len(torch.cat(its)):
                M[v] = torch.cat(its).mean(dim=0)
        parts = zip(Y, drawn, places(drawn), strict=True)
        energies.append(
            sum(
                float(sum(problems.energy(y, Z[at], s, "none", name, 1.5, 0.8, mu=M[at]).values()))
                for y, s, at in parts
            )
        )
    torch.testing.assert_close(found.M, M, **CLOSE)
    for pair in zip(found.Y, Y, strict=True):
        torch.testing.assert_close(*pair, **CLOSE)
    torch.testing.assert_close(found.energies, torch.tensor(energies, dtype=torch.float64), **CLOSE)


def test_it_starts_from_zeros_and_leaves_the_means_it_was_given():
    drawn, Z = samples(2), rows()
    energy = Energy(1.5, 0.8, prox="none")
    M = rows(1)
    kept = M.clone()
    alternate(Z, drawn, energy, 1, M=M)
    assert torch.equal(M, kept)
    first, other = alternate(Z, drawn, energy, 1), alternate(Z, drawn, energy, 1, M=torch.zeros(N, 3))
    assert torch.equal(first.M, other.M)
    # In no sample, so that it has no mean.
    nowhere = torch.ones(N, dtype=torch.bool)
    nowhere[torch.cat(places(drawn))] = False
    assert bool(nowhere.any())
    assert not first.M[nowhere].any()


def test_alternation_with_a_penalty_falls_and_stays_inside():
    drawn, Z = samples(), rows()
    found = alternate(Z, drawn, Energy(1.5, 0.8), 4)
    assert bool((found.energies.diff() <= 0).all())
    assert all(bool((Y >= 0).all()) for Y in found.Y)
    assert bool((found.M >= 0).all())


def test_float32_is_computed_in_float64():
    drawn, Z = samples(), rows().float()
    energy = Energy(1.5, 0.8, prox="none")
    assert torch.equal(alternate(Z, drawn, energy, 2).M, alternate(Z.double(), drawn, energy, 2).M)
    found = consensus(Z, drawn, energy)
    assert found.dtype == torch.float32
    assert torch.equal(found, consensus(Z.double(), drawn, energy).float())


@pytest.mark.parametrize("name", LAPLACIANS)
@pytest.mark.parametrize("gamma", [0.0, inf])
def test_consensus_is_the_dense_solve_of_equation_seven(name, gamma):
    drawn, Z = samples(), rows()
    system, right = torch.zeros(N, N, dtype=torch.float64), torch.zeros(N, 3, dtype=torch.float64)
    for sample, at in zip(drawn, places(drawn), strict=True):
        system[at[:, None], at] += problems.hessian(sample, name, 1.5, 0.0)
        right[at] += Z[at]
    there = system.diagonal() > 0
    expected = torch.zeros_like(Z)
    expected[there] = torch.linalg.solve(system[there][:, there], right[there])
    found = consensus(Z, drawn, Energy(1.5, gamma, name, "none"))
    torch.testing.assert_close(found, expected, **CLOSE)


def test_a_large_gamma_comes_near_to_consensus():
    drawn, Z = samples(), rows()
    exact = consensus(Z, drawn, Energy(1.5, inf, prox="none"))
    away = [float((joint(Z, drawn, "normalized", 1.5, gamma)[0] - exact).norm()) for gamma in (10, 100, 1000)]
    assert away[0] > 8 * away[1] > 64 * away[2] > 0


@pytest.mark.parametrize(
    ("energy", "rounds", "message"),
    [
        (Energy(1.0, 0.0), 1, "Alternating minimization needs 0 < gamma < inf, got 0."),
        (Energy(1.0, inf), 1, "Alternating minimization needs 0 < gamma < inf, got inf."),
        (Energy(1.0, 1.0), 0, "rounds must be a whole number, 1 or more; got 0."),
    ],
)
def test_what_alternation_needs(energy, rounds, message):
    with problems.refused(message):
        alternate(rows(), samples(1), energy, rounds)


def test_consensus_knows_no_penalty():
    message = "consensus solves without a penalty, got Nonnegative(). Take prox='none'."
    with problems.refused(message):
        consensus(rows(), samples(1), Energy(1.0, inf))


@pytest.mark.parametrize("call", [lambda *args: alternate(*args, 1), consensus])
def test_rows_and_samples_that_cannot_be(call):
    energy, drawn = Energy(1.0, 1.0, prox="none"), samples(2)
    with problems.refused("There are no samples. Pass those of a split, such as store['train']."):
        call(rows(), [], energy)
    last = 1 + max(int(sample.node_ids.max()) for sample in drawn)
    message = f"Z must have a row for each node of the graph, {last} or more; it has {last - 1}."
    with problems.refused(message):
        call(rows()[: last - 1], drawn, energy)
    call(rows()[:last], drawn, energy)
    bad = rows()
    bad[3, 1] = torch.nan
    message = "Z has entries that are not finite. Look for NaN and inf where it is computed."
    with problems.refused(message, DivergenceError):
        call(bad, drawn, energy)


def test_means_to_start_from_that_cannot_be():
    message = "M must have the shape of Z, (24, 3); got (24, 2)."
    with problems.refused(message):
        alternate(rows(), samples(1), Energy(1.0, 1.0), 1, M=rows()[:, :2])
