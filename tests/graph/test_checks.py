"""Every way to get a graph wrong, and the one line that says so: what, got, allowed, next step."""

import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musegnn import Graph, InputError
from musegnn.errors import StoreError
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource, checks
from musegnn.store import FolderWriter

EDGES = [[0, 1], [1, 2]]


def assert_refused(message, call, *args, error=InputError, **options):
    """`message` is a pattern, but for its brackets."""
    with pytest.raises(error, match=re.sub(r"([()\[\]])", r"\\\1", message)) as caught:
        call(*args, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")


def refuse_edges(message, edge_index=EDGES, **given):
    assert_refused(message, Graph.from_edges, edge_index, **given)


def refuse_source(message, chunks=(), out=None, **given):
    source = GraphSource(**{"name": "x", "edges": lambda: iter(chunks), **given})
    assert_refused(message, Graph.from_source, source, out, workers=1)


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        (np.zeros((5, 2), dtype=int), r"must have shape (2, edges), got (5, 2). Pass edge_index.T."),
        (np.zeros((0, 2), dtype=int), r"got (0, 2). Pass edge_index.T."),
        (np.zeros((3, 4), dtype=int), r"got (3, 4). Stack sources and targets."),
        (np.zeros(4, dtype=int), r"got (4,). Stack sources and targets."),
        (np.zeros((2, 2, 2), dtype=int), r"got (2, 2, 2). Stack sources and targets."),
        (np.array(7), r"got (). Stack sources and targets."),
        ([], r"got (0,). Stack sources and targets."),
        ([[0, 1], [1]], r"edge_index cannot be read as an array (.*). Pass a NumPy array or a CPU tensor."),
        (torch.ones(2, 2, requires_grad=True), r"edge_index cannot be read as an array (.*requires grad.*)"),
    ],
)
def test_edges_of_another_shape(edge_index, message):
    refuse_edges(message, edge_index)


@pytest.mark.parametrize("num_nodes", [None, 5])
@pytest.mark.parametrize(
    "edge_index",
    [
        np.zeros((2, 3)),
        np.zeros((2, 3), dtype=bool),
        np.array([[0, 1], [1, 2]], dtype=object),
        [["a"], ["b"]],
        torch.zeros(2, 3),
        np.zeros((2, 1), dtype=complex),
        np.zeros((2, 1), dtype="M8[s]"),
    ],
    ids=["float", "bool", "object", "text", "float tensor", "complex", "times"],
)
def test_edges_that_are_no_integers(edge_index, num_nodes):
    message = r"edge_index must hold integers, got .*\d*. Convert it with .astype(np.int64)."
    refuse_edges(message, edge_index, num_nodes=num_nodes)


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        ([[0, 1, 3], [1, 2, 0]], r"edge 2 has the source 3; node ids must lie in [0, 2]. Check the ids"),
        ([[0, 1, 2], [1, 9, 8]], r"edge 1 has the target 9; node ids must lie in [0, 2]."),
        ([[0, -1], [1, 2]], r"edge 1 has the source -1; .* Check the ids"),
        ([[0, 1], [-5, 2]], r"edge 0 has the target -5;"),
        (np.array([[0, 255], [1, 1]], dtype=np.uint8), r"edge 1 has the source 255;"),
        (np.array([[0, -128], [1, 1]], dtype=np.int8), r"edge 1 has the source -128;"),
        (np.array([[0, 2**64 - 1], [1, 1]], dtype=np.uint64), r"edge 1 has the source 18446744073709551615;"),
    ],
)
def test_ids_out_of_range_are_named_by_their_edge(edge_index, message):
    refuse_edges(message, edge_index, num_nodes=3)


def test_the_edge_is_counted_over_all_chunks(tmp_path):
    """In chunks of 3 and 4, cut to single edges."""
    chunks = [
        EdgeChunk(np.zeros(3, dtype=np.int64), np.ones(3, dtype=np.int64)),
        EdgeChunk(np.array([0, 0, 7, 0]), np.array([1, 1, 1, 1])),
    ]
    source = GraphSource(name="x", edges=lambda: iter(chunks), num_nodes=3)
    for out in (None, tmp_path / "g"):
        message = r"edge 5 has the source 7; node ids must lie in [0, 2]."
        assert_refused(message, Graph.from_source, source, out, workers=1, memory=1)
    assert list(tmp_path.iterdir()) == []


