"""`make test` installs a browser where it may, says in one line that it has none elsewhere, and goes on."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SKIPPED = "No Chromium here, and none that may be installed: the browser check is skipped.\n"
INSTALLING = "Installing Chromium ...\n"


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ({"chromium-browser": "exit 0", "id": "echo 0"}, ""),
        ({"id": "echo 1000", "apt-get": "exit 0"}, SKIPPED),
        ({"id": "echo 0"}, SKIPPED),
        ({"id": "echo 0", "apt-get": "echo noise; exit 100"}, INSTALLING + SKIPPED),
        ({"id": "echo 0", "apt-get": "exit 0"}, INSTALLING),
    ],
    ids=["there", "not root", "no apt", "no network", "installed"],
)
def test_a_browser_is_installed_or_done_without(tools, said, tmp_path):
    make, timeout = shutil.which("make"), shutil.which("timeout")
    (tmp_path / "timeout").symlink_to(timeout)
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": str(tmp_path)}
    done = subprocess.run([make, "chromium"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, said, "")
