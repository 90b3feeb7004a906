"""Explanations: how faithful and how fast beside PyG's, and what tension finds that was planted.

    python benchmarks/explain.py [fidelity features edges] [--run RUN] [--nodes 60] [--seeds 0 1] [--record]

RUN is a run of the recipe debian, or another on that graph; without one debian is trained first. Two cores
need less than ten minutes. Each seed, of nodes, noise and planted edges, has figures of its own.

`fidelity`: test nodes, each in a sample as in training. Every explainer scores the nodes of the sample by how
much their features count; the k best are kept (fidelity-, unfaithfulness) or taken away (fidelity+) and PyG's
own metrics tell what the model says then. All of them explain the same module, with our kernels below, and
are timed around the same `Explainer` of PyG, on one core. Captum scores features: a node's score is the sum
of their absolute values, or, signed, their sum, which tells who speaks for the class, as our shares do.
Saliency has no sign.

`features`: 10 % of the nodes get noise of so many standard deviations (as in the authors' notebook), or 5 %
get the features of another node. |x - mean of x|, which needs no model, is the score to beat.
`edges`: 1 % of random edges are added, of random relations and directions. How many of them are found first?
"""

import argparse
import shlex
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import product
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
from musegnn.explaining import Explanation as OurExplanation
from musegnn.explaining import Tension, explain, tension
from musegnn.graph.relation import has_relation
from musegnn.unfolding.subgraph import as_sample

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
    """Ours: shares of the margin, or of log p; or who moves the probabilities, whichever way."""

    def __init__(self, score: Callable[[OurExplanation], np.ndarray]):
        super().__init__()
        self.score = score

    def forward(self, model, x, edge_index, *, target, index=None, **kwargs) -> Explanation:
        found = explain(model.inner, model.sample, x, model.mu, seen=model.seen)
        return Explanation(node_mask=torch.from_numpy(self.score(found))[:, None])

    def supports(self) -> bool:
        return True


class ByNode(CaptumExplainer):
    """A node's score is the sum of those of its features, signed or not."""

    def __init__(self, name: str, *, signed: bool):
        super().__init__(name)
        self.signed = signed

    def forward(self, *args, **kwargs) -> Explanation:
        mask = super().forward(*args, **kwargs).node_mask
        return Explanation(node_mask=(mask if self.signed else mask.abs()).sum(dim=1, keepdim=True))


EXPLAINERS: dict[str, tuple[Callable[[], ExplainerAlgorithm], str]] = {
    "shares of the margin (ours)": (lambda: Shares(lambda one: one.of_margin(one.shares)), "object"),
    "support (ours)": (lambda: Shares(lambda one: one.support), "object"),
    "influence (ours)": (lambda: Shares(lambda one: one.influence), "object"),
    "GNNExplainer": (GNNExplainer, "object"),
    "Captum IntegratedGradients": (partial(ByNode, "IntegratedGradients", signed=False), "attributes"),
    "Captum IntegratedGradients, signed": (partial(ByNode, "IntegratedGradients", signed=True), "attributes"),
    "Captum InputXGradient": (partial(ByNode, "InputXGradient", signed=False), "attributes"),
    "Captum InputXGradient, signed": (partial(ByNode, "InputXGradient", signed=True), "attributes"),
    "Captum Saliency": (partial(ByNode, "Saliency", signed=False), "attributes"),
    "random": (DummyExplainer, "object"),
}
"""How to make it, and its kind of node mask."""


def measure_fidelity(run: musegnn.Run, seed: int, num_nodes: int) -> Iterator[Figure]:
    """Means over the nodes."""
    torch.manual_seed(seed)
    warnings.filterwarnings("ignore", message="Input Tensor 0 did not already require gradients")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    for sample, x, mu, seen in samples(run, num_nodes, seed):
        # Before PyG explains, it asks the module for its mode; afterwards it puts the model back into it.
        module = Logits(run.model, sample, mu, seen).eval()
        edge_index = torch.from_numpy(sample.edge_index())
        for name, (make, mask_type) in EXPLAINERS.items():
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
    # Of times the median, since the first call compiles.
    found = {of: float(np.median(all_) if of[1] == "ms" else np.mean(all_)) for of, all_ in scores.items()}
    print_table(found)
    for (name, metric), value in found.items():
        told = "median CPU time of an explanation" if metric == "ms" else metric
        yield {
            "name": f"{told}, {name}",
            "data": f"{name_of(run)}, {num_nodes} nodes, seed {seed}",
            "value": round(value, 3),
            "unit": "ms" if metric == "ms" else "share",
        }


