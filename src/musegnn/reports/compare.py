"""Several runs side by side on one page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from musegnn.errors import InputError
from musegnn.reports import charts, words
from musegnn.reports.charts import Chart
from musegnn.reports.costs import flat_settings
from musegnn.reports.markup import Html, table, tag
from musegnn.reports.page import page, write
from musegnn.reports.reading import RunFiles, told_damage
from musegnn.reports.sections import DEGREE, HOMOPHILY, Section, in_percent, without_tail

_FACTS: tuple[tuple[str, str, Callable[[float], str], int], ...] = (
    ("test_accuracy", "test accuracy", words.percent, 1),
    ("test_macro_f1", "test macro F1", words.percent, 1),
    ("test_roc_auc", "test ROC-AUC", words.percent, 1),
    ("valid_accuracy", "validation accuracy", words.percent, 1),
    ("error_bound", "error bound", words.bound, 0),
    ("best_epoch", "best epoch", words.whole, 0),
    ("seconds", "time", words.duration, -1),
    ("peak_rss_mb", "memory", words.megabytes, -1),
    ("parameters", "parameters", words.whole, 0),
)
"""Of result.json: what it is called, how it is written, and whether more (1) or less (-1) is better.

A bound is that of a run's own energy: the smaller one is not the better model."""
_CLASSES = 12


