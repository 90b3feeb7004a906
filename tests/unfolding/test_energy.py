"""The energy, its half gradient, its bounds and its step sizes, against dense matrices in float64."""

import warnings
from math import inf

import hypothesis.strategies as st
import jaxtyping
import numpy as np
import problems
import pytest
import torch
from hypothesis import given, settings
from problems import CLOSE, LAPLACIANS, ZOO
from torch import nn

from musegnn import Energy, InputError, unfold
from musegnn.errors import DivergenceError
from musegnn.unfolding.penalty import PENALTIES, GroupNorm
from strategies import csrs

CLAMP = " If it is learned, call energy.confine() behind each optimizer step."

each_laplacian = pytest.mark.parametrize("name", LAPLACIANS)
each_penalty = pytest.mark.parametrize("penalty", problems.PENALTIES)
each_gamma = pytest.mark.parametrize("gamma", [0.0, 0.3, 4.0])


def seen_rows(s):
    """None, all, some and no rows."""
    some = torch.arange(s.num_nodes) % 3 == 0
    return [None, torch.ones_like(some), some, torch.zeros_like(some)]


def inside(Y, penalty):
    """Rows for which the penalty is finite."""
    return {"relu": Y.abs(), "nonnegative_l1": Y.abs(), "box": Y.clamp(-1, 1)}.get(penalty, Y)


def cases():
    """Graphs, gammas and rows that are seen."""
    whole, drawn, lone = ZOO["random"], problems.sample(), ZOO["one node"]
    yield from zip([whole] * 4, [0.3, 4.0, 0.3, 4.0], seen_rows(whole), strict=True)
    yield from [(drawn, 0.0, None), (drawn, 0.7, seen_rows(drawn)[2]), (ZOO["star"], 0.0, None)]
    yield from [(ZOO["no edges"], 0.5, seen_rows(ZOO["no edges"])[2]), (lone, 0.5, None)]


@each_laplacian
@each_penalty
def test_value_terms_and_half_gradient_equal_the_dense_ones(name, penalty):
    for s, gamma, seen in cases():
        Y, Z, mu = problems.normal(s, 5, count=3)
        Y, energy, means = inside(Y, penalty), Energy(2.5, gamma, name, penalty), {"mu": mu, "seen": seen}
        expected = problems.energy(Y, Z, s, penalty, name, 2.5, gamma, **means)
        terms = energy.terms(Y, Z, s, **means)
        assert list(terms) == list(expected) == ["fidelity", "smoothness", "consensus", "penalty"]
        for term in terms:
            torch.testing.assert_close(terms[term], expected[term], **CLOSE)
        value = torch.stack([*expected.values()]).sum()
        torch.testing.assert_close(energy.value(Y, Z, s, **means), value, **CLOSE)
        H = problems.hessian(s, name, 2.5, gamma, seen)
        rows = (torch.ones(len(Z)) if seen is None else seen).double()[:, None]
        half = energy.half_gradient(Y, Z, s, **means)
        torch.testing.assert_close(half, H @ Y - Z - gamma * rows * mu, **CLOSE)


@each_laplacian
@each_gamma
def test_the_half_gradient_is_half_of_what_autograd_finds(name, gamma):
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2)
    Y = problems.normal(s, seed=1).requires_grad_()
    energy, seen = Energy(1.7, gamma, name, "none"), seen_rows(s)[2]
    (slope,) = torch.autograd.grad(energy.value(Y, Z, s, mu=mu, seen=seen), Y)
    torch.testing.assert_close(slope, 2 * energy.half_gradient(Y.detach(), Z, s, mu=mu, seen=seen), **CLOSE)


def test_the_terms_are_differentiable_in_lambda_and_gamma():
    s = ZOO["random"]
    Y, Z, mu = problems.normal(s, count=3)
    lambda_, gamma = (nn.Parameter(torch.tensor(x, dtype=torch.float64)) for x in (1.5, 0.5))
    value = Energy(lambda_, gamma, prox="none").value(Y, Z, s, mu=mu)
    slopes = torch.autograd.grad(value, [lambda_, gamma])
    expected = problems.energy(Y, Z, s, "none", lambda_=1.0, gamma=1.0, mu=mu)
    torch.testing.assert_close(slopes[0], expected["smoothness"], **CLOSE)
    torch.testing.assert_close(slopes[1], expected["consensus"], **CLOSE)


