"""Steps descend, the error bound holds, the rate is that of lemma E.4; against dense float64 matrices."""

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import musegnn
import oracles
import strategies
from musegnn import Energy, unfold
from musegnn.errors import DivergenceError

MANY = 10 if os.environ.get("MUSEGNN_PROOF") else 1
EPS = np.finfo(np.float64).eps


# Penalties, each with what it is by its definition.


class Absolute(musegnn.Penalty):
    """zeta(y) = weight |y - center|_1, a user's own: its kink is not at zero."""

    def __init__(self, weight: float, center: float) -> None:
        self.weight, self.center = weight, center

    def value(self, Y):
        return self.weight * (Y - self.center).abs().sum()

    def prox(self, X, step):
        away = X - self.center
        size = torch.as_tensor(step * self.weight, dtype=X.dtype)
        return self.center + away - torch.clamp(away, -size, size)


class Ridge(musegnn.Penalty):
    """zeta(y) = weight |y|^2, a user's own: smooth, so that its prox never stops anything."""

    def __init__(self, weight: float) -> None:
        self.weight = weight

    def value(self, Y):
        return self.weight * Y.square().sum()

    def prox(self, X, step):
        return X / (1 + 2 * step * self.weight)


class Zeta(NamedTuple):
    """A penalty of the package, and the same one in NumPy."""

    penalty: musegnn.Penalty
    value: Callable[[np.ndarray], float]
    prox: Callable[[np.ndarray, Any], np.ndarray]


def within(low: float, high: float, weight: float = 0.0) -> tuple:
    def value(Y):
        return weight * np.abs(Y).sum() if (Y >= low).all() and (Y <= high).all() else inf

    def prox(X, step):
        return np.clip(np.sign(X) * np.maximum(np.abs(X) - step * weight, 0), low, high)

    return value, prox


def zeta_of(name: str, weight: float, center: float) -> Zeta:
    if name == "none":
        return Zeta(musegnn.NoPenalty(), *within(-inf, inf))
    if name == "nonnegative":
        return Zeta(musegnn.Nonnegative(), *within(0, inf))
    if name == "box":
        return Zeta(musegnn.Box(center - 0.5, center + 0.5), *within(center - 0.5, center + 0.5))
    if name == "l1":
        return Zeta(musegnn.L1(weight), *within(-inf, inf, weight))
    if name == "nonnegative_l1":
        return Zeta(musegnn.L1(weight, nonnegative=True), *within(0, inf, weight))
    if name == "absolute":
        value, prox = within(-inf, inf, weight)
        own = Absolute(weight, center)
        return Zeta(own, lambda Y: value(Y - center), lambda X, step: center + prox(X - center, step))
    if name == "ridge":
        return Zeta(
            Ridge(weight), lambda Y: weight * (Y**2).sum(), lambda X, step: X / (1 + 2 * step * weight)
        )
    assert name == "group"

    def shrink(X, step):
        norm = np.linalg.norm(X, axis=1, keepdims=True)
        return X * np.maximum(1 - step * weight / np.where(norm > 0, norm, 1), 0)

    return Zeta(musegnn.GroupNorm(weight), lambda Y: weight * np.linalg.norm(Y, axis=1).sum(), shrink)


NAMES = ("none", "nonnegative", "box", "l1", "nonnegative_l1", "group", "absolute", "ridge")


# A problem, drawn; its dense form.


@dataclass(frozen=True)
class Case:
    """Drawn first and built in the test: the type checker uses random numbers, which hypothesis forbids."""

    csr: strategies.Csr
    Z: np.ndarray
    mu: np.ndarray
    start: np.ndarray
    seen: np.ndarray | None
    lambda_: float
    gamma: float
    laplacian: str
    precondition: str
    zeta: tuple[str, float, float]
    share: float
    """The step size, as a share of what descends."""

    @property
    def edge_index(self) -> torch.Tensor:
        pairs = oracles.entries(self.csr.indptr, self.csr.indices)
        return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T

    @property
    def energy(self) -> Energy:
        return Energy(
            self.lambda_,
            self.gamma,
            self.laplacian,
            zeta_of(*self.zeta).penalty,
            precondition=self.precondition,
        )

    def rows(self, dtype: torch.dtype) -> dict[str, torch.Tensor]:
        return {
            name: torch.from_numpy(getattr(self, name)).to(dtype).contiguous()
            for name in ("Z", "mu", "start")
        }

    @property
    def mask(self) -> torch.Tensor | None:
        return None if self.seen is None else torch.from_numpy(self.seen)


