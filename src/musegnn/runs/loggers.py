"""TensorBoard and Weights & Biases, when they are installed and asked for."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from musegnn.errors import InputError
from musegnn.extras import require
from musegnn.training.checkpoint import write_json
from musegnn.training.folder import RunFolder
from musegnn.training.loop import Listener


@contextmanager
def open_loggers(names: list[str], folder: Path, *, resume: bool = False) -> Iterator[list[Listener]]:
    """Listeners for events: each number of an epoch becomes a curve, which goes on with `resume`."""
    check_loggers(names)
    with ExitStack() as stack:
        yield [stack.enter_context(_MAKERS[name](folder, resume)) for name in names]


def check_loggers(names: list[str]) -> None:
    """Refuse names that are not known, and packages that are not installed."""
    for name in names:
        if name not in _MAKERS:
            raise InputError(f"--log knows {', '.join(_MAKERS)}; got {name!r}.")
        require(name, f"--log {name}")


@contextmanager
def _tensorboard(folder: Path, resume: bool) -> Iterator[Listener]:
    from torch.utils.tensorboard import SummaryWriter

    # Beside the run: a run folder holds its own files only. The curves in one folder are one, resumed or not.
    writer = SummaryWriter(folder.parent / f"{folder.name}.tensorboard")

    def listen(event: dict[str, Any]) -> None:
        for name, value in _numbers(event).items():
            writer.add_scalar(name, value, event["epoch"])

    try:
        yield listen
    finally:
        writer.close()


@contextmanager
def _wandb(folder: Path, resume: bool) -> Iterator[Listener]:
    wandb = require("wandb", "--log wandb")
    known = RunFolder(folder).record().get("wandb") if resume else None
    names = {"project": "musegnn", "name": folder.name, "dir": str(folder.parent)}
    run = wandb.init(**names, id=known, resume="allow")

    def listen(event: dict[str, Any]) -> None:
        nonlocal known
        if known is None:
            # Now there is a run folder.
            known = run.id
            write_json(folder / "run.json", {**RunFolder(folder).record(), "wandb": known})
        if event["event"] == "epoch":
            # An epoch that is told again after a kill keeps its place.
            run.log(_numbers(event), step=event["epoch"])

    try:
        yield listen
    finally:
        run.finish()


def _numbers(event: dict[str, Any]) -> dict[str, float]:
    if event["event"] != "epoch":
        return {}
    return {name: float(value) for name, value in event.items() if isinstance(value, int | float)}


_MAKERS = {"tensorboard": _tensorboard, "wandb": _wandb}