@each_penalty
def test_the_value_is_infinite_where_the_penalty_is_violated(penalty):
    s = ZOO["path"]
    Y, Z = problems.normal(s, count=2)
    value = Energy(prox=penalty).value(3 * Y, Z, s)
    expected = problems.zeta(3 * Y, penalty)
    assert float(value) == inf if float(expected) == inf else float(value) < inf


@settings(max_examples=25)
@given(csrs(), st.sampled_from(LAPLACIANS), st.floats(0, 30), st.floats(0, 5), st.data())
def test_tau_and_sigma_enclose_all_eigenvalues_of_the_hessian(csr, name, lambda_, gamma, data):
    n = csr.num_nodes
    rows = np.repeat(np.arange(n), np.diff(csr.indptr))
    edges = torch.from_numpy(np.stack([rows, csr.indices]).astype(np.int64))
    seen = data.draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n).map(torch.tensor))
    Z = torch.zeros(n, 1, dtype=torch.float64)
    problem = Energy(lambda_, gamma, name).problem(Z, edges, mu=Z, seen=seen)
    eigenvalues = np.linalg.eigvalsh(problems.hessian(csr, name, lambda_, gamma, seen))
    slack = 1e-12 * eigenvalues[-1]
    assert problem.tau <= eigenvalues[0] + slack
    assert eigenvalues[-1] <= problem.sigma + slack
    # They are not far off either: L has the eigenvalue 0, and lmax <= bound <= 2 (d + 1).
    assert problem.tau >= 1
    assert problem.sigma <= 1 + gamma + 2 * lambda_ * (np.diff(csr.indptr).max() + 1)


@each_laplacian
def test_tau_is_one_plus_gamma_and_one_as_soon_as_a_row_is_not_seen(name):
    s = ZOO["random"]
    Z = problems.normal(s)
    energy, (_, all_, some, none) = Energy(2.0, 0.75, name), seen_rows(s)
    assert energy.problem(Z, s, mu=Z).tau == energy.problem(Z, s, mu=Z, seen=all_).tau == 1.75
    assert energy.problem(Z, s, mu=Z, seen=some).tau == energy.problem(Z, s, mu=Z, seen=none).tau == 1
    # Nobody looks at which rows are seen for the step size: a GPU would be waited for.
    problems_ = [energy.problem(Z, s, mu=Z, seen=seen) for seen in (all_, some, none)]
    assert len({problem.sigma for problem in problems_}) == 1
    assert len({problem.alpha for problem in problems_}) == 1


@each_laplacian
@pytest.mark.parametrize("precondition", problems.PRECONDITIONS)
@each_gamma
def test_automatic_step_sizes(name, precondition, gamma):
    energy = Energy(3.0, gamma, name, precondition=precondition)
    for s in (ZOO["random"], ZOO["path"], ZOO["no edges"]):
        Z = problems.normal(s)
        for seen in seen_rows(s)[:: 2 if s is ZOO["path"] else 1]:
            problem = energy.problem(Z, s, mu=Z, seen=seen)
            expected = problems.step_sizes(s, name, precondition, 3.0, gamma, seen)
            torch.testing.assert_close(problem.rows, expected, **CLOSE)
            assert problem.is_proven
            assert problem.alpha == (pytest.approx(float(expected[0])) if precondition == "none" else 1)


@each_laplacian
@each_gamma
def test_automatic_steps_contract(name, gamma):
    """a H has all eigenvalues below 2, for one a and for one of each row."""
    for s in (ZOO["random"], ZOO["bipartite"], ZOO["star"], ZOO["no edges"]):
        Z = problems.normal(s)
        H = problems.hessian(s, name, 3.0, gamma)
        for precondition in ("none", "jacobi"):
            root = Energy(3.0, gamma, name, precondition=precondition).problem(Z, s, mu=Z).rows.sqrt()
            assert np.linalg.eigvalsh(root * H * root.T)[-1] < 2


