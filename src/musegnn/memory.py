"""How much memory there is, how much this process uses, and how bytes are written for people."""

import ctypes
import os
import threading
import time
from pathlib import Path


def total_memory() -> int:
    """Bytes of memory this process may use: the machine's, or its control group's limit if that is less."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
    except (OSError, ValueError):
        return machine
    return min(machine, limit)


def anonymous_memory() -> int:
    """Bytes of anonymous memory of this process now; pages of mapped files do not count. 0 where unknown."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    line = next((line for line in status.splitlines() if line.startswith("RssAnon:")), "RssAnon: 0 kB")
    return int(line.split()[1]) * 1024


SHARE = 0.5
"""Of the memory that is free: the rest is for M, samples and the model."""


def free_memory() -> int:
    """Bytes that a process may take without pushing others out; a share of them where ranks are several."""
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        free = total_memory() // 2
    free = min(free, max(0, total_memory() - anonymous_memory()))
    return free // max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def size(num_bytes: float) -> str:
    """1234567 -> '1.2 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.0f} B" if unit == "B" else f"{num_bytes:.1f} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.1f} TB"


class Peak:
    """`with Peak() as peak: ...`, then `peak.seconds` and `peak.bytes`; memory is sampled every 20 ms.

    Pages of mapped files are not anonymous: the page cache may take them back at any time.
    """

    def __enter__(self) -> "Peak":
        self.bytes = anonymous_memory()
        self.seconds = 0.0
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            self.bytes = max(self.bytes, anonymous_memory())


def keep_freed_memory() -> None:
    """Ask the C library to keep what is freed: the next step allocates what the last one did.

    To touch fresh memory can cost more than to compute what goes into it. For programs, not for a library
    that is a guest in its process; does nothing where the C library is not glibc.
    """
    trim_threshold, top_pad, mmap_max = -1, -2, -4
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    mallopt(mmap_max, 0)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 1 << 26)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the CPU or on a GPU."""
    words = (
        "out of memory",
        "can't allocate memory",
        "not enough memory",
        "storage size calculation overflowed",
    )
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in words)
