"""A cell: one contender on one graph with one seed. Run once, kept in a folder, found again.

run/        the run, as `muse train` leaves it
cell.json   what came of it; written last, so a cell without it goes on from its last checkpoint
"""

import re
import statistics
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from torch import nn

from musegnn.benches.machine import forget, hardware, versions
from musegnn.errors import DivergenceError, InputError, StoreError
from musegnn.graph import Graph
from musegnn.graph.threads import default_workers
from musegnn.memory import Peak, anonymous_memory, is_out_of_memory
from musegnn.recipes.pipeline import Prepared, prepare
from musegnn.runs import Run, load_run, train
from musegnn.sampling import Draws
from musegnn.store import file_errors
from musegnn.store.header import check_seal, checksum, read_json
from musegnn.training import checkpoint
from musegnn.training.config import TABLES, Config
from musegnn.training.loop import STATE
from musegnn.training.state import Position
from musegnn.version import __version__

Record = dict[str, Any]
"""What is known of a cell, as JSON."""
_FILE = "cell.json"


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What to run."""

    row: str
    data: str
    graph: Graph
    config: Config
    device: str = "cpu"
    seconds: float | None = None
    """Of training; the epoch under way is ended, and the best one counts."""
    times_sampling: bool = False
    """Whether to draw the training samples once more and take the time."""

    @property
    def key(self) -> str:
        """Digest of all that its record depends on but the machine."""
        how = [self.graph.digest, self.device, self.seconds, self.times_sampling, __version__]
        tables = {table: asdict(getattr(self.config, table)) for table in TABLES}
        return checksum({"how": how, **tables})[:16]

    @property
    def name(self) -> str:
        """Of its folder."""
        words = f"{self.data} {self.row} seed {self.config.training.seed}"
        return re.sub(r"[^\w.]+", "-", words).strip("-") + f"-{self.key}"

    def __str__(self) -> str:
        return f"{self.data}, {self.row}, seed {self.config.training.seed}"


def find(cell: Cell, cells: Path) -> Record | None:
    """The record of a cell that is done."""
    path = cells / cell.name / _FILE
    with file_errors(path):
        if not path.is_file():
            return None
        record = read_json(path)
    check_seal(record, path, "Remove it: the cell will be run again.")
    return record


def run_cell(cell: Cell, cells: Path, stores: Path) -> Record:
    """Run a cell, go on with it, or find it done. What goes wrong in it is part of its record."""
    found = find(cell, cells)
    if found is not None:
        return found
    folder = cells / cell.name
    with file_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    forget()
    began = time.monotonic()
    try:
        record, is_kept = _run(cell, folder / "run", stores), True
    except StoreError:
        # A full disk or a damaged file says nothing about the contender.
        raise
    except (InputError, MemoryError, RuntimeError) as error:
        is_full = is_out_of_memory(error)
        if not is_full and not isinstance(error, InputError):
            raise
        record = {"error": "OOM" if is_full else " ".join(str(error).split())}
        # What may be mended, such as a package that is missing, is tried again next time.
        is_kept = is_full or isinstance(error, DivergenceError)
    record |= {
        **{"row": cell.row, "data": cell.data, "seed": cell.config.training.seed, "key": cell.key},
        **{"took": round(time.monotonic() - began, 2), "date": date.today().isoformat()},
        **{"hardware": hardware(cell.device), "versions": versions()},
    }
    record["is_refused"] = not is_kept
    if is_kept:
        checkpoint.write_json(folder / _FILE, checkpoint.finite(record))
    else:
        # Empty, unless it went wrong in the middle of a run.
        with suppress(OSError):
            folder.rmdir()
    return record


def drop_checkpoints(cell: Cell, cells: Path) -> None:
    """Of a run that nobody will ask for predictions."""
    folder = cells / cell.name / "run" / "checkpoint"
    with file_errors(folder):
        for path in folder.glob("*.safetensors"):
            path.unlink()


class _TimeUpError(Exception):
    """The cell has had its seconds."""


class _Watch:
    """Listens to a run, and ends it behind the epoch in which its time is up."""

    def __init__(self, seconds: float | None, spent: float) -> None:
        self.seconds, self.began = seconds, time.monotonic() - spent

    @property
    def spent(self) -> float:
        return time.monotonic() - self.began

    def __call__(self, event: dict[str, Any]) -> None:
        is_last = event["event"] == "epoch" and self.seconds is not None and self.spent >= self.seconds
        if is_last:
            raise _TimeUpError


def _run(cell: Cell, folder: Path, stores: Path) -> Record:
    given: dict[str, Any] = {"workers": default_workers(), "device": cell.device}
    before = anonymous_memory()
    with Peak() as peak:
        prepared = prepare(cell.config, cell.graph, stores=stores, **given)
        run, result, note = _train(cell, prepared, folder)
    epochs = [event for event in run.events if event["event"] == "epoch"]
    # The first epoch compiles, fills caches and reads files for the first time.
    warm = epochs[1:] or epochs
    on_gpu = torch.cuda.max_memory_allocated() if cell.device != "cpu" else 0
    return {
        **{name: result.get(name) for name in ("valid_accuracy", "test_accuracy", "error_bound")},
        **{"energies": result["energies"], "epochs": len(epochs), "note": note},
        "seconds": result["seconds"],
        "epoch_seconds": statistics.median(event["seconds"] for event in warm),
        "waited": statistics.median(event["waited"] for event in warm),
        "sampling_seconds": _sampling_seconds(cell) if cell.times_sampling else None,
        "memory_mb": round((on_gpu or peak.bytes - before) / 2**20, 1),
        "kept_mb": round(_kept_bytes(run) / 2**20, 3),
        "parameters": sum(part.numel() for part in run.model.parameters()),
        "nodes": cell.graph.num_nodes,
        "curve": [[event.get(name) for name in ("epoch", "loss", "valid_accuracy")] for event in epochs],
    }


def _train(cell: Cell, prepared: Prepared, folder: Path) -> tuple[Run, dict[str, Any], str]:
    """The run, what it reached, and what there is to say of it."""
    watch = _Watch(cell.seconds, _spent(folder))
    is_begun = (folder / "run.json").is_file()
    given = prepared.graph, prepared.samples, prepared.model, folder
    try:
        run = train(*given, config=prepared.config, resume=is_begun, listen=watch)
        return run, run.result, ""
    except _TimeUpError:
        seconds = round(watch.spent, 2)
    run = load_run(folder, graph=prepared.graph, samples=prepared.samples, device=cell.device)
    found = run.evaluate()
    last = next((found[split] for split in ("test", "valid") if split in found), None)
    result: dict[str, Any] = {"seconds": seconds, "energies": last.energies if last else []}
    result["error_bound"] = last.error_bound if last else None
    result |= {f"{split}_accuracy": one.metrics.get("accuracy") for split, one in found.items()}
    return run, result, f"stopped after {cell.seconds:g} s"


def _spent(folder: Path) -> float:
    """Seconds that a run has had before it was killed."""
    if not checkpoint.exists(folder / "checkpoint", STATE):
        return 0.0
    return Position.read(checkpoint.facts_of(folder / "checkpoint", STATE).get("position")).seconds


def _sampling_seconds(cell: Cell) -> float:
    """To draw all training samples on one thread: paid once if they are stored, in each epoch if online."""
    settings = cell.config.sampling
    began = time.monotonic()
    draws = Draws(cell.graph, settings.build(), "train", batch_size=settings.batch_size)
    for index in range(len(draws)):
        draws[index]
    return round(time.monotonic() - began, 3)


def _kept_bytes(run: Run) -> int:
    """Beside the weights, from step to step: M and its counts, or the histories of a peer."""
    weights = {name for name, _ in run.model.named_parameters()}
    kept = [part for name, part in run.model.state_dict().items() if name not in weights]
    if isinstance(run.means, nn.Module):
        kept += [part for part in (getattr(run.means, name) for name in ("M", "count"))]
    return sum(part.numel() * part.element_size() for part in kept)
