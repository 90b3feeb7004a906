"""What a user may get wrong about own files: one line each, with the file, the line and a next step."""

import gzip
import re
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from musegnn.datasets import own
from musegnn.datasets.own.edges import EdgeList
from musegnn.datasets.raw import parquet_table, text, text_table
from musegnn.errors import InputError
from musegnn.graph import Graph

GOOD = {"e.csv": "0,1\n1,2\n2,0\n", "named.csv": "ann,bob\nbob,cy\n"}


@pytest.fixture(params=["one block", "small blocks"])
def folder(request, tmp_path, monkeypatch):
    """Files without a fault; the same messages must come if every block holds a line or two."""
    if request.param == "small blocks":
        monkeypatch.setattr(text, "BLOCK_BYTES", 4)
        monkeypatch.setattr(text_table, "WORD_BLOCK_BYTES", 4)
        monkeypatch.setattr(parquet_table, "BATCH_ROWS", 1)
        monkeypatch.setattr(parquet_table, "WORD_BATCH_ROWS", 1)
    for name, content in GOOD.items():
        (tmp_path / name).write_text(content)
    return tmp_path


def error(folder, edges, **options) -> str:
    """The message, without the folder, of building a graph; it must be one line."""
    files = {key: folder / value if isinstance(value, str) else value for key, value in options.items()}
    with pytest.raises(InputError) as caught:
        Graph.from_source(own.read(folder / edges, **files))
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith((".", "'musegnn[parquet]'"))
    return message.replace(f"{folder}/", "")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "e.csv is empty. It must hold at least one row"),
        ("# only\n% comments\n", "e.csv holds only comments"),
        ("source,target\n", "e.csv has a header, but no rows."),
        ("0,1\n1\n", "e.csv, line 2: expected 2 columns separated by commas, got 1 in '1'."),
        ("0,1\n1,2,3\n", "e.csv, line 2: expected 2 columns separated by commas, got 3 in '1,2,3'."),
        ("0,1\n1\n1,2,3\n", "e.csv, line 2: expected 2 columns separated by commas, got 1 in '1'."),
        ("0 1\n1 2\n\n2 0\n", "e.csv, line 3: expected 2 columns separated by blanks, got none."),
        ("# x\nu,v\n0,1\n1,x\n", "e.csv, line 4: 'x' in column 2 is no whole number. Ids are whole numbers"),
        ("0,1\n1,-\n", "e.csv, line 2: '-' in column 2 is no whole number."),
        ("0,1\n1,\n", "e.csv, line 2: '' in column 2 is no whole number."),
        ("0 1\n1 2,5\n", "e.csv, line 2: '2,5' in column 2 is no whole number."),
        ("0,1\n1,-2\n", "e.csv, line 2: node id -2; ids must lie in [0, 4294967294]. Number the nodes"),
        ("0,1\n76561198000000001,2\n", "e.csv, line 2: node id 76561198000000001; ids must lie in"),
        ("1.0,2.0\n", "e.csv: the first edge is '1.0,2.0'; ids must be whole numbers or names."),
        ("citing,cited\n0,1\n", "e.csv begins with 'citing,cited', and node numbers follow."),
        ("0\n1\n", "e.csv has one column. An edge list needs two ids in each line"),
        ("0,1,0.5\n", "e.csv has 3 columns and no header that is known, but an edge has two ends. Name the"),
        ("u,v,rel\n0,1,0\n0,2,16\n", "e.csv, line 3: relation 16; it must lie in [0, 15]."),
        ("u,v,rel\n0,1,0\n0,2,a\n", "e.csv, line 3: 'a' in column 3 is no whole number. The first relation"),
        ("u,v,rel\n0,1,a\n0,2,\n", "e.csv, line 3: no relation. Give each edge one."),
        (
            "u,v,type\n" + "".join(f"0,1,w{i}\n" for i in range(17)),
            "e.csv has more than 16 relations (w0, w1",
        ),
        ("a,b\nb,\n", "e.csv, line 2: a node without a name."),
        ('a,b\n"c,d\n', "e.csv, line 2: a quote is not closed. Close each quote in its own line."),
        ('a,b\n"c"d,e\n', "e.csv, line 2: ',' expected after '\"'. Close each quote in its own line."),
        ("a,b\n" * 3 + '"c\nd",e\n', "e.csv, line 4: a quote is not closed."),
        ('a,b\n"c\nd",e\n', "e.csv, line 2: a quote is not closed. Close each quote"),
        (b"a,b\n\xff\xfe,c\n", "e.csv, line 2: byte 0xff is no UTF-8 text. Save the file as UTF-8."),
        (b"a,b\n" * 9 + b"c\xe9,d\n", "e.csv, line 10: byte 0xe9 is no UTF-8 text."),
        (b"\xff\xfe0\0,\0001\0\n\0", "e.csv is no text table: it holds zero bytes or endless lines."),
        (bytes(range(256)), "e.csv is no text table"),
    ],
)
def test_a_faulty_edge_list_is_named_with_its_line(content, expected, folder):
    (folder / "e.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    assert error(folder, "e.csv").startswith(expected)


@pytest.mark.parametrize(
    ("part", "edges", "content", "expected"),
    [
        (
            "labels",
            "e.csv",
            "0\n1\nspam\n",
            "p.csv, line 3: 'spam' in column 1 is no number. The first label",
        ),
        ("labels", "e.csv", "\n1\n0.5\n", "p.csv, line 3: label 0.5; a label must be a whole number from 0"),
        (
            "labels",
            "e.csv",
            "1\n2\n",
            "e.csv, line 2: node id 2, but the graph has 2 nodes; ids must lie in [0, 1]. Number the nodes",
        ),
        (
            "labels",
            "e.csv",
            "0,1\n",
            "p.csv has 2 columns and no header, so it is not clear which node a row",
        ),
        ("labels", "e.csv", "0 1\n1 1\n", "p.csv has 2 columns and no header"),
        ("labels", "e.csv", "paper,label\n0,1\n", "p.csv has the columns paper, label, so it is not clear"),
        ("labels", "e.csv", "id,label\n0,1\n0,2\n", "p.csv, line 3: node 0 is listed twice. Keep one row"),
        ("labels", "e.csv", "ann,1\n", "p.csv, line 1: 'ann' in column 1 is no whole number. Ids are whole"),
        ("labels", "named.csv", "ann,1\nbob,2\nann,2\n", "p.csv, line 3: node 'ann' is listed twice."),
        (
            "labels",
            "named.csv",
            "a\nb\nc\n",
            "named.csv has names, but features, labels and split do not say",
        ),
        ("split", "e.csv", "train\ntest\nholdout\n", "p.csv, line 3: unknown split 'holdout'; allowed are"),
        ("split", "e.csv", "id,split\n1,3\n", "p.csv, line 2: unknown split '3'; allowed are train, valid"),
        ("features", "e.csv", "1,2\n3,4\n5,x\n", "p.csv, line 3: 'x' in column 2 is no number. Correct or"),
        (
            "features",
            "e.csv",
            "1,2\n3\n5,6\n",
            "p.csv, line 2: expected 2 columns separated by commas, got 1",
        ),
        (
            "features",
            "e.csv",
            "1,2\n3,4\n",
            "e.csv, line 2: node id 2, but the graph has 2 nodes; ids must lie in [0, 1].",
        ),
        ("features", "e.csv", "1\n2\ninf\n", "features row 2 has inf in column 0; every feature must be"),
        ("features", "e.csv", "id,x\n0,1\n1,1\n0,1\n", "p.csv, line 4: node 0 is listed twice."),
        ("features", "e.csv", "id\n0\n1\n", "p.csv has ids, but no features. Write the features"),
        ("features", "named.csv", "ann,1\nbob,2\n", "p.csv has no row for node 'cy'. Give each node exactly"),
        ("features", "named.csv", "ann,1\nbob,2\nann,3\n", "p.csv, line 3: node 'ann' is listed twice."),
        (
            "nodes",
            "named.csv",
            "ann\nbob\n",
            "named.csv, line 2: node 'cy' is not in the nodes table. Add it",
        ),
        ("nodes", "named.csv", "ann\nbob\nann\n", "p.csv, line 3: node 'ann' is listed twice."),
        ("nodes", "named.csv", "ann,1\n", "p.csv has 2 columns and no header. Name them in the first line:"),
        ("nodes", "e.csv", "label\n0\n", "p.csv has no column id. Name the column of the node ids id."),
        ("nodes", "e.csv", "id\n0\n1\n1\n", "p.csv, line 4: node 1 is listed twice."),
        (
            "nodes",
            "e.csv",
            "1\n2\n3\n",
            "p.csv, line 3: node id 3, but the graph has 3 nodes; ids must lie in [0, 2]. Number the nodes",
        ),
        ("nodes", "e.csv", "ann\nbob\ncy\n", "p.csv, line 1: 'ann' in column 1 is no whole number."),
    ],
)
def test_a_faulty_table_is_named_with_its_line(part, edges, content, expected, folder):
    (folder / "p.csv").write_text(content)
    assert error(folder, edges, **{part: "p.csv"}).startswith(expected)


@pytest.mark.parametrize(
    ("first", "labels", "is_asked"),
    [
        ("a,b", None, True),
        ("film 1;film 2", None, True),
        ("ann,b", None, False),
        ("ann,cy", None, False),
        ("1.5,b", None, False),
        ("source,target", None, False),
        ("a,b", "id,label\nann,0\n", True),
        ("a,b", "id,label\nann,0\na,1\n", False),
    ],
)
def test_a_first_line_that_may_be_a_header_is_asked_about(first, labels, is_asked, folder):
    rest = "ann,bob\nbob,cy\n".replace(",", ";" if ";" in first else ",")
    (folder / "e.csv").write_text(f"{first}\n{rest}")
    (folder / "l.csv").write_text(labels or "")
    files = {} if labels is None else {"labels": folder / "l.csv"}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        own.read(folder / "e.csv", named=True, **files)
    assert [str(one.message).partition(": is")[2][:20] for one in said] == [" line 1 a header? It"] * is_asked


def test_a_single_edge_is_not_asked_about(folder):
    (folder / "e.csv").write_text("ann,bob\n")
    assert own.read(folder / "e.csv").num_nodes == 2


def test_a_header_that_is_not_known_is_asked_about_if_the_nodes_are(folder):
    (folder / "n.csv").write_text("id\nann\nbob\ncy\n")
    (folder / "e.csv").write_text("a,b\nann,bob\n")
    expected = (
        "e.csv begins with 'a,b', and neither is in n.csv: is line 1 a header? Then write source,target"
    )
    assert error(folder, "e.csv", nodes="n.csv").startswith(expected)
    (folder / "e.csv").write_text("a,ann\nann,bob\n")
    assert error(folder, "e.csv", nodes="n.csv").startswith("e.csv, line 1: node 'a' is not in the nodes")


@pytest.mark.parametrize("column", ["y", "category", "target"])
def test_a_class_under_another_name_is_asked_for(column, folder):
    (folder / "n.csv").write_text(f"id,{column}\n0,a\n1,b\n2,a\n")
    said = (
        rf"n\.csv: not used: {column}\. If the class of the nodes is among them, rename that column to label"
    )
    with pytest.warns(UserWarning, match=said):
        own.read(folder / "e.csv", nodes=folder / "n.csv")
    (folder / "l.csv").write_text("id,label\n0,1\n")
    with pytest.warns(UserWarning, match=rf"not used: {column}\.$"):
        own.read(folder / "e.csv", nodes=folder / "n.csv", labels=folder / "l.csv")


def test_a_decimal_comma_is_told(folder):
    (folder / "x.csv").write_text("id;a\n0;1,5\n1;2\n2;3\n")
    expected = "x.csv, line 2: '1,5' in column 2 is no number. Write a decimal point, not a comma."
    assert error(folder, "e.csv", features="x.csv") == expected


def test_keyed_features_must_have_every_node(folder):
    (folder / "n.txt").write_text("bob\nann\ncy\n")
    (folder / "f.csv").write_text("id,x\nann,1\nbob,2\n")
    expected = "f.csv has no row for node 'cy'. Give each node exactly one row."
    assert error(folder, "named.csv", nodes="n.txt", features="f.csv") == expected
    (folder / "f.csv").write_text("id,x\nann,1\nbob,2\neve,3\n")
    expected = (
        "f.csv, line 4: node 'eve' is not in the nodes table. Add it there, or leave the nodes table out."
    )
    assert error(folder, "named.csv", nodes="n.txt", features="f.csv") == expected


@pytest.mark.parametrize("part", ["labels", "split"])
def test_rows_in_node_order_must_be_as_many_as_nodes(part, folder):
    (folder / "n.csv").write_text("id\nann\nbob\ncy\n")
    for rows in (2, 4):
        (folder / "p.csv").write_text("1\n" * rows)
        expected = (
            f"p.csv has {rows} rows, but the graph has 3 nodes. Give each node one row, or add a column id."
        )
        assert error(folder, "named.csv", nodes="n.csv", **{part: "p.csv"}) == expected


def test_rows_without_ids_need_sorted_node_numbers(folder):
    (folder / "n.csv").write_text("id\n0\n2\n1\n")
    (folder / "l.csv").write_text("1\n1\n0\n")
    expected = "n.csv, line 3: node 2 is not in its place, and other files have rows without ids"
    assert error(folder, "e.csv", nodes="n.csv", labels="l.csv").startswith(expected)
    (folder / "l.csv").write_text("id,label\n0,1\n1,1\n2,0\n")
    own.read(folder / "e.csv", nodes=folder / "n.csv", labels=folder / "l.csv")


def test_what_is_given_twice_is_refused(folder):
    (folder / "n.csv").write_text("id,label\n0,1\n1,1\n2,0\n")
    (folder / "l.csv").write_text("1\n1\n0\n")
    expected = "n.csv has a column label, and l.csv is given, too. Leave one of them out."
    assert error(folder, "e.csv", nodes="n.csv", labels="l.csv") == expected
    expected = "num_nodes is 5, but the files name 3 nodes. Leave it out."
    assert error(folder, "named.csv", num_nodes=5) == expected
    expected = "n.csv has no row for node 3. Give each node exactly one row."
    assert error(folder, "e.csv", nodes="n.csv", num_nodes=5) == expected
    assert error(folder, "e.csv", num_nodes=0).startswith("num_nodes is 0; a graph must have between 1 and")


def test_a_file_must_be_there_be_a_file_and_have_a_known_format(folder):
    assert error(folder, "no.csv") == "no.csv does not exist. Check the path of edges."
    (folder / "sub.csv").mkdir()
    expected = "sub.csv is a folder; labels must be a file. Pass the file itself."
    assert error(folder, "e.csv", labels="sub.csv") == expected
    (folder / "e.xlsx").write_text("0,1\n")
    assert error(folder, "e.xlsx").startswith("e.xlsx has an unknown format. Allowed are .npy, .npz, .csv")
    np.save(folder / "n.npy", np.arange(3))
    assert error(folder, "e.csv", nodes="n.npy").startswith("n.npy: nodes must be a table. Allowed are .csv")


def test_damaged_archives_are_said_to_be_so(folder):
    whole = gzip.compress(b"0,1\n" * 999)
    for name, data in (("cut.csv.gz", whole[:-9]), ("no.csv.gz", b"0,1\n")):
        (folder / name).write_bytes(data)
        assert error(folder, name).startswith(f"{name} is not a complete gzip file (")
    (folder / "e.parquet").write_bytes(b"0,1\n")
    assert error(folder, "e.parquet").startswith("e.parquet is not a readable Parquet file (")
    (folder / "e.npz").write_bytes(b"0,1\n")
    assert error(folder, "e.npz").startswith("e.npz is not a readable NumPy file (")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"u": [0, 1], "v": [1, None]}, "e.parquet, row 2: '' in column 2 is no whole number."),
        (
            {"u": [0, 1], "v": [1, 2.5]},
            "e.parquet: the first edge is '0,1.0'|e.parquet, row 2: '2.5' in column 2",
        ),
        ({"u": ["0", "x"], "v": ["1", "2"]}, "e.parquet, row 2: 'x' in column 1 is no whole number."),
        ({"u": ["a", None], "v": ["b", "c"]}, "e.parquet, row 2: a node without a name."),
        ({"u": ["a", "d\ne"], "v": ["b", "c"]}, "The node name 'd\\\\ne' holds a line break."),
        ({"u": [b"a", b"\xff"], "v": [b"b", b"c"]}, "e.parquet is not a readable Parquet file"),
        ({"u": [0]}, "e.parquet has one column."),
        ({"u": pa.array([], pa.int64()), "v": pa.array([], pa.int64())}, "e.parquet has no rows."),
    ],
)
def test_a_faulty_parquet_file_is_named_with_its_row(columns, expected, folder):
    pq.write_table(pa.table(columns), folder / "e.parquet")
    assert re.match(expected, error(folder, "e.parquet"))


