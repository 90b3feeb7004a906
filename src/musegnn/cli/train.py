"""`muse train`: a recipe, a dataset or a graph -> a run folder."""

import json
import shlex
import sys
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.graphs import check_out
from musegnn.cli.runs import check_run, pick_device
from musegnn.cli.settings import parse
from musegnn.cli.start import INTERRUPTED
from musegnn.errors import InputError
from musegnn.graph.threads import default_workers
from musegnn.ranks import current
from musegnn.recipes.finding import find

if TYPE_CHECKING:
    from musegnn.recipes.pipeline import Prepared
    from musegnn.training.config import Config, SamplingConfig

LONG_SECONDS = 60.0
"""An epoch that takes so long is hardly longer for the kernels that were compiled in it."""


def train(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A recipe or dataset, a recipe of your own (.toml), or the folder of a graph store."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The run folder; runs/NAME if not given.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training samples.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Of weights, dropout and order.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any setting of the recipe, as in --set gamma=0.5.", metavar="KEY=VALUE"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on with this run from its last checkpoint.", metavar="RUN")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with a dataset's raw files.")] = None,
    stores: Annotated[
        Path | None, typer.Option(help="Where graphs and samples are kept for the next run, if not stores/.")
    ] = None,
    samples: Annotated[
        Path | None, typer.Option(help="Samples that `muse sample` drew; of --resume: if they were moved.")
    ] = None,
    graph: Annotated[Path | None, typer.Option(help="Of --resume: the graph store, if moved.")] = None,
    threads: Annotated[
        int | None, typer.Option(min=1, help="That read ahead; the result is the same.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    checkpoint_seconds: Annotated[
        float, typer.Option(min=0, help="A kill loses at most this much work; 0: no more than a step.")
    ] = 120.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Time the parts of a step; trace.json.")] = False,
    loggers: Annotated[
        str, typer.Option("--log", help="Also log to: tensorboard, wandb.", metavar="NAMES")
    ] = "",
) -> Answer:
    """Train a model into a run folder. Import and sampling come first, unless they were done before.

    Ctrl-C and kill leave a checkpoint or the last one; `muse train --resume RUN` ends with the same bits as a
    run that was never stopped. Examples: `muse train debian`, `muse train ogbn-arxiv --root raw`,
    `muse train graphs/mine --set hidden=128 --set fanouts=15,10`, `muse train --resume runs/debian`.
    """
    if (target is None) == (resume is None):
        raise InputError("Pass what to train on, or --resume RUN; one of the two. See `muse recipes`.")
    chosen = {"epochs": epochs, "seed": seed}
    changes = {name: value for name, value in chosen.items() if value is not None}
    given = parse(settings or [], "gamma=0.5")
    changes |= given
    names = [name.strip() for name in loggers.split(",") if name.strip()]
    execution = _Execution(threads, checkpoint_seconds, device, names, time.monotonic(), profile)
    if target is not None:
        if graph is not None:
            raise InputError("--graph belongs to --resume. Pass the folder alone: muse train FOLDER.")
        places = {"root": root, "samples": samples, "stores": stores or Path("stores")}
        return _begin(target, changes, out, places, execution, overwrite, given)
    assert resume is not None
    if changes or overwrite or any(path is not None for path in (out, root, stores)):
        raise InputError(
            "--resume goes on with a run as it is. Leave --out, --overwrite, --root, --stores, --set, "
            "--seed and --epochs out."
        )
    return _resume(resume, graph, samples, execution)


@dataclass(frozen=True)
class _Execution:
    """What changes nothing about the result."""

    threads: int | None
    checkpoint_seconds: float
    device: str
    loggers: list[str]
    began: float
    profile: bool

    def checked(self) -> "_Execution":
        """With a device that is there, and loggers that are installed."""
        from musegnn.runs.loggers import check_loggers

        check_loggers(self.loggers)
        return replace(self, device=pick_device(self.device))


def _begin(
    target: str,
    changes: dict[str, Any],
    out: Path | None,
    places: dict[str, Any],
    execution: _Execution,
    overwrite: bool,
    given: Iterable[str],
) -> Answer:
    config, graph = find(target)
    config = config.with_settings(changes)
    _warn_of_ignored(config, given)
    ranks = current()
    # Every rank takes this turn, whatever its own --out.
    free = ranks.tell(str(_free_folder(config.name) if out is None else out))
    folder = Path(free) if out is None else out
    check_out(folder)
    # torch takes some seconds to import: neither `muse --help` nor a misspelled name waits for it.
    from musegnn.recipes.pipeline import prepare
    from musegnn.runs.alike import settings_of
    from musegnn.runs.beginning import is_of_job
    from musegnn.training.folder import RunFolder

    # Import and sampling may take hours: what is in the way is told before.
    execution = execution.checked()
    if config.training.features_home == "gpu" and execution.device == "cpu":
        raise InputError(
            "features_home=gpu needs a GPU, got --device cpu. Take ram, mapped, cached, packed or auto."
        )
    data = {"the dataset": config.dataset, "graph with the digest": graph and graph.digest}
    ranks.check_same({**data, **settings_of(config)})
    # Ranks that are started anew go on with what they began.
    if ranks.tell((folder / "run.json").exists() and not is_of_job(folder)):
        RunFolder(folder).check_free(overwrite)
    show.text(f"Training {config.name}" + (f": {config.about}" if config.about else ""))
    how: dict[str, Any] = {"workers": default_workers(), "device": execution.device, "say": show.line}
    prepared = prepare(config, graph, **places, **how)
    if places["samples"] is not None:
        _warn_of_samples(config.sampling, prepared.config.sampling, given, places["samples"])
    return _run(prepared, folder, execution, overwrite=overwrite, resume=False)


