"""M in shares: rank r of N has the rows of the nodes v with v mod N = r, as its rows v div N.

Memory for M falls as ranks are added. All ranks ask at the same time, each for the nodes of its own sample,
and all update at the same time; what a node is told by several ranks, it is told in the order of the ranks.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64, Integer
from torch import Tensor

from musegnn.means.embeddings import Ids, MeanEmbeddings
from musegnn.ranks import Ranks

NodeIds = Integer[np.ndarray, " nodes"]
Note = Callable[[Int64[np.ndarray, " nodes"]], None]
"""Told of the rows that an update is about to change."""


@dataclass(frozen=True, eq=False)
class Request:
    """Who was asked for what."""

    order: Int64[np.ndarray, " nodes"]
    """The nodes, by their owners."""
    send: Int64[np.ndarray, " ranks"]
    receive: Int64[np.ndarray, " ranks"]
    wanted: Int64[np.ndarray, " asked"]
    """The rows that this rank is asked for, rank by rank."""

    @property
    def splits(self) -> Int64[np.ndarray, " bounds"]:
        """Where the rows of the next rank begin."""
        return np.cumsum(self.receive)[:-1]


class ShardedMeans:
    """M of all ranks, seen from one of them. Every call is answered by all ranks together."""

    def __init__(self, own: MeanEmbeddings, num_nodes: int, ranks: Ranks) -> None:
        self.own, self.num_nodes, self.ranks = own, num_nodes, ranks

    @staticmethod
    def num_own(num_nodes: int, ranks: Ranks) -> int:
        """How many rows a rank has."""
        return len(range(ranks.rank, num_nodes, ranks.size))

    def ask(self, node_ids: NodeIds) -> Request:
        """For the rows of these nodes: their owners are told which."""
        ids = node_ids.astype(np.int64)
        owners = ids % self.ranks.size
        order = np.argsort(owners, kind="stable")
        send = np.bincount(owners, minlength=self.ranks.size).astype(np.int64)
        receive = self.ranks.gather_numbers(send)[:, self.ranks.rank]
        places = torch.from_numpy(ids[order] // self.ranks.size)
        wanted = self.ranks.exchange(places, send, receive).numpy()
        return Request(order, send, receive, wanted)

    def gather(self, request: Request, device: torch.device | None = None) -> Float[Tensor, "nodes dim"]:
        """mu, in the order that was asked for."""
        return self._fetch(request, self.own.gather(request.wanted, check=False)).to(device)

    def seen(self, request: Request, device: torch.device | None = None) -> Bool[Tensor, " nodes"]:
        """Which of the nodes have had an embedding."""
        flags = self.own.seen(request.wanted, check=False)[:, None].to(torch.uint8)
        return self._fetch(request, flags)[:, 0].bool().to(device)

    @torch.no_grad()
    def update(self, request: Request, Y: Float[Tensor, "nodes dim"], note: Note | None = None) -> None:
        """Move the means of the nodes that were asked for towards Y, rank by rank (eq. 9)."""
        order = torch.from_numpy(request.order).to(Y.device)
        # As M is computed with; a rank without a sample must send of the same kind.
        exact = torch.promote_types(self.own.M.dtype, torch.float32)
        rows = Y.detach()[order].to(self.own.M.device, exact)
        got = self.ranks.exchange(rows, request.send, request.receive)
        for places, part in zip(
            np.split(request.wanted, request.splits), got.split(request.receive.tolist()), strict=True
        ):
            if note is not None:
                note(places)
            # On a GPU nobody waits for a look at Y: the step's outcome tells.
            self.own.update(places, part, check=not part.is_cuda)

    @property
    def home(self) -> Literal["device", "host"] | Path:
        """Where the own rows are."""
        return self.own.home

    @property
    def shape(self) -> tuple[int, int]:
        """n and d, of all ranks."""
        return self.num_nodes, self.own.shape[1]

    @property
    def place(self) -> Literal["device", "host", "disk"]:
        """Where the own rows are, in a word."""
        return self.own.place

    def flush(self) -> None:
        """Wait until mapped rows are on the disk."""
        self.own.flush()

    def _fetch(self, request: Request, rows: Tensor) -> Tensor:
        got = self.ranks.exchange(rows, request.receive, request.send)
        out = torch.empty_like(got)
        out[torch.from_numpy(request.order).to(got.device)] = got
        return out


class MappedShares:
    """All shares of a mapped M, to be read by whoever has the files; there is nobody to ask."""

    def __init__(self, parts: Sequence[MeanEmbeddings]) -> None:
        self.parts = list(parts)
        self.home, self.rho, self.device = parts[0].home, parts[0].rho, torch.device("cpu")

    @property
    def shape(self) -> tuple[int, int]:
        """n and d."""
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    def gather(
        self, node_ids: Ids, device: torch.device | str | None = None, *, check: bool = True
    ) -> Float[Tensor, "nodes dim"]:
        """As `MeanEmbeddings.gather`."""
        return self._fetch(lambda part, places: part.gather(places, check=check), node_ids).to(device)

    def seen(
        self, node_ids: Ids, device: torch.device | str | None = None, *, check: bool = True
    ) -> Bool[Tensor, " nodes"]:
        """As `MeanEmbeddings.seen`."""
        return self._fetch(lambda part, places: part.seen(places, check=check), node_ids).to(device)

    def _fetch(self, read: Callable[[MeanEmbeddings, Tensor], Tensor], node_ids: Ids) -> Tensor:
        ids, size = torch.as_tensor(np.array(node_ids), dtype=torch.int64), len(self.parts)
        found = [read(part, ids[ids % size == rank] // size) for rank, part in enumerate(self.parts)]
        out = found[0].new_empty((len(ids), *found[0].shape[1:]))
        for rank, rows in enumerate(found):
            out[ids % size == rank] = rows
        return out


Movable = MeanEmbeddings | ShardedMeans
Means = Movable | MappedShares


@torch.no_grad()
def copy_share(
    own: MeanEmbeddings,
    to: tuple[int, int],
    M: Float[Tensor, "share dim"],
    count: Integer[Tensor, " share"],
    of: tuple[int, int],
    block: int = 1 << 20,
) -> None:
    """From share r of N, `of`, what belongs to a share of another N, `to`; blockwise, for mapped files."""
    (rank, size), (first, stride) = to, of
    for begin in range(0, len(M), block):
        ids = first + stride * torch.arange(begin, min(begin + block, len(M)))
        mine = ids % size == rank
        places, rows = ids[mine] // size, begin + mine.nonzero()[:, 0]
        own.M[places.to(own.M.device)] = M[rows].to(own.M.device, own.M.dtype)
        own.count[places.to(own.M.device)] = count[rows].to(own.M.device)
