"""`muse evaluate`: how good a run is, and how far its embeddings are from the exact ones."""

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.runs import Device, MovedSamples, check_run, pick_device
from musegnn.errors import InputError

if TYPE_CHECKING:
    from musegnn.training.config import Config
    from musegnn.training.evaluation import Evaluation

_WORDS = {"stored": "stored samples", "online": "fresh samples", "full": "the whole graph"}


def evaluate(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    splits: Annotated[
        str | None, typer.Option(help="Whose nodes; valid,test if not given.", metavar="NAMES")
    ] = None,
    online: Annotated[bool, typer.Option("--online", help="On fresh samples of the same sampler.")] = False,
    hops: Annotated[int | None, typer.Option(min=1, help="On all neighbors up to this many hops.")] = None,
    full: Annotated[
        bool, typer.Option("--full", help="On the whole graph, with the embeddings in mapped files.")
    ] = False,
    correct_and_smooth: Annotated[
        bool,
        typer.Option("--correct-and-smooth", help="Move predictions of --full by training nodes' classes."),
    ] = False,
    seed: Annotated[int | None, typer.Option(min=0, help="Of the fresh samples.")] = None,
    update_means: Annotated[
        bool,
        typer.Option("--update-means", help="Move a copy of M by each stored sample, as the authors' code."),
    ] = False,
    graph: Annotated[Path | None, typer.Option(help="The run's graph store, if it was moved.")] = None,
    samples: MovedSamples = None,
    device: Device = "cpu",
    threads: Annotated[int, typer.Option(min=1, help="That read ahead; the result is the same.")] = 1,
    scratch: Annotated[
        Path | None, typer.Option(help="Folder for the files of --full; some times nodes x d x 4 bytes.")
    ] = None,
) -> Answer:
    """Evaluate the best weights of a run. Its stored samples are taken unless told otherwise.

    The run stays as it is: the same command gives the same digits. Examples: `muse evaluate runs/debian`,
    `muse evaluate runs/debian --full`, `muse evaluate runs/debian --online --seed 7`.
    """
    how: Any = _pick({"online": online, "hops": hops, "full": full})
    if scratch is not None and how != "full":
        raise InputError("--scratch is for the files of --full: pass it with --full.")
    if correct_and_smooth and how != "full":
        raise InputError("--correct-and-smooth moves the predictions of all nodes: pass it with --full.")
    if seed is not None and how != "online":
        raise InputError("--seed draws fresh samples: pass it with --online.")
    if update_means and how != "stored":
        raise InputError(f"--update-means is for stored samples: leave --{how} out.")
    check_run(run)
    from musegnn.memory import keep_freed_memory
    from musegnn.runs import load_run

    keep_freed_memory()
    started = time.monotonic()
    names = None if splits is None else tuple(name.strip() for name in splits.split(",") if name.strip())
    opened = load_run(run, graph=graph, samples=samples, device=pick_device(device))
    is_finished = opened.folder.result() is not None
    moves: dict[str, Any] = {"update_means": update_means, "correct_and_smooth": correct_and_smooth}
    found = opened.evaluate(names, how, hops=hops or 2, seed=seed, threads=threads, scratch=scratch, **moves)
    took = time.monotonic() - started
    on = _WORDS.get(how, f"all neighbors up to {hops} hops away") + ", moving a copy of M" * update_means
    on += ", corrected and smoothed" * correct_and_smooth

    def tell() -> None:
        show.text(f"{run} on {on}")
        if not is_finished:
            show.text("It is not finished: these are its best weights so far.")
        _print_table(found)
        show.text(f"error bound: {_about_bound(found, opened.config, how)}. Took {show.duration(took)}.")

    facts = {"run": str(run), "how": how, "is_finished": is_finished, **moves}
    return Answer(_record(facts, found), tell)


def _pick(ways: dict[str, object]) -> str:
    """The one that was chosen."""
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise InputError(f"Choose one of --online, --hops and --full, got --{' and --'.join(chosen)}.")
    return chosen[0] if chosen else "stored"


def _record(facts: dict[str, Any], found: dict[str, "Evaluation"]) -> Any:
    from musegnn.training.checkpoint import finite

    record = {
        split: {**one.metrics, "error_bound": one.error_bound, "num_labeled": one.num_labeled}
        for split, one in found.items()
    }
    return finite({**facts, **record})


def _about_bound(found: dict[str, "Evaluation"], config: "Config", how: str) -> str:
    if any(math.isfinite(one.error_bound) for one in found.values()):
        largest = max(one.error_bound for one in found.values() if math.isfinite(one.error_bound))
        where = ", of all nodes together" if how == "full" else " on every sample"
        return f"|Y - Y*| is at most this{where}{show.about_bound(largest, config.energy.minimizer)}"
    return f"none: {config.baseline.architecture} has no energy" if config.is_baseline else show.NO_STEPS


def _print_table(found: dict[str, "Evaluation"]) -> None:
    metrics = list(dict.fromkeys(name for one in found.values() for name in one.metrics))
    rows: list[tuple[str, ...]] = [("split", "nodes", *metrics, "error bound")]
    for split, one in found.items():
        numbers = (one.metrics.get(name, math.nan) for name in metrics)
        shown = (f"{100 * number:.2f} %" for number in numbers)
        rows.append((split, f"{one.num_labeled:,}", *shown, show.bound(one.error_bound)))
    show.table(rows)
