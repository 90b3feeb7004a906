"""K steps forward: both ways equal the naive dense loop; what a trace says; what is refused."""

import weakref
from math import inf

import numpy as np
import problems
import pytest
import torch
from problems import CLOSE, ENTRYWISE, LAPLACIANS, PENALTIES, PRECONDITIONS, ZOO
from torch import nn

import musegnn
from musegnn import Box, Energy, Trace, solve, unfold
from musegnn.errors import DivergenceError
from musegnn.unfolding import descent, subgraph
from musegnn.unfolding.penalty import PENALTIES as BY_NAME
from musegnn.unfolding.penalty import Penalty

STEPS = [0, 1, 2, 8, 9]


def energy_of(name="normalized", penalty="relu", lambda_=1.5, gamma=0.4, precondition="none", learned=False):
    if learned:
        lambda_ = nn.Parameter(torch.tensor(lambda_, dtype=torch.float64))
        gamma = nn.Parameter(torch.tensor(gamma, dtype=torch.float64))
    return Energy(lambda_, gamma, name, penalty, precondition=precondition)


def some_rows(s):
    return torch.arange(s.num_nodes) % 3 == 0


@pytest.mark.parametrize("name", LAPLACIANS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("precondition", PRECONDITIONS)
def test_both_ways_equal_the_naive_loop(name, penalty, precondition):
    s = ZOO["random"]
    Z, mu, init = problems.normal(s, 9, count=3)
    for steps in STEPS:
        begin, seen = (init, some_rows(s)) if steps % 2 else (None, None)
        naive = problems.descend(
            Z,
            s,
            penalty,
            name,
            1.5,
            0.4,
            precondition=precondition,
            steps=steps,
            mu=mu,
            init=begin,
            seen=seen,
        )
        for learned in (False, True):
            energy = energy_of(name, penalty, precondition=precondition, learned=learned)
            is_fused = energy.problem(Z, s, mu=mu).fused() is not None
            assert is_fused == (penalty in ENTRYWISE and not learned)
            Y = unfold(Z, s, energy, steps, mu=mu, init=begin, seen=seen)
            torch.testing.assert_close(Y.detach(), naive[-1], **CLOSE)


@pytest.mark.parametrize("graph", ZOO)
@pytest.mark.parametrize("name", LAPLACIANS)
def test_all_graphs_and_odd_widths(graph, name):
    s = ZOO[graph]
    for dim in (1, 7, 65):
        Z, mu = problems.normal(s, dim, count=2)
        naive = problems.descend(Z, s, "relu", name, 1.5, 0.4, mu=mu)[-1]
        torch.testing.assert_close(unfold(Z, s, energy_of(name), mu=mu), naive, **CLOSE)


def test_a_sample_a_graph_and_an_edge_index_are_all_subgraphs():
    s, whole = problems.sample(), ZOO["random"]
    Z = problems.normal(s)
    expected = problems.descend(Z, s, lambda_=2.0)[-1]
    torch.testing.assert_close(unfold(Z, s, Energy(2.0)), expected, **CLOSE)
    edges = torch.from_numpy(s.edge_index())
    torch.testing.assert_close(unfold(Z, edges, Energy(2.0)), expected, **CLOSE)
    # Loops are left out, and an edge that is told twice is one.
    more = torch.cat([edges, edges[:, ::3], edges[:1].expand(2, -1)[:, :4]], dim=1)
    torch.testing.assert_close(unfold(Z, more.flip(1), Energy(2.0)), expected, **CLOSE)
    rows = problems.normal(whole)
    torch.testing.assert_close(
        unfold(rows, whole, Energy(2.0)), problems.descend(rows, whole, lambda_=2.0)[-1], **CLOSE
    )


def test_the_default_is_eight_steps_from_z():
    s = ZOO["random"]
    Z = problems.normal(s)
    torch.testing.assert_close(unfold(Z, s, Energy()), problems.descend(Z, s, steps=8)[-1], **CLOSE)


def test_an_own_alpha():
    s = ZOO["random"]
    Z = problems.normal(s)
    for precondition, alpha in (("none", 0.2), ("jacobi", 0.7), ("authors", 0.5)):
        automatic = problems.step_sizes(s, "normalized", precondition, 1.5, 0.0)
        sizes = torch.full_like(automatic, alpha) if precondition == "none" else alpha * automatic
        naive = problems.descend(Z, s, "l1", lambda_=1.5, precondition=precondition, sizes=sizes)[-1]
        energy = energy_of(penalty="l1", gamma=0.0, precondition=precondition)
        torch.testing.assert_close(unfold(Z, s, energy, alpha=alpha), naive, **CLOSE)


def test_neither_the_input_nor_the_result_is_shared():
    s = ZOO["random"]
    for learned in (False, True):
        for steps in STEPS:
            Z, mu, init = problems.normal(s, count=3)
            kept = [part.clone() for part in (Z, mu, init)]
            Y = unfold(Z, s, energy_of(learned=learned), steps, mu=mu, init=init)
            with torch.no_grad():
                Y.fill_(7)
            assert all(torch.equal(*pair) for pair in zip((Z, mu, init), kept, strict=True))


@pytest.mark.parametrize("learned", [False, True])
def test_float32_is_close_to_float64_and_stays_float32(learned):
    s = problems.sample()
    Z, mu = problems.normal(s, 70, count=2)
    Y = unfold(Z.float(), s, energy_of(learned=learned), mu=mu.float())
    assert Y.dtype == torch.float32
    naive = problems.descend(Z, s, "relu", "normalized", 1.5, 0.4, mu=mu)[-1]
    torch.testing.assert_close(Y.detach().double(), naive, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("learned", [False, True])
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype, learned):
    s = ZOO["random"]
    Z, mu, init = (part.to(dtype) for part in problems.normal(s, 9, count=3))
    energy = energy_of(learned=learned)
    Y = unfold(Z, s, energy, mu=mu, init=init)
    assert Y.dtype == dtype
    exact = problems.descend(
        Z.double(), s, "relu", "normalized", 1.5, 0.4, mu=mu.double(), init=init.double()
    )[-1]
    # One rounding: half a unit in the last place, and what float32 adds.
    unit = torch.finfo(dtype).eps
    torch.testing.assert_close(Y.detach().double(), exact, rtol=0.51 * unit, atol=1e-6)
    traced = unfold(Z, s, energy, mu=mu, init=init, trace=True)
    assert torch.equal(traced.Y, Y)
    assert traced.energies.dtype == torch.float64


def test_mixed_dtypes_follow_z():
    s = ZOO["random"]
    Z, mu, init = problems.normal(s, count=3)
    naive = problems.descend(Z, s, "relu", "normalized", 1.5, 0.4, mu=mu.float().double(), init=init)[-1]
    torch.testing.assert_close(unfold(Z, s, energy_of(), mu=mu.float(), init=init), naive, **CLOSE)
    assert unfold(Z.float(), s, energy_of(), mu=mu, init=init).dtype == torch.float32


@pytest.mark.parametrize("learned", [False, True])
def test_rows_that_are_not_contiguous(learned):
    s = ZOO["random"]
    Z, mu, init = problems.normal(s, 6, count=3)
    odd = [torch.stack([part, part], dim=2)[:, :, 1] for part in (Z, mu, init)]
    odd[2] = init.T.contiguous().T
    assert not any(part.is_contiguous() for part in odd)
    naive = problems.descend(Z, s, "relu", "normalized", 1.5, 0.4, mu=mu, init=init)[-1]
    Y = unfold(odd[0], s, energy_of(learned=learned), mu=odd[1], init=odd[2])
    torch.testing.assert_close(Y.detach(), naive, **CLOSE)


@pytest.mark.parametrize("learned", [False, True])
def test_without_gradients(learned):
    s = ZOO["random"]
    Z = problems.normal(s, grad=True)
    energy = energy_of(gamma=0.0, learned=learned)
    means = {"mu": torch.zeros_like(Z)} if learned else {}
    naive = problems.descend(Z.detach(), s, lambda_=1.5)[-1]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            Y = unfold(Z, s, energy, **means)
            assert torch.equal(unfold(Z, s, energy, trace=True, **means).Y, Y)
        assert not Y.requires_grad
        assert not Y.grad_fn
        torch.testing.assert_close(Y.clone(), naive, **CLOSE)


def test_the_number_of_threads_does_not_change_a_bit():
    s = problems.random(400)
    Z = problems.normal(s, 70).float().requires_grad_()
    results = []
    for threads in (1, 2, 3, 8):
        torch.set_num_threads(threads)
        Y = unfold(Z, s, Energy(4.0, prox="nonnegative_l1"))
        results.append((Y.detach(), *torch.autograd.grad(Y.square().sum(), Z)))
    assert all(torch.equal(*pair) for other in results for pair in zip(other, results[0], strict=True))


# The trace.


@pytest.mark.parametrize("name", LAPLACIANS)
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("precondition", PRECONDITIONS)
def test_a_trace_has_the_energies_and_true_bounds(name, penalty, precondition):
    s, steps = ZOO["random"], 6
    Z, mu = problems.normal(s, count=2)
    seen = some_rows(s) if precondition == "none" else None
    settings = {"mu": mu, "seen": seen}
    naive = problems.descend(
        Z, s, penalty, name, 1.5, 0.4, precondition=precondition, steps=steps, **settings
    )
    expected = [total(Y, Z, s, penalty, name, 1.5, 0.4, **settings) for Y in naive]
    best = exact(Z, s, penalty, name, 1.5, 0.4, **settings)
    for learned in (False, True):
        energy = energy_of(name, penalty, precondition=precondition, learned=learned)
        trace = unfold(Z, s, energy, steps, trace=True, **settings)
        torch.testing.assert_close(trace.Y.detach(), naive[-1], **CLOSE)
        torch.testing.assert_close(trace.energies, torch.tensor(expected, dtype=torch.float64), **CLOSE)
        errors = torch.tensor([float((Y - best).norm()) for Y in naive[1:]], dtype=torch.float64)
        assert bool((trace.error_bounds >= errors).all())
        assert trace.error_bound == float(trace.error_bounds[-1])
        if precondition != "authors":
            V = certificates(naive, s, name, precondition, seen)
            torch.testing.assert_close(trace.error_bounds, V, rtol=1e-6, atol=1e-9)
        sizes = problems.step_sizes(s, name, precondition, 1.5, 0.4, seen)
        assert trace.alpha == pytest.approx(1 if precondition != "none" else float(sizes[0]))


def total(*args, **settings):
    return float(sum(problems.energy(*args, **settings).values()))


def exact(Z, s, penalty, name, lambda_, gamma, mu, seen):
    """The minimizer, by many naive steps."""
    settings = {"precondition": "jacobi", "mu": mu, "seen": seen, "steps": 300}
    return problems.descend(Z, s, penalty, name, lambda_, gamma, **settings)[-1]


def certificates(naive, s, name, precondition, seen):
    """|V| / tau with V = (U - Y) / a - H (U - Y)."""
    H, a = (
        problems.hessian(s, name, 1.5, 0.4, seen),
        problems.step_sizes(s, name, precondition, 1.5, 0.4, seen),
    )
    moved = [U - Y for U, Y in zip(naive[:-1], naive[1:], strict=True)]
    tau = 1.4 if seen is None else 1.0
    return torch.stack([(part / a - H @ part).norm() / tau for part in moved])


def test_the_first_energy_is_infinite_where_the_start_violates_the_penalty():
    s = ZOO["random"]
    Z = problems.normal(s)
    for learned in (False, True):
        energy = energy_of(gamma=0.0, learned=learned)
        means = {"mu": Z} if learned else {}
        energies = unfold(Z, s, energy, trace=True, **means).energies
        assert energies[0] == inf
        assert bool(torch.isfinite(energies[1:]).all())
        assert unfold(Z, s, energy, init=Z.abs(), trace=True, **means).energies[0] < inf


def test_a_trace_without_steps():
    s = ZOO["path"]
    Z = problems.normal(s).abs()
    trace = unfold(Z, s, Energy(), 0, trace=True)
    assert isinstance(trace, Trace)
    assert torch.equal(trace.Y, Z)
    assert trace.energies.tolist() == [float(Energy().value(Z, Z, s))]
    assert trace.error_bounds.shape == (0,)
    assert trace.error_bound == inf


def test_a_traced_float32_run_has_bounds_that_count_its_rounding():
    """Far past convergence the error is what float32 leaves, and the bound covers it."""
    s = ZOO["random"]
    Z = 100 * problems.normal(s, 9).float()
    trace = unfold(Z, s, Energy(4.0), 200, trace=True)
    error = float((trace.Y.double() - solve(Z.double(), s, Energy(4.0))).norm())
    assert 0 < error <= trace.error_bound < 1e-3
    assert trace.energies.dtype == trace.error_bounds.dtype == torch.float64


@pytest.mark.parametrize("learned", [False, True])
def test_a_traced_result_is_differentiable(learned):
    s = ZOO["random"]
    Z, mu = problems.normal(s, count=2, grad=True)
    energy = energy_of(learned=learned)
    plain, traced = unfold(Z, s, energy, mu=mu), unfold(Z, s, energy, mu=mu, trace=True)
    assert torch.equal(plain, traced.Y)
    assert not traced.energies.requires_grad
    assert not traced.error_bounds.requires_grad
    found, expected = (torch.autograd.grad(Y.square().sum(), [Z, mu]) for Y in (traced.Y, plain))
    for pair in zip(found, expected, strict=True):
        assert torch.equal(*pair)


# Numbers that are not finite.


@pytest.mark.parametrize("bad", [float("nan"), inf, -inf])
@pytest.mark.parametrize("name", ["Z", "mu", "init"])
def test_input_that_is_not_finite(bad, name):
    s = ZOO["path"]
    rows = dict(zip(("Z", "mu", "init"), problems.normal(s, count=3), strict=True))
    rows[name][2, 1] = bad
    message = f"{name} has entries that are not finite. Look for NaN and inf where it is computed."
    with problems.refused(message, DivergenceError) as caught:
        unfold(rows["Z"], s, energy_of(), mu=rows["mu"], init=rows["init"])
    assert caught.value.step == 0


def test_large_numbers_whose_sum_overflows_are_finite():
    s = ZOO["no edges"]
    Z = torch.full((3, 3), 3e38)
    assert torch.equal(unfold(Z, s, Energy(), alpha=1.0), Z)


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("trace", [False, True])
def test_overflow_raises_with_step_and_last_finite_energy(learned, trace):
    """The authors' variant at a large alpha: each step is much larger than the one before."""
    s, alpha = ZOO["random"], 1000.0
    Z = 1e3 * problems.normal(s).float()
    energy = energy_of(penalty="none", gamma=0.0, precondition="authors", learned=learned)
    means = {"mu": torch.zeros_like(Z)} if learned else {}
    sizes = alpha * problems.step_sizes(s, "normalized", "authors", 1.5, 0.0)
    naive = problems.descend(
        Z.double(), s, "none", lambda_=1.5, precondition="authors", steps=30, sizes=sizes
    )
    largest = torch.finfo(torch.float32).max
    step = next(k for k, Y in enumerate(naive) if float(Y.abs().max()) > largest)
    values = [total(Y, Z.double(), s, "none", lambda_=1.5) for Y in naive[:step]]
    value = [value for value in values if value < largest][-1]
    with pytest.raises(DivergenceError) as caught:
        unfold(Z, s, energy, 30, alpha, trace=trace, **means)
    assert caught.value.step == step
    assert caught.value.energy == pytest.approx(value, rel=1e-4)
    assert str(caught.value) == (
        f"The embeddings are not finite after step {step}; the last finite energy was "
        f"{caught.value.energy:.6g}. Take alpha='auto' in place of 1000, or scale the features down."
    )


def test_a_penalty_that_makes_nan_is_found():
    class Broken(Penalty):
        def value(self, Y):
            return Y.new_zeros(())

        def prox(self, X, step):
            return X / 0 * 0

    s = ZOO["path"]
    with pytest.raises(DivergenceError, match="not finite after step 1") as caught:
        unfold(problems.normal(s), s, Energy(prox=Broken()))
    assert caught.value.step == 1


# What is refused.


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([[1.0]], "Z must be a floating-point tensor of shape (nodes, dim), dim 1 or more; got list."),
        (
            torch.zeros(6),
            "Z must be a floating-point tensor of shape (nodes, dim), dim 1 or more; got torch.float32[6].",
        ),
        (
            torch.zeros(6, 2, dtype=torch.int64),
            "Z must be a floating-point tensor of shape (nodes, dim), dim 1 or more; got torch.int64[6, 2].",
        ),
        (torch.zeros(5, 2), "The subgraph has 6 nodes, but there are 5 rows. Pass a row for each node."),
    ],
)
def test_wrong_rows(rows, message):
    with problems.refused(message):
        unfold(rows, ZOO["path"], Energy())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": -1}, "steps must be a whole number, 0 or more; got -1."),
        ({"steps": 1.5}, "steps must be a whole number, 0 or more; got 1.5."),
        ({"steps": True}, "steps must be a whole number, 0 or more; got True."),
        ({"mu": torch.zeros(6, 2)}, "mu must have the shape of Z, (6, 3); got (6, 2)."),
        ({"init": torch.zeros(5, 3)}, "init must have the shape of Z, (6, 3); got (5, 3)."),
        (
            {"seen": torch.ones(5, dtype=torch.bool)},
            "seen must be 6 booleans, one for each node; got torch.bool[5].",
        ),
        ({"seen": torch.ones(6)}, "seen must be 6 booleans, one for each node; got torch.float32[6]."),
    ],
)
def test_wrong_options(options, message):
    with problems.refused(message):
        unfold(torch.zeros(6, 3), ZOO["path"], Energy(), **options)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("debian", "A subgraph is a musegnn.Sample, a musegnn.Graph or an edge_index tensor, got str."),
        (
            torch.zeros(3, 4, dtype=torch.int64),
            "edge_index must have shape (2, edges) and hold node ids, got int64(3, 4).",
        ),
        (torch.zeros(2, 4), "edge_index must have shape (2, edges) and hold node ids, got float32(2, 4)."),
        (
            torch.tensor([[0, 6], [6, 0]]),
            "edge_index has nodes from 0 to 6, but there are 6 rows: ids must lie in 0..5.",
        ),
        (
            torch.tensor([[0, -1], [-1, 0]]),
            "edge_index has nodes from -1 to 0, but there are 6 rows: ids must lie in 0..5.",
        ),
        (
            torch.tensor([[0], [1]]),
            "edge_index is not symmetric, so that it has no energy. "
            "Pass each edge in both directions (torch_geometric.utils.to_undirected).",
        ),
    ],
)
def test_wrong_subgraphs(given, message):
    with problems.refused(message):
        unfold(torch.zeros(6, 3), given, Energy())


