"""K steps and the way back with the kernels of a GPU: what those of the CPU give, in float64, by name.

On a GPU where there is one, else in Triton's interpreter.
"""

from functools import cache
from math import inf

import numpy as np
import problems
import pytest
import torch
from test_unfold import energy_of, some_rows

import musegnn
from machine import DEVICE, needs_kernels, only_on_a_gpu
from musegnn import Energy, Robust, Sample, ops, unfold
from musegnn.unfolding.backward import Focus, Fused
from musegnn.unfolding.descent import unfold_seeds
from musegnn.unfolding.kernel import GpuKernel
from musegnn.unfolding.resident import levels_of, prepared, resident

pytest.importorskip("triton")
from musegnn.ops.descend import triton

pytestmark = needs_kernels
CLOSE = {"rtol": 0, "atol": 1e-13}
FOCUSES = {"all": None, "seeds": Focus(2, keeps_all=False), "seeds and all": Focus(2, keeps_all=True)}
MEANS = {"no means": 0.0, "means": 0.4, "some means": None}
"""gamma; None where some rows are seen, so that gamma is one number for each."""


def sample_of(graph, num_seeds):
    return Sample(
        node_ids=np.arange(graph.num_nodes),
        indptr=np.array(graph.indptr),
        indices=np.array(graph.indices, dtype=np.int32),
        num_seeds=num_seeds,
        bounds=ops.spectral_bounds(graph.indptr, np.array(graph.indices, dtype=np.int32)),
    )


@cache
def small():
    """Levels 0 to 4, a hub, and a node that is not to be reached."""
    edges = [(0, 2), (1, 2), (2, 3), (2, 4), (2, 5), (3, 4), (5, 6), (6, 7)]
    s = sample_of(problems.graph(edges, 9), 2)
    assert levels_of(s).tolist() == [0, 0, 1, 2, 2, 2, 3, 4, 255]
    return s


@pytest.fixture
def poisoned(monkeypatch):
    """Fresh memory of torch is NaN, and ones in a mask; rows of more than three neighbors are cut."""
    monkeypatch.setattr(triton, "PIECE", 3)
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    assert torch.empty(3, device=DEVICE).isnan().all()
    assert torch.ones(2).new_empty(3, dtype=torch.uint8).tolist() == [255] * 3
    yield
    torch.use_deterministic_algorithms(False)


def kernels(problem):
    """Of the CPU, and the same coefficients of the GPU."""
    cpu = problem.fused()
    columns = [torch.from_numpy(column).to(DEVICE) for column in cpu.step]
    gamma = cpu.gamma.to(DEVICE) if isinstance(cpu.gamma, torch.Tensor) else cpu.gamma
    return cpu, GpuKernel(prepared(problem.sample).to(DEVICE), columns, cpu.clip, gamma)