def _warn_of_ignored(config: "Config", given: Iterable[str]) -> None:
    """A setting that changes nothing is hardly meant."""
    from musegnn.training.heeded import ignored

    for name, reason in ignored(config, given).items():
        warnings.warn(
            f"--set {name} changes nothing, since {reason} does not heed it. Leave it out.", stacklevel=2
        )


def _warn_of_samples(
    wanted: "SamplingConfig", drawn: "SamplingConfig", given: Iterable[str], samples: Path
) -> None:
    """Samples that are there stay as they were drawn."""
    # As JSON, which has no tuples: a store was described in it.
    asked, found = (json.loads(json.dumps(asdict(one) | one.settings)) for one in (wanted, drawn))
    for name in given:
        key = name.rpartition(".")[2]
        if key in asked and asked[key] != found.get(key):
            how = f"{key}={found[key]}" if key in found else f"sampler={found['sampler']}"
            warnings.warn(
                f"--set {name} changes nothing, since the samples of {samples} were drawn with {how}. "
                "Leave it out, or leave --samples out.",
                stacklevel=2,
            )


def _resume(folder: Path, graph: Path | None, samples: Path | None, execution: _Execution) -> Answer:
    check_run(folder)
    from musegnn.recipes.pipeline import Prepared
    from musegnn.runs import Run
    from musegnn.runs.start import write_page
    from musegnn.training import checkpoint
    from musegnn.training.loop import STATE
    from musegnn.training.state import Position

    execution = execution.checked()
    run = Run(folder, graph=graph, samples=samples, device=execution.device)
    if run.folder.result() is not None:
        show.text(f"{folder} is finished." + " There is no step left for --profile." * execution.profile)
        if not (folder / "report.html").exists():
            write_page(folder)
        return _answer(folder, run.result)
    model = run.untrained()
    if checkpoint.exists(run.folder.checkpoints, STATE):
        position = Position.read(checkpoint.facts_of(run.folder.checkpoints, STATE).get("position"))
        show.text(f"Going on with {run.config.name}: epoch {position.epoch + 1}, step {position.batch + 1}")
    prepared = Prepared(run.config, run.graph, run.samples, model)
    return _run(prepared, folder, execution, overwrite=False, resume=True)


def _run(
    prepared: "Prepared", folder: Path, execution: _Execution, *, overwrite: bool, resume: bool
) -> Answer:
    from musegnn.memory import keep_freed_memory
    from musegnn.runs import train as start
    from musegnn.runs.loggers import open_loggers

    keep_freed_memory()
    config = prepared.config
    _print_plan(prepared, folder, execution)
    table = _Table(config.training.epochs, config.training.metric)
    with open_loggers(execution.loggers, folder, resume=resume) as listeners, _told_how_to_resume(folder):

        def listen(event: dict[str, Any]) -> None:
            table.tell(event)
            for listener in listeners:
                listener(event)

        run = start(
            prepared.graph,
            prepared.samples,
            prepared.model,
            folder,
            config=config,
            threads=execution.threads,
            checkpoint_seconds=execution.checkpoint_seconds,
            profile=execution.profile,
            resume=resume,
            overwrite=overwrite,
            listen=listen,
            began=execution.began,
        )
    return _answer(folder, run.result)


