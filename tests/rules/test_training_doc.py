"""docs/training.md names every setting."""

import re
from dataclasses import Field
from pathlib import Path
from typing import Any

from musegnn.training.config import settings_of_tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/training.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]


def test_the_table_has_every_setting_with_its_default():
    found, table = {}, ""
    for row in ROWS[ROWS.index("| table | setting | default | |") + 2 :]:
        cells = [cell.strip() for cell in row.split("|")]
        if len(cells) != 6:
            break
        table = cells[1] or table
        names, defaults = re.findall(r"`(\w+)`", cells[2]), re.split(r", (?![^\[]*\])", cells[3])
        # One default may be that of all.
        defaults = defaults * len(names) if len(defaults) == 1 else defaults
        found |= {(table, name): text for name, text in zip(names, defaults, strict=True)}
    assert found == {(table, setting.name): _spelled(setting) for table, setting in settings_of_tables()}


def _spelled(setting: Field[Any]) -> str:
    if setting.name == "settings":
        return "[10, 5]"
    return str(setting.default).lower() if isinstance(setting.default, bool) else str(setting.default)
