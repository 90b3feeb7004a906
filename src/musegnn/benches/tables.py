"""Records of cells -> a table: mean and spread over seeds, as CSV, Markdown and JSON."""

import csv
import io
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from musegnn.benches.contenders import Contender

Record = dict[str, Any]
_NUMBERS = ("mean", "spread")


@dataclass(frozen=True)
class Measure:
    """A column."""

    name: str
    value: Callable[[Record], float | None]
    digits: int = 2
    best: Literal["most", "least", "none"] = "none"
    is_shown: bool = True
    """In Markdown; the CSV has all."""


class Entry(NamedTuple):
    """One measure of one row on one graph, over all seeds."""

    mean: float | None
    spread: float
    """Standard deviation; 0 with one seed."""
    num_seeds: int
    notes: list[str]
    """Why there is no figure, or what must be known of it."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """What a bench has found, and where it comes from."""

    name: str
    about: str
    command: str
    seeds: list[int]
    rows: dict[str, Contender]
    datas: list[str]
    measures: list[Measure]
    records: list[Record] = field(default_factory=list)

    def entry(self, row: str, data: str, measure: Measure) -> Entry:
        """From the seeds that have this measure."""
        contender = self.rows[row]
        if contender.settings is None:
            return Entry(None, 0.0, 0, [contender.reason])
        records = self.of(row, data)
        notes = _notes(records)
        found = [measure.value(one) for one in records if not one.get("error")]
        values = [value for value in found if value is not None]
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        mean = statistics.mean(values) if values else None
        return Entry(mean, spread, len(values), notes)

    def of(self, row: str, data: str) -> list[Record]:
        """The cells of one place, by seed."""
        found = (one for one in self.records if (one["row"], one["data"]) == (row, data))
        return sorted(found, key=lambda one: int(one["seed"]))

    def lines(self) -> Iterator[dict[str, Any]]:
        """One for each measure of each row on each graph."""
        for data in self.datas:
            for row in self.rows:
                for measure in self.measures:
                    mean, spread, count, notes = self.entry(row, data, measure)
                    place = {"data": data, "row": row, "measure": measure.name}
                    yield {**place, "mean": mean, "spread": spread, "seeds": count, "note": "; ".join(notes)}

    def to_csv(self) -> str:
        """All measures; an empty mean where there is none."""
        file = io.StringIO()
        writer = csv.DictWriter(
            file, ("data", "row", "measure", *_NUMBERS, "seeds", "note"), lineterminator="\n"
        )
        writer.writeheader()
        for line in self.lines():
            numbers = {name: "" if line["mean"] is None else f"{line[name]:.6g}" for name in _NUMBERS}
            writer.writerow({**line, **numbers})
        return file.getvalue()

    def to_json(self) -> dict[str, Any]:
        """All of it."""
        origin = {"name": self.name, "command": self.command, "seeds": self.seeds, **self.origin()}
        return {**origin, "lines": list(self.lines())}

    def origin(self) -> dict[str, list[str]]:
        """Machines, versions and days of the cells."""
        kinds = ("hardware", "versions", "date")
        return {kind: sorted({one[kind] for one in self.records}) for kind in kinds}

    def to_markdown(self) -> str:
        """A page: the table, what its notes say, and where it comes from."""
        shown = [measure for measure in self.measures if measure.is_shown]
        columns = [(data, measure) for data in self.datas for measure in shown]
        heads = [data if len(shown) == 1 else f"{data}: {measure.name}" for data, measure in columns]
        lines = [f"# {self.name}", "", self.about, ""]
        lines += ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        notes: dict[str, int] = {}
        for row in self.rows:
            cells = [self._cell(row, data, measure, notes) for data, measure in columns]
            lines.append(f"| {row} | " + " | ".join(cells) + " |")
        lines += ["", *(f"[{number}] {note}  " for note, number in notes.items()), *[""] * bool(notes)]
        several = "Mean +- standard deviation over the seeds" if len(self.seeds) > 1 else "Seed"
        lines.append(f"{several} {', '.join(map(str, self.seeds))}; the best of a column is bold.  ")
        lines.append(f"Command: `{self.command}`  ")
        lines += [f"{name.capitalize()}: {'; '.join(found)}  " for name, found in self.origin().items()]
        return "\n".join(lines) + "\n"

    def _cell(self, row: str, data: str, measure: Measure, notes: dict[str, int]) -> str:
        mean, spread, count, said = self.entry(row, data, measure)
        words = ["OOM"] * ("OOM" in said)
        words += [f"[{notes.setdefault(note, len(notes) + 1)}]" for note in said if note != "OOM"]
        if mean is None:
            return " ".join(words) or "-"
        text = f"{mean:.{measure.digits}f}" + (f" +- {spread:.{measure.digits}f}" if count > 1 else "")
        if round(mean, measure.digits) == self._best(data, measure):
            text = f"**{text}**"
        of_all = f"({count} of {len(self.seeds)} seeds)"
        return " ".join([text, *[of_all] * (count < len(self.seeds)), *words])

    def _best(self, data: str, measure: Measure) -> float | None:
        """As it is printed: several rows may have it."""
        found = [self.entry(row, data, measure).mean for row in self.rows]
        means = [round(mean, measure.digits) for mean in found if mean is not None]
        if measure.best == "none" or not means:
            return None
        return max(means) if measure.best == "most" else min(means)


def _notes(records: list[Record]) -> list[str]:
    """What is said of some seeds, each thing once; who was stopped, with the epochs it reached."""
    epochs: dict[str, list[int]] = {}
    for one in records:
        said = one.get("error") or one.get("note")
        if said:
            epochs.setdefault(said, []).extend([] if one.get("error") else [one["epochs"]])
    return [
        f"{said}, epoch {' to '.join(map(str, sorted({min(reached), max(reached)})))}" if reached else said
        for said, reached in epochs.items()
    ]
