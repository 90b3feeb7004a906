"""Which nodes a text means."""

import gzip
import os
import re
import tracemalloc
from dataclasses import replace

import jaxtyping
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musegnn import Graph, InputError
from musegnn.graph.names import Names
from musegnn.inference import nodes as module
from musegnn.inference.nodes import read_nodes

NAMES = ["curl", "wget", "7", "a,b", "naïve", "all", "curl2", "x.txt", "zlib", "perl"]
"""Node 2 is called 7, node 5 all, node 7 like a file."""


def a_graph(names=NAMES, num_nodes=10):
    split = np.array([0, 1, 0, -1, 1, 0, -1, 0, 1, -1])
    labels = np.zeros(10, dtype=np.int64)
    return Graph.from_edges(
        [[0, 1], [1, 2]], num_nodes=num_nodes, labels=labels, split=split, node_names=names, name="tiny"
    )


@pytest.fixture(scope="module")
def graph():
    return a_graph()


@pytest.fixture(scope="module")
def nameless():
    return a_graph(names=None)


@pytest.fixture(autouse=True)
def in_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def meant(spec, graph):
    ids = read_nodes(spec, graph)
    assert ids.dtype == graph.indices.dtype
    return ids.tolist()


def refused(spec, graph, match):
    with pytest.raises(InputError, match=match) as caught:
        read_nodes(spec, graph)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("spec", "ids"),
    [
        ("all", list(range(10))),
        ("train", [0, 2, 5, 7]),
        ("valid", [1, 4, 8]),
        ("none", [3, 6, 9]),
        ("curl", [0]),
        ("a,b", [3]),
        ("naïve", [4]),
        ("3", [3]),
        ("0", [0]),
        ("007", [7]),
        ("id:7", [7]),
        ("name:7", [2]),
        ("name:all", [5]),
        ("name:curl", [0]),
        ("x.txt", [7]),
    ],
)
def test_words_ids_and_names(graph, spec, ids):
    assert meant(spec, graph) == ids


def test_a_graph_without_splits_has_all_nodes_in_none(graph):
    assert meant("none", replace(graph, split=None)) == list(range(10))
    refused("train", replace(graph, split=None), "tiny has no split")
    refused("test", graph, "tiny has no nodes in the split 'test'")


@pytest.mark.parametrize(
    ("spec", "match"),
    [
        ("crul", r"^No node of tiny is called 'crul'\. Did you mean curl\? Nodes are all, train"),
        ("tran", r"Did you mean train\?"),
        ("name:tran", r"^No node of tiny is called 'tran'\. Nodes are all, train"),
        ("10", "^'10' is no id of tiny, whose ids are 0 to 9, nor is a node called so"),
        ("-1", "^'-1' is no id of tiny"),
        ("9" * 5000, "^'9{60}' is no id of tiny"),
        ("id:10", r"^'10' is no id of tiny, whose ids are 0 to 9\."),
        ("id:curl", "^'curl' is no id of tiny"),
        ("name:3", "^No node of tiny is called '3'"),
        ("", "^No node of tiny is called ''"),
        ("CURL", "^No node of tiny is called 'CURL'"),
        ("curl\nwget", r"^No node of tiny is called 'curl\\nwget'"),
        ("\udcff", "^No node of tiny is called"),
        ("a\0b", "^No node of tiny is called"),
        ("x" * 9000, "^No node of tiny is called 'x{60}'"),
        ("lost.csv", r"^lost\.csv does not exist\. Check the path"),
        ("some/where", r"^some/where does not exist\. Check the path"),
        ("7", r"^7 is the id of one node and the name of another \(2\)\. Pass id:7 or name:7"),
    ],
)
def test_what_is_no_node_is_refused_in_one_line(graph, spec, match):
    refused(spec, graph, match)


def test_without_names_there_are_ids_only(nameless):
    assert meant("7", nameless) == [7]
    refused("curl", nameless, r"^'curl' cannot be found: tiny has no node names, only ids\. Nodes are all")
    refused("name:7", nameless, "tiny has no node names")
    refused("vald", nameless, r"Did you mean valid\?")
    refused("10", nameless, r"^'10' is no id of tiny, whose ids are 0 to 9\.")


# Files


@pytest.mark.parametrize("dtype", ["i4", "i8", "u1", "u8", ">i2"])
def test_ids_in_a_npy_file_come_back_ascending_and_once(graph, tmp_path, dtype):
    np.save(tmp_path / "n.npy", np.array([7, 2, 2, 9, 0, 7], dtype=dtype))
    assert meant("n.npy", graph) == [0, 2, 7, 9]


