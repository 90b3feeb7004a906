"""Classes of training nodes as inputs: nothing leaks, and a run with them is a run like any other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import musegnn
from musegnn.errors import InputError
from musegnn.training.batches import Loader
from musegnn.training.building import build_model
from musegnn.training.config import Config
from musegnn.training.forward import inputs_of
from tiny_runs import SETTINGS, tiny_graph

CHOSEN = SETTINGS | {"gamma": 0.0, "label_inputs": True, "dropout": 0.0}


def trained(folder, graph=None, **settings):
    """A run on a small graph; its relations are those of the graph."""
    graph = tiny_graph(class_names=["red", "green", "blue"]) if graph is None else graph
    config = Config(name="tiny").with_settings(CHOSEN | settings)
    store = musegnn.sample(graph, config.sampling.build(), folder / "samples", batch_size=20, seed=0)
    sizes = {"in_dim": graph.features.shape[1], "out_dim": graph.num_classes}
    model = build_model(config, **sizes, graph=graph, num_types=len(graph.node_type_names or ()))
    return musegnn.train(graph, store, model, folder / "run", config=config)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("labels"))


def batches(run, targets, split="train"):
    loader = Loader(run.samples[split], run.graph, targets, inputs=inputs_of(run.model, run.graph, targets))
    return loader.batches(range(len(loader)))


def test_no_seed_sees_its_own_class(run):
    """Whatever class a seed has, all that its sample sees is the same."""
    targets = np.asarray(run.graph.labels)
    for batch in batches(run, targets):
        others = targets.copy()
        others[batch.sample.seeds] = (others[batch.sample.seeds] + 1) % 3
        again = list(batches(run, others))[batch.index]
        assert torch.equal(batch.features, again.features)
        assert not torch.equal(batch.targets, again.targets)


def test_others_see_theirs(run):
    """And only those of training nodes."""
    targets = np.asarray(run.graph.labels)
    for split in ("train", "valid", "test"):
        for batch in batches(run, targets, split):
            classes = batch.features[:, -3:]
            nodes = batch.sample.node_ids
            is_told = (run.graph.split[nodes] == 0) & ~np.isin(nodes, batch.sample.seeds)
            assert np.array_equal(classes.sum(1).numpy() == 1, is_told)
            assert np.array_equal(classes.argmax(1).numpy()[is_told], targets[nodes[is_told]])
            assert is_told.any()


def test_it_is_told_of_in_config_and_record(run):
    assert run.config.model.label_inputs
    assert run.record["model"] == {"in_dim": 6, "out_dim": 3}
    again = musegnn.load_run(run.folder.path, graph=run.graph, samples=run.samples)
    assert again.model.label_inputs == 3
    nodes = np.arange(150)
    assert np.array_equal(again.predict(nodes).probabilities, run.predict(nodes).probabilities)


def test_a_prediction_sees_what_an_evaluation_sees(run):
    """The accuracy of predictions on whole neighborhoods is that of `hops`."""
    test = np.flatnonzero(run.graph.split == 2)
    found = run.predict(test, hops=2).classes == run.graph.labels[test]
    assert run.evaluate("test", "hops", hops=2)["test"].metrics["accuracy"] == pytest.approx(found.mean())


def test_on_the_whole_graph_training_nodes_are_not_judged(run):
    """They see their own classes there."""
    with pytest.raises(InputError, match="training nodes see their own classes"):
        run.evaluate("train", "full")


def test_a_model_that_no_config_describes_is_held_to_the_same(tmp_path):
    graph = tiny_graph()
    store = musegnn.sample(graph, musegnn.ShadowKHop([4, 3]), tmp_path / "samples", batch_size=20, seed=0)
    own = torch.nn.Linear(9, 4)
    model = musegnn.MuseGNN(6, 3, 4, musegnn.Energy(gamma=0.5), f=own, output_layers=1, label_inputs=3)
    with pytest.raises(InputError, match="M would remember a node's own class"):
        musegnn.train(graph, store, model, tmp_path / "run", epochs=1)


def test_the_whole_graph_sees_all_training_classes(run, tmp_path):
    """Rows of Y as the model makes them of all inputs at once."""
    graph, targets = run.graph, np.asarray(run.graph.labels)
    inputs = inputs_of(run.model, graph, targets)
    columns = torch.from_numpy(inputs.columns(np.arange(150), 0))
    with torch.no_grad():
        expected = run.model.embed(graph, inputs.extend(torch.from_numpy(graph.features), columns))
    Y = run.embed_graph(tmp_path).Y
    torch.testing.assert_close(Y, expected, rtol=1e-5, atol=1e-6)
    assert run.evaluate("test", "full")["test"].metrics["accuracy"] > 0.5


def test_an_explanation_adds_up(run):
    node = int(np.flatnonzero(run.graph.split == 2)[0])
    why = run.explain(node, hops=1)
    total = why.shares.sum(axis=0) + why.means.sum(axis=0) + why.bias
    np.testing.assert_allclose(total, why.logits, atol=1e-5)
    logits = np.log(run.predict([node], hops=1).probabilities[0])
    np.testing.assert_allclose(total - total.mean(), logits - logits.mean(), atol=1e-4)


def test_other_features_leave_the_class_that_is_seen(run):
    around = run.around(0, hops=1)
    other = int(around.batch.sample.node_ids[1])
    same = around.what_if(features_of={other: around.features(other)})
    np.testing.assert_allclose(same.before, same.after, atol=1e-6)


def test_types_are_seen(tmp_path):
    graph = tiny_graph(node_type=np.arange(150) % 2, node_type_names=["even", "odd"])
    run = trained(tmp_path, graph, label_inputs=False, type_inputs=True)
    assert run.record["model"] == {"in_dim": 6, "out_dim": 3, "num_types": 2}
    other = replace(graph, node_type=np.ascontiguousarray(graph.node_type[::-1]))
    swapped = run.predict(np.arange(150), graph=other)
    assert not np.array_equal(swapped.probabilities, run.predict(np.arange(150)).probabilities)
    with pytest.raises(InputError, match="sees 2 types of nodes, .* has 0"):
        run.predict([0], graph=tiny_graph(seed=1))
    fewer = tiny_graph(node_type=np.zeros(150, dtype=int), node_type_names=["odd"])
    with pytest.raises(
        InputError, match="has the types of nodes odd, the run was trained with the types of nodes even, odd"
    ):
        run.predict([0], graph=fewer)


@pytest.mark.parametrize("architecture", ["GCN", "SAGE", "GAT"])
def test_peers_see_them_too(architecture, tmp_path):
    run = trained(tmp_path, architecture=architecture, heads=2, layers=2, epochs=15)
    assert run.model.in_dim == 9
    assert run.record["model"] == {"in_dim": 6, "out_dim": 3}
    assert run.test_accuracy > 0.5


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"gamma": 0.5}, r"needs gamma=0, since M would remember a node's own class; got gamma=0.5"),
        ({"sampler": "Cluster", "parts": 2}, "got Cluster, of which all are"),
        ({"loss": "bce"}, "needs one class a node; got loss='bce'"),
    ],
)
def test_what_would_leak_is_refused(settings, says):
    plain = {"gamma": 0.0, "label_inputs": True}
    with pytest.raises(InputError, match=says):
        Config().with_settings(plain | settings)


def test_peers_that_cannot_see_them_are_refused(tmp_path):
    with pytest.raises(InputError, match="got SGC, history='none'"):
        trained(tmp_path / "sgc", architecture="SGC")
    with pytest.raises(InputError, match="got GCN, history='freshgnn'"):
        trained(tmp_path / "history", architecture="GCN", history="freshgnn")


def test_other_features_must_be_as_many(run):
    with pytest.raises(InputError, match=r"has 6 features, got \[5\] in their place"):
        run.around(0, hops=1).what_if(features_of={0: np.zeros(5)})


def test_one_sample_would_teach_nothing_of_classes(tmp_path):
    """All training nodes are its seeds, whose classes are hidden."""
    graph = tiny_graph()
    store = musegnn.sample(graph, musegnn.ShadowKHop([4, 3]), tmp_path / "samples", batch_size=100, seed=0)
    model = musegnn.MuseGNN(6, 3, 4, label_inputs=3)
    with pytest.raises(InputError, match="got one sample, of which all are"):
        musegnn.train(graph, store, model, tmp_path / "run", epochs=1)


def test_types_need_types(tmp_path):
    with pytest.raises(InputError, match="type_inputs=true needs a graph whose nodes have types"):
        trained(tmp_path, type_inputs=True)
