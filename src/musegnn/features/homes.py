"""Where features lie: one interface, five homes, and the choice among them."""

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Integer, Shaped
from torch import Tensor

from musegnn.errors import InputError, StoreError
from musegnn.features.hot import HotRows, appearances, most_read
from musegnn.features.packed import Pack, PackedRows, pack_folder
from musegnn.features.packing import num_hot_rows
from musegnn.graph import Graph
from musegnn.memory import SHARE, free_memory, size
from musegnn.progress import progress
from musegnn.sampling import SampleStore
from musegnn.store.rows import Rows, is_mapped

Home = Literal["auto", "gpu", "ram", "mapped", "cached", "packed"]
Place = Literal["gpu", "ram", "mapped", "cached", "packed"]
_BLOCK = 1 << 28

ReadCold = Callable[[str | None, int, np.ndarray, np.ndarray], None]
"""Split, number, nodes and where their rows go: reads rows that are not held in memory."""


class Features:
    """Rows of the features, by their nodes.

    Args:
        table: All of them, mapped or not.
        home: "gpu": all rows are copied there once. "ram": into memory. "mapped": rows are read where they
            lie. "cached", "packed": `hot` rows are in memory, the others are read by `read_cold`.
        device: Where the model is.
        hot: Rows in memory; none if not given.
        read_cold: How the others are read; from the table if not given.
        about: A few words more for whoever wants to know.
    """

    def __init__(
        self,
        table: Shaped[np.ndarray, "nodes in_dim"],
        home: Place,
        device: torch.device,
        *,
        hot: HotRows | None = None,
        read_cold: ReadCold | None = None,
        about: str = "",
    ) -> None:
        if home == "gpu" and device.type == "cpu":
            raise InputError(
                "features_home=gpu needs a GPU, got device=cpu. Take ram, mapped, cached, packed or auto."
            )
        self.home, self.device, self.about = home, device, about
        self._shape, self._table_dtype, self._dtype = table.shape, table.dtype, _torch_dtype(table)
        self._on_gpu: Tensor | None = None
        self._hot = hot
        if home == "gpu":
            self._on_gpu = _copied(table, torch.empty(table.shape, dtype=self._dtype, device=device))
        elif home == "ram":
            table = _copied(table, torch.empty(table.shape, dtype=self._dtype)).numpy()
        rows = Rows(table)
        self._read_cold = read_cold or (lambda split, index, node_ids, out: rows.gather(node_ids, out))

    def read(self, split: str | None, index: int, node_ids: Integer[np.ndarray, " nodes"]) -> Tensor | None:
        """Rows of a sample as they are stored, in memory that the device can read; None if it has them.

        The sample is number `index` of the stored ones of `split`, or has no number if `split` is None.
        """
        if self._on_gpu is not None:
            return None
        shape = len(node_ids), self._shape[1]
        if self.device.type == "cuda":
            rows = torch.empty(shape, dtype=self._dtype, pin_memory=True)
        else:
            # torch asks for aligned blocks, which the C library does not use again: memory would grow.
            rows = torch.from_numpy(np.empty(shape, self._table_dtype))
        if self._hot is None:
            self._read_cold(split, index, node_ids, rows.numpy())
        else:
            cold = lambda ids, out: self._read_cold(split, index, ids, out)  # noqa: E731
            self._hot.fill(node_ids, rows.numpy(), cold)
        return rows

    def rows(self, read: Tensor | None, node_ids: Integer[Tensor, " nodes"]) -> Float[Tensor, "nodes in_dim"]:
        """The same rows on the device, in float32."""
        if read is None:
            assert self._on_gpu is not None
            return self._on_gpu[node_ids].float()
        return read.to(self.device, non_blocking=True).float()