VALUES = st.floats(-4, 4, width=32) | st.sampled_from([0.0, 1.0, -1.0])
WEIGHTS = st.floats(0.01, 3)


@st.composite
def cases(draw: st.DrawFn, preconditions: tuple[str, ...] = ("none", "jacobi")) -> Case:
    csr = draw(strategies.csrs(max_nodes=9))
    shape = (csr.num_nodes, draw(st.integers(1, 3)))
    Z, mu, start = (draw(hnp.arrays(np.float64, shape, elements=VALUES)) for _ in range(3))
    return Case(
        csr=csr,
        Z=Z,
        mu=mu,
        start=Z if draw(st.booleans()) else start,
        seen=draw(st.none() | hnp.arrays(bool, shape[0])),
        lambda_=draw(st.sampled_from([0.0, 1.0, 20.0]) | st.floats(0, 30)),
        gamma=draw(st.sampled_from([0.0, 1.0]) | st.floats(0, 10)),
        laplacian=draw(st.sampled_from(["normalized", "combinatorial"])),
        precondition=draw(st.sampled_from(preconditions)),
        zeta=(draw(st.sampled_from(NAMES)), draw(WEIGHTS), draw(st.floats(-1, 1))),
        share=draw(st.floats(0.01, 0.99)),
    )


class Dense:
    """H, b and the energy of a case, from the definitions alone."""

    def __init__(self, case: Case, dtype: torch.dtype = torch.float64) -> None:
        self.Z, self.mu, self.start = (
            part.double().numpy() for part in case.rows(dtype).values()
        )  # as the steps see them, rounded
        n = len(self.Z)
        self.L = oracles.laplacians(*case.csr)[case.laplacian == "combinatorial"]
        self.lambda_ = case.lambda_
        self.gamma = case.gamma * (np.ones(n) if case.seen is None else case.seen.astype(float))[:, None]
        self.H = np.diag(1 + self.gamma[:, 0]) + case.lambda_ * self.L
        self.b = self.Z + self.gamma * self.mu
        self.zeta = zeta_of(*case.zeta)
        self.eigenvalues = np.linalg.eigvalsh(self.H)
        self.tau, self.sigma = self.eigenvalues[[0, -1]]
        self.is_jacobi = case.precondition == "jacobi"
        P = 1 / np.diag(self.H) if self.is_jacobi else np.ones(n)
        root = np.sqrt(P)
        self.limit = 2 / np.linalg.eigvalsh(root[:, None] * self.H * root)[-1]
        """The step sizes below it descend: 2 / sigma without a preconditioner, 2 / lmax(P H) with one."""
        self.P = P[:, None]

    def value(self, Y: np.ndarray) -> float:
        fidelity, consensus = ((Y - self.Z) ** 2).sum(), (self.gamma * (Y - self.mu) ** 2).sum()
        return fidelity + self.lambda_ * np.trace(Y.T @ self.L @ Y) + consensus + self.zeta.value(Y)

    def magnitude(self, *points: np.ndarray) -> float:
        """Of the largest numbers that the energies of these points are sums of."""
        largest = max(np.abs(Y).max(initial=0) for Y in (self.Z, self.mu, *points))
        return (self.sigma + 10) * (1 + largest) ** 2 * max(self.Z.size, 1)

    def minimizer(self) -> tuple[np.ndarray, float]:
        """Y*, and how far from it we may be: plain steps contract by 1 - tau / sigma."""
        q = self.tau / self.sigma
        momentum = (1 - sqrt(q)) / (1 + sqrt(q))
        Y = U = self.zeta.prox(self.Z, 1 / self.sigma / 2)
        apart = inf
        for k in range(10_000):
            before, Y = Y, self.step(U)
            U = Y + momentum * (Y - before)
            if k % 10 == 0:
                last, apart = apart, np.linalg.norm(self.step(Y) - Y)
                if apart <= 1e-15 * (1 + np.linalg.norm(Y)) or (apart < 1e-12 and apart >= last):
                    break
        assert apart < 1e-10 * (1 + np.linalg.norm(Y))
        return Y, (apart + 4 * EPS * np.linalg.norm(np.abs(Y) + np.abs(self.b))) / q

    def step(self, U: np.ndarray) -> np.ndarray:
        a = 1 / self.sigma
        return self.zeta.prox(U - a * (self.H @ U - self.b), a / 2)


