"""When a run stops, what it keeps, and how the settings of the loop change it."""

import dataclasses

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from musegnn.sampling import Draws
from musegnn.training import batches, checkpoint, evaluation, loop
from sample_stores import Overlapping

GRAPH = small_runs.graph()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s")


def start(store, folder, *, model=None, **settings):
    model = small_runs.model() if model is None else model
    return musegnn.train(GRAPH, store, model, folder, **{"lr": 0.02, **settings})


def tensors(folder, name):
    return checkpoint.load(folder / "checkpoint", name)[0]


def is_equal(found, expected):
    return found.keys() == expected.keys() and all(torch.equal(found[key], expected[key]) for key in found)


def weights(folder, name="best"):
    return {key: part for key, part in tensors(folder, name).items() if key.startswith("model.")}


@pytest.fixture
def scripted(monkeypatch):
    """Let the validation find these accuracies, one after the other."""

    def script(values, metric="accuracy"):
        left, real = iter(values), evaluation.evaluate

        def evaluate(*args, **kwargs):
            found = real(*args, **kwargs)
            return dataclasses.replace(found, metrics={"accuracy": 0.5, metric: next(left)})

        monkeypatch.setattr(loop, "evaluate", evaluate)

    return script


def test_a_run_without_progress_stops_and_keeps_the_best(store, tmp_path, scripted):
    """Patience 3 behind the second epoch: five are made, and the weights are those of two."""
    scripted([0.1, 0.5, 0.4, 0.3, 0.2, 0.9])
    model = small_runs.model()
    run = start(store, tmp_path / "a", model=model, epochs=10, patience=3)
    assert (run.result["epochs"], run.result["best_epoch"]) == (5, 2)
    assert [event.get("best_epoch") for event in run.events if event["event"] == "epoch"] == [1, 2, 2, 2, 2]

    scripted([0.1, 0.5])
    two = start(store, tmp_path / "b", epochs=2)
    assert two.result["best_epoch"] == 2
    assert is_equal(tensors(tmp_path / "a", "best"), tensors(tmp_path / "b", "best"))
    assert is_equal(
        {f"model.{key}": part for key, part in model.state_dict().items()}, weights(tmp_path / "b")
    )
    # What was evaluated in the end are these weights, and the M that belongs to them.
    for name in ("test_accuracy", "valid_accuracy", "error_bound", "test_macro_f1"):
        assert run.result[name] == two.result[name]
    assert run.evaluate() == two.evaluate()


@pytest.mark.parametrize("home", ["memory", "disk"])
def test_a_stop_during_validation_loses_no_step(home, store, tmp_path, monkeypatch):
    how = {"epochs": 3, "means_home": home}
    start(store, tmp_path / "whole", model=small_runs.model(0.5), **how)
    end_epoch, ends = loop.Trainer._end_epoch, []

    def stopped(self):
        ends.append(1)
        self.stop.is_asked = len(ends) == 2
        end_epoch(self)

    monkeypatch.setattr(loop.Trainer, "_end_epoch", stopped)
    with pytest.raises(KeyboardInterrupt):
        start(store, tmp_path / "cut", model=small_runs.model(0.5), **how)
    monkeypatch.undo()
    saved = checkpoint.load(tmp_path / "cut" / "checkpoint", "state").facts["position"]
    assert (saved["epoch"], saved["step"]) == (1, 2 * len(store["train"]))
    start(store, tmp_path / "cut", model=small_runs.model(0.5), resume=True, **how)
    outcomes = [small_runs.outcome(tmp_path / name) for name in ("cut", "whole")]
    assert small_runs.differences(*outcomes) == []


def test_patience_zero_never_stops(store, tmp_path, scripted):
    scripted([0.9, 0.1, 0.1])
    run = start(store, tmp_path / "run", epochs=3)
    assert (run.result["epochs"], run.result["best_epoch"]) == (3, 1)


def test_the_metric_chooses_the_best_epoch(store, tmp_path, scripted):
    scripted([0.2, 0.7, 0.3], metric="macro_f1")
    run = start(store, tmp_path / "run", epochs=3, metric="macro_f1")
    assert run.result["best_epoch"] == 2


