"""MLP, SGC, SIGN and APPNP against dense powers of S, forward and backward."""

import numpy as np
import peer_cases as cases
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn.baselines.propagation import APPNP, MLP, SGC, SIGN, hops, smooth

SAMPLES = {"whole": cases.whole(), "part": cases.part(), "test": cases.part("test", index=1)}


@pytest.fixture(params=SAMPLES)
def sample(request):
    return SAMPLES[request.param]


def powers(count, normalize):
    """X, S X, ... of the whole graph."""
    X = torch.from_numpy(cases.GRAPH.features).double()
    made = [cases.divided(X) if normalize else X]
    for _ in range(count):
        made.append(cases.dense_s(cases.GRAPH) @ made[-1])
    return made


def test_samples_are_no_trivial_ones():
    assert SAMPLES["whole"].num_nodes == cases.GRAPH.num_nodes > SAMPLES["whole"].num_seeds
    assert SAMPLES["part"].num_nodes > SAMPLES["part"].num_seeds == 5
    assert (np.diff(cases.GRAPH.indptr) == 0).any()
    assert SAMPLES["part"].node_ids.tolist() != sorted(SAMPLES["part"].node_ids)


def test_smoothing_is_the_dense_product_and_its_own_transpose(sample):
    torch.manual_seed(0)
    X = torch.randn(sample.num_nodes, 3, dtype=torch.float64, requires_grad=True)
    loss = torch.randn_like(X)
    S = cases.dense_s(sample)
    torch.testing.assert_close(smooth(sample, X), S @ X, **cases.CLOSE)
    (gradient,) = torch.autograd.grad((smooth(sample, X) * loss).sum(), X)
    torch.testing.assert_close(gradient, S.T @ loss, **cases.CLOSE)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
def test_mlp_reads_no_edge(sample, normalize, residual):
    model = cases.peer(MLP, normalize=normalize, residual=residual)
    X = cases.features(sample)
    seeds = X[: sample.num_seeds]
    expected = cases.by_hand(model.f, cases.divided(seeds) if normalize else seeds)
    cases.check_alike(model, model(sample, X), expected)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("normalize", [False, True])
def test_sgc_is_linear_in_the_last_power(sample, steps, normalize):
    model = cases.peer(SGC, steps=steps, normalize=normalize)
    X = powers(steps, normalize)[-1][torch.from_numpy(sample.seeds).long()]
    (linear,) = model.f.layers
    cases.check_alike(model, model(sample, cases.features(sample)), X @ linear.weight.T + linear.bias)


@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("normalize", [False, True])
def test_sign_has_all_powers_beside_each_other(sample, steps, normalize):
    model = cases.peer(SIGN, steps=steps, normalize=normalize)
    X = torch.cat(powers(steps, normalize), dim=1)[torch.from_numpy(sample.seeds).long()]
    cases.check_alike(model, model(sample, cases.features(sample)), cases.by_hand(model.f, X))


@pytest.mark.parametrize(("steps", "restart"), [(0, 0.2), (3, 0.2), (4, 0.0), (4, 1.0)])
def test_appnp_is_its_formula_on_the_sample(sample, steps, restart):
    model = cases.peer(APPNP, steps=steps, restart=restart)
    X, S = cases.features(sample), cases.dense_s(sample)
    Z = Y = cases.by_hand(model.f, X)
    for _ in range(steps):
        Y = (1 - restart) * S @ Y + restart * Z
    cases.check_alike(model, model(sample, X), Y[: sample.num_seeds])


def test_many_steps_of_appnp_are_personalized_pagerank():
    model, sample = cases.peer(APPNP, steps=120), SAMPLES["part"]
    X, S = cases.features(sample), cases.dense_s(sample)
    system = torch.eye(len(S), dtype=torch.float64) - 0.8 * S
    Y = 0.2 * torch.linalg.solve(system, cases.by_hand(model.f, X))
    cases.check_alike(model, model(sample, X), Y[: sample.num_seeds])


@pytest.mark.parametrize("kind", [SGC, SIGN])
def test_powers_are_made_once_and_again_in_another_dtype(kind, monkeypatch):
    made, sample = [], SAMPLES["part"]
    monkeypatch.setattr(
        "musegnn.baselines.propagation.hops", lambda *given, **named: made.append(0) or hops(*given, **named)
    )
    model = cases.peer(kind, like=torch.float32)
    X = cases.features(sample)
    single = [model(sample, X.float()) for _ in range(2)][0]
    assert (len(made), single.dtype) == (1, torch.float32)
    torch.testing.assert_close(model.double()(sample, X), single.double(), rtol=1e-4, atol=1e-4)
    assert len(made) == 2
    assert not list(model.buffers())


def test_features_are_read_from_a_mapped_file_of_half_precision(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 40)).astype(np.float16)
    X[2] = 0
    musegnn.Graph.from_edges([[0, 1, 2], [1, 2, 3]], num_nodes=6, features=X).save(tmp_path / "graph")
    graph = musegnn.Graph.open(tmp_path / "graph")
    found = hops(graph, range(1, 3), torch.float32, normalize=True)
    start = torch.nn.functional.normalize(torch.from_numpy(X).double(), p=1.0, dim=1)
    S = cases.dense_s(graph)
    expected = torch.stack([S @ start, S @ S @ start], dim=1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)
