"""Hypothesis draws the same examples every time in CI and is free on a developer's machine.

`make proof` draws as many as Hypothesis likes to, `make test` a tenth of them.
Without a GPU, its kernels are interpreted: Triton looks at this when it is imported.
"""

import os
from glob import glob
from importlib.util import find_spec

from hypothesis import settings

# That of the terminal pytest was started in; what is captured is as wide as a pipe, unless a test says so.
os.environ.pop("COLUMNS", None)
if not glob("/dev/nvidia[0-9]*"):
    os.environ.setdefault("TRITON_INTERPRET", "1")

EXAMPLES = 100 if "MUSEGNN_PROOF" in os.environ else 10

settings.register_profile("free", deadline=None, max_examples=EXAMPLES)
settings.register_profile("ci", deadline=None, derandomize=True, max_examples=EXAMPLES)
settings.load_profile("ci" if os.environ.get("CI") else "free")


def pytest_configure(config):
    """A machine with a GPU may have nothing to draw a page with; the run says so, and is not about it."""
    if find_spec("plotly") is None:
        config.addinivalue_line("filterwarnings", "ignore:.* has no report.html:UserWarning")