def settled(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Without the warning about step sizes of which it is not known whether they descend."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "alpha=.* is larger than what is known to descend")
        return call(*args, **options)


# 1. The energy never rises.


@settings(max_examples=50 * MANY)
@given(cases(), st.booleans())
def test_a_step_lowers_the_energy_by_what_the_descent_lemma_promises(case, whole):
    """E(U) - E(Y) >= <U - Y, (2 / a - H) (U - Y)> >= 0 for 0 < alpha < 2 / sigma; jacobi: alpha = 1."""
    dense, parts = Dense(case), case.rows(torch.float64)
    alpha = 1.0 if case.precondition == "jacobi" and whole else case.share * dense.limit
    graph, options = case.edge_index, {"mu": parts["mu"], "seen": case.mask}
    steps = 4
    trace = settled(
        unfold, parts["Z"], graph, case.energy, steps, alpha, trace=True, init=parts["start"], **options
    )
    U = parts["start"]
    assert trace.alpha == alpha
    for k in range(steps):
        Y = settled(unfold, parts["Z"], graph, case.energy, 1, alpha, init=U, **options)
        before, after, moved = dense.value(U.numpy()), dense.value(Y.numpy()), (U - Y).numpy()
        slack = 1e-13 * dense.magnitude(U.numpy(), Y.numpy())
        assert isfinite(after)
        promised = (moved * (2 * moved / (alpha * dense.P) - dense.H @ moved)).sum()
        assert promised >= -slack
        assert before - after >= promised - slack
        np.testing.assert_allclose(trace.energies[k : k + 2], [before, after], rtol=1e-10, atol=slack)
        assert k == 0 or trace.energies[k + 1] <= trace.energies[k] + slack
        U = Y
    assert torch.equal(trace.Y, U)


@settings(max_examples=30 * MANY)
@given(cases(preconditions=("none",)), st.floats(1.01, 3))
def test_the_interval_ends_at_two_over_sigma(case, factor):
    """Beyond it, some start goes uphill; and whoever asks for such a step hears of it."""
    case = Case(**{**vars(case), "zeta": ("none", 0.0, 0.0)})
    dense = Dense(case)
    assume(dense.sigma > 1.01 * dense.tau)
    alpha = factor * 2 / dense.sigma
    top = np.linalg.eigh(dense.H)[1][:, -1:] * np.ones((1, case.Z.shape[1]))
    minimizer = np.linalg.solve(dense.H, dense.b)
    start = minimizer + 100 * (1 + np.linalg.norm(minimizer)) * top
    stepped = start - alpha * (dense.H @ start - dense.b)
    assert dense.value(stepped) > dense.value(start)
    parts = case.rows(torch.float64)
    with pytest.raises((musegnn.InputError, DivergenceError), match="diverges|rises"):
        settled(
            unfold,
            parts["Z"],
            case.edge_index,
            case.energy,
            3,
            alpha,
            mu=parts["mu"],
            seen=case.mask,
            init=torch.from_numpy(start),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("lambda_", [1.0, 100.0, 1e6])
def test_steps_that_stand_still_are_no_divergence(lambda_, dtype):
    """At the minimum of a stiff energy (sigma / tau up to 1e7) only rounding moves the energy."""
    n = 12
    rows, columns = np.nonzero(1 - np.eye(n))
    graph = torch.from_numpy(np.stack([rows, columns]))
    # lmax of a complete graph is n, its rigorous bound 2 (n - 1): this step is in between, so it is watched.
    alpha = 1.9 / (1 + lambda_ * n)
    for seed in range(5):
        Z = torch.randn(1, 3, dtype=dtype, generator=torch.Generator().manual_seed(seed)).repeat(n, 1)
        Y = settled(unfold, Z, graph, Energy(lambda_, 0.0, "combinatorial", "none"), 20, alpha)
        torch.testing.assert_close(Y, Z, rtol=0, atol=100 * torch.finfo(dtype).eps * n)


# 1. The error bound.


@settings(max_examples=60 * MANY)
@given(cases(preconditions=("none", "jacobi", "authors")), st.sampled_from([torch.float32, torch.float64]))
def test_the_error_bounds_of_a_trace_are_never_below_the_true_distance(case, dtype):
    dense, parts = Dense(case, dtype), case.rows(dtype)
    alpha = {"none": case.share * dense.limit, "jacobi": case.share * dense.limit, "authors": case.share}[
        case.precondition
    ]
    minimizer, slack = dense.minimizer()
    arguments = parts["Z"], case.edge_index, case.energy
    options = {"mu": parts["mu"], "seen": case.mask, "init": parts["start"]}
    trace = settled(unfold, *arguments, 4, alpha, trace=True, **options)
    points = [parts["start"]] + [settled(unfold, *arguments, k, alpha, **options) for k in (1, 2, 3, 4)]
    away = [float(np.linalg.norm(Y.double().numpy() - minimizer)) for Y in points]
    assert torch.equal(points[-1], trace.Y)
    for distance, bound in zip(away[1:], trace.error_bounds.tolist(), strict=True):
        assert distance <= bound + slack
    if case.precondition == "authors":
        return
    # Nor is it empty: |V| <= (1 / a + sigma) |U - Y|, and what was rounded.
    worst = (1 / (alpha * dense.P)).max() + dense.sigma
    rounded = 64 * torch.finfo(dtype).eps * worst * max(float(point.norm()) + 1 for point in points)
    rounded *= 1 + np.linalg.norm(dense.b)
    # What it divides by is no eigenvalue: a row without its mean is taken to have no neighbors either.
    tau = 1 + case.gamma * (case.seen is None or bool(case.seen.all()))
    for k, bound in enumerate(trace.error_bounds.tolist()):
        assert bound <= (worst * (away[k] + away[k + 1] + 2 * slack) + rounded) / tau


@settings(max_examples=50 * MANY)
@given(cases(preconditions=("none", "jacobi", "authors")), st.floats(1e-3, 1.9), st.data())
def test_the_error_bound_holds_between_any_two_points_for_any_step_size(case, alpha, data):
    """Also where Y is no step from `start`, and where the step size does not descend."""
    dense, parts = Dense(case), case.rows(torch.float64)
    options = {"mu": parts["mu"], "seen": case.mask}
    if case.precondition == "none":
        alpha *= dense.limit / 2
    problem = case.energy.problem(parts["Z"], case.edge_index, alpha=alpha, **options)
    minimizer, slack = dense.minimizer()
    Y = torch.from_numpy(data.draw(hnp.arrays(np.float64, case.Z.shape, elements=VALUES)))
    for point in (
        Y,
        parts["start"],
        torch.from_numpy(minimizer),
        problem.descend(parts["start"], parts["Z"]),
    ):
        bound = float(problem.error_bound(point, parts["Z"], parts["start"]))
        assert np.linalg.norm(point.numpy() - minimizer) <= bound + slack


@settings(max_examples=30 * MANY)
@given(cases(), st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64]))
def test_the_last_error_bound_holds_for_what_is_returned_in_any_dtype(case, dtype):
    """Also once the steps have converged, and all that is left is what rounding to the dtype of Z did."""
    dense, parts = Dense(case, dtype), case.rows(dtype)
    minimizer, slack = dense.minimizer()
    options = {"mu": parts["mu"], "seen": case.mask, "init": parts["start"]}
    trace = unfold(parts["Z"], case.edge_index, case.energy, 20, trace=True, **options)
    assert trace.Y.dtype == dtype
    assert np.linalg.norm(trace.Y.double().numpy() - minimizer) <= trace.error_bound + slack