def run(kernel, rows, steps, focus=None, *, num_seeds=None, starts_at_Z=True, watch=False, device="cpu"):
    """The seeds' rows of Y and their gradients by name, on the CPU; and the energies."""
    Z, mu, start = (part.detach().to(device).requires_grad_() for part in rows)
    energies = [] if watch else None
    made = Fused.apply(Z, None if starts_at_Z else start, mu, kernel, steps, None, energies, focus)
    seeds, rest = (made[:num_seeds], made) if focus is None else made
    weights = torch.randn(seeds.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    inputs = {"dZ": Z, "dmu": mu} | ({} if starts_at_Z else {"dstart": start})
    value = (weights.to(device) * seeds).sum()
    slopes = torch.autograd.grad(value, list(inputs.values()), allow_unused=True, materialize_grads=True)
    found = {"Y": seeds} | ({} if rest is None else {"rest": rest}) | dict(zip(inputs, slopes, strict=True))
    return {name: part.detach().cpu() for name, part in found.items()}, energies


def check(energy, steps, focus, *, seen=None, starts_at_Z=True, watch=False):
    s = small()
    rows = problems.normal(s, 9, count=3)
    problem = energy.on(s, rows[1], seen, like=rows[0])
    cpu, gpu = kernels(problem)
    options = {"starts_at_Z": starts_at_Z, "watch": watch}
    # Of all rows: nothing is left out.
    expected, energies = run(cpu, rows, steps, num_seeds=focus and focus.num_seeds, **options)
    found, others = run(gpu, rows, steps, focus, device=DEVICE, **options)
    assert found.keys() == expected.keys() - (set() if focus is None or focus.keeps_all else {"rest"})
    for name, part in found.items():
        assert part.isfinite().all(), name
        torch.testing.assert_close(
            part, expected[name], **CLOSE, msg=lambda text, name=name: f"{name}: {text}"
        )
    if watch:
        assert len(others) == steps + 1
        np.testing.assert_allclose(others, energies, rtol=1e-12)


@pytest.mark.parametrize("focus", FOCUSES.values(), ids=FOCUSES)
@pytest.mark.parametrize("gamma", MEANS.values(), ids=MEANS)
@pytest.mark.usefixtures("poisoned")
def test_steps_and_the_way_back_by_name(focus, gamma):
    """Penalties and Laplacians take turns."""
    turn = list(FOCUSES.values()).index(focus) + list(MEANS.values()).index(gamma)
    penalty = ["relu", "l1", "box"][turn % 3]
    seen = some_rows(small()) if gamma is None else None
    energy = energy_of(problems.LAPLACIANS[turn % 2], penalty, gamma=0.4 if gamma is None else gamma)
    check(energy, 3, focus, seen=seen, starts_at_Z=focus is not None or gamma is not None)


@pytest.mark.parametrize(
    ("steps", "focus"), [(0, "seeds"), (0, "all"), (1, "seeds"), (1, "seeds and all"), (2, "seeds")]
)
@pytest.mark.usefixtures("poisoned")
def test_few_steps_without_a_penalty(steps, focus):
    check(energy_of(penalty="none"), steps, FOCUSES[focus])


@pytest.mark.parametrize("precondition", ["jacobi", "authors"])
@pytest.mark.usefixtures("poisoned")
def test_a_step_size_for_each_row(precondition):
    check(energy_of(precondition=precondition), 2, FOCUSES["seeds"])


@pytest.mark.parametrize("focus", FOCUSES.values(), ids=FOCUSES)
@pytest.mark.usefixtures("poisoned")
def test_a_few_columns_at_a_time(monkeypatch, focus):
    monkeypatch.setattr(GpuKernel, "row_bytes", 64)
    """Nine are eight and one."""
    check(Energy(1.3, 0.4), 3, focus, starts_at_Z=focus is None)


@pytest.mark.usefixtures("poisoned")
def test_the_watched_energies_are_the_same():
    check(energy_of(penalty="nonnegative_l1"), 2, None, watch=True)


@pytest.mark.usefixtures("poisoned")
def test_without_lambda_the_neighbors_do_not_count():
    """Which nothing must be divided by."""
    s = small()
    Z = problems.normal(s, 5)
    problem = Energy(0.0, 0.0).on(s, None, None, like=Z)
    cpu, gpu = kernels(problem)
    gpu = GpuKernel(gpu.graph, gpu.step, gpu.clip, gpu.gamma, has_edges=False)
    expected, _ = run(cpu, (Z, Z, Z), 3)
    found, _ = run(gpu, (Z, Z, Z), 3, device=DEVICE)
    for name, part in expected.items():
        torch.testing.assert_close(found[name], part, **CLOSE)


def test_a_matrix_stays_on_its_device_as_long_as_the_sample():
    s = sample_of(problems.path(5), 1)
    found = resident(s, DEVICE)
    assert resident(s, DEVICE) is found
    assert all(part.device.type == DEVICE.type for part in found.tensors())
    assert found.degree.tolist() == [1, 2, 2, 2, 1]
    assert found.levels.tolist() == [0, 1, 2, 3, 4]
    assert levels_of(s) is levels_of(s)


# All of `unfold`, on a GPU.

PRECISIONS = {torch.float64: (1e-13, 1e-13), torch.float32: (2e-6, 2e-6), torch.bfloat16: (6e-3, 4e-2)}
"""Of Y and of gradients; |error|_F / |exact|_F."""


@cache
def large():
    """Hubs of hundreds of neighbors; half of the nodes are not to be reached in a step or two."""
    return sample_of(problems.random(700, seed=3), 40)


def distance(found, expected):
    return float((found.double().cpu() - expected).norm() / expected.norm())


@only_on_a_gpu
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("penalty", ["none", "relu", "nonnegative_l1"])
@pytest.mark.parametrize("dim", [1, 65, 300])
def test_unfold_on_a_gpu(dtype, penalty, dim):
    s = large()
    energy = energy_of(penalty=penalty)
    rows = [part.to(dtype) for part in problems.normal(s, dim, count=2)]
    weights = torch.randn(s.num_seeds, dim, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = {}
    for name, device, kind in (("cpu", "cpu", torch.float64), ("gpu", DEVICE, dtype)):
        Z, mu = (part.to(device, kind).requires_grad_() for part in rows)
        Y = unfold(Z, s, energy, 8, mu=mu)
        assert energy.on(s, mu, None, like=Z).fused() is not None
        slopes = torch.autograd.grad((weights.to(device, kind) * Y[:40]).sum(), [Z, mu])
        seeds, _ = unfold_seeds(Z, s, energy, 8, mu=mu)
        others = torch.autograd.grad((weights.to(device, kind) * seeds).sum(), [Z, mu])
        made[name] = [Y, seeds, *slopes, *others]
        assert all(part.dtype == kind for part in made[name])
    for name, found, expected in zip("Y seeds dZ dmu dZ dmu".split(), made["gpu"], made["cpu"], strict=True):
        assert distance(found.detach(), expected.detach()) < PRECISIONS[dtype][name.startswith("d")], name


@only_on_a_gpu
def test_energies_and_bounds_on_a_gpu():
    s = large()
    Z, mu = problems.normal(s, 7, count=2)
    traces = [
        unfold(Z.to(device), s, energy_of(), 5, mu=mu.to(device), trace=True) for device in ("cpu", DEVICE)
    ]
    torch.testing.assert_close(traces[1].energies, traces[0].energies, rtol=1e-12, atol=0)
    torch.testing.assert_close(traces[1].error_bounds, traces[0].error_bounds, rtol=1e-9, atol=0)


@only_on_a_gpu
@pytest.mark.filterwarnings("ignore:.*larger than what is known to descend")
def test_an_energy_that_rises_is_seen_on_a_gpu():
    s = sample_of(problems.bipartite(3), 2)
    Z = problems.normal(s).to(DEVICE)
    Z[:3] += 3
    with pytest.raises(musegnn.errors.DivergenceError, match="rises at step 1"):
        unfold(Z, s, Energy(1.0, 0.0, "combinatorial", "none"), 4, 0.39)


@only_on_a_gpu
@pytest.mark.parametrize("what", ["group", "learned"])
def test_what_is_not_fused_on_a_gpu(what):
    s = large()
    energy = energy_of(penalty="group") if what == "group" else energy_of(learned=True)
    Z, mu = problems.normal(s, 5, count=2)
    expected = unfold(Z, s, energy, 4, mu=mu).detach()
    found = unfold(Z.to(DEVICE), s, energy.to(DEVICE), 4, mu=mu.to(DEVICE))
    assert distance(found.detach(), expected) < 1e-12


@only_on_a_gpu
@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize(("power", "cutoff"), [(-2.0, inf), (1.0, inf), (2.0, 1.0), (0.5, 3.0)])
@pytest.mark.parametrize("frozen", [False, True])
def test_robust_on_a_gpu(monkeypatch, power, cutoff, dtype, frozen):
    """By its own kernel, with some rows that are not seen, and the weights of each step held or not."""
    s, energy = large(), Robust(1.3, 0.4, power=power, cutoff=cutoff, scale=8.0)
    monkeypatch.setattr(energy, "_is_frozen", frozen)
    rows = [part.to(dtype) for part in problems.normal(s, 65, count=2)]
    weights = torch.randn(rows[0].shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    made = {}
    for name, device, kind in (("cpu", "cpu", torch.float64), ("gpu", DEVICE, dtype)):
        Z, mu = (part.to(device, kind).requires_grad_() for part in rows)
        Y = unfold(Z, s, energy, 3, mu=mu, seen=some_rows(s).to(device))
        made[name] = [Y, *torch.autograd.grad((weights.to(device, kind) * Y).sum(), [Z, mu])]
        assert all(part.dtype == kind for part in made[name])
    for name, found, expected in zip(("Y", "dZ", "dmu"), made["gpu"], made["cpu"], strict=True):
        assert distance(found.detach(), expected.detach()) < PRECISIONS[dtype][name != "Y"], name


@only_on_a_gpu
def test_a_robust_step_on_a_gpu_weighs_no_entry_by_itself(monkeypatch):
    monkeypatch.delattr("musegnn.unfolding.robust.weighed_sum")
    Z = problems.normal(large(), 5).to(DEVICE).requires_grad_()
    unfold(Z, large(), Robust(1.3), 2).sum().backward()
    assert Z.grad.isfinite().all()


@only_on_a_gpu
def test_without_lambda_on_a_gpu():
    """Nothing is divided by the zeros that neighbors are scaled by."""
    s = large()
    Z = problems.normal(s, 5)
    made = []
    for device in ("cpu", DEVICE):
        rows = Z.to(device).requires_grad_()
        Y = unfold(rows, s, Energy(0.0), 4)
        made.append([Y.detach(), *torch.autograd.grad(Y.sum(), rows)])
    for expected, found in zip(*made, strict=True):
        assert distance(found, expected) < 1e-13
