"""The recipes are complete, the paper's are as published, and the commands that show them show all."""

import inspect
import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import torch

import musegnn
from musegnn import Graph
from musegnn.cli.main import main
from musegnn.cli.recipes import _expected, recipes
from musegnn.datasets import CATALOG
from musegnn.errors import InputError
from musegnn.recipes import catalog, find_for_dataset, load, names
from musegnn.recipes.finding import find
from musegnn.training.config import Config

# Read off the paper: "Model Details", "Offline Samples", "Training Hyperparameters", the tables of accuracies
# and of gamma. None where the paper does not say. Fanouts as printed, in DGL's order.
ALL = {
    **{"layers": 3, "output_layers": 3, "steps": 8, "hidden": 512, "rho": 0.9, "dropout": 0.2},
    **{"lr": 1e-3, "weight_decay": 0.0, "batch_size": 1000, "prox": "relu"},
}
COLUMNS = ("fanouts", "lambda_", "alpha", "gamma", "skip", "accuracy", "spread")
PUBLISHED = {
    "ogbn-arxiv": (None, 20, 0.05, 0.1, True, 72.50, 0.19),
    "igb-tiny": ([5, 10, 15], 4, 0.2, 0.5, True, 73.42, 0.03),
    "ogbn-products": ([10, 15], 1, 1, 0.5, False, 81.23, 0.39),
    "igb-medium": ([10, 15], 4, 0.2, 0.5, True, 75.83, None),
    "ogbn-papers100M": ([5, 10, 15], 20, 0.05, 3, True, 66.82, 0.02),
    "mag240m": ([5, 10, 15], 4, 0.2, None, True, 67.67, 0.13),
    "igb-full": ([10, 15], 4, 0.2, None, True, 61.74, 0.05),
}
LARGE = ("ogbn-papers100M", "mag240m", "igb-full")
INPUT_DROPOUT = {"ogbn-arxiv": 0.2, "ogbn-products": 0.2, "ogbn-papers100M": 0.2}
"""Of the authors' code; 0 for the others."""


def settings_of(recipe):
    """All settings by name."""
    parts = (recipe.sampling, recipe.energy, recipe.model, recipe.means, recipe.training)
    return {name: value for part in parts for name, value in vars(part).items()} | recipe.sampling.settings


def test_every_file_is_a_recipe_and_every_recipe_a_file():
    shipped = {path.name for path in files("musegnn.recipes").iterdir() if path.name.endswith(".toml")}
    assert shipped == {f"{name}.toml" for name in names()}
    assert set(PUBLISHED) < set(names())
    assert {"debian", "debian-thorough", "debian-predictive", "cora", "citeseer", "pubmed"} < set(names())
    assert {"debian-relational", "debian-robust"} < set(names())


@pytest.mark.parametrize("name", names())
def test_a_recipe_is_read_under_its_name_in_any_capitals(name):
    recipe = load(name)
    assert recipe.name == name
    assert recipe.about
    assert load(name.upper()) == load(name.lower()) == recipe


@pytest.mark.parametrize("name", names())
def test_a_recipe_survives_toml(name):
    recipe = load(name)
    assert Config.from_toml(recipe.to_toml(), "again") == recipe
    assert replace(recipe, name="other") != recipe


@pytest.mark.parametrize("name", names())
def test_dataset_and_options_exist(name):
    recipe = load(name)
    known = inspect.signature(CATALOG[recipe.dataset].read).parameters
    assert set(recipe.options) <= set(known)


@pytest.mark.parametrize("name", PUBLISHED)
def test_settings_are_as_expected(name):
    recipe = load(name)
    found = settings_of(recipe)
    for setting, value in ALL.items():
        assert found[setting] == value, setting
    published = dict(zip(COLUMNS, PUBLISHED[name], strict=True))
    for setting in ("lambda_", "alpha", "gamma", "skip"):
        if published[setting] is not None:
            assert found[setting] == published[setting], setting
    if published["fanouts"] is None:
        assert (recipe.sampling.sampler, recipe.sampling.settings) == ("FullKHop", {"hops": 2})
    else:
        assert recipe.sampling.sampler == "ShadowKHop"
        assert recipe.sampling.settings == {"fanouts": published["fanouts"][::-1]}
    assert recipe.energy.precondition == ("authors" if name == "ogbn-products" else "none")
    assert recipe.options == ({"num_classes": 19} if name.startswith("igb") else {})


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_accuracy_is_expected(name):
    expected = load(name).expected
    *_, accuracy, spread = PUBLISHED[name]
    # The test labels of MAG240M are not public.
    measure = "valid_accuracy" if name == "mag240m" else "test_accuracy"
    assert expected[measure] == pytest.approx(accuracy / 100, abs=1e-9)
    assert expected.get("spread") == (None if spread is None else pytest.approx(spread / 100, abs=1e-9))
    assert "ICLR 2025" in expected["source"]
    assert set(expected) <= {measure, "spread", "source"}