@pytest.mark.parametrize(
    ("lists", "expected"),
    [
        (
            [[1.0], [2.0, 3.0], [4.0]],
            "f.parquet, row 2: a list of 2 numbers in column 1, but the first row has 1.",
        ),
        ([[1.0], [None], [4.0]], "f.parquet, row 2: '[None]' in column 1 is no number."),
        ([[], [], []], "f.parquet, row 1: a list of 0 numbers in column 1"),
    ],
)
def test_lists_of_features_must_be_of_one_length(lists, expected, folder):
    pq.write_table(pa.table({"x": pa.array(lists, pa.list_(pa.float32()))}), folder / "f.parquet")
    assert error(folder, "e.csv", features="f.parquet").startswith(expected)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        (
            {"edges": np.zeros((2, 1), int)},
            "e.npz has no edges; it must hold edge_index, or indptr and indices.",
        ),
        ({"edge_index": np.zeros((2, 1))}, "e.npz, member edge_index must hold whole numbers, got float64."),
        ({"edge_index": np.zeros((3, 3), int)}, "e.npz, member edge_index must have the shape (2, edges) or"),
        (
            {"edge_index": np.zeros((2, 3), int), "relation": np.zeros(2, int)},
            "e.npz has 3 edges, but 2 values",
        ),
        ({"indptr": np.array([0, 2]), "indices": np.zeros(3, int)}, "e.npz: indptr must ascend from 0 to 3"),
        (
            {"indptr": np.array([0, 3]), "indices": np.zeros((3, 1), int)},
            "e.npz, member indices must have one",
        ),
        ({"edge_index": np.zeros((2, 1), int), "num_nodes": [3, 4]}, "e.npz, member num_nodes must be"),
        (
            {"edge_index": np.array([[0, 1], [1, 5]]), "num_nodes": 3},
            "e.npz, edge 1: node id 5, but the graph has 3 nodes; ids must lie in",
        ),
    ],
)
def test_faulty_arrays_of_edges_are_refused(arrays, expected, folder):
    np.savez(folder / "e.npz", **arrays)
    assert error(folder, "e.npz").startswith(expected)


