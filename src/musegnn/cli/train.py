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
from musegnn.cli.telling import EpochTable, following, tell_result
from musegnn.errors import InputError
from musegnn.graph.threads import default_workers
from musegnn.ranks import current
from musegnn.recipes.finding import find

if TYPE_CHECKING:
    from musegnn.recipes.pipeline import Prepared
    from musegnn.training.config import Config, SamplingConfig


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
    table = EpochTable(config.training.epochs, config.training.metric)
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


def _energy(prepared: "Prepared") -> str:
    """Which energy it is, if it is not the paper's."""
    energy, relations = prepared.config.energy, prepared.graph.num_relations
    if energy.kind == "smoothness":
        return ""
    told = f" on the {energy.kind} energy"
    if energy.is_typed:
        told += f", {show.count(relations, 'relation')}" if relations else ", no relations"
    return told + f", {energy.stages} stages" * energy.is_staged


def _print_plan(prepared: "Prepared", folder: Path, execution: _Execution) -> None:
    import torch

    config = prepared.config
    count = sum(part.numel() for part in prepared.model.parameters())
    num_samples = len(prepared.samples["train"])
    shape = f"K = {config.model.steps} steps of d = {config.model.hidden}{_energy(prepared)}"
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


def _answer(folder: Path, result: dict[str, Any]) -> Answer:
    return Answer({"run": str(folder), **result}, lambda: tell_result(folder, result), following(folder))


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
