"""What a bench draws: dots, one for each row, or lines over something; as SVG."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from musegnn import extras

COLORS = (
    *("#1b5e8c", "#c8641e", "#4b8b3b", "#7a4a9e", "#a33b3b"),
    *("#5f6b73", "#b08b1e", "#2a9d8f", "#d16ba5", "#3c3c3c"),
)
Line = list[tuple[float, float, float]]
"""Points: where, mean, spread."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes."""

    title: str = ""
    x: str = ""
    y: str = ""
    is_log: bool = False
    """Both axes of lines, the one axis of dots."""
    lines: dict[str, Line] = field(default_factory=dict)
    dots: list[tuple[str, float, float]] = field(default_factory=list)
    """Label, mean, spread; from the top down."""


def matplotlib() -> Any:
    """The package, asked for before the first cell runs, not behind the last."""
    return extras.require("matplotlib", "muse bench")


def draw(panels: list[Panel], path: Path) -> None:
    """Panels side by side, four in a row at most. The same figures give the same file."""
    package = matplotlib()
    from matplotlib.figure import Figure

    style: dict[str, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    # Text stays text.
    style |= {"svg.fonttype": "none", "svg.hashsalt": "musegnn"}
    columns = max(1, min(4, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    height = max([3.0, *(0.6 + 0.2 * len(panel.dots) for panel in panels)])
    with package.rc_context(style):
        page = Figure(figsize=(max(5.0, 3.6 * columns), height * rows), layout="constrained")
        grid = page.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel, following in zip(grid, panels, [*panels[1:], None], strict=False):
            _dots(axes, panel) if panel.dots else _lines(axes, panel)
            axes.set_title(panel.title, fontsize=9)
            if panel.lines and (following is None or list(following.lines) != list(panel.lines)):
                # Beside the lines, once for panels that share it: within, it would lie on some of them.
                axes.legend(frameon=False, fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        fresh = path.with_name(path.name + ".partial")
        page.savefig(fresh, format="svg", metadata={"Date": None})
        fresh.rename(path)


def _dots(axes: Any, panel: Panel) -> None:
    """Each with its spread as a line. A dot needs no zero: accuracies differ by a few points."""
    labels, means, spreads = zip(*panel.dots, strict=True)
    places = range(len(labels))
    if panel.is_log:
        axes.set_xscale("log")
    axes.errorbar(means, places, xerr=spreads, fmt="o", color=COLORS[0], ecolor=COLORS[1], markersize=4)
    axes.set_yticks(places, labels=labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_xlabel(panel.x)


def _lines(axes: Any, panel: Panel) -> None:
    for number, (label, points) in enumerate(panel.lines.items()):
        places, means, spreads = zip(*sorted(points), strict=True)
        style: dict[str, Any] = {"color": COLORS[number % len(COLORS)], "label": label, "capsize": 2}
        style["marker"] = "o" if len(points) < 20 else None
        axes.errorbar(places, means, spreads if any(spreads) else None, markersize=3, **style)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    if all(float(point[0]).is_integer() for points in panel.lines.values() for point in points):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if panel.is_log:
        axes.set(xscale="log", yscale="log")
        ticks = sorted({point[0] for points in panel.lines.values() for point in points})
        axes.set_xticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        axes.xaxis.minorticks_off()
