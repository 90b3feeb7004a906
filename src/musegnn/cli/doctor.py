"""`muse doctor`: what this machine has, what is missing, and how to get it."""

import importlib.metadata
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from musegnn.cli import show
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
) -> None:
    """Show versions, devices, threads, memory, disk speed and missing optional packages.

    Example: `muse doctor --folder /data`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder. Pass one that exists with --folder.")
    show.line("musegnn", __version__)
    show.line("python", platform.python_version(), platform.platform())
    for package in CORE:
        show.line(package, _version(package) or "MISSING: pip install musegnn")
    show.line("devices", *_devices())
    show.line("threads", f"{default_workers()} cores for this process")
    show.line("memory", show.size(total_memory()))
    write, read = _disk_speed(folder)
    show.line("disk", f"{folder.absolute()}: writes {show.size(write)}/s, reads {show.size(read)}/s (cached)")
    print("optional:")
    for package, extra in EXTRAS.items():
        distribution = {"torch_geometric": "torch-geometric"}.get(package, package)
        found = _version(distribution)
        print(f"  {distribution:<16}  " + (found or f"not installed: pip install 'musegnn[{extra}]'"))


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
