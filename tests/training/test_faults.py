"""What cannot be trained is said in one line, before a folder is made; what goes wrong says where."""

import copy
import dataclasses
import math
import shutil

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from machine import unchecked as unchecked
from musegnn.errors import DivergenceError, InputError
from musegnn.training import batches, checkpoint, forward
from musegnn.training.folder import RunFolder
from musegnn.training.loop import Trainer
from musegnn.training.schedule import epoch_order

GRAPH = small_runs.graph()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s")


def told(folder, store, kind=InputError, *, graph=GRAPH, model=None, **settings):
    """The one line of the error."""
    model = small_runs.model() if model is None else model
    with pytest.raises(kind) as caught:
        musegnn.train(graph, store, model, folder, **{"epochs": 3, "checkpoint_seconds": 0, **settings})
    assert "\n" not in str(caught.value)
    return str(caught.value)


def kept_step(folder):
    return checkpoint.facts_of(folder / "checkpoint", "state")["position"]["step"]


def test_a_loss_that_is_no_number_names_epoch_and_sample(store, tmp_path, monkeypatch):
    """The seventh batch is the first of the second epoch; what was kept is the step before."""
    real, index = Trainer.step, int(epoch_order(6, seed=0, epoch=1)[0])

    def step(trainer, batch):
        if trainer.state.position.step == 6:
            trainer.loss = lambda logits, targets, total: logits.sum() * math.nan
        real(trainer, batch)

    monkeypatch.setattr(Trainer, "step", step)
    message = told(tmp_path / "run", store, DivergenceError)
    assert message.startswith(f"Epoch 2, training sample {index}: The loss is nan.")
    assert "smaller lr" in message
    assert "The last checkpoint is kept." in message
    assert kept_step(tmp_path / "run") == 6
    events = RunFolder(tmp_path / "run", is_there=True, is_read=True).events()
    assert events[-1] == {"event": "failed", "message": message}
    # Who goes on all the same, with other code, has a log without it.
    monkeypatch.undo()
    run = musegnn.train(GRAPH, store, small_runs.model(), tmp_path / "run", epochs=3, resume=True)
    assert [event["event"] for event in run.events] == ["start", *["epoch"] * 3, "end"]


def test_a_feature_that_is_no_number_names_epoch_and_sample(store, tmp_path):
    """Which f turns into a Z that is none."""
    bad = int(store["train"][3].node_ids[0])
    features = GRAPH.features.copy()
    features[bad] = np.nan
    graph = copy.copy(GRAPH)
    object.__setattr__(graph, "features", features)
    order = epoch_order(6, seed=0, epoch=0)
    first = next(place for place, i in enumerate(order) if bad in store["train"][int(i)].node_ids)
    message = told(tmp_path / "run", store, DivergenceError, graph=graph)
    assert message.startswith(f"Epoch 1, training sample {order[first]}: ")
    assert kept_step(tmp_path / "run") == first


def test_a_huge_lr_ends_the_run(store, tmp_path):
    message = told(tmp_path / "run", store, DivergenceError, lr=1e30)
    assert message.startswith("Epoch 1, training sample ")
    assert "The last checkpoint is kept." in message


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
)
def test_out_of_memory_says_what_to_lower(store, tmp_path, monkeypatch, error):
    def fail(*args, **kwargs):
        raise error

    monkeypatch.setattr(forward, "unfold_seeds", fail)
    message = told(tmp_path / "run", store)
    assert message.startswith("Epoch 1, training sample ")
    for word in ("out of memory", "hidden=8", "steps=3", "batch_size", "fanouts"):
        assert word in message


def test_out_of_memory_while_reading_says_what_to_lower(store, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise MemoryError("Unable to allocate 8. GiB for an array")

    monkeypatch.setattr(batches, "_targets", fail)
    message = told(tmp_path / "run", store)
    assert "out of memory" in message
    assert "batch_size" in message


def test_other_errors_stay_what_they_are(store, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("something else")

    monkeypatch.setattr(forward, "unfold", fail)
    with pytest.raises(RuntimeError, match="^something else$"):
        musegnn.train(GRAPH, store, small_runs.model(), tmp_path / "run", epochs=1)


def tasks(value):
    return np.full((GRAPH.num_nodes, small_runs.CLASSES), value, dtype=np.float32)


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("None of the 60 training nodes has a label", {"labels": np.full(GRAPH.num_nodes, -1)}),
        ("are of class 2: there is nothing to learn", {"labels": np.full(GRAPH.num_nodes, 2)}),
        ("None of the 60 training nodes has a label", {"labels": tasks(np.nan), "loss": "bce"}),
        ("labeled the same in every task", {"labels": tasks(1), "loss": "bce"}),
        ("must have 120 rows", {"labels": np.zeros(7, dtype=np.int64)}),
        ("whole numbers", {"labels": np.zeros(GRAPH.num_nodes)}),
        ("0, 1 or NaN", {"labels": tasks(0.5), "loss": "bce"}),
        ("rows are for loss='bce'", {"labels": tasks(1)}),
        ("needs labels", {"loss": "bce"}),
        ("has 3 outputs, but the labels need 120", {"labels": np.arange(GRAPH.num_nodes)}),
        ("has 2 outputs, but the labels need 3", {"model": small_runs.model(out_dim=2)}),
        (
            "has 3 outputs, but the labels need 2",
            {"labels": np.eye(2, dtype=np.float32)[GRAPH.labels % 2], "loss": "bce"},
        ),
        ("5 features of a node", {"model": musegnn.MuseGNN(4, 3, hidden=8)}),
        ("in float32", {"model": small_runs.model().double()}),
        ("warmup is 18, but the run has 18 steps", {"warmup": 18}),
        ("there is no setting 'epoch'. Did you mean 'epochs'?", {"epoch": 3}),
        ("label_smoothing belongs to loss 'cross_entropy'", {
            "labels": np.eye(3, dtype=np.float32)[GRAPH.labels], "loss": "bce", "label_smoothing": 0.1,
        }),
        ("model must be a musegnn.MuseGNN", {"model": torch.nn.Linear(3, 3)}),
    ],
)  # fmt: skip
def test_what_cannot_be_trained_leaves_no_folder(words, settings, store, tmp_path):
    assert words in told(tmp_path / "run", store, **settings)
    assert not (tmp_path / "run").exists()


