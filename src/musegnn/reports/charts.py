"""Charts, as plotly.js takes them; `@blue` is a color of the page, which has a light and a dark one.

Names of others are never markup here (`plot_text`), and never an axis: ticks are numbers with texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import sqrt
from typing import Any

from musegnn.reports import words
from musegnn.reports.markup import plot_text

COLORS = ("@blue", "@orange", "@green", "@purple", "@sky", "@red", "@gray")
"""Apart for the color-blind, too; lines also differ by their dashes and markers."""
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x")
_TERMS = {
    "fidelity": "@blue",
    "smoothness": "@orange",
    "relations": "@orange",
    "consensus": "@green",
    "penalty": "@purple",
}
_MEASURED = {"x", "y", "z"}
Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Chart:
    """A figure with its caption."""

    id: str
    title: str
    note: str
    """What it shows here, in a sentence."""
    data: list[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)
    height: int = 300
    is_wide: bool = False

    def spec(self) -> dict[str, Any]:
        """For the script of the page."""
        for trace in self.data:
            for key in _MEASURED & trace.keys():
                _check_numbers(trace[key])
        return {"data": self.data, "layout": {**self.layout, "height": self.height}}


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with what it measures, and in what."""
    return {"title": {"text": title}, **more}


def line(name: str, x: Sequence[float], y: Numbers, number: int = 0, *, unit: str = "") -> dict[str, Any]:
    """A line with markers where there are few points; null leaves a gap."""
    style = {"color": COLORS[number % len(COLORS)]}
    return {
        "type": "scatter",
        "mode": "lines+markers" if len(x) <= 40 else "lines",
        "name": plot_text(name),
        "x": list(x),
        "y": list(y),
        "connectgaps": True,
        "line": {**style, "width": 2, "dash": _DASHES[number % len(_DASHES)]},
        "marker": {**style, "size": 6, "symbol": _SYMBOLS[number % len(_SYMBOLS)]},
        "hovertemplate": f"%{{y:.4~g}}{unit}",
    }


def level(y: float, text: str) -> dict[str, Any]:
    """A dashed line across a chart, with its name; goes into `layout`."""
    place = {"xref": "paper", "x": 1, "xanchor": "right", "y": y, "yanchor": "bottom", "showarrow": False}
    shape = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "layer": "above"}
    return {
        "shapes": [{**shape, "line": {"color": "@muted", "width": 1.5, "dash": "dash"}}],
        "annotations": [
            {
                **place,
                "text": plot_text(text),
                "font": {"size": 11, "color": "@muted"},
                "bgcolor": "@panel",
                "opacity": 0.9,
            }
        ],
    }


def by_epoch(id: str, title: str, note: str, lines: list[dict[str, Any]], unit: str, **layout: Any) -> Chart:
    """Curves of the training."""
    most = max((max(one["x"], default=1) for one in lines), default=1)
    x = axis("epoch", **_whole_numbers(most))
    return Chart(
        id, title, note, lines, {"hovermode": "x unified", "xaxis": x, "yaxis": axis(unit), **layout}
    )


def energies(terms: dict[str, list[float | None]], note: str, label: str = "step k") -> Chart:
    """Stacked terms of each step; a term without a value is infinite there."""
    count = len(next(iter(terms.values())))
    bars = [
        {
            "type": "bar",
            "name": plot_text(name),
            "x": list(range(count)),
            "y": values,
            "marker": {"color": _TERMS.get(name, COLORS[k % len(COLORS)])},
            "hovertemplate": "%{y:,.4~s}",
        }
        for k, (name, values) in enumerate(terms.items())
        if any(values)
    ]
    layout = {
        "barmode": "stack",
        "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        "hovermode": "x unified",
        "xaxis": axis(label, **_whole_numbers(count)),
        "yaxis": axis("energy of one sample", tickformat="~s"),
    }
    return Chart("energy", "Energy by step", note, bars, layout)


def bounds_by_step(curves: dict[str, list[float | None]], note: str, label: str = "step k") -> Chart:
    """How far from the minimum Y may be, in percent of its size; a curve without values keeps its color."""
    lines = [
        line(name, range(1, len(values) + 1), [_hundred(value) for value in values], k, unit=" %")
        for k, (name, values) in enumerate(curves.items())
        if values
    ]
    most = max((len(values) for values in curves.values()), default=1)
    known = [value for values in curves.values() for value in values if value]
    is_short = bool(known) and max(known) < 100 * min(known)
    layout = {
        "hovermode": "x unified",
        "showlegend": len(lines) > 1,
        "xaxis": axis(label, **_whole_numbers(most)),
        "yaxis": axis(
            "|Y\u1d4f \u2212 Y*| / |Y\u1d4f| at most, % (log)",
            type="log",
            tickformat="~g",
            dtick="D2" if is_short else 1,
        ),
    }
    return Chart("bounds", "Error bound by step", note, lines, layout)


