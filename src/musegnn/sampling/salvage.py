"""What an earlier run has left: a part of the samples, or all of them with some damaged."""

import os
import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from musegnn.errors import StoreError
from musegnn.progress import progress
from musegnn.sampling import layout
from musegnn.sampling.base import spell
from musegnn.sampling.plan import Plan
from musegnn.sampling.sample_store import KIND, shard_name
from musegnn.store import HEADER_NAME, FolderWriter, Header, Journal, file_errors, kind_of
from musegnn.store.arrays import ArraySpec, check_size, file_digest, map_array

_OVERWRITE = "pass overwrite=True (--overwrite) to draw all samples again"


def finished(folder: Path) -> Header | None:
    """The header of the complete sample store at `folder`, if there is one; of another kind there is none."""
    with file_errors(folder):
        if kind_of(folder) != KIND:
            return None
        try:
            return Header.read(folder / HEADER_NAME, KIND)
        except StoreError as error:
            raise StoreError(
                f"{str(error).removesuffix(' Write the store again.')} To mend it, {_OVERWRITE}."
            ) from error


def check_plan(folder: Path, header: Header, attributes: dict[str, Any]) -> None:
    """Refuse to go on with samples that were drawn in another way."""
    differing = [name for name in attributes if header.attributes.get(name) != attributes[name]]
    if not differing:
        return
    there, here = (facts.get(differing[0]) for facts in (header.attributes, attributes))
    how = f"with {differing[0]} {_brief(there)}, not {_brief(here)}"
    if differing[0] == "graph":
        how = f"from another graph ({str(there)[:12]}, not {str(here)[:12]})"
    raise StoreError(f"{folder} was drawn {how}. Choose another folder, or {_OVERWRITE}.")


def _brief(value: Any) -> str:
    if isinstance(value, dict):
        return spell(value) if value.keys() == {"name", "settings"} else ", ".join(value)
    return str(value)


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
    damaged = _damaged(folder, header, threads)
    if not damaged:
        return False
    shown = ", ".join(f"{name}.bin" for name in damaged[:3]) + (", ..." if len(damaged) > 3 else "")
    warnings.warn(
        f"{folder}: {len(damaged)} of {len(header.arrays)} files are missing or damaged ({shown}); "
        "drawing them again.",
        stacklevel=3,
    )
    for split, plan in header.attributes["splits"].items():
        tables = [f"{split}_sizes", f"{split}_bounds"]
        if set(tables) & set(damaged):
            continue
        sizes, bounds = (map_array(folder / f"{name}.bin", header.arrays[name]) for name in tables)
        for number, begin in enumerate(range(0, plan["num_samples"], plan["shard_size"])):
            name, rows = shard_name(split, number), slice(begin, begin + plan["shard_size"])
            if name in damaged or name in journal.entries:
                continue
            _link(folder / f"{name}.bin", writer.path(name))
            facts = {"sizes": sizes[rows].tolist(), "bounds": bounds[rows].tolist()}
            journal.add(name, header.arrays[name], facts)
    return True


def check_drawn_alike(writer: FolderWriter, journal: Journal, plan: Plan, *, overwrite: bool) -> None:
    """The first sample of each split, drawn anew, must be the one that is there.

    It is not if the code of a sampler has changed, or a library it relies on: the store would be a mixture.
    """
    for split, first in plan.first.items():
        name = shard_name(split, 0)
        if name not in journal.entries:
            continue
        expected = np.concatenate(layout.parts(first))
        there = map_array(writer.path(name), journal.entries[name].spec)[: len(expected)]
        if np.array_equal(expected, there):
            continue
        if not overwrite:
            raise StoreError(
                f"{writer.folder}: its samples were drawn by another version of the sampler; the first of "
                f"{split} comes out differently now. Choose another folder, or {_OVERWRITE}."
            )
        for name in list(journal.entries):
            journal.drop(name)


def check_redrawn(header: Header, journal: Journal) -> None:
    """A shard that was drawn again must have the bytes it had."""
    for name, entry in journal.entries.items():
        if entry.spec.digest != header.arrays[name].digest:
            raise StoreError(
                f"{name}.bin came out differently than before. To draw a new store, {_OVERWRITE}."
            )


def _damaged(folder: Path, header: Header, threads: int) -> list[str]:
    total = sum(spec.num_bytes for spec in header.arrays.values())
    with progress("Checking what is there", total, unit="B") as advance, ThreadPoolExecutor(threads) as pool:

        def is_damaged(item: tuple[str, ArraySpec]) -> bool:
            path, spec = folder / f"{item[0]}.bin", item[1]
            try:
                check_size(path, spec)
            except StoreError:
                return True
            return file_digest(path, advance, 1) != spec.digest

        found = pool.map(is_damaged, header.arrays.items())
        return [name for name, bad in zip(header.arrays, found, strict=True) if bad]


def _link(source: Path, target: Path) -> None:
    """The same file under another name; a copy where the file system has no links."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
        with target.open("rb") as file:
            os.fsync(file.fileno())