def test_roc_auc_is_told_where_it_is_the_metric(store, tmp_path):
    run = start(store, tmp_path / "run", epochs=1, metric="roc_auc")
    assert 0 <= run.result["test_roc_auc"] <= 1


def test_validation_every_other_epoch_and_at_the_end(store, tmp_path):
    run = start(store, tmp_path / "run", epochs=3, evaluate_every=2)
    looked = [e["epoch"] for e in run.events if e["event"] == "epoch" and "valid_accuracy" in e]
    assert looked == [2, 3]
    # To look changes nothing.
    start(store, tmp_path / "each", epochs=3, evaluate_every=1)
    logged = [
        [event["loss"] for event in musegnn.load_run(tmp_path / name, graph=GRAPH).events if "loss" in event]
        for name in ("run", "each")
    ]
    assert logged[0] == logged[1]


def test_evaluation_moves_m_if_asked(store, tmp_path, scripted):
    """Each validation sample counts once an epoch, beside the training samples."""
    visits = {
        split: sum(np.isin(np.arange(GRAPH.num_nodes), s.node_ids).astype(int) for s in store[split])
        for split in ("train", "valid")
    }
    for update, expected in ((False, visits["train"]), (True, visits["train"] + visits["valid"])):
        scripted([0.1, 0.2])
        start(store, tmp_path / f"{update}", epochs=2, update_means=update)
        count = tensors(tmp_path / f"{update}", "best")["means.count"]
        assert count.tolist() == (2 * expected).tolist()


def test_bfloat16_trains_and_is_evaluated_as_it_was_trained(store, tmp_path):
    run = start(store, tmp_path / "narrow", epochs=3, precision="bfloat16")
    wide = start(store, tmp_path / "wide", epochs=3)
    assert not is_equal(weights(tmp_path / "narrow"), weights(tmp_path / "wide"))
    assert all(part.dtype == torch.float32 for part in run.model.parameters())
    losses = [event["loss"] for event in run.events if "loss" in event]
    assert losses == pytest.approx([event["loss"] for event in wide.events if "loss" in event], rel=0.02)
    assert losses[-1] < losses[0]
    # With an error bound or without, the same logits.
    for with_bounds, without in zip(scored(run, store, None), scored(run, store, 0), strict=True):
        assert torch.equal(with_bounds.logits, without.logits)
        assert (with_bounds.error_bound, without.error_bound) != (None, None)
        assert without.error_bound is None


def scored(run, store, bounds):
    loader = batches.Loader(store["test"], GRAPH, GRAPH.labels)
    return list(evaluation.score(run.model, run.means, loader, run.config, bounds=bounds))


def test_error_bounds_change_no_logit(store, tmp_path):
    run = start(store, tmp_path / "run", epochs=1)
    for with_bounds, without in zip(scored(run, store, None), scored(run, store, 0), strict=True):
        assert torch.equal(with_bounds.logits, without.logits)
        assert torch.equal(with_bounds.Y, without.Y)
        assert not with_bounds.Y.requires_grad


def test_m_in_bfloat16(store, tmp_path):
    run = start(store, tmp_path / "run", epochs=2, means_dtype="bfloat16")
    assert run.means.M.dtype == torch.bfloat16
    assert tensors(tmp_path / "run", "best")["means.M"].dtype == torch.bfloat16


def test_labels_with_gaps(store, tmp_path):
    """bce: unknown entries count neither in the loss nor in the accuracy."""
    labels = np.eye(3, dtype=np.float32)[GRAPH.labels]
    labels[::2, 0] = np.nan
    labels[::3] = np.nan
    model = small_runs.model()
    run = start(store, tmp_path / "run", model=model, epochs=3, loss="bce", labels=labels)
    found = run.evaluate(("test",))["test"]
    right = known = 0
    for s in store["test"]:
        mu = run.means.gather(s.node_ids)
        with torch.no_grad():
            logits = model(s, torch.from_numpy(GRAPH.features[s.node_ids]), mu).numpy()
        is_known = ~np.isnan(labels[s.seeds])
        known += is_known.sum()
        right += (((logits > 0) == (labels[s.seeds] > 0.5)) & is_known).sum()
    assert found.metrics["accuracy"] == pytest.approx(right / known)
    assert found.metrics["accuracy"] == run.test_accuracy
    losses = [event["loss"] for event in run.events if "loss" in event]
    assert losses[-1] < losses[0]