@settings(max_examples=20 * MANY)
@given(cases())
def test_the_error_bound_falls_to_rounding(case):
    dense, parts = Dense(case), case.rows(torch.float64)
    assume(dense.sigma / dense.tau < 15)
    options = {"mu": parts["mu"], "seen": case.mask}
    # Jacobi and 1 / sigma contract by 1 - tau / (2 sigma) or more; the step of the normalized Laplacian is
    # made for lmax = 2, also where there are no edges.
    steps = int(60 * max(dense.sigma, 1 + case.gamma + case.lambda_) / dense.tau)
    nearly = unfold(parts["Z"], case.edge_index, case.energy, steps, init=parts["start"], **options)
    trace = unfold(parts["Z"], case.edge_index, case.energy, 1, trace=True, init=nearly, **options)
    assert trace.error_bound <= 1e-11 * (1 + np.linalg.norm(dense.b)) * dense.sigma


# Lemma E.4: the rate.


def random_subgraphs(laplacian: str, lambda_: float) -> list[tuple[musegnn.Sample, np.ndarray]]:
    """Samples of a random graph, each with its dense I + lambda L."""
    rng = np.random.default_rng(4)
    edges = rng.integers(0, 60, (2, 110))
    edges[0, ::4] = 7  # A hub.
    graph = musegnn.Graph.from_edges(edges, num_nodes=60)
    draws = musegnn.Draws(graph, musegnn.UniformInduced(p=0.5, num_samples=5), np.arange(60), seed=2)
    samples = [draws[i] for i in range(5)]
    kind = laplacian == "combinatorial"
    dense = [oracles.laplacians(sample.indptr, sample.indices)[kind] for sample in samples]
    return [(s, np.eye(s.num_nodes) + lambda_ * L) for s, L in zip(samples, dense, strict=True)]