def test_faulty_arrays_of_nodes_are_refused(folder):
    np.save(folder / "f.npy", np.zeros(3))
    expected = "features must be a (nodes, dim) matrix of numbers, got the shape (3,) of float64."
    assert error(folder, "e.csv", features="f.npy").startswith(expected)
    np.savez(folder / "l.npz", a=np.zeros(3), b=np.zeros(3))
    expected = "l.npz has the members a, b, but none called labels or y. Rename it, or save it alone."
    assert error(folder, "e.csv", labels="l.npz") == expected


@pytest.mark.parametrize(
    ("content", "relations", "expected"),
    [
        (
            "u,v,rel\n0,1,a\n0,2,b\n",
            ["a", "c"],
            "e.csv, line 3: relation 'b'; relations (--relations) has a, c. Add it there, or mend the line.",
        ),
        (
            "u,v,rel\n0,1,1\n0,2,2\n",
            ["a", "c"],
            "e.csv, line 3: relation 2; it must lie in [0, 1]. Name it in relations (--relations), or mend",
        ),
        ("0,1\n", ["a"], "e.csv has no column relation, but relations (--relations) names some. Leave them"),
        ("u,v,rel\n0,1,a\n", ["a", "a"], "relations (--relations) must be 1 to 16 different names"),
        ("u,v,rel\n0,1,a\n", ["a", ""], "relations (--relations) must be 1 to 16 different names"),
        ("u,v,rel\n0,1,a\n", [str(i) for i in range(17)], "relations (--relations) must be 1 to 16"),
    ],
)
def test_relations_that_are_named_are_all_there_may_be(content, relations, expected, folder):
    (folder / "e.csv").write_text(content)
    assert error(folder, "e.csv", relations=relations).startswith(expected)


def test_without_pyarrow_the_message_tells_how_to_get_it(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    (folder / "e.parquet").write_bytes(b"PAR1")
    assert error(folder, "e.parquet").startswith("Reading Parquet needs the package pyarrow")


def test_a_column_of_kinds_that_is_not_read_is_told_what_to_be_called(folder):
    (folder / "edges.csv").write_text("source,target,kind\n0,1,likes\n1,2,owns\n")
    words = (
        r"edges\.csv: not used: kind\. If the kind of the edges is among them, rename that column to relation"
    )
    with pytest.warns(UserWarning, match=words):
        EdgeList(folder / "edges.csv")
    (folder / "edges.csv").write_text("source,target,relation,weight\n0,1,likes,2\n1,2,owns,3\n")
    with pytest.warns(UserWarning, match=r"not used: weight\.$"):
        EdgeList(folder / "edges.csv")