@pytest.mark.parametrize("name", ["debian", "debian-thorough"])
def test_our_own_expectations_are_those_that_were_measured(name):
    results = (Path(__file__).parents[2] / "benchmarks/RESULTS.md").read_text()
    accuracy, spread = re.search(
        rf"\| recipe {name} \| ([\d.]+) \| % \+- ([\d.]+), 5 seeds", results
    ).groups()
    expected = load(name).expected
    assert expected["test_accuracy"] == pytest.approx(float(accuracy) / 100, abs=1e-9)
    assert expected["spread"] == pytest.approx(float(spread) / 100, abs=1e-9)
    assert "RESULTS.md" in expected["source"]


BENCHES = {
    "debian-predictive": ("MuseGNN predictive", "--data {} --models 'MuseGNN predictive' --seeds 5"),
    "debian-relational": ("MuseGNN diagonal", "--data debian-thorough --models 'MuseGNN diagonal' --seeds 3"),
    "debian-robust": ("MuseGNN", "--data {} --models MuseGNN --seeds 3"),
}
"""Row and command of the table that a recipe was measured in."""


@pytest.mark.parametrize("name", BENCHES)
def test_expectations_of_typed_and_robust_energies_are_those_of_their_tables(name):
    row, command = BENCHES[name]
    figures = json.loads((Path(__file__).parents[2] / "benchmarks/results.json").read_text())
    command = f"muse bench accuracy {command.format(name)}"
    wanted = command, f"{row}: test accuracy"
    (found,) = (figure for figure in figures if (figure["command"], figure["name"]) == wanted)
    expected, spread = load(name).expected, re.search(r"spread ([\d.]+)", found["unit"])
    assert expected["test_accuracy"] == pytest.approx(found["value"] / 100, abs=5e-5)
    assert expected["spread"] == pytest.approx(float(spread[1]) / 100, abs=5e-5)


@pytest.mark.parametrize(
    ("settings", "is_kept"),
    [
        ({}, True),
        ({"seed": 3, "sample_seed": 1, "features_home": "mapped", "means_home": "disk"}, True),
        ({"lambda_": 2, "fanouts": [10, 5], "sampler": "shadowkhop"}, True),
        ({"architecture": "MLP"}, False),
        ({"fanouts": [10, 4]}, False),
        ({"batch_size": 999, "seed": 1}, False),
        ({"lr": 0.1}, False),
    ],
)
def test_an_expectation_is_about_one_set_of_settings(settings, is_kept):
    recipe = load("debian")
    changed = recipe.with_settings(settings)
    assert changed.expected == (recipe.expected if is_kept else {})
    # Read again, it is as it was written.
    assert Config.from_toml(changed.to_toml(), "again") == changed


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_the_paper_leaves_open_is_as_the_authors_ran_it_or_as_memory_demands(name):
    recipe = load(name)
    assert recipe.energy.laplacian == "normalized"
    assert recipe.model.input_dropout == INPUT_DROPOUT.get(name, 0.0)
    assert recipe.energy.gamma > 0
    assert (recipe.means.means_home, recipe.means.means_dtype) == (
        ("disk", "bfloat16") if name in LARGE else ("memory", "float32")
    )
    assert recipe.means.unseen == "zero"
    assert not recipe.training.update_means


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_line_that_is_not_from_the_paper_says_where_it_is_from(name):
    of_the_paper = {*ALL, *COLUMNS, "sampler", "hops", "precondition", "num_classes", "unseen"}
    if name == "ogbn-products":
        of_the_paper -= {"precondition"}
    if PUBLISHED[name][COLUMNS.index("gamma")] is None:
        of_the_paper -= {"gamma"}
    settings = catalog.text(name).partition("\n[")[2].partition("\n[expected]")[0]
    for line in settings.splitlines():
        setting = re.match(r"(\w+) = ", line)
        if setting and setting[1] not in of_the_paper:
            assert re.search(r"# .*(authors'|ours)", line), line


def star(theta):
    """One hub and five leaves, whose largest eigenvalue is said to be `theta` or more."""
    return musegnn.Sample(
        node_ids=np.arange(6),
        indptr=np.array([0, 5, 6, 7, 8, 9, 10]),
        indices=np.array([1, 2, 3, 4, 5, 0, 0, 0, 0, 0], dtype=np.int32),
        num_seeds=6,
        bounds=np.array([theta, 2.0, 6.0, 6.0]),
    )


