"""From and to PyG, SciPy and NetworkX."""

import sys
import warnings

import networkx
import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given

import oracles
from musegnn import Graph, InputError
from musegnn.errors import MissingExtraError
from musegnn.extras import EXTRAS, require
from musegnn.graph.relation import has_relation

with warnings.catch_warnings():
    # Importing PyG warns that torch.jit.script is deprecated.
    warnings.simplefilter("ignore")
    from torch_geometric.data import Data, HeteroData
from strategies import edge_lists


def a_graph(**changes):
    given = {
        "features": np.arange(8, dtype=np.float32).reshape(4, 2),
        "labels": [0, 1, -1, 2],
        "split": [0, 1, -1, 2],
        "node_type": [0, 2, 2, 1],
        "node_type_names": ["paper", "author", "venue", "none"],
    }
    return Graph.from_edges([[0, 1, 1], [1, 2, 3]], **{**given, **changes})


def test_a_graph_goes_to_pyg_and_back(tmp_path):
    """In memory and mapped."""
    a_graph().save(tmp_path / "g")
    for graph in (a_graph(), Graph.open(tmp_path / "g")):
        data = graph.to_pyg()
        data.validate()
        assert not data.is_directed()
        assert (data.num_nodes, data.num_edges) == (4, 6)
        assert data.edge_index.tolist() == [[0, 1, 1, 1, 2, 3], [1, 0, 2, 3, 1, 1]]
        assert (data.x.dtype, data.y.dtype) == (torch.float32, torch.int64)
        assert data.y.tolist() == [0, 1, -1, 2]
        assert (data.node_type.dtype, data.node_type.tolist()) == (torch.int64, [0, 2, 2, 1])
        assert data.train_mask.tolist() == [True, False, False, False]
        assert data.val_mask.tolist() == [False, True, False, False]
        assert data.test_mask.tolist() == [False, False, False, True]
        assert Graph.from_pyg(data, name="back").digest == graph.digest


def test_what_goes_to_pyg_is_a_copy(tmp_path):
    a_graph().save(tmp_path / "g")
    graph = Graph.open(tmp_path / "g")
    data = graph.to_pyg()
    for tensor in (data.x, data.y, data.train_mask, data.node_type, data.edge_index):
        tensor.zero_()
    graph.verify()
    assert graph.features.sum() == 28


def test_a_bare_graph_goes_to_pyg_and_back():
    graph = Graph.from_edges([[0], [1]], num_nodes=3)
    data = graph.to_pyg()
    assert set(data.keys()) == {"edge_index", "num_nodes"}
    assert Graph.from_pyg(data).digest == graph.digest


