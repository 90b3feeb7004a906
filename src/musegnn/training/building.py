"""A model and its features from their settings, and the settings of a model."""

from dataclasses import asdict, fields, replace
from math import inf
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from musegnn.baselines.catalog import make
from musegnn.baselines.contract import AnyModel, Baseline, Shape
from musegnn.errors import InputError
from musegnn.features.homes import Features, open_features
from musegnn.graph import Graph
from musegnn.models import MLP, MuseGNN
from musegnn.models.dropout import Dropout
from musegnn.sampling import SampleStore
from musegnn.training.config import Config, EnergyConfig, ModelConfig
from musegnn.unfolding import AbstractEnergy, Energy
from musegnn.unfolding.energy import number
from musegnn.unfolding.penalty import PENALTIES
from musegnn.unfolding.predictive import Predictive
from musegnn.unfolding.relational import Relational
from musegnn.unfolding.robust import Robust
from musegnn.unfolding.staged import Staged
from musegnn.unfolding.typed import TypedEnergy


def build_model(
    config: Config,
    in_dim: int,
    out_dim: int,
    graph: Graph | None = None,
    *,
    num_relations: int = 0,
    num_types: int = 0,
) -> AnyModel:
    """The model of a config; its weights are a function of the seed. A peer needs the graph."""
    if config.model.type_inputs and not num_types:
        raise InputError(
            "type_inputs=true needs a graph whose nodes have types; this one has none. They are a column "
            "`type` of `muse import --nodes`, or node_type of Graph.from_edges."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.training.seed)
        if config.is_baseline:
            assert graph is not None
            return make(config.baseline.architecture, graph, out_dim, _shape(config))
        energy = build_energy(config.energy, config.model.hidden, num_relations)
        settings = asdict(config.model)
        settings["label_inputs"] = out_dim if config.model.label_inputs else 0
        settings["type_inputs"] = num_types if config.model.type_inputs else 0
        return MuseGNN(in_dim, out_dim, energy=energy, **settings)


def check_energy(config: Config) -> None:
    """What settings ask of each other; of those that a peer or another energy does not heed, nothing."""
    energy, model = config.energy, config.model
    if config.is_baseline:
        return
    if energy.acceleration != "none" and model.alpha != "auto":
        raise InputError(
            f"acceleration='{energy.acceleration}' has its own step sizes; got alpha={model.alpha}. "
            "Leave alpha out."
        )
    if energy.kind == "smoothness":
        return
    if not model.steps:
        raise InputError(
            f"kind='{energy.kind}' has no effect without steps; got steps=0. Take 1 or more, or "
            "kind='smoothness', which is an MLP then."
        )
    if energy.kind == "robust":
        return
    if energy.stages > model.steps:
        raise InputError(
            f"stages must be at most steps, so that each has one; got stages={energy.stages} and "
            f"steps={model.steps}. Take fewer stages, or more steps."
        )
    if energy.rank != "full" and energy.rank > model.hidden:
        raise InputError(
            f"rank must be at most hidden, the width of H_r; got rank={energy.rank} and "
            f"hidden={model.hidden}. Take a smaller one, or 'full'."
        )


def build_energy(config: EnergyConfig, dim: int, num_relations: int) -> AbstractEnergy:
    """The energy of a config, for a graph with so many relations."""
    lambda_, gamma, prox = config.lambda_, config.gamma, config.prox
    if config.kind == "smoothness":
        how: dict[str, Any] = {"precondition": config.precondition, "acceleration": config.acceleration}
        return Energy(lambda_, gamma, config.laplacian, prox, **how)
    if config.kind == "robust":
        if config.acceleration != "none":
            raise InputError(
                f"kind='robust' takes plain steps; got acceleration='{config.acceleration}'. Take 'none'."
            )
        cutoff = inf if config.robust_cutoff == "none" else config.robust_cutoff
        form = {"power": config.robust_power, "cutoff": cutoff, "scale": config.robust_scale}
        return Robust(lambda_, gamma, config.laplacian, prox, **form)
    rank = None if config.rank == "full" else config.rank
    given = dim, num_relations, lambda_, gamma, prox
    typed: dict[str, Any] = {
        **{"rank": rank, "limit": config.limit, "lambda_per": config.lambda_per},
        "acceleration": config.acceleration,
    }
    kind: type[TypedEnergy] = Relational if config.kind == "relational" else Predictive
    typed |= {"laplacian": config.laplacian} if kind is Relational else {"average": config.average}
    stages = [kind(*given, **typed) for _ in range(config.stages)]
    return stages[0] if len(stages) == 1 else Staged(stages)


