"""The embedded graph against its file, read plainly."""

import time
from importlib.resources import files

import numpy as np
import scipy.sparse

import musegnn


def raw():
    with (files("musegnn.datasets") / "debian.npz").open("rb") as file, np.load(file) as archive:
        return {name: archive[name] for name in archive.files}


def test_the_adjacency_is_the_symmetric_pattern_of_the_file():
    graph, file = musegnn.datasets.load("debian"), raw()
    n = len(file["labels"])
    directed = scipy.sparse.csr_array(
        (np.ones(len(file["indices"])), file["indices"], file["indptr"]), (n, n)
    )
    both = (directed + directed.T).tocsr()
    both.setdiag(0)
    both.eliminate_zeros()
    both.sort_indices()
    assert np.array_equal(graph.indptr, both.indptr)
    assert np.array_equal(graph.indices, both.indices)


def test_relations_and_directions_are_those_of_the_file():
    graph, file = musegnn.datasets.load("debian"), raw()
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    keys = rows.astype(np.int64) << 32 | graph.indices
    file_rows = np.repeat(np.arange(graph.num_nodes), np.diff(file["indptr"]))
    file_keys = file_rows.astype(np.int64) << 32 | file["indices"]
    own = file["indices"] != file_rows
    expected = np.zeros(len(keys), dtype=np.uint8)
    for r in range(2):
        has = own & ((file["relation"] >> r) & 1 == 1)
        expected[np.searchsorted(keys, file_keys[has])] |= np.uint8(1 << 2 * r)
        back = file["indices"][has].astype(np.int64) << 32 | file_rows[has]
        expected[np.searchsorted(keys, back)] |= np.uint8(2 << 2 * r)
    assert np.array_equal(graph.relation, expected)
    assert graph.relation_names == ("runtime", "build")


def test_features_labels_split_and_names_are_those_of_the_file():
    graph, file = musegnn.datasets.load("debian"), raw()
    np.testing.assert_allclose(
        graph.features, file["features"].astype(np.float64) * file["feature_scale"], rtol=1e-6
    )
    assert np.array_equal(graph.labels, file["labels"])
    assert np.array_equal(graph.split, file["split"])
    assert graph.num_classes == 46
    assert graph.class_names[graph.labels[graph.node_names.find("curl")]] == "web"
    assert list(graph.node_names[:2]) == ["0ad", "0ad-data"]


def test_features_can_be_left_out():
    assert musegnn.datasets.load("debian", features=False).features is None


def test_loading_takes_less_than_a_second():
    """A bound on work, not a benchmark: the best of three, so that a busy machine does not decide."""
    musegnn.datasets.load("debian")
    seconds = []
    for _ in range(3):
        started = time.process_time()
        musegnn.datasets.load("debian")
        seconds.append(time.process_time() - started)
    assert min(seconds) < 1