def test_ids_that_are_all_negative():
    refuse_edges(r"edge 0 has the source -1; node ids must lie in [0, 0].", [[-1], [-2]])


@pytest.mark.parametrize("edge_index", [[[], []], np.empty((2, 0), dtype=np.int32)])
def test_a_graph_without_edges_needs_its_number_of_nodes(edge_index):
    refuse_edges(
        r"The graph is empty: it has no edges and num_nodes is not given. Pass num_nodes.", edge_index
    )


@pytest.mark.parametrize("count", [0, -1, 1 << 32, 10**30])
def test_a_number_of_nodes_that_cannot_be(count):
    message = rf"num_nodes is {count}; a graph must have between 1 and 4,294,967,295 nodes. Check the input."
    refuse_edges(message, num_nodes=count)


def test_features_of_no_node():
    refuse_edges(r"num_nodes is 0; a graph must have between 1", [[], []], features=np.zeros((0, 3)))


@pytest.mark.parametrize("count", ["5", 5.0, True, [5], np.array(5.0)])
def test_a_number_of_nodes_that_is_no_number(count):
    assert_refused(r"num_nodes must be an integer, got .*\.", checks.num_nodes, count)


def test_numbers_of_numpy_are_numbers():
    assert checks.num_nodes(np.int32(5)) == checks.num_nodes(np.uint64(5)) == 5
    assert checks.num_classes(np.int64(5), None) == 5


@pytest.mark.parametrize(
    ("target", "relation", "message"),
    [
        (np.arange(3), None, r"4 sources but 3 targets. Each edge needs both ends."),
        (np.arange(6), None, r"4 sources but 6 targets. Each edge needs both ends."),
        (
            np.arange(4),
            np.zeros(3, dtype=int),
            r"relation must be one integer per edge (4), got shape (3,) of",
        ),
        (np.arange(4), np.zeros(4), r"relation must be one integer per edge (4), got shape (4,) of float64."),
        (np.arange(4), np.array([0, 1, 2, 1]), r"relation has the number 2; it must lie in [0, 1]."),
        (np.arange(4), np.array([0, 1, -1, 1]), r"relation has the number -1; it must lie in [0, 1]."),
    ],
)
@pytest.mark.parametrize("memory", [1 << 30, 2 * 2 * 96], ids=["in one piece", "two edges a piece"])
@pytest.mark.parametrize("made", [False, True], ids=["as it is", "made by a thread"])
def test_parts_of_a_chunk_that_do_not_fit(target, relation, message, memory, made):
    chunk = EdgeChunk(np.arange(4), target, relation)
    source = GraphSource(
        name="x", edges=lambda: [(lambda: chunk) if made else chunk], num_nodes=9, relation_names=["a", "b"]
    )
    assert_refused(message, Graph.from_source, source, memory=memory, workers=1)


def test_a_chunk_made_by_a_thread_is_checked_like_any_other():
    chunk = EdgeChunk(np.array([0, 5]), np.array([1, 1]))
    refuse_source(r"edge 1 has the source 5; node ids must lie in [0, 2].", [lambda: chunk], num_nodes=3)


def test_targets_without_sources():
    chunk = EdgeChunk(np.arange(0), np.arange(2))
    refuse_source(r"0 sources but 2 targets.", [chunk], num_nodes=3)


def test_relations_where_none_were_announced():
    """Without names there is one relation, the direction."""
    chunk = EdgeChunk(np.array([0]), np.array([1]), np.array([7]))
    message = r"relation has the number 7; it must lie in [0, 0]."
    refuse_source(message, [chunk], num_nodes=3, keep_direction=True)


