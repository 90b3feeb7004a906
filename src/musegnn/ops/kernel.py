"""How kernels are compiled, and where they are kept: only the first start after an installation waits."""

import atexit
import hashlib
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from numba import config, njit

_lock = threading.Lock()


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile at the first call; run without the interpreter's lock, so that threads work side by side."""
    # Numba chooses the folder of a function when it is decorated. Other people's functions keep theirs.
    with _lock:
        before = config.CACHE_DIR  # type: ignore[attr-defined]
        config.CACHE_DIR = str(_folder(before))  # type: ignore[attr-defined]
        try:
            return njit(cache=True, nogil=True)(function)
        finally:
            config.CACHE_DIR = before  # type: ignore[attr-defined]


def is_cold() -> bool:
    """Whether the folder of compiled kernels is empty."""
    return not any(_folder(config.CACHE_DIR).iterdir())  # type: ignore[attr-defined]


@cache
def _folder(chosen: str) -> Path:
    """A folder for these very sources, below the one the user has chosen for Numba or has for caches.

    Numba compiles a function again when its own file changes, but not when a function it calls does in
    another file: after an update the old kernel would go on computing. Where no folder can be written,
    kernels are compiled anew at each start.
    """
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        base = Path(chosen) if chosen else Path(home).expanduser() / "musegnn"
        folder = base / f"kernels-{_digest()[:16]}"
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError):
        folder = Path(tempfile.mkdtemp(prefix="musegnn-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _digest() -> str:
    """Of all files in this room."""
    digest = hashlib.sha256()
    room = Path(__file__).parent
    for path in sorted(room.rglob("*.py")):
        digest.update(str(path.relative_to(room)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()
