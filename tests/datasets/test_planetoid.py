"""Cora, CiteSeer and PubMed: from .npz against SciPy, from the original files against PyG's own dataset."""

import sys

import layouts
import numpy as np
import pytest
from scipy.sparse import csr_array

from musegnn.datasets import planetoid
from musegnn.errors import InputError, MissingExtraError

READ = {dataset.name: dataset.read for dataset in planetoid.DATASETS}

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(planetoid, "BLOCK_ROWS", 7)


@pytest.mark.parametrize("name", READ)
def test_an_npz_gives_its_adjacency_and_dense_features(name, tmp_path):
    arrays = layouts.write_planetoid_npz(tmp_path, name)
    graph = layouts.built_both_ways(READ[name](tmp_path), tmp_path / "out")
    x = csr_array((arrays["x_data"], arrays["x_indices"], arrays["x_indptr"]), shape=tuple(arrays["x_shape"]))
    np.testing.assert_array_equal(graph.indptr, arrays["indptr"])
    np.testing.assert_array_equal(graph.indices, arrays["indices"])
    np.testing.assert_array_equal(graph.features, x.toarray())
    assert graph.features.dtype == np.float32
    np.testing.assert_array_equal(graph.labels, arrays["labels"])
    np.testing.assert_array_equal(graph.split, arrays["split"])
    assert graph.num_classes == {"cora": 7, "citeseer": 6, "pubmed": 3}[name]


@pytest.mark.parametrize("name", READ)
def test_the_original_files_give_what_pyg_reads_from_them(name, tmp_path):
    from torch_geometric.datasets import Planetoid

    pyg_name = planetoid.PYG_NAMES[name]
    layouts.write_planetoid_pickles(tmp_path / "pyg" / pyg_name / "raw", name)
    graph = layouts.built_both_ways(READ[name](tmp_path / "pyg"), tmp_path / "out")
    assert [path.name for path in (tmp_path / "pyg" / pyg_name).iterdir()] == ["raw"]

    data = Planetoid(str(tmp_path / "pyg"), pyg_name)[0]
    adjacency = csr_array((np.ones(data.num_edges), data.edge_index.numpy()), shape=(580, 580))
    adjacency = ((adjacency + adjacency.T) > 0).tocsr()
    np.testing.assert_array_equal(graph.indptr, adjacency.indptr)
    np.testing.assert_array_equal(graph.indices, adjacency.indices)
    np.testing.assert_array_equal(graph.features, data.x.numpy())
    np.testing.assert_array_equal(graph.labels, data.y.numpy())
    for number, mask in enumerate((data.train_mask, data.val_mask, data.test_mask)):
        np.testing.assert_array_equal(graph.split == number, mask.numpy())


@pytest.mark.parametrize("folder", [".", "raw", "cora/raw", "Cora/raw"])
def test_root_may_be_any_folder_around_the_original_files(folder, tmp_path):
    layouts.write_planetoid_pickles(tmp_path / "root" / folder, "cora")
    assert READ["cora"](tmp_path / "root").num_nodes == 580


def test_without_features_they_are_not_read_from_an_npz(tmp_path):
    arrays = layouts.write_planetoid_npz(tmp_path, "cora")
    topology = {member: values for member, values in arrays.items() if not member.startswith("x_")}
    np.savez(tmp_path / "cora.npz", **topology)
    graph = layouts.built_both_ways(READ["cora"](tmp_path, features=False), tmp_path / "out")
    assert graph.features is None
    np.testing.assert_array_equal(graph.indices, arrays["indices"])
    with pytest.raises(InputError, match=r"cora.npz has no member x_data"):
        READ["cora"](tmp_path)


def test_without_features_they_are_dropped_from_the_original_files(tmp_path):
    layouts.write_planetoid_pickles(tmp_path / "raw", "pubmed")
    assert READ["pubmed"](tmp_path, features=False).features is None


def test_the_npz_goes_before_the_original_files(tmp_path):
    layouts.write_planetoid_pickles(tmp_path / "Cora" / "raw", "cora")
    layouts.write_planetoid_npz(tmp_path, "cora")
    assert READ["cora"](tmp_path).num_nodes == 50


def test_an_empty_folder_is_refused_with_both_ways_to_get_the_data(tmp_path):
    message = r"holds no Cora/raw/ind.cora.x .* Put cora.npz there, or download .*Planetoid\(root, 'Cora'\)"
    with pytest.raises(InputError, match=message):
        READ["cora"](tmp_path)


def test_a_missing_original_file_is_named(tmp_path):
    layouts.write_planetoid_pickles(tmp_path, "cora")
    (tmp_path / "ind.cora.test.index").unlink()
    with pytest.raises(InputError, match=r"ind.cora.test.index is missing"):
        READ["cora"](tmp_path)


def test_a_damaged_original_file_is_one_sentence(tmp_path):
    layouts.write_planetoid_pickles(tmp_path, "cora")
    (tmp_path / "ind.cora.graph").write_bytes(b"\x80\x02]")
    with pytest.raises(InputError, match=r"PyG cannot read .*ind.cora.\* \("):
        READ["cora"](tmp_path)


def test_without_pyg_the_original_files_ask_for_it(tmp_path, monkeypatch):
    layouts.write_planetoid_pickles(tmp_path, "cora")
    monkeypatch.setitem(sys.modules, "torch_geometric.io", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'musegnn\[pyg\]'"):
        READ["cora"](tmp_path)


@pytest.mark.parametrize(
    ("member", "change", "message"),
    [
        ("indices", lambda indices: indices[:-1], r"cora.npz holds no valid CSR matrix"),
        ("indices", lambda indices: indices + np.int32(50), r"cora.npz holds no valid CSR matrix"),
        ("x_indices", lambda indices: indices + np.int32(33), r"cora.npz holds no valid CSR matrix"),
        ("x_indptr", lambda indptr: indptr[:-1], r"cora.npz holds no valid CSR matrix"),
        ("x_data", lambda data: np.full_like(data, np.nan), "row 0 has nan in column"),
        ("labels", lambda labels: labels[:-1], "labels has 49 values, but the graph has 50 nodes"),
        ("labels", lambda labels: labels.astype(object), "member labels holds Python objects"),
        ("split", lambda split: split + np.int8(3), r"split\[0\] is 3"),
    ],
)
def test_a_bad_member_is_named(member, change, message, tmp_path):
    arrays = layouts.write_planetoid_npz(tmp_path, "cora")
    np.savez(tmp_path / "cora.npz", **{**arrays, member: change(arrays[member])})
    with pytest.raises(InputError, match=message):
        layouts.built_both_ways(READ["cora"](tmp_path), tmp_path / "out")
