"""The recipes: TOML files beside this one, each read into a `Config`."""

import difflib
from importlib.resources import files

from musegnn.errors import InputError
from musegnn.training.config import Config

NAMES = (
    *("debian", "debian-thorough", "debian-relational", "debian-predictive", "debian-robust"),
    *("cora", "citeseer", "pubmed"),
    *("ogbn-arxiv", "igb-tiny", "ogbn-products", "igb-medium", "ogbn-papers100M", "mag240m", "igb-full"),
)
"""In the order of the table: ours, then the paper's by size."""


def names() -> list[str]:
    """The names of all recipes."""
    return list(NAMES)


def is_known(name: str) -> bool:
    """Whether a recipe has this name, whatever its capitals."""
    return name.lower() in (known.lower() for known in NAMES)


def text(name: str) -> str:
    """The TOML of a recipe, with its comments: where each setting comes from."""
    return (files("musegnn.recipes") / f"{_find(name)}.toml").read_text(encoding="utf-8")


def load(name: str) -> Config:
    """A recipe by its name, whatever its capitals; an unknown one is answered with the nearest."""
    return Config.from_toml(text(name), f"recipe {_find(name)}")


def find_for_dataset(dataset: str) -> Config | None:
    """The first recipe for a dataset, whatever its capitals, or None where there is none."""
    recipes = (load(name) for name in NAMES)
    return next((recipe for recipe in recipes if recipe.dataset.lower() == dataset.lower()), None)


def _find(name: str) -> str:
    by_lower = {known.lower(): known for known in NAMES}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    hint = nearest(names(), name) or f" There are {', '.join(NAMES)}."
    raise InputError(f"{name!r} is no recipe.{hint}")


def nearest(known: list[str], name: str) -> str:
    """' Did you mean ...?', or nothing."""
    by_lower = {entry.lower(): entry for entry in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return f" Did you mean {by_lower[near[0]]}?" if near else ""
