"""Who is compared: every contender is a run that the settings allow, on every recipe and with every draw."""

import json

import pytest

from machine import unchecked as unchecked
from musegnn import recipes
from musegnn.benches import tuning
from musegnn.benches.catalog import BENCHES
from musegnn.benches.contenders import CONTENDERS, apply, check, pick, unheeded
from musegnn.benches.data import parse
from musegnn.errors import InputError
from musegnn.training.config import Config

PAPER = (
    *("GCN online", "SAGE online", "GAT online", "SGFormer", "MariusGNN", "FreshGNN", "GCN GAS", "SAGE GAS"),
    *("GAT GAS", "UGNN full", "LazyGNN", "USP", "MuseGNN", "SGC", "SIGN", "Cluster-GCN", "GraphFM"),
)
"""Tables 2, 3 and 5."""


def test_every_system_of_the_papers_tables_has_a_row():
    rows = BENCHES["accuracy"].rows
    assert set(PAPER) <= set(rows)
    for name, row in rows.items():
        assert (row.settings is None) == bool(row.reason), name
        assert row.about, name
    assert [name for name, row in rows.items() if row.settings is None] == ["MariusGNN"]


def test_convolutions_come_classic_and_tuned_in_four_ways_each():
    for name in ("GCN", "SAGE", "GAT"):
        for way in ("online", "offline", "GAS", "full"):
            classic = apply(CONTENDERS[f"{name} {way}"].settings, {}, Config(), 40_000)
            tuned = apply(CONTENDERS[f"{name} tuned {way}"].settings, {}, Config(), 40_000)
            assert (classic.model.norm, classic.baseline.residual) == ("none", False)
            assert (tuned.model.norm, tuned.baseline.residual) == ("layer", True)
            assert classic.sampling == tuned.sampling
            assert classic.baseline.architecture == tuned.baseline.architecture == name
            assert classic.sampling.online == (way == "online")
            assert (classic.baseline.history == "gas") == (way == "GAS")


def test_relational_sage_is_searched_as_sage_tuned_is_and_has_no_histories():
    ways = {name.removeprefix("RSAGE tuned ") for name in CONTENDERS if name.startswith("RSAGE")}
    assert ways == {"offline", "offline + labels", "full", "online"}
    for way in ways:
        ours, sage = CONTENDERS[f"RSAGE tuned {way}"], CONTENDERS[f"SAGE tuned {way}"]
        assert ours.settings == sage.settings | {"architecture": "RSAGE"}
        assert ours.space == sage.space


def test_every_row_of_every_bench_is_a_run_that_the_settings_allow():
    different = {
        json.dumps([bench.settings, row.settings])
        for bench in BENCHES.values()
        for row in bench.rows.values()
        if row.settings is not None
    }
    for name in ("cora", "debian-predictive"):
        for settings, row in map(json.loads, different):
            apply(row, settings, recipes.load(name), 10_000)


@pytest.mark.parametrize("name", recipes.names())
def test_every_draw_is_a_run_that_the_settings_allow(name):
    recipe = recipes.load(name)
    for row, one in CONTENDERS.items():
        if one.settings is not None:
            for settings in tuning.draws(row, one, 8):
                apply(settings, {}, recipe, 10_000)
            assert apply(one.settings, {"steps": 2}, recipe, 10_000).energy.stages <= 2


def test_every_value_of_a_search_is_allowed_and_none_changes_who_is_searched():
    allowed = set()
    for name, row in CONTENDERS.items():
        assert not set(row.space) & set(BENCHES["accuracy"].fixed), name
        for setting, values in row.space.items():
            assert len(values) == len(set(values)) > 1, name
            allowed |= {(setting, value) for value in values}
    for setting, value in allowed:
        Config().with_settings({setting: value})


def test_the_size_of_the_graph_and_the_recipe_say_the_rest():
    recipe = Config().with_settings({"fanouts": [15, 10, 5], "epochs": 20, "lambda_": 9.0})
    assert apply({"sampler": "NeighborSampling"}, {}, recipe, 9).sampling.settings == {"fanouts": [15, 10, 5]}
    assert apply({"sampler": "Cluster"}, {}, recipe, 80_000).sampling.settings == {"parts": 20}
    assert apply({"sampler": "Cluster"}, {}, recipe, 100).sampling.settings == {"parts": 2}
    # At least 400 steps, whatever an epoch has.
    for parts, epochs in ((1, 400), (8, 50), (20, 20), (40, 20)):
        assert apply({"sampler": "Cluster", "parts": parts}, {}, recipe, 9000).training.epochs == epochs
    assert apply(CONTENDERS["USP"].settings, {}, recipe, 9).baseline.restart == pytest.approx(0.1)


