"""Who is compared: each contender is what it changes in a graph's recipe, or the reason why it has no run.

Graph, split, metric, width, optimizer, epochs and seeds are the recipe's for all of them.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from musegnn.errors import InputError
from musegnn.recipes.finding import STEPS
from musegnn.sampling.catalog import SAMPLERS
from musegnn.training.config import Config, settings_of_tables
from musegnn.training.heeded import ignored

Settings = dict[str, Any]
Space = dict[str, list[Any]]
"""Setting -> values that a search may take."""

PART_NODES = 4000
"""Nodes of a part of Cluster, about."""
_HOPS = ("ShadowKHop", "NeighborSampling")
"""The samplers that have fanouts."""

_TRAINING: Space = {
    "lr": [1e-3, 2e-3, 5e-3, 1e-2],
    "weight_decay": [0.0, 1e-5, 1e-4, 5e-4],
    "dropout": [0.0, 0.2, 0.3, 0.5, 0.6],
    "input_dropout": [0.0, 0.1, 0.3, 0.6],
}
_CLASSIC: Space = {**_TRAINING, "layers": [2, 3]}
_TUNED: Space = {**_TRAINING, "layers": [2, 3, 4]}
_ENERGY: Space = {
    **_TRAINING,
    **{"lambda_": [0.5, 1.0, 2.0, 4.0, 9.0, 20.0], "steps": [2, 4, 8, 16], "prox": ["none", "relu"]},
    **{"layers": [1, 2, 3], "output_layers": [1, 2, 3], "embedding_dropout": [0.0, 0.3, 0.6]},
}
_TYPED: Settings = {
    **{"gamma": 0.0, "lambda_": 1.0, "prox": "relu", "steps": 6, "stages": 6},
    **{"norm": "layer", "output_layers": 2},
}
_MATRICES: Space = {
    **{"lr": [2e-3, 3e-3, 5e-3], "weight_decay": [0.0, 1e-5, 1e-4], "prox": ["none", "relu"]},
    **{"dropout": [0.3, 0.4, 0.5], "input_dropout": [0.0, 0.1, 0.2, 0.3]},
    **{"lambda_": [0.5, 1.0, 2.0], "stages": [2, 3, 6], "layers": [2, 3], "output_layers": [2, 3]},
}
_LABELS: Settings = {"label_inputs": True, "sampler": "ShadowKHop"}
"""Where every training node is a seed, none may be seen."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A row."""

    about: str
    reference: str
    settings: Settings | None
    """On top of the recipe; None: not run."""
    growth: dict[str, float] = field(default_factory=dict)
    """Of a synthetic graph: "nodes" and "edges" times so many."""
    space: Space = field(default_factory=dict)
    """What `--tune` draws from, beside what is in `settings`."""
    reason: str = ""
    """Why it is not run."""


_NAMES = {
    "GCN": ("graph convolutions", "Kipf and Welling, ICLR 2017"),
    "SAGE": ("GraphSAGE, mean of the neighbors", "Hamilton et al., NeurIPS 2017"),
    "GAT": ("graph attention, four heads", "Velickovic et al., ICLR 2018"),
    "RSAGE": ("GraphSAGE with a matrix for each relation and direction", "after Schlichtkrull et al., 2018"),
}
_WAYS: dict[str, tuple[str, Settings]] = {
    "online": ("fresh neighbor samples in each epoch", {"sampler": "NeighborSampling", "online": True}),
    "offline": ("ShadowKHop samples, drawn once", {"sampler": "ShadowKHop"}),
    "GAS": ("parts and histories of GNNAutoScale, ICML 2021", {"sampler": "Cluster", "history": "gas"}),
    "full": ("the whole graph at once", {"sampler": "Cluster", "parts": 1}),
}
_FORMS: dict[str, tuple[str, Settings, Space]] = {
    "": ("as published", {"layers": 2, "dropout": 0.5}, _CLASSIC),
    " tuned": (
        "layer norm and residuals",
        {"layers": 3, "dropout": 0.5, "norm": "layer", "residual": True},
        _TUNED,
    ),
}


def _convolutions() -> dict[str, Contender]:
    return {
        f"{name}{form} {way}": Contender(
            about=f"{about}, {shape}; {how}",
            reference=reference,
            settings={"architecture": name, **settings, **sampling},
            space={**space, **({"heads": [1, 4, 8]} if name == "GAT" else {})},
        )
        for form, (shape, settings, space) in _FORMS.items()
        for way, (how, sampling) in _WAYS.items()
        for name, (about, reference) in _NAMES.items()
        # Nobody published it as it is here, and histories know of no relations.
        if name != "RSAGE" or (form and way != "GAS")
    }


def _with_labels() -> dict[str, Contender]:
    """The best of the peers, as MuseGNN has them."""
    found = _convolutions()
    return {
        f"{row} + labels": replace(
            found[row],
            about=found[row].about + "; sees the classes of training nodes that are no seeds",
            settings={**(found[row].settings or {}), **_LABELS},
        )
        for row in ("SAGE tuned offline", "RSAGE tuned offline")
    }


