"""A column `type` in the table of nodes, against plain Python on the same rows."""

import re
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musegnn.datasets import own
from musegnn.datasets.raw import text, text_table
from musegnn.errors import InputError
from musegnn.graph import Graph

KINDS = st.sampled_from(["author", "paper", "é b", "10", "9", "-2", "other"])
NUMBERS = st.integers(-3, 300).filter(lambda number: number != -1).map(str)


def write(folder, nodes, edges="0,1\n"):
    """A folder with edges and nodes."""
    (folder / "e.csv").write_text(edges)
    (folder / "n.csv").write_text(nodes)
    return {"edges": folder / "e.csv", "nodes": folder / "n.csv"}


def expected(words):
    """Numbers and names of some types, by definition."""
    are_numbers = all(re.fullmatch("-?[0-9]+", word) for word in words)
    names = sorted(set(words), key=int if are_numbers else str)
    return [names.index(word) for word in words], tuple(names)


@settings(max_examples=25)
@given(
    words=st.lists(KINDS, min_size=1, max_size=12) | st.lists(NUMBERS, min_size=1, max_size=12),
    data=st.data(),
    named=st.booleans(),
    column=st.sampled_from(["type", "Node_Type"]),
)
def test_types_survive_an_import(words, data, named, column, tmp_path_factory):
    """Rows in any order, blocks of a row or two, built in memory and in a store."""
    folder = tmp_path_factory.mktemp("types")
    count = len(words)
    ids = [f"n{i}" if named else str(i) for i in range(count)]
    order = data.draw(st.permutations(range(count)))
    ends = data.draw(st.lists(st.tuples(*[st.sampled_from(ids)] * 2), min_size=1, max_size=9))
    edges = "".join(f"{u},{v}\n" for u, v in ends)
    nodes = f"{column},id\n" + "".join(f"{words[i]},{ids[i]}\n" for i in order)
    numbers, names = expected(words)
    with patch.object(text, "BLOCK_BYTES", 24), patch.object(text_table, "WORD_BLOCK_BYTES", 24):
        files = write(folder, nodes, f"source,target\n{edges}")
        source = own.read(**files)
        graph = Graph.from_source(source)
        stored = Graph.from_source(source, folder / "g")
    stored.verify()
    assert stored.digest == graph.digest
    # Names are numbered in the order of the table.
    rows = order if named else range(count)
    assert graph.node_type_names == names
    assert graph.node_type.tolist() == [numbers[i] for i in rows]


def test_types_stand_beside_labels_and_split(tmp_path):
    nodes = "id,label,split,type\nann,x,train,person\nbob,,none,person\nrome,y,valid,place\n"
    graph = Graph.from_source(own.read(**write(tmp_path, nodes, "ann,rome\nbob,rome\n")))
    assert graph.node_type.tolist() == [0, 0, 1]
    assert graph.node_type_names == ("person", "place")
    assert (graph.labels.tolist(), graph.class_names) == ([0, -1, 1], ("x", "y"))
    assert graph.split.tolist() == [0, -1, 1]


@pytest.mark.parametrize("values", [["b", "a", "b"], [7, 10, 7]])
def test_types_of_a_parquet_table(values, tmp_path):
    write(tmp_path, "", "0,1\n1,2\n")
    pq.write_table(pa.table({"id": [0, 1, 2], "type": values}), tmp_path / "n.parquet")
    graph = Graph.from_source(own.read(tmp_path / "e.csv", nodes=tmp_path / "n.parquet"))
    numbers, names = expected(list(map(str, values)))
    assert (graph.node_type.tolist(), graph.node_type_names) == (numbers, names)


def test_numbers_too_long_to_be_numbers_are_words(tmp_path):
    long = "1" * 5000
    graph = Graph.from_source(own.read(**write(tmp_path, f"id,type\n0,{long}\n1,9\n")))
    assert graph.node_type_names == (long, "9")


def test_without_a_column_there_are_no_types(tmp_path):
    graph = Graph.from_source(own.read(**write(tmp_path, "id\n0\n1\n")))
    assert (graph.node_type, graph.node_type_names) == (None, None)


@pytest.mark.parametrize("names", [["type", "bob"], ["bob", "type"]])
def test_a_node_may_be_called_type(names, tmp_path):
    nodes = "".join(f"{name}\n" for name in names)
    graph = Graph.from_source(own.read(**write(tmp_path, nodes, "source,target\ntype,bob\n")))
    assert list(graph.node_names) == names
    assert graph.node_type is None


def test_255_types_are_allowed(tmp_path):
    nodes = "id,type\n" + "".join(f"{i},t{i:03}\n" for i in range(255))
    graph = Graph.from_source(own.read(**write(tmp_path, nodes)))
    np.testing.assert_array_equal(graph.node_type, np.arange(255))


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ("id,type\n0,a\n1,\n", "n.csv, line 3: '' is no type. Give each node one; those whose type is not"),
        ("id,type\n0,nan\n1,a\n", "n.csv, line 2: 'nan' is no type."),
        ("id,type\n0,1\n1,-1\n", "n.csv, line 3: '-1' is no type."),
        ("id,type\n1,a\n", "n.csv has no row for node 0. Give each node exactly one row."),
        ("id,type\n0,a\n0,b\n1,a\n", "n.csv, line 3: node 0 is listed twice."),
        ("type\n0\n", "n.csv, line 1: 'type' in column 1 is no whole number."),
        ("what,type\n0,a\n", "n.csv has 2 columns and no header."),
        (
            "id,type\n" + "".join(f"{i},t{i}\n" for i in range(256)),
            "n.csv, line 257: more than 255 types (t0, t1, t2, ...). Merge some, or rename that column",
        ),
    ],
)
@pytest.mark.parametrize("block_bytes", [4, 1 << 20])
def test_types_that_cannot_be_are_named_with_their_line(nodes, message, block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(text, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(text_table, "WORD_BLOCK_BYTES", block_bytes)
    files = write(tmp_path, nodes)
    num_nodes = 2 if nodes == "id,type\n1,a\n" else None
    with pytest.raises(InputError) as caught:
        Graph.from_source(own.read(**files, num_nodes=num_nodes))
    found = str(caught.value).replace(f"{tmp_path}/", "")
    assert found.startswith(message)
    assert "\n" not in found