def test_a_rise_is_looked_for_only_where_it_may_happen(monkeypatch):
    s, called = ZOO["random"], []
    monkeypatch.setattr(descent, "check_falling", lambda *args: called.append(args))
    unfold(problems.normal(s), s, Energy(2.0))
    assert not called


def test_a_penalty_of_ones_own():
    """Ridge: zeta(y) = |y|^2, whose prox divides; its minimizer is that of H + I."""

    class Ridge(Penalty):
        def value(self, Y):
            return Y.square().sum()

        def prox(self, X, step):
            return X / (1 + 2 * step)

    s = ZOO["random"]
    Z = problems.normal(s)
    energy = Energy(2.0, prox=Ridge())
    expected = torch.linalg.solve(problems.hessian(s, "normalized", 2.0, 1.0), Z)
    torch.testing.assert_close(unfold(Z, s, energy, 150), expected, **CLOSE)
    torch.testing.assert_close(solve(Z, s, energy), expected, rtol=1e-8, atol=1e-8)


def test_public_names():
    assert all(hasattr(musegnn, name) for name in ("Energy", "unfold", "solve", "Trace", "L1", "Penalty"))
    assert set(BY_NAME) == set(PENALTIES)
    assert np.isinf(unfold(torch.zeros(6, 1), ZOO["path"], Energy(), 0, trace=True).error_bound)


