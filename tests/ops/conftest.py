"""Kernels on memory that is never zero by luck."""

from types import FunctionType, SimpleNamespace

import numpy as np
import pytest


def _poison(size, dtype=np.float64):
    is_float = np.dtype(dtype).kind == "f"
    return np.full(size, np.nan if is_float else np.iinfo(dtype).max, dtype)


_NAMES = ("zeros", "sqrt", "int32", "int8", "int64", "uint32", "uint64", "float64")
_NUMPY = SimpleNamespace(**{name: getattr(np, name) for name in _NAMES}, empty=_poison)


@pytest.fixture
def poisoned(monkeypatch):
    """`poisoned(module)`: np.empty is full of ones there, for the kernels' Python functions (`py_func`)."""
    return lambda module: monkeypatch.setattr(module, "np", _NUMPY)


@pytest.fixture
def on_poison():
    """`on_poison(kernel, **names)`: its Python function, where np.empty is full of ones, or of NaN.

    The kernels it calls are compiled as ever; `names` replace some of them.
    """

    def python(kernel, **names):
        function = kernel.py_func
        return FunctionType(function.__code__, {**function.__globals__, "np": _NUMPY, **names})

    return python


@pytest.fixture
def calls(monkeypatch):
    """`calls(module, name)`: the list that grows by one with each call of the module's function."""

    def record(module, name):
        made, function = [], getattr(module, name)

        def recorded(*args, **options):
            made.append(name)
            return function(*args, **options)

        monkeypatch.setattr(module, name, recorded)
        return made

    return record
