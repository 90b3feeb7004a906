"""A pack: for each stored sample its rows, one after the other, so that a sample is one read.

Rows that many samples share are hot: they stand in the pack once and are held in memory.
"""

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Integer, Shaped

from musegnn.errors import StoreError
from musegnn.graph import Graph
from musegnn.sampling import SampleStore
from musegnn.sampling.draws import check_split
from musegnn.sampling.sample_store import shard_name
from musegnn.store import ArraySpec, StoredFolder, digest_array
from musegnn.store.rows import Rows, as_bytes, read_into

KIND = "pack"
HOT, HOT_ROWS = "hot", "hot_rows"
_SHARD = re.compile(r"_shard_\d{6,}$")


def pack_folder(store: SampleStore) -> Path:
    """Where the pack of a sample store is looked for: beside it."""
    folder = store.stored.folder
    return folder.parent / (folder.name + ".pack")


def features_digest(graph: Graph) -> str:
    """Of the features alone; those of an unsaved graph are hashed."""
    assert graph.features is not None
    stored = graph.stored
    if stored is not None and stored.arrays.get("features") is graph.features:
        return stored.header.arrays["features"].digest
    return digest_array(graph.features)


def word_sum(rows: np.ndarray) -> int:
    """The sum of the 64-bit words of some rows, modulo 2^64; a last word is filled up with zeros.

    Computed at the speed of memory: a pack is compared with it at each read. `verify` compares SHA-256.
    """
    data = rows.reshape(-1).view(np.uint8)
    whole = len(data) // 8 * 8
    last = int.from_bytes(data[whole:].tobytes(), "little")
    return (int(data[:whole].view("<u8").sum(dtype=np.uint64)) + last) % (1 << 64)