# Without neighbors a sample need not hold any; one a seed is the fewest.
_ALONE: Settings = {"sampler": "NeighborSampling", "fanouts": [1]}
_WHOLE: Settings = {"sampler": "Cluster", "parts": 1}
_LAYERS: Settings = {"layers": 2, "dropout": 0.5}

CONTENDERS: dict[str, Contender] = {
    "MuseGNN": Contender(
        about="the recipe as it is",
        reference="Jiang et al., ICLR 2025",
        settings={},
        space={**_ENERGY, "gamma": [0.0, 0.1, 0.5, 1.0]},
    ),
    "MuseGNN gamma 0": Contender(
        about="without M", reference="Jiang et al., ICLR 2025", settings={"gamma": 0.0}, space=_ENERGY
    ),
    "MuseGNN relational": Contender(
        about="a learned matrix for each relation: what a node says through it, its neighbor says",
        reference="after Ahn et al., NeurIPS 2022",
        settings={"kind": "relational", **_TYPED},
        space=_MATRICES,
    ),
    "MuseGNN predictive": Contender(
        about="a learned matrix for each relation and direction: nodes are predictable from neighbors",
        reference="ours",
        settings={"kind": "predictive", **_TYPED},
        space=_MATRICES,
    ),
    "MuseGNN predictive + labels": Contender(
        about="the same, and f sees the classes of training nodes that are no seeds",
        reference="ours",
        settings={"kind": "predictive", **_TYPED, **_LABELS},
        space=_MATRICES,
    ),
    "MuseGNN diagonal": Contender(
        about="the recipe with a learned number for each channel and relation (relational, rank 0), no M",
        reference="after Ahn et al., NeurIPS 2022",
        settings={"kind": "relational", "rank": 0, "gamma": 0.0},
        space=_ENERGY,
    ),
    "MuseGNN robust": Contender(
        about="the recipe with edges that count for less the more their ends differ, no M",
        reference="after Yang et al., ICML 2021",
        settings={"kind": "robust", "gamma": 0.0},
        space={**_ENERGY, "robust_scale": [0.1, 1.0, 10.0]},
    ),
    "UGNN full": Contender(
        about="the same energy on the whole graph at once",
        reference="Yang et al., ICML 2021",
        settings={"gamma": 0.0, **_WHOLE},
        space=_ENERGY,
    ),
    **_convolutions(),
    **_with_labels(),
    "LazyGNN": Contender(
        about="lazy propagation, histories forward and backward",
        reference="Xue et al., ICML 2023",
        settings={
            "architecture": "LazyGNN",
            **_LAYERS,
            "steps": 4,
            "restart": 0.1,
            "momentum": 0.5,
            **_WHOLE,
        },
        space={**_CLASSIC, "restart": [0.1, 0.2, 0.5], "momentum": [0.3, 0.5, 0.7, 0.9], "steps": [1, 2, 4]},
    ),
    "USP": Contender(
        about="stochastic proximal steps on half of the groups of edges",
        reference="Li et al., ICLR 2023",
        settings={"architecture": "USP", "momentum": 0.5, **_LAYERS, **_WHOLE},
        space={**_CLASSIC, "restart": [0.1, 0.2, 0.33, 0.5, 0.67], "steps": _ENERGY["steps"]},
    ),
    "SGFormer": Contender(
        about="one global attention beside a graph convolution, fresh neighbor samples",
        reference="Wu et al., NeurIPS 2023",
        settings={"architecture": "SGFormer", "heads": 1, **_LAYERS, **_WAYS["online"][1]},
        space=_CLASSIC,
    ),
    "FreshGNN": Contender(
        about="SAGE, with embeddings of small gradients from a cache",
        reference="Huang et al., VLDB 2024",
        settings={
            "architecture": "SAGE",
            "history": "freshgnn",
            "momentum": 0.9,
            **_LAYERS,
            "sampler": "ShadowKHop",
        },
        space={**_CLASSIC, "momentum": [0.5, 0.8, 0.9, 0.95]},
    ),
    "MariusGNN": Contender(
        about="a partition buffer between disk and memory",
        reference="Waleffe et al., EuroSys 2023",
        settings=None,
        reason="a storage system; its model is SAGE online",
    ),
    "Cluster-GCN": Contender(
        about="GCN on the parts of a partition",
        reference="Chiang et al., KDD 2019",
        settings={"architecture": "GCN", "sampler": "Cluster", **_LAYERS},
        space=_CLASSIC,
    ),
    "GraphFM": Contender(
        about="GCN with histories that also move by momentum",
        reference="Yu et al., ICML 2022",
        settings={
            "architecture": "GCN",
            "history": "graphfm",
            "momentum": 0.3,
            "sampler": "Cluster",
            **_LAYERS,
        },
        space={**_CLASSIC, "momentum": [0.1, 0.3, 0.5]},
    ),
    "SGC": Contender(
        about="a linear layer on smoothed features",
        reference="Wu et al., ICML 2019",
        settings={"architecture": "SGC", "steps": 2, **_ALONE},
        space={**_TRAINING, "steps": [1, 2, 3, 4]},
    ),
    "SIGN": Contender(
        about="an MLP on features smoothed 0 to 3 times",
        reference="Frasca et al., 2020",
        settings={"architecture": "SIGN", "steps": 3, **_LAYERS, **_ALONE},
        space={**_CLASSIC, "steps": [1, 2, 3, 4]},
    ),
    "APPNP": Contender(
        about="personalized PageRank behind an MLP, on the samples of the recipe",
        reference="Klicpera et al., ICLR 2019",
        settings={"architecture": "APPNP", "steps": 10, "restart": 0.1, **_LAYERS},
        space={**_CLASSIC, "restart": [0.1, 0.2, 0.5], "steps": [2, 5, 10]},
    ),
    "MLP": Contender(
        about="no edges", reference="", settings={"architecture": "MLP", **_LAYERS, **_ALONE}, space=_CLASSIC
    ),
    "LabelPropagation": Contender(
        about="no features",
        reference="Zhou et al., NeurIPS 2004",
        settings={"architecture": "LabelPropagation", "epochs": 1, "steps": 50, "restart": 0.1, **_ALONE},
        space={"restart": [0.05, 0.1, 0.2, 0.5], "steps": [10, 20, 50]},
    ),
    "MLP + C&S": Contender(
        about="an MLP, corrected and smoothed by the training labels",
        reference="Huang et al., ICLR 2021",
        settings={"architecture": "MLP", "correct_and_smooth": True, **_LAYERS, **_ALONE},
        space=_CLASSIC,
    ),
}


