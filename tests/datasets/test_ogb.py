"""ogbn-arxiv, -products and -papers100M, against the official package reading the same folder."""

import gzip
from pathlib import Path

import layouts
import numpy as np
import pytest
from scipy.sparse import coo_array

from musegnn.datasets import ogb
from musegnn.datasets.raw import npy, text
from musegnn.errors import InputError
from musegnn.graph.relation import has_relation

READ = {dataset.name: dataset.read for dataset in ogb.DATASETS}
CSV = {
    "ogbn-arxiv": {"dim": 128, "num_classes": 40, "split": "time"},
    "ogbn-products": {"dim": 100, "num_classes": 47, "split": "sales_ranking"},
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    """Every file takes several blocks, and blocks end inside a line."""
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 9)
    monkeypatch.setattr(npy, "BLOCK_BYTES", 1 << 10)


def write(name: str, folder: Path) -> layouts.Arrays:
    return layouts.write_ogb_csv(folder, **CSV[name]) if name in CSV else layouts.write_papers100m(folder)


def symmetric(edge_index: np.ndarray, num_nodes: int) -> coo_array:
    """A 1 for each pair of different nodes with an edge in either direction."""
    matrix = coo_array((np.ones(edge_index.shape[1]), edge_index), shape=(num_nodes, num_nodes)).tocsr()
    matrix = ((matrix + matrix.T) > 0).tolil()
    matrix.setdiag(False)
    return matrix.tocsr()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@pytest.mark.parametrize("name", READ)
def test_a_folder_gives_what_the_official_package_reads_from_it(name, tmp_path):
    """Also with the pickle lying there that the official package leaves behind."""
    from ogb.nodeproppred.dataset import NodePropPredDataset

    write(name, tmp_path / name.replace("-", "_"))
    official = NodePropPredDataset(name, root=str(tmp_path))
    expected, expected_labels = official[0]
    assert (tmp_path / name.replace("-", "_") / "processed" / "data_processed").exists()

    graph = layouts.built_both_ways(READ[name](tmp_path), tmp_path / "out")

    num_nodes = int(expected["num_nodes"])
    adjacency = symmetric(expected["edge_index"], num_nodes)
    np.testing.assert_array_equal(graph.indptr, adjacency.indptr)
    np.testing.assert_array_equal(graph.indices, adjacency.indices)
    np.testing.assert_array_equal(graph.features, expected["node_feat"])
    assert graph.features.dtype == np.float32
    np.testing.assert_array_equal(graph.labels, np.nan_to_num(expected_labels[:, 0], nan=-1))
    for number, ids in enumerate(official.get_idx_split().values()):
        np.testing.assert_array_equal(np.flatnonzero(graph.split == number), np.sort(ids))
    assert graph.num_classes == official.num_classes
    assert graph.name == name


@pytest.mark.parametrize("name", READ)
def test_citations_keep_their_direction_and_purchases_have_none(name, tmp_path):
    edge_index = write(name, tmp_path)["edge_index"]
    graph = layouts.built_both_ways(READ[name](tmp_path), tmp_path / "out")
    if name == "ogbn-products":
        assert graph.relation is None
        return
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    forward = has_relation(graph.relation, 0)
    found = set(zip(rows[forward].tolist(), graph.indices[forward].tolist(), strict=True))
    assert found == {(u, v) for u, v in edge_index.T.tolist() if u != v}


@pytest.mark.parametrize("name", READ)
@pytest.mark.parametrize("folder", [".", 0, 1], ids=["itself", "ogb's name", "the zip's name"])
def test_root_may_be_the_folder_or_hold_it_under_either_name(name, folder, tmp_path):
    layout = next(layout for layout in ogb.LAYOUTS if layout.name == name)
    write(name, tmp_path / (folder if folder == "." else layout.folders[folder]))
    assert READ[name](tmp_path).num_nodes == 40


