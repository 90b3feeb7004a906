"""Figures on descent, its rate, the two levels and alternation, for docs/theory.md. Drawn by `theory.py`.

Everything is computed here, in float64, on samples of `debian` or on a random graph: two minutes in all.
"""

from collections.abc import Callable
from math import inf
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize
import scipy.special
import torch
from matplotlib.figure import Figure

import musegnn
from musegnn import Energy, Sample, unfold

plt.rcParams |= {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
# Text stays text, and the same figures give the same file.
plt.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "musegnn", "legend.frameon": False}
BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}


def debian_samples(count: int, seeds: int = 12) -> list[Sample]:
    """Small samples of a real graph: a few hundred nodes, so that dense matrices tell the truth."""
    graph = musegnn.datasets.load("debian")
    draws = musegnn.Draws(graph, musegnn.ShadowKHop(fanouts=[4, 3]), "train", batch_size=seeds, seed=0)
    return [draws[i] for i in range(count)]


def laplacian(sample: Sample, kind: str) -> np.ndarray:
    """L_s, dense."""
    n = sample.num_nodes
    adjacency = np.zeros((n, n))
    adjacency[tuple(sample.edge_index())] = 1
    degree = adjacency.sum(axis=1)
    if kind == "combinatorial":
        return np.diag(degree) - adjacency
    root = (degree + 1) ** -0.5
    return np.eye(n) - root[:, None] * (adjacency + np.eye(n)) * root


