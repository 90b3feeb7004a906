"""Which settings a config heeds: what is said to a model that does not listen should not pass in silence."""

from collections.abc import Iterable
from dataclasses import fields

from musegnn.training.config import Config, EnergyConfig, MeansConfig

_NETWORK = {"hidden", "layers", "dropout", "input_dropout", "normalize"}
_CONVOLUTIONS = _NETWORK | {"norm", "residual", "history", "momentum"}
_SPREAD = _NETWORK | {"residual", "steps", "restart"}
ARCHITECTURES: dict[str, set[str]] = {
    "MuseGNN": _NETWORK | {"norm", "steps"},
    "GCN": _CONVOLUTIONS,
    "SAGE": _CONVOLUTIONS,
    "RSAGE": _CONVOLUTIONS - {"history", "momentum"},
    "GAT": _CONVOLUTIONS | {"heads"},
    "MLP": _NETWORK | {"residual"},
    "SGC": {"input_dropout", "normalize", "steps"},
    "SIGN": _NETWORK | {"residual", "steps"},
    "APPNP": _SPREAD,
    "LabelPropagation": {"steps", "restart"},
    "LazyGNN": _SPREAD | {"momentum"},
    "USP": _SPREAD | {"momentum"},
    "SGFormer": _NETWORK | {"heads"},
}
"""Of the settings that some heed and others do not: who heeds what (docs/baselines.md)."""

_MEANS = {one.name for one in fields(MeansConfig)} | {"update_means"}
_OF_MUSEGNN = {
    *(one.name for one in fields(EnergyConfig)),
    *_MEANS,
    *("alpha", "output_layers", "embedding_dropout", "skip"),
}
_DIFFERING = set.union(*ARCHITECTURES.values())
_KINDS: dict[str, tuple[str, ...]] = {
    "laplacian": ("smoothness", "relational", "robust"),
    "precondition": ("smoothness",),
    **dict.fromkeys(("rank", "limit", "lambda_per", "stages"), ("relational", "predictive")),
    **dict.fromkeys(("robust_power", "robust_cutoff", "robust_scale"), ("robust",)),
    "average": ("predictive",),
}
"""Of the settings of an energy that only some kinds of it have: which ones."""


def ignored(config: Config, given: Iterable[str]) -> dict[str, str]:
    """The settings among some that this config does not heed, and why: {'gamma': 'architecture=GCN'}."""
    found = {}
    for name in (one.rpartition(".")[2] for one in given):
        reason = _reason(config, name)
        if reason:
            found[name] = reason
    return found


def _reason(config: Config, name: str) -> str:
    architecture = config.baseline.architecture
    # What corrects predictions behind a peer spreads them.
    is_corrected = name == "restart" and config.baseline.correct_and_smooth
    is_of_others = name in _DIFFERING and name not in ARCHITECTURES[architecture] and not is_corrected
    if is_of_others or (config.is_baseline and name in _OF_MUSEGNN):
        return f"architecture={architecture}"
    if not config.is_baseline and name == "correct_and_smooth":
        return "architecture=MuseGNN"
    if config.energy.kind not in _KINDS.get(name, (config.energy.kind,)):
        return f"kind={config.energy.kind}"
    return "gamma=0" if name in _MEANS and not config.has_means else ""
