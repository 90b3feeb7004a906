"""Checkpoints: tensors in a safetensors file, everything else in JSON beside it; loading runs no code.

The JSON names the file and its digest and is moved into place last: what it says is complete.
"""

import json
import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from musegnn.errors import StoreError
from musegnn.progress import ignore
from musegnn.ranks import ALONE, Ranks
from musegnn.store import file_errors
from musegnn.store.arrays import file_digest
from musegnn.store.header import check_seal, checksum, read_json

FORMAT = "musegnn checkpoint"
VERSION = 1
KEPT = "The last complete checkpoint is kept; free some space, then go on with `muse train --resume`."


def save(
    folder: Path,
    name: str,
    tensors: dict[str, Tensor],
    facts: dict[str, Any],
    share: dict[str, Tensor] | None = None,
    ranks: Ranks = ALONE,
) -> None:
    """Write `<name>.json` and its tensors, whole or not at all; the one before is then removed.

    Of several ranks, the first writes it, and every one a file of its own with its `share` of M.
    """
    with file_errors(folder, KEPT):
        if ranks.is_first:
            folder.mkdir(exist_ok=True)
            # Of who was killed while it wrote; .tmp* are of safetensors.
            for stray in [*folder.glob(".tmp*"), *folder.glob("*.safetensors.partial")]:
                stray.unlink()
        # Nobody writes before that.
        ranks.gather(b"")
        own = [] if share is None else [_write(folder, f"{name}.{ranks.rank}", share)]
        shares = [file for files in ranks.gather_json(own) for file in files]
        if ranks.is_first:
            file, digest = _write(folder, name, tensors)
            body = {"format": FORMAT, "version": VERSION, "file": file, "digest": digest, "facts": facts}
            write_json(folder / f"{name}.json", {**body, **({"shares": shares} if shares else {})})
            kept = {file, *(one for one, _ in shares)}
            for old in [*folder.glob(f"{name}-*.safetensors"), *folder.glob(f"{name}.*-*.safetensors")]:
                if old.name not in kept:
                    old.unlink()
        # Whoever goes on may rely on it.
        ranks.gather(b"")


def _apart(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """As a file takes them: a weight that has two names is written twice."""
    made, known = dict[str, Tensor](), set[int]()
    for key, tensor in tensors.items():
        part = tensor.detach().cpu().contiguous()
        place = part.untyped_storage().data_ptr()
        made[key] = part.clone() if place in known else part
        known.add(place)
    return made


def _write(folder: Path, stem: str, tensors: dict[str, Tensor]) -> tuple[str, str]:
    """The name of the file, which ends in its digest, and the digest."""
    fresh = folder / f"{stem}.safetensors.partial"
    try:
        save_file(_apart(tensors), fresh)
        _sync(fresh)
        digest = file_digest(fresh, ignore, threads=1)
        final = folder / f"{stem}-{digest[:16]}.safetensors"
        fresh.rename(final)
        return final.name, digest
    except BaseException as error:
        fresh.unlink(missing_ok=True)
        # safetensors has an error of its own for what the system says, such as a full disk.
        told = re.search(r"os error (\d+)", str(error))
        if isinstance(error, SafetensorError) and told is not None:
            raise OSError(int(told[1]), str(error), str(folder)) from error
        raise


class Loaded(NamedTuple):
    """A checkpoint that was read at once: training may replace it meanwhile."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]
    digest: str
    shares: list[tuple[Path, str]]
    """Files with the rows of M of each rank that wrote it, if they were several, and their digests."""

    @property
    def num_ranks(self) -> int:
        """That wrote it."""
        return ranks_of(self.facts)


def load(folder: Path, name: str) -> Loaded:
    """A checkpoint, every byte compared with its digest."""
    body = _read(folder, name)
    path = folder / body.file
    with file_errors(path):
        try:
            tensors = _load_file(path, body.file_digest)
            shares = [(folder / file, digest) for file, digest in body.shares]
            return Loaded(tensors, body.facts, body.digest, shares)
        except FileNotFoundError:
            if digest_of(folder, name) == body.digest:
                raise
    return load(folder, name)


def load_share(path: Path, digest: str) -> dict[str, Tensor]:
    """The rows of M of one rank."""
    with file_errors(path):
        return _load_file(path, digest)


def ranks_of(facts: dict[str, Any]) -> int:
    """How many ranks wrote a checkpoint."""
    size = facts.get("ranks", 1)
    if type(size) is not int or size < 1:
        raise StoreError(f"The checkpoint is of {size!r} ranks, which cannot be. Train again.")
    return size


def _load_file(path: Path, digest: str) -> dict[str, Tensor]:
    try:
        if file_digest(path, ignore, threads=1) != digest:
            raise StoreError(f"{path} is damaged: its bytes do not have their digest. Train again.")
        return load_file(path)
    except SafetensorError as error:
        reason = " ".join(str(error).split())
        raise StoreError(f"{path} holds no tensors that can be read ({reason}). Train again.") from error


def facts_of(folder: Path, name: str) -> dict[str, Any]:
    """The facts alone."""
    return _read(folder, name).facts


def digest_of(folder: Path, name: str) -> str:
    """SHA-256 of all its tensors."""
    return _read(folder, name).digest


def exists(folder: Path, name: str) -> bool:
    """Whether there is such a checkpoint."""
    # A link to nowhere is no reason to begin anew.
    return os.path.lexists(folder / f"{name}.json")


def write_json(path: Path, body: dict[str, Any]) -> None:
    """An object with its checksum, whole or not at all."""
    fresh = path.with_name(path.name + ".partial")
    with file_errors(path, KEPT):
        try:
            with fresh.open("w", encoding="utf-8") as file:
                json.dump({**body, "checksum": checksum(body)}, file, indent=1)
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


class _Body(NamedTuple):
    """What the JSON says."""

    facts: dict[str, Any]
    file: str
    file_digest: str
    shares: list[list[str]]

    @property
    def digest(self) -> str:
        digests = [digest for _, digest in self.shares]
        return checksum({"file": self.file_digest, "shares": digests}) if digests else self.file_digest


def _read(folder: Path, name: str) -> _Body:
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
    check_seal(body, path, "Train again.")
    facts, shares = body.get("facts"), body.get("shares", [])
    if not isinstance(facts, dict) or not isinstance(shares, list):
        raise StoreError(f"{path} is not a valid checkpoint. Train again.")
    main = [body.get("file"), body.get("digest")]
    stems = [name, *(f"{name}.{rank}" for rank in range(len(shares)))]
    # No other files: a name could lead out of the folder.
    if not all(_is_named(stem, one) for stem, one in zip(stems, [main, *shares], strict=True)):
        raise StoreError(f"{path} is not a valid checkpoint. Train again.")
    return _Body(facts, str(main[0]), str(main[1]), shares)


def _is_named(stem: str, file: Any) -> bool:
    """Whether a file has the name that goes with its digest."""
    is_pair = isinstance(file, list) and len(file) == 2 and all(isinstance(part, str) for part in file)
    return is_pair and file[0] == f"{stem}-{file[1][:16]}.safetensors"


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
