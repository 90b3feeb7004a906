"""What a page says beyond result.json: where the model is right, where it is weak, and how it got there.

Sums only: batches and ranks add up, and a hundred million nodes take no more room than a hundred.
"""

import importlib.metadata
import os
import platform
from math import isfinite
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, Integer, Shaped
from numpy.typing import ArrayLike
from torch import Tensor

from musegnn.baselines.contract import AnyModel
from musegnn.graph import Graph
from musegnn.graph.checks import as_array
from musegnn.means import MeanEmbeddings
from musegnn.means.sharded import Means
from musegnn.models import MuseGNN
from musegnn.ranks import ALONE, Ranks
from musegnn.reports.relations import relations_of
from musegnn.reports.steps import steps_of
from musegnn.training.evaluation import Scored
from musegnn.training.metrics import ScoreBook
from musegnn.unfolding.penalty import Rows
from musegnn.unfolding.typed import TypedEnergy
from musegnn.version import __version__

VERSION = 1
_BITS = 65
"""Bins of degrees and counts: 0, 1, 2-3, 4-7, ..., by their number of bits."""
_TENTHS = 10
_LOOKED_AT = 1 << 22
"""Nodes whose neighbors are read, at most: enough to know, and a look at each is a read from the disk."""
_CLASSES = 200
"""Classes on a page, at most; the rarer ones are one."""
_BOUNDS = 200
PACKAGES = ("torch", "numpy", "scipy", "numba")


