"""docs/training.md names every setting, and what it and the README show, runs."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import Field
from pathlib import Path
from typing import Any

import numpy as np

from machine import one_thread as one_thread
from musegnn.cli.main import main
from musegnn.training.config import settings_of_tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/training.md").read_text()
README = (ROOT / "README.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("|")]
TINY = "--set hidden=4 --set steps=1 --set fanouts=1 --set batch_size=20000 --epochs 1 --device cpu"


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


def test_the_python_blocks_run_one_after_the_other(tmp_path):
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", blocks], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "macro_f1" in done.stdout


def test_the_commands_do_what_they_say_one_after_the_other(tmp_path, monkeypatch, capsys):
    """With a model of no size in place of the recipe's."""
    monkeypatch.chdir(tmp_path)
    lines = [line for page in (README, PAGE) for line in _fenced(page) if line.startswith("muse ")]
    assert len(lines) >= 6
    done = set()
    for line in lines:
        command = line.removeprefix("muse ").strip()
        if command in done:
            continue
        tiny = TINY if command.startswith("train debian") else ""
        assert main(shlex.split(f"{command} {tiny}")) == 0, capsys.readouterr().err
        done.add(command)
    assert Path("curl.csv").is_file()
    assert len(np.load("all.npy")) == 63_436


def _fenced(page: str) -> list[str]:
    """Commands of the blocks without a language, without what is said about them."""
    blocks = re.findall(r"^```\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    return [line.split("  #")[0] for block in blocks for line in block.splitlines()]