def propagator(sample: musegnn.Sample, energy: Energy, steps: int, alpha: Any) -> np.ndarray:
    """P^(k), for which Y^(k) = P^(k) Z."""
    eye = torch.eye(sample.num_nodes, dtype=torch.float64)
    return settled(unfold, eye, sample, energy, steps, alpha).numpy()


NORMS = {"spectral": 2, "Frobenius": "fro"}
LAPLACIANS = ["normalized", "combinatorial"]


@pytest.mark.parametrize("laplacian", LAPLACIANS)
@pytest.mark.parametrize("lambda_", [0.5, 4.0])
def test_the_propagation_matrix_converges_as_lemma_e4_says_and_twice_as_fast(laplacian, lambda_):
    """|P^(k) - P*| <= exp(-tau k / sigma) |P^(0) - P*|, for both norms and without the factor m."""
    energy, parts = Energy(lambda_, 0.0, laplacian, "none"), random_subgraphs(laplacian, lambda_)
    sigma = max(np.linalg.eigvalsh(H)[-1] for _, H in parts)
    assert all(abs(np.linalg.eigvalsh(H)[0] - 1) < 1e-12 for _, H in parts), "tau_s = 1 for every subgraph"
    for k in (0, 1, 2, 5, 10, 20, 40):
        errors = [propagator(s, energy, k, 1 / sigma) - np.linalg.inv(H) for s, H in parts]
        starts = [np.eye(len(H)) - np.linalg.inv(H) for _, H in parts]
        for norm in NORMS.values():
            sizes, first = ([np.linalg.norm(E, norm) for E in each] for each in (errors, starts))
            for size, begin in zip(sizes, first, strict=True):
                assert size <= np.exp(-k / sigma) * begin * (1 + 1e-9) + 1e-13
            # The blocks of one big matrix: the Euclidean norm of the norms, or the largest.
            whole, whole_first = (max(each) if norm == 2 else np.linalg.norm(each) for each in (sizes, first))
            assert whole <= np.exp(-k / sigma) * whole_first * (1 + 1e-9) + 1e-13
            assert whole_first <= sum(first) * (1 + 1e-12)
            assert whole <= len(parts) * np.exp(-k / (2 * sigma)) * sum(first), "lemma E.4 as printed"