@given(edges=edge_lists())
def test_any_graph_goes_to_pyg_and_back(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    assert Graph.from_pyg(graph.to_pyg()).digest == graph.digest


def test_relations_of_pyg_become_bits():
    data = Data(edge_index=torch.tensor([[0, 1], [1, 2]]), edge_type=torch.tensor([1, 0]), num_nodes=3)
    graph = Graph.from_pyg(data)
    assert has_relation(graph.relation, 1).tolist() == [True, False, False, False]
    assert graph.to_pyg().relation.tolist() == graph.relation.tolist()


def test_types_of_a_pyg_graph_keep_their_names_where_it_has_them():
    plain = Data(edge_index=torch.tensor([[0], [1]]), node_type=torch.tensor([2, 0, 2]), num_nodes=3)
    graph = Graph.from_pyg(plain)
    assert graph.node_type.tolist() == [2, 0, 2]
    assert graph.node_type_names == ("type 0", "type 1", "type 2")

    typed = HeteroData()
    typed["author"].x = torch.ones(2, 3)
    typed["paper"].x = torch.zeros(3, 3)
    typed["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    graph = Graph.from_pyg(typed.to_homogeneous())
    assert graph.node_type.tolist() == [0, 0, 1, 1, 1]
    assert graph.node_type_names == ("author", "paper")
    again = graph.to_pyg().to_heterogeneous(edge_type=torch.tensor([0, 0, 1, 1]))
    assert again.node_types == ["author", "paper"]
    assert again["paper"].x.tolist() == typed["paper"].x.tolist()


def test_types_of_pyg_that_are_no_numbers_of_nodes_are_refused():
    data = Data(edge_index=torch.tensor([[0], [1]]), node_type=torch.tensor([2, 0]), num_nodes=3)
    with pytest.raises(InputError, match=r"node_type must be one integer per node \(3\), got shape \(2,\)"):
        Graph.from_pyg(data)


def test_masks_of_bytes_are_masks():
    """Not the node ids 0 and 1."""
    data = Data(
        edge_index=torch.tensor([[0], [1]]),
        y=torch.zeros(4, dtype=torch.long),
        train_mask=torch.tensor([0, 0, 1, 1], dtype=torch.uint8),
        num_nodes=4,
    )
    assert Graph.from_pyg(data).split.tolist() == [-1, -1, 0, 0]


def test_several_splits_are_refused():
    masks = torch.ones(3, 10, dtype=torch.bool)
    data = Data(edge_index=torch.tensor([[0], [1]]), train_mask=masks, num_nodes=3)
    message = (
        r"The train mask has shape \(3, 10\): several splits\. Choose one, as in data\.train_mask\[:, 0\]\."
    )
    with pytest.raises(InputError, match=message):
        Graph.from_pyg(data)


@pytest.mark.parametrize("data", [Data(num_nodes=3), HeteroData()])
def test_a_pyg_object_without_edges_is_refused(data):
    with pytest.raises(
        InputError, match=r"has no edge_index\. Pass a homogeneous torch_geometric\.data\.Data\."
    ):
        Graph.from_pyg(data)


@pytest.mark.parametrize("module", ["torch_geometric", "torch_geometric.data"])
def test_without_pyg_the_command_that_installs_it_is_named(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(
        sys.modules, "torch_geometric.data", raising=False
    ) if module == "torch_geometric" else None
    with pytest.raises(MissingExtraError) as caught:
        a_graph().to_pyg()
    assert str(caught.value) == (
        "Graph.to_pyg needs the package torch_geometric, which is not installed. "
        "Install it with: pip install 'musegnn[pyg]'"
    )
    assert isinstance(caught.value, InputError)
    assert isinstance(caught.value, ImportError)


@pytest.mark.parametrize("module", EXTRAS)
def test_every_optional_package_has_a_command(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingExtraError, match=rf"This needs the package {module}.*pip install 'musegnn\[\w+\]'$"
    ):
        require(module, "This")


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("container", ["array", "matrix"])
def test_a_matrix_of_scipy_becomes_its_pattern(kind, container):
    rng = np.random.default_rng(0)
    dense = (rng.random((12, 12)) < 0.2) * rng.normal(size=(12, 12))
    matrix = getattr(scipy.sparse, f"{kind}_{container}")(dense)
    graph = Graph.from_scipy(matrix, name="m", keep_direction=True)
    expected = oracles.symmetric_csr(*dense.nonzero(), 12)
    assert graph.indptr.tolist() == expected.indptr.tolist()
    assert graph.indices.tolist() == expected.indices.tolist()
    assert graph.name == "m"
    forward = {
        e
        for e, has in zip(oracles.entries(graph.indptr, graph.indices), graph.relation & 1, strict=True)
        if has
    }
    assert forward == {(i, j) for i, j in zip(*dense.nonzero(), strict=True) if i != j}


@given(edges=edge_lists())
def test_a_graph_goes_to_scipy_and_back(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    ones = np.ones(graph.num_edges)
    matrix = scipy.sparse.csr_array((ones, graph.indices, graph.indptr), (graph.num_nodes, graph.num_nodes))
    assert Graph.from_scipy(matrix).digest == graph.digest


def test_stored_zeros_are_no_edges():
    matrix = scipy.sparse.coo_array(([1.0, 0.0], ([0, 1], [1, 2])), shape=(3, 3))
    assert Graph.from_scipy(matrix).indices.tolist() == [1, 0]


def test_parts_come_with_a_matrix():
    graph = Graph.from_scipy(
        scipy.sparse.eye_array(3, k=1).tocsr(), labels=[0, 1, 0], features=np.ones((3, 1))
    )
    assert (graph.num_classes, graph.features.shape, graph.num_edges) == (2, (3, 1), 4)


@pytest.mark.parametrize("shape", [(3, 4), (1, 5)])
def test_a_matrix_that_is_not_square_is_refused(shape):
    with pytest.raises(
        InputError, match=rf"must be square, got shape \({shape[0]}, {shape[1]}\)\. Pass a node-by-node"
    ):
        Graph.from_scipy(scipy.sparse.csr_array(shape))


@given(edges=edge_lists(max_nodes=12))
def test_a_graph_goes_to_networkx_and_back(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    other = networkx.Graph()
    other.add_nodes_from(range(edges.num_nodes))
    other.add_edges_from(oracles.entries(graph.indptr, graph.indices))
    back = Graph.from_networkx(other)
    assert np.array_equal(back.indptr, graph.indptr)
    assert np.array_equal(back.indices, graph.indices)
    assert list(back.node_names) == [str(i) for i in range(edges.num_nodes)]
    assert back.relation is None


@pytest.mark.parametrize("kind", [networkx.DiGraph, networkx.MultiDiGraph])
def test_a_directed_graph_of_networkx_keeps_its_directions(kind):
    other = kind([("b", "a"), ("a", "c"), ("c", "a"), ("b", "a")])
    graph = Graph.from_networkx(other, name="letters")
    assert list(graph.node_names) == ["b", "a", "c"]
    found = dict(zip(oracles.entries(graph.indptr, graph.indices), graph.relation.tolist(), strict=True))
    assert found == {(0, 1): 1, (1, 0): 2, (1, 2): 3, (2, 1): 3}


def test_parts_come_with_a_graph_of_networkx():
    graph = Graph.from_networkx(networkx.path_graph(3), node_names=["x", "y", "z"], labels=[0, 1, 0])
    assert (graph.node_names.find("z"), graph.num_classes) == (2, 2)


def test_an_empty_graph_of_networkx_is_refused():
    with pytest.raises(InputError, match="num_nodes is 0"):
        Graph.from_networkx(networkx.Graph())
