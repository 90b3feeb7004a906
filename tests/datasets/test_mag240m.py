"""MAG240M as one graph, against dense float64 arithmetic."""

import subprocess
import sys

import layouts
import numpy as np
import pytest
import torch

from musegnn import Graph
from musegnn.datasets import mag240m, neighbor_means
from musegnn.errors import InputError
from musegnn.graph.relation import has_relation

AUTHORS, INSTITUTIONS, PAPERS = range(23), range(23, 28), range(28, 58)
OFFSETS = {"author": 0, "institution": 23, "paper": 28}
FOLDER = "mag240m_kddcup2021"
FEATURES = f"{FOLDER}/processed/paper/node_feat.npy"


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Seven edges a chunk; three rows a block of means, so that most institutions take several pieces."""
    monkeypatch.setattr(mag240m, "CHUNK_EDGES", 7)
    monkeypatch.setattr(neighbor_means, "BLOCK_BYTES", 3 * 4 * 768)


def incidence(edge_index: np.ndarray, num_rows: int, num_columns: int) -> np.ndarray:
    """1 where there is an edge, in float64."""
    matrix = np.zeros((num_rows, num_columns))
    matrix[edge_index[0], edge_index[1]] = 1
    return matrix


def means(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Of the columns that each row has, as float16: rounded to float32 first, as documented."""
    exact = matrix @ values.astype(np.float64) / np.maximum(matrix.sum(axis=1), 1)[:, None]
    return exact.astype(np.float32).astype(np.float16)


def test_features_are_means_of_papers_then_of_stored_authors(tmp_path):
    arrays = layouts.write_mag240m(tmp_path)
    graph = layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")

    authors = means(incidence(arrays["writes"], 23, 30), arrays["features"])
    institutions = means(incidence(arrays["affiliated_with"], 23, 5).T, authors)
    expected = np.concatenate([authors, institutions, arrays["features"]])
    assert graph.features.dtype == np.float16
    np.testing.assert_array_equal(graph.features, expected)
    assert not graph.features[22].any()
    assert not graph.features[INSTITUTIONS[3]].any()


def test_institutions_are_means_of_what_is_stored_not_of_what_was_computed(tmp_path):
    """The features of this folder can tell: float16 holds only even numbers above 2048."""
    arrays = layouts.write_mag240m(tmp_path)
    writes, affiliated = incidence(arrays["writes"], 23, 30), incidence(arrays["affiliated_with"], 23, 5).T
    stored = means(affiliated, means(writes, arrays["features"]))
    exact_authors = (
        writes @ arrays["features"].astype(np.float64) / np.maximum(writes.sum(axis=1), 1)[:, None]
    )
    assert (stored != means(affiliated, exact_authors)).any()


def test_means_do_not_depend_on_the_size_of_blocks(tmp_path, monkeypatch):
    layouts.write_mag240m(tmp_path)
    small = layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "small")
    monkeypatch.undo()
    large = layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "large")
    assert small.digest == large.digest


def test_a_relation_keeps_its_edges_and_their_direction(tmp_path):
    arrays = layouts.write_mag240m(tmp_path)
    graph = layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")
    assert graph.relation_names == ("writes", "affiliated_with", "cites")
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    for number, (relation, (source, target)) in enumerate(mag240m.RELATIONS.items()):
        ends = arrays[relation] + np.array([[OFFSETS[source]], [OFFSETS[target]]])
        expected = {(u, v) for u, v in ends.T.tolist() if u != v}
        forward, backward = (
            has_relation(graph.relation, number, reverse=reverse) for reverse in (False, True)
        )
        assert set(zip(rows[forward].tolist(), graph.indices[forward].tolist(), strict=True)) == expected
        assert set(zip(graph.indices[backward].tolist(), rows[backward].tolist(), strict=True)) == expected