def _describe_energy(energy: AbstractEnergy) -> EnergyConfig | None:
    """Its settings, or None if none say what it is; of what is learned, where it began."""
    if isinstance(energy, Staged):
        alike = {_describe_energy(stage) for stage in energy.energies}  # type: ignore[arg-type]
        last = alike.pop()
        return None if alike or last is None else replace(last, stages=len(energy.energies))
    prox = next((name for name, penalty in PENALTIES.items() if penalty == energy.penalty), None)
    if prox is None:
        return None
    settings: dict[str, Any] = {"prox": prox, "acceleration": energy.acceleration}
    if type(energy) is Energy and not energy.learned():
        settings |= {"lambda_": float(energy.lambda_), "precondition": energy.precondition}
    elif type(energy) is Robust and not energy.learned():
        power, cutoff, scale = energy.rho
        settings |= {"kind": "robust", "robust_power": power, "robust_scale": scale}
        settings["robust_cutoff"] = "none" if cutoff == inf else cutoff
        settings["lambda_"] = float(energy.lambda_)
    elif isinstance(energy, TypedEnergy):
        rank = "full" if energy.rank is None else energy.rank
        settings |= {"lambda_": energy.begins_at, "rank": rank, "limit": energy.limit}
        settings["lambda_per"] = energy.lambda_per
    if type(energy) is Relational:
        settings["kind"] = "relational"
    elif type(energy) is Predictive:
        settings |= {"kind": "predictive", "average": energy.average}
    elif "lambda_" not in settings:
        return None
    laplacian = getattr(energy, "laplacian", EnergyConfig.laplacian)
    return EnergyConfig(**settings, gamma=gamma_of(energy), laplacian=laplacian)


def gamma_of(energy: AbstractEnergy, otherwise: float = 0.0) -> float:
    """The weight of the means, of an energy that may be one's own; where it begins if it is learned."""
    return number(getattr(energy, "gamma", otherwise))


def _shape(config: Config) -> Shape:
    settings = asdict(config.model) | asdict(config.baseline)
    return Shape(**{part.name: settings[part.name] for part in fields(Shape)})


def build_features(
    config: Config, graph: Graph, store: SampleStore, device: torch.device, *, is_resumed: bool = False
) -> Features:
    """The features of a graph where the config says, for as many reads of each sample as it asks for."""
    settings = config.training
    home, cache = settings.features_home, settings.features_cache
    # A run may go on without the GPU that it began with.
    is_elsewhere = is_resumed and home == "gpu" and device.type == "cpu"
    looks = settings.epochs // settings.evaluate_every + 1
    return open_features(
        graph,
        store,
        "auto" if is_elsewhere else home,
        device,
        reads={"train": settings.epochs, "valid": looks, "test": 1},
        cache=None if isinstance(cache, str) else cache,
        pack=settings.features_pack,
        is_online=config.sampling.online,
    )


def describe_model(model: AnyModel, config: Config) -> tuple[Config, dict[str, int] | None]:
    """The config with the settings of this model, and its sizes; None if no config can say what it is."""
    if isinstance(model, Baseline):
        given = {**asdict(model.shape), "architecture": model.architecture}
        return config.with_settings(given), _sizes(model, model.in_dim, model.out_dim)
    config = replace(config, baseline=replace(config.baseline, architecture="MuseGNN"))
    f, g = model.f, model.g
    energy = _describe_energy(model.energy)
    if type(model) is not MuseGNN or energy is None or type(f) is not MLP or type(g) is not MLP:
        return config, None
    described = replace(
        config,
        energy=energy,
        model=ModelConfig(
            hidden=f.widths[-1],
            steps=model.steps,
            alpha=model.alpha,
            layers=len(f.widths) - 1,
            output_layers=len(g.widths) - 1,
            dropout=max(_dropout(f), _dropout(g)),
            input_dropout=f.input_dropout.p,
            embedding_dropout=g.input_dropout.p,
            skip=f.skip is not None,
            normalize=f.normalize,
            norm=f.norm,
            label_inputs=bool(model.label_inputs),
            type_inputs=bool(model.type_inputs),
        ),
    )
    sizes = _sizes(model, f.widths[0], g.widths[-1])
    if model.energy.num_relations:
        sizes["num_relations"] = model.energy.num_relations
    twin = build_model(described, **sizes, graph=None)
    same = str(twin) == str(model) and g.normalize is False and _shapes(twin) == _shapes(model)
    return (described, sizes) if same else (config, None)


def _sizes(model: AnyModel, inputs: int, out_dim: int) -> dict[str, int]:
    """Of what a graph has, from what a model takes."""
    types = {"num_types": model.type_inputs} if model.type_inputs else {}
    return {"in_dim": inputs - model.type_inputs - model.label_inputs, "out_dim": out_dim, **types}


@torch.no_grad()
def probe(model: AnyModel, row: Float[Tensor, "1 in_dim"]) -> tuple[int, int]:
    """d and the number of outputs of any model, seen on the features of one node."""
    if isinstance(model, Baseline):
        return model.shape.hidden, model.out_dim
    was_training = model.training
    model.eval()
    try:
        Z = model.f(row.to(next((part.device for part in model.parameters()), row.device)))
        outputs = model.g(Z)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"The model does not take the {row.shape[1]} features of a node ({reason}). "
            f"Make it with in_dim={row.shape[1]}, in float32."
        ) from error
    finally:
        model.train(was_training)
    return int(Z.shape[1]), int(outputs.shape[1])


def _dropout(mlp: MLP) -> float:
    return max((float(part.p) for part in mlp.layers if isinstance(part, Dropout)), default=0.0)


def _shapes(model: AnyModel) -> dict[str, Any]:
    return {name: tuple(part.shape) for name, part in model.state_dict().items()}
