"""Checkpoints: tensors in a safetensors file, everything else in JSON beside it; loading runs no code.

The JSON names the file and its digest and is moved into place last: what it says is complete.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from musegnn.errors import StoreError
from musegnn.progress import ignore
from musegnn.store import file_errors
from musegnn.store.arrays import file_digest
from musegnn.store.header import checksum, read_json

FORMAT = "musegnn checkpoint"
VERSION = 1
KEPT = "The last complete checkpoint is kept; free some space, then go on with `muse train --resume`."


def save(folder: Path, name: str, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write `<name>.json` and its tensors, whole or not at all; the one before is then removed."""
    with file_errors(folder, KEPT):
        folder.mkdir(exist_ok=True)
        for stray in folder.glob(".tmp*"):
            # Of safetensors, if it was killed while it wrote.
            stray.unlink()
        fresh = folder / f"{name}.safetensors.partial"
        try:
            save_file({key: tensor.detach().cpu().contiguous() for key, tensor in tensors.items()}, fresh)
            _sync(fresh)
            digest = file_digest(fresh, ignore, threads=1)
            final = folder / f"{name}-{digest[:16]}.safetensors"
            fresh.rename(final)
        except BaseException as error:
            fresh.unlink(missing_ok=True)
            # safetensors has an error of its own for what the system says, such as a full disk.
            told = re.search(r"os error (\d+)", str(error))
            if type(error).__name__ == "SafetensorError" and told is not None:
                raise OSError(int(told[1]), str(error), str(folder)) from error
            raise
        body = {"format": FORMAT, "version": VERSION, "file": final.name, "digest": digest, "facts": facts}
        write_json(folder / f"{name}.json", {**body, "checksum": checksum(body)})
        for old in folder.glob(f"{name}-*.safetensors"):
            if old != final:
                old.unlink()


def load(folder: Path, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and facts of a checkpoint, every byte compared with its digest."""
    facts, digest, path = _read(folder, name)
    with file_errors(path):
        if file_digest(path, ignore, threads=1) != digest:
            raise StoreError(f"{path} is damaged: its bytes do not have their digest. Train again.")
        return load_file(path), facts


def facts_of(folder: Path, name: str) -> dict[str, Any]:
    """The facts alone."""
    return _read(folder, name)[0]


def digest_of(folder: Path, name: str) -> str:
    """SHA-256 of the tensors' file."""
    return _read(folder, name)[1]


def exists(folder: Path, name: str) -> bool:
    """Whether there is such a checkpoint."""
    return (folder / f"{name}.json").exists()


def write_json(path: Path, body: dict[str, Any]) -> None:
    """An object, whole or not at all."""
    fresh = path.with_name(path.name + ".partial")
    with file_errors(path, KEPT):
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump(body, file, indent=1)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.rename(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        _sync(path.parent)


def finite(value: Any) -> Any:
    """Infinity and NaN are no JSON: null in their place."""
    if isinstance(value, dict):
        return {name: finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _read(folder: Path, name: str) -> tuple[dict[str, Any], str, Path]:
    path = folder / f"{name}.json"
    with file_errors(path):
        if not path.is_file():
            raise StoreError(
                f"{folder} has no checkpoint {name!r}. Pass the folder of a run, or train again."
            )
        body = read_json(path)
    if body.get("format") != FORMAT:
        raise StoreError(f"{path} is not a checkpoint of musegnn. Pass the folder of a run.")
    if body.get("version") != VERSION:
        raise StoreError(
            f"{path} has format version {body.get('version')!r}, this musegnn reads version {VERSION}. "
            "Train again with this version, or go on with the version that wrote it."
        )
    found = body.pop("checksum", None)
    if found != checksum(body):
        raise StoreError(f"{path} was changed after it was written: its checksum does not fit. Train again.")
    return body["facts"], body["digest"], folder / body["file"]


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
