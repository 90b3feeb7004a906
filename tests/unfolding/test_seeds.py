"""unfold_seeds: what the seeds do not depend on is left out, and changes no bit of what they are."""

from functools import cache
from itertools import product
from types import SimpleNamespace

import numpy as np
import problems
import pytest
import torch
from problems import LAPLACIANS
from test_unfold import energy_of, some_rows

import oracles
from musegnn import Energy, Sample, ops, unfold
from musegnn.errors import DivergenceError
from musegnn.unfolding import kernel
from musegnn.unfolding.descent import unfold_seeds
from musegnn.unfolding.kernel import CpuKernel
from musegnn.unfolding.resident import levels_of

STEPS = [0, 1, 2, 8]
LARGER = "larger than what is known to descend"
EXACT = {"rtol": 0, "atol": 1e-12}


def sample_of(source, target, num_nodes, num_seeds):
    matrix = oracles.symmetric_csr(np.array(source), np.array(target), num_nodes)
    indptr, indices = matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)
    return Sample(
        node_ids=np.arange(num_nodes),
        indptr=indptr,
        indices=indices,
        num_seeds=num_seeds,
        bounds=ops.spectral_bounds(indptr, indices),
    )


@cache
def samples():
    """Near and far from the seeds, not to be reached from them, all of them seeds."""
    far = sample_of([*range(11), 12, 1], [*range(1, 12), 13, 14], 16, 2)
    assert levels_of(far).tolist() == [0, 0, *range(1, 11), 255, 255, 1, 255]
    everything = sample_of(*problems.edges_of(problems.random()), 17, 17)
    return {"drawn": problems.sample(), "far": far, "all are seeds": everything}


every_sample = pytest.mark.parametrize("name", ["drawn", "far", "all are seeds"])


def poisonous(shape, dtype=np.float64):
    return np.full(shape, 0xFF if np.dtype(dtype) == np.uint8 else np.nan, dtype=dtype)


@pytest.fixture(autouse=True)
def spare(monkeypatch):
    """All memory of the steps begins as NaN, all masks as ones."""
    monkeypatch.setattr(kernel, "np", SimpleNamespace(empty=poisonous, uint8=np.uint8))
    monkeypatch.setattr(kernel, "_SPARE", [np.full(1 << 16, 0xFF, dtype=np.uint8) for _ in range(2)])


def gradients(seeds, inputs):
    """Of a random linear function of the seeds' rows."""
    weights = torch.randn(seeds.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    value = (weights.to(seeds.dtype) * seeds).sum()
    return torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)


def check(s, energy, steps, alpha="auto", *, seen=None):
    """Bits in float32, gradients in float64; with and without all rows."""
    Z, mu = problems.normal(s, 9, count=2, grad=True)
    has_means = isinstance(energy.gamma, torch.Tensor) or energy.gamma > 0
    inputs = [Z, mu] if has_means else [Z]
    exact = unfold(*inputs[:1], s, energy, steps, alpha, mu if has_means else None, seen=seen)
    expected = gradients(exact[: s.num_seeds], inputs)
    float_Z, float_mu = (part.detach().float() for part in (Z, mu))
    options = {"mu": float_mu if has_means else None, "seen": seen}
    with torch.no_grad():
        rough = unfold(float_Z, s, energy, steps, alpha, **options)
    for keeps_all in (False, True):
        seeds, rest = unfold_seeds(float_Z, s, energy, steps, alpha, **options, keeps_all=keeps_all)
        assert torch.equal(seeds, rough[: s.num_seeds])
        assert torch.equal(rest, rough) if keeps_all else rest is None
        given = {"mu": mu if has_means else None, "seen": seen, "keeps_all": keeps_all}
        seeds, rest = unfold_seeds(Z, s, energy, steps, alpha, **given)
        assert torch.equal(seeds, exact[: s.num_seeds])
        assert rest is None or not rest.requires_grad
        for found, other in zip(gradients(seeds, inputs), expected, strict=True):
            torch.testing.assert_close(found, other, **EXACT)


@pytest.mark.parametrize(
    ("name", "penalty"),
    [*product(["drawn", "far"], ["none", "relu", "l1", "box", "group"]), ("all are seeds", "relu")],
)
@pytest.mark.parametrize("laplacian", LAPLACIANS)
def test_the_seeds_are_those_of_unfold(name, penalty, laplacian):
    """Without means, with all, with some. A group's penalty is not fused: there all rows are computed."""
    s = samples()[name]
    means = [(0.4, some_rows(s)), (0.4, None), (0.0, None), (0.4, some_rows(s))]
    for steps, (gamma, seen) in zip(STEPS, means, strict=True):
        check(s, energy_of(laplacian, penalty, gamma=gamma), steps, seen=seen)


@pytest.mark.parametrize("precondition", ["jacobi", "authors"])
def test_with_a_step_size_for_each_row(precondition):
    for steps in STEPS:
        check(samples()["far"], energy_of(precondition=precondition), steps)


