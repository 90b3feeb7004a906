"""Kernels on memory that is never zero by luck."""

from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture
def poisoned(monkeypatch):
    """`poisoned(module)`: np.empty is full of ones there, for the kernels' Python functions (`py_func`)."""
    names = {name: getattr(np, name) for name in ("zeros", "int64", "uint32", "uint64")}
    numpy = SimpleNamespace(**names, empty=lambda size, dtype: np.full(size, np.iinfo(dtype).max, dtype))
    return lambda module: monkeypatch.setattr(module, "np", numpy)