@pytest.fixture(scope="module")
def free_store(tmp_path_factory):
    """Samples that overlap; one is empty."""
    return small_runs.store(tmp_path_factory.mktemp("free") / "s", sampler=Overlapping(num_samples=10))


def test_a_free_sampler_counts_each_seed_once(free_store, tmp_path):
    run = start(free_store, tmp_path / "run", epochs=2)
    assert free_store.is_free
    for split in ("valid", "test"):
        seeds = np.concatenate([s.seeds for s in free_store[split]])
        assert len(seeds) > len(np.unique(seeds))
        found = run.evaluate((split,))[split]
        assert found.num_labeled == len(np.unique(seeds))
        assert found.metrics["accuracy"] == run.result[f"{split}_accuracy"]
    # In training every seed of a sample counts.
    accuracy = [event["train_accuracy"] for event in run.events if "train_accuracy" in event]
    total = sum(s.num_seeds for s in free_store["train"])
    assert all(round(share * total, 6) == round(share * total) for share in accuracy)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_sample_of_a_seed_has_its_label(free_store, threads):
    labels = np.repeat(GRAPH.labels[:, None].astype(np.float32), 2, axis=1)
    for targets in (GRAPH.labels, labels):
        loader = batches.Loader(free_store["valid"], GRAPH, targets, threads=threads, counts_once=True)
        # A second pass begins anew.
        for _ in range(2):
            seen: set[int] = set()
            for batch in loader.batches(range(len(loader))):
                for node, row in zip(batch.sample.seeds.tolist(), batch.targets, strict=True):
                    unknown = bool(row.isnan().all()) if row.ndim else int(row) == -1
                    assert unknown == (node in seen)
                    seen.add(node)


def test_batches_come_in_order_with_their_rows(store):
    order = [4, 0, 5, 2, 2]
    loader = batches.Loader(store["train"], GRAPH, GRAPH.labels, threads=3)
    found = list(loader.batches(order))
    assert [batch.index for batch in found] == order
    for batch in found:
        s = store["train"][batch.index]
        assert np.array_equal(batch.sample.node_ids, s.node_ids)
        assert np.array_equal(batch.features.numpy(), GRAPH.features[s.node_ids])
        assert np.array_equal(batch.targets.numpy(), GRAPH.labels[s.seeds])
    assert loader.waited > 0


def test_class_weights_of_labels_that_the_graph_does_not_have(store, tmp_path):
    """The model's outputs count, not the graph's classes."""
    model = small_runs.model(out_dim=5)
    run = start(store, tmp_path / "run", model=model, epochs=1, class_weights=True, labels=GRAPH.labels + 1)
    assert 0 <= run.test_accuracy <= 1


def test_the_config_tells_of_the_samples(tmp_path):
    sampler = musegnn.FullKHop(1)
    store = small_runs.store(tmp_path / "s", sampler=sampler, seed=3)
    run = start(store, tmp_path / "run", epochs=1)
    told = musegnn.load_run(tmp_path / "run", graph=GRAPH).config.sampling
    assert told.build() == sampler
    assert (told.batch_size, told.sample_seed) == (10, 3)
    assert run.config.sampling == told


def test_fresh_samples_each_epoch(store, tmp_path):
    """Online: other samples than the stored ones, and not the same twice."""
    drawn, real = [], loop.Trainer.step

    def step(trainer, batches):
        drawn.extend(batch.sample.node_ids.tolist() for batch in batches)
        real(trainer, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "step", step)
        start(store, tmp_path / "run", epochs=2, online=True)
    assert len(drawn) == 12
    assert len({tuple(sorted(ids)) for ids in drawn}) == 12
    stored = {tuple(sorted(s.node_ids.tolist())) for s in store["train"]}
    assert not stored & {tuple(sorted(ids)) for ids in drawn}
    seeds = Draws(GRAPH, musegnn.ShadowKHop([3, 2]), "train", batch_size=10)
    assert len(drawn) == 2 * len(seeds)
