"""A user's own files, against plain Python on the same rows."""

import csv
import gzip
import io
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musegnn.datasets import own
from musegnn.datasets.own import edges as own_edges
from musegnn.datasets.raw import array_table, text, text_table
from musegnn.graph import Graph

NUM_NODES = 12
NAMES = [f"node {i}" if i % 3 else f"\u00e9{i}" for i in range(NUM_NODES)]
CLASSES = ("biology", "math", "physics")
SPLITS = ("train", "valid", "test", "")


def write(path, rows, header=None, separator=",", ending="\n"):
    """A text table, gzipped if the path says so, or Parquet."""
    rows = [header, *rows] if header and path.suffix != ".parquet" else list(rows)
    if path.suffix == ".parquet":
        names = header or [f"c{i}" for i in range(len(rows[0]))]
        pq.write_table(pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), path)
        return path
    written = io.StringIO()
    csv.writer(written, delimiter=separator, lineterminator=ending).writerows(rows)
    data = written.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def built(*paths, **options) -> Graph:
    return Graph.from_source(own.read(*paths, **options))


@pytest.fixture
def example():
    """Random edges among few nodes, with all that a graph can have."""
    rng = np.random.default_rng(0)
    return {
        "edge_index": rng.integers(0, NUM_NODES, (2, 40)),
        "num_nodes": NUM_NODES,
        "features": rng.integers(-99, 99, (NUM_NODES, 3)).astype(np.float32) / 4,
        "labels": rng.integers(-1, 3, NUM_NODES),
        "split": np.concatenate([[0, 0, 0], rng.integers(-1, 3, NUM_NODES - 3)]),
    }


def edge_rows(example) -> list[list[int]]:
    return example["edge_index"].T.tolist()


@pytest.mark.parametrize("file", ["e.csv", "e.tsv", "e.txt", "e.csv.gz", "e.txt.gz", "e.parquet", "e.npy"])
@pytest.mark.parametrize("header", [None, ["source", "target"]])
@pytest.mark.parametrize("values", [".npy", ".csv", ".txt.gz", ".parquet", ".npz"])
def test_a_graph_is_the_same_in_every_format(file, header, values, example, tmp_path):
    edges = tmp_path / file
    if file == "e.npy":
        np.save(edges, example["edge_index"] if header else example["edge_index"].T)
    else:
        separator = {"e.csv": ",", "e.tsv": "\t"}.get(file, " ")
        write(edges, edge_rows(example), header, separator)
    files = {}
    for part in ("features", "labels", "split"):
        files[part] = tmp_path / f"{part}{values}"
        if values == ".npy":
            np.save(files[part], example[part])
        elif values == ".npz":
            np.savez_compressed(files[part], **{part: example[part], "other": np.zeros(1)})
        else:
            rows = np.reshape(example[part], (NUM_NODES, -1)).tolist()
            write(files[part], rows, separator="," if values == ".csv" else " ")
    expected = Graph.from_edges(**example, keep_direction=True)
    graph = built(edges, **files)
    assert graph.digest == expected.digest
    assert graph.name == "e"
    assert Graph.from_source(own.read(edges, **files), tmp_path / "store").digest == expected.digest


@pytest.mark.parametrize("is_csr", [True, False])
@pytest.mark.parametrize("names", [("features", "labels"), ("x", "y")])
def test_an_archive_may_hold_the_whole_graph(is_csr, names, example, tmp_path):
    source, target = example["edge_index"][:, np.argsort(example["edge_index"][0], kind="stable")]
    parts = {names[0]: example["features"], names[1]: example["labels"], "split": example["split"]}
    relation = np.arange(40) % 3
    if is_csr:
        counts = np.bincount(source, minlength=NUM_NODES)
        parts |= {"indptr": np.concatenate([[0], np.cumsum(counts)]), "indices": target}
    else:
        parts |= {"edge_index": np.stack([source, target]), "num_nodes": np.array(NUM_NODES)}
    np.savez(tmp_path / "all.npz", **parts, relation=relation)
    expected = Graph.from_edges(**example | {"edge_index": np.stack([source, target])}, relation=relation)
    assert built(tmp_path / "all.npz").digest == expected.digest

    other = np.zeros((NUM_NODES, 2), dtype=np.float16)
    np.save(tmp_path / "other.npy", other)
    graph = built(tmp_path / "all.npz", features=tmp_path / "other.npy")
    np.testing.assert_array_equal(graph.features, other)
    assert graph.features.dtype == np.float16


