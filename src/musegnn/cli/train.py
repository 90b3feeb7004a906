"""`muse train`: a recipe, a dataset or a graph -> a run folder."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.graphs import check_out
from musegnn.cli.settings import parse
from musegnn.errors import InputError
from musegnn.graph.threads import default_workers

if TYPE_CHECKING:
    from musegnn.recipes.pipeline import Prepared

INTERRUPTED = 130


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
        Path, typer.Option(help="Where imported graphs and samples are kept for the next run.")
    ] = Path("stores"),
    samples: Annotated[
        Path | None, typer.Option(help="Samples that `muse sample` drew, in place of the recipe's.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="That read ahead; the result is the same.")] = 1,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    checkpoint_seconds: Annotated[
        float, typer.Option(min=0, help="A kill loses at most this much work; 0: no more than a step.")
    ] = 120.0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a run that is there.")] = False,
    loggers: Annotated[
        str, typer.Option("--log", help="Also log to: tensorboard, wandb.", metavar="NAMES")
    ] = "",
) -> None:
    """Train a model into a run folder. Import and sampling come first, unless they were done before.

    Ctrl-C and kill leave a checkpoint or the last one; `muse train --resume RUN` ends with the same bits as a
    run that was never stopped. Examples: `muse train debian`, `muse train ogbn-arxiv --root raw`,
    `muse train graphs/mine --set hidden=128 --set fanouts=15,10`, `muse train --resume runs/debian`.
    """
    if (target is None) == (resume is None):
        raise InputError(
            "Pass what to train on, or --resume RUN; one of the two. `muse recipes` lists recipes."
        )
    chosen = {"epochs": epochs, "seed": seed}
    changes = {name: value for name, value in chosen.items() if value is not None}
    changes |= parse(settings or [], "gamma=0.5")
    means = _Means(threads, checkpoint_seconds, pick_device(device), _loggers(loggers), time.monotonic())
    places = {"root": root, "samples": samples}
    if target is not None:
        _begin(target, changes, out, {**places, "stores": stores}, means, overwrite)
        return
    assert resume is not None
    if changes or overwrite or any(path is not None for path in (out, *places.values())):
        raise InputError(
            "--resume goes on with a run as it is. Leave --out, --overwrite, --root, --samples, --set, "
            "--seed and --epochs out."
        )
    _resume(resume, means)


@dataclass(frozen=True)
class _Means:
    """What changes nothing about the result."""

    threads: int
    checkpoint_seconds: float
    device: str
    loggers: list[str]
    began: float


def _loggers(text: str) -> list[str]:
    """Looked for now and not behind an import that takes hours."""
    from musegnn.runs.loggers import check_loggers

    names = [name.strip() for name in text.split(",") if name.strip()]
    check_loggers(names)
    return names


def _begin(
    target: str,
    changes: dict[str, Any],
    out: Path | None,
    places: dict[str, Any],
    means: _Means,
    overwrite: bool,
) -> None:
    # torch takes a second to import: `muse --help` does not wait for it.
    from musegnn.recipes import pipeline
    from musegnn.training.folder import RunFolder

    config, graph = pipeline.find(target)
    config = config.with_settings(changes)
    folder = _free_folder(config.name) if out is None else out
    check_out(folder)
    if (folder / "run.json").exists():
        # Import and sampling may take hours: what is in the way is told before.
        RunFolder(folder).check_free(overwrite)
    print(f"Training {config.name}" + (f": {config.about}" if config.about else ""))
    workers = default_workers()
    prepared = pipeline.prepare(config, graph, **places, workers=workers, device=means.device, say=show.line)
    _run(prepared, folder, means, overwrite=overwrite, resume=False)


def _resume(folder: Path, means: _Means) -> None:
    from musegnn.recipes.pipeline import Prepared
    from musegnn.runs import Run
    from musegnn.training import checkpoint
    from musegnn.training.loop import STATE

    run = Run(folder, device=means.device)
    if run.folder.result() is not None:
        print(f"{folder} is finished.")
        _print_result(folder, run.result)
        return
    model = run.untrained()
    if checkpoint.exists(run.folder.checkpoints, STATE):
        position = checkpoint.facts_of(run.folder.checkpoints, STATE)["position"]
        print(
            f"Going on with {run.config.name}: epoch {position['epoch'] + 1}, sample {position['batch'] + 1}"
        )
    prepared = Prepared(run.config, run.graph, run.samples, model)
    _run(prepared, folder, means, overwrite=False, resume=True)


def _run(prepared: "Prepared", folder: Path, means: _Means, *, overwrite: bool, resume: bool) -> None:
    from musegnn.memory import keep_freed_memory
    from musegnn.runs import train as start
    from musegnn.runs.loggers import open_loggers

    keep_freed_memory()
    config = prepared.config
    _print_plan(prepared, folder, means)
    table = _Table(config.training.epochs, config.training.metric)
    with open_loggers(means.loggers, folder) as listeners, _told_how_to_resume(folder):

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
            threads=means.threads,
            checkpoint_seconds=means.checkpoint_seconds,
            resume=resume,
            overwrite=overwrite,
            listen=listen,
            began=means.began,
        )
    _print_result(folder, run.result)


@contextmanager
def _told_how_to_resume(folder: Path) -> Iterator[None]:
    """The same command again, as other commands advise, would begin another run."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if not (folder / "run.json").exists():
            raise
        name = shlex.quote(str(folder))
        print(
            f"muse: interrupted; the last checkpoint is kept. Go on with: muse train --resume {name}",
            file=sys.stderr,
        )
        raise SystemExit(INTERRUPTED) from interrupt


