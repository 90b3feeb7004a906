"""Several energies, one behind the other: each as if it were alone, and the last one certified."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_relational import DIM, graph, learned, rows

import musegnn
from musegnn import Energy, Predictive, Relational, unfold
from musegnn.errors import InputError
from musegnn.training.building import build_model, check_energy, describe_model
from musegnn.training.config import Config
from musegnn.unfolding.descent import unfold_seeds
from musegnn.unfolding.robust import Robust
from musegnn.unfolding.staged import Staged
from musegnn.unfolding.subgraph import as_sample
from tiny_runs import tiny_graph


def three(prox="none", **how):
    kinds = (Predictive, Relational, Predictive)
    return [learned(kind(DIM, 2, prox=prox, **how), seed) for seed, kind in enumerate(kinds)]


@given(steps=st.integers(0, 12), count=st.integers(1, 5))
def test_every_step_belongs_to_one_stage(steps, count):
    energies = [Energy(float(i)) for i in range(count)]
    shares = Staged(energies).stages(steps)
    assert sum(share.steps for share in shares) == steps
    assert shares[-1].energy is energies[-1]
    assert all(share.steps > 0 for share in shares[:-1])
    counts = [*(share.steps for share in shares), *[0] * (count - len(shares))]
    assert max(counts) - min(counts) <= 1
    order = [energies.index(share.energy) for share in shares]
    assert order == sorted(order)


@pytest.mark.parametrize("prox", ["none", "relu"])
def test_stages_are_descents_one_behind_the_other(prox):
    g, energies = graph(hub=True), three(prox)
    Z, *_ = rows(g.num_nodes)
    Y = Z
    for energy in energies:
        Y = unfold(Z, g, energy, 2, init=Y)
    torch.testing.assert_close(unfold(Z, g, Staged(energies), 6), Y, rtol=0, atol=0)
    seeds, rest = unfold_seeds(Z, as_sample(g, len(Z)), Staged(energies), 6, keeps_all=True)
    torch.testing.assert_close(rest, Y)
    torch.testing.assert_close(seeds, Y[: len(seeds)])


def test_stages_of_a_stage_are_stages():
    g, (a, b, c) = graph(), three()
    Z, *_ = rows(g.num_nodes)
    nested = Staged([Staged([a, b]), c])
    assert torch.equal(unfold(Z, g, nested, 6), unfold(Z, g, Staged([a, b, c]), 6))
    assert len(nested.energies) == 3


def test_a_model_has_a_step_for_each_stage():
    with pytest.raises(InputError, match="The energy has 3 stages, but there are 2 steps: some would never"):
        musegnn.MuseGNN(4, 2, DIM, Staged(three()), 2)
    assert musegnn.MuseGNN(4, 2, DIM, Staged(three()), 3).steps == 3


def test_one_stage_is_the_energy():
    g, energy = graph(), three()[0]
    Z, *_ = rows(g.num_nodes)
    assert torch.equal(unfold(Z, g, Staged([energy]), 5), unfold(Z, g, energy, 5))


def test_the_certificate_is_that_of_the_last():
    """Its energies fall, and the exact minimizer is within the bound."""
    g, energies = graph(), three()
    Z, *_ = rows(g.num_nodes)
    trace = unfold(Z, g, Staged(energies), 12, trace=True)
    assert len(trace.energies) == 5
    assert (trace.energies.diff() <= 1e-12).all()
    distance = float((trace.Y - musegnn.solve(Z, g, energies[-1])).detach().norm())
    assert 0 < distance <= trace.error_bound


def test_gradients_are_those_of_a_tape_over_all_stages():
    g, energies = graph(), three(gamma=0.4)
    Z, mu, weights = rows(g.num_nodes)
    inputs = [Z.requires_grad_(), mu.requires_grad_(), *Staged(energies).parameters()]
    Y = unfold(Z, g, Staged(energies), 6, mu=mu)
    found = torch.autograd.grad((weights * Y).sum(), inputs)
    U = Z
    for energy in energies:
        problem = energy.problem(Z, g, mu=mu)
        for _ in range(2):
            U = problem.descend(U, Z)
    expected = torch.autograd.grad((weights * U).sum(), inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.abs().max() > 0


def test_a_run_with_stages_is_a_run(tmp_path):
    """Trained, loaded, explained exactly, evaluated on the whole graph."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    edges = rng.integers(0, 120, (2, 500))
    features = (rng.normal(size=(120, 5)) + 2 * np.eye(3, 5)[labels]).astype(np.float32)
    g = musegnn.Graph.from_edges(
        edges, num_nodes=120, relation=rng.integers(0, 2, 500), relation_names=["a", "b"],
        features=features, labels=labels, split=rng.integers(0, 3, 120),
    )  # fmt: skip
    chosen = {"kind": "predictive", "stages": 2, "steps": 4, "gamma": 0.0, "prox": "none", "hidden": 6}
    config = Config().with_settings(chosen | {"epochs": 2, "batch_size": 20, "lambda_per": "graph"})
    store = musegnn.sample(g, config.sampling.build(), tmp_path / "samples", batch_size=20, seed=0)
    model = build_model(config, 5, 3, num_relations=2)
    assert [part.shape for part in model.energy.parameters()].count((1, 1)) == 2
    before = [part.clone() for part in model.energy.parameters()]
    run = musegnn.train(g, store, model, tmp_path / "run", config=config)
    assert all(not torch.equal(a, b) for a, b in zip(before, run.model.energy.parameters(), strict=True))
    assert run.config.energy.stages == 2
    again = musegnn.load_run(tmp_path / "run", graph=g, samples=store)
    assert np.array_equal(again.predict([3, 4]).probabilities, run.predict([3, 4]).probabilities)
    why = again.explain(3, hops=2)
    np.testing.assert_allclose(why.shares.sum(axis=0) + why.bias, why.logits, rtol=1e-4, atol=1e-5)
    assert again.evaluate("test", "full")["test"].metrics["accuracy"] > 0.3


