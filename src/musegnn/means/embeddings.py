"""M and its counts, where they fit: on the device, in host memory, or in a mapped file."""

import json
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Integer
from torch import Tensor, nn

from musegnn.errors import DivergenceError, InputError, StoreError
from musegnn.extras import has_triton
from musegnn.graph.building import free_bytes
from musegnn.store import file_errors
from musegnn.store.header import read_json
from musegnn.store.rows import Rows

Home = Literal["device", "host"] | Path
_INTEGERS = (torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)
Ids = Integer[Tensor, " nodes"] | Integer[np.ndarray, " nodes"]


class MeanEmbeddings(nn.Module):
    """The mean, with forgetting, of the embeddings a node has had so far.

        M_v <- w M_v + (1 - w) Y_v,   w = rho c_v / (c_v + 1),   c_v <- c_v + 1             (eq. 9)

    c_v counts the updates of node v; w is 0 at the first, so that the zeros M starts from never enter.
    rho = 1 is the plain mean, rho = 0 the newest embedding.

    Args:
        num_nodes: n, of the whole graph.
        dim: d.
        rho: How much of the past is kept.
        home: "device", where the module is moved to; "host", in memory, wherever the model is; or a folder,
            for M larger than memory: two files are mapped there, and what they hold is gone on with.
        dtype: torch.float32, or torch.bfloat16 for half the memory; it is computed in float32 all the same.
    """

    M: Tensor
    count: Tensor

    def __init__(
        self,
        num_nodes: int,
        dim: int,
        rho: float = 0.9,
        *,
        home: Home = "device",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if num_nodes < 0 or dim < 1:
            raise InputError(f"M needs num_nodes >= 0 and dim >= 1, got {num_nodes} and {dim}.")
        if not 0 <= rho <= 1:
            raise InputError(f"rho must lie between 0 and 1, got {rho}.")
        if dtype not in (torch.float32, torch.float64, torch.bfloat16):
            raise InputError(f"M is kept in float32, float64 or bfloat16, got {dtype}.")
        if home not in ("device", "host") and not isinstance(home, Path):
            raise InputError(f"home must be 'device', 'host' or a pathlib.Path to a folder, got {home!r}.")
        self.rho = rho
        self.home = home
        self._rows: Rows | None = None
        """Reads a mapped M: many rows at once, where page faults would wait for one after the other."""
        if isinstance(home, Path):
            settings = {"num_nodes": num_nodes, "dim": dim, "rho": rho, "dtype": str(dtype)}
            _check_header(home, {"version": 1, **settings})
            M = _mapped(home / "M.bin", num_nodes * dim, dtype, is_random=True).view(num_nodes, dim)
            count = _mapped(home / "count.bin", num_nodes, torch.int32)
            if num_nodes:
                rows = np.memmap(home / "M.bin", np.uint8, "r", shape=(num_nodes, dim * dtype.itemsize))
                self._rows = Rows(rows)
        else:
            M, count = torch.zeros(num_nodes, dim, dtype=dtype), torch.zeros(num_nodes, dtype=torch.int32)
        self.register_buffer("M", M)
        self.register_buffer("count", count)

    @torch.no_grad()
    def gather(
        self, node_ids: Ids, device: torch.device | str | None = None, *, check: bool = True
    ) -> Float[Tensor, "nodes dim"]:
        """mu, the rows of M of these nodes, in float32 (float64 if M is, M's own on a GPU); no gradient.

        `check` looks at the ids, for which a GPU is waited for.
        """
        places = self._places(node_ids, check)
        rows = self.M[places] if self._rows is None else self._read(self._rows, places)
        # bfloat16 moves at half the cost, and a GPU computes with it as well.
        exact = rows.dtype if rows.is_cuda else torch.promote_types(rows.dtype, torch.float32)
        return rows.to(device, exact)

    def seen(
        self, node_ids: Ids, device: torch.device | str | None = None, *, check: bool = True
    ) -> Bool[Tensor, " nodes"]:
        """Which of these nodes have had an embedding. `check` looks at the ids."""
        return (self.count[self._places(node_ids, check)] > 0).to(device)

    @torch.no_grad()
    def update(self, node_ids: Ids, Y: Float[Tensor, "nodes dim"], *, check: bool = True) -> None:
        """Move the means of these nodes towards Y, each node once (eq. 9).

        `check` looks at the ids and for NaN, for which a GPU is waited for.
        """
        places = self._places(node_ids, check)
        if check:
            self._check_update(places, Y)
        if self.M.is_cuda and has_triton():
            from musegnn.ops.move_means.triton import move_means

            move_means(self.M, self.count, places, Y.detach().to(self.M.device).contiguous(), self.rho)
            return
        exact = torch.promote_types(self.M.dtype, torch.float32)
        count = self.count[places].to(exact)
        keep = (self.rho * count / (count + 1))[:, None]
        mean = torch.lerp(Y.detach().to(self.M.device, exact), self.M[places].to(exact), keep)
        self.M[places] = mean.to(self.M.dtype)
        self.count[places] += 1

    def _read(self, rows: Rows, places: Tensor) -> Tensor:
        found = np.empty((len(places), rows.row_bytes), dtype=np.uint8)
        rows.gather(places.numpy(), found)
        return torch.from_numpy(found).view(self.M.dtype)

    def _check_update(self, places: Tensor, Y: object) -> None:
        if not isinstance(Y, Tensor):
            raise InputError(f"Y must be a tensor, got {type(Y).__name__}. Take torch.as_tensor.")
        if Y.shape != (len(places), self.M.shape[1]):
            raise InputError(f"Y must have shape {(len(places), self.M.shape[1])}, got {tuple(Y.shape)}.")
        if len(torch.unique(places)) != len(places):
            raise InputError(
                "node_ids repeats a node: M would keep one of its embeddings and drop the others. "
                "Pass each node of a sample once."
            )
        if not bool(torch.isfinite(Y).all()):
            raise DivergenceError("Y has entries that are not finite, which would stay in M for good.")

    @property
    def shape(self) -> tuple[int, int]:
        """n and d."""
        return self.M.shape[0], self.M.shape[1]

    @property
    def device(self) -> torch.device:
        """Where M is computed with."""
        return self.M.device

    @property
    def place(self) -> Literal["device", "host", "disk"]:
        """Where M is."""
        return "disk" if isinstance(self.home, Path) else "device" if self.M.is_cuda else "host"

    def flush(self) -> None:
        """Wait until a mapped M is on the disk."""
        if isinstance(self.home, Path):
            for name in ("M.bin", "count.bin"):
                with (self.home / name).open("rb+") as file:
                    os.fsync(file.fileno())

    def extra_repr(self) -> str:
        """Sizes and home."""
        return f"num_nodes={len(self.M)}, dim={self.M.shape[1]}, rho={self.rho}, home={str(self.home)!r}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "MeanEmbeddings":
        """`.to(...)` moves M only if it lives on the device, and never changes its dtype."""
        if self.home == "device":
            device = fn(self.M[:0]).device
            self.M, self.count = self.M.to(device), self.count.to(device)
        return self

    def _places(self, node_ids: Ids, check: bool = True) -> Tensor:
        # A copy: the ids of a stored sample are read-only, which torch does not know.
        ids = torch.from_numpy(np.array(node_ids)) if isinstance(node_ids, np.ndarray) else node_ids
        if not isinstance(ids, Tensor) or ids.ndim != 1 or ids.dtype not in _INTEGERS:
            got = f"{ids.dtype}{list(ids.shape)}" if isinstance(ids, Tensor) else type(ids).__name__
            raise InputError(
                f"node_ids must be a one-dimensional tensor or array of whole numbers, got {got}."
            )
        ids = ids.to(self.M.device, torch.int64)
        if check and len(ids) and not (0 <= int(ids.min()) and int(ids.max()) < len(self.M)):
            raise InputError(
                f"node_ids must lie in 0..{len(self.M) - 1}, got {int(ids.min())} to {int(ids.max())}."
            )
        return ids


def _check_header(folder: Path, settings: dict[str, Any]) -> None:
    """What the files hold is written beside them, and must be what is asked for."""
    path = folder / "means.json"
    if not path.exists():
        with file_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise StoreError(f"{folder} holds other files. Choose an empty or a new folder for means.")
            path.write_text(json.dumps(settings))
    with file_errors(path):
        found = read_json(path)
    if found != settings:
        raise StoreError(
            f"{folder} holds other means, {found}, where {settings} are asked for. Choose another folder."
        )


def _mapped(path: Path, size: int, dtype: torch.dtype, *, is_random: bool = False) -> Tensor:
    """A tensor whose memory is a file: zeros if it is new, what it holds if it fits.

    With `is_random`, a page fault reads one page, not what lies around it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    num_bytes = size * dtype.itemsize
    if not path.exists():
        free = free_bytes(path)
        if num_bytes > free:
            raise StoreError(
                f"{path} will take {num_bytes / 1e9:.3g} GB, but {free / 1e9:.3g} GB are free. "
                "Free some space, or take dtype=torch.bfloat16."
            )
        # Not a hole: a full disk is an error now, where it would be a SIGBUS when the page is written.
        with file_errors(path), path.open("xb") as file:
            if num_bytes:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
    if path.stat().st_size != num_bytes:
        raise StoreError(
            f"{path} has {path.stat().st_size:,} bytes, but {num_bytes:,} are needed: "
            "it belongs to another run. Choose another folder."
        )
    if not size:
        return torch.zeros(0, dtype=dtype)
    with file_errors(path), path.open("rb+") as file:
        memory = mmap.mmap(file.fileno(), num_bytes)
    if is_random:
        memory.madvise(mmap.MADV_RANDOM)
    return torch.frombuffer(memory, dtype=dtype)
