"""The five IGB graphs, against plain NumPy."""

import layouts
import numpy as np
import pytest

from musegnn.datasets import igb
from musegnn.datasets.base import place_labels
from musegnn.errors import InputError
from musegnn.graph.relation import has_relation

READ = {dataset.name.removeprefix("IGB-"): dataset.read for dataset in igb.DATASETS}
EDGES = "processed/paper__cites__paper/edge_index.npy"


@pytest.mark.parametrize("num_classes", [19, 2983])
@pytest.mark.parametrize("size", READ)
def test_every_size_gives_the_arrays_of_its_files(size, num_classes, tmp_path):
    arrays = layouts.write_igb(tmp_path, size)
    source = READ[size](tmp_path, num_classes=num_classes)
    graph = layouts.built_both_ways(source, tmp_path / "out")

    dense = np.zeros((47, 47), dtype=bool)
    dense[arrays["edge_index"][:, 0], arrays["edge_index"][:, 1]] = True
    np.fill_diagonal(dense, False)
    rows, columns = np.nonzero(dense | dense.T)
    np.testing.assert_array_equal(np.repeat(np.arange(47), np.diff(graph.indptr)), rows)
    np.testing.assert_array_equal(graph.indices, columns)
    np.testing.assert_array_equal(has_relation(graph.relation, 0), dense[rows, columns])
    np.testing.assert_array_equal(has_relation(graph.relation, 0, reverse=True), dense[columns, rows])
    np.testing.assert_array_equal(graph.features, arrays["features"])
    np.testing.assert_array_equal(graph.labels, arrays[f"labels_{num_classes}"])
    # 60 % and 20 % of 47, rounded down; the rest is for testing.
    np.testing.assert_array_equal(graph.split, np.repeat([0, 1, 2], [28, 9, 10]))
    assert graph.num_classes == num_classes
    assert graph.name == f"IGB-{size}"
    assert source.provenance["options"] == {"features": True, "num_classes": num_classes}


@pytest.mark.parametrize("num_classes", [19, 2983])
def test_only_the_first_papers_of_full_are_labeled_whatever_the_file_holds_behind_them(
    num_classes, tmp_path, monkeypatch
):
    arrays = layouts.write_igb(tmp_path, "full")
    monkeypatch.setitem(igb.LABELED_IN_FULL, num_classes, 31)
    labels = arrays[f"labels_{num_classes}"]
    labels[40:] = 1e9
    labels.tofile(tmp_path / "full" / igb.LABELS[num_classes])
    graph = layouts.built_both_ways(READ["full"](tmp_path, num_classes=num_classes), tmp_path / "out")
    np.testing.assert_array_equal(graph.labels[:31], labels[:31])
    assert (graph.labels[31:] == -1).all()
    np.testing.assert_array_equal(graph.split, np.repeat([0, 1, 2, -1], [18, 6, 7, 16]))


def test_the_counts_of_labeled_papers_are_the_official_ones():
    assert igb.LABELED_IN_FULL == {19: 227_130_858, 2983: 157_675_969}


@pytest.mark.parametrize("size", ["large", "full"])
def test_files_with_a_header_are_read_alike(size, tmp_path):
    """Someone may have saved the headless files again."""
    arrays = layouts.write_igb(tmp_path, size)
    headless = layouts.built_both_ways(READ[size](tmp_path), tmp_path / "headless")
    layouts.save(tmp_path / size / igb.FEATURES, arrays["features"])
    layouts.save(tmp_path / size / igb.LABELS[19], arrays["labels_19"].astype(np.int64))
    assert layouts.built_both_ways(READ[size](tmp_path), tmp_path / "out").digest == headless.digest


@pytest.mark.parametrize("change", [np.asfortranarray, lambda ends: ends.astype(np.int32)])
def test_edges_are_read_alike_by_columns_and_in_four_bytes(change, tmp_path):
    arrays = layouts.write_igb(tmp_path, "tiny")
    plain = layouts.built_both_ways(READ["tiny"](tmp_path), tmp_path / "plain")
    layouts.save(tmp_path / "tiny" / EDGES, change(arrays["edge_index"]))
    assert layouts.built_both_ways(READ["tiny"](tmp_path), tmp_path / "out").digest == plain.digest