class Pack:
    """An opened pack: the hot rows, and the other rows of each sample."""

    def __init__(self, stored: StoredFolder) -> None:
        self.stored = stored
        attributes = stored.header.attributes
        self.features: str = attributes["features"]
        """The digest of the features that were packed."""
        self.samples: str = attributes["samples"]
        """The digest of the sample store."""
        self.num_nodes: int = attributes["num_nodes"]
        self.splits: dict[str, dict[str, int]] = attributes["splits"]
        self.hot: Integer[np.ndarray, " hot"] = stored.arrays[HOT].view(np.ndarray)
        """The nodes whose rows are hot, ascending."""
        self._places = {split: stored.arrays[f"{split}_places"].view(np.ndarray) for split in self.splits}

    @classmethod
    def open(
        cls, folder: str | Path, *, graph: Graph | None = None, store: SampleStore | None = None
    ) -> "Pack":
        """Open a pack; with `graph` and `store`, one of other features or samples is refused.

        All but the rows of the samples is compared with its digest.
        """
        stored = StoredFolder(Path(folder), KIND, maps=lambda name: _SHARD.search(name) is None)
        try:
            is_consistent = _is_consistent(stored)
        except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
            raise StoreError(f"{stored.folder} is not a valid pack ({error!r}). {_AGAIN}") from error
        if not is_consistent:
            raise StoreError(f"{stored.folder} is damaged: its parts do not fit each other. {_AGAIN}")
        stored.verify(stored.arrays.keys(), shown=False)
        pack = cls(stored)
        for what, was, now in (
            ("samples", pack.samples, pack.samples if store is None else store.digest),
            ("features", pack.features, pack.features if graph is None else features_digest(graph)),
        ):
            if was != now:
                raise StoreError(
                    f"{stored.folder} was packed from other {what} ({was[:12]}, not {now[:12]}). {_AGAIN}"
                )
        return pack

    def verify(self) -> None:
        """Compare every byte with the digests in the header."""
        self.stored.verify()

    @property
    def hot_rows(self) -> Shaped[np.ndarray, "hot in_dim"]:
        """The hot rows, mapped."""
        return self.stored.arrays[HOT_ROWS].view(np.ndarray)

    def num_rows(self, split: str) -> int:
        """Rows of the samples of a split, hot ones left out."""
        return int(self._places[split][:, 1].sum())

    def read(self, split: str, index: int, out: Shaped[np.ndarray, "rows in_dim"]) -> None:
        """out <- the rows of a sample, in the order of its nodes, hot ones left out."""
        first, count, expected = self._places[split][index].tolist()
        name = shard_name(split, index // self.splits[split]["shard_size"])
        path, spec = self.stored.path(name), self.stored.header.arrays[name]
        if count != len(out) or first + count > spec.shape[0]:
            raise StoreError(f"{self.stored.folder}: sample {index} of {split} does not fit. {_AGAIN}")
        if not out.nbytes:
            return
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened: {error.strerror}. {_AGAIN}") from error
        total, view, offset = 0, as_bytes(out), first * (out.nbytes // len(out))
        try:
            # The kernel reads ahead by itself; hints, O_DIRECT and several threads were slower. What has come
            # is added up while it does, and while it is in the processor's cache.
            for begin in range(0, len(view), _BLOCK):
                block = view[begin : begin + _BLOCK]
                read_into(file, block, offset + begin, path)
                total += word_sum(np.frombuffer(block, dtype=np.uint8))
        finally:
            os.close(file)
        if total % (1 << 64) != expected:
            raise StoreError(f"{path} is damaged: sample {index} of {split} is not what was packed. {_AGAIN}")


class PackedRows:
    """Rows of samples from a pack; of samples that are not in it, from the file of the features."""

    def __init__(self, pack: Pack, rows: Rows) -> None:
        self.pack, self.rows = pack, rows

    def read(self, split: str | None, index: int, node_ids: np.ndarray, out: np.ndarray) -> None:
        """out[i] <- row of the i-th of the cold nodes of a sample."""
        if split is None or split not in self.pack.splits:
            self.rows.gather(node_ids, out)
        else:
            self.pack.read(split, index, out)


_BLOCK = 1 << 21
"""Bytes that are read at a time; whole words."""
_AGAIN = "Write it again with `muse pack --overwrite`."


def _is_consistent(stored: StoredFolder) -> bool:
    """Numbers are in range, tables and shards are there and have their shapes; hot nodes ascend."""
    attributes, arrays = stored.header.attributes, stored.header.arrays
    num_nodes, hot, rows = attributes["num_nodes"], stored.arrays[HOT], arrays[HOT_ROWS]
    return (
        _is_number(num_nodes, 1)
        and _is_number(attributes["num_hot"], 0)
        and isinstance(attributes["features"], str)
        and isinstance(attributes["samples"], str)
        and arrays[HOT].dtype in ("<i4", "<i8")
        and hot.ndim == 1
        and len(rows.shape) == 2
        and rows.shape[0] == len(hot)
        and (not len(hot) or (0 <= int(hot[0]) and int(hot[-1]) < num_nodes))
        and bool((hot[1:] > hot[:-1]).all())
        and all(_has_parts(arrays, check_split(split), plan) for split, plan in attributes["splits"].items())
    )


def _has_parts(arrays: dict[str, ArraySpec], split: str, plan: dict[str, Any]) -> bool:
    num_samples, shard_size = plan["num_samples"], plan["shard_size"]
    if not (_is_number(shard_size, 1) and _is_number(num_samples, 1)):
        return False
    if num_samples > len(arrays) * shard_size:
        return False
    places, rows = arrays[f"{split}_places"], arrays[HOT_ROWS]
    shards = [arrays[shard_name(split, number)] for number in range(-(-num_samples // shard_size))]
    return (places.dtype, places.shape) == ("<u8", (num_samples, 3)) and all(
        shard.dtype == rows.dtype and shard.shape[1:] == rows.shape[1:] for shard in shards
    )


def _is_number(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 1 << 62