@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_the_error_of_the_propagation_matrix_is_known_exactly(laplacian):
    """From Y^0 = Z: |P^(k) - P*|_2 = max |1 - alpha h|^k (1 - 1 / h), h = 1 + lambda l the eigenvalues of H.

    l = 0 has no part in it: what is slowest is never excited, and tau is in truth 1 + lambda l_2.
    """
    lambda_ = 4.0
    energy = Energy(lambda_, 0.0, laplacian, "none")
    for sample, H in random_subgraphs(laplacian, lambda_):
        h = np.linalg.eigvalsh(H)
        for alpha in (0.3 / h[-1], 1 / h[-1], 1.9 / h[-1], "auto"):
            size = energy.problem(torch.eye(len(H), dtype=torch.float64), sample, alpha=alpha).alpha
            for k in (1, 3, 10, 30):
                expected = (np.abs(1 - size * h) ** k * (1 - 1 / h)).max()
                error = propagator(sample, energy, k, alpha) - np.linalg.inv(H)
                assert np.linalg.norm(error, 2) == pytest.approx(expected, rel=1e-8, abs=1e-13)


def test_the_rate_of_the_proof_needs_the_step_one_over_sigma():
    """Theorem 5.2 admits any smaller alpha; C = tau / (2 sigma) is then too much, C = -ln(1 - alpha tau)."""
    n = 40
    path = torch.tensor([[i, i + 1] for i in range(n - 1)]).T
    graph = torch.cat([path, path.flip(0)], dim=1)
    degree = np.r_[1, np.full(n - 2, 2), 1]
    L = np.diag(degree) - np.eye(n, k=1) - np.eye(n, k=-1)
    H = np.eye(n) + 4 * L
    sigma, star = np.linalg.eigvalsh(H)[-1], np.linalg.inv(H)
    first = np.linalg.norm(np.eye(n) - star, 2)
    energy, eye = Energy(4.0, 0.0, "combinatorial", "none"), torch.eye(n, dtype=torch.float64)
    k = 200
    slow = np.linalg.norm(unfold(eye, graph, energy, k, 0.1 / sigma).numpy() - star, 2)
    fast = np.linalg.norm(unfold(eye, graph, energy, k, 1 / sigma).numpy() - star, 2)
    assert fast <= np.exp(-k / (2 * sigma)) * first
    assert slow > 3 * np.exp(-k / (2 * sigma)) * first
    assert slow <= (1 - 0.1 / sigma) ** k * first