@every_sample
def test_with_learned_weights(name):
    s, energy = samples()[name], energy_of(learned=True)
    for steps in STEPS:
        check(s, energy, steps)
    Z, mu = problems.normal(s, 5, count=2)
    seeds, _ = unfold_seeds(Z, s, energy, 4, mu=mu)
    sliced = unfold(Z, s, energy, 4, mu=mu)[: s.num_seeds]
    weights = [energy.lambda_, energy.gamma]
    for pair in zip(gradients(seeds, weights), gradients(sliced, weights), strict=True):
        torch.testing.assert_close(*pair, **EXACT)


@pytest.mark.filterwarnings(f"ignore:.*{LARGER}")
@every_sample
@pytest.mark.parametrize("penalty", ["none", "relu"])
def test_where_the_energy_is_watched(name, penalty):
    """It is that of all rows, which therefore are computed."""
    s = samples()[name]
    energy = energy_of("combinatorial", penalty, lambda_=1.0, gamma=0.0)
    alpha = 2.0001 / (1 + s.spectrum("combinatorial").bound)
    assert not energy.problem(problems.normal(s), s, alpha=alpha).is_proven
    for steps in STEPS:
        check(s, energy, steps, alpha)
    with pytest.warns(UserWarning, match=LARGER):
        unfold_seeds(problems.normal(s), s, energy, 3, alpha)


def test_a_rise_of_the_energy_is_told():
    s = sample_of(*np.array([(i, 3 + j) for i in range(3) for j in range(3)]).T, 6, 2)
    Z = problems.normal(s)
    Z[:3] += 3
    for call in (unfold, unfold_seeds):
        with pytest.warns(UserWarning, match=LARGER), pytest.raises(DivergenceError, match="rises at step 1"):
            call(Z, s, Energy(1.0, 0.0, "combinatorial", "none"), 4, 0.39)


@pytest.mark.parametrize("penalty", ["none", "relu", "l1"])
@pytest.mark.parametrize("steps", [1, 2, 8])
def test_what_is_farther_than_the_steps_reach_is_never_read(penalty, steps):
    s = samples()["far"]
    energy = energy_of(penalty=penalty)
    Z, mu = problems.normal(s, 9, count=2)
    is_far = torch.from_numpy(levels_of(s)) > steps
    clean = unfold(Z, s, energy, steps, mu=mu)[: s.num_seeds]
    Z[is_far] = mu[is_far] = torch.nan
    Z.requires_grad_()
    seeds, _ = unfold_seeds(Z, s, energy, steps, mu=mu, check=False)
    assert torch.equal(seeds, clean)
    (found,) = gradients(seeds, [Z])
    assert found.isfinite().all()
    assert (found[is_far] == 0).all()
    if penalty == "none":
        assert (found[~is_far] != 0).all()


def test_each_step_computes_the_rows_that_later_ones_read(monkeypatch):
    limits, real = [], {name: getattr(CpuKernel, name) for name in ("descend", "pull_back")}

    def recorded(name):
        def call(self, *args, limit=None, **options):
            limits.append((name, limit))
            return real[name](self, *args, limit=limit, **options)

        return call

    for name in real:
        monkeypatch.setattr(CpuKernel, name, recorded(name))
    s = samples()["drawn"]
    for keeps_all in (False, True):
        limits.clear()
        Z = problems.normal(s, grad=True)
        seeds, _ = unfold_seeds(Z, s, Energy(2.0), 3, keeps_all=keeps_all)
        seeds.sum().backward()
        there = [None] * 3 if keeps_all else [2, 1, 0]
        assert limits == [("descend", k) for k in there] + [("pull_back", k) for k in (1, 2, 3)]


def test_nan_and_inf_are_looked_for_only_if_asked():
    s = samples()["drawn"]
    Z = problems.normal(s)
    Z[0, 0] = torch.nan
    with pytest.raises(DivergenceError, match="Z has entries that are not finite"):
        unfold_seeds(Z, s, Energy(2.0), 2)
    assert unfold_seeds(Z, s, Energy(2.0), 2, check=False)[0].isnan().any()
    huge = torch.full((s.num_nodes, 2), 3e38)
    with pytest.raises(DivergenceError, match="not finite"):
        unfold_seeds(huge, s, Energy(2.0, 5.0), 2, mu=huge)


def test_half_precision_stays_half_precision():
    s = samples()["drawn"]
    Z = problems.normal(s, 9).bfloat16()
    seeds, rest = unfold_seeds(Z, s, Energy(1.5), keeps_all=True)
    assert seeds.dtype == rest.dtype == torch.bfloat16
    assert torch.equal(seeds, unfold(Z, s, Energy(1.5))[: s.num_seeds])


def test_a_later_call_does_not_write_to_what_an_earlier_one_returned():
    s = samples()["far"]
    Z = problems.normal(s, 5)
    kept = [unfold_seeds(Z, s, Energy(2.0), 4, keeps_all=keeps_all) for keeps_all in (False, True)]
    copies = [[part if part is None else part.clone() for part in pair] for pair in kept]
    for _ in range(3):
        unfold_seeds(-Z, s, Energy(1.0), 4)
    for pair, copy in zip(kept, copies, strict=True):
        assert all(part is None or torch.equal(part, other) for part, other in zip(pair, copy, strict=True))