def test_what_is_wanted_of_all_wins_and_goes_to_those_who_have_it():
    wanted = {"epochs": 3, "fanouts": [2], "dropout": 0.1}
    online = apply(CONTENDERS["GCN online"].settings, wanted, Config(), 9000)
    whole = apply(CONTENDERS["GCN full"].settings, wanted, Config(), 9000)
    assert online.sampling.settings == {"fanouts": [2]}
    assert whole.sampling.settings == {"parts": 1}
    assert {one.training.epochs for one in (online, whole)} == {3}
    assert {one.model.dropout for one in (online, whole)} == {0.1}
    check({"fanouts": [2], "parts": 3}, Config())
    with pytest.raises(InputError, match="'epoch'. Did you mean 'epochs'"):
        check({"epoch": 3}, Config())


def test_names_are_found_with_hyphens_and_in_any_case():
    assert list(pick(["gcn-tuned-online", "MUSEGNN", "cluster-gcn"])) == [
        "GCN tuned online",
        "MuseGNN",
        "Cluster-GCN",
    ]
    with pytest.raises(InputError, match="'SGformr' is no contender. Did you mean SGFormer?"):
        pick(["SGformr"])
    with pytest.raises(
        InputError, match="Did you mean GAT online, GAT offline, GAT GAS, GAT full, GAT tuned on"
    ):
        pick(["gat"])
    with pytest.raises(InputError, match="'GNC online' is no contender. Did you mean GCN online"):
        pick(["GNC online"])


def test_draws_repeat_begin_with_the_settings_as_they_are_and_are_of_the_space():
    gat = CONTENDERS["GAT online"]
    found = tuning.draws("GAT online", gat, 30)
    assert found == tuning.draws("GAT online", gat, 40)[:30]
    assert found[0] == gat.settings
    assert found != tuning.draws("GAT offline", gat, 30)
    for setting, values in gat.space.items():
        drawn = [one[setting] for one in found[1:]]
        assert set(drawn) == set(values), setting


def test_a_draw_is_chosen_by_validation_and_of_equal_ones_the_first():
    records = [
        {"valid_accuracy": 0.6, "test_accuracy": 0.9},
        {"valid_accuracy": 0.7, "test_accuracy": 0.1},
        {"valid_accuracy": 0.7, "test_accuracy": 0.8},
        {"error": "OOM"},
        {"valid_accuracy": None},
    ]
    assert tuning.choose(records) == 1
    assert tuning.choose(records[3:]) == 0


def test_data_are_recipes_folders_and_synthetic_graphs_of_some_size(tmp_path):
    assert parse("debian").recipe == recipes.load("debian")
    tenth = parse("Arxiv-shaped:0.1")
    assert (tenth.recipe.dataset, tenth.recipe.options) == ("arxiv-shaped", {"scale": 0.1})
    grown = parse("synthetic:1000").grown({"nodes": 2.0})
    assert grown.recipe.options == {"num_nodes": 2000, "num_edges": 14_000}
    assert grown.grown({}) is grown
    small = parse("synthetic:400")
    assert small.open(None, tmp_path).num_nodes == 400
    assert (tmp_path / "synthetic" / "graph-400").is_dir()
    assert grown.size == "-2000-14000"
    dense = parse("synthetic:1000").grown({"edges": 3.0})
    assert dense.recipe.options == {"num_nodes": 1000, "num_edges": 21_000}
    with pytest.raises(InputError, match="debian has one size only"):
        parse("debian").grown({"nodes": 2.0})
    with pytest.raises(InputError, match="'synthetic:many' must be a number of nodes"):
        parse("synthetic:many")
    with pytest.raises(InputError, match="'debain' is no recipe"):
        parse("debain")


def test_classes_are_seen_by_who_says_so_only():
    """Whatever a recipe asks for; but a recipe as it is may."""
    recipe = Config().with_settings({"gamma": 0.0, "label_inputs": True})
    for name, one in CONTENDERS.items():
        if one.settings is None:
            continue
        seen = apply(one.settings, {}, recipe, 4000).model.label_inputs
        assert seen == (name.endswith("+ labels") or name == "MuseGNN"), name
    assert CONTENDERS["MuseGNN"].settings == {}
    peer, plain = CONTENDERS["SAGE tuned offline + labels"], CONTENDERS["SAGE tuned offline"]
    assert peer.settings == plain.settings | {"label_inputs": True}
    assert peer.space == plain.space


def test_what_no_row_heeds_is_told_and_what_one_heeds_is_not():
    settings = dict(CONTENDERS["MLP"].settings)
    rows = pick(["musegnn", "mlp", "mariusgnn"]).values()
    wanted = {"rank": 4, "heads": 2, "lambda_": 3.0, "layers": 2, "lr": 0.1, "fanouts": [3]}
    found = unheeded(wanted, rows, recipes.load("debian"))
    assert found == {"rank": "kind=smoothness", "heads": "architecture=MuseGNN"}
    rows = pick(["musegnn relational", "gat full"]).values()
    assert unheeded(wanted, rows, recipes.load("debian")) == {}
    assert CONTENDERS["MLP"].settings == settings