@pytest.mark.parametrize("lambda_", [1.0, 4.0, 20.0])
@pytest.mark.parametrize("gamma", [0.0, 1.0])
def test_our_step_is_longer_than_the_theorem_allows_and_contracts_more(lambda_, gamma):
    """1 / (1 + gamma + lambda) contracts by lambda / (1 + gamma + lambda), 1 / sigma less where lmax > 1."""
    energy = Energy(lambda_, gamma, "normalized", "none")
    for sample, H in random_subgraphs("normalized", lambda_):
        h = np.linalg.eigvalsh(H + gamma * np.eye(len(H)))
        Z, mu = torch.randn(2, len(H), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        problem = energy.problem(Z, sample, mu=mu)
        assert problem.alpha == 1 / (1 + gamma + lambda_)
        assert 1 / h[-1] < problem.alpha < 2 / h[-1]
        ours, theirs = np.abs(1 - problem.alpha * h).max(), np.abs(1 - h / h[-1]).max()
        assert ours == pytest.approx(lambda_ / (1 + gamma + lambda_), rel=1e-12)
        assert ours < theirs
        star = np.linalg.solve(H + gamma * np.eye(len(H)), (Z + gamma * mu).numpy())
        start = torch.from_numpy(star) + torch.randn(Z.shape, dtype=Z.dtype)
        Y = unfold(Z, sample, energy, 1, mu=mu, init=start)
        assert np.linalg.norm(Y.numpy() - star) <= ours * np.linalg.norm(start.numpy() - star) * (1 + 1e-12)


# The preconditioners.


def test_the_authors_preconditioner_does_not_descend_at_lambda_1_and_ours_does():
    """Its fixed point solves ((1 - lambda) I + lambda (D - A)) X = E Z, Y = X / E: singular at lambda = 1."""
    (sample, _), *_ = random_subgraphs("combinatorial", 1.0)
    L = oracles.laplacians(sample.indptr, sample.indices)[1]
    Z = torch.rand(sample.num_nodes, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    H, E = np.eye(len(L)) + L, (1 + np.diag(L)) ** -0.5
    star = np.linalg.solve(H, Z.numpy())

    def value(Y):
        return ((Y - Z.numpy()) ** 2).sum() + np.trace(Y.T @ L @ Y)

    theirs, ours = (Energy(1.0, 0.0, "combinatorial", "none", precondition=p) for p in ("authors", "jacobi"))
    energies = [value(unfold(Z, sample, theirs, k).numpy()) for k in (8, 50, 100, 200)]
    assert energies[0] < energies[1] < energies[2] < energies[3]
    # Along the null space of D - A each step adds the same, for ever.
    step = unfold(Z, sample, theirs, 801).numpy() - unfold(Z, sample, theirs, 800).numpy()
    later = unfold(Z, sample, theirs, 1601).numpy() - unfold(Z, sample, theirs, 1600).numpy()
    np.testing.assert_allclose(step, later, atol=1e-7)
    assert np.linalg.norm(step) > 0.1
    np.testing.assert_allclose(unfold(Z, sample, ours, 400).numpy(), star, atol=1e-9)
    # Below 1 it converges, but not to the minimum.
    half = Energy(0.5, 0.0, "combinatorial", "none", precondition="authors")
    E = (1 + 0.5 * np.diag(L)) ** -0.5
    fixed = np.linalg.solve(0.5 * np.eye(len(L)) + 0.5 * L, E[:, None] * Z.numpy()) / E[:, None]
    np.testing.assert_allclose(unfold(Z, sample, half, 1500).numpy(), fixed, atol=1e-8)
    minimum = np.linalg.solve(np.eye(len(L)) + 0.5 * L, Z.numpy())
    assert np.linalg.norm(fixed - minimum) > 0.5 * np.linalg.norm(minimum)


def test_without_a_preconditioner_a_hub_stops_everything():
    """A star of 400 leaves and a path: sigma = 4 x 401, so that the path hardly moves in 8 steps."""
    n = 440
    edges = [[0, i] for i in range(1, 401)] + [[i, i + 1] for i in range(400, n - 1)]
    graph = musegnn.Graph.from_edges(np.array(edges).T, num_nodes=n)
    Z = torch.randn(n, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    L = oracles.laplacians(graph.indptr, graph.indices)[1]
    star = np.linalg.solve(np.eye(n) + 4 * L, Z.numpy())
    away = {}
    for kind in ("none", "jacobi"):
        trace = unfold(Z, graph, Energy(4.0, 0.0, "combinatorial", "none", precondition=kind), 8, trace=True)
        away[kind] = np.linalg.norm(trace.Y.numpy() - star)
        assert away[kind] <= trace.error_bound
        assert (trace.energies.diff() < 0).all()
    first = np.linalg.norm(Z.numpy() - star)
    assert away["none"] > 0.9 * first
    assert away["jacobi"] < 0.3 * first