@contextmanager
def _told_how_to_resume(folder: Path) -> Iterator[None]:
    """The same command again, as other commands advise, would begin another run."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not (folder / "run.json").exists():
            raise
        name = shlex.quote(str(folder))
        if current().is_first:
            print(
                f"muse: interrupted; the last checkpoint is kept. Go on with: muse train --resume {name}",
                file=sys.stderr,
            )
        raise SystemExit(INTERRUPTED) from interrupt


def _print_plan(prepared: "Prepared", folder: Path, execution: _Execution) -> None:
    import torch

    config = prepared.config
    count = sum(part.numel() for part in prepared.model.parameters())
    num_samples = len(prepared.samples["train"])
    shape = f"K = {config.model.steps} steps of d = {config.model.hidden}"
    name = config.baseline.architecture
    show.line(
        "model", f"{name}, {count:,} parameters" if config.is_baseline else f"{count:,} parameters, {shape}"
    )
    show.line(
        "training",
        f"{show.count(num_samples, 'sample')} an epoch, {show.count(config.training.epochs, 'epoch')}, "
        f"{execution.device}, {show.count(torch.get_num_threads(), 'thread')}",
    )
    show.line("run folder", str(folder))


class _Table:
    """A line for each epoch, and once how long the others will take.

    The first epoch also compiles kernels, for some seconds: where it is short, the second one tells.
    """

    def __init__(self, epochs: int, metric: str) -> None:
        self.epochs, self.metric = epochs, metric
        self.began = time.monotonic()
        self.num_told = 0
        self.is_estimated = False
        # Five numbers and a star.
        self.is_wide = show.fits(55)

    def tell(self, event: dict[str, Any]) -> None:
        if event["event"] == "start":
            _print_homes(event)
        if event["event"] == "profile":
            _print_profile(event["milliseconds"])
        if event["event"] != "epoch":
            return
        if not self.num_told:
            self.line("\n  epoch", "loss", "train", "valid", speed=("samples/s", "waited"))
        valid = event.get(f"valid_{self.metric}")
        shown = "" if valid is None else f"{100 * valid:.2f}"
        best = " *" if event.get("best_epoch") == event["epoch"] else ""
        speed = f"{event['samples_per_second']:.2f}", f"{100 * event['waited']:.0f}%"
        numbers = f"{event['loss']:.4f}", f"{100 * event['train_accuracy']:.2f}", shown
        self.line(f"{event['epoch']:>7}", *numbers, speed=speed, star=best)
        self.num_told += 1
        self.estimate(self.epochs - event["epoch"])

    def estimate(self, num_left: int) -> None:
        """How long so many epochs will take, by the last one."""
        now = time.monotonic()
        took, self.began = now - self.began, now
        is_fit = self.num_told > 1 or took > LONG_SECONDS or num_left == 1
        if is_fit and num_left and not self.is_estimated:
            print(f"         about {show.duration(took * num_left)} for {show.count(num_left, 'more epoch')}")
            self.is_estimated = True

    def line(self, epoch: str, *numbers: str, speed: tuple[str, str], star: str = "") -> None:
        """How fast it was is left out where the terminal is narrow."""
        told = [epoch, *(f"{number:>7}" for number in numbers)]
        told += [f"{speed[0]:>9}", f"{speed[1]:>6}"] if self.is_wide else []
        print("  ".join(told) + star, flush=True)


def _print_homes(event: dict[str, Any]) -> None:
    """Where the large things lie, where that was a choice: with a GPU, with M, or past memory."""
    homes = {"gpu": "on the GPU", "ram": "in memory", "mapped": "on disk", "cached": "", "packed": ""}
    places = {"device": "on the GPU", "host": "in memory", "disk": "on disk"}
    if event["device"] != "cpu" or event["features_about"]:
        show.line("features", homes[event["features"]] or f"{event['features']}: {event['features_about']}")
    if event["means"] is not None:
        show.line("means", places[event["means"]])


def _print_profile(milliseconds: dict[str, float]) -> None:
    if not milliseconds:
        print("\n  --profile begins behind the tenth step, and there were no more. Take --epochs.")
        return
    print("\n  where the time of a step goes, ms")
    for part, value in milliseconds.items():
        print(f"  {part:<10}{value:>9.2f}")
    beside = "copy runs beside the others; " if "copy" in milliseconds else ""
    print(f"  {beside}the steps one by one are in trace.json (https://ui.perfetto.dev)")


def _answer(folder: Path, result: dict[str, Any]) -> Answer:
    return Answer({"run": str(folder), **result}, lambda: tell_result(folder, result), following(folder))


def following(folder: Path) -> str:
    """What to do with a finished run."""
    name = shlex.quote(str(folder))
    return f"muse evaluate {name}, or muse predict {name} --nodes all --out predictions.csv"


def tell_result(folder: Path, result: dict[str, Any]) -> None:
    """What a finished run has reached."""
    print()
    for split in ("valid", "test"):
        if all(result.get(f"{split}_{name}") is not None for name in ("accuracy", "macro_f1")):
            parts = [f"{name} {100 * result[f'{split}_{name}']:.2f} %" for name in ("accuracy", "macro_f1")]
            show.line(split, ", ".join(parts))
    expected = result.get("expected") or {}
    for split in ("test", "valid"):
        if f"{split}_accuracy" in expected:
            show.line(
                "expected",
                f"{split} accuracy {100 * expected[f'{split}_accuracy']:.2f} %",
                expected.get("source", ""),
            )
    # Without steps there is none.
    if result["error_bound"] is not None:
        bound = result["error_bound"]
        told = f"|Y - Y*| <= {show.bound(bound)} on every test sample{show.says_nothing(bound)}"
        show.line("error bound", told + "; the page may have a tighter one" * (bound > 1))
    show.line(
        "took", f"{show.duration(result['seconds'])}, {result['peak_rss_mb']:,.0f} MB of memory at its peak"
    )
    if (folder / "report.html").is_file():
        show.line("report", f"{folder / 'report.html'} (open it in a browser)")


def _free_folder(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, ... that is free; for ranks that start anew the last one."""
    last = folder = Path("runs") / name
    number = 1
    while folder.exists():
        number += 1
        last, folder = folder, Path("runs") / f"{name}-{number}"
    if current().restarts:
        from musegnn.runs.beginning import is_of_job

        return last if is_of_job(last) else folder
    return folder
