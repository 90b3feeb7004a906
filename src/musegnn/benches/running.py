"""A bench from its first cell to its figure. Cells that are done are not run again."""

import statistics
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from musegnn.benches import cells, contenders, figures, tuning
from musegnn.benches.catalog import VALID, Bench
from musegnn.benches.cells import Cell, Record
from musegnn.benches.contenders import Contender, Settings
from musegnn.benches.data import Data
from musegnn.benches.machine import limited_memory
from musegnn.benches.tables import Table
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.memory import keep_freed_memory
from musegnn.store import file_errors
from musegnn.training.checkpoint import write_json


class Progress(NamedTuple):
    """What is told of a bench, as it goes."""

    text: str
    took: float | None
    """Seconds, unless it was done before."""
    left: float | None
    """Seconds for all that is left, as far as that is known."""


Say = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What was asked for."""

    name: str
    bench: Bench
    datas: list[Data]
    rows: dict[str, Contender]
    seeds: list[int]
    out: Path
    command: str
    seconds: float | None = None
    tries: int = 0
    """Of `--tune`; 0 takes the settings as they are."""
    settings: Settings = field(default_factory=dict)
    root: Path | None = None
    stores: Path = Path("stores")
    device: str = "cpu"

    def check(self) -> None:
        """Refuse what could only fail later."""
        for name in self.settings:
            if name in self.bench.fixed:
                raise InputError(f"{name} is what the rows of {self.name} are about. Leave --set {name} out.")
        if self.tries and not self.bench.can_tune:
            raise InputError(
                f"--tune belongs to accuracy and baseline-sampler, got {self.name}. Leave it out."
            )
        for data in self.datas:
            contenders.check(self.settings, data.recipe)
            for name, reason in contenders.unheeded(self.settings, self.rows.values(), data.recipe).items():
                warnings.warn(
                    f"--set {name} changes nothing: no row of {self.name} heeds it ({reason}). Leave it out.",
                    stacklevel=2,
                )
        figures.matplotlib()


def run_bench(request: Request, say: Say = lambda progress: None) -> Table:
    """Run what is missing, then write table and figure. Stopped and started again, it goes on."""
    request.check()
    if request.name != "scaling":
        # Where memory is measured, what is freed must be seen to be free.
        keep_freed_memory()
    work = _Work(request, say)
    with limited_memory(request.device):
        work.tell_plan()
        for data in request.datas:
            chosen = work.choose(data)
            for seed in request.seeds:
                for row, settings in chosen.items():
                    work.records.append(work.run(work.cell(row, data, settings, seed)))
                    if not work.is_refused():
                        _write(work.table(), request.out)
    if work.is_refused():
        raise InputError(f"All cells were refused, and no table is written. The first: {work.refusal()}")
    table = work.table()
    _write(table, request.out)
    figures.draw(request.bench.panels(table), request.out / f"{request.name}.svg")
    return table


class _Work:
    """The cells of a request, and how far they are."""

    def __init__(self, request: Request, say: Say) -> None:
        self.request, self.say = request, say
        self.folder = request.out / "cells"
        self.records: list[Record] = []
        self.runs = {row: one for row, one in request.rows.items() if one.settings is not None}
        self.total = len(request.datas) * len(self.runs) * (len(request.seeds) + request.tries)
        self.num_done, self.num_left = 0, self.total
        self.were_done: Counter[str] = Counter()
        """Cells that were there before; a search may draw one twice."""
        self.took: list[float] = []
        self.tuned: dict[str, Any] = {}
        self._graphs: dict[str, Graph] = {}
        with file_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)

    def graph(self, data: Data) -> Graph:
        """Opened once."""
        name = data.label + data.size
        if name not in self._graphs:
            self._graphs[name] = data.open(self.request.root, self.request.stores)
        return self._graphs[name]

    def cell(self, row: str, data: Data, settings: Settings, seed: int) -> Cell:
        """One contender with these settings."""
        request, grown = self.request, data.grown(self.runs[row].growth)
        graph = self.graph(grown)
        wanted = {**request.bench.settings, **request.settings, "seed": seed}
        config = contenders.apply(settings, wanted, grown.recipe, graph.num_nodes)
        how: dict[str, Any] = {"device": request.device, "seconds": request.seconds}
        how["times_sampling"] = request.bench.times_sampling
        return Cell(row=row, data=data.label, graph=graph, config=config, **how)

    def tell_plan(self) -> None:
        """How many cells, how many are done, and how long the others take, as far as that is known."""
        request = self.request
        seeds = [0] if request.tries else request.seeds
        first = [
            self.cell(row, data, settings, seed)
            for data in request.datas
            for row, one in self.runs.items()
            for settings in tuning.draws(row, one, max(1, request.tries))
            for seed in seeds
        ]
        done = [(cell, found) for cell in first if (found := cells.find(cell, self.folder)) is not None]
        self.took, self.were_done = [one["took"] for _, one in done], Counter(cell.name for cell, _ in done)
        self.num_left -= len(done)
        count = f"{self.total} cells" if self.total != 1 else "1 cell"
        self.say(Progress(f"{count}, {len(done)} of them done", None, self._left()))

    def _left(self) -> float | None:
        """Seconds for the cells that are left, from those that are done, or as many as each may take."""
        each = statistics.mean(self.took) if self.took else self.request.seconds
        return None if each is None or not self.num_left else self.num_left * each

    def run(self, cell: Cell, what: str = "") -> Record:
        """One cell, told when it is done."""
        was_done = cells.find(cell, self.folder) is not None
        record = cells.run_cell(cell, self.folder, self.request.stores)
        if not was_done:
            self.took.append(record["took"])
        self.num_done += 1
        if self.were_done[cell.name]:
            self.were_done[cell.name] -= 1
        else:
            self.num_left -= 1
        text = f"[{self.num_done}/{self.total}] {cell}{what}: {self._told(record, is_try=bool(what))}"
        self.say(Progress(text, None if was_done else record["took"], self._left()))
        return record

    def _told(self, record: Record, *, is_try: bool) -> str:
        if record.get("error"):
            return str(record["error"])
        # A search looks at validation nodes alone.
        measure = VALID if is_try else self.request.bench.measures([record])[0]
        value = measure.value(record)
        told = "-" if value is None else f"{measure.name} {value:.{measure.digits}f}"
        return f"{told} ({record['note']})" if record["note"] else told

    def choose(self, data: Data) -> dict[str, Settings]:
        """Of each contender the settings as they are, or those that do best on the validation nodes."""
        request = self.request
        if not request.tries:
            return {row: one.settings or {} for row, one in self.runs.items()}
        chosen = {}
        for row, one in self.runs.items():
            tries = self._tries(row, data, one)
            best = tuning.choose([record for _, record in tries])
            chosen[row] = tuning.draws(row, one, request.tries)[best]
            for number, (cell, _) in enumerate(tries):
                if number != best:
                    cells.drop_checkpoints(cell, self.folder)
            found = [
                {key: record.get(key) for key in ("key", "valid_accuracy", "error")} for _, record in tries
            ]
            of_data, asked = self.tuned.setdefault(data.label, {}), request.settings
            # What was asked for of all is not tuned.
            run_with = {name: asked.get(name, value) for name, value in chosen[row].items()}
            of_data[row] = {"settings": run_with, "number": best, "tries": found}
            write_json(request.out / "tuned.json", self.tuned)
        return chosen

    def _tries(self, row: str, data: Data, one: Contender) -> list[tuple[Cell, Record]]:
        drawn = tuning.draws(row, one, self.request.tries)
        tried = [self.cell(row, data, settings, 0) for settings in drawn]
        return [(cell, self.run(cell, f", try {number}")) for number, cell in enumerate(tried, start=1)]

    def is_refused(self) -> bool:
        """Whether there is nothing but mistakes so far: what is too large, or diverges, is a result."""
        return bool(self.records) and all(one.get("is_refused") for one in self.records)

    def refusal(self) -> str:
        """Why the first cell was not run."""
        return str(self.records[0]["error"])

    def table(self) -> Table:
        """Of what is there."""
        request = self.request
        whole = [one for one in self.records if not one.get("error")]
        return Table(
            name=request.name,
            about=request.bench.about,
            command=request.command,
            seeds=request.seeds,
            rows=request.rows,
            datas=[data.label for data in request.datas],
            measures=request.bench.measures(whole),
            records=self.records,
        )


def _write(table: Table, folder: Path) -> None:
    """CSV and Markdown, each whole or not at all."""
    for ending, text in (("csv", table.to_csv()), ("md", table.to_markdown())):
        path = folder / f"{table.name}.{ending}"
        with file_errors(path):
            fresh = path.with_name(path.name + ".partial")
            fresh.write_text(text, encoding="utf-8")
            fresh.rename(path)
