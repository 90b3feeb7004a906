"""N ranks compute what one process computes that takes N samples in a step."""

import os

import numpy as np
import pytest
import small_runs
import torch
from together import together

import musegnn
from musegnn import Energy
from musegnn.training import checkpoint, loop
from musegnn.training.schedule import epoch_order

GRAPH = small_runs.graph(unlabeled=20)
RUNS = [(2, "drawn to 0"), (3, "with means")]
if "MUSEGNN_PROOF" in os.environ:
    RUNS += [(2, "without means"), (3, "without means"), (4, "drawn to 0")]
CASES = {
    "with means": {},
    "without means": {"gamma": 0.0, "class_weights": True, "dropout": 0.3},
    "drawn to 0": {"unseen": "zero", "rho": 0.5, "clip": 0.05, "means_home": "disk"},
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Five training samples: one or two are left for the last step."""
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s", GRAPH, batch_size=12)


def train(store, folder, case, **options):
    """In float64, but M in float32."""
    float_, torch.Tensor.float = torch.Tensor.float, torch.Tensor.double
    try:
        own = {key: value for key, value in case.items() if key not in ("gamma", "dropout")}
        energy = Energy(0.8, case.get("gamma", 0.5))
        model = small_runs.model(energy=energy, dropout=case.get("dropout", 0.0)).double()
        musegnn.train(GRAPH, store, model, folder, lr=0.02, **own, **options)
    finally:
        torch.Tensor.float = float_


def left(folder):
    """Weights, and M with its counts from whatever number of shares."""
    run = musegnn.load_run(folder, graph=GRAPH, samples=SAMPLES[0], model=small_runs.model().double())
    tensors = checkpoint.load(folder / "checkpoint", "state").tensors
    weights = {name: part for name, part in tensors.items() if not name.startswith("means.")}
    if run.means is not None:
        ids = np.arange(GRAPH.num_nodes)
        weights |= {"mu": run.means.gather(ids), "seen": run.means.seen(ids).float()}
    return weights


SAMPLES = []


@pytest.mark.parametrize(("size", "name"), RUNS)
def test_ranks_compute_what_one_process_computes(store, tmp_path, size, name):
    """20 steps and more, the last of an epoch uneven for four."""
    SAMPLES[:] = [store]
    steps = -(-5 // size)
    options = {"epochs": -(-20 // steps), "evaluate_every": 4}
    train(store, tmp_path / "one", CASES[name], samples_per_step=size, **options)
    together(size, lambda ranks: train(store, tmp_path / "many", CASES[name], **options))
    expected, found = left(tmp_path / "one"), left(tmp_path / "many")
    assert expected.keys() == found.keys()
    for key, part in expected.items():
        torch.testing.assert_close(
            found[key], part, rtol=1e-6, atol=1e-6, msg=lambda text, key=key: f"{key}: {text}"
        )
    one, many = (
        musegnn.load_run(tmp_path / f, graph=GRAPH, samples=store, model=small_runs.model().double())
        for f in ("one", "many")
    )
    assert many.result["ranks"] == size
    for key in ("valid_accuracy", "test_accuracy", "best_epoch"):
        assert one.result[key] == many.result[key]
    losses = [[event["loss"] for event in run.events if event["event"] == "epoch"] for run in (one, many)]
    np.testing.assert_allclose(*losses, rtol=1e-7)


def test_rank_r_of_step_t_takes_sample_t_n_plus_r_and_its_dropout(store, tmp_path):
    """All that is random hangs on the sample, not on the rank or the step."""

    def work(ranks):
        drawn, before = [], loop.sample_seed
        loop.sample_seed = lambda *given: (drawn.append(given), before(*given))[1]
        train(store, tmp_path / "run", CASES["without means"], epochs=2, seed=3)
        return drawn

    for rank, drawn in enumerate(together(2, work)):
        orders = [epoch_order(5, seed=3, epoch=epoch).tolist() for epoch in range(2)]
        assert drawn == [(3, epoch, index) for epoch in range(2) for index in orders[epoch][rank::2]]
