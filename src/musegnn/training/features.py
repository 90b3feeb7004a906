"""Where features are read from: the device if they fit there, else memory, else the mapped file."""

import os
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Integer
from torch import Tensor

from musegnn.errors import InputError
from musegnn.progress import progress

Home = Literal["auto", "device", "host", "disk"]
SHARE = 0.5
"""Of the memory that is free: the rest is for M, samples and the model."""
_BLOCK = 1 << 28


class Features:
    """Rows of the features, by their nodes.

    Args:
        table: All of them, mapped or not.
        home: "device": all rows are copied there once. "host": into memory. "disk": rows are read from the
            file when they are needed. "auto": the first of these that fits.
        device: Where the model is.
    """

    def __init__(self, table: np.ndarray, home: Home, device: torch.device) -> None:
        self.home = choose_home(table, device) if home == "auto" else home
        if self.home == "device" and device.type == "cpu":
            raise InputError("features_home=device needs a GPU, got device=cpu. Take host, disk or auto.")
        self.device = device
        self._table: np.ndarray | Tensor = table
        if self.home == "device":
            self._table = _copied(table, torch.empty(table.shape, dtype=_torch_dtype(table), device=device))
        elif self.home == "host":
            self._table = _copied(table, torch.empty(table.shape, dtype=_torch_dtype(table))).numpy()

    def read(self, node_ids: Integer[np.ndarray, " nodes"]) -> Tensor | None:
        """Rows as they are stored, in memory that the device can read by itself; None if it has them."""
        if isinstance(self._table, Tensor):
            return None
        shape, is_cuda = (len(node_ids), self._table.shape[1]), self.device.type == "cuda"
        rows = torch.empty(shape, dtype=_torch_dtype(self._table), pin_memory=is_cuda)
        # `take` lets other threads run while the disk is read.
        np.take(self._table, node_ids, axis=0, out=rows.numpy(), mode="clip")
        return rows

    def rows(self, read: Tensor | None, node_ids: Integer[Tensor, " nodes"]) -> Float[Tensor, "nodes in_dim"]:
        """The same rows on the device, in float32."""
        if read is None:
            assert isinstance(self._table, Tensor)
            return self._table[node_ids].float()
        return read.to(self.device, non_blocking=True).float()


def choose_home(table: np.ndarray, device: torch.device) -> Literal["device", "host", "disk"]:
    """The first place with room. Without a GPU the file is read: what is used often is in memory anyway."""
    if device.type != "cuda":
        return "disk"
    if fits(table.nbytes, device):
        return "device"
    return "host" if table.nbytes <= SHARE * _free_memory() else "disk"


def fits(num_bytes: int, device: torch.device) -> bool:
    """Whether so much may be kept on a GPU."""
    return device.type != "cuda" or num_bytes <= SHARE * torch.cuda.mem_get_info(device)[0]


def _copied(table: np.ndarray, into: Tensor) -> Tensor:
    rows = max(1, _BLOCK // max(1, table.nbytes // max(1, len(table))))
    with progress("Reading features", len(table), unit="rows") as advance:
        for first in range(0, len(table), rows):
            block = np.array(table[first : first + rows])
            into[first : first + rows] = torch.from_numpy(block)
            advance(len(block))
    return into


def _torch_dtype(table: np.ndarray) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype=table.dtype)).dtype


def _free_memory() -> int:
    """Bytes that a process may take without pushing others out."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
