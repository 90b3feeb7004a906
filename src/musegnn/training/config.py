"""What a run is: every setting with its default, its range and a line about it; to and from TOML.

Names are unique over all tables, so that `--set gamma=0.5` needs no table.
"""

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import Field, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_type_hints

from musegnn.errors import InputError
from musegnn.sampling.base import FreeSampler, Sampler
from musegnn.sampling.catalog import SAMPLERS, make
from musegnn.training.expectation import expecting
from musegnn.training.setting import ABOVE_ZERO, BELOW_ONE, check, nearest, setting, spell

Architecture = Literal[
    "MuseGNN", "GCN", "SAGE", "RSAGE", "GAT", "MLP", "SGC", "SIGN", "APPNP", "LabelPropagation", "LazyGNN",
    "USP", "SGFormer",
]  # fmt: skip
_hints: Callable[[Any], dict[str, Any]] = cache(get_type_hints)
_LARGEST_FILE = 1 << 20
"""Bytes of a recipe; it is read into memory whole."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """How the samples are drawn."""

    sampler: str = setting("ShadowKHop", "one of the samplers of docs/sampling.md")
    settings: dict[str, Any] = setting(
        {"fanouts": [10, 5]}, "of the sampler; in TOML and with --set by their own names"
    )
    batch_size: int = setting(1000, "seeds in a sample", low=1)
    sample_seed: int = setting(0, "another seed draws other samples")
    online: bool = setting(False, "draw fresh training samples for each epoch")

    def build(self) -> Sampler:
        """The sampler."""
        return make(self.sampler, self.settings)


@dataclass(frozen=True, kw_only=True)
class EnergyConfig:
    """The energy (eq. 4)."""

    kind: Literal["smoothness", "relational", "predictive", "robust"] = setting(
        "smoothness", "the paper's, with learned matrices, or with edges not to trust (docs/energies.md)"
    )
    lambda_: float = setting(1.0, "weight of the smoothness; where a learned one begins", low=0)
    gamma: float = setting(0.0, "weight of the means; 0 trains without M", low=0, high=1e6)
    laplacian: Literal["normalized", "combinatorial"] = setting("normalized", "L_s")
    prox: Literal["none", "relu", "l1", "nonnegative_l1", "group", "box"] = setting(
        "relu", "the penalty zeta"
    )
    precondition: Literal["none", "jacobi", "authors"] = setting("none", "of the steps")
    acceleration: Literal["none", "momentum", "chebyshev"] = setting(
        "none", "of the steps; chebyshev needs prox none"
    )
    rank: int | Literal["full"] = setting(
        "full", "of H_r of a typed energy: any matrix, or diagonal and so many directions", low=0
    )
    limit: float = setting(
        2.0, "of |H_r| of a typed energy; the larger it may be, the smaller the steps", low=1e-6, high=1e6
    )
    lambda_per: Literal["graph", "relation", "channel"] = setting(
        "relation",
        "who has a learned lambda of a typed energy: all together, each relation, each channel of it",
    )
    stages: int = setting(
        1, "sets of H_r of a typed energy, one behind the other, each for its share of the steps", low=1
    )
    robust_power: float = setting(
        -2.0, "of the robust energy: 2 counts disagreement as the paper's, 1, 0, -2 ever less", high=2
    )
    robust_cutoff: float | Literal["none"] = setting(
        "none", "where its disagreement counts no further, in units of its scale", low=ABOVE_ZERO
    )
    robust_scale: float = setting(1.0, "its squared distance from which on less counts", low=ABOVE_ZERO)
    average: Literal["row", "symmetric"] = setting("row", "over neighbors, of the predictive energy")

    @property
    def is_typed(self) -> bool:
        """Whether it learns matrices, and asks for relations."""
        return self.kind in ("relational", "predictive")

    @property
    def is_staged(self) -> bool:
        """Whether the steps are taken on several energies; only typed ones heed it."""
        return self.is_typed and self.stages > 1

    @property
    def minimizer(self) -> str | None:
        """What an error bound is the distance to, if not simply to the exact minimizer."""
        if self.kind == "robust":
            return "minimizer of the quadratic that the last step was taken on; the energy is not convex"
        return "exact minimizer of the last stage's energy" if self.is_staged else None


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """f, K steps, g."""

    hidden: int = setting(512, "d, the width of f, of the embeddings and of g", low=1)
    steps: int = setting(8, "K", low=0)
    alpha: float | Literal["auto"] = setting("auto", "step size", low=ABOVE_ZERO)
    layers: int = setting(3, "of f", low=1)
    output_layers: int = setting(3, "of g", low=1)
    dropout: float = setting(0.0, "in f and g, behind each ReLU", low=0, high=BELOW_ONE)
    input_dropout: float = setting(0.0, "of the features", low=0, high=BELOW_ONE)
    embedding_dropout: float = setting(0.0, "of Y, before g", low=0, high=BELOW_ONE)
    skip: bool = setting(False, "one Linear past f, and one past g")
    norm: Literal["none", "layer", "batch"] = setting(
        "none", "before each ReLU of f and g; of a peer behind each convolution, and only there batch"
    )
    normalize: bool = setting(False, "divide each row of the features by the sum of its absolute values")
    label_inputs: bool = setting(
        False, "f also sees the classes of training nodes, but for the seeds of a sample; needs gamma 0"
    )
    type_inputs: bool = setting(False, "f also sees the types of nodes, where the graph has them")


@dataclass(frozen=True, kw_only=True)
class BaselineConfig:
    """A peer in the place of MuseGNN (docs/baselines.md), of which it takes the width, layers and dropout."""

    architecture: Architecture = setting("MuseGNN", "or a peer (docs/baselines.md)")
    residual: bool = setting(False, "past each convolution")
    heads: int = setting(4, "of GAT", low=1)
    history: Literal["none", "gas", "graphfm", "freshgnn"] = setting(
        "none", "embeddings of earlier steps in place of neighbors outside of a sample"
    )
    momentum: float = setting(
        0.5, "of GraphFM and LazyGNN; the share of FreshGNN's cache, of USP's edges", low=0, high=1
    )
    restart: float = setting(0.1, "probability, of APPNP, LazyGNN and LabelPropagation", low=0, high=1)
    correct_and_smooth: bool = setting(False, "predictions by those of neighbors, behind MLP, SGC or SIGN")


@dataclass(frozen=True, kw_only=True)
class MeansConfig:
    """M (eq. 9)."""

    rho: float = setting(0.9, "how much of the past is kept", low=0, high=1)
    unseen: Literal["zero", "mask"] = setting(
        "mask", "nodes without an embedding so far are not drawn to one; zero: to 0 (the paper)"
    )
    means_home: Literal["memory", "disk"] = setting(
        "memory", "where M lies; disk: a mapped file in the run folder, for M larger than memory"
    )
    means_dtype: Literal["float32", "bfloat16"] = setting("float32", "of M")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Loss, optimizer, and when to stop."""

    epochs: int = setting(20, "passes over all training samples", low=1)
    samples_per_step: int = setting(0, "whose gradients a step adds up; 0: one of each rank", low=0)
    lr: float = setting(1e-3, "of Adam", low=ABOVE_ZERO)
    weight_decay: float = setting(0.0, "of Adam", low=0)
    schedule: Literal["constant", "cosine", "linear"] = setting("constant", "of lr; the others end at 0")
    warmup: int = setting(0, "steps over which lr rises from 0", low=0)
    clip: float = setting(0.0, "largest norm of the gradient; 0 does not clip", low=0)
    loss: Literal["cross_entropy", "bce"] = setting("cross_entropy", "bce: several labels for each node")
    class_weights: bool = setting(False, "rare classes weigh more, as 1 / their number of training nodes")
    label_smoothing: float = setting(0.0, "of the cross-entropy", low=0, high=1)
    metric: Literal["accuracy", "macro_f1", "roc_auc"] = setting(
        "accuracy", "chooses the best epoch on the validation nodes"
    )
    patience: int = setting(0, "epochs without a better one after which to stop; 0 never stops", low=0)
    evaluate_every: int = setting(1, "epochs between two looks at the validation nodes", low=1)
    precision: Literal["float32", "bfloat16"] = setting("float32", "of f and g; on a GPU also of the steps")
    features_home: Literal["auto", "gpu", "ram", "mapped", "cached", "packed"] = setting(
        "auto", "where features lie (docs/features.md); auto: the first that fits"
    )
    features_cache: float | Literal["auto"] = setting(
        "auto", "of cached: bytes of rows in memory, or up to 1 their share of the features", low=0
    )
    features_pack: str = setting("", "of packed: its folder, if it is not beside the samples")
    update_means: bool = setting(False, "M also changes during evaluation, as in the authors' code")
    seed: int = setting(0, "of weights, dropout and order", low=0)


