"""plots/sampling.svg: samples/s over workers, and entries scanned per second over the size of the graph."""

import json
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from record import FOLDER, RESULTS

COLORS = ("#1b5e8c", "#c8641e", "#4b8b3b", "#7a4a9e")


def draw() -> Path:
    """The figures of `sampling.py workers` and `sizes`, of each machine they were measured on."""
    figures = [figure for figure in json.loads(RESULTS.read_text()) if "at" in figure]
    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    # Text stays text, and the same figures give the same file.
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "musegnn"}
    page, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    over_workers(left, [figure for figure in figures if " workers" in figure["command"]])
    over_sizes(right, [figure for figure in figures if " sizes" in figure["command"]])
    machines = dict.fromkeys(figure["hardware"] for figure in figures)
    page.suptitle("papers100m-shaped graphs\n" + "\n".join(machines), fontsize=9)
    target = FOLDER / "plots" / "sampling.svg"
    target.parent.mkdir(exist_ok=True)
    page.savefig(target, metadata={"Date": None})
    return target


def over_workers(axes: Axes, figures: list[dict]) -> None:
    """Both axes logarithmic: the ideal is a straight line from the first point."""
    for color, (name, at, values) in zip(COLORS, lines(figures), strict=False):
        axes.plot(at, values, marker="o", color=color, label=name)
        ideal = [values[0] * count / at[0] for count in at]
        axes.plot(at, ideal, color=color, linewidth=0.8, linestyle=":")
    axes.plot([], [], color="gray", linewidth=0.8, linestyle=":", label="in proportion to workers")
    axes.set(xscale="log", yscale="log", xlabel="workers", ylabel="samples/s")
    ticks = sorted({figure["at"] for figure in figures})
    axes.set_xticks(ticks, labels=map(str, ticks))
    axes.minorticks_off()
    values = [figure["value"] for figure in figures]
    axes.set_yticks(*round_steps(min(values, default=1), max(values, default=1)))
    axes.legend(frameon=False)


def over_sizes(axes: Axes, figures: list[dict]) -> None:
    """Entries scanned per second: level as long as the machine does not feel the size of the graph."""
    for color, (name, at, values) in zip(COLORS, lines(figures), strict=False):
        axes.plot(at, values, marker="o", color=color, label=f"fanouts {name}")
    axes.set(xscale="log", xlabel="nodes of the graph, in millions", ylabel="entries scanned/s, in millions")
    ticks = sorted({figure["at"] for figure in figures})
    axes.set_xticks(ticks, labels=[f"{at / 1e6:.3g}" for at in ticks])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


def lines(figures: list[dict]) -> list[tuple[str, list[float], list[float]]]:
    """One line for each series and machine, its points ascending."""
    machines = {figure["hardware"] for figure in figures}
    found = []
    for series, machine in dict.fromkeys((figure["series"], figure["hardware"]) for figure in figures):
        points = sorted(
            (figure["at"], figure["value"])
            for figure in figures
            if (figure["series"], figure["hardware"]) == (series, machine)
        )
        name = series if len(machines) == 1 else f"{series} ({machine.split(', ')[1]})"
        found.append((name, *map(list, zip(*points, strict=True))))
    return found


def round_steps(low: float, high: float) -> tuple[list[float], list[str]]:
    """1, 2, 5, 10, ... that span the values."""
    steps = [mantissa * 10.0**power for power in range(-3, 6) for mantissa in (1, 2, 5)]
    first = max(step for step in steps if step <= low)
    last = min(step for step in steps if step >= high)
    chosen = [step for step in steps if first <= step <= last]
    return chosen, [f"{step:g}" for step in chosen]