class Tally:
    """Told of each batch of an evaluation by `watch`, or of any predictions by `add`; `body()` says it all.

    Args:
        graph: Whose nodes they are.
        labels: Of all nodes, to compare a node with its neighbors; tasks (two dimensions) are not compared.
        split: What the nodes are called.
        model, means, precision: Of the evaluation, for what only an energy and M can tell.
    """

    def __init__(
        self,
        graph: Graph,
        labels: Shaped[np.ndarray, "nodes ..."] | None,
        *,
        split: str = "test",
        model: AnyModel | None = None,
        means: Means | None = None,
        precision: str = "float32",
    ) -> None:
        self.graph, self.labels, self.split = graph, labels, split
        self.model, self.precision = model, precision
        self.means = means if isinstance(means, MeanEmbeddings) else None
        self.book = ScoreBook(("accuracy",))
        self.by_degree = np.zeros((2, _BITS))
        """Nodes, and how many of them are right."""
        self.by_homophily = np.zeros((2, _TENTHS))
        self.by_count = np.zeros((4, _BITS))
        """Nodes, and sums of |Y - mu|^2, of the square of the next movement of mu, of |Y|^2."""
        energy = model.energy.stages(model.steps)[-1].energy if isinstance(model, MuseGNN) else None
        self.typed = energy if isinstance(energy, TypedEnergy) else None
        self.class_sums = np.zeros((0, 0))
        """Of each class the number of nodes, and the sum of their embeddings; for typed energies."""
        self.bounds: list[float] = []
        self.steps: dict[str, Any] | None = None

    def watch(self, found: Scored) -> None:
        """Count a batch with what the model makes of it."""
        batch, Y, mu = found.batch, found.Y, found.asked.mu
        seeds = np.asarray(batch.sample.node_ids[: batch.sample.num_seeds])
        self.add(seeds, found.logits, batch.targets)
        # Without steps it is infinite.
        if found.error_bound is not None and isfinite(found.error_bound):
            self.bounds.append(found.error_bound)
        if self.means is not None and Y is not None and mu is not None:
            ids = torch.from_numpy(np.asarray(batch.sample.node_ids).astype(np.int64))
            self.add_means(Y, mu, self.means.count[ids.to(self.means.count.device)], self.means.rho)
        if self.typed is not None and Y is not None and batch.targets.ndim == 1:
            self.add_classes(Y[: len(seeds)], batch.targets, found.logits.shape[1])
        if batch.index == 0 and isinstance(self.model, MuseGNN):
            self.steps = steps_of(self.model, batch, found.asked, self.precision)

    def add(
        self,
        node_ids: Integer[np.ndarray, " seeds"],
        logits: Float[Tensor, "seeds outputs"],
        targets: Shaped[Tensor, "seeds ..."],
    ) -> None:
        """Count predictions: targets are class numbers, or 0, 1 and NaN for each task; -1 is unlabeled."""
        logits, targets = logits.detach().cpu(), targets.cpu()
        self.book.add(logits, targets)
        known = (targets >= 0).numpy()
        answers = logits.argmax(dim=1) if targets.ndim == 1 else (logits > 0).to(targets.dtype)
        hits = (answers == targets).numpy() & known
        width = 1 if targets.ndim == 1 else targets.shape[1]
        known, hits = known.reshape(-1, width), hits.reshape(-1, width)
        is_some, right = np.any(known, axis=1), hits.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        ids, right = np.asarray(node_ids)[is_some].astype(np.int64), right[is_some]
        degrees = self.graph.indptr[ids + 1] - self.graph.indptr[ids]
        _count(self.by_degree, _num_bits(degrees), np.ones(len(ids)), right)
        if self.labels is not None and self.labels.ndim == 1 and self.by_homophily[0].sum() < _LOOKED_AT:
            same, labeled = self._neighbors(ids, degrees)
            is_known = labeled > 0
            tenths = np.minimum(_TENTHS * same[is_known] // labeled[is_known], _TENTHS - 1)
            _count(self.by_homophily, tenths, np.ones(len(tenths)), right[is_known])

    def _neighbors(
        self, ids: Int64[np.ndarray, " nodes"], degrees: Integer[np.ndarray, " nodes"]
    ) -> tuple[Int64[np.ndarray, " nodes"], Int64[np.ndarray, " nodes"]]:
        """How many neighbors have the label of the node, and how many have one."""
        assert self.labels is not None
        owners = np.repeat(np.arange(len(ids)), degrees)
        ends = np.cumsum(degrees)
        entries = np.arange(len(owners)) + np.repeat(self.graph.indptr[ids] - (ends - degrees), degrees)
        others = self.labels[self.graph.indices[entries]]
        is_same = others == self.labels[ids][owners]
        same, labeled = (
            np.bincount(owners[some], minlength=len(ids)) for some in (is_same & (others >= 0), others >= 0)
        )
        return same, labeled

    def add_means(self, Y: Rows, mu: Rows, counts: Integer[Tensor, " nodes"], rho: float) -> None:
        """How far Y is from mu, and how far mu would move next (eq. 9), by how often a node was seen.

        mu <- mu + ((1 - rho) c + 1) / (c + 1) (Y - mu)
        """
        apart, size = ((part.float() ** 2).sum(dim=1).double().cpu().numpy() for part in (Y - mu, Y))
        c = counts.cpu().numpy().astype(np.float64)
        weight = ((1 - rho) * c + 1) / (c + 1)
        seen = c > 0
        values = np.ones(len(c)), apart, weight**2 * apart, size
        _count(self.by_count, _num_bits(c[seen]), *(value[seen] for value in values))

    def add_classes(self, Y: Rows, targets: Integer[Tensor, " nodes"], num_classes: int) -> None:
        """Sum up embeddings class by class."""
        rows, labels = Y.double().cpu().numpy(), targets.cpu().numpy()
        if not self.class_sums.size:
            self.class_sums = np.zeros((num_classes, 1 + rows.shape[1]))
        known = labels >= 0
        np.add.at(self.class_sums[:, 0], labels[known], 1)
        np.add.at(self.class_sums[:, 1:], labels[known], rows[known])

    def add_up(self, ranks: Ranks = ALONE) -> "Tally":
        """Take in what the other ranks have counted; all of them must call it."""
        confusion = self.book.confusion
        own = [self.by_degree, self.by_homophily, self.by_count, self.class_sums]
        if confusion is not None:
            own.append(confusion)
        told = ranks.gather_arrays([self.bounds, self.steps, self.book.num_labeled], own)
        self.by_degree, self.by_homophily, self.by_count = (
            np.sum([arrays[k] for _, arrays in told], axis=0) for k in range(3)
        )
        # A rank without a batch has none of the others.
        sums = [arrays[3] for _, arrays in told if arrays[3].size]
        self.class_sums = np.sum(sums, axis=0) if sums else self.class_sums
        confusions = [arrays[4] for _, arrays in told if len(arrays) > 4]
        self.book.confusion = np.sum(confusions, axis=0) if confusions else None
        self.book.num_labeled = sum(facts[2] for facts, _ in told)
        self.bounds = [bound for facts, _ in told for bound in facts[0]]
        self.steps = next((facts[1] for facts, _ in told if facts[1] is not None), None)
        return self

    def body(self) -> dict[str, Any]:
        """All of it, as analysis.json has it."""
        confusion = self.book.confusion
        classes, matrix = ([], None) if confusion is None else self._classes(confusion)
        shown = np.sort(self.bounds)
        if len(shown) > _BOUNDS:
            shown = np.quantile(shown, np.linspace(0, 1, _BOUNDS))
        return {
            "version": VERSION,
            "split": self.split,
            "nodes": self.book.num_labeled,
            "classes": classes,
            "confusion": matrix,
            "by_degree": _shares(self.by_degree, *_edges_of_bits()),
            "by_homophily": _shares(self.by_homophily, *_edges_of_tenths()),
            "steps": self.steps,
            "error_bounds": {"samples": len(self.bounds), "sorted": shown.tolist()} if len(shown) else None,
            "means": self._settled() if self.by_count[0].any() else None,
            "relations": None
            if self.typed is None
            else relations_of(self.typed, self.graph, self.class_sums),
            "versions": versions(),
            "machine": machine(),
        }

    def _classes(self, confusion: np.ndarray) -> tuple[list[dict[str, Any]], list[list[int]] | None]:
        """Each class with its rates, and who is taken for whom; of tasks the first alone."""
        given = self.graph.class_names
        is_named = given is not None and len(given) == len(confusion)
        names = list(given or ()) if is_named else [f"class {number}" for number in range(len(confusion))]
        if confusion.ndim == 3:
            names = [f"task {number}" for number in range(len(confusion))]
            right = confusion[:, 0, 0] + confusion[:, 1, 1]
            counts = confusion.sum(axis=(1, 2)), right, confusion[:, 1, 1]
            return _rates(names, *counts, confusion[:, 1].sum(1), confusion[:, :, 1].sum(1)), None
        confusion, names = _folded(confusion, names)
        hits, nodes = confusion.diagonal(), confusion.sum(axis=1)
        return _rates(names, nodes, hits, hits, nodes, confusion.sum(axis=0)), confusion.tolist()

    def _settled(self) -> dict[str, Any]:
        """By how often a node was seen: those of the samples with their distances, and all of M."""
        low, high = _edges_of_bits()
        nodes, apart, moved, size = self.by_count
        bins = [
            {
                "low": low[b],
                "high": high[b],
                "nodes": int(nodes[b]),
                "apart": float(np.sqrt(apart[b] / max(size[b], 1e-30))),
                "moved": float(np.sqrt(moved[b] / max(size[b], 1e-30))),
            }
            for b in np.flatnonzero(nodes)
        ]
        found: dict[str, Any] = {
            "apart": float(np.sqrt(apart.sum() / max(size.sum(), 1e-30))),
            "moved": float(np.sqrt(moved.sum() / max(size.sum(), 1e-30))),
            "by_count": bins,
        }
        if self.means is not None:
            times = torch.bincount(self.means.count.cpu()).double().numpy()
            all_nodes = np.bincount(_num_bits(np.arange(len(times))), weights=times, minlength=_BITS)
            found["nodes"] = [
                {"low": low[b], "high": high[b], "nodes": int(all_nodes[b])}
                for b in np.flatnonzero(all_nodes)
            ]
        return found


def analyze(
    graph: Graph,
    node_ids: ArrayLike,
    logits: Float[Tensor, "seeds outputs"],
    targets: Shaped[Tensor, "seeds ..."],
    *,
    split: str = "test",
) -> dict[str, Any]:
    """What there is to say of any model's predictions, without energies and means."""
    labels = graph.labels if targets.ndim == 1 else None
    tally = Tally(graph, labels, split=split)
    tally.add(as_array(node_ids, "node_ids"), logits, targets)
    return tally.body()


def versions() -> dict[str, str]:
    """Of what computed it."""
    found = {"musegnn": __version__, "python": platform.python_version()}
    return found | {name: importlib.metadata.version(name) for name in PACKAGES}


def machine() -> dict[str, Any]:
    """What it was computed on."""
    facts: dict[str, Any] = {"system": platform.platform(), "cores": os.cpu_count()}
    if torch.cuda.is_available():
        facts["gpu"] = torch.cuda.get_device_name()
    return facts


def _num_bits(values: Shaped[np.ndarray, " values"]) -> Integer[np.ndarray, " values"]:
    """0 -> 0, 1 -> 1, 2-3 -> 2, 4-7 -> 3, ..."""
    return np.frexp(values.astype(np.float64))[1]


def _count(sums: Float64[np.ndarray, "kinds bins"], bins: np.ndarray, *values: np.ndarray) -> None:
    for row, value in zip(sums, values, strict=True):
        row += np.bincount(bins.astype(np.int64), weights=value, minlength=len(row))


def _edges_of_bits() -> tuple[list[float], list[float]]:
    """The least and the largest number of each bin."""
    return [0, *(2**b for b in range(_BITS - 1))], [0, *(2 ** (b + 1) - 1 for b in range(_BITS - 1))]


def _edges_of_tenths() -> tuple[list[float], list[float]]:
    return [b / _TENTHS for b in range(_TENTHS)], [(b + 1) / _TENTHS for b in range(_TENTHS)]


def _shares(
    sums: Float64[np.ndarray, "kinds bins"], low: list[float], high: list[float]
) -> list[dict[str, Any]]:
    """The bins that hold nodes."""
    nodes, right = sums
    return [
        {"low": low[b], "high": high[b], "nodes": int(nodes[b]), "accuracy": float(right[b] / nodes[b])}
        for b in np.flatnonzero(nodes)
    ]


def _rates(
    names: list[str],
    nodes: np.ndarray,
    right: np.ndarray,
    hits: np.ndarray,
    labeled: np.ndarray,
    answered: np.ndarray,
) -> list[dict[str, Any]]:
    """Accuracy, precision and recall of each; null where there is nothing to divide by."""

    def share(part: Any, whole: Any) -> float | None:
        return float(part / whole) if whole else None

    return [
        {
            "name": name,
            "nodes": int(nodes[k]),
            "answered": int(answered[k]),
            "accuracy": share(right[k], nodes[k]),
            "precision": share(hits[k], answered[k]),
            "recall": share(hits[k], labeled[k]),
        }
        for k, name in enumerate(names)
    ]


def _folded(
    confusion: Int64[np.ndarray, "truth answer"], names: list[str]
) -> tuple[Int64[np.ndarray, "shown shown"], list[str]]:
    """Not more classes than a page can show: the most common ones, the others as one."""
    if len(names) <= _CLASSES:
        return confusion, names
    kept = np.sort(np.argsort(-confusion.sum(axis=1), kind="stable")[: _CLASSES - 1])
    place = np.full(len(names), _CLASSES - 1)
    place[kept] = np.arange(_CLASSES - 1)
    folded = np.zeros((_CLASSES, _CLASSES), dtype=np.int64)
    np.add.at(folded, (place[:, None], place[None, :]), confusion)
    return folded, [*(names[k] for k in kept), f"{len(names) - len(kept)} others"]