def rows(count: int, dim: int, seed: int) -> torch.Tensor:
    """Random rows, as f(X) might be."""
    return torch.randn(count, dim, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def save(page: Figure, folder: Path, name: str) -> None:
    """As SVG, without a date."""
    page.savefig(folder / f"{name}.svg", metadata={"Date": None})
    plt.close(page)


def descent(folder: Path) -> None:
    """The energy by step for several step sizes; the error bound next to the true distance."""
    sample = debian_samples(1)[0]
    page, (left, right) = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
    lambda_, Z = 20.0, rows(sample.num_nodes, 16, 0)
    H = np.eye(len(Z)) + lambda_ * laplacian(sample, "normalized")
    sigma, star = np.linalg.eigvalsh(H)[-1], np.linalg.solve(H, Z.numpy())
    least = -(star * Z.numpy()).sum()
    sizes = {
        "0.5 / sigma": 0.5 / sigma,
        "1 / sigma, the theorem's largest": 1 / sigma,
        "1 / (1 + lambda), ours": 1 / (1 + lambda_),
        "0.05, the paper's runs": 0.05,
        "1.99 / sigma": 1.99 / sigma,
        "2.02 / sigma": 2.02 / sigma,
    }
    for name, alpha in sizes.items():
        Y, excess = Z.numpy(), []
        for _ in range(61):
            excess.append((Y * (H @ Y - 2 * Z.numpy())).sum() - least)
            Y = Y - alpha * (H @ Y - Z.numpy())
        style = "--" if alpha * sigma > 2 else "-"
        left.plot(excess, style, label=f"alpha = {name}")
    left.set(yscale="log", xlabel="step k", ylabel="E(Y^k) - E(Y*)", ylim=(1e-3, 2e6))
    left.set_title(
        f"Below 2 / sigma the energy falls, above it rises\n(normalized, lambda = 20, sigma = {sigma:.1f})"
    )
    left.legend(fontsize=8, **BELOW)
    cases = {
        "normalized, lambda = 4": Energy(4.0, 0.5, "normalized", "relu"),
        "normalized, lambda = 20": Energy(20.0, 0.5, "normalized", "relu"),
        "combinatorial, lambda = 4": Energy(4.0, 0.5, "combinatorial", "relu"),
        "combinatorial, lambda = 4, jacobi": Energy(4.0, 0.5, "combinatorial", "relu", precondition="jacobi"),
    }
    mu = rows(sample.num_nodes, 16, 1)
    for color, (name, energy) in enumerate(cases.items()):
        exact = musegnn.solve(Z, sample, energy, mu)
        trace = unfold(Z, sample, energy, 40, mu=mu, trace=True)
        away = [float((unfold(Z, sample, energy, k, mu=mu) - exact).norm()) for k in range(1, 41)]
        right.plot(range(1, 41), trace.error_bounds, color=f"C{color}", label=name)
        right.plot(range(1, 41), away, ":", color=f"C{color}")
    right.plot([], [], "k-", label="error bound, from the trace")
    right.plot([], [], "k:", label="true distance |Y^k - Y*|")
    right.set(yscale="log", xlabel="step k", ylabel="Frobenius norm", ylim=(1e-4, None))
    right.set_title("The error bound is never below the true distance\n(ReLU, gamma = 0.5)")
    right.legend(fontsize=8, **BELOW)
    save(page, folder, "descent")


def rate(folder: Path) -> None:
    """|P^(k) - P*| on several samples, and the bounds that lemma E.4 and a sharper argument give."""
    samples, lambda_, steps = debian_samples(5), 4.0, np.arange(0, 41)
    page, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained", sharey=True)
    H = [np.eye(s.num_nodes) + lambda_ * laplacian(s, "normalized") for s in samples]
    values = [np.linalg.eigvalsh(matrix) for matrix in H]
    sigma = max(h[-1] for h in values)
    energy = Energy(lambda_, 0.0, "normalized", "none")
    first = [np.linalg.norm(1 - 1 / h) for h in values]
    for panel, (title, alpha) in zip(
        axes,
        {"alpha = 1 / sigma": 1 / sigma, "alpha = 1 / (1 + lambda), ours": 1 / (1 + lambda_)}.items(),
        strict=True,
    ):
        for sample, matrix in zip(samples, H, strict=True):
            star, Y = np.linalg.inv(matrix), torch.eye(len(matrix), dtype=torch.float64)
            errors = []
            for _ in steps:
                errors.append(np.linalg.norm(Y.numpy() - star))
                Y = unfold(torch.eye(len(matrix), dtype=torch.float64), sample, energy, 1, alpha, init=Y)
            label = "|P_s^(k) - P_s*|_F of 5 samples" if sample is samples[0] else None
            panel.plot(steps, errors, color="C0", label=label)
        whole = np.linalg.norm(first)
        panel.plot(
            steps, len(H) * sum(first) * np.exp(-steps / (2 * sigma)), "C3--", label="lemma E.4 as printed"
        )
        panel.plot(
            steps, whole * np.exp(-steps / (2 * sigma)), "C1--", label="without m, norms added as squares"
        )
        factor = 1 - 1 / sigma if panel is axes[0] else lambda_ / (1 + lambda_)
        text = "(1 - tau / sigma)^k" if panel is axes[0] else "(lambda / (1 + lambda))^k"
        panel.plot(steps, max(first) * factor**steps, "C2--", label=text)
        panel.set(yscale="log", xlabel="step k", title=title, ylim=(1e-6, None))
        panel.legend(fontsize=8, loc="lower left")
    axes[0].set_ylabel("Frobenius norm")
    page.suptitle(
        f"Lemma E.4 holds with room to spare (normalized, lambda = 4, sigma = {sigma:.2f}, tau = 1)",
        fontsize=10,
    )
    save(page, folder, "rate")


def preconditioner(folder: Path) -> None:
    """Energies by step at lambda = 1, combinatorial: no preconditioner, jacobi, and the authors' variant."""
    graph = musegnn.datasets.load("debian")
    sample = musegnn.Draws(graph, musegnn.ShadowKHop(), "train", batch_size=50, seed=0)[0]
    Z = rows(sample.num_nodes, 16, 0).abs()
    page, panel = plt.subplots(figsize=(6, 4), layout="constrained")
    names = {
        "none": "none, alpha = 1 / sigma",
        "jacobi": "jacobi, alpha = 1",
        "authors": "the authors' variant, alpha = 1",
    }
    star = musegnn.solve(Z, sample, Energy(1.0, 0.0, "combinatorial", "none"))
    least = float(Energy(1.0, 0.0, "combinatorial", "none").value(star, Z, sample))
    for kind, name in names.items():
        energy = Energy(1.0, 0.0, "combinatorial", "none", precondition=kind)
        energies = unfold(Z, sample, energy, 40, trace=True).energies - least
        panel.plot(energies, label=name)
    bound = sample.spectrum("combinatorial").bound
    panel.set(yscale="log", xlabel="step k", ylabel="E(Y^k) - E(Y*)")
    panel.set_title(f"combinatorial, lambda = 1, a sample of debian with lmax <= {bound:,.0f}")
    panel.legend()
    save(page, folder, "preconditioner")


def acceleration(folder: Path) -> None:
    """By step: the largest |Y^(k) - Y*| / |f| there is on a sample, and that of debian's own features."""
    page, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    sample, graph = debian_samples(1)[0], musegnn.datasets.load("debian")
    n, counts = sample.num_nodes, range(31)
    H = np.eye(n) + 20 * laplacian(sample, "normalized")
    everything = torch.eye(n, dtype=torch.float64)
    star = torch.from_numpy(np.linalg.inv(H))
    f = torch.from_numpy(np.array(graph.features[:, :8], dtype=np.float64))
    of_f = musegnn.solve(f, graph, Energy(20.0, 0.0, prox="none"))
    for name in ("none", "momentum", "chebyshev"):
        energy = Energy(20.0, 0.0, prox="none", acceleration=name)
        worst = [torch.linalg.matrix_norm(unfold(everything, sample, energy, k) - star, 2) for k in counts]
        own = [(unfold(f, graph, energy, k) - of_f).norm() / f.norm() for k in counts]
        label = "plain" if name == "none" else name
        left.semilogy(counts, np.array(worst), label=f"{label}: {worst[8]:.1%}, {worst[20]:.2%}")
        right.semilogy(counts, np.array(own), label=f"{label}: {own[8]:.1%}, {own[20]:.2%}")
    for axes, title in (
        (left, f"worst f, a sample of {n} nodes"),
        (right, "debian's features, the whole graph"),
    ):
        axes.axhline(0.01, color="0.6", linewidth=0.8)
        axes.set(xlabel="step k", title=title)
        axes.legend(title="left by 8 and by 20 steps", fontsize=8)
    left.set_ylabel("|Y^(k) - Y*| / |f|")
    save(page, folder, "acceleration")


def bilevel(folder: Path) -> None:
    """Theorem 5.2: excess loss over the weight steps t, and over the embedding steps k."""
    lambda_, runs, total = 4.0, 24, 20_000
    samples, X, labels = overlapping_classes()
    L = [laplacian(sample, "normalized") for sample in samples]
    sigma = 1 + lambda_ * max(np.linalg.eigvalsh(matrix)[-1] for matrix in L)
    energy = Energy(lambda_, 0.0, "normalized", "none")
    T = np.stack([np.eye(3)[labels[sample.seeds]] for sample in samples])

    def inputs(k: int) -> np.ndarray:
        parts = [
            unfold(torch.from_numpy(X[s.node_ids]), s, energy, k, 1 / sigma)[: s.num_seeds] for s in samples
        ]
        return torch.stack(parts).numpy()

    solved = [
        np.linalg.solve(np.eye(len(m)) + lambda_ * m, X[s.node_ids]) for m, s in zip(L, samples, strict=True)
    ]
    exact = np.stack([Y[: s.num_seeds] for Y, s in zip(solved, samples, strict=True)])
    best = best_weights(exact, T)
    least = cross_entropy(exact, T, best)
    page, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    marks = np.unique(np.geomspace(5, total, 40).astype(int))
    for color, k in enumerate((1, 4, 8, 16, 60)):
        Q = inputs(k)
        means = stochastic_descent(Q, T, total, runs, marks)
        excess = np.array([cross_entropy(Q, T, W).mean() - least for W in means])
        left.plot(marks, np.where(excess > 0, excess, np.nan), color=f"C{color}", label=f"k = {k}")
        left.plot(marks, np.where(excess < 0, -excess, np.nan), "--", color=f"C{color}")
        if k == 60:
            steep = np.polyfit(np.log(marks[10:]), np.log(excess[10:]), 1)[0]
            left.plot(marks, excess[0] * np.sqrt(marks[0] / marks), "k:", label="slope -1/2")
    left.plot([], [], "--", color="gray", label="below L*(W*)")
    left.set(xscale="log", yscale="log", xlabel="weight step t", ylabel="|E[L^(k)(mean of W)] - L*(W*)|")
    left.set_title(
        f"eta_t = 2 / sqrt(t), averaged iterate, {runs} runs\nk = 60: slope {steep:.2f} from t = {marks[10]}"
    )
    left.legend(fontsize=8, loc="lower left")
    steps = np.arange(1, 41)
    gaps, bounds = [], []
    for k in steps:
        Q = inputs(int(k))
        own = best_weights(Q, T)
        gaps.append(abs(cross_entropy(Q, T, own) - least))
        bounds.append(np.sqrt(2 / T[..., 0].size) * max(np.linalg.norm((Q - exact) @ W) for W in (best, own)))
    right.plot(steps, gaps, "o-", markersize=3, label="|min L^(k) - min L*|")
    right.plot(steps, bounds, label="L_D |(P^(k) - P*) X W|")
    right.plot(steps, bounds[0] * np.exp(-(steps - 1) / (2 * sigma)), "k:", label="exp(-tau k / (2 sigma))")
    speed = -np.polyfit(steps[8:], np.log(gaps[8:]), 1)[0]
    right.set(yscale="log", xlabel="embedding step k", ylabel="loss")
    right.set_title(
        f"alpha = 1 / sigma: the gap falls as exp(-{speed:.3f} k)\nthe proof has {1 / (2 * sigma):.3f}"
    )
    right.legend(fontsize=8, loc="lower left")
    save(page, folder, "bilevel")


def overlapping_classes() -> tuple[list[Sample], np.ndarray, np.ndarray]:
    """Six samples of a graph of 300 nodes; a quarter of the labels is random, so that W* exists."""
    rng, n = np.random.default_rng(0), 300
    classes = rng.integers(0, 3, n)
    edges = rng.integers(0, n, (2, 4 * n))
    edges = edges[:, (classes[edges[0]] == classes[edges[1]]) | (rng.random(4 * n) < 0.25)]
    X = rng.normal(size=(n, 5)) + 0.6 * rng.normal(size=(3, 5))[classes]
    X[:, 0] = 1
    labels = np.where(rng.random(n) < 0.25, rng.integers(0, 3, n), classes)
    graph = musegnn.Graph.from_edges(edges, num_nodes=n)
    draws = musegnn.Draws(graph, musegnn.ShadowKHop(fanouts=[3, 2]), np.arange(n), batch_size=50, seed=0)
    return [draws[i] for i in range(6)], X, labels


def cross_entropy(Q: np.ndarray, T: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Mean over all seeds; W may be a stack."""
    logits = Q.reshape(-1, Q.shape[-1]) @ W
    right = (T.reshape(-1, T.shape[-1]) * logits).sum(axis=-1)
    return (scipy.special.logsumexp(logits, axis=-1) - right).mean(axis=-1)


def loss_gradient(Q: np.ndarray, T: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Of the mean over the rows of Q."""
    return np.swapaxes(Q, -1, -2) @ (scipy.special.softmax(Q @ W, axis=-1) - T) / Q.shape[-2]


def best_weights(Q: np.ndarray, T: np.ndarray) -> np.ndarray:
    """W*, by L-BFGS."""
    flat_Q, flat_T = Q.reshape(-1, Q.shape[-1]), T.reshape(-1, T.shape[-1])
    shape = Q.shape[-1], T.shape[-1]

    def both(flat: np.ndarray) -> tuple[float, np.ndarray]:
        W = flat.reshape(shape)
        return float(cross_entropy(Q, T, W)), loss_gradient(flat_Q, flat_T, W).ravel()

    options = {"maxiter": 10_000, "ftol": 0.0, "gtol": 1e-10, "maxcor": 30}
    found = scipy.optimize.minimize(
        both, np.zeros(shape).ravel(), jac=True, method="L-BFGS-B", options=options
    )
    return found.x.reshape(shape)


def stochastic_descent(Q: np.ndarray, T: np.ndarray, total: int, runs: int, marks: np.ndarray) -> np.ndarray:
    """The mean of W^(1), ..., W^(t) at the marks, for each run; eta_t = 2 / sqrt(t), a sample at random."""
    rng, marked = np.random.default_rng(1), set(marks.tolist())
    W = np.zeros((runs, Q.shape[-1], T.shape[-1]))
    mean, kept = W.copy(), []
    for t in range(1, total + 1):
        chosen = rng.integers(0, len(Q), runs)
        W = W - 2 / np.sqrt(t) * loss_gradient(Q[chosen], T[chosen], W)
        mean += (W - mean) / t
        if t in marked:
            kept.append(mean.copy())
    return np.array(kept)


def alternation(folder: Path) -> None:
    """Theorem 5.3: the energy over the rounds, and the means over gamma."""
    samples = debian_samples(4)
    n, lambda_ = int(max(sample.node_ids.max() for sample in samples)) + 1, 4.0
    # Rows of nodes in no sample take no part: small ids keep the dense system small.
    used = np.unique(np.concatenate([sample.node_ids for sample in samples]))
    Z = torch.zeros(n, 4, dtype=torch.float64)
    Z[used] = rows(len(used), 4, 0)
    page, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for color, gamma in enumerate((0.1, 1.0, 10.0)):
        energy, (_, least) = (
            Energy(lambda_, gamma, prox="none"),
            joint_minimum(samples, Z, used, lambda_, gamma),
        )
        for start, style in ((None, "-"), (rows(n, 4, 1) * 10, "--")):
            done = musegnn.alternate(Z, samples, energy, 40, M=start)
            left.plot(range(1, 41), (done.energies - least) / least, style, color=f"C{color}")
        left.plot([], [], color=f"C{color}", label=f"gamma = {gamma:g}")
        bound = (gamma / (1 + gamma)) ** (2 * np.arange(40))
        left.plot(range(1, 41), bound * float(done.energies[0] - least) / least, ":", color=f"C{color}")
    for style, name in (
        ("-", "from M = 0"),
        ("--", "from random M"),
        (":", "(gamma / (1 + gamma))^2 a round"),
    ):
        left.plot([], [], "k" + style, label=name)
    left.set(yscale="log", xlabel="round", ylabel="(l_muse - minimum) / minimum", ylim=(1e-14, 1e11))
    left.set_title("Alternation reaches the joint minimum\nof one dense solve over all Y_s and M")
    left.legend(fontsize=8, loc="upper right", ncols=2)
    limit = musegnn.consensus(Z, samples, Energy(lambda_, inf, prox="none"))[used].numpy()
    gammas = np.geomspace(0.1, 1e5, 13)
    away = [np.linalg.norm(joint_minimum(samples, Z, used, lambda_, gamma)[0] - limit) for gamma in gammas]
    right.plot(gammas, away / np.linalg.norm(limit), "o-", label="minimum of eq. 4")
    right.plot(
        gammas[6:], away[-1] / np.linalg.norm(limit) * gammas[-1] / gammas[6:], "k:", label="1 / gamma"
    )
    right.set(xscale="log", yscale="log", xlabel="gamma", ylabel="|M - M_consensus| / |M_consensus|")
    right.set_title("The means approach eq. 7 as 1 / gamma")
    right.legend()
    save(page, folder, "alternation")


def joint_minimum(
    samples: list[Sample], Z: torch.Tensor, used: np.ndarray, lambda_: float, gamma: float
) -> tuple[np.ndarray, float]:
    """M of the nodes that are used, and the least l_muse: Y is eliminated, what is left is solved densely."""
    place = np.full(len(Z), -1)
    place[used] = np.arange(len(used))
    system, right, constant = np.zeros((len(used), len(used))), np.zeros((len(used), Z.shape[1])), 0.0
    for sample in samples:
        at, rows_ = place[sample.node_ids], Z[sample.node_ids].numpy()
        inverse = np.linalg.inv((1 + gamma) * np.eye(len(at)) + lambda_ * laplacian(sample, "normalized"))
        system[np.ix_(at, at)] += gamma * np.eye(len(at)) - gamma**2 * inverse
        right[at] += gamma * inverse @ rows_
        constant += (rows_ * (rows_ - inverse @ rows_)).sum()
    M = np.linalg.solve(system, right)
    return M, float(constant - (M * right).sum())


def points(folder: Path) -> None:
    """The three-point and four-point inequalities: left side over right side, for random Y."""
    samples, gamma, lambda_ = debian_samples(4, 5), 1.0, 4.0
    n = int(max(sample.node_ids.max() for sample in samples)) + 1
    energy, Z = Energy(lambda_, gamma, prox="none"), rows(n, 4, 0)
    now = musegnn.alternate(Z, samples, energy, 2)
    after = musegnn.alternate(Z, samples, energy, 1, M=now.M)
    places = [torch.from_numpy(sample.node_ids.astype(np.int64)) for sample in samples]

    def value(Y: list[torch.Tensor], M: torch.Tensor) -> float:
        parts = zip(Y, samples, places, strict=True)
        return sum(float(energy.value(y, Z[at], s, mu=M[at])) for y, s, at in parts)

    def delta(Y: list[torch.Tensor], other: list[torch.Tensor]) -> float:
        return (1 + gamma) * sum(float((y - x).square().sum()) for y, x in zip(Y, other, strict=True))

    three, four = [], []
    for size in np.geomspace(0.01, 10, 120):
        noise = torch.Generator().manual_seed(int(size * 1e6))
        Y = [y + size * torch.randn(y.shape, dtype=y.dtype, generator=noise) for y in now.Y]
        # The M that asks the most of the inequality: the mean of the rows of each node.
        M, count = torch.zeros_like(now.M), torch.zeros(n, 1, dtype=Z.dtype)
        for y, at in zip(Y, places, strict=True):
            M[at] += y
            count[at] += 1
        M /= count.clamp(min=1)
        three.append((delta(Y, after.Y), value(Y, now.M) - value(after.Y, now.M)))
        four.append((value(Y, now.M) - value(Y, M), delta(Y, now.Y)))
    page, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    labels = (
        (
            "delta(Y, Y^(k+1))",
            "l(Y, M^k) - l(Y^(k+1), M^k)",
            "Three points: the difference is lambda <D, L D>",
        ),
        ("l(Y, M^k) - l(Y, M)", "delta(Y, Y^k)", "Four points, with the M that asks the most"),
    )
    for panel, pairs, (below, above, title) in zip(axes, (three, four), labels, strict=True):
        x, y = np.array(pairs).T
        span = np.array([x.min(), x.max()])
        panel.plot(span, span, "k:", label="equality")
        panel.plot(x, y, "o", markersize=3, label="random Y")
        panel.set(xscale="log", yscale="log", xlabel=below, ylabel=above, title=title)
        panel.legend()
    save(page, folder, "points")


FIGURES: list[Callable[[Path], None]] = [
    descent,
    rate,
    preconditioner,
    acceleration,
    bilevel,
    alternation,
    points,
]
