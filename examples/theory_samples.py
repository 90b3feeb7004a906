"""Figures of docs/theory.md about samples: Proposition 3.1, expressiveness, figure 1, limits, conditions."""

import warnings
from collections.abc import Callable, Iterator
from functools import cache
from math import ceil, inf, log, sqrt
from pathlib import Path
from typing import Literal, NamedTuple

import matplotlib
import networkx as nx
import numpy as np
import scipy.sparse.linalg
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import musegnn
from musegnn import Draws, Energy, FullKHop, Graph, Sample, ShadowKHop, UniformInduced

LAPLACIANS: tuple[Literal["normalized"], Literal["combinatorial"]] = ("normalized", "combinatorial")
DIM = 32
GAMMAS = (0.0, 0.1, 0.5, 1.0, 2.0, 3.0)
SETTINGS: tuple[tuple[float, float | Literal["auto"]], ...] = (
    (1, "auto"),
    (4, "auto"),
    (20, "auto"),
    (20, 0.05),
)
STEPS = 8
TRIANGLES = [(0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3)]
HEXAGON = [(i, (i + 1) % 6) for i in range(6)]
DECALIN = [*HEXAGON, (5, 6), (6, 7), (7, 8), (8, 9), (9, 0)]
BICYCLOPENTYL = [(i, (i + 1) % 5) for i in range(5)] + [(5 + i, 5 + (i + 1) % 5) for i in range(5)] + [(0, 5)]
SAMPLERS = {
    "ShadowKHop([10, 5])": ShadowKHop([10, 5]),
    "FullKHop(1)": FullKHop(1),
    "NeighborSampling([10, 5])": musegnn.NeighborSampling([10, 5]),
    "PersonalizedPageRank()": musegnn.PersonalizedPageRank(),
    "UniformInduced(p=0.1)": UniformInduced(p=0.1),
    "RandomWalk()": musegnn.RandomWalk(),
    "Cluster(parts=20)": musegnn.Cluster(parts=20),
}


def save(figure: Figure, folder: Path, name: str) -> None:
    """One SVG; the same bytes for the same figure."""
    with matplotlib.rc_context({"svg.hashsalt": name, "svg.fonttype": "path"}):
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None}, facecolor="white")


def tidy(axes: Axes, x: str, y: str, title: str) -> None:
    """Labels, a light grid, no box."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=11)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def rows_of(sample: Sample) -> Tensor:
    """The sample's nodes, to index the rows of all nodes."""
    return torch.from_numpy(sample.node_ids.astype(np.int64))


# Proposition 3.1


class Ratio(NamedTuple):
    """A Monte Carlo mean over what is expected, and its standard error."""

    mean: float
    error: float


def expectations(
    p: float, num_samples: int = 600, num_nodes: int = 1500, lambda_: float = 2.0
) -> dict[str, Ratio]:
    """E[l_muse(M)] / (m p l(M)) on a random graph of mean degree 8: as stated, and as not."""
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, num_nodes, (2, 4 * num_nodes)), num_nodes=num_nodes)
    Z, M = (torch.from_numpy(part) for part in rng.standard_normal((2, num_nodes, 3)))
    samples = list(Draws(graph, UniformInduced(p=p, num_samples=num_samples), "none"))
    result = {}
    for laplacian in LAPLACIANS:
        energy, values = Energy(lambda_, inf, laplacian, "none"), []
        for sample in samples:
            at = rows_of(sample)
            values.append(float(energy.value(M[at], Z[at], sample, mu=M[at])) / p)
        for name, weight in (("p lambda", p * lambda_), ("lambda", lambda_)):
            full = float(Energy(weight, 0.0, laplacian, "none").value(M, Z, graph))
            error = float(np.std(values, ddof=1)) / sqrt(num_samples)
            result[f"{laplacian}, {name}"] = Ratio(float(np.mean(values)) / full, error / full)
    return result


