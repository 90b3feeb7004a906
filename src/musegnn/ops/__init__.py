"""Numeric kernels: arrays in, arrays out. Each has a slow, obvious `reference.py` that its tests trust.

An entry of a symmetric matrix is one key, `row << 32 | column`, so that sorting keys sorts a CSR matrix.
"""

import importlib
import tempfile
from types import ModuleType

import numpy as np
from jaxtyping import Int64, UInt32, UInt64

from musegnn.ops.merge_entries import reference as _merge_reference
from musegnn.ops.partition_edges import reference as _partition_reference

MAX_NODES = 1 << 32
"""Row and column share a 64-bit key."""

SMALL = 1 << 22
"""Up to this many entries in all, the reference needs less time than loading a compiled kernel."""


def partition_edges(
    source: Int64[np.ndarray, " edges"],
    target: Int64[np.ndarray, " edges"],
    code: UInt32[np.ndarray, " edges"] | None,
    *,
    shift: int,
    num_buckets: int,
    compiled: bool = True,
) -> tuple[
    UInt64[np.ndarray, " entries"], UInt32[np.ndarray, " entries"] | None, Int64[np.ndarray, " bounds"]
]:
    """Both directions of each edge that is no loop, as keys grouped by the bucket of their row.

        (u, v), code c  ->  u << 32 | v, c   and   v << 32 | u, reverse(c)

    Bucket b holds the rows with `row >> shift == b`; its keys are `keys[bounds[b] : bounds[b + 1]]`.
    `reverse` swaps the two bits of each pair (see `musegnn.graph.relation`).
    """
    if not compiled:
        return _partition_reference.partition_edges(
            source, target, code, shift=shift, num_buckets=num_buckets
        )
    return _kernels("partition_edges").partition_edges(  # type: ignore[no-any-return]
        source, target, code, shift=shift, num_buckets=num_buckets
    )


def merge_entries(
    keys: UInt64[np.ndarray, " entries"],
    codes: UInt32[np.ndarray, " entries"] | None,
    first_row: int,
    num_rows: int,
    *,
    compiled: bool = True,
) -> tuple[Int64[np.ndarray, " rows"], UInt32[np.ndarray, " merged"], UInt32[np.ndarray, " merged"] | None]:
    """One block of CSR rows from unordered entries: row lengths, sorted columns without repeats, codes.

    The codes of repeated entries are joined by bitwise or.
    """
    if not compiled:
        return _merge_reference.merge_entries(keys, codes, first_row, num_rows)
    return _kernels("merge_entries").merge_entries(  # type: ignore[no-any-return]
        keys, codes, first_row, num_rows
    )


def _kernels(op: str) -> ModuleType:
    """The compiled form of an op; Numba refuses to load it where it finds no place for its cache."""
    try:
        return importlib.import_module(f"musegnn.ops.{op}.numba")
    except RuntimeError:
        from numba import config

        config.CACHE_DIR = tempfile.mkdtemp(prefix="musegnn-")  # type: ignore[attr-defined]
        return importlib.import_module(f"musegnn.ops.{op}.numba")