@each_laplacian
def test_the_matrix_is_the_hessian(name):
    for s in (ZOO["random"], ZOO["star"], ZOO["no edges"]):
        Z, seen = problems.normal(s), seen_rows(s)[2]
        problem = Energy(2.5, 0.5, name).problem(Z, s, mu=Z, seen=seen)
        expected = problems.hessian(s, name, 2.5, 0.5, seen)
        torch.testing.assert_close(torch.from_numpy(problem.matrix().toarray()), expected, **CLOSE)
        torch.testing.assert_close(problem.product(Z), expected @ Z, **CLOSE)


# What diverges, and what may.


def theta(s, name):
    return problems.musegnn.unfolding.subgraph.as_sample(s, s.num_nodes).spectrum(name)


@each_laplacian
@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_alpha_is_refused_from_the_limit_on(name, gamma):
    s = ZOO["random"]
    Z = problems.normal(s)
    energy, limit = Energy(2.0, gamma, name), 2 / (1 + gamma + 2.0 * theta(s, name).theta)
    for alpha in (limit, 2 * limit, inf):
        message = (
            f"alpha={alpha:g} diverges: with lambda_=2, gamma={gamma:g} and the {name} Laplacian of this "
            f"subgraph it must lie in (0, {limit:.4g}). Leave it at 'auto' to descend for certain."
        )
        with problems.refused(message):
            unfold(Z, s, energy, alpha=alpha, mu=Z)
    below = np.nextafter(limit, 0)
    assert energy.problem(Z, s, mu=Z, alpha=float(below)).alpha == below


@each_laplacian
def test_what_is_refused_does_diverge(name):
    """At the limit, 2 over a lower bound of lmax(H): the top eigenvector does not get shorter."""
    for s in ZOO.values():
        H = problems.hessian(s, name, 2.0, 0.5)
        limit = 2 / (1.5 + 2.0 * theta(s, name).theta)
        assert limit * np.linalg.eigvalsh(H)[-1] >= 2 * (1 - 1e-10)


def test_jacobi_refuses_two():
    s = ZOO["random"]
    Z = problems.normal(s)
    energy = Energy(2.0, precondition="jacobi")
    message = (
        "alpha=2 diverges: with lambda_=2, gamma=0 and the normalized Laplacian of this subgraph it must lie "
        "in (0, 2). Leave it at 'auto' to descend for certain."
    )
    with problems.refused(message):
        unfold(Z, s, energy, alpha=2.0)
    diagonal = problems.hessian(s, "normalized", 2.0, 0.0).diagonal()
    share = float((1 - 1 / diagonal).max())
    limit = 2 / (1 + share)
    assert energy.problem(Z, s, alpha=limit * (1 - 1e-9)).is_proven
    assert not energy.problem(Z, s, alpha=limit * (1 + 1e-9)).is_proven


def test_an_automatic_alpha_is_proven_even_where_float32_rounds():
    """lambda times the degree of the hub is 2e7: 1 + 2e7 is 2e7 in float32."""
    s = problems.star(2001)
    problem = Energy(1e4, 0.0, "combinatorial", precondition="jacobi").problem(torch.zeros(2001, 1), s)
    assert problem.is_proven


@each_laplacian
def test_alpha_is_proven_below_two_over_sigma_and_not_from_there_on(name):
    s = ZOO["random"]
    Z = problems.normal(s)
    energy = Energy(2.0, 0.5, name)
    limit = 2 / energy.problem(Z, s, mu=Z).sigma
    assert limit == 2 / (1.5 + 2 * theta(s, name).bound)
    assert energy.problem(Z, s, mu=Z, alpha=float(np.nextafter(limit, 0))).is_proven
    assert not energy.problem(Z, s, mu=Z, alpha=limit).is_proven


def learned(energy):
    """The same energy, whose steps are not fused."""
    lambda_ = nn.Parameter(torch.tensor(energy.lambda_, dtype=torch.float64))
    return Energy(lambda_, energy.gamma, energy.laplacian, energy.penalty)


def same(energy):
    return energy


