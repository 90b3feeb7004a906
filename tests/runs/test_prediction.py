# ruff: noqa: N806
"""Predictions are what the model says on the samples around the nodes that were asked for, in their order."""

import numpy as np
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn import Draws, FullKHop, Graph, InputError, ShadowKHop, UniformInduced
from musegnn.runs.evaluation import evaluate_split
from musegnn.runs.prediction import Predictor
from tiny_runs import bytes_of, tiny_graph, tiny_run, train_on

FIELDS = ("nodes", "classes", "probabilities", "error_bounds")
ASKED = [140, 3, 77, 3, 0, 149, *range(20, 60), 77]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return musegnn.load_run(tiny_run(tmp_path_factory.mktemp("run")).folder.path)


def assert_same(found, wanted, rows=slice(None)):
    for name in FIELDS:
        assert np.array_equal(getattr(found, name), getattr(wanted, name)[rows]), name


def by_hand(run, graph, draws, mu_of):
    """Node -> probabilities, embedding and bound, sample by sample."""
    rows = {}
    for sample in draws:
        X = torch.from_numpy(np.array(graph.features[sample.node_ids]))
        mu, seen = mu_of(torch.from_numpy(np.array(sample.node_ids, dtype=np.int64)))
        with torch.no_grad():
            settings = {"mu": mu, "seen": seen, "trace": True}
            trace = musegnn.unfold(run.model.f(X), sample, run.model.energy, run.model.steps, **settings)
            p = torch.softmax(run.model.g(trace.Y[: sample.num_seeds]), dim=1)
        bound = trace.error_bound / float(trace.Y.norm())
        for row, node in enumerate(sample.seeds.tolist()):
            rows[node] = p[row].numpy(), trace.Y[row].numpy(), bound
    return rows


def test_rows_are_in_the_order_that_was_asked_for(run):
    found = run.predict(ASKED)
    assert found.nodes.tolist() == ASKED
    assert_same(found, run.predict(sorted(set(ASKED))), [sorted(set(ASKED)).index(node) for node in ASKED])
    assert np.allclose(found.probabilities.sum(axis=1), 1, atol=1e-6)
    assert (found.probabilities >= 0).all()
    assert np.array_equal(found.classes, found.probabilities.argmax(axis=1))
    assert (found.error_bounds > 0).all()
    assert_same(run.predict(torch.tensor(ASKED), threads=3), found)


@pytest.mark.parametrize("hops", [None, 2])
def test_they_are_the_models_on_samples_around_the_nodes(run, hops):
    ids = np.unique(ASKED)
    sampler = ShadowKHop([4, 3]) if hops is None else FullKHop(hops)
    draws = Draws(run.graph, sampler, ids, batch_size=20, seed=run.samples.seed)
    rows = by_hand(run, run.graph, draws, lambda nodes: (run.means.M[nodes], run.means.count[nodes] > 0))
    found, Y = run.predict(ASKED, hops=hops), run.embed(ASKED, hops=hops)
    assert Y.shape == (len(ASKED), 8)
    for row, node in enumerate(ASKED):
        assert np.allclose(found.probabilities[row], rows[node][0], atol=1e-6)
        assert np.allclose(Y[row], rows[node][1], atol=1e-5)
        assert found.error_bounds[row] == pytest.approx(rows[node][2], rel=1e-3)


def test_they_are_the_answers_of_an_evaluation_on_the_same_draws(run):
    ids = np.flatnonzero(run.graph.split == 2)
    draws = Draws(run.graph, ShadowKHop([4, 3]), ids, batch_size=20, seed=run.samples.seed)
    given = run.model, run.means, run.graph, draws, run.graph.labels, run.config
    wanted, found = evaluate_split(*given, is_free=False), run.predict(ids)
    assert wanted.metrics["accuracy"] == (found.classes == run.graph.labels[ids]).mean()
    assert np.float32(wanted.error_bound) == found.error_bounds.max()


def test_predicting_moves_nothing(run):
    before, M = bytes_of(run.folder.path), run.means.M.clone()
    run.predict(ASKED)
    run.embed(ASKED)
    assert bytes_of(run.folder.path) == before
    assert torch.equal(run.means.M, M)


