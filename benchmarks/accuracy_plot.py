"""plots/loss.svg: the training loss at gamma 1. plots/ablations.svg: accuracy over one setting at a time."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from accuracy import Groups, mean_and_spread
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from record import FOLDER
from sampling_plot import COLORS

PANELS = {"gamma": "gamma", "rho": "rho, at gamma 1", "steps": "K", "lambda_": "lambda"}


def draw(groups: Groups) -> list[Path]:
    """The pictures whose runs are there."""
    plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    # Text stays text, and the same figures give the same file.
    plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "musegnn"}
    curves = {name: runs for name, runs in groups.items() if name[1].endswith("loss curve")}
    panels = {name: runs for name, runs in groups.items() if name[1].partition(", ")[2] in PANELS}
    found = []
    if curves:
        found.append(save(draw_losses(curves), "loss"))
    if panels:
        found.append(save(draw_ablations(panels), "ablations"))
    return found


def save(page: Figure, name: str) -> Path:
    target = FOLDER / "plots" / f"{name}.svg"
    target.parent.mkdir(exist_ok=True)
    page.savefig(target, metadata={"Date": None})
    plt.close(page)
    return target


def draw_losses(groups: Groups) -> Figure:
    """One line for each seed."""
    page, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    for (_, data), runs in groups.items():
        for seed, (color, run) in enumerate(zip(COLORS, runs, strict=False)):
            epochs = range(1, len(run["losses"]) + 1)
            axes.plot(epochs, run["losses"], color=color, marker="o", markersize=3, label=f"seed {seed}")
        axes.set_title(f"{data.partition(',')[0]}, gamma 1, M updated after each batch", fontsize=9)
    axes.set(xlabel="epoch", ylabel="training loss")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(frameon=False)
    return page


def draw_ablations(groups: Groups) -> Figure:
    """A row for each graph, a column for each setting; bars are one standard deviation."""
    graphs = list(dict.fromkeys(data.partition(", ")[0] for _, data in groups))
    page, grid = plt.subplots(
        len(graphs), len(PANELS), figsize=(10, 2.4 * len(graphs)), sharey="row", squeeze=False
    )
    page.set_layout_engine("constrained")
    for color, graph, row in zip(COLORS, graphs, grid, strict=False):
        for axes, (setting, label) in zip(row, PANELS.items(), strict=True):
            points = [(name, runs) for (name, data), runs in groups.items() if data == f"{graph}, {setting}"]
            draw_panel(axes, points, setting, color)
            axes.set_xlabel(label)
        row[0].set_ylabel(f"{graph}: test accuracy, %")
    return page


def draw_panel(axes: Axes, points: list[tuple[str, list[dict[str, Any]]]], setting: str, color: str) -> None:
    """The values evenly spaced: 0 among them, and powers of two."""
    values = [name.rpartition(f"{setting} ")[2] for name, _ in points]
    means, spreads = zip(*(mean_and_spread(runs) for _, runs in points), strict=True) if points else ((), ())
    axes.errorbar(range(len(points)), means, spreads, color=color, marker="o", markersize=4, capsize=3)
    axes.set_xticks(range(len(points)), labels=[f"{float(value):g}" for value in values])
    axes.margins(x=0.1)
    axes.grid(axis="y", linewidth=0.4, color="#dddddd")
