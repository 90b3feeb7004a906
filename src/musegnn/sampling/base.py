"""What a sampler is: seeded (seeds in, nodes or edges out), or free (seeds are what it happens to hit)."""

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

import numpy as np
from jaxtyping import Integer

from musegnn.errors import InputError
from musegnn.graph import Graph

Drawn = Integer[np.ndarray, " nodes"] | Integer[np.ndarray, "2 edges"]
"""Node ids: all edges among them and the seeds. Edges as (2, edges): only those, taken both ways."""


class SeededSampler(ABC):
    """Draws a subgraph around given seeds. A user's own is a dataclass of its settings with one method."""

    @abstractmethod
    def draw(self, graph: Graph, seeds: Integer[np.ndarray, " seeds"], rng: np.random.Generator) -> Drawn:
        """Node ids in any order, or edges as (2, edges); the seeds, which ascend, need not be among them.

        The result may depend on the arguments and the settings only, and take all its randomness from `rng`.
        """


class FreeSampler(ABC):
    """Draws subgraphs by itself; the nodes of a split that fall inside become the seeds.

    `num_samples` is an attribute: how many to draw for each split.
    """

    num_samples: int

    @abstractmethod
    def draw(self, graph: Graph, index: int, rng: np.random.Generator) -> Drawn:
        """The nodes of sample `index` in any order, or its edges as (2, edges)."""


Sampler = SeededSampler | FreeSampler


def key_of(rng: np.random.Generator) -> int:
    """A key for the kernels (`musegnn.ops.random_bits`): 64 raw bits, which no version of NumPy changes."""
    return int(rng.bit_generator.random_raw())


def describe(sampler: Sampler) -> dict[str, Any]:
    """Name and settings of a sampler as JSON gives them back: part of what a sample is a function of."""
    settings = asdict(sampler) if is_dataclass(sampler) else _attributes(sampler)
    name = type(sampler).__name__
    try:
        plain: dict[str, Any] = json.loads(json.dumps(settings, allow_nan=False, default=_number))
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The settings of {name} must be numbers, strings, lists or dicts of them, so that a store can "
            f"say how it was drawn ({error}). Compute what is larger in `draw`."
        ) from error
    return {"name": name, "settings": plain}


def _attributes(sampler: Sampler) -> dict[str, Any]:
    slots = [name for kind in type(sampler).__mro__ for name in getattr(kind, "__slots__", ())]
    return {name: getattr(sampler, name) for name in slots if hasattr(sampler, name)} | vars(sampler)


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is none of these")


def spell(description: dict[str, Any]) -> str:
    """As it would be passed again: 'ShadowKHop(fanouts=[10, 5])'."""
    settings = ", ".join(f"{name}={value!r}" for name, value in description["settings"].items())
    return f"{description['name']}({settings})"


def check_fanouts(fanouts: Any, name: str) -> list[int]:
    """A list of positive integers, one for each hop."""
    values = list(fanouts) if isinstance(fanouts, Sequence) else []
    if not values or not all(_is_positive(value) for value in values):
        raise InputError(
            f"fanouts of {name} must be positive integers, one for each hop, the seeds' own first; "
            f"got {fanouts!r}. For example fanouts=[10, 5]."
        )
    return [int(value) for value in values]


def check_positive(value: Any, what: str) -> int:
    """A positive integer."""
    if not _is_positive(value) or value >= 1 << 63:
        raise InputError(f"{what} must be a positive integer below 2**63, got {value!r}.")
    return int(value)


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) > 0
