"""`muse recipes`: the settings that are known to work, as a table or one of them in full."""

from dataclasses import asdict
from typing import Annotated

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.datasets import CATALOG
from musegnn.recipes import catalog
from musegnn.training.config import Config

HEADER = ("name", "dataset", "nodes", "sampler", "lambda", "alpha", "gamma", "K", "d", "expected")


def recipes(
    name: Annotated[str | None, typer.Argument(help="A recipe to print as TOML; none lists all.")] = None,
) -> Answer:
    """Show the recipes that are shipped. With a name, that one, and the origin of each setting.

    Examples: `muse recipes`, `muse recipes ogbn-arxiv`, `muse recipes debian > my.toml`.
    """
    if name is not None:
        toml = catalog.text(name)
        return Answer(asdict(catalog.load(name)), lambda: print(toml, end=""))
    found = [catalog.load(known) for known in catalog.names()]
    return Answer([asdict(one) for one in found], lambda: _tell(found))


def _tell(found: list[Config]) -> None:
    show.table([HEADER, *map(_row, found)])
    print()
    show.text(
        "expected: test accuracy in %; with a *, that of the validation nodes. `muse recipes NAME` says "
        "whose it is, and where each setting comes from."
    )
    show.text(
        "Run one with `muse train debian --out RUN`, change it with --set, or write your own: "
        "`muse recipes debian > my.toml`, then `muse train my.toml --out RUN`."
    )


def _row(recipe: Config) -> tuple[str, ...]:
    energy, model = recipe.energy, recipe.model
    numbers = (energy.lambda_, model.alpha, energy.gamma, model.steps, model.hidden)
    return (
        recipe.name,
        recipe.dataset,
        _nodes(recipe.dataset),
        _sampler(recipe),
        *(number if isinstance(number, str) else f"{number:g}" for number in numbers),
        _expected(recipe),
    )


def _nodes(dataset: str) -> str:
    """'63 k', the first two words behind the colon of 'Debian packages, embedded: 63 k nodes, ...'."""
    return " ".join(CATALOG[dataset].about.partition(": ")[2].split()[:2])


def _sampler(recipe: Config) -> str:
    """'ShadowKHop 15,10,5'."""
    values = recipe.sampling.settings.values()
    words = (
        ",".join(f"{part}" for part in value) if isinstance(value, list) else f"{value:g}" for value in values
    )
    return " ".join([recipe.sampling.sampler, *words])


def _expected(recipe: Config) -> str:
    expected = recipe.expected
    accuracy = expected.get("test_accuracy", expected.get("valid_accuracy"))
    if accuracy is None:
        return "-"
    return f"{100 * accuracy:.2f}" + "*" * ("test_accuracy" not in expected)
