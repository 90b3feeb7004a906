"""A name becomes a graph, samples and a model; each step once."""

import numpy as np
import pytest
from scipy.sparse import csr_array

import musegnn
from machine import one_thread as one_thread
from musegnn import Graph, InputError, SampleStore, ShadowKHop, UniformInduced
from musegnn.errors import StoreError
from musegnn.recipes import load
from musegnn.recipes.finding import find
from musegnn.recipes.pipeline import prepare
from musegnn.training.config import Config
from tiny_runs import SETTINGS, tiny_graph


def write_raw(folder, seed=0):
    """A pubmed of 150 nodes, as the dataset reads it."""
    graph = tiny_graph(seed=seed)
    rows = csr_array(graph.features)
    folder.mkdir(exist_ok=True)
    np.savez(
        folder / "pubmed.npz",
        indptr=graph.indptr,
        indices=graph.indices,
        labels=graph.labels,
        split=graph.split,
        x_data=rows.data,
        x_indices=rows.indices,
        x_indptr=rows.indptr,
        x_shape=np.array(rows.shape),
    )
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder to work in, with a graph store and its samples."""
    monkeypatch.chdir(tmp_path)
    tiny_graph().save("g")
    return tmp_path


def tiny(config):
    return config.with_settings({name: value for name, value in SETTINGS.items() if name != "fanouts"})


def times(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def test_what_a_name_can_be(place):
    assert find("Debian") == (load("debian"), None)
    assert find("ogbn-products") == (load("ogbn-products"), None)
    config, graph = find("g")
    assert (config.name, config.dataset, graph.num_nodes) == ("g", "", 150)
    # A dataset that has no recipe has the settings of a graph that has none.
    synthetic, nothing = find("SYNTHETIC")
    assert (synthetic.name, synthetic.dataset, nothing) == ("synthetic", "synthetic", None)
    assert synthetic.model == config.model
    (place / "my.toml").write_text(load("cora").with_settings({"hidden": 33}).to_toml())
    mine, nothing = find("my.toml")
    assert (mine.dataset, mine.model.hidden, nothing) == ("cora", 33, None)


def test_the_folder_one_is_in_has_a_name(place, monkeypatch):
    monkeypatch.chdir(place / "g")
    assert find(".")[0].name == "g"


def test_an_imported_dataset_has_its_recipe(place):
    raw = write_raw(place / "raw")
    musegnn.datasets.load("pubmed", raw, "imported")
    config, graph = find("imported")
    assert config == load("pubmed")
    assert graph.num_nodes == 150


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("debain", "'debain' is no recipe, no dataset and no folder here. Did you mean debian?"),
        ("ogbn-produtcs", "Did you mean ogbn-products?"),
        ("zzzzzz", "no folder here. `muse recipes` lists"),
        ("none.toml", "none.toml does not exist"),
        ("bare.toml", "bare.toml names no dataset. Add one"),
        ("broken.toml", "broken.toml is not TOML"),
        ("wrong.toml", "there is no setting 'gama'. Did you mean 'gamma'?"),
        ("s", "s is a sample store. Pass the graph; its samples go to --samples"),
        ("r", "r is a run. Go on with it: muse train --resume r"),
        ("empty", "not a graph store"),
    ],
)
def test_what_a_name_cannot_be(place, target, said):
    musegnn.sample(Graph.open("g"), ShadowKHop([2]), "s")
    (place / "bare.toml").write_text('name = "mine"\n')
    (place / "broken.toml").write_text("name = \n")
    (place / "wrong.toml").write_text('dataset = "debian"\n[energy]\ngama = 1\n')
    for name in ("r", "empty"):
        (place / name).mkdir()
    (place / "r" / "run.json").write_text("{}")
    with pytest.raises(InputError) as error:
        find(target)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_from_raw_files_to_a_model_and_each_step_once(place):
    raw, said = write_raw(place / "raw"), []
    config = tiny(load("pubmed"))
    how = {"stores": place / "stores", "root": raw, "say": lambda step, text: said.append((step, text))}
    first = prepare(config, None, **how)
    assert [step for step, _ in said] == ["graph", "samples"]
    assert "imported: 150 nodes" in said[0][1]
    assert first.graph.name == "pubmed"
    assert first.graph.features.shape == (150, 6)
    assert set(first.samples) == {"train", "valid", "test"}
    assert first.samples.sampler["name"] == config.sampling.sampler
    assert (first.model.f.widths[0], first.model.f.widths[-1], first.model.g.widths[-1]) == (6, 8, 3)
    before = times(place / "stores")
    again = prepare(config, None, **how)
    assert times(place / "stores") == before
    assert "is there" in said[2][1]
    assert again.samples.digest == first.samples.digest
    for name, weight in first.model.state_dict().items():
        assert (again.model.state_dict()[name] == weight).all()
    # Other samples lie beside, those of before stay.
    other = prepare(config.with_settings({"sample_seed": 5}), None, **how)
    assert other.samples.stored.folder != first.samples.stored.folder
    assert before.items() <= times(place / "stores").items()


def test_other_raw_files_are_not_taken_for_those_of_before(place):
    config, stores = tiny(load("pubmed")), place / "stores"
    prepare(config, None, stores=stores, root=write_raw(place / "raw"))
    with pytest.raises(StoreError, match="imported from other raw files .* Remove it, or pass .* --stores"):
        prepare(config, None, stores=stores, root=write_raw(place / "other", seed=1))
    # Without any, none can be compared.
    with pytest.raises(InputError, match="--root.*Put pubmed.npz there"):
        prepare(config, None, stores=stores)


def test_samples_that_are_given_are_said_in_the_config(place):
    graph, config = Graph.open("g"), tiny(find("g")[0])
    musegnn.sample(graph, ShadowKHop([2, 1]), "s", batch_size=7, seed=3)
    found = prepare(config, graph, stores=place, samples=place / "s").config
    assert (found.sampling.sampler, found.sampling.settings) == ("ShadowKHop", {"fanouts": [2, 1]})
    assert (found.sampling.batch_size, found.sampling.sample_seed) == (7, 3)
    assert found.model == config.model
    musegnn.sample(graph, UniformInduced(p=0.9), "free", seed=-1)
    found = prepare(config, graph, stores=place, samples=place / "free")
    assert found.config.sampling.build() == UniformInduced(
        p=0.9, num_samples=found.samples["train"].__len__()
    )
    assert SampleStore.open("free").seed == -1
    assert Config.from_toml(found.config.to_toml(), "config.toml") == found.config


def test_samples_of_another_graph_are_refused(place):
    other = tiny_graph(seed=1)
    musegnn.sample(other, ShadowKHop([2]), "s")
    with pytest.raises(StoreError, match="was drawn from the graph"):
        prepare(tiny(find("g")[0]), Graph.open("g"), stores=place, samples=place / "s")


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"features": None}, "has no features, which f needs"),
        ({"labels": None, "split": None}, "has no labels"),
        ({"split": None}, "has no training nodes"),
        ({"split": np.ones(150, dtype=int)}, "has no training nodes"),
        ({"labels": np.zeros(150, dtype=int)}, "All labeled training nodes .* are of class 0"),
    ],
)
def test_a_graph_that_cannot_be_learned_from_is_refused_before_anything_is_drawn(place, parts, said):
    with pytest.raises(InputError, match=said):
        prepare(tiny(find("g")[0]), tiny_graph(**parts), stores=place / "stores")
    assert not (place / "stores").exists()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"type_inputs": True}, "needs a graph whose nodes have types"),
        ({"kind": "robust", "acceleration": "momentum"}, "takes plain steps"),
    ],
)
def test_a_model_that_cannot_be_made_is_refused_before_anything_is_drawn(place, settings, said):
    config = tiny(find("g")[0]).with_settings(settings)
    with pytest.raises(InputError, match=said):
        prepare(config, tiny_graph(), stores=place / "stores")
    assert not (place / "stores").exists()


def test_a_folder_has_no_raw_files(place):
    with pytest.raises(InputError, match="--root belongs to a dataset"):
        prepare(*find("g"), stores=place, root=place)


def test_a_recipe_may_name_a_graph_folder(place):
    (place / "my.toml").write_text('name = "mine"\ndataset = "g"\n')
    config, graph = find("my.toml")
    assert (config.name, graph.digest) == ("mine", Graph.open("g").digest)


def test_a_recipe_that_is_no_text_is_refused(place):
    (place / "my.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no text in UTF-8"):
        find("my.toml")


def test_a_file_of_edges_is_to_be_imported_first(place):
    (place / "edges.csv").write_text("0,1\n")
    with pytest.raises(InputError, match="muse import edges.csv --out FOLDER"):
        find("edges.csv")
