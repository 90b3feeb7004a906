"""What the tests run on: a GPU if there is one, and one thread of torch where matrices are small.

A fixture is had by importing it.
"""

import os

import jaxtyping
import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
only_on_a_gpu = pytest.mark.skipif(DEVICE.type == "cpu", reason="needs a GPU")
needs_kernels = pytest.mark.skipif(
    DEVICE.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1",
    reason="needs a GPU or the interpreter",
)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """On so few numbers, threads of torch wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def with_proof(cases, more):
    """These cases, and more of them in `make proof`."""
    return [*cases, *(more if "MUSEGNN_PROOF" in os.environ else [])]


@pytest.fixture(autouse=True)
def unchecked(monkeypatch):
    """Our own answers, not beartype's."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
