"""All ranks of a run must be alike."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import torch

from musegnn.ranks import Ranks
from musegnn.training.config import Config, settings_of_tables
from musegnn.version import __version__


def check_alike(config: Config, record: dict[str, Any], device: torch.device, ranks: Ranks) -> None:
    """All ranks have the same settings, data, devices and versions, or it is said who differs in what."""
    if ranks.is_alone:
        return
    data = {f"{part} with the digest": record[part]["digest"] for part in ("graph", "samples")}
    same = {"labels": record["labels"], "model": record["model"], "the device": device.type}
    ranks.check_same({**versions(), **data, **same, **settings_of(config)})


def settings_of(config: Config) -> dict[str, Any]:
    """Every setting, as `Ranks.check_same` names it."""
    return {
        f"the setting {one.name}": getattr(getattr(config, table), one.name)
        for table, one in settings_of_tables()
    }


def versions() -> dict[str, str]:
    """Of what computes here."""
    return {"musegnn": __version__, "torch": torch.__version__, "code with the digest": code_digest()}


@cache
def code_digest() -> str:
    """SHA-256 of all modules of musegnn, as they are installed here."""
    root, digest = Path(__file__).parents[1], hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\n".encode() + path.read_bytes())
    return digest.hexdigest()
