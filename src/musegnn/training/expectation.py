"""Whether what was expected of one config can be expected of another."""

from dataclasses import is_dataclass, replace
from typing import Any, TypeVar

from musegnn.sampling.base import describe

C = TypeVar("C", bound=Any)

_FREE = {"seed", "sample_seed", "means_home", "features_home", "features_cache", "features_pack"}
"""Seeds and places: what is expected is a mean over the former, and the latter change no number."""


def expecting(made: C, was: C) -> C:
    """`made`, without `expected` if it differs from `was` in more than seeds and places."""
    return made if not made.expected or _core(made) == _core(was) else replace(made, expected={})


def _core(config: Any) -> dict[str, dict[str, Any]]:
    """What a result depends on, table by table; of the sampler also what is usual."""
    tables = {name: dict(vars(part)) for name, part in vars(config).items() if is_dataclass(part)}
    tables["sampling"].update(sampler=None, settings=describe(config.sampling.build()))
    return {
        table: {name: value for name, value in part.items() if name not in _FREE}
        for table, part in tables.items()
    }