@pytest.mark.parametrize("name", READ)
def test_without_features_the_feature_file_is_not_needed(name, tmp_path):
    if name in CSV:
        write(name, tmp_path / "data")
        (tmp_path / "data" / "raw" / "node-feat.csv.gz").unlink()
    else:
        layouts.write_papers100m(tmp_path / "data", features=False)
    graph = layouts.built_both_ways(READ[name](tmp_path / "data", features=False), tmp_path / "out")
    assert graph.features is None
    assert graph.num_edges > 0
    with pytest.raises(InputError, match=r"node-feat.csv.gz is missing|has no member node_feat"):
        READ[name](tmp_path / "data")


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("fortran", [True, False])
def test_an_npz_is_read_alike_however_it_was_saved(compressed, fortran, tmp_path):
    layouts.write_papers100m(tmp_path / "plain", compressed=True, fortran=False)
    layouts.write_papers100m(tmp_path / "other", compressed=compressed, fortran=fortran)
    plain, other = (
        layouts.built_both_ways(READ["ogbn-papers100M"](tmp_path / folder), tmp_path / "out" / folder)
        for folder in ("plain", "other")
    )
    assert plain.digest == other.digest


def test_the_header_says_which_files_were_read(tmp_path):
    write("ogbn-arxiv", tmp_path / "arxiv")
    provenance = READ["ogbn-arxiv"](tmp_path, features=False).provenance
    size = (tmp_path / "arxiv" / "raw" / "edge.csv.gz").stat().st_size
    assert provenance["raw_files"]["raw/edge.csv.gz"][0] == size
    assert "split/time/train.csv.gz" in provenance["raw_files"]
    assert "raw/node-feat.csv.gz" not in provenance["raw_files"]
    assert provenance["options"] == {"features": False}


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("ogbn-arxiv", "raw/edge.csv.gz"),
        ("ogbn-arxiv", "raw/num-node-list.csv.gz"),
        ("ogbn-products", "raw/node-label.csv.gz"),
        ("ogbn-products", "split/sales_ranking/valid.csv.gz"),
        ("ogbn-papers100M", "raw/data.npz"),
        ("ogbn-papers100M", "raw/node-label.npz"),
    ],
)
def test_a_missing_file_is_named_with_where_to_get_it(name, missing, tmp_path):
    write(name, tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(InputError, match=rf"{missing}.*Download http://snap.stanford.edu/ogb/.*\.zip"):
        READ[name](tmp_path)


def test_another_dataset_in_the_same_layout_is_refused(tmp_path):
    write("ogbn-products", tmp_path)
    with pytest.raises(InputError, match=r"split/time/train.csv.gz is missing"):
        READ["ogbn-arxiv"](tmp_path)


def replace_text(path: Path, line: int, new: str) -> None:
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    lines[line - 1] = new
    path.write_bytes(gzip.compress("\n".join(lines).encode()))


@pytest.mark.parametrize(
    ("file", "line", "new", "message"),
    [
        ("raw/edge.csv.gz", 111, "3", r"edge.csv.gz, line 111: expected 2 whole numbers .* got '3'"),
        ("raw/edge.csv.gz", 7, "3,x", r"edge.csv.gz, line 7: expected 2 whole numbers .* got '3,x'"),
        ("raw/edge.csv.gz", 2, "3,40", r"edge 1 has the target 40; node ids must lie in \[0, 39\]"),
        ("raw/node-feat.csv.gz", 9, "1.0,2.0", r"node-feat.csv.gz, line 9: expected 128 numbers"),
        ("raw/node-feat.csv.gz", 9, ",".join(["0"] * 5 + ["nan"] * 123), r"row 8 has nan in column 5"),
        ("raw/node-label.csv.gz", 1, "40", r"labels\[0\] is 40; .* in \[0, 39\]"),
        ("raw/num-edge-list.csv.gz", 1, "151", r"edge.csv.gz has 150 edges, .* say 151"),
        ("raw/num-node-list.csv.gz", 1, "40\n7", r"num-node-list.csv.gz has 2 numbers"),
        ("split/time/valid.csv.gz", 1, "-3", r"split 'valid' names node -3"),
    ],
)
def test_a_bad_value_is_named_with_its_place(file, line, new, message, tmp_path):
    write("ogbn-arxiv", tmp_path / "data")
    replace_text(tmp_path / "data" / file, line, new)
    with pytest.raises(InputError, match=message):
        layouts.built_both_ways(READ["ogbn-arxiv"](tmp_path / "data"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["raw/edge.csv.gz", "raw/node-feat.csv.gz", "split/time/train.csv.gz"])
def test_a_truncated_gzip_is_named(file, tmp_path):
    write("ogbn-arxiv", tmp_path)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(InputError, match=rf"{file} is not a complete gzip file .*download it again"):
        layouts.built_both_ways(READ["ogbn-arxiv"](tmp_path), tmp_path / "out")


def test_a_label_too_few_is_counted(tmp_path):
    labels = write("ogbn-arxiv", tmp_path)["labels"]
    layouts.write_csv(tmp_path / "raw" / "node-label.csv.gz", labels[:-1])
    with pytest.raises(InputError, match="labels has 39 values, but the graph has 40 nodes"):
        layouts.built_both_ways(READ["ogbn-arxiv"](tmp_path), tmp_path / "out")


def test_a_row_of_features_too_few_is_counted(tmp_path):
    features = write("ogbn-arxiv", tmp_path)["features"]
    layouts.write_csv(tmp_path / "raw" / "node-feat.csv.gz", features[:-1], fmt="%.6f")
    with pytest.raises(InputError, match="features has 39 rows, but the graph has 40 nodes"):
        layouts.built_both_ways(READ["ogbn-arxiv"](tmp_path), tmp_path / "out")


def change_npz(path: Path, **members: np.ndarray) -> None:
    with np.load(path) as archive:
        old = dict(archive)
    np.savez(path, **{**old, **members})


@pytest.mark.parametrize(
    ("file", "members", "message"),
    [
        ("node-label.npz", {"node_label": np.array([None] * 40)}, "member node_label holds Python objects"),
        ("data.npz", {"edge_index": np.array([[None, 1], [2, 3]])}, "member edge_index holds Python objects"),
        (
            "data.npz",
            {"edge_index": np.zeros((150, 2), int)},
            r"must have shape \(2, edges\), got \(150, 2\)",
        ),
        ("data.npz", {"num_edges_list": np.array([149])}, "has 150 edges, .* say 149"),
        ("data.npz", {"num_nodes_list": np.array([20, 20])}, "member num_nodes_list, has 2 numbers"),
        (
            "data.npz",
            {"node_feat": np.zeros(40, np.float32)},
            r"node_feat, must be a matrix, got shape \(40,\)",
        ),
        ("data.npz", {"node_feat": np.full((40, 3), np.inf, np.float32)}, "row 0 has inf in column 0"),
        ("node-label.npz", {"node_label": np.full((40, 1), 0.5)}, r"labels\[0\] is 0.5; .* whole number"),
    ],
)
def test_a_bad_member_is_named(file, members, message, tmp_path):
    layouts.write_papers100m(tmp_path)
    change_npz(tmp_path / "raw" / file, **members)
    with pytest.raises(InputError, match=message):
        layouts.built_both_ways(READ["ogbn-papers100M"](tmp_path), tmp_path / "out")


def test_a_truncated_npz_is_named(tmp_path):
    layouts.write_papers100m(tmp_path)
    path = tmp_path / "raw" / "data.npz"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"data.npz is not a readable NumPy file .*download it again"):
        READ["ogbn-papers100M"](tmp_path)


def test_a_folder_that_is_something_else_is_refused_with_the_two_names(tmp_path):
    with pytest.raises(InputError, match=r"holds no ogbn_arxiv/raw/edge.csv.gz or arxiv/raw/edge.csv.gz"):
        READ["ogbn-arxiv"](tmp_path)