@pytest.mark.parametrize(
    ("relation", "message"),
    [
        ([0, 16], r"relation has the number 16; it must lie in [0, 15]. Number the relations from 0."),
        ([0, 10**15], r"relation has the number 1000000000000000; it must lie in [0, 15]."),
        ([-1, 0], r"relation has the number -1; it must lie in [0, 15]."),
        ([0], r"relation must be one integer per edge (2), got shape (1,) of int64. Number the relations"),
        ([0.0, 1.0], r"relation must be one integer per edge (2), got shape (2,) of float64."),
        ([[0, 1]], r"relation must be one integer per edge (2), got shape (1, 2) of int64."),
        ([[0], [1, 2]], r"relation cannot be read as an array (.*)."),
    ],
)
def test_relations_that_cannot_be(relation, message):
    refuse_edges(message, relation=relation)


@pytest.mark.parametrize(
    ("relation", "names", "message"),
    [
        (None, ["a"], r"relation_names is given without relation. Pass the relation of each edge, too."),
        ([0, 1], ["a"], r"relation has the number 1, but relation_names has 1 names. Name each relation."),
        ([0, 0], [], r"relation has the number 0, but relation_names has 0 names. Name each relation."),
        ([0, 0], ["a"] * 17, r"relation_names has 17 names; between 1 and 16 are allowed. Merge some"),
        ([-1, 0], ["a"], r"relation has the number -1; it must lie in [0, 0]."),
    ],
)
def test_names_of_relations_that_do_not_fit(relation, names, message):
    refuse_edges(message, relation=relation, relation_names=names)


@pytest.mark.parametrize(
    ("types", "names", "message"),
    [
        (
            [0, 1],
            None,
            r"node_type must be one integer per node (3), got shape (2,) of int64. Number the types",
        ),
        ([0, 1, 2, 3], None, r"node_type must be one integer per node (3), got shape (4,) of int64."),
        ([[0, 1, 2]], None, r"node_type must be one integer per node (3), got shape (1, 3) of int64."),
        ([0.0, 1.0, 2.0], None, r"node_type must be one integer per node (3), got shape (3,) of float64."),
        (["a", "b", "c"], None, r"node_type must be one integer per node (3), got shape (3,) of <U1."),
        ([True, False, True], None, r"node_type must be one integer per node (3), got shape (3,) of bool."),
        ([[0], [1, 2], [0]], None, r"node_type cannot be read as an array (.*)."),
        ([0, 1, 255], None, r"node_type[2] is 255; it must lie in [0, 254]. Number the types from 0"),
        (np.array([0, 255, 1], dtype=np.uint8), None, r"node_type[1] is 255; it must lie in [0, 254]."),
        ([0, -1, 2], None, r"node_type[1] is -1; it must lie in [0, 254]."),
        ([0, 2**40, 2], None, r"node_type[1] is 1099511627776; it must lie in [0, 254]."),
        ([0, 1, 2], ["a", "b"], r"node_type[2] is 2; it must lie in [0, 1]. .* name each."),
        ([0, 0, 0], [], r"node_type_names has 0 names; between 1 and 255 are allowed. Merge some types."),
        ([0, 0, 0], ["a"] * 256, r"node_type_names has 256 names; between 1 and 255 are allowed."),
        ([0, 1, 0], ["a", "a"], r"node_type_names has 'a' twice. Give each type a name of its own."),
        (None, ["a"], r"node_type_names is given without node_type. Pass the type of each node, too."),
    ],
)
def test_types_that_cannot_be(monkeypatch, types, names, message):
    """In one block of nodes, and in blocks of two."""
    refuse_edges(message, num_nodes=3, node_type=types, node_type_names=names)
    monkeypatch.setattr(checks, "_BLOCK_ROWS", 2)
    refuse_edges(message, num_nodes=3, node_type=types, node_type_names=names)


