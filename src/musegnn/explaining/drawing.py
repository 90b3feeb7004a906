"""A neighborhood as one HTML file: who speaks for the class, who against, and which edges join opposites.

Self-contained: a drawing in SVG with a little JavaScript of our own (`drawing.html`), nothing from a network.
"""

import html
import json
from importlib.resources import files
from math import cos, pi, sin
from typing import Any

import numpy as np

from musegnn.explaining.explanation import Explanation
from musegnn.explaining.tension import Tension
from musegnn.sampling.record import Sample

_FIRST_RING, _NEXT_RINGS = 190.0, 130.0
"""Radius of the first hop, and what each further one adds."""
_LARGEST = 26.0
"""Radius of the node with the largest share."""
_STANDING_OUT = 10
"""Edges that have a color: those of the highest contrast."""


class Drawing(str):
    """A page of HTML; a notebook shows what is drawn on it."""

    def _repr_html_(self) -> str:
        # In a frame of its own: its styles and its script are its own affair.
        frame = 'sandbox="allow-scripts" width="100%" height="720" style="border: 0"'
        return f'<iframe {frame} srcdoc="{html.escape(self)}"></iframe>'


def draw(
    explanation: Explanation, sample: Sample, tension: Tension | None = None, *, top: int = 40
) -> Drawing:
    """The nodes with the largest shares around the one in the middle, as a page of HTML.

    The area of a node is its share of the margin, base prediction and mean together, its color the sign. The
    width of an edge is its contrast, 1 - cos(Y_u, Y_v), if that is known. Nodes on the way to a drawn one are
    drawn, too.
    """
    tree = _tree(explanation, sample, top)
    rows = list(tree)
    places = _places(tree)
    facts = {
        "sentence": explanation.sentence(),
        "for": explanation.class_name(explanation.predicted),
        "against": None if explanation.runner_up is None else explanation.class_name(explanation.runner_up),
        "nodes": _nodes(explanation, rows, places),
        "edges": _edges(sample, tension, rows),
        "parts": _parts(explanation, rows),
        "hidden": int((np.abs(_shares(explanation)) > 0).sum()) - len(rows),
    }
    # Names come from whoever made the graph: none of them may end the script.
    data = json.dumps(facts).replace("<", "\\u003c")
    page = files("musegnn.explaining").joinpath("drawing.html").read_text(encoding="utf-8")
    title = html.escape(explanation.node_name(explanation.node))
    return Drawing(page.replace("__TITLE__", title).replace("__DATA__", data))


def _shares(explanation: Explanation) -> np.ndarray:
    """Of the margin, base prediction and mean together, by row."""
    return explanation.of_margin(explanation.shares + explanation.means)


def _tree(explanation: Explanation, sample: Sample, top: int) -> dict[int, int | None]:
    """Drawn row -> the row one hop nearer that it hangs on, that of the largest share; parents first."""
    size, hops = np.abs(_shares(explanation)), explanation.hops
    center = int(np.flatnonzero(hops == 0)[0])
    parents: dict[int, int | None] = {center: None}
    for row in np.argsort(-size, kind="stable")[:top].tolist():
        way = [row] if hops[row] > 0 and size[row] > 0 else []
        while way and way[-1] not in parents:
            neighbors = sample.indices[sample.indptr[way[-1]] : sample.indptr[way[-1] + 1]]
            nearer = neighbors[hops[neighbors] == hops[way[-1]] - 1]
            way.append(int(nearer[np.argmax(size[nearer] + [n in parents for n in nearer.tolist()])]))
        while len(way) > 1:
            parent = way.pop()
            parents[way[-1]] = parent
    return parents


def _places(tree: dict[int, int | None]) -> dict[int, tuple[float, float]]:
    """Angle and radius: each node has a slice as wide as it has leaves behind it."""
    children: dict[int, list[int]] = {row: [] for row in tree}
    for row, parent in tree.items():
        if parent is not None:
            children[parent].append(row)
    leaves = dict.fromkeys(tree, 1)
    for row in reversed(tree):
        leaves[row] = sum(leaves[child] for child in children[row]) or 1
    places: dict[int, tuple[float, float]] = {}

    def place(row: int, begin: float, end: float, hop: int) -> None:
        places[row] = (begin + end) / 2, _FIRST_RING + _NEXT_RINGS * (hop - 1) if hop else 0.0
        width = (end - begin) / leaves[row]
        for child in children[row]:
            end = begin + width * leaves[child]
            place(child, begin, end, hop + 1)
            begin = end

    place(next(iter(tree)), -pi / 2, 3 * pi / 2, 0)
    return places


def _nodes(
    explanation: Explanation, rows: list[int], places: dict[int, tuple[float, float]]
) -> list[dict[str, Any]]:
    shares, bases = _shares(explanation), explanation.of_margin(explanation.shares)
    means = explanation.of_margin(explanation.means)
    largest = np.abs(shares[rows]).max() or 1.0
    total = sum(abs(part.share) for part in explanation.parts) or 1.0
    return [
        {
            "name": explanation.node_name(int(explanation.nodes[row])),
            "hop": int(explanation.hops[row]),
            "joined": explanation.relations.get(int(explanation.nodes[row])),
            "x": round(places[row][1] * cos(places[row][0]), 1),
            "y": round(places[row][1] * sin(places[row][0]), 1),
            "angle": round(places[row][0], 4),
            "radius": round(max(3.0, _LARGEST * (abs(shares[row]) / largest) ** 0.5), 1),
            "share": float(shares[row]),
            "base": float(bases[row]),
            "mean": float(means[row]),
            "percent": float(100 * shares[row] / total),
        }
        for row in rows
    ]


def _edges(sample: Sample, tension: Tension | None, rows: list[int]) -> list[dict[str, Any]]:
    """Those between drawn nodes, by their places in the drawing."""
    place = np.full(sample.num_nodes, -1)
    place[rows] = np.arange(len(rows))
    edges = sample.edge_index() if tension is None else tension.edges
    values = np.zeros(edges.shape[1]) if tension is None else tension.contrast
    drawn = np.flatnonzero((place[edges] >= 0).all(axis=0) & (edges[0] < edges[1]))
    # The highest last: on top of the others, and they alone have a color.
    drawn = drawn[np.argsort(values[drawn], kind="stable")]
    largest = values[drawn].max(initial=0.0) or 1.0
    return [
        {
            "u": int(place[edges[0, i]]),
            "v": int(place[edges[1, i]]),
            "contrast": None if tension is None else float(values[i]),
            "weight": round(float(values[i] / largest), 3),
            "stands_out": tension is not None and rank <= _STANDING_OUT,
        }
        for rank, i in zip(range(len(drawn), 0, -1), drawn, strict=True)
    ]


def _parts(explanation: Explanation, rows: list[int], top: int = 12) -> list[dict[str, Any]]:
    """The largest summands, each with its place in the drawing; the others for and against as one each."""
    place = {int(explanation.nodes[row]): i for i, row in enumerate(rows)}
    told: list[dict[str, Any]] = [
        {
            "label": explanation.label(part),
            "share": part.share,
            "percent": part.percent,
            "node": None if part.node is None else place.get(part.node),
        }
        for part in explanation.parts[:top]
    ]
    others = explanation.others(top)
    return told + [{"label": label, "node": None, **rest._asdict()} for label, rest in others]
