"""What the contenders run on: a recipe, a dataset, a graph folder, or a synthetic graph of some size."""

from dataclasses import dataclass, replace
from pathlib import Path

from musegnn import datasets
from musegnn.datasets.synthetic import PRESETS
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.recipes.finding import find
from musegnn.training.config import Config

_EDGES_PER_NODE = 7


@dataclass(frozen=True)
class Data:
    """A graph and the recipe that all contenders start from."""

    label: str
    recipe: Config
    given: Graph | None = None
    """Of a folder; others are imported when they are needed."""
    size: str = ""
    """Tells synthetic graphs of one dataset apart."""

    def grown(self, growth: dict[str, float]) -> "Data":
        """A synthetic graph with "nodes" or "edges" times so many; more nodes bring their edges along."""
        if not growth:
            return self
        if self.recipe.dataset != "synthetic":
            raise InputError(
                f"{self.label} has one size only. Take --data synthetic:NODES, such as synthetic:10000."
            )
        options = dict(self.recipe.options)
        nodes = options.get("num_nodes", 10_000)
        edges = options.get("num_edges", _EDGES_PER_NODE * nodes)
        more = growth.get("nodes", 1)
        nodes, edges = round(more * nodes), round(more * growth.get("edges", 1) * edges)
        options |= {"num_nodes": nodes, "num_edges": edges}
        return replace(self, recipe=replace(self.recipe, options=options), size=f"-{nodes}-{edges}")

    def open(self, root: Path | None, stores: Path) -> Graph:
        """The graph; imported into `stores` if it is not there, as `muse train` does."""
        if self.given is not None:
            return self.given
        dataset = datasets.CATALOG[self.recipe.dataset]
        folder = stores / dataset.name / f"graph{self.size}"
        raw = None if dataset.raw is None else root
        return datasets.load(dataset.name, raw, folder, **self.recipe.options)


def parse(target: str) -> Data:
    """'debian', 'graphs/mine', 'arxiv-shaped:0.1' (a tenth of it), 'synthetic:10000' (so many nodes)."""
    name, colon, size = target.partition(":")
    name = next((known for known in datasets.CATALOG if known.lower() == name.lower()), name)
    if not colon or not (name in PRESETS or name == "synthetic"):
        recipe, graph = find(target)
        return Data(target, recipe, graph)
    recipe, _ = find(name)
    try:
        options = {"num_nodes": int(size)} if name == "synthetic" else {"scale": float(size)}
    except ValueError as error:
        kind = "a number of nodes, such as synthetic:10000" if name == "synthetic" else "a share, such as 0.1"
        raise InputError(f"What is behind the colon of {target!r} must be {kind}.") from error
    return Data(target, replace(recipe, options=options), size=f"-{size}")