def sampling_expectation(folder: Path) -> None:
    """Proposition 3.1: holds with the combinatorial Laplacian and p lambda, and in no other combination."""
    chances = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
    found = [expectations(p) for p in chances]
    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(1, color="black", linewidth=1)
    styles = {
        "combinatorial, p lambda": ("D - A, lambda -> p lambda (Proposition 3.1)", "C0", "o-"),
        "combinatorial, lambda": ("D - A, lambda unchanged", "C0", "o:"),
        "normalized, p lambda": ("normalized, lambda -> p lambda", "C1", "s-"),
        "normalized, lambda": ("normalized, lambda unchanged", "C1", "s:"),
    }
    for name, (label, color, style) in styles.items():
        means, errors = zip(*(at[name] for at in found), strict=True)
        axes.errorbar(
            chances, means, 4 * np.array(errors), label=label, color=color, fmt=style, capsize=3, markersize=4
        )
    tidy(
        axes,
        "p, the chance of a node to be in a sample",
        "mean l_muse(M) / (m p l(M))",
        "Proposition 3.1: 600 uniform samples, bars of 4 standard errors",
    )
    axes.legend(frameon=False)
    save(figure, folder, "sampling_expectation")


# Expressiveness


def minimizers(edges: list[tuple[int, int]], hops: int | None) -> np.ndarray:
    """Of each node: in the whole graph, or in the sample of which it is the only seed. Features are all 1."""
    graph = Graph.from_edges(np.array(edges).T, num_nodes=int(np.max(edges)) + 1)
    energy = Energy(1.0, 0.0, "normalized", "relu")
    if hops is None:
        return musegnn.solve(torch.ones(graph.num_nodes, 1).double(), graph, energy)[:, 0].numpy()
    draws = Draws(graph, FullKHop(hops), np.arange(graph.num_nodes), batch_size=1)
    return np.array(
        [float(musegnn.solve(torch.ones(s.num_nodes, 1).double(), s, energy)[0, 0]) for s in draws]
    )


def expressiveness(folder: Path) -> None:
    """Whole graphs on the left, the seeds of their samples on the right; one color, one embedding."""
    figure = Figure(figsize=(12, 6), layout="constrained")
    panels = figure.subplots(2, 4)
    rows = [
        (TRIANGLES, HEXAGON, "two triangles", "hexagon", 1),
        (DECALIN, BICYCLOPENTYL, "decalin", "bicyclopentyl", 2),
    ]
    for row, (first, second, name, other, hops) in zip(panels, rows, strict=True):
        found = [minimizers(edges, size) for size in (None, hops) for edges in (first, second)]
        low, high = min(map(np.min, found)), max(map(np.max, found))
        labels = [f"{title}, {kind}" for kind in ("whole", f"{hops}-hop samples") for title in (name, other)]
        for axes, edges, values, label in zip(row, (first, second) * 2, found, labels, strict=True):
            drawn = _draw(axes, edges, values, low, high)
            axes.set_title(label, fontsize=11)
        figure.colorbar(drawn, ax=row, shrink=0.7, label="embedding Y*", pad=0.01)
    figure.suptitle(
        "Minimizers with equal features (Z = 1, lambda = 1): the whole graphs agree, their samples do not",
        fontsize=12,
    )
    save(figure, folder, "expressiveness")


def _draw(axes: Axes, edges: list[tuple[int, int]], values: np.ndarray, low: float, high: float) -> object:
    graph = nx.Graph(edges)
    places = _places(edges)
    nx.draw_networkx_edges(graph, places, ax=axes, edge_color="gray")
    drawn = nx.draw_networkx_nodes(
        graph,
        places,
        nodelist=range(len(values)),
        node_color=values,
        vmin=low - 1e-3,
        vmax=high + 1e-3,
        cmap="viridis",
        node_size=640,
        edgecolors="black",
        ax=axes,
    )
    middle = (low + high) / 2
    for node, value in enumerate(values):
        color = "white" if value < middle else "black"
        axes.text(*places[node], f"{value:.3f}", ha="center", va="center", fontsize=7, color=color)
    axes.set_aspect("equal")
    axes.margins(0.2)
    axes.axis("off")
    return drawn


