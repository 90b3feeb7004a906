"""The energy's terms, by node and edge, add up to the energy."""

import numpy as np
import problems
import pytest
import torch
from explained_cases import IN, OUT, Case
from problems import CLOSE, refused
from test_relational import DIM, KINDS, graph, kinds, learned

from musegnn import AbstractEnergy, MuseGNN, Robust, Staged, unfold
from musegnn.explaining import draw, explain, tension, without_edges
from musegnn.unfolding.bonds import Bond
from musegnn.unfolding.contract import AbstractProblem
from musegnn.unfolding.penalty import NoPenalty
from musegnn.unfolding.subgraph import as_sample


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
    for name in ("fidelity", "consensus", "smoothness"):
        assert sum(one[name] for one in said) == pytest.approx(found.terms()[name])
    scores = [found.scores_of(int(node)) for node in case.sample.node_ids]
    np.testing.assert_allclose([anomaly for anomaly, _ in scores], found.anomaly)
    np.testing.assert_allclose([contradiction for _, contradiction in scores], found.contradiction)
    row, (u, v) = 4, found.edges
    # Half of each edge is paid by the other end.
    assert said[row]["smoothness"] == pytest.approx(found.by_edge[(u == row) | (v == row)].sum() / 2)


def test_each_edge_stands_once_with_its_own_tension():
    case = Case(seed=1, laplacian="combinatorial")
    found = tension(*case.given, seen=case.seen)
    Y = case.model.embed(case.sample, case.features, case.mu, seen=case.seen).detach().numpy()
    edges = [(u, v) for u, v in problems.edges_of(case.sample).T.tolist() if u < v]
    assert list(zip(*found.edges.tolist(), strict=True)) == edges
    expected = [2.0 * float(((Y[u] - Y[v]) ** 2).sum()) for u, v in edges]
    np.testing.assert_allclose(found.by_edge, expected, **CLOSE)
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
        (int(ids[found.edges[0, i]]), int(ids[found.edges[1, i]]), found.contrast[i], None) for i in order[:3]
    ]
    node = int(ids[2])
    own = found.suspicious_edges(100, node=node)
    assert len(own) == case.sample.indptr[3] - case.sample.indptr[2] > 1
    assert all(node in pair[:2] for pair in own)
    assert [edge.contrast for edge in own] == sorted((edge.contrast for edge in own), reverse=True)


def test_without_means_there_is_no_consensus():
    case = Case(seed=1, gamma=0.0)
    assert tension(*case.given).terms()["consensus"] == 0


def typed(kind, **how):
    """A graph with relations, and a model with steps on such an energy."""
    torch.manual_seed(3)
    g = graph(4, nodes=12, hub=True)
    energies = [learned(KINDS[kind](num_relations=2, gamma=0.3, **how), seed) for seed in (1, 2)]
    model = MuseGNN(IN, OUT, DIM, Staged(energies), 4, layers=1).double().eval()
    features, mu = (torch.randn(12, width, dtype=torch.float64) for width in (IN, DIM))
    return g, model, features, mu


@kinds
@pytest.mark.parametrize("lambda_per", ["relation", "channel"])
def test_a_typed_energy_is_told_relation_by_relation(kind, lambda_per):
    """That of the last stage: terms, pairs of nodes whatever their relations, and what neighbors say."""
    g, model, features, mu = typed(kind, lambda_per=lambda_per)
    sample, seen = as_sample(g, 12), torch.arange(12) % 3 > 0
    found = tension(model, sample, features, mu, seen=seen, relation_names=["uses", "owns"])
    with torch.no_grad():
        Z = model.f(features)
        Y = unfold(Z, sample, model.energy, 4, mu=mu, seen=seen)
        problem = model.energy.last.problem(Z, sample, mu=mu, seen=seen)
        terms, bonds = problem.terms(Y, Z), list(problem.bonds(Y, ["uses", "owns"]))
        contrasts = {}
        for bond in (one for one in bonds if not one.name.endswith("backward")):
            for pair, value in zip(bond.edges.T.tolist(), bond.contrast().tolist(), strict=True):
                contrasts.setdefault(tuple(sorted(pair)), []).append(value)
    told = found.terms()
    assert list(told) == ["fidelity", *(bond.name for bond in bonds), "consensus", "penalty"]
    relations = sum(told[bond.name] for bond in bonds)
    for name in ("fidelity", "consensus", "penalty"):
        assert told[name] == pytest.approx(float(terms[name]))
    assert relations == pytest.approx(float(terms["relations"]))
    assert any(len(values) > 1 for values in contrasts.values())
    expected = {pair: np.mean(values) for pair, values in sorted(contrasts.items())}
    assert list(map(tuple, found.edges.T.tolist())) == list(expected)
    np.testing.assert_allclose(found.contrast, list(expected.values()), **CLOSE)
    assert found.trust is None
    if kind in ("row", "symmetric"):
        assert found.by_edge is None
    else:
        assert found.by_edge.sum() == pytest.approx(relations)
    heard = torch.cosine_similarity(problem.heard(Y), Z.clamp(min=0))
    expected = np.where(np.diff(sample.indptr) > 0, 1 - heard.numpy(), 0)
    np.testing.assert_allclose(found.contradiction, expected, **CLOSE)
    assert draw(explain(model, sample, features, mu, seen=seen), sample, found).count("<svg")


