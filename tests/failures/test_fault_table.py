"""The command that makes the tables of docs/reliability.md; all of it, in full, with MUSEGNN_PROOF."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROOF = "MUSEGNN_PROOF" in os.environ
NAMES = ("soak", "kills", "flips", "hostile", "concurrency", "ranks")


@pytest.mark.parametrize("name", NAMES if PROOF else ["--help"])
def test_what_must_hold_holds(name, tmp_path):
    """Its table takes the place of the old one; without MUSEGNN_PROOF it only says what it would do."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n<!-- faults: {name} -->\nold\n<!-- end of {name} -->\nbehind\n")
    command = [sys.executable, str(ROOT / "benchmarks/faults.py"), name, "--out", str(page)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    before, table, behind = page.read_text().replace("-->\n", "<!--").split("<!--")[0::2]
    assert (before, behind) == ("before\n", "behind\n")
    assert ("| what was done | times | what must hold | what happened |" in table) == PROOF


def test_the_page_has_every_table():
    text = (ROOT / "docs/reliability.md").read_text()
    for name in NAMES:
        table = text.split(f"<!-- faults: {name} -->")[1].split(f"<!-- end of {name} -->")[0]
        assert f"python benchmarks/faults.py {name}" in table
        assert table.count("\n| ") > 2
