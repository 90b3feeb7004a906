# ruff: noqa: N806
"""Evaluation is repeatable, moves nothing, and is what a person would compute."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn import Draws, FullKHop, InputError, UniformInduced
from musegnn.runs import evaluation
from musegnn.training.metrics import ScoreBook
from tiny_runs import bytes_of, tiny_graph, tiny_run, train_on

HOWS = ("stored", "online", "hops", "full")
KINDS = {"means": {}, "mask": {"unseen": "mask", "fanouts": [1]}, "plain": {"gamma": 0.0, "prox": "none"}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in KINDS}
    return {kind: musegnn.load_run(tiny_run(folders[kind], **KINDS[kind]).folder.path) for kind in KINDS}


@pytest.fixture(params=list(KINDS))
def each(request, runs):
    return runs[request.param]


@pytest.fixture
def run(runs):
    return runs["means"]


def inputs(run, nodes):
    """X, mu and which of mu count."""
    ids = torch.as_tensor(np.asarray(nodes, dtype=np.int64))
    mu = None if run.means is None else run.means.M[ids]
    seen = run.means.count[ids] > 0 if run.config.means.unseen == "mask" and mu is not None else None
    return torch.from_numpy(np.array(run.graph.features[nodes])), mu, seen


def metrics_of(logits, labels):
    book = ScoreBook(("accuracy", "macro_f1"))
    book.add(logits, torch.from_numpy(np.array(labels)))
    return book.metrics()


def dense(run, nodes):
    """Y^(K) and |V| / (tau |Y|) on the subgraph that these nodes induce: float64, all matrices full."""
    energy, K = run.config.energy, run.config.model.steps
    A = np.zeros((run.graph.num_nodes,) * 2)
    rows = np.repeat(np.arange(len(A)), np.diff(run.graph.indptr))
    A[rows, run.graph.indices] = 1
    A = A[np.ix_(nodes, nodes)] + np.eye(len(nodes))
    root = 1 / np.sqrt(A.sum(axis=1))
    X, mu, seen = inputs(run, nodes)
    with torch.no_grad():
        Z = run.model.f(X).double().numpy()
    gamma = energy.gamma * (np.ones(len(nodes)) if seen is None else seen.double().numpy())
    H = np.diag(1 + gamma) + energy.lambda_ * (np.eye(len(nodes)) - root[:, None] * A * root)
    B = Z if mu is None else Z + gamma[:, None] * mu.double().numpy()
    alpha, Y = 1 / (1 + energy.gamma + energy.lambda_), Z
    for _ in range(K):
        U, Y = Y, Y - alpha * (H @ Y - B)
        Y = np.maximum(Y, 0) if energy.prox == "relu" else Y
    V = (U - Y) / alpha - H @ (U - Y)
    return Y, np.linalg.norm(V) / (1 + gamma.min()) / np.linalg.norm(Y)


def test_stored_twice_gives_the_same_bits_and_those_of_the_result(run):
    first, again = run.evaluate(), musegnn.load_run(run.folder.path).evaluate(threads=3)
    assert first == again
    for split in ("valid", "test"):
        for name, value in first[split].metrics.items():
            assert run.result[f"{split}_{name}"] == value
    assert first["test"].num_labeled == int((run.graph.split == 2).sum())
    assert run.result["error_bound"] >= first["test"].error_bound


@pytest.mark.parametrize("how", HOWS)
def test_nothing_is_moved(run, how):
    M = None if run.means is None else (run.means.M.clone(), run.means.count.clone())
    before = bytes_of(run.folder.path)
    assert run.evaluate(("train", "test"), how) == run.evaluate(("train", "test"), how)
    assert bytes_of(run.folder.path) == before
    if M is not None:
        assert torch.equal(run.means.M, M[0])
        assert torch.equal(run.means.count, M[1])


def test_means_that_move_move_in_a_copy_and_by_each_sample_in_turn(runs):
    run, before = runs["mask"], bytes_of(runs["mask"].folder.path)
    kept = run.means.M.clone(), run.means.count.clone()
    found = run.evaluate(update_means=True)
    assert run.evaluate(update_means=True, threads=3) == found
    assert bytes_of(run.folder.path) == before
    assert torch.equal(run.means.M, kept[0])
    assert torch.equal(run.means.count, kept[1])
    # By hand, one split after the other (eq. 9).
    M, count = kept
    for split in ("valid", "test"):
        logits, labels = [], []
        for sample in run.samples[split]:
            ids = torch.as_tensor(np.array(sample.node_ids, dtype=np.int64))
            X = torch.from_numpy(np.array(run.graph.features[sample.node_ids]))
            with torch.no_grad():
                Y = run.model.embed(sample, X, M[ids], seen=count[ids] > 0)
                logits.append(run.model.g(Y[: sample.num_seeds]))
            keep = (run.config.means.rho * count[ids] / (count[ids] + 1))[:, None]
            M[ids], count[ids] = keep * M[ids] + (1 - keep) * Y, count[ids] + 1
            labels.append(run.graph.labels[sample.seeds])
        assert found[split].metrics == metrics_of(torch.cat(logits), np.concatenate(labels))
    # And not what a fixed M gives: samples share nodes.
    assert found["test"].error_bound != run.evaluate()["test"].error_bound


def test_means_that_cannot_move_are_refused(runs, tmp_path):
    with pytest.raises(InputError, match="has no M, since gamma is 0"):
        runs["plain"].evaluate(update_means=True)
    mapped = tiny_run(tmp_path, means_home="disk", epochs=1)
    before = bytes_of(mapped.folder.path)
    with pytest.raises(InputError, match=r"lies on disk \(means_home=disk\)"):
        mapped.evaluate(update_means=True)
    assert bytes_of(mapped.folder.path) == before


def test_stored_is_the_model_on_stored_samples(each):
    logits, labels = [], []
    for sample in each.samples["test"]:
        X, mu, seen = inputs(each, sample.node_ids)
        with torch.no_grad():
            logits.append(each.model(sample, X, mu, seen=seen))
        labels.append(each.graph.labels[sample.seeds])
    assert each.evaluate()["test"].metrics == metrics_of(torch.cat(logits), np.concatenate(labels))


def test_the_bound_is_at_least_the_distance(each):
    found, true, energy = each.evaluate()["test"].error_bound, [], each.model.energy
    for sample in each.samples["test"]:
        X, mu, seen = inputs(each, sample.node_ids)
        with torch.no_grad():
            Y = each.model.embed(sample, X, mu, seen=seen)
            exact = musegnn.solve(each.model.f(X).double(), sample, energy, mu, seen=seen)
        true.append(float((Y - exact).norm() / Y.norm()))
    assert max(true) <= found <= 20 * max(true)


def test_fresh_samples_are_a_function_of_the_seed(run):
    seven = run.evaluate(how="online", seed=7)
    assert run.evaluate(how="online", seed=7) == seven
    assert run.evaluate(how="online", seed=8)["test"].error_bound != seven["test"].error_bound
    stored, default = run.evaluate(), run.evaluate(how="online")
    assert default["test"].error_bound != stored["test"].error_bound
    # With the seed of the stored samples these are the stored samples.
    assert run.evaluate(how="online", seed=run.samples.seed) == stored


def test_hops_are_dense_algebra_on_whole_neighborhoods(runs):
    for kind, hops in {"means": 1, "mask": 2, "plain": 2}.items():
        check_hops(runs[kind], hops)


def check_hops(run, hops):
    reach = np.eye(run.graph.num_nodes, dtype=bool)
    rows = np.repeat(np.arange(len(reach)), np.diff(run.graph.indptr))
    reach[rows, run.graph.indices] = True
    near = np.linalg.matrix_power(reach.astype(int), hops) > 0
    draws = Draws(run.graph, FullKHop(hops), "test", batch_size=20, seed=run.samples.seed + 1)
    logits, labels, bounds = [], [], []
    for index in range(len(draws)):
        seeds = draws.seeds(index)
        nodes = np.flatnonzero(near[seeds].any(axis=0))
        Y, bound = dense(run, nodes)
        with torch.no_grad():
            logits.append(run.model.g(torch.from_numpy(Y[np.searchsorted(nodes, seeds)]).float()))
        labels.append(run.graph.labels[seeds])
        bounds.append(bound)
    found = run.evaluate(("test",), "hops", hops=hops)["test"]
    assert found.metrics == metrics_of(torch.cat(logits), np.concatenate(labels))
    assert found.error_bound == pytest.approx(max(bounds), rel=1e-2)


def test_full_is_the_whole_graph(each, monkeypatch, tmp_path):
    kept = []

    def spy(*given, **named):
        kept.append(evaluation_embed(*given, **named))
        return kept[-1]

    evaluation_embed = evaluation.embed_graph
    monkeypatch.setattr(evaluation, "embed_graph", spy)
    found = each.evaluate(("train", "test", "none"), "full", scratch=tmp_path)
    everyone = np.arange(each.graph.num_nodes)
    X, mu, seen = inputs(each, everyone)
    with torch.no_grad():
        Y = each.model.embed(each.graph, X, mu, seen=seen)
        logits = each.model.g(Y)
    assert torch.allclose(kept[0].Y, Y, rtol=0, atol=1e-6 * float(Y.abs().max()))
    for split, code in {"train": 0, "test": 2, "none": -1}.items():
        nodes = np.flatnonzero(each.graph.split == code)
        assert found[split].metrics == metrics_of(logits[nodes], each.graph.labels[nodes])
        assert found[split].num_labeled == len(nodes)
    exact, bound = dense(each, everyone)
    assert np.allclose(Y, exact, atol=1e-4)
    assert found["test"].error_bound == pytest.approx(bound, rel=1e-2)
    assert not list(tmp_path.iterdir())


def test_corrected_and_smoothed_it_is_the_formula_on_predictions_of_all_nodes(each, tmp_path):
    """Dense, in float64."""
    graph, t = each.graph, 0.1
    A = np.eye(graph.num_nodes)
    A[np.repeat(np.arange(len(A)), np.diff(graph.indptr)), graph.indices] = 1
    root = 1 / np.sqrt(A.sum(axis=1))
    S = root[:, None] * A * root
    everyone = np.arange(graph.num_nodes)
    X, mu, seen = inputs(each, everyone)
    with torch.no_grad():
        logits = each.model.g(each.model.embed(graph, X, mu, seen=seen))
    P, Y = logits.double().softmax(dim=1).numpy(), np.eye(graph.num_classes)[graph.labels]
    is_train = (graph.split == 0)[:, None]

    def spread(source):
        found = source
        for _ in range(50):
            found = (1 - t) * S @ found + t * source
        return found

    E = np.where(is_train, Y - P, 0)
    size, E = np.abs(E).sum() / is_train.sum(), spread(E)
    scale = size / np.maximum(np.abs(E).sum(axis=1, keepdims=True), 1e-30)
    Q = P + np.where(scale > 1000, 1, scale) * E
    scores = torch.from_numpy(spread(np.where(is_train, Y, Q)))
    found = each.evaluate(("valid", "test"), "full", scratch=tmp_path, correct_and_smooth=True)
    for split, code in {"valid": 1, "test": 2}.items():
        nodes = np.flatnonzero(graph.split == code)
        assert found[split].metrics == metrics_of(scores[nodes], graph.labels[nodes])
    plain = each.evaluate(("valid", "test"), "full", scratch=tmp_path)
    assert found["test"].error_bound == plain["test"].error_bound
    changed = scores.argmax(dim=1) != logits.argmax(dim=1)
    assert changed[torch.from_numpy(graph.split != 0)].any()


def test_classes_that_are_not_the_graphs_own_are_not_spread(tmp_path, monkeypatch):
    run = tiny_run(tmp_path, epochs=1)
    with monkeypatch.context() as patch:
        patch.setattr(run, "targets", lambda: np.zeros(run.graph.num_nodes, dtype=np.int64))
        with pytest.raises(InputError, match="this run was trained on others"):
            run.evaluate(how="full", correct_and_smooth=True)
    monkeypatch.setattr(evaluation, "total_memory", lambda: 1000)
    with pytest.raises(InputError, match="takes .* GB for the scores of all nodes"):
        run.evaluate(how="full", correct_and_smooth=True)


def test_a_node_that_two_samples_have_counts_once(tmp_path):
    graph = tiny_graph()
    run = train_on(graph, tmp_path, UniformInduced(p=0.6, num_samples=6), epochs=1)
    found = run.evaluate()["test"]
    seeds = np.concatenate([sample.seeds for sample in run.samples["test"]])
    assert found.num_labeled == len(np.unique(seeds)) < len(seeds)
    assert found.metrics["accuracy"] == run.result["test_accuracy"]
    assert run.evaluate(("test",), "hops")["test"].num_labeled == int((graph.split == 2).sum())


def test_a_split_that_is_not_there_is_left_out(tmp_path):
    graph = tiny_graph()
    graph = tiny_graph(split=np.where(graph.split == 2, -1, graph.split))
    run = train_on(graph, tmp_path, epochs=1)
    assert list(run.evaluate()) == list(run.evaluate(how="full")) == ["valid"]
    assert "test_accuracy" not in run.result
    with pytest.raises(InputError, match="no samples of the split 'test'"):
        run.evaluate(("test",))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"how": "offline"}, "how must be one of stored, online, hops, full; got 'offline'"),
        ({"splits": ()}, "no splits to evaluate"),
        ({"splits": ("tset",)}, "There is no split 'tset'.*Did you mean test?"),
        ({"splits": ("none",)}, "no samples of the split 'none'; it has train, valid, test"),
        ({"update_means": True, "how": "hops"}, "update_means=True .* is for stored samples, got how='hops'"),
        ({"splits": ("tset",), "how": "online"}, "There is no split 'tset'"),
        ({"splits": ("tset",), "how": "full"}, "There is no split 'tset'"),
        ({"how": "hops", "hops": 0}, "must be a positive integer"),
        ({"how": "full", "scratch": Path("nowhere")}, "nowhere"),
        ({"correct_and_smooth": True}, "correct_and_smooth needs all nodes: take how='full'"),
        (
            {"correct_and_smooth": True, "how": "full", "splits": ("train", "test")},
            "Smoothed predictions of training nodes are their own classes",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_said(run, given, said, monkeypatch):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    with pytest.raises(InputError, match=said):
        run.evaluate(**given)


def test_a_sampler_of_the_users_own_has_stored_samples_only(tmp_path, monkeypatch):
    run = tiny_run(tmp_path, epochs=1)
    monkeypatch.setitem(run.samples.sampler, "name", "Mine")
    with pytest.raises(InputError, match="Mine, a sampler of your own"):
        run.evaluate(how="online")
    assert run.evaluate(how="hops").keys() == run.evaluate().keys()


def test_evaluations_are_plain_numbers(run):
    one = run.evaluate()["valid"]
    assert json.loads(json.dumps(one.metrics)) == one.metrics
    assert 0 <= one.metrics["accuracy"] <= 1