@dataclass(frozen=True, kw_only=True)
class Config:
    """All of it, and what came of it elsewhere."""

    name: str = "run"
    about: str = ""
    dataset: str = ""
    """A name of `musegnn.datasets.CATALOG`; empty where the graph is given as a folder."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of the dataset."""
    sampling: SamplingConfig = SamplingConfig()
    energy: EnergyConfig = EnergyConfig()
    model: ModelConfig = ModelConfig()
    baseline: BaselineConfig = BaselineConfig()
    means: MeansConfig = MeansConfig()
    training: TrainingConfig = TrainingConfig()
    expected: dict[str, Any] = field(default_factory=dict)
    """`test_accuracy` or `valid_accuracy`, `spread`, `source`."""

    def __post_init__(self) -> None:
        for table in TABLES:
            part = getattr(self, table)
            for one in fields(part):
                check(one, getattr(part, one.name), _hints(type(part))[one.name])
        self.sampling.build()
        if self.training.update_means and self.means.means_home == "disk":
            raise InputError(
                "update_means=true needs means_home='memory'; got 'disk'. Leave M alone in evaluation."
            )
        if self.training.class_weights and self.training.loss == "bce":
            raise InputError("class_weights=true belongs to loss='cross_entropy'; got 'bce'. Leave it out.")
        if self.model.norm == "batch" and not self.is_baseline:
            raise InputError(
                "norm='batch' makes a node's embedding depend on the sample, which MuseGNN's must not; "
                "got it with architecture='MuseGNN'. Take 'layer'."
            )
        if self.energy.kind != "smoothness" and self.energy.lambda_ == 0:
            raise InputError(f"kind='{self.energy.kind}' needs lambda_ above 0; got 0.")
        if self.model.label_inputs:
            self._check_label_inputs()

    def _check_label_inputs(self) -> None:
        """A class must not come back to the seed that it is to be predicted for."""
        if self.has_means:
            raise InputError(
                f"label_inputs=true needs gamma=0, since M would remember a node's own class; "
                f"got gamma={self.energy.gamma:g}."
            )
        if isinstance(self.sampling.build(), FreeSampler):
            raise InputError(
                f"label_inputs=true needs training nodes that are no seeds; got {self.sampling.sampler}, of "
                "which all are. Take ShadowKHop, or another sampler that is given its seeds."
            )
        if self.training.loss == "bce":
            raise InputError("label_inputs=true needs one class a node; got loss='bce'. Leave it out.")

    @property
    def is_baseline(self) -> bool:
        """Whether it is a peer that is trained."""
        return self.baseline.architecture != "MuseGNN"

    @property
    def has_means(self) -> bool:
        """Whether there is an M."""
        return self.energy.gamma != 0 and not self.is_baseline

    @property
    def has_mapped_means(self) -> bool:
        """Whether M lies in files."""
        return self.has_means and self.means.means_home == "disk"

    def with_settings(self, settings: dict[str, Any]) -> "Config":
        """With some settings changed, by name, `kind` or `energy.kind`; unknown ones are told the nearest."""
        places = {one.name: table for table, one in settings_of_tables()}
        full = {f"{table}.{name}": name for name, table in places.items()}
        settings = {full.get(name, name): value for name, value in settings.items()}
        parts: dict[str, dict[str, Any]] = {}
        sampler = settings.get("sampler", self.sampling.sampler)
        own = dict(self.sampling.settings) if sampler == self.sampling.sampler else {}
        for name, value in settings.items():
            if name in places and name != "settings":
                parts.setdefault(places[name], {})[name] = _whole(value, places[name], name)
            elif name in _sampler_settings(sampler):
                own[name] = value
            else:
                raise InputError(_unknown(name, [*places, *_sampler_settings(sampler)]))
        parts.setdefault("sampling", {})["settings"] = own
        made = replace(self, **{table: replace(getattr(self, table), **new) for table, new in parts.items()})
        return expecting(made, self)

    @classmethod
    def read(cls, path: Path) -> "Config":
        """Read a TOML file that may hold anything."""
        if path.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{path} has more than {_LARGEST_FILE:,} bytes: no settings. Pass another file.")
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is no text in UTF-8, as TOML must be ({error.reason}).") from error
        return cls.from_toml(text, str(path))

    @classmethod
    def from_toml(cls, text: str, where: str) -> "Config":
        """Read a recipe or the `config.toml` of a run."""
        try:
            body = tomllib.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where} is not TOML: {error}.") from error
        known = {one.name for one in fields(cls)}
        settings: dict[str, Any] = {}
        plain: dict[str, Any] = {}
        for name, value in body.items():
            if name not in known:
                raise InputError(f"{where}: {_unknown(name, sorted(known))}")
            kind: type[Any] = str if name in ("name", "about", "dataset") else dict
            if not isinstance(value, kind):
                noun = "a text" if kind is str else "a table"
                raise InputError(f"{where}: {name} must be {noun}; got {value!r}.")
            if name in TABLES:
                names = {one.name for one in fields(TABLES[name])} - {"settings"}
                if name == "sampling":
                    names |= set(_sampler_settings(value.get("sampler", SamplingConfig.sampler)))
                for key in value:
                    if key not in names:
                        raise InputError(f"{where}: [{name}] {_unknown(key, sorted(names))}")
                settings |= value
            else:
                plain[name] = value
        try:
            return replace(cls(**plain).with_settings(settings), expected=plain.get("expected", {}))
        except InputError as error:
            raise InputError(f"{where}: {error}") from error

    def to_toml(self) -> str:
        """Every setting, each behind its line."""
        lines = [f"{name} = {spell(getattr(self, name))}" for name in ("name", "about", "dataset")]
        tables = {"options": self.options, "expected": self.expected}
        for table in TABLES:
            lines += ["", f"[{table}]"]
            part = getattr(self, table)
            for one in fields(part):
                if one.name == "settings":
                    lines += [f"{name} = {spell(value)}" for name, value in part.settings.items()]
                else:
                    about = one.metadata["about"]
                    lines.append(f"{one.name} = {spell(getattr(part, one.name))}  # {about}")
        for table, values in tables.items():
            if values:
                lines += ["", f"[{table}]", *(f"{name} = {spell(value)}" for name, value in values.items())]
        return "\n".join(lines) + "\n"


