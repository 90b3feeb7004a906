"""Options as KEY=VALUE."""

import ast
from typing import Any

from musegnn.errors import InputError


def parse(settings: list[str], example: str) -> dict[str, Any]:
    """Numbers, lists and the like are read as Python writes them, anything else as text."""
    options = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not (all(part.isidentifier() for part in key.split(".")) and equals):
            raise InputError(f"--set takes KEY=VALUE, got {setting!r}. For example --set {example}.")
        try:
            # As TOML writes them, too.
            options[key] = ast.literal_eval({"true": "True", "false": "False"}.get(text, text))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            options[key] = text
    return options
