"""Histories and caches against dictionaries of rows, and their limits: no staleness is the base model."""

from dataclasses import dataclass

import dense_layers as dense
import numpy as np
import pytest
import torch
from dense_layers import CLOSE, KINDS, TUNED, drawn, model_of, rows_of

from machine import one_thread as one_thread
from musegnn import Cluster, ShadowKHop
from musegnn.baselines import histories
from musegnn.sampling.base import FreeSampler

EXACT = {"rtol": 1e-6, "atol": 1e-9}


@pytest.fixture(scope="module")
def graph():
    return dense.small_graph()


@dataclass(frozen=True)
class Scattered(FreeSampler):
    """Every third node, or whatever: parts without any regard to edges."""

    num_samples: int = 3

    def draw(self, graph, index, rng):
        return np.arange(index, graph.num_nodes, self.num_samples, dtype=graph.indices.dtype)


def logits_by_id(graph, model, samples):
    found = {}
    for sample in samples:
        rows = model(sample, rows_of(graph, sample.node_ids))
        found |= dict(zip(sample.seeds.tolist(), rows, strict=True))
    return torch.stack([found[node] for node in sorted(found)])


@pytest.mark.parametrize("history", ["gas", "graphfm", "freshgnn"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_part_is_the_base_model_on_the_whole_graph(graph, kind, history):
    momentum = 0.0 if history == "freshgnn" else 0.4
    base = model_of(kind, graph, **TUNED)
    model = model_of(kind, graph, history=history, momentum=momentum, **TUNED)
    (sample,) = drawn(graph, Cluster(parts=1))
    x = rows_of(graph, sample.node_ids)
    for _ in range(2):
        found, truth = model(sample, x), base(sample, x)
        torch.testing.assert_close(found, truth, **EXACT)
        for one, logits in ((model, found), (base, truth)):
            one.zero_grad()
            logits.square().sum().backward()
        for (name, weight), other in zip(model.named_parameters(), base.parameters(), strict=True):
            torch.testing.assert_close(weight.grad, other.grad, msg=name, **EXACT)


@pytest.mark.parametrize("sampler", [Cluster(parts=4), Scattered()])
@pytest.mark.parametrize("kind", KINDS)
def test_exact_histories_give_the_logits_of_the_whole_graph(graph, kind, sampler):
    model, ids = model_of(kind, graph, history="gas", **TUNED), np.flatnonzero(graph.split == 0)
    *hidden, logits = dense.embed(kind, model, rows_of(graph, slice(None)), dense.matrix(graph))
    samples = drawn(graph, sampler)
    model.memory.table[:] = torch.stack(hidden).detach()
    for _ in range(2):
        torch.testing.assert_close(logits_by_id(graph, model, samples), logits[ids], **EXACT)
    torch.testing.assert_close(model.memory.table, torch.stack(hidden).detach(), **EXACT)


@pytest.mark.parametrize("kind", KINDS)
def test_visits_without_a_step_between_them_come_to_the_whole_graph(graph, kind):
    """After as many rounds as there are layers, no row is stale."""
    model, ids = model_of(kind, graph, history="gas"), np.flatnonzero(graph.split == 0)
    logits = dense.embed(kind, model, rows_of(graph, slice(None)), dense.matrix(graph))[-1]
    samples = drawn(graph, Cluster(parts=4))
    first, *_, last = (logits_by_id(graph, model, samples) for _ in range(3))
    assert (first - logits[ids]).abs().max() > 1e-3
    torch.testing.assert_close(last, logits[ids], **EXACT)


def by_table(kind, model, graph, sample, table, momentum):
    """One step of GNNAutoScale or GraphFM on matrices of the whole graph; the table is moved."""
    A, x = dense.matrix(graph), rows_of(graph, slice(None))
    degree, inside = A.sum(dim=1), torch.zeros(graph.num_nodes, dtype=torch.bool)
    inside[sample.node_ids.astype(np.int64)] = True
    outside = ~inside & (A[inside].sum(dim=0) > 0)
    *hidden, last = model.layers
    for number, layer in enumerate(hidden):
        own = dense.finish(kind, layer, dense.combine(kind, layer, x, A, degree)[inside])
        # What comes from inside, and nothing else.
        partly = dense.combine(kind, layer, x, A * inside.double(), degree)
        heard = dense.finish(kind, layer, partly)[outside].detach()
        table[number, outside] = (1 - momentum) * table[number, outside] + momentum * heard
        table[number, inside] = own.detach()
        x = table[number].clone().index_put((inside,), own)
    return dense.combine(kind, last, x, A, degree)[sample.seeds.astype(np.int64)]


@pytest.mark.parametrize(("history", "momentum"), [("gas", 0.0), ("graphfm", 0.4)])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_training_by_a_table(graph, kind, history, momentum):
    model = model_of(kind, graph, history=history, **TUNED)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    table = torch.zeros(2, graph.num_nodes, 6, dtype=torch.float64)
    for sample in 2 * drawn(graph, Cluster(parts=3)):
        expected = by_table(kind, model, graph, sample, table, momentum)
        logits = model(sample, rows_of(graph, sample.node_ids))
        dense.check_equal(model, logits, expected)
        torch.testing.assert_close(model.memory.table, table, **CLOSE)
        optimizer.zero_grad()
        logits.square().sum().backward()
        optimizer.step()


def by_dictionary(kind, model, graph, sample, cache, clock, share):
    """One step of FreshGNN, row by row; returns the logits and moves the cache by their square's gradient."""
    A, x, ids = dense.matrix(sample), rows_of(graph, sample.node_ids), sample.node_ids.tolist()
    *hidden, last = model.layers
    rows = []
    for number, layer in enumerate(hidden):
        x = dense.finish(kind, layer, dense.combine(kind, layer, x, A, A.sum(dim=1)))
        fresh = {i: cache[number, v] for i, v in enumerate(ids) if (number, v) in cache}
        fresh = {i: row for i, (row, born) in fresh.items() if clock - born <= histories.AGE_LIMIT}
        x = torch.stack([fresh.get(i, x[i]) for i in range(len(ids))])
        rows.append((x, fresh))
    logits = dense.combine(kind, last, x, A, A.sum(dim=1))[: sample.num_seeds]
    slopes = torch.autograd.grad(logits.square().sum(), [x for x, _ in rows], retain_graph=True)
    for number, ((x, fresh), slope) in enumerate(zip(rows, slopes, strict=True)):
        norms = {i: float(row.norm()) for i, row in enumerate(slope) if row.any()}
        stable = sorted(norms, key=norms.__getitem__)[: int(share * len(norms))]
        for i in norms:
            if i in stable and i not in fresh:
                cache[number, ids[i]] = x[i].detach(), clock
            elif i not in stable and i in fresh:
                del cache[number, ids[i]]
    return logits


@pytest.mark.parametrize("kind", KINDS)
def test_steps_of_training_by_a_dictionary(graph, kind, monkeypatch):
    monkeypatch.setattr(histories, "AGE_LIMIT", 4)
    model, cache, hits = model_of(kind, graph, history="freshgnn", momentum=0.6, **TUNED), {}, 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for clock, sample in enumerate(4 * drawn(graph, ShadowKHop([3, 2]), batch_size=4)[:3], start=1):
        before = dict(cache)
        expected = by_dictionary(kind, model, graph, sample, cache, clock, 0.6)
        logits = model(sample, rows_of(graph, sample.node_ids))
        torch.testing.assert_close(logits, expected, **CLOSE)
        optimizer.zero_grad()
        logits.square().sum().backward()
        slopes = torch.autograd.grad(expected.square().sum(), [*model.parameters()])
        for (name, weight), slope in zip(model.named_parameters(), slopes, strict=True):
            torch.testing.assert_close(weight.grad, slope, msg=name, **CLOSE)
        optimizer.step()
        hits += sum(key in before for key in cache)
        alive = {key: born for key, (_, born) in cache.items()}
        born = model.memory.born
        assert {(k, v): int(born[k, v]) for k, v in (born >= 0).nonzero().tolist()} == alive
        for (number, node), (row, _) in cache.items():
            torch.testing.assert_close(model.memory.table[number, node], row, **CLOSE)
    assert hits > 20


@pytest.mark.parametrize("history", ["gas", "graphfm", "freshgnn"])
def test_evaluation_moves_nothing_and_a_copy_goes_on_alike(graph, history):
    model = model_of("SAGE", graph, history=history)
    samples = drawn(graph, Cluster(parts=3))

    def visit(one):
        for sample in samples:
            one(sample, rows_of(graph, sample.node_ids)).square().sum().backward()

    visit(model)
    before = {name: part.clone() for name, part in model.state_dict().items()}
    assert before["memory.table"].any()
    model.eval()
    first, second = (logits_by_id(graph, model, samples) for _ in range(2))
    assert torch.equal(first, second)
    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    twin = model_of("SAGE", graph, history=history)
    twin.load_state_dict(before)
    model.train()
    visit(model)
    visit(twin)
    assert torch.equal(model.memory.table, twin.memory.table)


def test_rows_outside_do_not_move_a_batch_norm(graph):
    """GraphFM judges them by the statistics there are, which come from inside."""
    models = [model_of("GCN", graph, history=history, norm="batch") for history in ("gas", "graphfm")]
    sample = drawn(graph, Cluster(parts=3))[0]
    for model in models:
        model(sample, rows_of(graph, sample.node_ids))
    statistics = [model.layers[0].norm.running_mean for model in models]
    assert torch.equal(*statistics)
    assert all(int(model.layers[0].norm.num_batches_tracked) == 1 for model in models)