def pick(names: list[str]) -> dict[str, Contender]:
    """Some by their names: capitals do not matter, and a hyphen stands for a space."""
    known = {_plain(name): name for name in CONTENDERS}
    for name in names:
        if _plain(name) not in known:
            near = [one for one in known if one.startswith(_plain(name) + " ")]
            near = near or difflib.get_close_matches(_plain(name), known, n=1, cutoff=0.5)
            named = ", ".join(known[one] for one in near)
            hint = f"Did you mean {named}?" if near else f"There are {', '.join(CONTENDERS)}."
            raise InputError(f"{name!r} is no contender. {hint}")
    return {known[_plain(name)]: CONTENDERS[known[_plain(name)]] for name in names}


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", " ")


def check(settings: Settings, recipe: Config) -> None:
    """Refuse what is no setting of a run or of any sampler, before the first cell."""
    if "seed" in settings:
        raise InputError("The seeds of a bench are those of --seeds. Leave --set seed out.")
    of_samplers = {part.name for kind in SAMPLERS.values() for part in fields(kind)}  # type: ignore[arg-type]
    recipe.with_settings({name: value for name, value in settings.items() if name not in of_samplers})


def unheeded(wanted: Settings, rows: Iterable[Contender], recipe: Config) -> dict[str, str]:
    """What is wanted of all and heeded by none, with the reason of one of them."""
    made = [apply(dict(row.settings), wanted, recipe, PART_NODES) for row in rows if row.settings is not None]
    reasons = [ignored(config, wanted) for config in made]
    return {name: reasons[0][name] for name in wanted if reasons and all(name in one for one in reasons)}


def apply(settings: Settings, wanted: Settings, recipe: Config, num_nodes: int) -> Config:
    """A recipe with the settings of a contender, what follows from them, and what was `wanted` of all."""
    # A row sees classes only if it says so; a recipe as it is may.
    settings = {"label_inputs": False, **settings} if settings else {}
    before = recipe.sampling
    sampler = settings.get("sampler", before.sampler)
    if sampler in _HOPS and "fanouts" in before.settings:
        settings.setdefault("fanouts", before.settings["fanouts"])
    if sampler == "Cluster" and before.sampler != "Cluster":
        parts = settings.setdefault("parts", max(2, round(num_nodes / PART_NODES)))
        settings.setdefault("epochs", max(recipe.training.epochs, -(-STEPS // parts)))
    if settings.get("architecture") == "USP":
        # By which its energy is that of the recipe.
        settings.setdefault("restart", 1 / (1 + recipe.energy.lambda_))
    had = {"steps": recipe.model.steps, "stages": recipe.energy.stages, **settings, **wanted}
    if had["stages"] > had["steps"] and "stages" not in wanted:
        # A row may have fewer steps than the recipe has stages, and a user wants fewer than a row has.
        settings["stages"] = max(1, had["steps"])
    known = {setting.name for _, setting in settings_of_tables()}
    known |= {part.name for part in fields(SAMPLERS[sampler])}  # type: ignore[arg-type]
    return recipe.with_settings(settings | {name: value for name, value in wanted.items() if name in known})
