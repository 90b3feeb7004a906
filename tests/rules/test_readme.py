"""What the README shows, runs."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from musegnn.cli.main import main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
SAMPLING = (ROOT / "docs/sampling.md").read_text()
EXPLAINING = (ROOT / "docs/explaining.md").read_text()
UNFOLDING = (ROOT / "docs/unfolding.md").read_text()
TARGETS = re.findall(r"^([a-z]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_a_python_block_runs_as_it_stands(block, tmp_path):
    # Threads of torch that wait for each other take most of the time on a busy machine.
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert done.returncode == 0, done.stderr
    assert "num_nodes=63436" in done.stdout


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", SAMPLING + EXPLAINING, re.DOTALL))
def test_a_python_block_of_another_page_runs_as_it_stands(block, tmp_path):
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_python_blocks_about_unfolding_run_one_after_the_other(tmp_path):
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", UNFOLDING, re.DOTALL))
    done = subprocess.run([sys.executable, "-c", blocks], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "smoothness" in done.stdout


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\bmake ([a-z]+)\b", README))))
def test_a_make_target_exists(target):
    assert target in TARGETS


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`muse ([^`]+)`", README))))
def test_a_command_does_what_it_says(command, tmp_path, monkeypatch, capsys):
    """With small files of the reader's own in place of the ones the README imagines."""
    monkeypatch.chdir(tmp_path)
    Path("edges.csv").write_text("source,target\nann,bob\nbob,cy\n")
    Path("labels.csv").write_text("id,label\nann,x\nbob,y\ncy,x\n")
    import numpy as np

    np.save("x.npy", np.zeros((3, 4), dtype=np.float32))
    arguments = shlex.split(command)
    if "mine" in arguments and "edges.csv" not in arguments:
        assert main(["import", "edges.csv", "--out", "mine"]) == 0
    if arguments[0] == "pack":
        assert main(["sample", "debian", "--set", "fanouts=1", "--splits", "valid", "--out", "samples"]) == 0
    if "raw" in arguments:
        # Data that cannot be shipped: the command is understood, and says which file it misses.
        assert main(arguments) == 2
        assert "raw" in capsys.readouterr().err
    else:
        assert main(arguments) == 0, capsys.readouterr().err
