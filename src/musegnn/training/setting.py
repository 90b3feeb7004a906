"""A setting: its default, its line, what it may be, and how it is written."""

import difflib
import json
import math
import sys
from dataclasses import Field, field
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from musegnn.errors import InputError

ABOVE_ZERO = math.ulp(0.0)
BELOW_ONE = math.nextafter(1.0, 0.0)
_LARGEST_WHOLE = 2**63 - 1
"""Of TOML, and of a seed of torch."""


def setting(default: Any, about: str, *, low: float = -math.inf, high: float = math.inf) -> Any:
    """A field with its line and the numbers it may be, both ends included."""
    metadata = {"about": about, "low": low, "high": high}
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def nearest(name: str, known: list[str]) -> str | None:
    """The nearest of some names, whatever the capitals."""
    by_lower = {one.lower(): one for one in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.5)
    return by_lower[found[0]] if found else None


def check(one: "Field[Any]", value: Any, hint: Any) -> None:
    """The type, the choices and the range."""
    low, high = one.metadata["low"], one.metadata["high"]
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if value in choices and not isinstance(value, bool):
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if bool in kinds and isinstance(value, bool):
        return
    if str in kinds and isinstance(value, str):
        return
    if dict in (get_origin(kind) for kind in kinds) and isinstance(value, dict):
        return
    if is_number and float in kinds and low <= value <= high and abs(value) <= sys.float_info.max:
        return
    if is_number and int in kinds and isinstance(value, int) and low <= value <= min(high, _LARGEST_WHOLE):
        return
    near = nearest(value, choices) if isinstance(value, str) else None
    hint = f" Did you mean {near!r}?" if near else ""
    raise InputError(f"{one.name} must be {_allowed(kinds, choices, low, high)}; got {value!r}.{hint}")


def _allowed(kinds: tuple[Any, ...], choices: list[Any], low: float, high: float) -> str:
    words = [repr(choice) for choice in choices]
    if bool in kinds:
        words.append("true or false")
    if str in kinds:
        words.append("a text")
    if int in kinds or float in kinds:
        noun = "a whole number" if int in kinds else "a number"
        limits = [f"above {0}" if low == ABOVE_ZERO else f"at least {low:g}"] if low > -math.inf else []
        if high < math.inf:
            limits.append("below 1" if high == BELOW_ONE else f"at most {high:g}")
        words.append(" ".join([noun, " and ".join(limits)]).strip())
    return " or ".join(words)


def spell(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {spell(part)}" for name, part in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(spell(part) for part in value) + "]"
    # TOML is stricter than JSON: no surrogates, no bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