def test_a_node_has_the_type_of_its_kind(tmp_path):
    layouts.write_mag240m(tmp_path)
    graph = layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")
    kinds = ["author"] * len(AUTHORS) + ["institution"] * len(INSTITUTIONS) + ["paper"] * len(PAPERS)
    assert graph.node_type_names == ("author", "institution", "paper")
    assert [graph.node_type_names[t] for t in graph.node_type] == kinds
    stored = Graph.open(tmp_path / "out")
    assert isinstance(stored.node_type, np.memmap)
    # Ends of a relation have the types that the relation joins.
    rows = np.repeat(np.arange(stored.num_nodes), np.diff(stored.indptr))
    for number, ends in enumerate(mag240m.RELATIONS.values()):
        forward = has_relation(stored.relation, number)
        for nodes, kind in zip((rows, stored.indices), ends, strict=True):
            assert {kinds[node] for node in nodes[forward]} == {kind}


def test_only_papers_have_labels_and_the_split_is_by_year(tmp_path):
    arrays = layouts.write_mag240m(tmp_path)
    graph = layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")
    assert graph.num_nodes == PAPERS.stop
    assert graph.num_classes == 153
    assert (graph.labels[: PAPERS.start] == -1).all()
    assert (graph.split[: PAPERS.start] == -1).all()
    np.testing.assert_array_equal(graph.labels[PAPERS.start :], np.nan_to_num(arrays["labels"], nan=-1))
    expected = [
        -1 if np.isnan(label) else {2019: 1, 2020: 2}.get(int(year), 0)
        for label, year in zip(arrays["labels"], arrays["year"], strict=True)
    ]
    np.testing.assert_array_equal(graph.split[PAPERS.start :], expected)
    assert set(expected) == {-1, 0, 1}


@pytest.mark.parametrize("test_part", ["test-dev", "test"])
def test_an_official_split_beside_is_taken_exactly(test_part, tmp_path):
    labels = layouts.write_mag240m(tmp_path)["labels"]
    labeled, unlabeled = np.flatnonzero(~np.isnan(labels)), np.flatnonzero(np.isnan(labels))
    parts = {"train": labeled[:5], "valid": labeled[5:7], test_part: unlabeled[:4]}
    np.savez(tmp_path / FOLDER / "split_dict.npz", **{"test-challenge": unlabeled[4:6], **parts})
    source = mag240m.read(tmp_path)
    graph = layouts.built_both_ways(source, tmp_path / "out")
    for number, ids in enumerate(parts.values()):
        np.testing.assert_array_equal(np.flatnonzero(graph.split == number), PAPERS.start + ids)
    assert "split_dict.npz" in source.provenance["raw_files"]


def test_the_documented_command_converts_the_official_split(tmp_path):
    layouts.write_mag240m(tmp_path)
    split = {"train": np.array([3, 4]), "valid": np.array([5]), "test-dev": np.array([6, 7])}
    torch.save(split, tmp_path / FOLDER / "split_dict.pt")
    command = next(line.strip() for line in mag240m.__doc__.splitlines() if "python -c" in line)
    command = command.replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True, cwd=tmp_path / FOLDER)
    assert {part: ids.tolist() for part, ids in mag240m.read(tmp_path).split.items()} == {
        "train": [31, 32],
        "valid": [33],
        "test": [34, 35],
    }


def test_files_stored_by_columns_are_read_alike(tmp_path):
    layouts.write_mag240m(tmp_path / "rows")
    layouts.write_mag240m(tmp_path / "columns", fortran=True)
    by_rows, by_columns = (
        layouts.built_both_ways(mag240m.read(tmp_path / order), tmp_path / "out" / order)
        for order in ("rows", "columns")
    )
    assert by_rows.digest == by_columns.digest


def test_root_may_be_the_folder_itself(tmp_path):
    layouts.write_mag240m(tmp_path)
    inside, around = (mag240m.read(root).provenance for root in (tmp_path / FOLDER, tmp_path))
    assert inside == around


def test_without_features_the_feature_file_is_not_needed(tmp_path):
    layouts.write_mag240m(tmp_path)
    (tmp_path / FEATURES).unlink()
    graph = layouts.built_both_ways(mag240m.read(tmp_path, features=False), tmp_path / "out")
    assert graph.features is None
    assert graph.num_edges > 0