def write_comparison(folders: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page about several runs."""
    if len(folders) < 2:
        raise InputError(f"A comparison needs two runs or more, got {len(folders)}.")
    runs = [RunFiles.read(folder) for folder in folders]
    path = Path(out).absolute()
    write(path, comparison_page(runs))
    return path


def comparison_page(runs: Sequence[RunFiles]) -> list[str]:
    """The page, in parts; runs in the order given."""
    named = dict(zip(_names(runs), runs, strict=True))
    with told_damage(Path(", ".join(str(run.path) for run in runs))):
        found = [make(named) for make in (_results, _curves, _steps, _weakness, _classes, _settings)]
        title = " \u00b7 ".join(named) if len(named) <= 4 else f"{len(named)} runs"
        graphs = sorted({str(run.record["graph"].get("name") or "a graph") for run in runs})
        about = f"{len(runs)} runs on {', '.join(graphs)}"
        digests = {run.record["graph"]["digest"] for run in runs}
        about += "" if len(digests) == 1 else " \u2013 not the same graph: compare with care"
        return page(title, about, [section for section in found if section is not None])


def _names(runs: Sequence[RunFiles]) -> list[str]:
    """Those of the folders; where two are called alike, with the folder above, and then with a number."""
    names = [run.name for run in runs]
    names = [
        f"{run.path.parent.name}/{name}" if names.count(name) > 1 else name
        for name, run in zip(names, runs, strict=True)
    ]
    return [
        f"{name} ({names[: k + 1].count(name)})" if names.count(name) > 1 else name
        for k, name in enumerate(names)
    ]


def _results(runs: dict[str, RunFiles]) -> Section:
    """A line for each run; what is best is marked."""
    results = {name: run.result or {} for name, run in runs.items()}
    shown = [fact for fact in _FACTS if any(one.get(fact[0]) is not None for one in results.values())]
    best = {}
    for key, _, _, sign in shown:
        values = [one[key] for one in results.values() if one.get(key) is not None]
        if sign and len(set(values)) > 1:
            best[key] = max(values) if sign > 0 else min(values)
    rows = []
    for name, result in results.items():
        cells: list[str] = [name, _model(runs[name])]
        for key, _, spell, _ in shown:
            value = result.get(key)
            text = "\u2013" if value is None else spell(value)
            cells.append(
                tag("b", text, class_="best") if value is not None and value == best.get(key) else text
            )
        rows.append(cells)
    head = ["run", "model", *(text for _, text, _, _ in shown)]
    content: list[Html | Chart] = [
        tag("figure", table(head, rows, sort=True, class_="second-name"), class_="wide")
    ]
    if unfinished := [name for name, run in runs.items() if run.result is None]:
        content.append(tag("p", f"Not finished: {', '.join(unfinished)}."))
    return Section("results", "Results", content)


def _model(run: RunFiles) -> str:
    """A peer, or MuseGNN with its energy."""
    energy = run.config.energy
    if run.config.is_baseline or run.record.get("model") is None or energy.kind == "smoothness":
        return run.config.baseline.architecture
    return f"MuseGNN, {energy.kind}" + f", {energy.stages} stages" * energy.is_staged


def _curves(runs: dict[str, RunFiles]) -> Section | None:
    """Validation metric and training loss, one over the other."""
    scores, losses = [], []
    for k, (name, run) in enumerate(runs.items()):
        key, epochs = f"valid_{run.config.training.metric}", run.epochs
        seen = [one for one in epochs if one.get(key) is not None]
        if seen:
            values = [100 * one[key] for one in seen]
            scores.append(charts.line(name, [one["epoch"] for one in seen], values, k, unit=" %"))
        if epochs:
            numbers = [one["epoch"] for one in epochs]
            losses.append(charts.line(name, numbers, [one.get("loss") for one in epochs], k))
    if not losses:
        return None
    metrics = sorted({run.config.training.metric.replace("_", " ") for run in runs.values()})
    title = f"Validation {' or '.join(metrics)} by epoch"
    content: list[Html | Chart] = [
        charts.by_epoch("loss", "Training loss by epoch", "", losses, "mean loss of a sample")
    ]
    if scores:
        content.insert(0, charts.by_epoch("score", title, "", scores, "%"))
    return Section("training", "Training", content)


def _steps(runs: dict[str, RunFiles]) -> Section | None:
    """The error bounds; runs without an energy have none."""
    found = {name: (run.analysis or {}).get("steps") or {} for name, run in runs.items()}
    curves = {name: steps.get("error_bounds", []) for name, steps in found.items()}
    if not any(curves.values()):
        return None
    note = "Of one sample each, to the exact minimizer of its own energy"
    for name, run in runs.items():
        if curves[name] and (other := run.config.energy.minimizer):
            note += f"; of {name} to the {other}"
    return Section("energy", "Error bound", [charts.bounds_by_step(curves, f"{note}.")])


def _weakness(runs: dict[str, RunFiles]) -> Section | None:
    """Accuracy by degree and by homophily."""
    degrees = {name: without_tail((run.analysis or {}).get("by_degree") or []) for name, run in runs.items()}
    shares = {name: in_percent((run.analysis or {}).get("by_homophily") or []) for name, run in runs.items()}
    content: list[Html | Chart] = [
        charts.lines_by_bin(id, title, "", bins, label)
        for id, title, bins, label in (
            ("degree", "Accuracy by degree", degrees, DEGREE),
            ("homophily", "Accuracy by local homophily", shares, HOMOPHILY),
        )
        if any(bins.values())
    ]
    return Section("structure", "Where they are weak", content) if content else None


def _classes(runs: dict[str, RunFiles]) -> Section | None:
    """The classes in which the runs differ most."""
    found: dict[str, dict[str, Any]] = {}
    for name, run in runs.items():
        for one in (run.analysis or {}).get("classes") or []:
            if one["accuracy"] is not None:
                found.setdefault(one["name"], {})[name] = one
    shared = {label: by_run for label, by_run in found.items() if len(by_run) == len(runs)}

    def apart(by_run: dict[str, Any]) -> float:
        values = [one["accuracy"] for one in by_run.values()]
        return float(max(values) - min(values))

    order = sorted(shared, key=lambda label: -apart(shared[label]))[:_CLASSES]
    if not order or not apart(shared[order[0]]):
        return None
    rows = []
    for label in order:
        nodes = next(iter(shared[label].values()))["nodes"]
        rows.append(
            [label, f"{nodes:,}", *(words.percent(shared[label][name]["accuracy"], 1) for name in runs)]
        )
    figure = tag(
        "figure",
        tag("h3", "Accuracy of the classes that differ most"),
        table(["class", "nodes", *runs], rows, sort=True),
        class_="wide",
    )
    return Section("classes", "Classes", [figure])


def _settings(runs: dict[str, RunFiles]) -> Section:
    """Only what is not the same everywhere."""
    found = {name: flat_settings(run.config) for name, run in runs.items()}
    keys = list(dict.fromkeys(key for settings in found.values() for key in settings))
    rows = []
    for key in keys:
        values = [settings.get(key) for settings in found.values()]
        if any(value != values[0] for value in values[1:]):
            rows.append([key, *("\u2013" if value is None else words.setting(value) for value in values)])
    for part in ("graph", "samples"):
        digests = [run.record[part]["digest"][:12] for run in runs.values()]
        if len(set(digests)) > 1:
            rows.append([f"digest of the {part}", *digests])
    if not rows:
        return Section("settings", "Settings", [tag("p", "All settings are the same.")])
    figure = tag("figure", table(["setting", *runs], rows), class_="wide")
    return Section("settings", "Settings that differ", [figure])
