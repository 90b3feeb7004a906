"""Where figures come from, in words, and how much memory they may take there."""

import ctypes
import gc
import platform
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from musegnn.graph.threads import default_workers
from musegnn.memory import free_memory, total_memory
from musegnn.version import __version__


def hardware(device: str) -> str:
    """Processor, cores, memory, and the GPU if it is used."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    processor = next(names, platform.machine())
    words = f"{processor}, {default_workers()} cores, {total_memory() / 2**30:.0f} GiB"
    return words if device == "cpu" else f"{torch.cuda.get_device_name(device)}; {words}"


def versions() -> str:
    """Of what figures depend on."""
    return f"musegnn {__version__}, torch {torch.__version__}, Python {platform.python_version()}"


@contextmanager
def limited_memory(device: str) -> Iterator[None]:
    """An allocation that the machine cannot serve fails; otherwise the system would end the whole bench."""
    before = resource.getrlimit(resource.RLIMIT_DATA)
    taken = _allocated()
    if device == "cpu" and taken:
        limits = [taken + free_memory(), *(one for one in before if one != resource.RLIM_INFINITY)]
        resource.setrlimit(resource.RLIMIT_DATA, (min(limits), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _allocated() -> int:
    """Bytes that this process has asked for, used or not, which is what the limit is about; 0 if unknown."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    sizes = (int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData:"))
    return 1024 * next(sizes, 0)


def forget() -> None:
    """Give back what the last cell has left, so that the peak of the next one is its own."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (OSError, AttributeError):
        return
