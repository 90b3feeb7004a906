"""The energy's terms, by node and edge, add up to the energy."""

import numpy as np
import problems
import pytest
from explained_cases import Case
from problems import CLOSE, refused

from musegnn import AbstractEnergy
from musegnn.explaining import tension, without_edges


@pytest.mark.parametrize("laplacian", problems.LAPLACIANS)
@pytest.mark.parametrize("penalty", ["none", "relu", "l1", "group"])
@pytest.mark.parametrize("masked", [True, False])
def test_it_adds_up_to_the_terms_of_the_energy(laplacian, penalty, masked):
    case = Case(seed=2, laplacian=laplacian, penalty=penalty, masked=masked)
    found = tension(*case.given, seen=case.seen)
    Y = case.model.embed(case.sample, case.features, case.mu, seen=case.seen).detach()
    terms = case.model.energy.terms(Y, case.Z, case.sample, mu=case.mu, seen=case.seen)
    assert found.terms().keys() == terms.keys()
    for name, value in found.terms().items():
        assert value == pytest.approx(float(terms[name]), rel=1e-10, abs=1e-12)
    np.testing.assert_allclose(found.anomaly, (Y - case.Z).norm(dim=1), **CLOSE)


def test_the_terms_of_a_node_are_its_own_and_those_of_its_edges():
    case = Case(seed=2)
    found = tension(*case.given, seen=case.seen)
    said = [found.of_node(int(node)) for node in case.sample.node_ids]
    for name, ends in (("fidelity", 1), ("consensus", 1), ("smoothness", 2)):
        assert sum(one[name] for one in said) == pytest.approx(ends * found.terms()[name])
    np.testing.assert_allclose([one["anomaly"] for one in said], found.anomaly)
    np.testing.assert_allclose([one["contradiction"] for one in said], found.contradiction)
    row, (u, v) = 4, found.edges
    assert said[row]["smoothness"] == pytest.approx(found.smoothness[(u == row) | (v == row)].sum())


def test_each_edge_stands_once_with_its_own_tension():
    case = Case(seed=1, laplacian="combinatorial")
    found = tension(*case.given, seen=case.seen)
    Y = case.model.embed(case.sample, case.features, case.mu, seen=case.seen).detach().numpy()
    edges = [(u, v) for u, v in problems.edges_of(case.sample).T.tolist() if u < v]
    assert list(zip(*found.edges.tolist(), strict=True)) == edges
    expected = [2.0 * float(((Y[u] - Y[v]) ** 2).sum()) for u, v in edges]
    np.testing.assert_allclose(found.smoothness, expected, **CLOSE)
    apart = [1 - Y[u] @ Y[v] / np.linalg.norm(Y[u]) / np.linalg.norm(Y[v]) for u, v in edges]
    np.testing.assert_allclose(found.contrast, apart, **CLOSE)


def test_a_contradiction_is_between_a_node_and_its_neighbors():
    case = Case(seed=1)
    found = tension(*case.given, seen=case.seen)
    Y = case.model.embed(case.sample, case.features, case.mu, seen=case.seen).detach().numpy()
    degree = np.diff(case.sample.indptr)
    for row in range(case.sample.num_nodes):
        neighbors = case.sample.indices[case.sample.indptr[row] : case.sample.indptr[row + 1]]
        said = (Y[neighbors] / np.sqrt(degree[neighbors] + 1)[:, None]).sum(axis=0)
        own = np.maximum(case.Z[row].numpy(), 0)
        expected = 1 - said @ own / max(np.linalg.norm(said) * np.linalg.norm(own), 1e-12)
        assert found.contradiction[row] == pytest.approx(expected if len(neighbors) else 0.0)
    alone = without_edges(case.sample, [(int(case.sample.node_ids[u]), int(case.sample.node_ids[v]))
                                        for u, v in case.sample.edge_index().T if u < v])  # fmt: skip
    assert not tension(case.model, alone, case.features, case.mu, seen=case.seen).contradiction.any()


def test_the_most_suspicious_come_first_by_their_ids():
    case = Case(seed=1)
    found = tension(*case.given, seen=case.seen)
    ids, order = case.sample.node_ids, np.argsort(-found.contrast)
    told = found.suspicious_edges(3)
    assert told == [
        (int(ids[found.edges[0, i]]), int(ids[found.edges[1, i]]), found.contrast[i]) for i in order[:3]
    ]
    node = int(ids[2])
    own = found.suspicious_edges(100, node=node)
    assert len(own) == case.sample.indptr[3] - case.sample.indptr[2] > 1
    assert all(node in pair[:2] for pair in own)
    assert [value for *_, value in own] == sorted((value for *_, value in own), reverse=True)


def test_without_means_there_is_no_consensus():
    case = Case(seed=1, gamma=0.0)
    assert tension(*case.given).terms()["consensus"] == 0


def test_other_energies_are_refused():
    class Mine(AbstractEnergy):
        def on(self, sample, mu, seen, *, like, alpha="auto"):
            raise NotImplementedError

    case = Case(seed=0)
    case.model.energy = Mine()
    with refused("Tension is known of musegnn.Energy only, got Mine."):
        tension(*case.given, seen=case.seen)