def test_a_source_with_no_names_of_relations():
    refuse_source(
        r"relation_names has 0 names; between 1 and 16 are allowed.", num_nodes=2, relation_names=[]
    )


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (np.zeros(3), r"features must be a (nodes, dim) matrix of numbers, got shape (3,) of float64."),
        (np.zeros((3, 2, 2)), r"got shape (3, 2, 2) of float64. Give each node one row."),
        (np.zeros((3, 2), dtype=bool), r"got shape (3, 2) of bool."),
        (np.zeros((3, 2), dtype=complex), r"got shape (3, 2) of complex128."),
        (np.array([["a"], ["b"], ["c"]]), r"got shape (3, 1) of <U1."),
        (np.zeros((3, 1), dtype=object), r"got shape (3, 1) of object."),
        (np.zeros((2, 4)), r"features has 2 rows, but the graph has 3 nodes. Give each node one row."),
        (np.zeros((4, 4)), r"features has 4 rows, but the graph has 3 nodes."),
        (
            [[1], [1, 2], [1]],
            r"features cannot be read as an array (.*). Pass a NumPy array or a CPU tensor.",
        ),
        (torch.zeros(3, 2, dtype=torch.bfloat16), r"features cannot be read as an array (.*BFloat16.*)"),
        (torch.zeros(3, 2, requires_grad=True), r"features cannot be read as an array (.*)"),
        (np.array(5), r"features must be a (nodes, dim) matrix of numbers, got shape () of int64."),
    ],
)
def test_features_that_are_no_matrix(features, message):
    refuse_edges(message, num_nodes=3, features=features)


@pytest.mark.parametrize("part", ["features", "labels"])
@pytest.mark.parametrize("value", [np.float32(1), np.array(1), torch.tensor(1)])
def test_a_single_value_where_each_node_needs_one(part, value):
    message = rf"{part} must have one row for each node (.*). Pass an array."
    refuse_edges(message, **{part: value})


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_feature_that_is_not_finite_is_named(monkeypatch, value, dtype):
    """In the third block of two rows."""
    monkeypatch.setattr(checks, "_BLOCK_ROWS", 2)
    features = np.ones((7, 4), dtype=dtype)
    features[5, 3] = value
    stored = np.float16 if dtype == np.float16 else np.float32
    message = rf"features row 5 has {value} in column 3; every feature must be finite as {stored.__name__}."
    refuse_edges(message, features=features)


def test_infinities_that_cancel_are_found():
    features = np.zeros((3, 2), dtype=np.float32)
    features[1] = np.inf, -np.inf
    refuse_edges(r"features row 1 has inf in column 0;", features=features)


def test_a_feature_that_the_store_cannot_hold_is_found():
    refuse_edges(r"features row 2 has inf in column 0; .* as float32.", features=[[1.0], [2.0], [1e39]])
    rows = FeatureSource(
        dim=1, dtype=np.float16, blocks=lambda topology: [np.zeros((2, 1)), np.array([[70000.0]])]
    )
    refuse_source(r"features row 2 has inf in column 0; .* as float16.", num_nodes=3, features=rows)


@given(features=hnp.arrays(np.float64, (4, 2), elements=st.floats(width=32)))
def test_features_are_refused_if_and_only_if_one_is_not_finite(features):
    """The sum of finite values may overflow; that alone is no fault."""
    fault = np.argwhere(~np.isfinite(features))
    if len(fault):
        refuse_edges(rf"features row {fault[0][0]} has .* in column {fault[0][1]};", features=features)
    else:
        assert np.array_equal(Graph.from_edges(EDGES, features=features).features, features)


