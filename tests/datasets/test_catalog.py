"""`load`: by name, into memory or into a store that is made once."""

import numpy as np
import pytest
from layouts import write_planetoid_npz

from musegnn import Graph, InputError
from musegnn.datasets import catalog, load


def test_a_store_is_made_once_and_opened_after_that(tmp_path, monkeypatch):
    first = load("synthetic", out=tmp_path / "g", num_nodes=500, seed=2)
    monkeypatch.setattr(Graph, "from_source", None)
    again = load("synthetic", out=tmp_path / "g", num_nodes=500, seed=2)
    assert again.digest == first.digest
    assert isinstance(again.indices, np.memmap)


def test_other_options_are_not_taken_for_the_same_graph(tmp_path):
    load("synthetic", out=tmp_path / "g", num_nodes=500)
    with pytest.raises(InputError, match=r"exists already.*overwrite=True"):
        load("synthetic", out=tmp_path / "g", num_nodes=500, seed=1)
    other = load("synthetic", out=tmp_path / "g", num_nodes=500, seed=1, overwrite=True)
    assert other.digest == load("synthetic", num_nodes=500, seed=1).digest


def test_changed_raw_files_are_noticed(tmp_path):
    write_planetoid_npz(tmp_path, "cora")
    load("cora", root=tmp_path, out=tmp_path / "g")
    with np.load(tmp_path / "cora.npz") as archive:
        arrays = dict(archive)
    arrays["labels"] = np.roll(arrays["labels"], 1)
    np.savez_compressed(tmp_path / "cora.npz", **arrays)
    with pytest.raises(InputError, match="exists already"):
        load("cora", root=tmp_path, out=tmp_path / "g")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "ogbn-arvix"}, "Did you mean ogbn-arxiv"),
        ({"name": "zzz"}, "Known are debian"),
        ({"name": "cora"}, r"pass root \(--root\)"),
        ({"name": "cora", "root": "nowhere"}, "nowhere is no folder"),
        ({"name": "debian", "root": "."}, "read from no raw files"),
        ({"name": "debian", "seed": 1}, "debian has no option 'seed'. It has none."),
        ({"name": "papers100m-shaped"}, "too much for a graph in the"),
    ],
)
def test_a_mistake_is_answered(arguments, message, monkeypatch):
    monkeypatch.setattr(catalog, "total_memory", lambda: 8 << 30)
    with pytest.raises(InputError, match=message):
        load(**arguments)


def test_names_are_found_whatever_their_capitals():
    assert catalog.find("IGB-TINY").name == "IGB-tiny"
    assert catalog.is_known("mag240m")
    assert not catalog.is_known("mag")