def bounds_by_sample(values: list[float], samples: int, note: str) -> Chart:
    """The samples from the least bound to the largest; of many, their quantiles."""
    places = [1 + k * (samples - 1) / max(len(values) - 1, 1) for k in range(len(values))]
    points = line("error bound", places, [100 * value for value in values], unit=" %") | {"mode": "markers"}
    layout = {
        "xaxis": axis("samples, least bound first", **_whole_numbers(samples)),
        "yaxis": axis("|Y \u2212 Y*| / |Y| at most, %", rangemode="tozero"),
        "showlegend": False,
    }
    return Chart("samples", "Error bound by sample", note, [points], layout, height=230)


def settling(bins: list[dict[str, Any]], note: str) -> Chart:
    """How far Y is from mu, and mu from its next value, by how often a node was seen."""
    ticks = _ticks(bins)
    apart, moved = ([100 * one[key] for one in bins] for key in ("apart", "moved"))
    places = range(len(bins))
    lines = [
        line("|Y \u2212 \u03bc| / |Y|", places, apart, 0, unit=" %"),
        line("next movement of \u03bc / |Y|", places, moved, 1, unit=" %"),
    ]
    layout = {
        "hovermode": "x unified",
        "xaxis": axis("times seen in training, at least", **ticks),
        "yaxis": axis("% of |Y|", rangemode="tozero"),
    }
    return Chart("settling", "How M settles", note, lines, layout)


def node_counts(bins: list[dict[str, Any]], note: str) -> Chart:
    """Nodes by how often they were seen."""
    bars = {
        "type": "bar",
        "x": list(range(len(bins))),
        "y": [one["nodes"] for one in bins],
        "marker": {"color": "@blue"},
        "customdata": [words.times(one["low"], one["high"]) for one in bins],
        "hovertemplate": "%{customdata}: %{y:,} nodes<extra></extra>",
    }
    layout = {
        "xaxis": axis("times seen in training, at least", **_ticks(bins)),
        "yaxis": axis("nodes of the graph", tickformat="~s"),
        "showlegend": False,
    }
    return Chart("seen", "Nodes by how often M saw them", note, [bars], layout)


def by_bin(id: str, title: str, note: str, bins: list[dict[str, Any]], xlabel: str, overall: float) -> Chart:
    """Accuracy of the nodes in each bin, with its 95 % interval."""
    intervals = [wilson(one["accuracy"], one["nodes"]) for one in bins]
    bars = {
        "type": "bar",
        "x": list(range(len(bins))),
        "y": [100 * one["accuracy"] for one in bins],
        "marker": {"color": "@blue"},
        "text": [words.short(one["nodes"]) for one in bins],
        # A bar of next to no height has no inside.
        "textposition": ["inside" if one["accuracy"] > 0.08 else "outside" for one in bins],
        "insidetextanchor": "start",
        "textangle": 0,
        "insidetextfont": {"color": "@onblue", "size": 11},
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [100 * (high - one["accuracy"]) for (_, high), one in zip(intervals, bins, strict=True)],
            "arrayminus": [
                100 * (one["accuracy"] - low) for (low, _), one in zip(intervals, bins, strict=True)
            ],
            "color": "@text",
            "thickness": 1,
            "width": 3,
        },
        "customdata": [[words.span(one["low"], one["high"]), one["nodes"]] for one in bins],
        "hovertemplate": "%{customdata[0]}: %{y:.1f} % of %{customdata[1]:,} nodes<extra></extra>",
    }
    layout = {
        "xaxis": axis(xlabel, **_ticks(bins)),
        "yaxis": axis("accuracy, %", range=[0, 104]),
        "showlegend": False,
        **level(100 * overall, "all nodes"),
    }
    return Chart(id, title, note, [bars], layout)


def lines_by_bin(id: str, title: str, note: str, runs: dict[str, list[dict[str, Any]]], xlabel: str) -> Chart:
    """The same bins of several runs, as lines."""
    spans = sorted({(one["low"], one["high"]) for bins in runs.values() for one in bins})
    lines = []
    for k, (name, bins) in enumerate(runs.items()):
        places = [spans.index((one["low"], one["high"])) for one in bins]
        if bins:
            lines.append(line(name, places, [100 * one["accuracy"] for one in bins], k, unit=" %"))
    ticks = _ticks([{"low": low, "high": high} for low, high in spans])
    # Where runs have bins of other widths, a bin is told by both of its ends.
    lows = [low for low, _ in spans]
    if len(set(lows)) < len(lows):
        ticks["ticktext"] = [words.span(low, high) for low, high in spans]
    layout = {"hovermode": "x unified", "xaxis": axis(xlabel, **ticks), "yaxis": axis("accuracy, %")}
    return Chart(id, title, note, lines, layout)


