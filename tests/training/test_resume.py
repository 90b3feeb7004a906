"""A run that was stopped, however, ends with the bits of one that was not (see `killed_runs.py`)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROOF = "MUSEGNN_PROOF" in os.environ
HERE = Path(__file__).parent


@pytest.mark.parametrize(
    "arguments",
    # One process where it matters: to import torch is half of the time.
    ["random=30", "everywhere=1", "stopped"] if PROOF else ["random=2 everywhere=79 stopped"],
)
def test_a_stopped_run_goes_on_to_the_same_bits(arguments, tmp_path):
    """kill -9 at 3 random moments, at one file operation in 53; 30 and all of them with MUSEGNN_PROOF."""
    command = [sys.executable, str(HERE / "killed_runs.py"), str(tmp_path), *arguments.split()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=900 if PROOF else 200, env=environment
    )
    assert (done.returncode, done.stderr) == (0, "")