def test_a_mask_in_a_npy_file(graph, tmp_path):
    np.save(tmp_path / "n.npy", np.arange(10) % 4 == 1)
    assert meant("n.npy", graph) == [1, 5, 9]


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.array([1, 10, 11]), r"n\.npy\[1\]: '10' is no id of tiny, whose ids are 0 to 9\.$"),
        (np.array([1, -1]), r"n\.npy\[1\]: '-1' is no id"),
        (np.array([0, 2**64 - 1], dtype=np.uint64), r"n\.npy\[1\]: '18446744073709551615' is no id"),
        (np.array([0.0, 1.0]), r"must hold node ids, or a mask of the 10 nodes of tiny; got float64\[2\]"),
        (np.zeros((2, 2), dtype=int), r"got int64\[2, 2\]"),
        (np.zeros(9, dtype=bool), r"got bool\[9\]"),
        (np.zeros(0, dtype=int), r"n\.npy lists no nodes"),
        (np.zeros(10, dtype=bool), r"n\.npy lists no nodes"),
        (np.array([0, 4.5], dtype=object), "Python objects, which are never loaded"),
    ],
)
def test_other_arrays_are_refused(graph, tmp_path, array, match):
    np.save(tmp_path / "n.npy", array, allow_pickle=True)
    refused("n.npy", graph, match)


def test_a_damaged_npy_file_is_refused(graph, tmp_path):
    (tmp_path / "n.npy").write_bytes(b"no array")
    refused("n.npy", graph, r"n\.npy is not a readable NumPy file")


@pytest.mark.parametrize("name", ["n.txt", "n.csv", "n", "n.list", "n.TXT", "n.CSV"])
@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ('wget\n8\n\n  curl  \n# nothing, "here\n8\n', [0, 1, 8]),
        ("1\r\n0\r\n1", [0, 1]),
        ("\ufeffcurl\nwget", [0, 1]),
        ("8", [8]),
    ],
)
def test_a_list_has_a_node_on_each_line(graph, tmp_path, name, text, ids):
    (tmp_path / name).write_bytes(text.encode())
    assert meant(name, graph) == ids


def test_a_list_may_be_packed(graph, tmp_path):
    (tmp_path / "n.csv.gz").write_bytes(gzip.compress(b"name,x\ncurl,1\n"))
    assert meant("n.csv.gz", graph) == [0]


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("node,class\n1,0\n7,1\n", [1, 7]),
        ('package,class\ncurl,0\n"a,b",1\n', [0, 3]),
        ("id\n7\n", [7]),
        ("name\n7\ncurl\n", [0, 2]),
        ("Name,x\n7\n", [2]),
        ("# made by hand\nNODE\n7\n", [7]),
        ("curl,node\nwget,1\n", [0, 1]),
    ],
)
def test_a_csv_file_gives_its_first_column_below_a_header(graph, tmp_path, text, ids):
    (tmp_path / "n.csv").write_text(text)
    assert meant("n.csv", graph) == ids


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("n.txt", "curl\n\ncrul\n", r"^n\.txt, line 3: No node of tiny is called 'crul'\. Did you mean curl"),
        ("n.csv", "node\n1\n\n10,x\n", r"^n\.csv, line 4: '10' is no id of tiny"),
        ("n.txt", "8\ncrul\n11\n", r"^n\.txt, line 2: No node of tiny is called 'crul'"),
        ("n.txt", "crul\n8\ncrul\n", r"^n\.txt, line 1: "),
        ("n.txt", "7\n8\n10\n", r"^n\.txt, line 3: '10' is no id"),
        (
            "n.txt",
            "7\ncurl\n",
            r"^The numbers in n\.txt are ids and also names of other nodes\. Make it a \.csv",
        ),
        ("n.csv", "package\n7\n", "are ids and also names"),
        ("n.csv", "node\n", r"^n\.csv lists no nodes"),
        ("n.txt", "", r"^n\.txt lists no nodes"),
        ("n.txt", "# curl\n \n", r"^n\.txt lists no nodes"),
        ("n.txt", "curl\na\0b\n", r"^n\.txt, line 2: not text"),
        ("n.txt", "x" * (1 << 20), r"^n\.txt, line 1: longer than"),
        ("n.csv", '"' + "x\n" * (1 << 17), r"^n\.csv is not a readable CSV file \(field larger"),
        ("n.csv", "1.0\n2.0\n", r"^n\.csv, line 2: No node of tiny is called '2\.0'"),
    ],
)
def test_what_is_wrong_in_a_list_is_said_with_its_line(graph, tmp_path, name, text, match):
    (tmp_path / name).write_text(text)
    refused(name, graph, match)


def test_a_list_that_is_no_utf8_is_refused(graph, tmp_path):
    (tmp_path / "n.txt").write_bytes(b"curl\n\xff\n")
    refused("n.txt", graph, r"^n\.txt, line 2: byte 0xff is no UTF-8 text")


def test_a_list_for_a_graph_without_names(nameless, tmp_path):
    (tmp_path / "n.txt").write_text("7\n3\n")
    assert meant("n.txt", nameless) == [3, 7]
    (tmp_path / "n.txt").write_text("7\ncurl\n")
    refused("n.txt", nameless, r"^n\.txt, line 2: 'curl' cannot be found: tiny has no node names")
    (tmp_path / "n.csv").write_text("name\n7\n")
    refused("n.csv", nameless, r"^n\.csv, line 1: tiny has no node names")