def print_table(found: dict[tuple[str, str], float]) -> None:
    """A line for each explainer."""
    metrics = [f"{metric} at {k}" for metric in ("fidelity+", "fidelity-", "unfaithfulness") for k in KEPT]
    short = [metric.replace("faithfulness", "f.").replace("fidelity", "fid") for metric in metrics]
    print(f"{'':<35}" + "".join(f"{metric:>12}" for metric in [*short, "ms"]))
    for name in EXPLAINERS:
        values = [found[name, metric] for metric in [*metrics, "ms"]]
        print(f"{name:<35}" + "".join(f"{value:>12.3f}" for value in values), flush=True)


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
    x = torch.from_numpy(np.array(graph.features, dtype=np.float32))
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
        far = (changed - changed.mean(dim=0)).norm(dim=1).numpy()
        scores = {"|Y - Z|": found.anomaly, "contradiction": found.contradiction, "|x - mean of x|": far}
        for score, values in scores.items():
            top = np.argsort(-values, kind="stable")[: n // 10]
            value = 100 * len(np.intersect1d(top, chosen.numpy())) / len(chosen)
            told = f"changed nodes in the top decile of {score}"
            data = f"{name_of(run)}, features of {share:.0%}: {name}, seed {seed}"
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
    planted = rng.permuted(np.stack([keys // n, keys % n]), axis=0)
    x = torch.from_numpy(np.array(graph.features, dtype=np.float32))
    found = without_means(run, as_sample(polluted(graph, planted, rng), n), x)
    is_planted = np.isin(found.edges[0] * n + found.edges[1], keys)
    data = f"{name_of(run)}, {len(keys):,} of {len(is_planted):,} edges, seed {seed}"
    for name, values in (("contrast", found.contrast), ("energy of the edge", found.by_edge)):
        if values is None:
            continue
        order = np.argsort(-values, kind="stable")
        for k in (100, 1000, len(keys)):
            told = f"planted among the first {k:,} by {name}"
            yield {
                "name": told,
                "data": data,
                "value": round(100 * is_planted[order[:k]].mean(), 1),
                "unit": "%",
            }


def name_of(run: musegnn.Run) -> str:
    """The graph, and the energy if it is not the paper's."""
    kind = run.config.energy.kind
    return "debian" if kind == "smoothness" else f"debian, {kind}"


def polluted(graph: musegnn.Graph, planted: np.ndarray, rng: np.random.Generator) -> musegnn.Graph:
    """With edges more, each of any relation."""
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    edges, numbers = [planted], [rng.integers(0, graph.num_relations, planted.shape[1])]
    for r in range(graph.num_relations):
        is_there = has_relation(np.asarray(graph.relation), r)
        edges.append(np.stack([rows[is_there], np.asarray(graph.indices)[is_there]]))
        numbers.append(np.full(edges[-1].shape[1], r))
    return musegnn.Graph.from_edges(
        np.concatenate(edges, axis=1),
        num_nodes=graph.num_nodes,
        relation=np.concatenate(numbers),
        relation_names=graph.relation_names,
    )


def without_means(run: musegnn.Run, sample: Sample, x: Tensor) -> Tension:
    """The means were made of what was not changed: they do not take part."""
    mu, _ = means_of(run, sample.node_ids)
    found = tension(run.model, sample, x, mu, seen=torch.zeros(len(x), dtype=torch.bool))
    assert found is not None
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["fidelity", "features", "edges"]
    parser.add_argument("parts", nargs="*", choices=[*names, []], help="all of them unless given")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1], help="of nodes, noise, planted edges")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if "fidelity" in (options.parts or names) and not find_spec("captum"):
        sys.exit(
            "Captum is missing, which fidelity is compared with. pip install captum, or ask for other parts."
        )
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        run = musegnn.load_run(options.run or trained(Path(folder)))
        parts = {"features": measure_features, "edges": measure_edges}
        parts["fidelity"] = partial(measure_fidelity, num_nodes=options.nodes)
        for name, seed in product(options.parts or names, options.seeds):
            for figure in parts[name](run, seed):
                if name != "fidelity":
                    told = f"{figure['data']:<52} {figure['name']:<56} {figure['value']:>6} {figure['unit']}"
                    print(told, flush=True)
                figures.append(figure)
    if options.record:
        given = [word for word in sys.argv[1:] if word != "--record"]
        record(figures, shlex.join(["python", "benchmarks/explain.py", *given]))


def trained(folder: Path) -> Path:
    """A run of the recipe."""
    from musegnn.cli.main import main as muse

    assert muse(["train", "debian", "--out", str(folder / "run"), "--stores", str(folder / "stores")]) == 0
    return folder / "run"


if __name__ == "__main__":
    main()
