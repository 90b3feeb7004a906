"""Settings: every one is checked, named in the answer, and survives TOML."""

import dataclasses
import math
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine import unchecked as unchecked
from musegnn.errors import InputError
from musegnn.sampling.catalog import SAMPLERS
from musegnn.training.building import build_model
from musegnn.training.config import TABLES, Config, settings_of_tables

SETTINGS = {setting.name: (table, setting) for table, setting in settings_of_tables()}
NUMBERS = [name for name, (_, setting) in SETTINGS.items() if setting.metadata["low"] > -math.inf]


def kinds(name):
    """The types a setting may have, and its choices."""
    hint = typing.get_type_hints(TABLES[SETTINGS[name][0]])[name]
    parts = typing.get_args(hint) if typing.get_origin(hint) not in (None, dict, typing.Literal) else (hint,)
    choices = [
        c for part in parts if typing.get_origin(part) is typing.Literal for c in typing.get_args(part)
    ]
    return parts, choices


def refused(settings):
    with pytest.raises(InputError) as caught:
        Config().with_settings(settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name in SETTINGS if name != "settings"])
def test_a_wrong_type_is_refused(name):
    parts, choices = kinds(name)
    for value in (None, [1], {"a": 1}, math.nan, "no such", 0.5, True, 3):
        fits = (
            (isinstance(value, bool) and bool in parts)
            or (isinstance(value, float) and not math.isnan(value) and float in parts)
            or (type(value) is int and (int in parts or float in parts))
            or (isinstance(value, str) and str in parts)
        )
        in_range = not isinstance(value, float | int) or isinstance(value, bool)
        in_range = (
            in_range or SETTINGS[name][1].metadata["low"] <= value <= SETTINGS[name][1].metadata["high"]
        )
        if name != "sampler" and not (fits and in_range):
            message = refused({name: value})
            assert message.startswith(f"{name} must be ")
            assert message.endswith(f"got {value!r}.")
            assert all(repr(choice) in message for choice in choices)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_range_is_refused(name):
    low, high = (SETTINGS[name][1].metadata[end] for end in ("low", "high"))
    whole = int in kinds(name)[0]
    below = low - 1 if whole else math.nextafter(low, -math.inf)
    for value in (below, -1, math.inf, -math.inf, 10**400, *([] if high == math.inf else [high + 1])):
        message = refused({name: value})
        assert message.startswith(f"{name} must be ")
        assert f"got {value!r}." in message
    inside = {"alpha": 0.5, "update_means": False}.get(name, 1 if low <= 1 <= high else low)
    for value in {low, inside} | (set() if high == math.inf else {high}):
        changed = Config().with_settings({name: value})
        assert getattr(getattr(changed, SETTINGS[name][0]), name) == value


@pytest.mark.parametrize("name", [name for name in SETTINGS if kinds(name)[1]])
def test_every_choice_is_taken(name):
    table = SETTINGS[name][0]
    # A batch norm is a peer's alone.
    config = Config().with_settings({"architecture": "SAGE"} if name == "norm" else {})
    for choice in kinds(name)[1]:
        for spelled in (name, f"{table}.{name}"):
            assert getattr(getattr(config.with_settings({spelled: choice}), table), name) == choice


def test_a_name_with_another_table_is_unknown():
    assert refused({"model.kind": "predictive"}).startswith("there is no setting 'model.kind'.")


def test_what_does_not_fit_together_is_refused():
    assert "Take 'layer'" in refused({"norm": "batch"})
    assert "needs lambda_ above 0" in refused({"kind": "predictive", "lambda_": 0.0})


def test_the_nearest_name_is_offered():
    assert refused({"gama": 1.0}) == "there is no setting 'gama'. Did you mean 'gamma'?"
    assert refused({"learning": 1.0}).startswith("there is no setting 'learning'.")
    table = "'energy' is a table of settings. Set one of energy.kind, energy.lambda_, "
    assert refused({"energy": "predictive"}).startswith(table)
    assert refused({"energy": "predictive"}).startswith(
        "'energy' is a table of settings. Set one of energy.kind, energy.lambda_"
    )
    assert refused({"fanout": [3]}) == "there is no setting 'fanout'. Did you mean 'fanouts'?"
    assert "top_k" in refused({"sampler": "PersonalizedPageRank", "topk": 3})
    assert refused({"settings": {}}).startswith("there is no setting 'settings'.")
    assert "ShadowKHop" in refused({"sampler": "Shadow"})