def test_names_that_are_numbers_are_names_where_ids_do_not_fit(tmp_path):
    """As of papers: a list of them is not a list of ids because its first numbers could be."""
    graph = a_graph(names=[str(number) for number in (3, 5, 17, 4, 100, 101, 102, 103, 104, 2**70)])
    (tmp_path / "n.txt").write_text(f"3\n100\n4\n{2**70}\n")
    assert meant("n.txt", graph) == [0, 3, 4, 9]
    # Where neither fits, the reading that went further is the one that was meant.
    (tmp_path / "n.txt").write_text("100\n4\n999\n")
    refused("n.txt", graph, r"^n\.txt, line 3: '999' is no id of tiny.*, nor is a node called so")
    (tmp_path / "n.txt").write_text("100\n4\n7\n")
    refused("n.txt", graph, r"^n\.txt, line 3: No node of tiny is called '7'")
    # Ids that are all names of the same nodes are not ambiguous.
    same = a_graph(names=[str(number) for number in range(10)])
    (tmp_path / "n.txt").write_text("3\n4\n")
    assert meant("n.txt", same) == [3, 4]
    assert meant("3", same) == [3]


def test_files_and_names_of_one_spelling(graph, tmp_path):
    for name in ("curl", "x.txt", "list", "train", "5"):
        (tmp_path / name).write_text("zlib\n")
    # A name or an id goes first, unless it looks like a file.
    assert meant("curl", graph) == [0]
    assert meant("5", graph) == [5]
    assert meant("./curl", graph) == [8]
    assert meant("./train", graph) == [8]
    assert meant("x.txt", graph) == [8]
    assert meant("name:x.txt", graph) == [7]
    assert meant("list", graph) == [8]
    (tmp_path / "folder").mkdir()
    refused("folder", graph, "^folder is not a regular file")
    refused(str(tmp_path), graph, "is not a regular file")


def test_of_nodes_of_one_name_the_first_is_meant(tmp_path):
    graph = a_graph(names=["a", "b", "b", "a", *"cdefgh"])
    (tmp_path / "n.txt").write_text("b\na\nb\n")
    assert meant("n.txt", graph) == [0, 1]
    assert meant("b", graph) == [1] == [graph.node_names.find("b")]


@settings(max_examples=300 if "MUSEGNN_PROOF" in os.environ else 20)
@given(data=st.data())
def test_a_list_means_its_nodes_in_blocks_of_any_size(tmp_path_factory, data):
    """Names that begin with a letter, so that no number is a name."""
    block = data.draw(st.sampled_from([16, 64, 1 << 20]))
    num_nodes = data.draw(st.integers(1, 60))
    text = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs", "Nd", "Z", "Cc"]))
    names = data.draw(
        st.lists(text.map(lambda t: f"v{t}"), min_size=num_nodes, max_size=num_nodes, unique=True)
    )
    nodes = data.draw(st.lists(st.integers(0, num_nodes - 1), min_size=1, max_size=80))
    lines = [names[node] if data.draw(st.booleans()) else str(node) for node in nodes]
    path = tmp_path_factory.mktemp("list") / "n.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    graph = Graph.from_edges([[0], [0]], num_nodes=num_nodes, node_names=names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_BLOCK", block)
        assert meant(str(path), graph) == sorted(set(nodes))
        np.save(path.with_suffix(".npy"), nodes)
        assert meant(str(path.with_suffix(".npy")), graph) == sorted(set(nodes))


def test_many_ids_take_a_byte_a_node_and_the_result(tmp_path, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(module, "_BLOCK", 1 << 16)
    num_nodes = 2_000_000
    graph = Graph.from_edges([[0], [num_nodes - 1]], num_nodes=num_nodes)
    np.save(tmp_path / "n.npy", np.arange(num_nodes)[::-1])
    for spec in ("all", "n.npy"):
        tracemalloc.start()
        ids = read_nodes(spec, graph)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (ids == np.arange(num_nodes)).all()
        assert peak < 1.2 * ids.nbytes + num_nodes + (8 << 20 >> 3)


def test_the_nearest_names_of_a_large_graph_are_found_among_some(graph, monkeypatch):
    monkeypatch.setattr(module, "_MAX_NEAR", 1)
    assert "Did you mean curl?" in refused("curk", graph, "curk")
    # perl comes later than the one name that is looked at.
    assert "Did you mean" not in refused("perk", graph, "perk")


def test_damaged_names_are_no_crash(graph):
    text = np.array(graph.node_names.text)
    text[:] = ord("\n")
    damaged = replace(graph, node_names=Names(text, graph.node_names.offsets))
    assert re.match("No node", refused("curl", damaged, "curl"))