def _places(edges: list[tuple[int, int]]) -> dict[int, tuple[float, float]]:
    if edges == TRIANGLES:
        rings = [((-1.0, 0.0), 3, 180.0, range(3)), ((1.0, 0.0), 3, 0.0, range(3, 6))]
    elif edges == HEXAGON:
        rings = [((0.0, 0.0), 6, 0.0, range(6))]
    elif edges == BICYCLOPENTYL:
        rings = [((-1.6, 0.0), 5, 0.0, range(5)), ((1.6, 0.0), 5, 180.0, range(5, 10))]
    else:
        # Two hexagons with the side 0-5 in common.
        rings = [
            ((-0.866, 0.0), 6, 30.0, [0, 1, 2, 3, 4, 5]),
            ((0.866, 0.0), 6, 150.0, [0, 5, 6, 7, 8, 9]),
        ]
    places = {}
    for (x, y), count, begin, nodes in rings:
        for i, node in enumerate(nodes):
            angle = np.deg2rad(begin + 360 * i / count)
            places[node] = (x + float(np.cos(angle)), y + float(np.sin(angle)))
    return places


# Figure 1 of the paper


class Course(NamedTuple):
    """What K steps on a real sample did."""

    energies: np.ndarray
    """E(Y^1), ..., E(Y^K); that of Y^0 = Z is inf, since Z has negative entries."""
    least: float
    """E(Y*)."""
    bounds: np.ndarray
    """The error bound over |Y^k|."""
    errors: np.ndarray
    """|Y^k - Y*| / |Y*|."""


@cache
def debian() -> Graph:
    """The embedded graph."""
    return musegnn.datasets.load("debian")