def test_the_largest_features_are_finite():
    largest = np.full((3, 2), np.finfo(np.float64).max)
    checks.finite(largest, 0)
    assert Graph.from_edges(EDGES, features=np.full((3, 2), np.float32(3.4e38))).features.shape == (3, 2)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_source_with_too_few_or_too_many_rows_of_features(tmp_path, count):
    rows = FeatureSource(dim=2, dtype=np.float32, blocks=lambda topology: [np.ones((1, 2))] * count)
    message = rf"features has {count} rows, but the graph has 3 nodes. Give each node one row."
    refuse_source(message, num_nodes=3, features=rows)
    refuse_source(message, num_nodes=3, features=rows, out=tmp_path / "g")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            np.zeros((3, 2)),
            r"labels must be one class number per node, got shape (3, 2) of float64. Number the",
        ),
        (np.zeros((3, 0)), r"got shape (3, 0) of float64."),
        (
            ["a", "b", "c"],
            r"got shape (3,) of <U1. Number the classes from 0 and pass -1 for unlabeled nodes.",
        ),
        ([True, False, True], r"got shape (3,) of bool."),
        (np.zeros(3, dtype=object), r"got shape (3,) of object."),
        ([0, 1], r"labels has 2 values, but the graph has 3 nodes. Give each node one."),
        ([0, 1, 2, 3], r"labels has 4 values, but the graph has 3 nodes."),
        ([0, 1, -2], r"labels[2] is -2; a label must be a whole number in [0, 999999], or -1"),
        ([0, 0.5, 1], r"labels[1] is 0.5; a label must be a whole number"),
        ([0, np.inf, 1], r"labels[1] is inf;"),
        ([0, -np.inf, 1], r"labels[1] is -inf;"),
        ([0, 2**31 - 1, 1], r"labels[1] is 2147483647;"),
        ([0, 2**40, 1], r"labels[1] is 1099511627776;"),
        (np.array([0, 2**64 - 1, 1], dtype=np.uint64), r"labels[1] is 18446744073709551615;"),
        (np.array([0, 0.5, 1], dtype=np.float16), r"labels[1] is 0.5;"),
    ],
)
def test_labels_that_cannot_be(labels, message):
    refuse_edges(message, num_nodes=3, labels=labels)


@pytest.mark.parametrize("given", [{"num_classes": 2}, {"class_names": ["a", "b"]}])
def test_a_label_that_is_no_class(monkeypatch, given):
    """In the second block of two."""
    monkeypatch.setattr(checks, "_BLOCK_ROWS", 2)
    message = r"labels[2] is 2; a label must be a whole number in [0, 1], or -1 for an unlabeled node."
    refuse_edges(message, labels=[0, 1, 2], **given)


@pytest.mark.parametrize("count", [-1, "2", 2.0, True, [2]])
def test_a_number_of_classes_that_cannot_be(count):
    message = r"num_classes must be a whole number, 0 or more, got .*. Leave it out."
    assert_refused(message, checks.num_classes, count, None)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (
            [0, 1],
            r"split must be one integer per node (3), got shape (2,) of int64. Use 0 train, 1 valid, 2 test",
        ),
        ([0.0, 1.0, 2.0], r"split must be one integer per node (3), got shape (3,) of float64."),
        ([True, False, True], r"got shape (3,) of bool."),
        ([[0, 1, 2]], r"got shape (1, 3) of int64."),
        ([0, 1, 3], r"split[2] is 3; it must be 0 train, 1 valid, 2 test or -1 none."),
        ([-2, 1, 2], r"split[0] is -2;"),
        (np.array([0, 255, 1], dtype=np.uint8), r"split[1] is 255;"),
        ([[0], [1, 2], [0]], r"split cannot be read as an array (.*)."),
        ({"train": [0], "val": [1]}, r"split has the part 'val'; allowed are train, valid, test."),
        (
            {"train": [0, 1], "valid": [1]},
            r"node 1 is in the splits 'train' and 'valid'; a node may be in one.",
        ),
        (
            {"test": [2], "train": [0, 2]},
            r"node 2 is in the splits 'test' and 'train'; .* Remove it from one",
        ),
        ({"train": [0, 3]}, r"split 'train' names node 3; node ids must lie in [0, 2]."),
        ({"train": [0], "test": [-1]}, r"split 'test' names node -1; node ids must lie in [0, 2]."),
        (
            {"train": [0.0]},
            r"split 'train' must be node ids or a mask of 3 nodes, got shape (1,) of float64.",
        ),
        (
            {"train": [True, False]},
            r"split 'train' must be node ids or a mask of 3 nodes, got shape (2,) of bool.",
        ),
        ({"train": [[0, 1]]}, r"got shape (1, 2) of int64."),
        ({"train": np.array(0)}, r"got shape () of int64."),
        ({"train": [[0], [1, 2]]}, r"split 'train' cannot be read as an array (.*)."),
    ],
)
def test_splits_that_cannot_be(split, message):
    refuse_edges(message, num_nodes=3, labels=[0, 0, 0], split=split)