@pytest.mark.parametrize("way", [same, learned])
@pytest.mark.parametrize("prox", ["none", "relu", "l1", "box"])
def test_in_the_gap_what_converges_passes_with_one_warning(way, prox):
    """A complete graph: lmax = theta = n, and the bound is 2 (n - 1)."""
    s = ZOO["complete"]
    Z = problems.normal(s)
    energy = way(Energy(1.0, 0.0, "combinatorial", prox))
    alpha = 2 / 6.5
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Y = unfold(Z, s, energy, 40, alpha)
    assert len(caught) == 1
    assert caught[0].category is UserWarning
    assert str(caught[0].message) == (
        f"alpha={alpha:g} is larger than what is known to descend for {energy}. "
        "The energy is watched; alpha='auto' descends for certain."
    )
    sizes = torch.full((5, 1), alpha, dtype=torch.float64)
    naive = problems.descend(Z, s, prox, "combinatorial", steps=40, sizes=sizes)[-1]
    torch.testing.assert_close(Y, naive, **CLOSE)


@pytest.mark.parametrize("way", [same, learned])
@pytest.mark.parametrize(
    ("s", "name", "lambda_"),
    [(ZOO["bipartite"], "combinatorial", 1.0), (ZOO["random"], "normalized", 20.0)],
)
@pytest.mark.parametrize("prox", ["none", "l1", "group"])
@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_in_the_gap_what_rises_raises_with_step_and_energy(way, s, name, lambda_, prox, gamma):
    spectrum = theta(s, name)
    low, H = 1 + gamma + lambda_ * spectrum.theta, problems.hessian(s, name, lambda_, gamma)
    top = torch.linalg.eigh(H)
    alpha = 2 / (0.3 * float(top.eigenvalues[-1]) + 0.7 * low)
    Z, mu = problems.normal(s, count=2)
    init = Z + 0.2 * top.eigenvectors[:, -1:]
    energy = way(Energy(lambda_, gamma, name, prox))
    sizes = torch.full((len(Z), 1), alpha, dtype=torch.float64)
    naive = problems.descend(Z, s, prox, name, lambda_, gamma, steps=40, sizes=sizes, init=init, mu=mu)
    values = [
        float(torch.stack([*problems.energy(Y, Z, s, prox, name, lambda_, gamma, mu=mu).values()]).sum())
        for Y in naive
    ]
    step = next(k for k in range(1, 41) if values[k] > values[k - 1])
    assert step < 40
    with (
        pytest.warns(UserWarning, match="larger than what is known"),
        pytest.raises(DivergenceError) as caught,
    ):
        unfold(Z, s, energy, 40, alpha, mu=mu, init=init)
    assert caught.value.step == step
    assert caught.value.energy == pytest.approx(values[step - 1], rel=1e-9)
    assert str(caught.value) == (
        f"The energy rises at step {step}: alpha={alpha:g} is too large for this subgraph. "
        "Take alpha='auto', which descends for certain."
    )


@pytest.mark.parametrize("way", [same, learned])
def test_a_start_that_violates_the_penalty_has_no_energy_to_rise_from(way):
    """Z has negative entries; E(Y^0) is inf for ReLU, and what the kernel adds up for it is no energy."""
    s = ZOO["complete"]
    Z = problems.normal(s)
    init = -100 * Z.abs()
    energy = way(Energy(1.0, 0.0, "combinatorial", "relu"))
    for steps in (0, 1, 5):
        with pytest.warns(UserWarning, match="larger than what is known"):
            Y = unfold(Z, s, energy, steps, 0.3, init=init)
        sizes = torch.full((5, 1), 0.3, dtype=torch.float64)
        naive = problems.descend(Z, s, "relu", "combinatorial", steps=steps, sizes=sizes, init=init)[-1]
        torch.testing.assert_close(Y, naive, **CLOSE)


def test_float32_does_not_mistake_rounding_for_a_rise():
    s = ZOO["complete"]
    Z = problems.normal(s, 40).float()
    with pytest.warns(UserWarning, match="larger than what is known"):
        Y = unfold(Z, s, Energy(1.0, 0.0, "combinatorial", "l1"), 100, 0.3)
    sizes = torch.full((5, 1), 0.3, dtype=torch.float64)
    naive = problems.descend(Z.double(), s, "l1", "combinatorial", steps=100, sizes=sizes)[-1]
    torch.testing.assert_close(Y.double(), naive, rtol=1e-5, atol=1e-5)


# The authors' variant.