TABLES: dict[str, type[Any]] = {
    "sampling": SamplingConfig,
    "energy": EnergyConfig,
    "model": ModelConfig,
    "baseline": BaselineConfig,
    "means": MeansConfig,
    "training": TrainingConfig,
}


def settings_of_tables() -> Iterator[tuple[str, Field[Any]]]:
    """Every setting with its table."""
    for table, kind in TABLES.items():
        for one in fields(kind):
            yield table, one


def _sampler_settings(sampler: str) -> list[str]:
    found = next((kind for name, kind in SAMPLERS.items() if name.lower() == str(sampler).lower()), None)
    return [] if found is None else [part.name for part in fields(found) if part.init]  # type: ignore[arg-type]


def _unknown(name: str, known: list[str]) -> str:
    if owners := [sampler for sampler in SAMPLERS if name in _sampler_settings(sampler)]:
        whose = " or ".join(owners)
        return f"{name!r} is a setting of the sampler {whose}, not of this one. Set sampler={owners[0]}, too."
    if name in TABLES:
        inside = ", ".join(f"{name}.{one.name}" for one in fields(TABLES[name]))
        return f"{name!r} is a table of settings. Set one of {inside}."
    near = nearest(name.rpartition(".")[2], known)
    hint = f"Did you mean {near!r}?" if near else f"There are {', '.join(known)}."
    return f"there is no setting {name!r}. {hint}"


def _whole(value: Any, table: str, name: str) -> Any:
    """8.0 as 8, where a whole number is wanted."""
    if _hints(TABLES[table])[name] is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