def test_a_graph_without_features(tmp_path):
    edges = np.random.default_rng(0).integers(0, 40, (2, 80))
    graph = musegnn.Graph.from_edges(edges, labels=np.arange(40) % 2, split=np.arange(40) % 3, name="bare")
    message = told(tmp_path / "run", small_runs.store(tmp_path / "s", graph), graph=graph)
    assert message == "bare has no features, which f needs. Import it with features."
    assert not (tmp_path / "run").exists()


def test_a_store_without_training_samples(tmp_path):
    store = small_runs.store(tmp_path / "s", splits=("valid",))
    assert "has no training samples" in told(tmp_path / "run", store)


def test_labels_of_the_test_nodes_alone_are_not_enough(store, tmp_path):
    labels = np.where(GRAPH.split == 0, -1, GRAPH.labels)
    assert "None of the 60 training nodes" in told(tmp_path / "run", store, labels=labels)


def test_validation_nodes_without_labels(store, tmp_path):
    """Nothing to choose an epoch by: the last is the best."""
    labels = np.where(GRAPH.split == 1, -1, GRAPH.labels)
    run = musegnn.train(GRAPH, store, small_runs.model(), tmp_path / "run", labels=labels, epochs=2)
    assert "valid_accuracy" not in run.result
    assert 0 <= run.test_accuracy <= 1
    assert all("valid_accuracy" not in event for event in run.events)
    tensors = [checkpoint.load(tmp_path / "run" / "checkpoint", name)[0] for name in ("state", "best")]
    assert all(torch.equal(tensors[0][key], part) for key, part in tensors[1].items())


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_feature_that_is_no_number_is_not_dropped(store, tmp_path, dropout):
    """A kernel that compares with 0 could turn it into 0, and train on."""
    features = np.array(GRAPH.features)
    features[store["train"][0].node_ids] = np.nan
    graph = dataclasses.replace(GRAPH, features=features)
    model = small_runs.model(dropout=dropout)
    drawn = musegnn.sample(graph, musegnn.ShadowKHop([2]), tmp_path / "s", batch_size=20)
    message = told(tmp_path / "run", drawn, DivergenceError, graph=graph, model=model)
    assert message.startswith("Epoch 1, training sample")


def test_a_gradient_that_is_no_number_ends_the_run_before_the_step(store, tmp_path, monkeypatch):
    real = Trainer.step

    def step(trainer, batch):
        if trainer.state.position.step == 2:
            next(trainer.state.model.parameters()).register_hook(lambda gradient: gradient * math.inf)
        real(trainer, batch)

    monkeypatch.setattr(Trainer, "step", step)
    message = told(tmp_path / "run", store, DivergenceError)
    assert "The gradient is" in message
    assert kept_step(tmp_path / "run") == 2
    tensors, _, *_ = checkpoint.load(tmp_path / "run" / "checkpoint", "state")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())


@pytest.mark.parametrize(("name", "value"), [("gamma", 0.5), ("hidden", 64), ("batch_size", 7)])
def test_what_model_and_samples_say_cannot_be_set_beside_them(store, tmp_path, name, value):
    message = told(tmp_path / "run", store, **{name: value})
    assert message.startswith(f"{name} is a setting of the ")
    assert not (tmp_path / "run").exists()


def test_a_checkpoint_of_another_run_is_refused(store, tmp_path):
    """Put into the folder of a run with other settings, or beside a config.toml that was edited."""
    for name, lr in (("one", 0.01), ("two", 0.02)):
        musegnn.train(GRAPH, store, small_runs.model(), tmp_path / name, epochs=1, lr=lr)
        (tmp_path / name / "result.json").unlink()
    shutil.rmtree(tmp_path / "one" / "checkpoint")
    shutil.copytree(tmp_path / "two" / "checkpoint", tmp_path / "one" / "checkpoint")
    with pytest.raises(InputError, match="is of another run"):
        musegnn.train(GRAPH, store, small_runs.model(), tmp_path / "one", epochs=1, lr=0.01, resume=True)


def test_means_that_were_lost_are_not_made_anew(store, tmp_path):
    folder, settings = tmp_path / "run", {"epochs": 1, "means_home": "disk"}
    run = musegnn.train(GRAPH, store, small_runs.model(gamma=0.5), folder, **settings)
    assert run.evaluate()
    shutil.rmtree(folder / "means")
    with pytest.raises(InputError, match="has lost the means"):
        musegnn.load_run(folder, graph=GRAPH).evaluate()
    (folder / "result.json").unlink()
    with pytest.raises(InputError, match="has lost the means"):
        musegnn.train(GRAPH, store, small_runs.model(gamma=0.5), folder, resume=True, **settings)