names_of_nodes = st.text(
    st.characters(exclude_characters='\n\r\0\t\x1f#%\ufeff", ', exclude_categories=["Cs", "Zs", "Cc"]),
    min_size=1,
    max_size=9,
).map(lambda name: f"n{name}")


@st.composite
def named_graphs(draw):
    """Rows of words for edges, nodes, labels and split; some nodes without an edge, label or split."""
    names = draw(st.lists(names_of_nodes, min_size=1, max_size=9, unique=True))
    some = st.sampled_from(names)
    return {
        "names": names,
        "edges": draw(st.lists(st.tuples(some, some), min_size=1, max_size=20)),
        "labels": draw(st.dictionaries(some, st.sampled_from(("", "-1", *CLASSES)), min_size=1)),
        "split": draw(st.dictionaries(some, st.sampled_from(("valid", "dev", "Test", "none")), min_size=1)),
    }


def oracle(names, edges, labels, split) -> Graph:
    """The graph of some rows, whose nodes have the given order."""
    number = {name: i for i, name in enumerate(names)}
    classes = sorted(set(labels.values()) - {"", "-1"})
    numbers = {word: i for i, word in enumerate(classes)}
    parts = {"valid": 1, "dev": 1, "test": 2}
    return Graph.from_edges(
        np.array([[number[end] for end in edge] for edge in edges]).T,
        num_nodes=len(names),
        labels=[numbers.get(labels.get(name, ""), -1) for name in names],
        split=[parts.get(split.get(name, "").lower(), -1) for name in names],
        class_names=classes or None,
        node_names=names,
        keep_direction=True,
    )


@settings(max_examples=50)
@given(
    graph=named_graphs(),
    file=st.sampled_from(["e.csv", "e.tsv", "e.txt", "e.txt.gz", "e.parquet"]),
    ending=st.sampled_from(["\n", "\r\n"]),
    header=st.sampled_from([("source", "target"), ("Src", "DST"), ("u", "v"), None]),
    has_nodes=st.booleans(),
    in_nodes=st.booleans(),
)
def test_names_are_numbered_by_the_first_table_that_has_them(
    graph, file, ending, header, has_nodes, in_nodes, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("own")
    separator = {"e.csv": ",", "e.tsv": "\t"}.get(file, " ")
    edges = write(folder / file, graph["edges"], header, separator, ending)
    labels, split = graph["labels"], graph["split"]
    files = {}
    if has_nodes and in_nodes:
        rows = [(labels.get(name, ""), name, split.get(name, "")) for name in graph["names"]]
        files["nodes"] = write(folder / "nodes.csv", rows, ["label", "id", "split"])
        order = graph["names"]
    else:
        files["labels"] = write(folder / "labels.csv", labels.items(), ["name", "label"])
        files["split"] = write(folder / f"split.{file.partition('.')[2]}", split.items(), None, separator)
        order = list(dict.fromkeys([*labels, *split, *(end for edge in graph["edges"] for end in edge)]))
    if has_nodes and not in_nodes:
        files["nodes"] = write(folder / "nodes.tsv", [[name] for name in graph["names"]])
        order = graph["names"]
    with patch.object(text_table, "WORD_BLOCK_BYTES", 24), patch.object(own_edges, "CHUNK_EDGES", 3):
        got = built(edges, **files)
        expected = oracle(order, graph["edges"], labels, split)
    assert list(got.node_names) == order
    assert got.digest == expected.digest


@settings(max_examples=40)
@given(
    edges=st.lists(st.tuples(*[st.integers(0, 9)] * 2), min_size=1, max_size=20),
    labels=st.dictionaries(
        st.integers(0, 12), st.sampled_from(["0", "1.0", "", "nan", "-1", "2"]), min_size=1
    ),
    columns=st.permutations(["source", "target", "relation", "weight"]),
    words=st.booleans(),
)
def test_numbers_may_be_listed_in_part_and_columns_in_any_order(
    edges, labels, columns, words, tmp_path_factory
):
    folder = tmp_path_factory.mktemp("own")
    relation = [i * 7 % 3 for i in range(len(edges))]
    shown = [("cites", "by", "like")[r] for r in relation] if words else relation
    order = {
        r: sorted(set(shown)).index(name) if words else r for r, name in zip(relation, shown, strict=True)
    }
    rows = [
        [{"source": u, "target": v, "relation": r, "weight": u / 8}[name] for name in columns]
        for (u, v), r in zip(edges, shown, strict=True)
    ]
    write(folder / "e.csv", rows, columns)
    write(folder / "l.csv", labels.items(), ["id", "label"])
    with (
        patch.object(text, "BLOCK_BYTES", 24),
        patch.object(text_table, "WORD_BLOCK_BYTES", 24),
        pytest.warns(
            UserWarning,
            match=r"e\.csv: not used: weight\.$",
        ),
    ):
        got = built(folder / "e.csv", labels=folder / "l.csv")
    num_nodes = 1 + max(*labels, *(end for edge in edges for end in edge))
    numbers = [float(labels.get(node, "") or "nan") for node in range(num_nodes)]
    expected = Graph.from_edges(
        np.array(edges).T,
        num_nodes=num_nodes,
        labels=numbers,
        relation=[order[r] for r in relation],
        relation_names=sorted(set(shown)) if words else None,
    )
    assert got.digest == expected.digest


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".txt"])
@pytest.mark.parametrize("has_nodes", [True, False])
def test_features_follow_their_ids(suffix, has_nodes, example, tmp_path):
    """Shuffled rows: gathered where the nodes table has another order, else the order of the nodes."""
    order = np.random.default_rng(1).permutation(NUM_NODES)
    header = ["id", "a", "b", "c"] if suffix != ".txt" else None
    keys = [f"n{i}" for i in range(NUM_NODES)]
    rows = [[keys[i], *example["features"][i].tolist()] for i in order]
    files = {"features": write(tmp_path / f"f{suffix}", rows, header, " " if suffix == ".txt" else ",")}
    if has_nodes:
        files["nodes"] = write(tmp_path / "nodes.txt", [[key] for key in keys])
    edges = write(tmp_path / "e.csv", [[keys[u], keys[v]] for u, v in edge_rows(example)])
    graph = built(edges, **files)
    expected = range(NUM_NODES) if has_nodes else order
    assert list(graph.node_names) == [keys[i] for i in expected]
    np.testing.assert_array_equal(graph.features, example["features"][list(expected)])