@pytest.mark.parametrize("labels", [None, [-1, 0, 0]])
def test_a_train_split_without_labels(labels):
    message = r"The train split has no labeled node: there is nothing to learn from. Pass labels"
    refuse_edges(message, num_nodes=3, labels=labels, split=[0, 1, 2])


def test_splits_to_predict_need_no_labels():
    assert Graph.from_edges(EDGES, num_nodes=3, split=[-1, 1, 2]).split.tolist() == [-1, 1, 2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"node_names": ["a", "b"]}, r"node_names has 2 names for 3. Give each exactly one."),
        ({"node_names": ["a"] * 4}, r"node_names has 4 names for 3."),
        ({"node_names": ["a", "b\nc", "d"]}, r"node_names[1] holds a newline: 'b\\nc'. Take it out."),
        (
            {"node_names": ["a", "\ud800", "b"]},
            r"node_names must be text that UTF-8 can hold (.*). Pass a str",
        ),
        (
            {"class_names": ["a", "b"], "num_classes": 3},
            r"class_names has 2 names for 3. Give each exactly one.",
        ),
    ],
)
def test_names_that_do_not_fit(given, message):
    refuse_edges(message, num_nodes=3, **given)


@pytest.mark.parametrize("count", [0, -1, 1.5, "2", True])
def test_a_number_of_workers_that_cannot_be(count):
    message = r"workers must be a whole number, 1 or more, got .*\."
    assert_refused(message, checks.num_workers, count)


def test_no_workers():
    source = GraphSource(name="x", edges=lambda: [], num_nodes=2)
    assert_refused(r"workers must be a whole number", Graph.from_source, source, workers=0)


# What the type checker of the tests would refuse first; in a user's process there is none.
WITHOUT_TYPES = """
import re, warnings
import numpy as np, scipy.sparse
from musegnn import Graph, InputError

warnings.simplefilter("error")
edges = [[0, 1], [1, 2]]
sparse = scipy.sparse.eye_array(3).tocsr()
wrong = [
    ({"num_nodes": "5"}, "num_nodes must be an integer"),
    ({"num_nodes": 3.0}, "num_nodes must be an integer"),
    ({"features": 5}, "features must have one row for each node"),
    ({"features": sparse}, "features must have one row for each node"),
    ({"features": object()}, "features must have one row for each node"),
    ({"features": "text"}, "features must be a .* matrix of numbers"),
    ({"features": sparse, "num_nodes": 3}, "features must be a .* matrix of numbers"),
    ({"features": {1: 2}, "num_nodes": 3}, "features must be a .* matrix of numbers"),
    ({"labels": object()}, "labels must have one row for each node"),
    ({"labels": 2.5}, "labels must have one row for each node"),
    ({"labels": {"a": 1}, "num_nodes": 3}, "labels must be one class number per node"),
    ({"labels": ["a", None, 3]}, "labels must be one class number per node"),
    ({"labels": [0, 1, 0], "num_classes": "2"}, "num_classes must be a whole number"),
    ({"labels": [0, 1, 0], "num_classes": 2.5}, "num_classes must be a whole number"),
    ({"labels": [0, 1, 0], "class_names": ["a", 2]}, r"class_names\\[1\\] is 2; a name must be a str"),
    ({"labels": [0, 1, 0], "class_names": np.arange(2)}, r"class_names\\[0\\] is .*; a name must be a str"),
    ({"labels": [0, 1, 0], "class_names": [None, "a"]}, r"class_names\\[0\\] is None"),
    ({"node_names": ["a", 2, "c"]}, "node_names must be text that UTF-8 can hold"),
    ({"node_names": ["a", b"b", "c"]}, "node_names must be text that UTF-8 can hold"),
    ({"node_names": np.arange(3)}, "node_names must be text that UTF-8 can hold"),
    ({"node_names": 7}, "node_names must have one row for each node"),
    ({"labels": [0, 0, 0], "split": {"train": None}}, "split 'train' must be node ids or a mask"),
    ({"labels": [0, 0, 0], "split": {1: [0], "x": [1]}}, "split has the part 1"),
    ({"labels": [0, 0, 0], "split": "train"}, "split must be one integer per node"),
    ({"labels": [0, 0, 0], "split": object()}, "split must be one integer per node"),
    ({"relation": "a"}, "relation must be one integer per edge"),
    ({"relation": {}}, "relation must be one integer per edge"),
    ({"relation": [0, 1], "relation_names": ["a", 2]}, r"relation_names\\[1\\] is 2"),
    ({"node_type": object()}, "node_type must have one row for each node"),
    ({"node_type": {}, "num_nodes": 3}, "node_type must be one integer per node"),
    ({"node_type": [0, 0, 1], "node_type_names": ["a", 2]}, r"node_type_names\\[1\\] is 2"),
    ({"edge_index": None}, "edge_index must have shape"),
    ({"edge_index": "text"}, "edge_index must have shape"),
    ({"edge_index": {}}, "edge_index must have shape"),
]
for given, message in wrong:
    try:
        graph = Graph.from_edges(**{"edge_index": edges, **given})
    except InputError as error:
        assert re.match(message, str(error)) and "\\n" not in str(error), (given, str(error))
    else:
        raise AssertionError(f"{given} made {graph}")

right = [
    {"num_nodes": np.int64(3)},
    {"edge_index": tuple(np.array(edges))},
    {"labels": (0, 1, 0), "num_classes": np.int32(2)},
    {"labels": range(3), "class_names": np.array(["a", "b", "c"])},
    {"node_names": np.array(["a", "b", "c"])},
]
for given in right:
    graph = Graph.from_edges(**{"edge_index": edges, **given})
    graph.verify()
    graph.digest
print("all of them")
"""


