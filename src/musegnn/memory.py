"""How much memory there is, and how much this process uses."""

import os
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