@pytest.mark.parametrize("name", [name for name in names() if load(name).energy.kind == "smoothness"])
def test_alpha_is_not_refused_on_an_ordinary_sample(name):
    recipe = load(name)
    parts, alpha = recipe.energy, recipe.model.alpha
    energy = musegnn.Energy(
        parts.lambda_, parts.gamma, parts.laplacian, parts.prox, precondition=parts.precondition
    )
    like = torch.ones(6, 2)
    problem = energy.on(star(theta=1.5), like, None, like=like, alpha=alpha)
    assert alpha in ("auto", problem.alpha)
    if parts.precondition == "none" and alpha != "auto":
        assert alpha < 2 / (1 + parts.gamma + 1.5 * parts.lambda_)
        with pytest.raises(InputError, match="alpha"):
            energy.on(star(theta=1.5), like, None, like=like, alpha=2 * alpha)


def test_the_whole_graph_is_the_one_sample_of_planetoid():
    for name in ("cora", "citeseer", "pubmed"):
        sampler = load(name).sampling.build()
        assert (sampler.p, sampler.num_samples) == (1.0, 1)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("ogbn-arxif", "Did you mean ogbn-arxiv?"),
        ("IGB-ful", "Did you mean igb-full?"),
        ("papers100M", "Did you mean ogbn-papers100M?"),
        ("??", "There are debian, debian-thorough, debian-relational, debian-predictive"),
    ],
)
def test_an_unknown_recipe_is_answered_with_the_nearest(wrong, hint):
    for call in (load, catalog.text, recipes):
        with pytest.raises(InputError) as error:
            call(wrong)
        assert hint in str(error.value)
        assert repr(wrong) in str(error.value)
        assert "\n" not in str(error.value)
    assert not catalog.is_known(wrong)
    assert catalog.is_known("MAG240M")


def test_a_dataset_has_its_recipe():
    assert find_for_dataset("debian").name == "debian"
    assert find_for_dataset("IGB-full").name == find_for_dataset("igb-FULL").name == "igb-full"
    assert find_for_dataset("IGB-small") is None


def test_a_broken_recipe_is_named(monkeypatch):
    monkeypatch.setattr(catalog, "text", lambda name: "[model]\nhiden = 3\n")
    with pytest.raises(InputError, match=r"recipe debian: \[model\] there is no setting 'hiden'.*hidden"):
        load("DEBIAN")


def test_the_table_shows_all(capsys):
    main(["recipes"])
    out = capsys.readouterr().out
    rows = [line.split() for line in out.partition("\n\n")[0].splitlines()]
    assert rows[0] == [
        "name",
        "dataset",
        "nodes",
        "sampler",
        *("lambda", "alpha", "gamma", "K", "d"),
        "expected",
    ]
    assert [row[0] for row in rows[1:]] == names()
    by_name = {row[0]: row[1:] for row in rows}
    assert by_name["debian"][:3] == ["debian", "63", "k"]
    assert _expected(replace(load("debian"), expected={})) == "-"
    assert " ".join(by_name["ogbn-arxiv"]) == "ogbn-arxiv 169 k FullKHop 2 20 0.05 0.1 8 512 72.50"
    assert " ".join(by_name["mag240m"]) == "MAG240M 244 M ShadowKHop 15,10,5 4 0.2 0.5 8 512 67.67*"
    assert "`muse train debian --out RUN`" in out
    assert out.isascii()


@pytest.mark.parametrize("name", names())
def test_a_recipe_is_printed_as_it_is(name, capsys):
    main(["recipes", name.upper()])
    out = capsys.readouterr().out
    assert out == catalog.text(name)
    assert Config.from_toml(out, "printed") == load(name)
    assert max(len(line) for line in out.splitlines()) <= 110


def test_the_page_about_recipes_names_all_and_runs():
    page = (Path(__file__).parents[2] / "docs/recipes.md").read_text()
    for name in names():
        assert f"`{name}`" in page
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, {})
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert Config.from_toml(example, "the page").sampling.settings == {"fanouts": [15, 10]}
    for name, (*_, accuracy, spread) in PUBLISHED.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}`"))
        assert f"{accuracy:.2f}" + (f" +- {spread:.2f}" if spread else "") in row


@pytest.mark.parametrize(("num_train", "epochs"), [(1, 400), (1500, 200), (30_000, 20)])
def test_a_graph_of_ones_own_is_trained_for_400_steps_at_least(num_train, epochs, tmp_path):
    """Of samples of 1,000 seeds."""
    split = np.full(30_001, 1, np.int8)
    split[:num_train] = 0
    labels = np.zeros(len(split), np.int64)
    Graph.from_edges([[0], [1]], num_nodes=len(split), split=split, labels=labels).save(tmp_path / "g")
    config, _ = find(str(tmp_path / "g"))
    assert config.training.epochs == epochs
    Graph.from_edges([[0], [1]]).save(tmp_path / "h")
    assert find(str(tmp_path / "h"))[0].training.epochs == 20