def _print_plan(prepared: "Prepared", folder: Path, means: _Means) -> None:
    import torch

    config = prepared.config
    count = sum(part.numel() for part in prepared.model.parameters())
    num_samples = len(prepared.samples["train"])
    show.line("model", f"{count:,} parameters, K = {config.model.steps} steps of d = {config.model.hidden}")
    show.line(
        "training",
        f"{show.count(num_samples, 'sample')} an epoch, {show.count(config.training.epochs, 'epoch')}, "
        f"{means.device}, {show.count(torch.get_num_threads(), 'thread')}",
    )
    show.line("run folder", str(folder))


class _Table:
    """A line for each epoch, and after the first how long the others will take."""

    def __init__(self, epochs: int, metric: str) -> None:
        self.epochs, self.metric = epochs, metric
        self.began = time.monotonic()
        self.is_begun = False

    def tell(self, event: dict[str, Any]) -> None:
        if event["event"] != "epoch":
            return
        if not self.is_begun:
            print(f"\n{'epoch':>7}  {'loss':>7}  {'train':>7}  {'valid':>7}  {'samples/s':>9}  {'waited':>6}")
        valid = event.get(f"valid_{self.metric}")
        shown = "" if valid is None else f"{100 * valid:.2f}"
        best = " *" if event.get("best_epoch") == event["epoch"] else ""
        print(
            f"{event['epoch']:>7}  {event['loss']:>7.4f}  {100 * event['train_accuracy']:>7.2f}  {shown:>7}  "
            f"{event['samples_per_second']:>9.2f}  {100 * event['waited']:>5.0f}%{best}",
            flush=True,
        )
        if not self.is_begun and event["epoch"] < self.epochs:
            took = time.monotonic() - self.began
            left = show.duration(took * (self.epochs - event["epoch"]))
            print(f"         about {left} for {show.count(self.epochs - event['epoch'], 'more epoch')}")
        self.is_begun = True


def _print_result(folder: Path, result: dict[str, Any]) -> None:
    print()
    for split in ("valid", "test"):
        if f"{split}_accuracy" in result:
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
        show.line("error bound", f"|Y - Y*| <= {result['error_bound']:.3g} |Y| on every test sample")
    show.line(
        "took", f"{show.duration(result['seconds'])}, {result['peak_rss_mb']:,.0f} MB of memory at its peak"
    )
    name = shlex.quote(str(folder))
    print(f"Next: muse evaluate {name}, or muse predict {name} --nodes all --out predictions.csv")


def _free_folder(name: str) -> Path:
    """runs/NAME, or the first of runs/NAME-2, runs/NAME-3, ... that is not there."""
    folder, number = Path("runs") / name, 1
    while folder.exists():
        number += 1
        folder = Path("runs") / f"{name}-{number}"
    return folder


def pick_device(device: str) -> str:
    """A device that torch has."""
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"--device must be cpu, cuda or auto; got {device!r}.") from error
    if wanted.type not in ("cpu", "cuda") or (wanted.type == "cuda" and not torch.cuda.is_available()):
        raise InputError(f"--device {device} is not there. `muse doctor` says what is; take --device cpu.")
    return device
