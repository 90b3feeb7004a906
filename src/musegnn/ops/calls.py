"""What all kernels take, and how one is found."""

import importlib
from types import ModuleType

import numpy as np
from jaxtyping import Float, Int64, Integer, UInt8

Ids = Integer[np.ndarray, " n"]
Indptr = Int64[np.ndarray, " nodes_plus_1"]
Indices = Integer[np.ndarray, " entries"]
Rows = Float[np.ndarray, "nodes dim"]
Mask = UInt8[np.ndarray, "nodes bytes"]
Levels = UInt8[np.ndarray, " nodes"]


def plain(array: np.ndarray) -> np.ndarray:
    """A read-only view without NumPy's memmap class: a kernel is then compiled once, for mapped or not."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def version(name: str, compiled: bool) -> ModuleType:
    """The compiled kernel, or its reference."""
    return importlib.import_module(f"musegnn.ops.{name}.{'numba' if compiled else 'reference'}")