def test_the_checks_do_not_lean_on_the_type_checker():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TYPES], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("all of them\n", "")


def test_a_matrix_of_numpy_is_an_array():
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix(EDGES)
    assert checks.edge_index(matrix)[0].shape == (2,)


def parts_of_a_store(**changes):
    arrays = {
        "indptr": np.array([0, 1, 2, 2]),
        "indices": np.array([1, 0], dtype=np.int32),
        "features": np.ones((3, 2), dtype=np.float32),
        "labels": np.zeros(3, dtype=np.int32),
        "split": np.zeros(3, dtype=np.int8),
        "relation": np.array([1, 2], dtype=np.uint8),
        "node_type": np.array([0, 1, 1], dtype=np.uint8),
        "node_names": np.frombuffer(b"a\nb\nc\n", dtype=np.uint8),
        "node_name_offsets": np.array([0, 2, 4, 6]),
    }
    attributes = {
        "num_nodes": 3,
        "num_classes": 1,
        "class_names": ["a"],
        "relation_names": ["r"],
        "node_type_names": ["s", "t"],
    }
    provenance = {"name": "x"}
    for parts in (arrays, attributes, provenance):
        parts.update({name: value for name, value in changes.items() if name in parts})
    return (
        {name: part for name, part in parts.items() if part is not MISSING}
        for parts in (arrays, attributes, provenance)
    )


MISSING = object()


def store(folder, **changes):
    arrays, attributes, provenance = parts_of_a_store(**changes)
    with FolderWriter(folder, "graph") as writer:
        for name, values in arrays.items():
            writer.write(name, values)
        writer.publish(attributes, provenance)


def test_a_store_written_by_hand_is_a_graph(tmp_path):
    store(tmp_path / "g", more=np.zeros(3))
    graph = Graph.open(tmp_path / "g")
    graph.verify()
    assert list(graph.node_names) == ["a", "b", "c"]
    assert (graph.node_type.tolist(), graph.node_type_names) == ([0, 1, 1], ("s", "t"))


def test_a_store_of_before_there_were_types_is_a_graph(tmp_path):
    store(tmp_path / "g", node_type=MISSING, node_type_names=MISSING)
    graph = Graph.open(tmp_path / "g")
    graph.verify()
    assert (graph.node_type, graph.node_type_names) == (None, None)
    assert graph.digest == graph.stored.header.digest


