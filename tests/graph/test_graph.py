"""The graph record: what is built equals SciPy's construction, and what is saved comes back."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import Graph, InputError, ops
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource, building
from musegnn.graph.names import Names
from strategies import Edges, edge_lists, parts

ARRAYS = ("indptr", "indices", "features", "labels", "split", "relation", "node_type")
FACTS = (
    *("num_nodes", "num_edges", "num_classes", "class_names", "relation_names", "node_type_names"),
    *("name", "digest"),
)
UNTYPED = "7da1157bc746e2056addf64276e0e7b8ab65ca327fda4a8bc4c4bc5e7d7ee411"
"""The digest `a_graph` had, without types, before graphs could have them."""


def assert_adjacency(graph: Graph, edges: Edges) -> None:
    expected = oracles.symmetric_csr(edges.source, edges.target, edges.num_nodes)
    assert (graph.indptr.dtype, graph.indices.dtype) == (np.int64, np.int32)
    assert graph.indptr.tolist() == expected.indptr.tolist()
    assert graph.indices.tolist() == expected.indices.tolist()
    assert oracles.is_sound(graph.indptr, graph.indices)


def assert_equal(graph: Graph, other: Graph) -> None:
    for name in ARRAYS:
        values, others = getattr(graph, name), getattr(other, name)
        assert (values is None) == (others is None), name
        if values is not None:
            assert values.dtype == others.dtype, name
            assert np.array_equal(values, others), name
    assert [getattr(graph, name) for name in FACTS] == [getattr(other, name) for name in FACTS]
    assert (graph.node_names is None) == (other.node_names is None)
    assert graph.node_names is None or list(graph.node_names) == list(other.node_names)


def a_graph(**changes):
    """Something of everything."""
    given = {
        "edge_index": [[0, 1, 2, 2, 3, 3], [1, 2, 0, 3, 3, 2]],
        "num_nodes": 5,
        "features": np.arange(15, dtype=np.float32).reshape(5, 3),
        "labels": [0, 1, 2, -1, 0],
        "split": [0, 0, 1, -1, 2],
        "relation": [0, 1, 1, 0, 0, 1],
        "relation_names": ["cites", "likes"],
        "class_names": ["a", "b", "c"],
        "node_names": ["v", "w", "", "y", "é"],
        "node_type": [1, 0, 1, 2, 1],
        "node_type_names": ["book", "reader", "shop"],
        "name": "everything",
    }
    return Graph.from_edges(**{**given, **changes})


@given(edges=edge_lists())
def test_any_edges_become_the_matrix_scipy_makes(edges):
    assert_adjacency(Graph.from_edges(edges.index, num_nodes=edges.num_nodes), edges)


@given(edges=edge_lists())
def test_the_compiled_kernels_make_the_same_matrix(edges):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ops, "SMALL", 0)
        graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes, relation=edges.relation)
    assert_adjacency(graph, edges)
    again = Graph.from_edges(edges.index, num_nodes=edges.num_nodes, relation=edges.relation)
    assert graph.digest == again.digest


@given(edges=edge_lists())
def test_relations_and_directions_are_the_bits_of_a_dictionary(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes, relation=edges.relation)
    expected = oracles.relation_bits(edges.source, edges.target, edges.relation)
    found = dict(zip(oracles.entries(graph.indptr, graph.indices), graph.relation.tolist(), strict=True))
    assert found == expected
    assert len(graph.relation_names) == 1 + edges.relation.max(initial=0)


@given(edges=edge_lists())
def test_a_direction_that_is_kept_is_relation_0(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes, keep_direction=True)
    expected = oracles.relation_bits(edges.source, edges.target, np.zeros_like(edges.source))
    found = dict(zip(oracles.entries(graph.indptr, graph.indices), graph.relation.tolist(), strict=True))
    assert found == expected
    assert (graph.relation.dtype, graph.relation_names) == (np.uint8, None)


@given(edges=edge_lists(), order=st.randoms(use_true_random=False))
def test_the_order_of_the_edges_does_not_matter(edges, order):
    permutation = order.sample(range(len(edges.source)), len(edges.source))
    one, other = (
        Graph.from_edges(
            index, num_nodes=edges.num_nodes, relation=relation, relation_names=list("abcdefghijklmnop")
        )
        for index, relation in (
            (edges.index, edges.relation),
            (edges.index[:, permutation], edges.relation[permutation]),
        )
    )
    assert_equal(one, other)


@given(edges=edge_lists(), data=st.data())
def test_renumbering_the_nodes_renumbers_the_graph(edges, data):
    order = np.array(data.draw(st.permutations(range(edges.num_nodes))))
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    renumbered = Graph.from_edges(order[edges.index], num_nodes=edges.num_nodes)
    pairs = {(int(order[i]), int(order[j])) for i, j in oracles.entries(graph.indptr, graph.indices)}
    assert set(oracles.entries(renumbered.indptr, renumbered.indices)) == pairs


@given(edges=edge_lists())
def test_feeding_a_graph_its_own_edges_changes_nothing(edges):
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes)
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    again = Graph.from_edges([rows, graph.indices], num_nodes=graph.num_nodes)
    assert again.digest == graph.digest


@pytest.mark.parametrize("dtype", ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", ">i4", ">i8"])
def test_ids_of_any_integer_type_will_do(dtype):
    rng = np.random.default_rng(0)
    edges = Edges(100, *rng.integers(0, 100, (2, 300)), None)
    assert_adjacency(Graph.from_edges(edges.index.astype(dtype), num_nodes=100), edges)


@pytest.mark.parametrize(
    "convert",
    [np.asarray, np.asfortranarray, np.ndarray.tolist, list, torch.tensor, lambda a: torch.tensor(a.T).T],
    ids=["array", "fortran", "lists", "list of arrays", "tensor", "transposed tensor"],
)
def test_edges_in_any_container_will_do(convert):
    edges = Edges(20, *np.random.default_rng(0).integers(0, 20, (2, 50)), None)
    assert_adjacency(Graph.from_edges(convert(edges.index), num_nodes=20), edges)


@pytest.mark.parametrize("empty", [[[], []], np.empty((2, 0), dtype=np.int64), torch.empty(2, 0)])
def test_a_graph_without_edges_has_empty_rows(empty):
    graph = Graph.from_edges(empty, num_nodes=3, keep_direction=True)
    assert graph.indptr.tolist() == [0, 0, 0, 0]
    assert (graph.num_edges, graph.relation.shape) == (0, (0,))
    graph.verify()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 8),
        ({"num_nodes": 9}, 9),
        ({"features": np.zeros((10, 1))}, 10),
        ({"labels": [0] * 11}, 11),
        ({"labels": torch.zeros(11, 1)}, 11),
        ({"node_names": list("abcdefghijkl")}, 12),
        ({"node_type": [0] * 13}, 13),
    ],
)
def test_the_number_of_nodes_is_taken_from_what_is_known(given, expected):
    assert Graph.from_edges([[7, 1], [2, 3]], **given).num_nodes == expected


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("f2", "f2"), ("f4", "f4"), ("f8", "f4"), (">f4", "f4"), ("i8", "f4"), ("u1", "f4"), ("i2", "f4")],
)
def test_features_keep_float16_and_become_float32_otherwise(dtype, stored):
    features = np.arange(6).reshape(3, 2).astype(dtype)
    graph = Graph.from_edges([[0], [1]], features=features)
    assert graph.features.dtype == np.dtype(stored)
    assert np.array_equal(graph.features, features)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int64])
def test_features_may_be_a_tensor(dtype):
    features = torch.arange(6).reshape(3, 2).to(dtype)
    graph = Graph.from_edges([[0], [1]], features=features)
    assert np.array_equal(graph.features, features.numpy())


def test_features_without_columns_are_kept(tmp_path):
    graph = Graph.from_edges([[0], [1]], features=np.zeros((2, 0)))
    graph.save(tmp_path / "g")
    assert graph.features.shape == Graph.open(tmp_path / "g").features.shape == (2, 0)


def test_features_that_are_mapped_stay_mapped(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=np.float32))
    features = np.load(tmp_path / "x.npy", mmap_mode="r")
    assert np.shares_memory(Graph.from_edges([[0], [1]], features=features).features, features)


@pytest.mark.parametrize(
    "labels",
    [
        [2, -1, 0],
        np.array([2, -1, 0], dtype=np.int8),
        np.array([2.0, np.nan, 0.0]),
        np.array([2.0, np.nan, 0.0], dtype=np.float16),
        torch.tensor([[2], [-1], [0]]),
    ],
)
def test_labels_become_class_numbers(labels):
    graph = Graph.from_edges([[0], [1]], labels=labels)
    assert (graph.labels.dtype, graph.labels.tolist(), graph.num_classes) == (np.int32, [2, -1, 0], 3)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"labels": [0, 1, 0]}, 2),
        ({"labels": [-1, -1, -1]}, 0),
        ({"labels": [0, 1, 0], "num_classes": 7}, 7),
        ({"labels": [0, 1, 0], "class_names": ["a", "b", "c"]}, 3),
        ({"labels": [0, 1, 0], "class_names": ["a", "b", "c"], "num_classes": 3}, 3),
        ({"num_nodes": 3, "class_names": ["a", "b"]}, 2),
        ({"num_nodes": 3}, 0),
    ],
)
def test_the_number_of_classes_is_given_or_counted(given, expected, tmp_path):
    graph = Graph.from_edges([[0], [1]], **given)
    assert graph.num_classes == expected
    graph.save(tmp_path / "g")
    assert_equal(Graph.open(tmp_path / "g"), graph)


@pytest.mark.parametrize(
    "split",
    [
        [0, 1, 2, -1],
        np.array([0, 1, 2, -1], dtype=np.int64),
        {"train": [0], "valid": [1], "test": [2]},
        {"test": np.array([2], dtype=np.uint8), "train": torch.tensor([0, 0]), "valid": [1]},
        {"train": np.arange(4) == 0, "valid": torch.arange(4) == 1, "test": [2]},
    ],
)
def test_a_split_is_numbers_ids_or_masks(split):
    graph = Graph.from_edges([[0], [1]], labels=[0, 0, 0, 0], split=split)
    assert (graph.split.dtype, graph.split.tolist()) == (np.int8, [0, 1, 2, -1])


def test_a_part_of_a_split_may_be_empty():
    split = {"train": [1], "valid": [], "test": np.array([], dtype=np.int64)}
    graph = Graph.from_edges([[0], [1]], labels=[0, 0], split=split)
    assert graph.split.tolist() == [-1, 0]


@pytest.mark.parametrize("convert", [list, np.asarray, np.uint8, np.uint64, torch.tensor])
@pytest.mark.parametrize("names", [None, ["a", "b", "c", "not used"]])
def test_types_are_bytes_and_have_names(convert, names):
    graph = Graph.from_edges([[0], [1]], node_type=convert([2, 0, 1]), node_type_names=names)
    assert (graph.node_type.dtype, graph.node_type.tolist()) == (np.uint8, [2, 0, 1])
    assert graph.node_type_names == tuple(names or ("type 0", "type 1", "type 2"))


def test_as_many_types_as_allowed_are_kept(tmp_path):
    graph = Graph.from_edges([[0], [1]], node_type=np.arange(255))
    graph.save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    opened.verify()
    assert opened.node_type.tolist() == list(range(255))
    assert opened.node_type_names[-1] == "type 254"


def test_a_graph_without_types_is_what_it_was_before_there_were_types(tmp_path):
    graph = a_graph(node_type=None, node_type_names=None)
    assert graph.digest == UNTYPED
    graph.save(tmp_path / "g")
    assert "node_type" not in (tmp_path / "g" / "header.json").read_text()
    opened = Graph.open(tmp_path / "g")
    assert (opened.digest, opened.node_type, opened.node_type_names) == (UNTYPED, None, None)


@pytest.mark.parametrize("out", [False, True])
def test_types_may_be_made_when_they_are_needed(tmp_path, monkeypatch, out):
    """And are written in blocks."""
    monkeypatch.setattr(building.checks, "_BLOCK_ROWS", 2)
    source = a_source(
        [EdgeChunk(np.array([0]), np.array([6]))],
        node_type=lambda: np.repeat(np.arange(3, dtype=np.uint8), [3, 0, 4]),
        node_type_names=["a", "b", "c"],
    )
    graph = Graph.from_source(source, tmp_path / "g" if out else None, workers=1)
    assert graph.node_type.tolist() == [0, 0, 0, 2, 2, 2, 2]
    assert graph.node_type_names == ("a", "b", "c")


@settings(max_examples=60)
@given(edges=edge_lists(max_nodes=9), data=st.data())
def test_a_saved_graph_comes_back_in_every_part(edges, data):
    given = data.draw(parts(edges.num_nodes))
    graph = Graph.from_edges(edges.index, num_nodes=edges.num_nodes, relation=edges.relation, **given)
    with tempfile.TemporaryDirectory() as folder:
        graph.save(Path(folder) / "g")
        opened = Graph.open(Path(folder) / "g")
        assert_equal(opened, graph)
        opened.verify()
        # Hashed from the mapped arrays, not taken from the header.
        assert replace(opened, stored=None).digest == graph.digest


def test_what_is_opened_is_mapped(tmp_path):
    a_graph().save(tmp_path / "g")
    opened = Graph.open(str(tmp_path / "g"))
    for name in ARRAYS:
        assert isinstance(getattr(opened, name), np.memmap), name
    assert isinstance(opened.node_names.text, np.memmap)
    assert opened.stored.folder == tmp_path / "g"
    assert opened.provenance["name"] == "everything"
    assert set(opened.provenance) >= {"musegnn", "command", "created"}


def test_a_graph_can_be_saved_over_itself(tmp_path):
    a_graph().save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    opened.save(tmp_path / "g", overwrite=True)
    assert_equal(Graph.open(tmp_path / "g"), a_graph())
    assert_equal(opened, a_graph())


def test_equal_graphs_have_equal_digests(tmp_path):
    graph = a_graph()
    graph.save(tmp_path / "g")
    assert graph.digest == a_graph().digest == Graph.open(tmp_path / "g").digest
    assert graph.digest == a_graph(name="another name").digest
    assert graph.digest == a_graph(features=graph.features.astype(np.float64)).digest


@pytest.mark.parametrize(
    "changes",
    [
        {"edge_index": [[0, 1, 2, 2, 3, 3], [1, 2, 0, 3, 3, 1]]},
        {"edge_index": [[1, 1, 2, 2, 3, 3], [0, 2, 0, 3, 3, 2]]},
        {"features": None},
        {"features": np.arange(15, dtype=np.float16).reshape(5, 3)},
        {"features": np.arange(1, 16, dtype=np.float32).reshape(5, 3)},
        {"labels": [0, 1, 2, -1, 1]},
        {"labels": None, "split": None},
        {"split": [0, 0, 2, -1, 2]},
        {"relation": [0, 1, 1, 0, 0, 0]},
        {"relation": None, "relation_names": None},
        {"relation_names": ["cites", "loves"]},
        {"class_names": ["a", "b", "d"]},
        {"class_names": None},
        {"class_names": None, "num_classes": 4},
        {"node_names": ["v", "w", "", "y", "e"]},
        {"node_names": ["v", "w", "y", "", "é"]},
        {"node_names": None},
        {"node_type": [1, 0, 1, 1, 1]},
        {"node_type_names": ["book", "reader", "store"]},
        {"node_type_names": None},
        {"node_type": None, "node_type_names": None},
    ],
    ids=str,
)
def test_any_change_of_the_content_changes_the_digest(changes):
    assert a_graph(**changes).digest != a_graph().digest


def test_a_graph_shows_what_it_is():
    assert repr(a_graph()) == (
        "Graph('everything', num_nodes=5, num_edges=8, features=float32[3], num_classes=3)"
    )
    assert repr(Graph.from_edges([[0], [1]])) == "Graph('graph', num_nodes=2, num_edges=2)"


def test_names_of_relations_are_made_up_when_they_are_not_given():
    graph = Graph.from_edges([[0, 1], [1, 2]], relation=[0, 2])
    assert graph.relation_names == ("relation 0", "relation 1", "relation 2")


@pytest.mark.parametrize(
    ("count", "dtype"), [(1, "u1"), (4, "u1"), (5, "u2"), (8, "u2"), (9, "u4"), (16, "u4")]
)
def test_codes_are_as_small_as_the_relations_allow(count, dtype):
    relation = np.arange(count)
    graph = Graph.from_edges([[0] * count, [1] * count], relation=relation)
    assert graph.relation.dtype == np.dtype(dtype)
    assert graph.relation.tolist() == [sum(1 << 2 * r for r in relation), sum(2 << 2 * r for r in relation)]


def test_ids_are_64_bits_wide_where_32_are_too_few(monkeypatch):
    monkeypatch.setattr(building, "INDEX_LIMIT", 4)
    assert Graph.from_edges([[0], [3]]).indices.dtype == np.int32
    assert Graph.from_edges([[0], [4]]).indices.dtype == np.int64


def a_source(chunks, **changes):
    return GraphSource(**{"name": "source", "edges": lambda: iter(chunks), **changes})


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("memory", [1, 5000, 1 << 30])
@pytest.mark.parametrize("out", [False, True])
def test_a_source_in_chunks_becomes_the_graph_of_all_its_edges(tmp_path, workers, memory, out):
    rng = np.random.default_rng(1)
    index, relation = rng.integers(0, 50, (2, 120)), rng.integers(0, 3, 120)
    features = rng.random((50, 4), dtype=np.float32)
    chunks = [EdgeChunk(*index[:, part], relation[part]) for part in (slice(7), slice(7, 7), slice(7, 120))]
    blocks = [features[:20], features[20:20], features[20:]]
    source = a_source(
        chunks,
        relation_names=["a", "b", "c"],
        features=FeatureSource(dim=4, dtype=np.float32, blocks=lambda topology: iter(blocks)),
        provenance={"from": "chunks"},
    )
    folder = tmp_path / "g" if out else None
    graph = Graph.from_source(source, folder, memory=memory, workers=workers)
    expected = Graph.from_edges(
        index, features=features, relation=relation, relation_names=["a", "b", "c"], name="source"
    )
    assert_equal(graph, expected)
    assert graph.provenance["from"] == "chunks"
    assert [path.name for path in tmp_path.iterdir()] == ["g"] * out


@pytest.mark.parametrize("out", [False, True])
def test_features_can_be_computed_from_the_graph_and_the_rows_before(tmp_path, out):
    def blocks(topology):
        yield np.diff(topology.indptr)[:2, None].astype(np.float32)
        before = topology.written()
        yield np.concatenate([before[::-1], [[topology.indices.sum()]]])

    source = a_source(
        [EdgeChunk(np.array([0, 0, 1]), np.array([1, 2, 4]))],
        features=FeatureSource(dim=1, dtype=np.float32, blocks=blocks),
    )
    graph = Graph.from_source(source, tmp_path / "g" if out else None, workers=1)
    assert graph.features[:, 0].tolist() == [2, 2, 2, 2, 8]


def test_small_faults_are_found_before_the_edges_are_read():
    def edges():
        raise AssertionError("the edges were read")

    source = GraphSource(name="x", edges=edges, num_nodes=2, labels=[0, 5], num_classes=2)
    with pytest.raises(ValueError, match="labels"):
        Graph.from_source(source)


@settings(max_examples=30)
@given(edges=edge_lists(), data=st.data())
def test_an_estimate_is_never_too_small(edges, data):
    given = data.draw(parts(edges.num_nodes))
    given.pop("node_names", None)
    features = given.pop("features", None)
    rows = None if features is None else FeatureSource.of(features)
    names = [f"r{r}" for r in range(1 + edges.relation.max(initial=0))]
    source = a_source(
        [EdgeChunk(edges.source, edges.target, edges.relation)],
        num_nodes=edges.num_nodes,
        num_edges=len(edges.source),
        relation_names=names,
        features=rows,
        **given,
    )
    with tempfile.TemporaryDirectory() as folder:
        graph = Graph.from_source(source, Path(folder) / "g", workers=1)
        assert building.estimate(source).store_bytes >= graph.stored.num_bytes


def test_types_take_a_byte_a_node():
    plain, typed = (
        building.estimate(a_source([], num_nodes=50, num_edges=9, node_type=types))
        for types in (None, np.zeros(50, dtype=np.uint8))
    )
    assert typed.store_bytes - plain.store_bytes == 50


def test_a_source_that_does_not_know_its_size_has_no_estimate():
    assert building.estimate(a_source([], num_nodes=5)) is None
    assert building.estimate(a_source([], num_edges=5)).store_bytes > 0


def test_free_space_is_that_of_the_nearest_folder_that_exists(tmp_path):
    assert building.free_bytes(tmp_path / "a" / "b") > 0


def test_names_given_as_names_are_kept():
    names = Names.of(["a", "b"])
    assert Graph.from_edges([[0], [1]], node_names=names).node_names[1] == "b"


def test_a_graph_too_large_for_the_disk_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(building, "free_bytes", lambda folder: 10)
    source = a_source([EdgeChunk(np.array([0]), np.array([1]))], num_nodes=2, num_edges=1)
    with pytest.raises(ValueError, match=r"Importing source may take .* GB free\. Free some space") as caught:
        Graph.from_source(source, tmp_path / "g")
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_graph_made_from_a_stored_one_is_another(tmp_path):
    graph = Graph.from_edges([[0, 1], [1, 2]], labels=[0, 1, 2])
    graph.save(tmp_path / "g")
    opened = Graph.open(tmp_path / "g")
    assert opened.digest == graph.digest
    changed = replace(opened, labels=np.zeros(3, dtype=np.int32))
    assert changed.digest != graph.digest
    assert replace(opened, num_classes=9).digest != graph.digest


@pytest.mark.parametrize(
    ("part", "values", "message"),
    [
        ("labels", np.array([0, 1, 9], np.int32), r"labels\[2\] is 9"),
        ("labels", np.array([0, -7, 1], np.int32), r"labels\[1\] is -7"),
        ("split", np.array([0, 1, 9], np.int8), r"split\[2\] is 9"),
        ("features", np.array([[0], [np.nan], [1]], np.float32), "features row 1 has nan"),
        ("relation", np.array([1, 1, 1, 2], np.uint8), "has its relations, at one end only"),
        ("node_type", np.array([0, 2, 1], np.uint8), r"node_type\[1\] is 2; it must lie in \[0, 1\]"),
        ("node_names", Names(np.frombuffer(b"a\nb\n", np.uint8), np.array([0, 2, 3, 4])), "do not fit"),
    ],
)
def test_verify_finds_values_that_must_not_be(part, values, message):
    graph = Graph.from_edges(
        [[0, 1], [1, 2]],
        labels=[0, 1, 2],
        split=[0, 1, 2],
        features=np.zeros((3, 1)),
        node_type=[0, 1, 1],
        keep_direction=True,
    )
    graph.verify()
    with pytest.raises(InputError, match=message):
        replace(graph, **{part: values}).verify()
