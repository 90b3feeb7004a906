"""Where a store came from: said in its header, no part of its content."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from musegnn.version import __version__


def provenance(name: str, source: dict[str, Any]) -> dict[str, Any]:
    """Version, command and time, with what the source says of itself."""
    return {
        "musegnn": __version__,
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        **plain(source),
        "name": name,
    }


def plain(values: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back: NumPy's numbers become Python's, tuples become lists."""
    result: dict[str, Any] = json.loads(
        json.dumps(values, default=lambda value: getattr(value, "item", value.__str__)())
    )
    return result
