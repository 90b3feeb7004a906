"""The JSON header of a store: what the arrays beside it are, where they came from, and its own checksum."""

import hashlib
import json
import re
import stat
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path
from typing import Any

from musegnn.errors import StoreError
from musegnn.store.arrays import DTYPES, ArraySpec

HEADER_NAME = "header.json"
FORMAT_VERSION = 1
MAX_HEADER_BYTES = 1 << 26
"""A header is read into memory whole; one above this size is not ours."""
MAX_DIMENSIONS = 32
MAX_BYTES = 1 << 62
"""What every NumPy can hold, empty arrays included: it refuses the shape (0, 2**70)."""

_ARRAY_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Header:
    """Everything a store says about itself besides the values."""

    kind: str
    """What the folder holds: "graph" or "samples"."""
    attributes: dict[str, Any]
    """Facts that are no arrays (sizes, names), as JSON; they belong to the content."""
    arrays: dict[str, ArraySpec]
    """Array name -> its file's description; the file is called `<name>.bin`."""
    provenance: dict[str, Any]
    """Source, command, version, time: says where the content came from and is no part of it."""

    @property
    def digest(self) -> str:
        """SHA-256 of the content: equal for equal data, whoever wrote it and when."""
        content = {
            "kind": self.kind,
            "version": FORMAT_VERSION,
            "attributes": self.attributes,
            "arrays": {name: asdict(spec) for name, spec in self.arrays.items()},
        }
        return checksum(content)

    def to_json(self) -> str:
        """The text of `header.json`."""
        body = {
            "format": f"musegnn {self.kind}",
            "version": FORMAT_VERSION,
            "attributes": self.attributes,
            "arrays": {name: asdict(spec) for name, spec in self.arrays.items()},
            "provenance": self.provenance,
        }
        # In ASCII: a path or an argument that is no UTF-8 holds surrogates, which no file can.
        return json.dumps({**body, "checksum": checksum(body)}, indent=1) + "\n"

    @classmethod
    def read(cls, path: Path, kind: str) -> "Header":
        """Read and check a header; another format, version or a changed byte is refused."""
        body = read_json(path)
        if body.get("format") != f"musegnn {kind}":
            raise StoreError(
                f"{path} is not the header of a musegnn {kind} store: "
                f"its format is {body.get('format')!r}. Pass the folder of a {kind} store."
            )
        if body.get("version") != FORMAT_VERSION:
            raise StoreError(
                f"{path} has format version {body.get('version')!r}, this musegnn reads version "
                f"{FORMAT_VERSION}. Write the store again with this version."
            )
        check_seal(body, path, _AGAIN)
        try:
            arrays = {name: array_spec(name, spec) for name, spec in body["arrays"].items()}
            attributes, provenance = dict(body["attributes"]), dict(body["provenance"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{path} is not a valid header ({error}). {_AGAIN}") from error
        return cls(kind=kind, attributes=attributes, arrays=arrays, provenance=provenance)


_AGAIN = "Write the store again."


def read_json(path: Path, what: str = "header", again: str = _AGAIN) -> dict[str, Any]:
    """An object from a file that may hold anything; what it should be, and what to do if it is not."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{path} is not a regular file. {again}")
    if status.st_size > MAX_HEADER_BYTES:
        raise StoreError(f"{path} is larger than {MAX_HEADER_BYTES:,} bytes: not a {what}. {again}")
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{path} is not a valid {what} ({error}). {again}") from error
    if not isinstance(body, dict):
        raise StoreError(f"{path} is not a valid {what} (a JSON object is expected). {again}")
    return body


def array_spec(name: str, body: Any) -> ArraySpec:
    """The description of one array from JSON; a ValueError says what is wrong with it."""
    dtype, shape, digest = body["dtype"], body["shape"], body["digest"]
    is_shape = isinstance(shape, list) and shape and all(type(size) is int and size >= 0 for size in shape)
    if not (_ARRAY_NAME.fullmatch(name) and dtype in DTYPES and is_shape):
        raise ValueError(f"array {name!r}: dtype {dtype!r}, shape {shape!r}")
    if len(shape) > MAX_DIMENSIONS or prod(max(1, size) for size in shape) * 8 > MAX_BYTES:
        raise ValueError(f"array {name!r}: a shape that no array can have")
    if not (isinstance(digest, str) and _DIGEST.fullmatch(digest)):
        raise ValueError(f"array {name!r}: digest {digest!r}")
    return ArraySpec(dtype=dtype, shape=tuple(shape), digest=digest)


def check_seal(body: dict[str, Any], path: Path, again: str) -> None:
    """Take the checksum out of what was read, and refuse what does not have it."""
    found = body.pop("checksum", None)
    try:
        is_whole = found == checksum(body)
    except RecursionError:
        # What is nested so deeply was read, but nobody wrote it.
        is_whole = False
    if not is_whole:
        raise StoreError(f"{path} was changed after it was written: its checksum does not fit. {again}")


def checksum(body: dict[str, Any]) -> str:
    """SHA-256 of the canonical JSON."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
