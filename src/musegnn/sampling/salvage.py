"""What an earlier run has left: a part of the samples, or all of them with some damaged."""

import os
import shutil
import warnings
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from musegnn.errors import StoreError
from musegnn.progress import progress
from musegnn.sampling import layout
from musegnn.sampling.base import spell
from musegnn.sampling.plan import Plan
from musegnn.sampling.record import Sample
from musegnn.sampling.sample_store import KIND, SampleStore, shard_name
from musegnn.store import HEADER_NAME, FolderWriter, Header, Journal, file_errors, kind_of
from musegnn.store.arrays import ArraySpec, check_size, file_digest, map_array

_OVERWRITE = "pass overwrite=True (--overwrite) to draw all samples again"
_OTHER_VERSION = (
    "{folder}: its samples were drawn by another version of the sampler; they come out differently now. "
    f"Choose another folder, or {_OVERWRITE}."
)


def finished(folder: Path) -> Header | None:
    """The header of the complete sample store at `folder`, if there is one; of another kind there is none."""
    with file_errors(folder):
        if kind_of(folder) != KIND:
            return None
        try:
            return Header.read(folder / HEADER_NAME, KIND)
        except StoreError as error:
            raise StoreError(f"{error} To do that, {_OVERWRITE}.") from error


def check_plan(folder: Path, there: dict[str, Any], here: dict[str, Any]) -> None:
    """Refuse to go on with samples that were drawn in another way; both are attributes of a store."""
    differing = [name for name in here if there.get(name) != here[name]]
    if not differing:
        return
    name = differing[0]
    old, new = there.get(name), here[name]
    # With all else equal, the same splits have another size of shards only if samples have another size.
    if differing == ["splits"] and isinstance(old, dict) and list(old) == list(new):
        raise StoreError(_OTHER_VERSION.format(folder=folder))
    how = f"with {name} {_brief(old)}, not {_brief(new)}"
    if name == "graph":
        how = f"from another graph ({str(old)[:12]}, not {str(new)[:12]})"
    raise StoreError(f"{folder} was drawn {how}. Choose another folder, or {_OVERWRITE}.")


def _brief(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return spell(value) if isinstance(value.get("settings"), dict) and "name" in value else ", ".join(value)


def drop_damaged(journal: Journal, threads: int) -> None:
    """Forget what has changed on the disk since it was noted; it will be drawn again."""
    names = list(journal.entries)
    with progress("Checking what is there", len(names)) as advance, ThreadPoolExecutor(threads) as pool:
        for name, is_intact in zip(names, pool.map(journal.is_intact, names), strict=True):
            if not is_intact:
                journal.drop(name)
            advance(1)


def adopt_intact(folder: Path, header: Header, writer: FolderWriter, journal: Journal, threads: int) -> bool:
    """Take over the intact shards of a complete store; False if nothing in it is damaged."""
    damaged = _damaged(folder, header.arrays, threads)
    if not damaged:
        return False
    shown = ", ".join(f"{name}.bin" for name in damaged[:3]) + (", ..." if len(damaged) > 3 else "")
    warnings.warn(
        f"{folder}: {len(damaged)} of {len(header.arrays)} files are missing or damaged ({shown}); "
        "drawing them again.",
        stacklevel=3,
    )
    for name, entry in list(journal.entries.items()):
        if entry.spec != header.arrays.get(name):
            # Drawn again by a sampler that has changed, and refused.
            journal.drop(name)
    for split, plan in header.attributes["splits"].items():
        tables = [f"{split}_sizes", f"{split}_bounds"]
        specs = [header.arrays[table] for table in tables if table in header.arrays]
        shape = (plan["num_samples"], 4)
        is_usable = [(spec.dtype, spec.shape) for spec in specs] == [("<i8", shape), ("<f8", shape)]
        if set(tables) & set(damaged) or not is_usable:
            continue
        sizes, bounds = (map_array(folder / f"{table}.bin", header.arrays[table]) for table in tables)
        for number, begin in enumerate(range(0, plan["num_samples"], plan["shard_size"])):
            name, rows = shard_name(split, number), slice(begin, begin + plan["shard_size"])
            if name in header.arrays and name not in damaged and name not in journal.entries:
                _link(folder / f"{name}.bin", writer.path(name))
                facts = {"sizes": sizes[rows].tolist(), "bounds": bounds[rows].tolist()}
                journal.add(name, header.arrays[name], facts)
    return True


def check_store_alike(folder: Path, plan: Plan) -> SampleStore:
    """Open a complete store; the first sample of each split, drawn anew, must be the one that is there.

    It is not if the code of a sampler has changed, or a library it relies on.
    """
    store = SampleStore.open(folder)
    for split, first in plan.first.items():
        if not _is_same(first, store[split][0]):
            raise StoreError(_OTHER_VERSION.format(folder=folder))
    return store


def check_kept_alike(writer: FolderWriter, journal: Journal, plan: Plan) -> None:
    """As `check_store_alike`, of the first shard of each split that is there: no store is a mixture."""
    id_dtype = np.dtype(plan.attributes["id_dtype"])
    seen = set()
    for name, split, indices in plan.shards():
        if name not in journal.entries or split in seen:
            continue
        seen.add(split)
        entry = journal.entries[name]
        facts = entry.facts
        shard = map_array(writer.path(name), entry.spec)
        try:
            sizes, bounds = layout.Sizes(*facts["sizes"][0]), np.array(facts["bounds"][0])
            there = layout.read(shard, sizes, bounds, id_dtype)
        except (ValueError, OverflowError, LookupError, TypeError):
            # It does not even fit its shard.
            there = None
        if there is None or not _is_same(plan.draws[split][indices[0]], there):
            raise StoreError(_OTHER_VERSION.format(folder=writer.folder))


def drop_unlike(writer: FolderWriter, journal: Journal, plan: Plan) -> None:
    """As `check_kept_alike`, for one who overwrites: what comes out differently now is drawn anew."""
    try:
        check_kept_alike(writer, journal, plan)
    except StoreError:
        for name in list(journal.entries):
            journal.drop(name)


def check_redrawn(folder: Path, old: Mapping[str, ArraySpec], new: Mapping[str, ArraySpec]) -> None:
    """What was drawn again must have the bytes it had."""
    if any(new.get(name) != spec for name, spec in old.items()):
        raise StoreError(_OTHER_VERSION.format(folder=folder))


def _is_same(drawn: Sample, stored: Sample) -> bool:
    arrays = ("node_ids", "indptr", "indices", "bounds")
    return drawn.num_seeds == stored.num_seeds and all(
        np.array_equal(getattr(drawn, name), getattr(stored, name)) for name in arrays
    )


def _damaged(folder: Path, arrays: Mapping[str, ArraySpec], threads: int) -> list[str]:
    total = sum(spec.num_bytes for spec in arrays.values())
    with progress("Checking what is there", total, unit="B") as advance, ThreadPoolExecutor(threads) as pool:

        def is_damaged(item: tuple[str, ArraySpec]) -> bool:
            path, spec = folder / f"{item[0]}.bin", item[1]
            try:
                check_size(path, spec)
                return file_digest(path, advance, 1) != spec.digest
            except (StoreError, OSError):
                return True

        found = pool.map(is_damaged, arrays.items())
        return [name for name, bad in zip(arrays, found, strict=True) if bad]


def _link(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