@pytest.mark.parametrize(
    "part",
    [
        "indptr",
        "indices",
        "node_name_offsets",
        "num_nodes",
        "num_classes",
        "class_names",
        "relation_names",
        "node_type_names",
        "name",
    ],
)
def test_a_store_that_lacks_something(tmp_path, part):
    store(tmp_path / "g", **{part: MISSING})
    message = rf"g lacks '{part}': not a graph store. Write it again."
    assert_refused(message, Graph.open, tmp_path / "g", error=StoreError)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_nodes": 2},
        {"num_nodes": "3"},
        {"num_nodes": 3.0},
        {"num_nodes": None},
        {"num_nodes": -1, "indptr": np.zeros(0, dtype=np.int64)},
        {"num_nodes": 0, "indptr": np.zeros(1, dtype=np.int64), "indices": np.zeros(0, dtype=np.int32)},
        {"indptr": np.array([0, 1, 2, 3])},
        {"indptr": np.array([1, 1, 2, 2])},
        {"indptr": np.array([0, 1, 2, 2], dtype=np.int32)},
        {"indptr": np.array([[0], [1], [2], [2]])},
        {"indices": np.array([1, 0], dtype=np.float32)},
        {"indices": np.array([[1], [0]], dtype=np.int32)},
        {"indices": np.array([1, 0], dtype=np.uint32)},
        {"features": np.ones(3, dtype=np.float32)},
        {"features": np.ones((3, 2))},
        {"features": np.ones((2, 2), dtype=np.float32)},
        {"features": np.ones((3, 2), dtype=np.int8)},
        {"labels": np.zeros(4, dtype=np.int32)},
        {"labels": np.zeros(3)},
        {"labels": np.zeros((3, 1), dtype=np.int32)},
        {"split": np.zeros(2, dtype=np.int8)},
        {"split": np.zeros(3, dtype=np.int32)},
        {"relation": np.ones(3, dtype=np.uint8)},
        {"relation": np.ones(2, dtype=np.int8)},
        {"relation": np.ones(2, dtype=np.float32)},
        {"node_type": np.zeros(2, dtype=np.uint8)},
        {"node_type": np.zeros(3, dtype=np.int8)},
        {"node_type": np.zeros(3, dtype=np.uint16)},
        {"node_type": np.zeros((3, 1), dtype=np.uint8)},
        {"node_type": MISSING},
        {"node_type_names": None},
        {"node_type_names": []},
        {"node_type_names": "st"},
        {"node_type_names": ["s", 2]},
        {"node_type_names": ["s", "s"]},
        {"node_type_names": [f"t{i}" for i in range(256)]},
        {"node_names": np.zeros(6, dtype=np.int8)},
        {"node_names": np.zeros(5, dtype=np.uint8)},
        {"node_name_offsets": np.array([0, 2, 6])},
        {"node_name_offsets": np.array([1, 2, 4, 6])},
        {"node_name_offsets": np.array([0, 2, 4, 6], dtype=np.int32)},
        {"num_classes": 2},
        {"num_classes": -1, "class_names": None},
        {"num_classes": 1.0},
        {"num_classes": "1", "class_names": None},
        {"class_names": "a"},
        {"class_names": [1]},
        {"class_names": 5},
        {"relation_names": {"r": 1}},
        {"relation_names": [None]},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_a_store_whose_parts_do_not_fit(tmp_path, changes):
    """Every byte has its digest: only a program that does not follow the format writes such a thing."""
    store(tmp_path / "g", **changes)
    message = r"g is damaged: its arrays do not fit each other. Write it again."
    assert_refused(message, Graph.open, tmp_path / "g", error=StoreError)


def test_ids_that_are_no_numbers_from_zero_are_taken_for_names():
    """One edge between two of ten billion would be an index of eighty gigabytes."""
    with pytest.raises(
        InputError, match=r"largest node id is 10000000, but there are only 1 edges.*num_nodes"
    ):
        Graph.from_edges([[0], [10_000_000]])
    assert Graph.from_edges([[0], [999]]).num_nodes == 1000
