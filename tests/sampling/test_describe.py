"""describe: name and settings of a sampler as JSON gives them back."""

import json
import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from musegnn import InputError
from musegnn.sampling import FullKHop, NeighborSampling, SeededSampler, ShadowKHop, UniformInduced
from musegnn.sampling.base import describe


@dataclass(frozen=True)
class Own(SeededSampler):
    setting: Any
    nested: dict[str, Any] = field(default_factory=dict)

    def draw(self, graph, seeds, rng):
        return seeds


@dataclass(frozen=True, slots=True)
class Tight(SeededSampler):
    width: int

    def draw(self, graph, seeds, rng):
        return seeds


class Plain(SeededSampler):
    def __init__(self, **settings):
        vars(self).update(settings)

    def draw(self, graph, seeds, rng):
        return seeds


class Slotted(SeededSampler):
    __slots__ = ("width",)

    def __init__(self, width):
        self.width = width

    def draw(self, graph, seeds, rng):
        return seeds


@pytest.mark.parametrize(
    ("sampler", "name", "settings"),
    [
        (ShadowKHop(fanouts=[3, 2]), "ShadowKHop", {"fanouts": [3, 2]}),
        (NeighborSampling(fanouts=[4]), "NeighborSampling", {"fanouts": [4]}),
        (FullKHop(hops=3), "FullKHop", {"hops": 3}),
        (UniformInduced(p=0.25, num_samples=4), "UniformInduced", {"p": 0.25, "num_samples": 4}),
        (Own((1, "a", None)), "Own", {"setting": [1, "a", None], "nested": {}}),
        (Own(True, {"b": {"c": (1.5,)}}), "Own", {"setting": True, "nested": {"b": {"c": [1.5]}}}),
        (Own({1: 2}), "Own", {"setting": {"1": 2}, "nested": {}}),
        (Tight(3), "Tight", {"width": 3}),
        (Plain(width=3, shape=(1, 2)), "Plain", {"width": 3, "shape": [1, 2]}),
        (Plain(), "Plain", {}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_name_and_settings_survive_json(sampler, name, settings):
    description = describe(sampler)
    assert description == {"name": name, "settings": settings}
    assert json.loads(json.dumps(description)) == description


def test_slots_are_settings_too():
    assert describe(Slotted(3)) == {"name": "Slotted", "settings": {"width": 3}}


@pytest.mark.parametrize(
    "setting",
    [np.arange(3), {1, 2}, b"x", 1j, float("nan"), float("inf"), object(), {(1, 2): 3}],
    ids=["array", "set", "bytes", "complex", "nan", "infinity", "object", "tuple as a key"],
)
@pytest.mark.parametrize("kind", [Own, Plain])
def test_what_json_cannot_hold_is_refused(setting, kind):
    start = (
        f"The settings of {kind.__name__} must be numbers, strings, lists or dicts of them, so that a store"
    )
    with pytest.raises(InputError, match=rf"^{re.escape(start)}.* Compute what is larger in `draw`\.$"):
        describe(kind(setting=setting))


def test_a_description_does_not_change_with_its_sampler():
    sampler = Plain(numbers=[1])
    description = describe(sampler)
    sampler.numbers.append(2)
    assert description["settings"] == {"numbers": [1]}