@pytest.mark.parametrize("header", [["node_id", "a", "b", "c"], ["", "0", "1", "2"], ["a", "b", "c", "Node"]])
def test_features_of_node_numbers_may_come_in_any_order(header, example, tmp_path):
    order = np.random.default_rng(1).permutation(NUM_NODES).tolist()
    rows = [[i, *example["features"][i].tolist()] for i in order]
    if header[-1] == "Node":
        rows = [[*row[1:], row[0]] for row in rows]
    write(tmp_path / "f.csv", rows, header)
    with patch.object(text, "BLOCK_BYTES", 24):
        graph = built(write(tmp_path / "e.csv", edge_rows(example)), features=tmp_path / "f.csv")
    np.testing.assert_array_equal(graph.features, example["features"])


def test_named_nodes_may_have_features_in_the_order_of_the_nodes_table(example, tmp_path):
    edges = write(tmp_path / "e.tsv", [[NAMES[u], NAMES[v]] for u, v in edge_rows(example)], None, "\t")
    rows = [[NAMES[i], i % 3, SPLITS[i % 4]] for i in range(NUM_NODES)]
    nodes = write(tmp_path / "n.csv", rows, ["name", "class", "split"])
    np.save(tmp_path / "f.npy", example["features"].astype(np.float64))
    graph = built(edges, nodes=nodes, features=tmp_path / "f.npy", name="mine")
    expected = {
        "edge_index": example["edge_index"],
        "features": example["features"],
        "labels": np.arange(NUM_NODES) % 3,
        "split": [(0, 1, 2, -1)[i % 4] for i in range(NUM_NODES)],
        "node_names": NAMES,
    }
    assert graph.digest == Graph.from_edges(**expected, keep_direction=True).digest
    assert graph.name == "mine"


@pytest.mark.parametrize("suffix", [".csv", ".npy", ".parquet"])
def test_ids_that_look_like_numbers_may_be_names(suffix, tmp_path):
    ids = [2**62 + 5, 7, 0, 7, 10**15]
    edges = list(zip(ids, ids[1:], strict=False))
    path = tmp_path / f"e{suffix}"
    if suffix == ".npy":
        np.save(path, np.array(edges).T)
    else:
        write(path, edges)
    with patch.object(array_table, "WORD_BLOCK_ROWS", 2):
        graph = built(path, named=True)
    assert list(graph.node_names) == [str(2**62 + 5), "7", "0", str(10**15)]
    assert (
        graph.digest
        == Graph.from_edges(
            [[0, 1, 2, 1], [1, 2, 1, 3]], node_names=list(graph.node_names), keep_direction=True
        ).digest
    )