def test_a_graph_without_institutions_is_a_graph(tmp_path):
    arrays = layouts.write_mag240m(tmp_path)
    layouts.save(tmp_path / FOLDER / layouts.MAG_FILES["affiliated_with"], np.empty((2, 0), dtype=np.int64))
    graph = layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")
    num_authors = arrays["writes"][0].max() + 1
    assert graph.num_nodes == num_authors + 30
    np.testing.assert_array_equal(graph.features[num_authors:], arrays["features"])
    assert graph.node_type_names == ("author", "institution", "paper")
    np.testing.assert_array_equal(np.bincount(graph.node_type), [num_authors, 0, 30])


@pytest.mark.parametrize("paper", [0, 29])
def test_a_nan_in_a_paper_is_named_by_the_paper_not_by_its_author(paper, tmp_path):
    """Paper 0 has an author, paper 29 has none."""
    features = layouts.write_mag240m(tmp_path)["features"]
    features[paper, 7] = np.nan
    layouts.save(tmp_path / FEATURES, features)
    with pytest.raises(InputError, match=f"features row {28 + paper} has nan in column 7"):
        layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")


@pytest.mark.parametrize("missing", ["processed/paper/node_label.npy", layouts.MAG_FILES["cites"]])
def test_a_missing_file_is_named_with_where_to_get_it(missing, tmp_path):
    layouts.write_mag240m(tmp_path)
    (tmp_path / FOLDER / missing).unlink()
    with pytest.raises(InputError, match=rf"{missing}.*Download https://.*mag240m_kddcup2021.zip"):
        mag240m.read(tmp_path)


def bad_edges(value: int, end: int) -> np.ndarray:
    ends = np.zeros((2, 10), dtype=np.int64)
    ends[end, 8] = value
    return ends


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        # Minus one would be the last institution, if it were just moved.
        (layouts.MAG_FILES["cites"], bad_edges(-1, 0), r"cites___paper/.* has the paper -1; .* \[0, 29\]"),
        (layouts.MAG_FILES["writes"], bad_edges(30, 1), r"writes___paper/.* has the paper 30; .* \[0, 29\]"),
        (layouts.MAG_FILES["writes"], bad_edges(-2, 0), "has the author -2"),
        (
            layouts.MAG_FILES["cites"],
            np.zeros((10, 2), int),
            r"of shape \(2, edges\), got int64 of shape \(10, 2\)",
        ),
        (layouts.MAG_FILES["cites"], np.zeros((2, 10)), r"must hold integers .* got float64"),
        (
            "processed/paper/node_year.npy",
            np.zeros(29, int),
            r"node_year.npy has shape \(29,\), .* 30 papers",
        ),
        (
            "processed/paper/node_feat.npy",
            np.zeros((29, 8)),
            r"node_feat.npy has shape \(29, 8\), .* 30 papers",
        ),
        ("processed/paper/node_label.npy", np.full(30, 153.0), r"labels\[0\] is 153.0; .* \[0, 152\]"),
        ("processed/paper/node_label.npy", np.array([None] * 30), "node_label.npy holds Python objects"),
    ],
)
def test_a_bad_array_is_named(file, array, message, tmp_path):
    layouts.write_mag240m(tmp_path)
    layouts.save(tmp_path / FOLDER / file, array)
    with pytest.raises(InputError, match=message):
        layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"train": np.array([-1]), "valid": np.array([2]), "test": np.array([3])}, "has the paper -1"),
        ({"train": np.array([1]), "valid": np.array([2])}, "has no member test; it has: train, valid"),
        (
            {"train": np.array([1]), "valid": np.array([1]), "test": np.array([3])},
            "in the splits 'train' and 'valid'",
        ),
    ],
)
def test_a_bad_official_split_is_refused(members, message, tmp_path):
    layouts.write_mag240m(tmp_path)
    np.savez(tmp_path / FOLDER / "split_dict.npz", **members)
    with pytest.raises(InputError, match=message):
        layouts.built_both_ways(mag240m.read(tmp_path), tmp_path / "out")


def test_a_cut_off_npy_is_named(tmp_path):
    layouts.write_mag240m(tmp_path)
    path = tmp_path / FEATURES
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"node_feat.npy is not a readable NumPy file"):
        mag240m.read(tmp_path)