@pytest.mark.parametrize(("size", "folder"), [("small", "small"), ("large", "igb_large"), ("full", "IGBH")])
def test_root_may_be_the_folder_or_hold_it_under_its_downloaded_name(size, folder, tmp_path):
    layouts.write_igb(tmp_path, size)
    (tmp_path / size).rename(tmp_path / folder)
    assert READ[size](tmp_path).num_nodes == 47
    assert READ[size](tmp_path / folder).num_nodes == 47


def test_the_folder_of_another_size_is_refused(tmp_path):
    layouts.write_igb(tmp_path, "tiny")
    with pytest.raises(InputError, match=r"tiny is IGB-tiny, not IGB-small. Pass the folder around it"):
        READ["small"](tmp_path / "tiny")
    with pytest.raises(
        InputError, match=r"holds no small/processed/\S+: .*igb_homogeneous_small.tar.gz and unpack"
    ):
        READ["small"](tmp_path)


@pytest.mark.parametrize("size", ["medium", "full"])
def test_without_features_the_feature_file_is_not_needed(size, tmp_path):
    layouts.write_igb(tmp_path, size)
    (tmp_path / size / igb.FEATURES).unlink()
    graph = layouts.built_both_ways(READ[size](tmp_path, features=False), tmp_path / "out")
    assert graph.features is None
    assert graph.num_nodes == 47
    with pytest.raises(InputError, match=r"node_feat.npy is missing.*Download"):
        READ[size](tmp_path)


def test_another_number_of_classes_is_refused(tmp_path):
    layouts.write_igb(tmp_path, "tiny")
    with pytest.raises(InputError, match="num_classes is 20; IGB has labels in 19 or in 2983 classes"):
        READ["tiny"](tmp_path, num_classes=20)


@pytest.mark.parametrize(
    ("file", "array", "message"),
    [
        (EDGES, np.zeros((2, 9), int), r"must have shape \(edges, 2\), got \(2, 9\)"),
        (EDGES, np.full((9, 2), 47), r"edge 0 has the source 47; node ids must lie in \[0, 46\]"),
        (EDGES, np.array([[None, None]]), "holds Python objects"),
        (igb.LABELS[19], np.full(47, 19.0), r"labels\[0\] is 19.0; .* \[0, 18\]"),
        (igb.LABELS[19], np.zeros(46), r"node_feat.npy has shape \(47, 1024\), but there are 46 labels"),
        (igb.FEATURES, np.zeros((46, 1024), np.float32), "but there are 47 labels"),
    ],
)
def test_a_bad_array_is_named(file, array, message, tmp_path):
    layouts.write_igb(tmp_path, "tiny")
    layouts.save(tmp_path / "tiny" / file, array)
    with pytest.raises(InputError, match=message):
        layouts.built_both_ways(READ["tiny"](tmp_path), tmp_path / "out")


def test_a_nan_in_a_headless_file_is_named_by_its_row(tmp_path):
    features = layouts.write_igb(tmp_path, "large")["features"]
    features[46, 1023] = np.nan
    features.tofile(tmp_path / "large" / igb.FEATURES)
    with pytest.raises(InputError, match="features row 46 has nan in column 1023"):
        layouts.built_both_ways(READ["large"](tmp_path), tmp_path / "out")


@pytest.mark.parametrize(("file", "cut"), [(igb.FEATURES, 4), (igb.LABELS[19], 2)])
def test_a_headless_file_that_ends_inside_a_row_is_refused(file, cut, tmp_path):
    layouts.write_igb(tmp_path, "full")
    path = tmp_path / "full" / file
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(InputError, match="no whole number of rows of .* it is cut off"):
        READ["full"](tmp_path)


def test_labels_longer_than_one_block_are_placed_one_after_the_other():
    labels = np.arange(2_500_000, dtype=np.float32) % 19
    placed = place_labels(labels, num_classes=19, num_nodes=2_500_010, first=3)
    np.testing.assert_array_equal(placed, np.concatenate([np.full(3, -1), labels, np.full(7, -1)]))
