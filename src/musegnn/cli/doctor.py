"""`muse doctor`: what this machine has, what is missing, and how to get it."""

import importlib.metadata
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.errors import InputError
from musegnn.extras import EXTRAS
from musegnn.graph.threads import default_workers
from musegnn.memory import total_memory
from musegnn.store import file_errors
from musegnn.version import __version__

CORE = ("torch", "numpy", "scipy", "numba", "jaxtyping", "typer", "rich", "plotly")
DISK_BYTES = 1 << 28


def doctor(
    folder: Annotated[Path, typer.Option(help="Where to measure the disk.")] = Path("."),
) -> Answer:
    """Show versions, devices, threads, memory, disk speed and missing optional packages.

    Example: `muse doctor --folder /data`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder. Pass one that exists with --folder.")
    extras = {{"torch_geometric": "torch-geometric"}.get(name, name): extra for name, extra in EXTRAS.items()}
    write, read = _disk_speed(folder)
    record = {
        **{"musegnn": __version__, "python": platform.python_version(), "platform": platform.platform()},
        "packages": {package: _version(package) for package in CORE},
        **{"devices": _devices(), "threads": default_workers(), "memory_bytes": total_memory()},
        "disk": {"folder": str(folder.absolute()), "write_bytes_per_s": write, "read_bytes_per_s": read},
        "optional": {package: _version(package) for package in extras},
    }
    return Answer(record, lambda: _tell(record, extras))


def _tell(found: dict[str, Any], extras: dict[str, str]) -> None:
    show.line("musegnn", found["musegnn"])
    show.line("python", found["python"], found["platform"])
    for package, version in found["packages"].items():
        show.line(package, version or "MISSING: pip install musegnn")
    show.line("devices", *found["devices"])
    show.line("threads", f"{found['threads']} cores for this process")
    show.line("memory", show.size(found["memory_bytes"]))
    disk = found["disk"]
    write, read = (show.size(disk[f"{way}_bytes_per_s"]) for way in ("write", "read"))
    show.line("disk", f"{disk['folder']}: writes {write}/s, reads {read}/s (cached)")
    print("optional:")
    show.lines(
        {
            package: version or f"not installed: pip install 'musegnn[{extras[package]}]'"
            for package, version in found["optional"].items()
        }
    )


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _devices() -> list[str]:
    try:
        import torch
    except ImportError:
        return ["unknown: torch is not installed"]
    if torch.cuda.is_available():
        return [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return ["CPU only (torch sees no GPU)"]


def _disk_speed(folder: Path) -> tuple[float, float]:
    """Bytes per second of one file written to the disk, and read again."""
    block = os.urandom(1 << 22)
    with file_errors(folder), tempfile.NamedTemporaryFile(dir=folder) as file:
        started = time.perf_counter()
        for _ in range(DISK_BYTES // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        written = time.perf_counter()
        file.seek(0)
        while file.read(1 << 22):
            pass
        return DISK_BYTES / (written - started), DISK_BYTES / (time.perf_counter() - written)