def test_another_graph_has_no_means(run, tmp_path):
    other = tiny_graph(120, seed=1)
    predictor, ids = Predictor(run, graph=other), np.arange(120, dtype=other.indices.dtype)
    assert predictor.is_inductive
    draws = Draws(other, ShadowKHop([4, 3]), ids, batch_size=20, seed=run.samples.seed)
    # Whatever mu is: none of its rows count.
    nothing = by_hand(
        run, other, draws, lambda nodes: (torch.full((len(nodes), 8), 1e3), torch.zeros(len(nodes)).bool())
    )
    found = [part for _, part in predictor.batches(ids)]
    assert len(found) == predictor.num_batches(ids) == 6
    for part in found:
        for row, node in enumerate(part.nodes.tolist()):
            assert np.allclose(part.probabilities[row], nothing[node][0], atol=1e-6)
    accuracy = np.mean([part.classes == other.labels[part.nodes] for part in found])
    assert accuracy > 0.5
    assert np.allclose(predictor.embed(ids), [nothing[node][1] for node in ids], atol=1e-5)
    other.save(tmp_path / "other")
    for given in (other, tmp_path / "other"):
        asked = run.predict([110, 3, *range(120)], graph=given)
        assert asked.nodes.tolist() == [110, 3, *range(120)]
        assert np.array_equal(asked.probabilities[2:], np.concatenate([part.probabilities for part in found]))
        assert np.array_equal(run.embed(range(120), graph=given), predictor.embed(ids))


def test_the_same_graph_from_another_folder_keeps_its_means(run, tmp_path):
    run.graph.save(tmp_path / "copy")
    predictor = Predictor(run, graph=Graph.open(tmp_path / "copy"))
    parts = [part for _, part in predictor.batches(np.arange(150))]
    assert np.array_equal(
        np.concatenate([part.probabilities for part in parts]), run.predict(range(150)).probabilities
    )


def test_a_graph_that_the_model_cannot_read_is_refused(run):
    with pytest.raises(InputError, match="has 5 features, the run was trained with 6"):
        Predictor(run, graph=tiny_graph(dim=5))
    with pytest.raises(InputError, match="has no features"):
        Predictor(run, graph=tiny_graph(features=None))


def test_batches_that_are_there_are_not_made_again(run):
    predictor, ids = Predictor(run), np.arange(150)
    whole = dict(predictor.batches(ids))
    assert list(whole) == list(range(8))
    part = dict(predictor.batches(ids, [5, 2]))
    assert list(part) == [5, 2]
    for number, found in part.items():
        assert_same(found, whole[number])


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([], "at least one node id"),
        ([0.5], "got float64"),
        (3, "got int64\\[\\]"),
        ([[1, 2]], "got int64\\[1, 2\\]"),
        (np.zeros(150, dtype=bool), "got bool"),
        ([3, 150], "150 is no node of graph, which has 0 to 149"),
        ([-1], "-1 is no node"),
    ],
)
def test_ids_that_are_none(run, ids, said):
    for ask in (run.predict, run.embed):
        with pytest.raises(InputError, match=said):
            ask(ids)


def test_samples_that_repeat_nodes_answer_each_once(tmp_path):
    graph = tiny_graph()
    run = train_on(graph, tmp_path, UniformInduced(p=0.6, num_samples=12), epochs=1)
    found = run.predict(ASKED)
    assert found.nodes.tolist() == ASKED
    predictor, ids = Predictor(run), np.unique(ASKED)
    parts = [part for _, part in predictor.batches(ids)]
    assert len(parts) == predictor.num_batches(ids) == 12
    assert np.sort(np.concatenate([part.nodes for part in parts])).tolist() == ids.tolist()
    # The first sample that has a node is the one that counts.
    first = Draws(graph, predictor.sampler, ids, seed=run.samples.seed)[0]
    assert parts[0].nodes.tolist() == first.seeds.tolist()
    logits = run.model.g(torch.from_numpy(run.embed(ASKED))).detach()
    assert np.allclose(torch.softmax(logits, dim=1), found.probabilities, atol=1e-6)


def test_samples_that_miss_a_node_are_refused(tmp_path):
    run = train_on(tiny_graph(), tmp_path, UniformInduced(p=0.5, num_samples=2), epochs=1)
    with pytest.raises(InputError, match="UniformInduced draws freely and missed .* of 150 nodes"):
        run.predict(range(150))
    assert len(run.predict(range(150), hops=1).nodes) == 150