@cache
def base() -> Tensor:
    """f(X): a fixed random linear map of the features to 32 columns."""
    features = torch.from_numpy(np.array(debian().features)).double()
    weights = torch.randn(
        features.shape[1], DIM, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    return features @ weights / sqrt(features.shape[1])


def courses(batch_size: int = 1000) -> Iterator[tuple[float, float | Literal["auto"], dict[float, Course]]]:
    """Eight steps on the first train sample for each lambda, alpha and gamma.

    mu is M after `MeanEmbeddings` (rho = 0.9) has seen eight samples, each unfolded with gamma = 0.
    """
    draws = Draws(debian(), ShadowKHop([10, 5]), "train", batch_size=batch_size)
    samples, f = [draws[i] for i in range(8)], base()
    sample = samples[0]
    Z, exact = f[rows_of(sample)], {}
    for lambda_, alpha in SETTINGS:
        means = musegnn.MeanEmbeddings(debian().num_nodes, DIM, dtype=torch.float64)
        for one in samples:
            means.update(rows_of(one), musegnn.unfold(f[rows_of(one)], one, Energy(lambda_, 0.0), STEPS))
        mu, found = means.gather(rows_of(sample)), {}
        for gamma in GAMMAS:
            energy = Energy(lambda_, gamma)
            if (lambda_, gamma) not in exact:
                exact[lambda_, gamma] = musegnn.solve(Z, sample, energy, mu, tolerance=1e-9)
            star, Y, bounds, energies, errors = exact[lambda_, gamma], Z, [], [], []
            for _ in range(STEPS):
                with warnings.catch_warnings():
                    # alpha = 0.05 is not known to descend; it is watched.
                    warnings.simplefilter("ignore")
                    step = musegnn.unfold(Z, sample, energy, 1, alpha, mu, True, init=Y)
                Y = step.Y
                energies.append(float(step.energies[-1]))
                bounds.append(step.error_bound / float(Y.norm()))
                errors.append(float((Y - star).norm() / star.norm()))
            least = float(energy.value(star, Z, sample, mu=mu))
            found[gamma] = Course(np.array(energies), least, np.array(bounds), np.array(errors))
        yield lambda_, alpha, found


def energy_by_step(folder: Path) -> None:
    """The paper's figure 1 on debian, with the error beside it."""
    figure = Figure(figsize=(13, 9), layout="constrained")
    panels = figure.subplots(3, len(SETTINGS), sharey="row", sharex=True)
    k = np.arange(1, STEPS + 1)
    for (top, middle, bottom), (lambda_, alpha, found) in zip(panels.T, courses(), strict=True):
        for i, (gamma, course) in enumerate(found.items()):
            top.plot(k, course.energies, "o-", color=f"C{i}", markersize=3, label=f"gamma = {gamma:g}")
            middle.semilogy(k, course.energies / course.least - 1, "o-", color=f"C{i}", markersize=3)
            bottom.semilogy(k, course.bounds, color=f"C{i}")
            bottom.semilogy(k, course.errors, color=f"C{i}", linestyle="--")
        tidy(top, "", "energy E(Y^k)", f"lambda = {lambda_:g}, alpha = {alpha}")
        tidy(middle, "", "energy above the minimum,\nE(Y^k) / E(Y*) - 1", "")
        tidy(bottom, "step k", "relative error of Y^k", "")
        bottom.set_xticks(k)
        for axes in (middle, bottom):
            axes.axhline(0.01, color="black", linewidth=0.8)
        for axes in (top, middle, bottom):
            axes.label_outer()
    for axes in panels[1:, 0]:
        axes.text(8, 0.012, "1 %", fontsize=9, va="bottom", ha="right")
    panels[0, 0].legend(frameon=False, fontsize=9, loc="upper left", ncols=2)
    bottom.plot([], [], color="gray", label="error bound")
    bottom.plot([], [], color="gray", linestyle="--", label="true error")
    bottom.legend(frameon=False, fontsize=9, loc="lower left")
    figure.suptitle(
        "Eight steps on a sample of debian, ShadowKHop([10, 5]), 1,000 seeds; right: the published step size",
        fontsize=12,
    )
    save(figure, folder, "energy_by_step")


# gamma -> inf


def joint_minimum(
    Z: np.ndarray, samples: list[Sample], lambda_: float, gamma: float, laplacian: str
) -> np.ndarray:
    """M at the minimum of eq. 4 over all Y_s and M, with the Y_s eliminated; K = I + lambda L_s.

    sum_s S_s' (I + K / gamma)^-1 K S_s M = sum_s S_s' (I + K / gamma)^-1 Z_s,   S_s the rows of a sample
    """
    n = len(Z)
    system, right = np.zeros((n, n)), np.zeros(Z.shape)
    for sample in samples:
        H = Energy(lambda_, 0.0, laplacian, "none").problem(torch.zeros(sample.num_nodes, 1).double(), sample)
        K = H.matrix().toarray()
        inverse = np.linalg.inv(np.eye(len(K)) + K / gamma)
        at = np.ix_(sample.node_ids, sample.node_ids)
        system[at] += inverse @ K
        right[sample.node_ids] += inverse @ Z[sample.node_ids]
    there = np.flatnonzero(np.abs(system).sum(axis=1))
    M = np.zeros(Z.shape)
    M[there] = np.linalg.solve(system[np.ix_(there, there)], right[there])
    return M


def distances(gammas: np.ndarray) -> dict[str, np.ndarray]:
    """|M(gamma) - M(inf)| / |M(inf)| on 20 samples of a random graph of 300 nodes, lambda = 1."""
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(rng.integers(0, 300, (2, 900)), num_nodes=300)
    samples = list(Draws(graph, UniformInduced(p=0.2, num_samples=20), "none"))
    Z, result = rng.standard_normal((300, 4)), {}
    for laplacian in LAPLACIANS:
        limit = musegnn.consensus(torch.from_numpy(Z), samples, Energy(1.0, inf, laplacian, "none")).numpy()
        found = [joint_minimum(Z, samples, 1.0, gamma, laplacian) for gamma in gammas]
        result[laplacian] = np.array([np.linalg.norm(M - limit) for M in found]) / np.linalg.norm(limit)
    return result


def gamma_limit(folder: Path) -> None:
    """The minimizers of eq. 4 approach that of eq. 7 as 1 / gamma."""
    gammas = np.logspace(-1, 5, 19)
    figure = Figure(figsize=(6.2, 4), layout="constrained")
    axes = figure.subplots()
    for laplacian, away in distances(gammas).items():
        axes.loglog(gammas, away, "o-", markersize=4, label=f"{laplacian} Laplacian")
    axes.loglog(gammas[6:], 1 / gammas[6:], color="gray", linestyle="--", label="1 / gamma")
    tidy(axes, "gamma", "|M(gamma) - M(inf)| / |M(inf)|", "Joint minimizers of eq. 4 approach that of eq. 7")
    axes.legend(frameon=False)
    save(figure, folder, "gamma_limit")


# Condition numbers


class Condition(NamedTuple):
    """H = I + L on one sample."""

    num_nodes: int
    sigma: float
    """The largest eigenvalue; the least is 1 for both Laplacians, so that this is the condition number."""
    lemma: int
    """Steps that exp(-k / (2 sigma)) of lemma E.4 asks for, until 1 % of the first error is left."""
    plain: int
    """Steps that the rate 1 - 1 / sigma of alpha = 1 / sigma asks for."""
    auto: int
    """Steps that the rate of alpha = "auto" asks for."""
    measured: int
    """Steps that f(X) took: alpha = "auto", for the combinatorial Laplacian with precondition="jacobi"."""


def conditions(name: str, index: int = 0, lambda_: float = 1.0) -> dict[str, Condition]:
    """Of one sample, by Laplacian."""
    sample = Draws(debian(), SAMPLERS[name], "train", batch_size=1000)[index]
    Z, result = base()[rows_of(sample)][:, :8], {}
    for laplacian in LAPLACIANS:
        problem = Energy(lambda_, 0.0, laplacian, "none").problem(Z, sample)
        start = np.random.default_rng(0).standard_normal(sample.num_nodes)
        matrix = problem.matrix()
        (sigma,) = scipy.sparse.linalg.eigsh(matrix, 1, which="LA", v0=start, return_eigenvectors=False)
        rate = max(1 - problem.alpha, abs(1 - problem.alpha * sigma))
        result[laplacian] = Condition(
            sample.num_nodes,
            float(sigma),
            lemma=ceil(2 * sigma * log(100)),
            plain=_until(1 - 1 / sigma),
            auto=_until(rate),
            measured=_measured(Z, sample, laplacian, lambda_),
        )
    return result


def _until(rate: float) -> int:
    return ceil(log(0.01) / log(rate))


def _measured(
    Z: Tensor, sample: Sample, laplacian: Literal["normalized", "combinatorial"], lambda_: float
) -> int:
    precondition: Literal["none", "jacobi"] = "none" if laplacian == "normalized" else "jacobi"
    energy = Energy(lambda_, 0.0, laplacian, "none", precondition=precondition)
    problem = energy.problem(Z, sample)
    H, weights = problem.matrix(), scipy.sparse.diags_array(1 / problem.matrix().diagonal())
    columns = [scipy.sparse.linalg.cg(H, z, rtol=1e-10, M=weights)[0] for z in Z.numpy().T]
    star = torch.from_numpy(np.stack(columns, axis=1))
    Y, k = Z, 0
    while float((Y - star).norm()) > 0.01 * float((Z - star).norm()):
        Y, k = problem.descend(Y, Z), k + 1
    return k


def condition_numbers(folder: Path) -> None:
    """By sampler, for both Laplacians."""
    found = {name: conditions(name) for name in SAMPLERS}
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    places = np.arange(len(found))
    for axes, laplacian, color in zip(panels, LAPLACIANS, ("C0", "C1"), strict=True):
        values = [found[name][laplacian] for name in found]
        axes.barh(places, [value.sigma for value in values], color=color)
        for place, value in zip(places, values, strict=True):
            label = f" {value.sigma:,.3g}" if value.sigma < 10 else f" {value.sigma:,.0f}"
            axes.text(value.sigma, place, f"{label}: {value.plain:,} steps", va="center", fontsize=9)
        tidy(axes, "condition number sigma / tau of I + L", "", f"{laplacian} Laplacian")
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.45)
    panels[1].set_xscale("log")
    panels[1].set_xlim(100, 1e6)
    panels[0].set_yticks(places, list(found))
    panels[0].invert_yaxis()
    figure.suptitle(
        "First train sample of debian by sampler, lambda = 1; steps of 1 / sigma to 1 % of the error",
        fontsize=12,
    )
    save(figure, folder, "condition_numbers")


FIGURES: list[Callable[[Path], None]] = [
    sampling_expectation,
    expressiveness,
    energy_by_step,
    gamma_limit,
    condition_numbers,
]
