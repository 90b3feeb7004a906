"""Wall time and peak anonymous memory of a block of code, and the speed of the disk below it."""

import os
import time
from pathlib import Path

from musegnn.memory import Peak as Peak


def disk_speed(folder: Path) -> float:
    """Bytes per second of 2 GB written in blocks and pushed to the disk."""
    block, target = os.urandom(1 << 24), folder / "written"
    started = time.perf_counter()
    with target.open("wb") as file:
        for _ in range(120):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    seconds = time.perf_counter() - started
    target.unlink()
    return 120 * len(block) / seconds