def test_stages_of_fused_energies_are_taken_on_the_whole_graph_too(tmp_path):
    g = musegnn.Graph.from_edges(np.array([[0, 1, 2, 3], [1, 2, 3, 0]]), features=np.eye(4, dtype=np.float32))
    energy = Staged([Energy(3.0, prox="none"), Energy(0.5, prox="none")])
    model = musegnn.MuseGNN(4, 2, hidden=3, energy=energy, steps=4).eval()
    Y = musegnn.inference.full.embed_graph(model, g, None, tmp_path).Y
    with torch.no_grad():
        torch.testing.assert_close(Y, model.embed(g, torch.eye(4)))


def test_what_is_held_for_shares_is_held_in_every_stage():
    robust = [Robust(torch.nn.Parameter(torch.tensor(1.0))), Robust(2.0)]
    held = Staged(robust).linearized()
    assert all(one._is_frozen for one in held.energies)
    assert not any(one.requires_grad for one in held.parameters())
    assert not any(one._is_frozen for one in robust)
    assert robust[0].lambda_.requires_grad


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kind": "predictive", "stages": 3, "steps": 2}, "stages must be at most steps, .* got stages=3"),
        ({"kind": "relational", "rank": 9, "hidden": 8}, "rank must be at most hidden, .* got rank=9"),
        ({"kind": "predictive", "steps": 0}, "kind='predictive' has no effect without steps; got steps=0"),
        (
            {"acceleration": "momentum", "alpha": 5.0},
            "has its own step sizes; got alpha=5.0. Leave alpha out.",
        ),
        ({"kind": "robust", "steps": 0}, "kind='robust' has no effect without steps; got steps=0"),
    ],
)
def test_settings_that_make_no_model_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        check_energy(Config().with_settings(settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "predictive", "stages": 2, "steps": 2, "rank": 8, "hidden": 8},
        {"kind": "robust", "stages": 3, "steps": 2},
        {"kind": "smoothness", "stages": 3, "steps": 0, "rank": 9, "hidden": 8},
        {"architecture": "SAGE", "kind": "predictive", "stages": 3, "steps": 0},
    ],
)
def test_what_nobody_heeds_is_not_refused(settings):
    config = Config().with_settings(settings)
    check_energy(config)
    build_model(config, 5, 3, musegnn.datasets.load("debian"))


def test_what_a_user_has_made_is_described_as_it_is():
    model = musegnn.MuseGNN(4, 2, 3, Predictive(3, rank=2), 0)
    assert describe_model(model, Config())[0].energy.rank == 2


def test_unlike_stages_are_not_taken_for_alike():
    model = musegnn.MuseGNN(4, 2, 3, Staged([Predictive(3, limit=1.0), Predictive(3)]), 4)
    assert describe_model(model, Config())[1] is None
    model = musegnn.MuseGNN(4, 2, 3, Robust(torch.nn.Parameter(torch.tensor(1.0))), 4)
    assert describe_model(model, Config())[1] is None
    model = musegnn.MuseGNN(4, 2, 3, Staged([Predictive(3), Predictive(3)]), 4)
    assert describe_model(model, Config())[0].energy.stages == 2


@pytest.mark.parametrize("kinds", [(Predictive, Relational), (Robust, Energy)])
def test_stages_of_any_kind_are_trained(kinds, tmp_path):
    graph = tiny_graph()
    graph.save(tmp_path / "graph")
    graph = musegnn.Graph.open(tmp_path / "graph")
    drawn = {"batch_size": 20, "seed": 0, "splits": ("train", "valid", "test")}
    store = musegnn.sample(graph, musegnn.ShadowKHop([4, 3]), tmp_path / "samples", **drawn)
    energies = [kind(*([8] if kind in (Predictive, Relational) else []), gamma=0.5) for kind in kinds]
    model = musegnn.MuseGNN(6, 3, 8, Staged(energies), 4)
    before = [part.detach().clone() for part in model.energy.parameters()]
    run = musegnn.train(graph, store, model, out=tmp_path / "run", epochs=2, lr=0.02)
    assert run.means.count.any()
    assert run.result["error_bound"] > 0
    changed = [not torch.equal(*pair) for pair in zip(before, model.energy.parameters(), strict=True)]
    assert all(changed)


def test_what_stages_share_must_be_the_same():
    with pytest.raises(
        InputError, match=r"same relations, width and gamma, one or more; got 2 with the relations \[2, 0\]"
    ):
        Staged([Predictive(3, 2), Predictive(3, 0)])
    with pytest.raises(InputError, match=r"and gamma \[0.5, 0.0\]"):
        Staged([Energy(1.0, 0.5), Energy(1.0, 0.0)])
    with pytest.raises(InputError, match="one or more; got 0"):
        Staged([])


def test_widths_must_be_the_same():
    with pytest.raises(InputError, match=r"the widths \[3, 4\]"):
        Staged([Predictive(3, 2), Predictive(4, 2)])
    assert repr(Staged([Energy(2.0), Energy()])).startswith("Staged(Energy(lambda_=2, ")
