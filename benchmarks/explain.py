"""Explanations: how faithful and how fast beside PyG's, and what tension finds that was planted.

    python benchmarks/explain.py [fidelity features edges] [--run RUN] [--nodes 60] [--seed 0] [--record]

RUN is a run of the recipe debian; without one it is trained first. Two cores need less than ten minutes.

`fidelity`: test nodes, each in a sample as in training. Every explainer scores the nodes of the sample by how
much their features count; the k best are kept (fidelity-, unfaithfulness) or taken away (fidelity+) and PyG's
own metrics tell what the model says then. All of them explain the same module, with our kernels below, and
are timed around the same `Explainer` of PyG, on one core. Captum is optional: pip install captum.

`features`: 10 % of the nodes get noise of so many standard deviations (as in the authors' notebook), or 5 %
get the features of another node. `edges`: 1 % of random edges are added. How many of them are found first?
"""

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from record import record
from torch import Tensor, nn
from torch_geometric.explain import (
    CaptumExplainer,
    DummyExplainer,
    Explainer,
    ExplainerAlgorithm,
    Explanation,
    GNNExplainer,
)
from torch_geometric.explain.metric import fidelity, unfaithfulness

import musegnn
from musegnn import Draws, Sample
from musegnn.explaining import Tension, explain, tension
from musegnn.unfolding.subgraph import as_sample, from_edge_index

KEPT = (5, 10)
"""Nodes of an explanation."""
Figure = dict[str, object]


class Logits(nn.Module):
    """The model on one sample, as PyG calls it."""

    def __init__(self, model: musegnn.MuseGNN, sample: Sample, mu: Tensor | None, seen: Tensor | None):
        super().__init__()
        self.inner, self.sample, self.mu, self.seen = model, sample, mu, seen

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        # Captum puts a dimension before the features.
        Y = self.inner.embed(self.sample, x.reshape(self.sample.num_nodes, -1), self.mu, seen=self.seen)
        return self.inner.g(Y)


class Shares(ExplainerAlgorithm):
    """Ours: who speaks for the class, by the share of the margin; or who moves the probabilities at all."""

    def __init__(self, *, influence: bool):
        super().__init__()
        self.influence = influence

    def forward(self, model, x, edge_index, *, target, index=None, **kwargs) -> Explanation:
        found = explain(model.inner, model.sample, x, model.mu, seen=model.seen)
        scores = found.influence if self.influence else found.of_margin(found.shares).clip(min=0)
        return Explanation(node_mask=torch.from_numpy(scores)[:, None])

    def supports(self) -> bool:
        return True


class ByNode(CaptumExplainer):
    """A node's score is the sum of those of its features."""

    def forward(self, *args, **kwargs) -> Explanation:
        found = super().forward(*args, **kwargs)
        return Explanation(node_mask=found.node_mask.abs().sum(dim=1, keepdim=True))


def explainers() -> dict[str, tuple[Callable[[], ExplainerAlgorithm], str]]:
    """Name -> how to make it, and its kind of node mask."""
    found = {
        "shares for the class (ours)": (lambda: Shares(influence=False), "object"),
        "influence (ours)": (lambda: Shares(influence=True), "object"),
        "GNNExplainer": (GNNExplainer, "object"),
        "random": (DummyExplainer, "object"),
    }
    if find_spec("captum"):
        for name in ("IntegratedGradients", "InputXGradient", "Saliency"):
            found[f"Captum {name}"] = (lambda name=name: ByNode(name), "attributes")
    return found


def measure_fidelity(run: musegnn.Run, seed: int, num_nodes: int) -> Iterator[Figure]:
    """Means over the nodes."""
    torch.manual_seed(seed)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample, x, mu, seen in samples(run, num_nodes, seed):
        # Before PyG explains, it asks the module for its mode; afterwards it puts the model back into it.
        module = Logits(run.model, sample, mu, seen).eval()
        edge_index = torch.from_numpy(sample.edge_index())
        for name, (make, mask_type) in explainers().items():
            explainer = Explainer(
                module,
                make(),
                explanation_type="model",
                node_mask_type=mask_type,
                model_config={
                    "mode": "multiclass_classification",
                    "task_level": "node",
                    "return_type": "raw",
                },
            )
            started = time.process_time()
            found = explainer(x, edge_index, index=0)
            scores[name, "ms"].append(1000 * (time.process_time() - started))
            order = found.node_mask.sum(dim=1).argsort(descending=True, stable=True)
            for k in KEPT:
                found.node_mask = torch.zeros(len(x), 1)
                found.node_mask[order[:k]] = 1
                removed, kept = fidelity(explainer, found)
                scores[name, f"fidelity+ at {k}"].append(removed)
                scores[name, f"fidelity- at {k}"].append(kept)
                scores[name, f"unfaithfulness at {k}"].append(unfaithfulness(explainer, found))
    torch.set_num_threads(threads)
    for (name, metric), values in scores.items():
        # Of times the median, since the first call compiles.
        value = float(np.median(values)) if metric == "ms" else float(np.mean(values))
        told = "median CPU time of an explanation" if metric == "ms" else metric
        unit = "ms" if metric == "ms" else "share"
        yield {
            "name": f"{told}, {name}",
            "data": f"debian, {num_nodes} nodes",
            "value": round(value, 3),
            "unit": unit,
        }


