"""The samplers by name."""

import dataclasses
import difflib
from typing import Any

from musegnn.errors import InputError
from musegnn.sampling.base import Sampler
from musegnn.sampling.cluster import Cluster
from musegnn.sampling.full import FullKHop
from musegnn.sampling.neighbor import NeighborSampling
from musegnn.sampling.pagerank import PersonalizedPageRank
from musegnn.sampling.shadow import ShadowKHop
from musegnn.sampling.uniform import UniformInduced
from musegnn.sampling.walk import RandomWalk

SAMPLERS: dict[str, type[Sampler]] = {
    sampler.__name__: sampler
    for sampler in (
        ShadowKHop,
        FullKHop,
        NeighborSampling,
        PersonalizedPageRank,
        UniformInduced,
        RandomWalk,
        Cluster,
    )
}


def make(name: str, settings: dict[str, Any]) -> Sampler:
    """A sampler from its name, in any case, and its settings."""
    by_name = {known.lower(): sampler for known, sampler in SAMPLERS.items()}
    sampler = by_name.get(name.lower().replace("-", ""))
    if sampler is None:
        near = difflib.get_close_matches(name.lower(), by_name, n=1, cutoff=0.4)
        hint = f" Did you mean {by_name[near[0]].__name__}?" if near else ""
        raise InputError(f"There is no sampler {name!r}; there are {', '.join(SAMPLERS)}.{hint}")
    allowed = [field.name for field in dataclasses.fields(sampler) if field.init]  # type: ignore[arg-type]
    unknown = [setting for setting in settings if setting not in allowed]
    if unknown:
        raise InputError(
            f"{sampler.__name__} has no setting {unknown[0]!r}; it has {', '.join(allowed)}. "
            f"For example --set {allowed[0]}=..."
        )
    if isinstance(settings.get("fanouts"), int):
        settings = {**settings, "fanouts": [settings["fanouts"]]}
    return sampler(**settings)