def test_the_authors_variant_takes_any_positive_alpha():
    s = ZOO["random"]
    Z = problems.normal(s)
    energy = Energy(2.0, precondition="authors")
    problem = energy.problem(Z, s, alpha=7.0)
    degree = torch.from_numpy(np.diff(s.indptr))[:, None]
    torch.testing.assert_close(problem.rows, 7 / (1 + 2.0 * degree.double()), **CLOSE)
    assert (problem.alpha, problem.is_proven) == (7.0, True)
    message = "alpha must be a positive number or 'auto', got 0.0."
    with problems.refused(message):
        unfold(Z, s, energy, alpha=0.0)


def test_the_authors_variant_does_not_descend_at_lambda_one():
    """Its propagator has spectral radius 1 there, so that it does not contract, and its energy rises."""
    s = ZOO["random"]
    A = torch.from_numpy(problems.oracles.dense(s.indptr, s.indices))
    root = (1 + A.sum(dim=1)) ** -0.5
    propagator = root[:, None] * (A + torch.eye(len(A))) * root
    assert float(torch.linalg.eigvalsh(propagator)[-1]) == pytest.approx(1)
    Z = problems.normal(s).abs()
    energies = [
        unfold(Z, s, Energy(1.0, 0.0, "combinatorial", "none", precondition=way), 30, trace=True).energies
        for way in ("authors", "jacobi")
    ]
    assert bool((energies[0].diff() > 1e-3).any())
    assert bool((energies[1].diff() <= 1e-10).all())


# What gamma needs.


def test_gamma_zero_needs_no_means_and_looks_at_none():
    s = ZOO["random"]
    Y, Z, mu = problems.normal(s, count=3)
    energy = Energy(2.0, 0.0, prox="none")
    assert float(energy.value(Y, Z, s)) == float(energy.value(Y, Z, s, mu=mu))
    assert float(energy.terms(Y, Z, s)["consensus"]) == 0
    assert torch.equal(unfold(Z, s, energy), unfold(Z, s, energy, mu=mu))


def test_gamma_without_means_is_refused():
    s = ZOO["random"]
    Z = problems.normal(s)
    message = "gamma=0.5 needs mu, the means to agree with. Pass mu=..., or take gamma=0."
    for call in (unfold, problems.musegnn.solve):
        with problems.refused(message):
            call(Z, s, Energy(2.0, 0.5))
    with problems.refused(message):
        Energy(2.0, 0.5).value(Z, Z, s)


def test_a_learned_gamma_that_is_zero_needs_the_means_for_its_gradient():
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2)
    gamma = nn.Parameter(torch.zeros((), dtype=torch.float64))
    energy = Energy(1.0, gamma, prox="none")
    (slope,) = torch.autograd.grad(energy.value(Z, Z, s, mu=mu), gamma)
    torch.testing.assert_close(slope, ((Z - mu) ** 2).sum(), **CLOSE)
    with problems.refused("gamma=0 needs mu, the means to agree with. Pass mu=..., or take gamma=0."):
        unfold(Z, s, energy)
    gamma.requires_grad_(False)
    assert torch.equal(unfold(Z, s, energy), unfold(Z, s, Energy(1.0, 0.0, prox="none")))


def test_gamma_infinite_is_the_energy_of_the_means_or_infinite():
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2)
    energy = Energy(2.0, inf, prox="none")
    expected = problems.energy(mu, Z, s, "none", lambda_=2.0)
    value = expected["fidelity"] + expected["smoothness"]
    torch.testing.assert_close(energy.value(mu, Z, s, mu=mu), value, **CLOSE)
    elsewhere = mu.clone()
    elsewhere[4, 1] += 1e-9
    assert float(energy.value(elsewhere, Z, s, mu=mu)) == inf
    seen = torch.arange(len(Z)) != 4
    assert float(energy.terms(elsewhere, Z, s, mu=mu, seen=seen)["consensus"]) == 0
    assert float(energy.terms(elsewhere, Z, s, mu=mu, seen=~seen)["consensus"]) == inf


@pytest.mark.parametrize("prox", ["none", "relu", "group"])
@pytest.mark.parametrize("call", [unfold, problems.musegnn.solve])
def test_gamma_infinite_has_no_steps(call, prox):
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2)
    with problems.refused(
        "gamma=inf has no steps: Y = mu (eq. 7). Take musegnn.consensus, or a finite gamma."
    ):
        call(Z, s, Energy(2.0, inf, prox=prox), mu=mu)