def test_a_list_column_of_parquet_is_a_row_of_features(example, tmp_path):
    order = np.arange(NUM_NODES)[::-1]
    table = pa.table({"vector": example["features"][order].tolist(), "id": order})
    pq.write_table(table, tmp_path / "f.parquet")
    graph = built(write(tmp_path / "e.csv", edge_rows(example)), features=tmp_path / "f.parquet")
    np.testing.assert_array_equal(graph.features, example["features"])


def test_labels_may_be_an_array_of_words(example, tmp_path):
    words = np.array([("", *CLASSES)[label + 1] for label in example["labels"]])
    np.save(tmp_path / "l.npy", words)
    graph = built(write(tmp_path / "e.csv", edge_rows(example)), labels=tmp_path / "l.npy")
    assert graph.class_names == tuple(sorted(set(words) - {""}))
    assert [graph.class_names[label] if label >= 0 else "" for label in graph.labels] == words.tolist()


@pytest.mark.parametrize(
    "content",
    [
        "# Directed graph\n# FromNodeId\tToNodeId\n0\t1\n1\t2\n",
        "%%MatrixMarket-like\n% comment\n0   1\n 1 2 \n",
        "\ufefffrom,to\r\n0,1\r\n1,2",
        '"id1","id2"\n"0","1"\n"1","2"\n',
        "Node2 Node1\n1 0\n2 1\n",
        "head\ttail\n0\t1\n1\t2\n",
        "source;target\n0;1\n1;2\n",
        '0;1\n"1"; 2\n',
    ],
)
def test_edge_lists_of_the_wild_are_understood(content, tmp_path):
    (tmp_path / "e.txt").write_bytes(content.encode())
    expected = Graph.from_edges([[0, 1], [1, 2]], keep_direction=True)
    assert built(tmp_path / "e.txt").digest == expected.digest
    assert built(tmp_path / "e.txt", keep_direction=False).relation is None


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("id class\n1 0\n0 1\n", [1, 0, -1]),
        ("class\n1\n\n0\n", [1, -1, 0]),
        ("computer science\nart\n\n", [1, 0, -1]),
        (",label\n2,1.0\n0,\n", [-1, -1, 1]),
        ("label,x,id\nb,0,2\na,0,0\n", [0, -1, 1]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*not used")
def test_labels_of_the_wild_are_understood(content, expected, tmp_path):
    (tmp_path / "l.csv").write_text(content)
    edges = write(tmp_path / "e.csv", [[0, 1], [1, 2]])
    assert built(edges, labels=tmp_path / "l.csv").labels.tolist() == expected


def test_a_graph_may_have_no_edges(tmp_path):
    np.save(tmp_path / "e.npy", np.zeros((2, 0), dtype=np.int32))
    graph = built(tmp_path / "e.npy", num_nodes=3)
    assert (graph.num_nodes, graph.num_edges) == (3, 0)


def test_the_source_says_what_it_knows_beforehand(example, tmp_path):
    edges = write(tmp_path / "e.csv", edge_rows(example))
    source = own.read(edges)
    assert (source.num_nodes, source.num_edges) == (None, 40)
    assert source.provenance["raw_files"] == {str(edges): edges.stat().st_size}
    assert own.read(edges, num_nodes=20).num_nodes == 20
    labels = write(tmp_path / "l.txt", [[i % 2] for i in range(15)])
    assert own.read(edges, labels=labels).num_nodes == 15
    with patch.object(text_table, "WORD_BLOCK_BYTES", 24), patch.object(own_edges, "CHUNK_EDGES", 9):
        named = own.read(edges, named=True)
        chunks = [len(chunk.source) for chunk in named.edges()]
    assert sum(chunks) == 40
    assert len(chunks) == 4
    assert (named.num_nodes, named.num_edges) == (len(np.unique(example["edge_index"])), 40)


@pytest.mark.parametrize("words", [False, True])
def test_relations_may_be_named_though_some_have_no_edge(tmp_path, words):
    names = ["owns", "by", "cites"]
    shown = ["cites", "owns", "cites"] if words else [2, 0, 2]
    rows = "".join(f"{i},{i + 1},{relation}\n" for i, relation in enumerate(shown))
    (tmp_path / "e.csv").write_text("source,target,relation\n" + rows)
    expected = Graph.from_edges([[0, 1, 2], [1, 2, 3]], relation=[2, 0, 2], relation_names=names, name="e")
    graph = built(tmp_path / "e.csv", relations=names)
    assert graph.relation_names == tuple(names)
    assert graph.digest == expected.digest
