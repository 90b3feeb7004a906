"""What a run took, and how to have it again."""

import re
import shlex
from pathlib import Path
from typing import Any

from musegnn.datasets import CATALOG
from musegnn.reports import charts, words
from musegnn.reports.charts import Chart
from musegnn.reports.markup import Html, tag
from musegnn.reports.reading import RunFiles
from musegnn.reports.sections import Section
from musegnn.training.config import Config, settings_of_tables

OF_A_FOLDER = frozenset({"hidden", "lambda_", "dropout", "skip", "schedule"})
"""What `muse train FOLDER` sets by itself, so that it must be told even what is usual elsewhere."""


def costs(run: RunFiles) -> Section | None:
    """Where time and memory went."""
    epochs = run.epochs
    if not epochs:
        return None
    content: list[Html | Chart] = [_time(run)]
    memory = [one.get("rss_mb") for one in epochs]
    lines = [charts.line("after the epoch", [one["epoch"] for one in epochs], memory, unit=" MB")]
    layout: dict[str, Any] = {"showlegend": False}
    note = "Anonymous memory; pages of mapped files do not count."
    if run.result is not None:
        peak = run.result["peak_rss_mb"]
        layout |= charts.level(peak, f"peak of the run: {words.megabytes(peak)}")
        layout["yaxis"] = charts.axis("MB", range=[0, 1.12 * peak])
    content.append(charts.by_epoch("memory", "Memory by epoch", note, lines, "MB", **layout))
    profile = next((one.get("milliseconds") for one in run.events if one.get("event") == "profile"), None)
    if profile:
        parts = {name: value for name, value in profile.items() if name != "step"}
        note = f"A step takes {profile['step']:.1f} ms from one to the next; on a GPU, copy runs beside it."
        content.append(charts.amounts("profile", "Time of a step", note, parts, "ms"))
    return Section("costs", "Time and memory", content)


def _time(run: RunFiles) -> Chart:
    """Steps, waiting for samples, everything else."""
    seconds = sum(one["seconds"] for one in run.epochs)
    waited = sum(one["seconds"] * one.get("waited", 0) for one in run.epochs)
    parts = {"training steps": seconds - waited, "waiting for samples": waited}
    if run.result is not None:
        parts["validation, test, the rest"] = max(run.result["seconds"] - seconds, 0.0)
    last = run.epochs[-1]
    note = f"An epoch takes {words.duration(seconds / len(run.epochs))}; "
    note += f"in the last, {last['samples_per_second']:,.1f} samples a second."
    parts = {name: round(value, 1) for name, value in parts.items()}
    return charts.amounts("time", "Where the time went", note, parts, "s")


def reproduce(run: RunFiles) -> Section:
    """Commands, settings, versions and digests."""
    facts: dict[str, str] = {}
    for part in ("graph", "samples"):
        place = run.record[part]
        facts[f"digest of the {part}"] = place["digest"]
        if place.get("folder"):
            facts[f"folder of the {part}"] = place["folder"]
    if run.record.get("labels"):
        facts["digest of the labels"] = run.record["labels"]
    versions = {"musegnn": run.record.get("musegnn")}
    if run.analysis is not None:
        versions = run.analysis["versions"]
        facts["machine"] = _listed(run.analysis["machine"])
    facts["versions"] = _listed(versions)
    if run.result is not None:
        facts["run"] = _listed({name: run.result[name] for name in ("device", "threads", "ranks", "seed")})
    rows = [tag("div", tag("dt", name), tag("dd", tag("code", value))) for name, value in facts.items()]
    note = (
        "On the CPU, the same versions, machine and number of torch threads give the same bits; elsewhere, "
        "the same result up to rounding."
    )
    if not run.record.get("is_of_seed"):
        note = "Its first weights were those of the caller, which no command knows: expect no equal bits."
    return Section(
        "reproduce",
        "Reproduce it",
        [
            tag("pre", "\n".join(commands(run)), class_="wide"),
            tag("p", note, class_="wide"),
            tag("dl", *rows, class_="facts wide"),
            tag("details", tag("summary", "All settings: config.toml"), tag("pre", run.toml), class_="wide"),
        ],
    )


def _listed(facts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts.items())


def commands(run: RunFiles) -> list[str]:
    """That train it again, look at it again, and use it."""
    folder = shlex.quote(str(run.path))
    out = f"{_samples(run)} --out {folder}-again"
    lines = []
    if run.record.get("model") is None:
        lines.append(
            "# A model of your own: musegnn.train(graph, store, model, out=...) with the settings below."
        )
    elif run.config.dataset in CATALOG:
        lines.append(f"muse train {shlex.quote(str(run.path / 'config.toml'))}{out}")
    elif place := run.record["graph"].get("folder"):
        changed = "".join(f" --set {shlex.quote(one)}" for one in changed_settings(run.config))
        lines.append(f"muse train {shlex.quote(place)}{changed}{out}")
    if run.record.get("model") is not None and not run.record.get("is_of_seed"):
        text = "# The model was passed to musegnn.train with weights of its own"
        lines.insert(0, f"{text}: this begins with those of the seed instead." if lines else f"{text}.")
    if run.result is not None and run.result["device"] == "cpu":
        lines = [
            line if line[0] == "#" else f"OMP_NUM_THREADS={int(run.result['threads'])} {line}"
            for line in lines
        ]
    if run.result is None and run.failure is None:
        lines.append(f"muse train --resume {folder}")
    others = (f"evaluate {folder}", f"predict {folder} --nodes all --out predictions.csv", f"report {folder}")
    return [*lines, *(f"muse {other}" for other in others)]


def _samples(run: RunFiles) -> str:
    """' --samples FOLDER', unless it is one that `muse train` has named, and would find or draw again."""
    folder = run.record["samples"].get("folder")
    if folder is None or re.fullmatch("samples-[0-9a-f]{8}", Path(folder).name):
        return ""
    return f" --samples {shlex.quote(folder)}"


def flat_settings(config: Config) -> dict[str, Any]:
    """Every setting by its name, those of the sampler among them."""
    found: dict[str, Any] = {"dataset": config.dataset}
    for name, one in settings_of_tables():
        part = getattr(config, name)
        if one.name == "settings":
            found |= part.settings
        else:
            found[one.name] = getattr(part, one.name)
    return found


def changed_settings(config: Config) -> list[str]:
    """As --set takes them: what is not as it is by itself."""
    usual = flat_settings(Config())
    own = {name: value for name, value in flat_settings(config).items() if name != "dataset"}
    changed = {
        name: value
        for name, value in own.items()
        if name in OF_A_FOLDER or name not in usual or usual[name] != value
    }
    return [f"{name}={_plain(value)}" for name, value in changed.items()]


def _plain(value: Any) -> str:
    return words.setting(value).replace(", ", ",")
