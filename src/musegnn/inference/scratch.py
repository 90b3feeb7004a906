"""Tensors larger than memory: mapped files that leave nothing behind; a full disk says so at once."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from musegnn.errors import StoreError
from musegnn.graph.building import free_bytes
from musegnn.store import file_errors

Numbers = Float[Tensor, " numbers"]
"""All numbers of a file."""

ITEM_BYTES = 4
"""Of a number in float32."""
_WHEN_FULL = "Nothing was kept. Free some space, or choose another folder."


def blocks(num_rows: int, block_rows: int) -> Iterator[slice]:
    """All rows, some at a time."""
    for first in range(0, num_rows, block_rows):
        yield slice(first, min(first + block_rows, num_rows))


def check_free(folder: Path, size: int, purpose: str) -> None:
    """Refuse to begin what would not fit on the disk: so many numbers in float32."""
    if not folder.is_dir():
        raise StoreError(f"{folder} is not a folder. Make it first, or choose another.")
    needed, free = ITEM_BYTES * size, free_bytes(folder)
    if needed > free:
        raise StoreError(
            f"{purpose} takes {needed / 1e9:.3g} GB in {folder}, but {free / 1e9:.3g} GB are free. "
            "Free some space, or choose another folder."
        )


def numbers(folder: Path, size: int, dtype: torch.dtype = torch.float32) -> Numbers:
    """In a file without a name: its space is free again when the tensor or the process goes."""
    with file_errors(folder, _WHEN_FULL), tempfile.TemporaryFile(dir=folder) as file:
        return _mapped(file, size, dtype)


@contextmanager
def result(folder: Path, size: int, kept: Path | None) -> Iterator[Numbers]:
    """What stays if it is `kept`: the file has its name when the context ends well, and not before."""
    if kept is None:
        yield numbers(folder, size)
        return
    partial = kept.with_name(f"{kept.name}.partial")
    try:
        with file_errors(partial, _WHEN_FULL), partial.open("w+b") as file:
            made = _mapped(file, size, torch.float32)
        yield made
        with file_errors(partial, _WHEN_FULL), partial.open("r+b") as file:
            os.fsync(file.fileno())
            partial.replace(kept)
    finally:
        partial.unlink(missing_ok=True)


def _mapped(file: BinaryIO, size: int, dtype: torch.dtype) -> Numbers:
    # Not a hole: a full disk is an error now, where it would be a SIGBUS when the page is written.
    os.posix_fallocate(file.fileno(), 0, dtype.itemsize * size)
    kind = np.float32 if dtype == torch.float32 else np.float64
    return torch.from_numpy(np.memmap(file, dtype=kind, mode="r+", shape=(size,)))