def by_class(classes: list[dict[str, Any]], note: str) -> Chart:
    """Each class a point: how many nodes, how many of them right."""
    some = [one for one in classes if one["nodes"]]
    points = {
        "type": "scatter",
        "mode": "markers",
        "x": [one["nodes"] for one in some],
        "y": [100 * one["accuracy"] for one in some],
        "text": [plot_text(one["name"]) for one in some],
        "marker": {"color": "@blue", "size": 9, "opacity": 0.75, "line": {"width": 1, "color": "@panel"}},
        "hovertemplate": "%{text}: %{y:.1f} % of %{x:,} nodes<extra></extra>",
    }
    layout = {
        "xaxis": axis("nodes of the class", type="log", dtick=1, tickformat="~s"),
        "yaxis": axis("accuracy, %", range=[-4, 104]),
        "hovermode": "closest",
        "showlegend": False,
    }
    return Chart("rare", "Accuracy by size of the class", note, [points], layout)


def confusion(matrix: list[list[int]], classes: list[dict[str, Any]], note: str) -> Chart:
    """Rows are true classes, columns predictions; the script of the page sorts it."""
    rows = [[count / max(sum(row), 1) for count in row] for row in matrix]
    heat = {
        "type": "heatmap",
        "z": rows,
        "customdata": matrix,
        "text": [plot_text(one["name"]) for one in classes],
        "xgap": 1,
        "ygap": 1,
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, "@heat0"], [0.02, "@heat1"], [0.35, "@heat2"], [1, "@heat3"]],
        "colorbar": {"title": {"text": "share of the<br>true class"}, "tickformat": ".0%", "thickness": 12},
    }
    layout = {"xaxis": axis("predicted class"), "yaxis": axis("true class", autorange="reversed")}
    height = min(max(420, 150 + 14 * len(classes)), 900)
    return Chart("confusion", "Confusion matrix", note, [heat], layout, height=height, is_wide=True)


def spectra(curves: dict[str, tuple[list[int], list[float]]], note: str) -> Chart:
    """Singular values, the largest first."""
    lines = [line(name, places, values, k) for k, (name, (places, values)) in enumerate(curves.items())]
    layout = {
        "hovermode": "x unified",
        "xaxis": axis("number, the largest first", tickformat="d"),
        "yaxis": axis("singular value", rangemode="tozero"),
    }
    return Chart("spectra", "Spectrum of each H", note, lines, layout)


def affinity(id: str, title: str, matrix: list[list[float]], classes: list[str]) -> Chart:
    """Cosines between classes, from -1 to 1."""
    names = [plot_text(name) for name in classes]
    heat = {
        "type": "heatmap",
        "z": matrix,
        "xgap": 1,
        "ygap": 1,
        "zmin": -1,
        "zmax": 1,
        "colorscale": [[0, "@red"], [0.5, "@heat0"], [1, "@blue"]],
        "colorbar": {"title": {"text": "cosine"}, "thickness": 12},
        "hovertext": [
            [f"{a} \u2192 {b}: {v:.3g}" for b, v in zip(names, row, strict=True)]
            for a, row in zip(names, matrix, strict=True)
        ],
        "hoverinfo": "text",
    }
    ticks: dict[str, Any] = {"tickvals": list(range(len(names))), "ticktext": names}
    ticks["tickfont"] = {"size": 9 if len(names) > 12 else 12}
    layout = {
        "xaxis": axis("b", tickangle=-90, **ticks),
        "yaxis": axis("a", autorange="reversed", **ticks),
    }
    return Chart(id, title, "", [heat], layout, height=min(260 + 13 * len(names), 640))


def amounts(id: str, title: str, note: str, parts: dict[str, float], unit: str) -> Chart:
    """A horizontal bar for each part."""
    names = list(parts)
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": list(parts.values()),
        "y": list(range(len(names))),
        "marker": {"color": "@blue"},
        "hovertemplate": f"%{{x:,.4~g}} {unit}<extra></extra>",
    }
    ticks = {
        "tickvals": list(range(len(names))),
        "ticktext": [plot_text(f"{name}: {value:,.4g} {unit}") for name, value in parts.items()],
    }
    layout = {
        "xaxis": axis(unit, rangemode="tozero"),
        "yaxis": {"autorange": "reversed", "automargin": True, **ticks},
        "showlegend": False,
    }
    return Chart(id, title, note, [bars], layout, height=120 + 34 * len(names))


def wilson(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share of this many nodes (Wilson's score)."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return min(middle - half, share), max(middle + half, share)


def _ticks(bins: list[dict[str, Any]]) -> dict[str, Any]:
    """A bin begins at its tick; a chart has no room for both ends."""
    places = list(range(len(bins)))
    return {"tickvals": places, "ticktext": [words.tick(one["low"]) for one in bins]}


def _whole_numbers(most: float) -> dict[str, Any]:
    """Ticks of an axis that counts."""
    return {"tickformat": "d", **({"dtick": 1} if most <= 12 else {})}


def _check_numbers(values: Any) -> None:
    """A text among numbers, which plotly would show as it is, is not of our making."""
    if isinstance(values, list):
        for value in values:
            _check_numbers(value)
    elif not isinstance(values, int | float | None):
        raise ValueError(f"{values!r} is not a number")


def _hundred(value: float | None) -> float | None:
    return None if value is None else 100 * value