def samples(
    run: musegnn.Run, count: int, seed: int
) -> Iterator[tuple[Sample, Tensor, Tensor | None, Tensor | None]]:
    """Test nodes that have neighbors, each drawn alone."""
    graph = run.graph
    able = np.flatnonzero((np.asarray(graph.split) == 2) & (np.diff(graph.indptr) >= 3))
    for node in np.random.default_rng(seed).choice(able, count, replace=False):
        sample = Draws(graph, run.drawing.sampler(None), np.array([node]), batch_size=1)[0]
        x = torch.as_tensor(np.asarray(graph.features[sample.node_ids]), dtype=torch.float32)
        yield sample, x, *means_of(run, sample.node_ids)


def means_of(run: musegnn.Run, ids: np.ndarray) -> tuple[Tensor | None, Tensor | None]:
    return (None, None) if run.means is None else (run.means.gather(ids), run.means.seen(ids))


def measure_features(run: musegnn.Run, seed: int) -> Iterator[Figure]:
    """The share of changed nodes that is in the top decile of a score; by chance it is a tenth."""
    graph, rng = run.graph, np.random.default_rng(seed)
    n = graph.num_nodes
    x = torch.as_tensor(np.asarray(graph.features), dtype=torch.float32)
    whole = as_sample(graph, n)
    changes: list[tuple[str, float, Callable[[Tensor], Tensor]]] = [
        (f"noise x{k}", 0.1, lambda rows, k=k: rows + k * x.std() * torch.randn_like(rows))
        for k in (100, 10, 5)
    ]
    changes.append(("another node's", 0.05, lambda rows: x[torch.from_numpy(rng.integers(0, n, len(rows)))]))
    torch.manual_seed(seed)
    for name, share, change in changes:
        chosen = torch.from_numpy(rng.choice(n, int(share * n), replace=False))
        changed = x.clone()
        changed[chosen] = change(x[chosen])
        found = without_means(run, whole, changed)
        for score, values in (("|Y - Z|", found.anomaly), ("contradiction", found.contradiction)):
            top = np.argsort(-values, kind="stable")[: n // 10]
            value = 100 * len(np.intersect1d(top, chosen.numpy())) / len(chosen)
            told = f"changed nodes in the top decile of {score}"
            data = f"debian, features of {share:.0%}: {name}"
            yield {"name": told, "data": data, "value": round(value, 1), "unit": "%"}


def measure_edges(run: musegnn.Run, seed: int) -> Iterator[Figure]:
    """The share of planted edges among the k first."""
    graph, rng = run.graph, np.random.default_rng(seed)
    n = graph.num_nodes
    whole = as_sample(graph, n)
    edges = whole.edge_index()
    pairs = rng.integers(0, n, (2, edges.shape[1] // 200))
    keys = np.unique(pairs.min(axis=0) * n + pairs.max(axis=0))
    keys = np.setdiff1d(keys, edges[0] * n + edges[1])
    keys = keys[keys // n != keys % n]
    planted = np.stack([keys // n, keys % n])
    polluted = np.concatenate([edges, planted, planted[::-1]], axis=1)
    sample = from_edge_index(torch.from_numpy(polluted), n)
    x = torch.as_tensor(np.asarray(graph.features), dtype=torch.float32)
    found = without_means(run, sample, x)
    is_planted = np.isin(found.edges[0] * n + found.edges[1], keys)
    data = f"debian, {len(keys):,} of {len(is_planted):,} edges"
    for name, values in (("contrast", found.contrast), ("energy of the edge", found.smoothness)):
        order = np.argsort(-values, kind="stable")
        for k in (100, 1000, len(keys)):
            told = f"planted among the first {k:,} by {name}"
            yield {
                "name": told,
                "data": data,
                "value": round(100 * is_planted[order[:k]].mean(), 1),
                "unit": "%",
            }


def without_means(run: musegnn.Run, sample: Sample, x: Tensor) -> Tension:
    """The means were made of what was not changed: they do not take part."""
    mu, _ = means_of(run, sample.node_ids)
    return tension(run.model, sample, x, mu, seen=torch.zeros(len(x), dtype=torch.bool))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["fidelity", "features", "edges"]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="all of them unless given")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0, help="of nodes, noise and planted edges")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        run = musegnn.load_run(options.run or trained(Path(folder)))
        parts = {"features": measure_features, "edges": measure_edges}
        parts["fidelity"] = partial(measure_fidelity, num_nodes=options.nodes)
        for name in options.parts or names:
            for figure in parts[name](run, options.seed):
                told = f"{figure['data']:<45} {figure['name']:<60} {figure['value']:>9} {figure['unit']}"
                print(told, flush=True)
                figures.append(figure)
    if options.record:
        record(figures, "python benchmarks/explain.py")


def trained(folder: Path) -> Path:
    """A run of the recipe."""
    from musegnn.cli.main import main as muse

    assert muse(["train", "debian", "--out", str(folder / "run"), "--stores", str(folder / "stores")]) == 0
    return folder / "run"


if __name__ == "__main__":
    main()