# What is refused.


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"lambda_": -1.0}, "lambda_ must be a number, 0 or more; got -1.0." + CLAMP),
        ({"lambda_": inf}, "lambda_ must be a number, 0 or more; got inf." + CLAMP),
        ({"lambda_": float("nan")}, "lambda_ must be a number, 0 or more; got nan." + CLAMP),
        ({"gamma": -0.1}, "gamma must be a number, 0 or more (inf for eq. 7); got -0.1." + CLAMP),
        ({"gamma": float("nan")}, "gamma must be a number, 0 or more (inf for eq. 7); got nan." + CLAMP),
        ({"laplacian": "random"}, "laplacian must be 'normalized' or 'combinatorial', got 'random'."),
        ({"precondition": "ssor"}, "precondition must be 'none', 'jacobi' or 'authors', got 'ssor'."),
        (
            {"prox": "tanh"},
            "prox must be a musegnn.Penalty or one of none, relu, l1, nonnegative_l1, group, box; "
            "got 'tanh'. Take 'relu', the default.",
        ),
    ],
)
def test_wrong_settings(settings_, message):
    with problems.refused(message):
        Energy(**settings_)


@pytest.mark.parametrize("name", ["lambda_", "gamma"])
def test_a_learned_weight_that_has_become_negative_is_refused(name):
    s = ZOO["path"]
    Z = problems.normal(s)
    weight = nn.Parameter(torch.tensor(0.5))
    energy = Energy(**{"lambda_": 1.0, "gamma": 1.0, name: weight})
    with torch.no_grad():
        weight.sub_(1)
    match = rf"^{name} must be a number, 0 or more.*; got -0.5\. If it is learned, call energy.confine"
    with pytest.raises(InputError, match=match):
        unfold(Z, s, energy, mu=Z)


@pytest.mark.parametrize("alpha", ["fast", True, None])
def test_alpha_is_a_number_or_auto(alpha):
    s = ZOO["path"]
    with problems.refused(f"alpha must be a positive number or 'auto', got {alpha!r}."):
        unfold(problems.normal(s), s, Energy(), alpha=alpha)


@pytest.mark.parametrize("alpha", [0.0, -0.1, float("nan")])
def test_alpha_is_positive(alpha):
    s = ZOO["no edges"]
    with problems.refused(f"alpha must be a positive number or 'auto', got {alpha!r}."):
        unfold(problems.normal(s), s, Energy(), alpha=alpha)


def test_a_number_of_numpy_is_a_number(monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    s = ZOO["path"]
    Z = problems.normal(s)
    assert torch.equal(unfold(Z, s, Energy(), np.int64(3), np.float64(0.25)), unfold(Z, s, Energy(), 3, 0.25))


@pytest.mark.parametrize("weight", ["1", None, torch.ones(2), torch.ones((), requires_grad=True) * 2])
def test_a_weight_is_a_number_or_a_parameter(weight, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    with pytest.raises(
        InputError, match="must be a number, or an nn.Parameter of one number to be learned; got"
    ):
        Energy(weight)


def test_means_of_another_shape():
    s = ZOO["path"]
    Z = problems.normal(s)
    with problems.refused("mu must have the shape of Z, (6, 3); got (6, 2)."):
        Energy(1.0, 1.0).value(Z, Z, s, mu=Z[:, :2])


def test_the_settings_are_shown():
    assert repr(Energy(4.0, 0.5, "combinatorial", GroupNorm(0.2), precondition="jacobi")) == (
        "Energy(lambda_=4, gamma=0.5, laplacian='combinatorial', prox=GroupNorm(weight=0.2), "
        "precondition='jacobi', acceleration='none')"
    )


def test_every_penalty_has_a_name():
    assert list(PENALTIES) == problems.PENALTIES
    assert all(Energy(prox=name).penalty is PENALTIES[name] for name in PENALTIES)


@pytest.mark.parametrize("precondition", problems.PRECONDITIONS)
def test_gamma_infinite_is_what_is_wrong_and_not_the_step_size(precondition):
    s = ZOO["random"]
    Z = problems.normal(s)
    message = "gamma=inf has no steps: Y = mu (eq. 7). Take musegnn.consensus, or a finite gamma."
    with problems.refused(message):
        unfold(Z, s, Energy(2.0, inf, precondition=precondition), alpha=0.1, mu=Z)
