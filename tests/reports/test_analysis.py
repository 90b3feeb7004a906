"""What is counted for a page, against scikit-learn, brute force, and M itself."""

import json
from copy import deepcopy

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from machine import one_thread  # noqa: F401
from musegnn.ranks import Ranks
from musegnn.reports.analysis import Tally, analyze
from musegnn.reports.steps import steps_of
from musegnn.training.batches import Loader
from musegnn.training.checkpoint import finite
from musegnn.training.evaluation import evaluate, score
from musegnn.unfolding import unfold
from tiny_runs import strict_json, tiny_graph, tiny_run

GRAPH = tiny_graph(class_names=["red", "green", "blue"])
RNG = np.random.default_rng(1)
NODES = RNG.permutation(150)[:90]
LOGITS = torch.from_numpy(RNG.normal(size=(90, 3)).astype(np.float32))
TARGETS = torch.from_numpy(np.where(RNG.random(90) < 0.2, -1, GRAPH.labels[NODES]))
KNOWN = (TARGETS >= 0).numpy()
ANSWERS, TRUTH = LOGITS.argmax(1).numpy()[KNOWN], TARGETS.numpy()[KNOWN]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("run"))


def tally_of(run, **how):
    targets = np.asarray(run.graph.labels)
    loader = Loader(run.samples["test"], run.graph, targets, threads=1, device=torch.device("cpu"))
    tally = Tally(run.graph, targets, model=run.model, means=run.means)
    for one in score(run.model, run.means, loader, run.config, **how):
        tally.watch(one)
    return tally, loader


def test_classes_are_counted_as_in_scikit_learn():
    found = analyze(GRAPH, NODES, LOGITS, TARGETS)
    assert found["nodes"] == KNOWN.sum()
    assert found["confusion"] == confusion_matrix(TRUTH, ANSWERS, labels=range(3)).tolist()
    precision, recall, _, nodes = precision_recall_fscore_support(TRUTH, ANSWERS, labels=range(3))
    for k, one in enumerate(found["classes"]):
        assert one["name"] == GRAPH.class_names[k]
        assert one["nodes"] == nodes[k]
        assert one["answered"] == (ANSWERS == k).sum()
        assert [one["precision"], one["recall"], one["accuracy"]] == pytest.approx(
            [precision[k], recall[k], recall[k]]
        )


