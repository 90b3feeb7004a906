"""What would be said without an edge or with other features is what the model says of such a sample."""

from dataclasses import replace

import numpy as np
import problems
import torch
from explained_cases import IN, Case
from problems import CLOSE, refused

import oracles
from musegnn.explaining import what_if, without_edges


def pair_of(case, row=0, number=0):
    """A node and one of its neighbors, by their ids."""
    neighbor = case.sample.indices[case.sample.indptr[row] + number]
    return int(case.sample.node_ids[row]), int(case.sample.node_ids[neighbor])


def test_without_edges_the_dense_loop_says_the_same():
    case = Case(seed=1)
    pairs = [pair_of(case), pair_of(case, 3)[::-1]]
    found = what_if(*case.given, seen=case.seen, without=pairs)
    less = without_edges(case.sample, pairs)
    A = oracles.dense(case.sample.indptr, case.sample.indices)
    rows = [[int(np.flatnonzero(case.sample.node_ids == node)[0]) for node in pair] for pair in pairs]
    for u, v in rows:
        A[u, v] = A[v, u] = 0
    assert np.array_equal(oracles.dense(less.indptr, less.indices), A)
    oracles.check_bounds(less.indptr, less.indices, less.bounds)
    before, after = (
        case.model.g(problems.descend(case.Z, s, "relu", "normalized", 2.0, 0.6, **settings(case))[-1][:1])
        for s in (case.sample, less)
    )
    np.testing.assert_allclose(found.before, before[0].detach(), **CLOSE)
    np.testing.assert_allclose(found.after, after[0].detach(), **CLOSE)
    assert abs(found.after - found.before).max() > 1e-3


def settings(case):
    return {"steps": case.steps, "mu": case.mu, "seen": case.seen}


def test_other_features_change_f_of_that_node_only():
    case = Case(seed=1)
    node, neighbor = pair_of(case)
    other = torch.randn(IN, dtype=torch.float64)
    untouched = case.features.clone()
    found = what_if(*case.given, seen=case.seen, features_of={neighbor: other})
    assert torch.equal(case.features, untouched)
    changed = case.features.clone()
    changed[int(case.sample.indices[0])] = other
    expected = case.model(case.sample, changed, case.mu, seen=case.seen)[0].detach()
    np.testing.assert_allclose(found.after, expected, **CLOSE)
    assert found.node == node
    assert found.predicted == (found.before.argmax(), found.after.argmax())


def test_nothing_changed_is_nothing_changed():
    case = Case(seed=1)
    found = what_if(*case.given, seen=case.seen, node=int(case.sample.node_ids[9]))
    assert np.array_equal(found.before, found.after)


def test_relations_of_the_other_edges_stay():
    case = Case(seed=1)
    codes = np.arange(case.sample.num_entries, dtype=np.uint16)
    less = without_edges(replace(case.sample, relation=codes), [pair_of(case)])
    rows, columns = case.sample.edge_index()
    code_of = {(row, column): code for row, column, code in zip(rows, columns, codes, strict=True)}
    assert [code_of[tuple(entry)] for entry in less.edge_index().T] == less.relation.tolist()
    assert len(less.relation) == len(codes) - 2


def test_what_is_not_there_cannot_be_removed():
    case = Case(seed=1)
    node = int(case.sample.node_ids[0])
    with refused(f"The sample has no edge between {node} and {node}. Name two neighbors."):
        without_edges(case.sample, [(node, node)])
    n = case.sample.num_nodes
    with refused(f"Node 999 is not among the {n} nodes of the sample. Draw one around it."):
        without_edges(case.sample, [(node, 999)])
    with refused(f"Node {node} has 5 features, got [2] in their place."):
        what_if(*case.given, seen=case.seen, features_of={node: torch.zeros(2)})