def test_rounding_does_not_violate_a_constraint():
    """0.3 is 0.30000001 in float32: past the edge, by less than a float32 can say."""
    s = ZOO["random"]
    energy = Energy(1.0, prox=Box(-0.3, 0.3))
    trace = unfold(problems.normal(s).float(), s, energy, 8, trace=True)
    assert torch.isfinite(trace.energies[1:]).all()
    assert (trace.energies[2:] <= trace.energies[1:-1] + 1e-6).all()


def test_edges_are_sorted_once_for_each_version(monkeypatch):
    made, sort = [], subgraph.from_edge_index
    monkeypatch.setattr(subgraph, "from_edge_index", lambda *of: made.append(1) or sort(*of))
    edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    Z = torch.randn(4, 3, dtype=torch.float64)
    first, again = (unfold(Z, edge_index, Energy(1.0)) for _ in range(2))
    assert torch.equal(first, again)
    assert len(made) == 1
    edge_index[:, :2] = torch.tensor([[0, 3], [3, 0]])
    assert not torch.equal(unfold(Z, edge_index, Energy(1.0)), first)
    unfold(Z[:, :2], edge_index, Energy(1.0))
    assert len(made) == 2


def test_the_generic_path_lets_go_of_the_graph_of_z():
    s = ZOO["random"]
    leaf = problems.normal(s).requires_grad_()
    Z = 2 * leaf
    kept = weakref.ref(Z)
    Y = unfold(Z, s, Energy(1.0, prox="group"), 8)
    Y.sum().backward()
    del Z, Y
    assert kept() is None