def test_no_setting_of_a_sampler_hides_another():
    own = {part.name for kind in SAMPLERS.values() for part in dataclasses.fields(kind) if part.init}
    assert not own & set(SETTINGS)
    assert len(SETTINGS) == sum(len(dataclasses.fields(kind)) for kind in TABLES.values())


def test_m_on_disk_is_not_moved_by_evaluation():
    assert "means_home='memory'" in refused({"update_means": True, "means_home": "disk"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[training", "is not TOML"),
        ("epochs = 3", "there is no setting 'epochs'"),
        ("[trainig]\nepochs = 3", "Did you mean 'training'?"),
        ("[training]\nepoch = 3", "[training] there is no setting 'epoch'. Did you mean 'epochs'?"),
        ("[training]\ngamma = 0.5", "[training] there is no setting 'gamma'"),
        ("[sampling]\ngamma = 0.5", "[sampling] there is no setting 'gamma'"),
        ("[sampling]\nsampler = 'RandomWalk'\nfanouts = [1]", "'fanouts' is a setting of the sampler Shadow"),
        ("[energy]\ngamma = -1", "gamma must be a number at least 0"),
        ("training = 3", "training must be a table"),
        ("training = 'epochs'", "training must be a table"),
        ("[[training]]\nepochs = 3", "training must be a table"),
        ("name = 3", "name must be a text"),
        ("options = 3", "options must be a table"),
        ("expected = [1]", "expected must be a table"),
        ("[training]\nlr = inf", "lr must be a number above 0"),
        ("[training]\nlr = nan", "lr must be a number above 0"),
    ],
)
def test_toml_that_is_no_config(text, words):
    with pytest.raises(InputError) as caught:
        Config.from_toml(text, "mine.toml")
    assert str(caught.value).startswith("mine.toml")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_defaults_survive_toml():
    config = Config()
    assert Config.from_toml(config.to_toml(), "t") == config
    for table, setting in settings_of_tables():
        if setting.name != "settings":
            about = setting.metadata["about"]
            assert about
            assert f"  # {about}" in config.to_toml(), table


def test_whole_numbers_are_whole_numbers():
    """From TOML or --set, 8.0 is 8, which a layer wants."""
    config = Config().with_settings({"hidden": 8.0, "epochs": 3.0, "lr": 1})
    assert (type(config.model.hidden), type(config.training.epochs)) == (int, int)
    assert build_model(config, 3, 2).f.widths == [3, 8, 8, 8]


@st.composite
def configs(draw):
    """Any settings within their ranges, with a few samplers, and texts with anything in them."""
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    changes = {}
    for name, (_, setting) in SETTINGS.items():
        # These do not go with all of the others.
        apart = ("settings", "sampler", "update_means", "class_weights", "norm", "kind")
        if name in (*apart, "stages", "label_inputs"):
            continue
        parts, choices = kinds(name)
        low, high = setting.metadata["low"], setting.metadata["high"]
        top = None if high == math.inf else high
        options = [st.sampled_from(choices)] if choices else []
        options += [st.booleans()] if bool in parts else []
        options += [st.integers(int(max(low, -(2**62))), int(min(high, 2**62)))] if int in parts else []
        if float in parts:
            options.append(st.floats(low, top, allow_nan=False, allow_infinity=False))
        if draw(st.booleans()):
            changes[name] = draw(st.one_of(options))
    own = draw(
        st.sampled_from(
            [
                {"sampler": "ShadowKHop", "fanouts": [4, 3, 2]},
                {"sampler": "PersonalizedPageRank", "top_k": 7, "tolerance": 1e-7},
                {"sampler": "Cluster", "parts": 3},
            ]
        )
    )
    options = draw(st.dictionaries(st.sampled_from(["size", "seed", "kind"]), st.integers() | text))
    base = Config(name=draw(text), about=draw(text), dataset=draw(text), options=options)
    return base.with_settings({**changes, **own})


@given(configs())
def test_any_config_survives_toml(config):
    text = config.to_toml()
    assert Config.from_toml(text, "t") == config
    assert Config.from_toml(text, "t").to_toml() == text