def test_a_robust_energy_tells_whom_it_trusts():
    case = Case(seed=1, gamma=0.0)
    case.model.energy = Robust(2.0, scale=0.01)
    found = tension(*case.given)
    Y = case.model.embed(case.sample, case.features).detach()
    terms = case.model.energy.terms(Y, case.Z, case.sample)
    assert {name: pytest.approx(float(value)) for name, value in terms.items()} == found.terms()
    rows, columns = case.sample.edge_index()
    np.testing.assert_allclose(found.trust, case.model.energy.trust(Y, case.sample)[rows < columns])
    assert found.trust.min() < 0.5
    (worst,) = found.suspicious_edges(1)
    assert worst.trust == found.trust[found.contrast.argmax()]


@pytest.mark.parametrize("names", [["uses", "uses"], ["fidelity", "penalty"], ["consensus", "relations"]])
def test_relations_may_be_called_like_each_other_and_like_terms(names):
    g, model, features, mu = typed("normalized")
    found = tension(model, as_sample(g, 12), features, mu, relation_names=names)
    Z = model.f(features).detach()
    Y = unfold(Z, g, model.energy, 4, mu=mu).detach()
    energy = model.energy.last.value(Y, Z, g, mu=mu).detach()
    assert sum(found.terms().values()) == pytest.approx(float(energy))
    assert len(found.by_node) == 4


class MyProblem(AbstractProblem):
    """2 |Y - Z|^2: no edges, no fidelity by that name."""

    tau = sigma = 2.0

    def __init__(self, like, bond=None):
        super().__init__(NoPenalty(), 0.5, torch.full((len(like), 1), 0.5, dtype=like.dtype), proven=True)
        self.bond = bond

    def terms(self, Y, Z):
        return {"twice": 2 * (Y - Z).square().sum()}

    def product(self, Y):
        return 2 * Y

    def target(self, Z):
        return 2 * Z

    def bonds(self, Y, relation_names=None):
        return iter(() if self.bond is None else (self.bond(Y),))


class Mine(AbstractEnergy):
    def __init__(self, bond=None):
        super().__init__()
        self.bond = bond

    def on(self, sample, mu, seen, *, like, alpha="auto"):
        return MyProblem(like, self.bond)


def test_an_energy_that_does_not_say_what_it_wants_of_edges_has_no_tension():
    case = Case(seed=0)
    case.model.energy = Mine()
    assert tension(*case.given) is None


def test_an_energy_of_ones_own_is_told_as_far_as_it_says():
    """Its bonds cost nothing; what neighbors say it does not tell, and its term is not one of ours."""
    case = Case(seed=0, gamma=0.0)

    def bond(Y):
        return Bond("mine", torch.tensor([[0, 1], [1, 2]]), Y, Y, by_node=torch.zeros(len(Y)))

    case.model.energy = Mine(bond)
    found = tension(*case.given)
    assert list(found.by_node) == ["mine"]
    assert found.contradiction is None
    assert found.scores_of(int(case.sample.node_ids[0])) == (found.anomaly[0], None)
    Y = case.model.embed(case.sample, case.features).detach()
    assert found.rest == {"twice": pytest.approx(float(2 * (Y - case.Z).square().sum()))}
    assert "mine 0" in repr(found)


def test_who_is_not_there_is_refused():
    case = Case(seed=1)
    found = tension(*case.given, seen=case.seen)
    absent = max(case.sample.node_ids) + 1
    words = f"Node {absent} is not among the {case.sample.num_nodes} nodes of the sample. Pass the id of one."
    for ask in (found.of_node, found.scores_of, lambda node: found.suspicious_edges(node=node)):
        with refused(words):
            ask(absent)
    with refused("top must be 0 or more; got -1."):
        found.suspicious_edges(-1)