def test_bins_of_degree_and_homophily_by_brute_force():
    found = analyze(GRAPH, NODES, LOGITS, TARGETS)
    degrees, shares = {}, {}
    for node, is_right in zip(NODES[KNOWN], ANSWERS == TRUTH, strict=True):
        near = GRAPH.indices[GRAPH.indptr[node] : GRAPH.indptr[node + 1]]
        bits = len(near).bit_length()
        degrees.setdefault((2**bits // 2, max(2**bits - 1, 0)), []).append(is_right)
        if len(near):
            same = sum(GRAPH.labels[other] == GRAPH.labels[node] for other in near)
            tenth = min(10 * same // len(near), 9)
            shares.setdefault((tenth / 10, (tenth + 1) / 10), []).append(is_right)
    for bins, wanted in ((found["by_degree"], degrees), (found["by_homophily"], shares)):
        assert {(one["low"], one["high"]) for one in bins} == set(wanted)
        assert [one["low"] for one in bins] == sorted(one["low"] for one in bins)
        for one in bins:
            hits = wanted[one["low"], one["high"]]
            assert (one["nodes"], one["accuracy"]) == (len(hits), pytest.approx(np.mean(hits)))


def test_unlabeled_neighbors_do_not_count():
    labels = np.array(GRAPH.labels)
    labels[::2] = -1
    tally = Tally(GRAPH, labels)
    nodes = np.flatnonzero(labels >= 0)
    tally.add(nodes, torch.zeros(len(nodes), 3), torch.from_numpy(labels[nodes]))
    same, labeled = tally._neighbors(nodes, np.diff(GRAPH.indptr)[nodes])
    for k, node in enumerate(nodes):
        near = GRAPH.indices[GRAPH.indptr[node] : GRAPH.indptr[node + 1]]
        assert labeled[k] == (labels[near] >= 0).sum()
        assert same[k] == (labels[near] == labels[node]).sum()


def test_batches_and_ranks_add_up():
    whole = analyze(GRAPH, NODES, LOGITS, TARGETS)
    parts = [Tally(GRAPH, GRAPH.labels) for _ in range(3)]
    for part, some in zip(parts[:2], (slice(0, 17), slice(17, 90)), strict=True):
        part.add(NODES[some], LOGITS[some], TARGETS[some])
        part.bounds.append(0.5)

    class Three(Ranks):
        """What ranks tell each other, one of which has had no batch."""

        def gather_arrays(self, facts, arrays):
            told = [part.book.confusion for part in parts]
            sums = [[part.by_degree, part.by_homophily, part.by_count, part.class_sums] for part in parts]
            return [
                ([part.bounds, part.steps, part.book.num_labeled], [*own, *([] if one is None else [one])])
                for part, own, one in zip(parts, sums, told, strict=True)
            ]

    body = parts[2].add_up(Three(rank=2, size=3)).body()
    assert body.pop("error_bounds") == {"samples": 2, "sorted": [0.5, 0.5]}
    whole.pop("error_bounds")
    assert body == whole
    assert Tally(GRAPH, GRAPH.labels).add_up().body()["classes"] == []


def test_tasks_have_rates_and_no_matrix():
    targets = torch.tensor([[1.0, 0.0], [1.0, torch.nan], [0.0, 1.0], [torch.nan, torch.nan]])
    logits = torch.tensor([[2.0, 1.0], [-1.0, 1.0], [-1.0, 3.0], [1.0, 1.0]])
    found = analyze(GRAPH, [0, 1, 2, 3], logits, targets)
    assert found["confusion"] is None
    assert found["by_homophily"] == []
    assert found["nodes"] == 3
    first, second = found["classes"]
    assert (first["nodes"], first["accuracy"], first["precision"], first["recall"]) == (3, 2 / 3, 1.0, 0.5)
    assert (second["nodes"], second["accuracy"], second["precision"], second["recall"]) == (2, 0.5, 0.5, 1.0)
    assert sum(one["nodes"] * one["accuracy"] for one in found["by_degree"]) == pytest.approx(0.5 + 0 + 1)


def test_many_classes_are_folded_into_others():
    logits = torch.eye(300)[torch.arange(600) % 300]
    targets = (torch.arange(600) // 2) % 300
    found = analyze(tiny_graph(600), np.arange(600), logits, targets)
    assert len(found["classes"]) == len(found["confusion"]) == 200
    assert found["classes"][-1]["name"] == "101 others"
    assert np.sum(found["confusion"]) == 600


def test_what_an_evaluation_tells_is_what_it_finds(run):
    tally, loader = tally_of(run)
    found = evaluate(run.model, run.means, loader, run.config, bounds=None)
    body = strict_json(json.dumps(finite(tally.body())))
    hits = sum(row[k] for k, row in enumerate(body["confusion"]))
    assert hits / body["nodes"] == found.metrics["accuracy"]
    assert body["nodes"] == found.num_labeled
    assert max(body["error_bounds"]["sorted"]) == found.error_bound
    assert body["error_bounds"]["samples"] == len(loader)
    # Of the first sample, step by step as in one go.
    totals = [sum(one) for one in zip(*body["steps"]["terms"].values(), strict=True) if None not in one]
    assert totals == pytest.approx(found.energies[-len(totals) :], rel=1e-5)
    assert len(body["steps"]["error_bounds"]) == run.config.model.steps
    assert body["steps"]["error_bounds"][-1] == pytest.approx(tally.bounds[0], rel=1e-4)
    assert "tight_bound" not in body["steps"]


def test_terms_are_those_of_the_energy(run):
    _, loader = tally_of(run, bounds=0)
    one = next(iter(score(run.model, run.means, loader, run.config, bounds=0)))
    found = steps_of(run.model, one.batch, one.asked)
    with torch.no_grad():
        Z = run.model.f(one.batch.features)
        given = Z, one.batch.sample, run.model.energy, 2, "auto", one.asked.mu
        Y = unfold(*given, seen=one.asked.seen)
        terms = run.model.energy.terms(Y, Z, one.batch.sample, mu=one.asked.mu, seen=one.asked.seen)
    assert set(found["terms"]) == {"fidelity", "smoothness", "consensus", "penalty"}
    for name, value in terms.items():
        assert found["terms"][name][2] == pytest.approx(float(value), rel=1e-4, abs=1e-6)


def test_the_next_movement_is_that_of_an_update(run):
    tally, loader = tally_of(run, bounds=0)
    apart = moved = size = 0.0
    for one in score(run.model, run.means, loader, run.config, bounds=0):
        ids = torch.from_numpy(np.asarray(one.batch.sample.node_ids).astype(np.int64))
        means = deepcopy(run.means)
        seen = means.count[ids] > 0
        before = means.M[ids].clone()
        means.update(ids, one.Y)
        moved += float((means.M[ids] - before)[seen].double().square().sum())
        apart += float((one.Y - before)[seen].double().square().sum())
        size += float(one.Y[seen].double().square().sum())
    found = tally.body()["means"]
    assert found["apart"] == pytest.approx((apart / size) ** 0.5, rel=1e-5)
    assert found["moved"] == pytest.approx((moved / size) ** 0.5, rel=1e-4)
    assert 0 < found["moved"] < found["apart"]
    assert sum(one["nodes"] for one in found["nodes"]) == run.graph.num_nodes
    assert sum(one["nodes"] for one in found["nodes"] if one["low"] == 0) == int((run.means.count == 0).sum())


def test_without_an_energy_there_are_no_steps_and_no_means():
    found = analyze(GRAPH, NODES, LOGITS, TARGETS, split="valid")
    assert found["split"] == "valid"
    assert found["steps"] is found["means"] is found["error_bounds"] is None