def open_features(
    graph: Graph,
    store: SampleStore,
    home: Home,
    device: torch.device,
    *,
    reads: Mapping[str, int],
    cache: float | None = None,
    pack: str | Path | None = None,
    is_online: bool = False,
) -> Features:
    """The features of a graph for training on stored samples.

    Args:
        graph: With features.
        store: The samples.
        home: As asked for; "auto" chooses from the memory there is and from whether there is a pack.
        device: Where the model is.
        reads: How often each sample of a split will be read, which decides what is worth caching.
        cache: Bytes of the rows held in memory, or up to 1 their share; None: what memory has room for.
        pack: Its folder; beside the samples if not given.
        is_online: Whether training draws its own samples, of which no pack can know.
    """
    assert graph.features is not None
    table, folder = graph.features, pack_folder(store) if not pack else Path(pack)
    if home == "packed":
        if is_online:
            raise InputError(
                "features_home=packed needs stored samples, but online=true draws others in each epoch. "
                "Take cached, mapped or auto."
            )
        if not folder.exists():
            raise StoreError(
                f"{folder} does not exist. Write it with `muse pack {store.stored.folder} --graph GRAPH`."
            )
        return _packed(table, Pack.open(folder, graph=graph, store=store), device)
    if home == "auto":
        found = None if is_online else _fitting_pack(folder, graph, store)
        home = choose_home(table, device, has_pack=found is not None)
        if home == "packed" and found is not None:
            return _packed(table, found, device)
    if home == "cached":
        return _cached(table, store, device, reads, cache)
    return Features(table, home, device)


def choose_home(table: np.ndarray, device: torch.device, *, has_pack: bool = False) -> Place:
    """The first place with room. Without a GPU a file that fits in memory stays where it is."""
    if device.type == "cuda" and fits(table.nbytes, device):
        return "gpu"
    if table.nbytes <= SHARE * free_memory() or not is_mapped(table):
        return "ram" if device.type == "cuda" else "mapped"
    return "packed" if has_pack else "cached"


def fits(num_bytes: int, device: torch.device) -> bool:
    """Whether so much may be kept on a GPU."""
    return device.type != "cuda" or num_bytes <= SHARE * torch.cuda.mem_get_info(device)[0]


def _cached(
    table: np.ndarray, store: SampleStore, device: torch.device, reads: Mapping[str, int], cache: float | None
) -> Features:
    rows = Rows(table)
    counts = appearances(store, len(table), reads)
    nodes = most_read(counts, num_hot_rows(cache, rows))
    share = float(counts[nodes].sum(dtype=np.float64) / max(1.0, counts.sum(dtype=np.float64)))
    del counts
    held = np.empty((len(nodes), table.shape[1]), table.dtype)
    step = max(1, _BLOCK // max(1, rows.row_bytes))
    with progress("Reading hot rows", len(held), unit="rows") as advance:
        for begin in range(0, len(held), step):
            here = slice(begin, begin + step)
            rows.gather(nodes[here], held[here])
            advance(len(held[here]))
    return Features(
        table,
        "cached",
        device,
        hot=HotRows(len(table), nodes, held),
        about=f"{size(held.nbytes)} of {size(table.nbytes)} in memory, {share:.0%} of the reads",
    )


def _packed(table: np.ndarray, pack: Pack, device: torch.device) -> Features:
    held = np.array(pack.hot_rows)
    packed = PackedRows(pack, Rows(table))
    total = sum(pack.num_rows(split) for split in pack.splits) * table.shape[1] * table.itemsize
    return Features(
        table,
        "packed",
        device,
        hot=HotRows(len(table), pack.hot, held),
        read_cold=packed.read,
        about=f"{size(held.nbytes)} of {size(table.nbytes)} in memory, {size(total)} packed",
    )


def _fitting_pack(folder: Path, graph: Graph, store: SampleStore) -> Pack | None:
    """The pack at `folder`, if there is one, it is of these samples, and memory has room for its hot rows."""
    if not folder.exists():
        return None
    try:
        pack = Pack.open(folder, graph=graph, store=store)
    except StoreError as error:
        warnings.warn(f"{error} It is not used.", stacklevel=2)
        return None
    return pack if pack.hot_rows.nbytes <= SHARE * free_memory() else None


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
