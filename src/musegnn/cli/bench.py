"""`muse bench`: the paper's tables and figures, each with MuseGNN and its peers on your own graph."""

import shlex
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musegnn.benches.catalog import BENCHES
from musegnn.benches.contenders import CONTENDERS, pick
from musegnn.benches.data import parse as parse_data
from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.graphs import check_out
from musegnn.cli.runs import pick_device
from musegnn.cli.settings import parse
from musegnn.errors import InputError
from musegnn.recipes.catalog import nearest
from musegnn.store import kind_of

if TYPE_CHECKING:
    from musegnn.benches.running import Progress


def bench(
    name: Annotated[str | None, typer.Argument(help="Which one; none lists all.")] = None,
    data: Annotated[
        str,
        typer.Option(
            help="Recipes, datasets or graph folders, with commas; arxiv-shaped:0.1 is a tenth of one."
        ),
    ] = "",
    models: Annotated[
        str, typer.Option(help="Some of the contenders, with commas; all that belong to it if not given.")
    ] = "",
    seeds: Annotated[str, typer.Option(help="How many, or which: 3 and 0,1,2 are the same.")] = "",
    seconds: Annotated[
        float | None, typer.Option(min=1, help="Of training for each cell; its best epoch so far counts.")
    ] = None,
    tune: Annotated[
        int, typer.Option(min=0, help="Tries for each contender, chosen on the validation nodes.")
    ] = 0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of all, as in --set epochs=5.", metavar="KEY=VALUE"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Where all of it goes; bench/NAME if not given.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with a dataset's raw files.")] = None,
    stores: Annotated[
        Path | None, typer.Option(help="Where graphs and samples are kept for the next run, if not stores/.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
) -> Answer:
    """Compare MuseGNN with its peers: same graph, split, budget and report, as CSV, Markdown and SVG.

    Each cell (contender, graph, seed) is a run folder. A bench that was stopped goes on with the same
    command, and what is done is not run again. Examples: `muse bench`,
    `muse bench accuracy --data debian --seeds 1 --seconds 40`,
    `muse bench gamma --data graphs/mine --seeds 0,1,2`.
    """
    if name is None:
        return _list()
    words = {"data": data, "models": models, "seeds": seeds, "seconds": seconds, "tune": tune}
    folder = out or Path("bench") / name
    check_out(folder)
    if kind := kind_of(folder):
        raise InputError(f"--out {folder} is a store ({kind}). Name a folder for the bench alone.")
    places = {"out": folder, "root": root, "stores": stores or Path("stores")}
    given = {**_given(name, words), **places, "settings": parse(settings or [], "epochs=5")}
    given["command"] = _command(name, words, settings or [], root)
    # torch takes some seconds to import: a misspelled name does not wait for it.
    from musegnn.benches.running import Request, run_bench

    request = Request(name=name, device=pick_device(device), **given)
    before = _before(folder / f"{name}.md", request.command)
    table = run_bench(request, _tell)
    # What is refused replaces nothing.
    if before:
        show.text(before)

    def tell() -> None:
        print()
        _print_page(table.to_markdown())
        show.text(f"Wrote {request.out / name}.csv, .md, .svg; runs: {request.out / 'cells'}")

    return Answer(table.to_json(), tell)


def _before(page: Path, command: str) -> str:
    """A folder has one table of a bench: what is said if that of another command gives way."""
    if not page.is_file():
        return ""
    lines = page.read_text(encoding="utf-8", errors="replace").splitlines()
    said = next((line.partition("`")[2].rpartition("`")[0] for line in lines if line[:8] == "Command:"), "")
    if said and said != command:
        rows = show.count(sum(line[:2] == "| " for line in lines) - 1, "row")
        day = datetime.fromtimestamp(page.stat().st_mtime).date()
        return (
            f"The table that was in {page.parent} ({rows}, {day}) is replaced; its cells stay, so that this "
            f"brings it back: {said}"
        )
    return ""


def _given(name: str, words: dict[str, Any]) -> dict[str, Any]:
    """What the options say."""
    if name not in BENCHES:
        hint = nearest(list(BENCHES), name) or f" There are {', '.join(BENCHES)}."
        raise InputError(f"There is no bench {name!r}.{hint}")
    chosen = BENCHES[name]
    targets = _split(words["data"] or chosen.data)
    if not targets or len(set(targets)) != len(targets):
        raise InputError(f"{name} needs graphs, each once. Pass --data, such as --data debian.")
    if words["models"] and not chosen.takes_models:
        raise InputError(f"The rows of {name} are no contenders. Leave --models out.")
    return {
        "bench": chosen,
        "datas": [parse_data(target) for target in targets],
        "rows": pick(_split(words["models"])) if words["models"] else chosen.rows,
        "seeds": _seeds(words["seeds"]) if words["seeds"] else list(range(chosen.seeds)),
        **{"seconds": words["seconds"], "tries": words["tune"]},
    }


def _command(name: str, words: dict[str, Any], settings: list[str], root: Path | None) -> str:
    """As it may be run again, without the folders of this machine."""
    given = {
        key: f"{value:g}" if isinstance(value, float) else str(value) for key, value in words.items() if value
    }
    parts = [f"--{key} {shlex.quote(value)}" for key, value in given.items()]
    parts += [f"--set {shlex.quote(setting)}" for setting in settings] + ["--root RAW"] * (root is not None)
    return " ".join(["muse bench", name, *parts])


def _list() -> Answer:
    """What there is."""
    benches = {name: one.about for name, one in BENCHES.items()}
    contenders = {
        name: one.about + (f" (not run: {one.reason})" if one.settings is None else "")
        for name, one in CONTENDERS.items()
    }

    def tell() -> None:
        show.lines(benches)
        print()
        show.text("Contenders (--models; a hyphen may stand for a space):")
        show.lines(contenders)

    return Answer({"benches": benches, "contenders": contenders}, tell)


def _print_page(page: str) -> None:
    """Markdown as it is; its table as other tables where it is wider than the terminal."""
    lines = page.splitlines()
    rows = [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines if line[:2] == "| "]
    is_whole = all(show.fits(len(line)) for line in lines if line[:1] == "|")
    for line in lines:
        if is_whole or line[:1] != "|":
            show.text(line)
        elif line[:3] == "|--":
            show.table(rows)
    print()


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _seeds(text: str) -> list[int]:
    """'3' -> 0, 1, 2; '3,5' -> 3, 5; '3,' -> 3."""
    try:
        numbers = [int(word) for word in _split(text)]
    except ValueError:
        numbers = []
    seeds = list(range(numbers[0])) if len(numbers) == 1 and "," not in text else numbers
    if not seeds or min(seeds) < 0 or len(set(seeds)) != len(seeds):
        raise InputError(
            f"--seeds takes how many, such as 3, or which, each once, such as 0,1,2, or '4,' for one alone; "
            f"got {text!r}."
        )
    return seeds


def _tell(told: "Progress") -> None:
    took = "" if told.took is None else f", {show.duration(told.took)}"
    left = "" if told.left is None else f"; about {show.duration(told.left)} left"
    show.text(told.text + took + left)
