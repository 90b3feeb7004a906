"""Wall time and peak anonymous memory of a block of code, and the speed of the disk below it."""

import os
import threading
import time
from pathlib import Path

from musegnn.memory import anonymous_memory


class Peak:
    """`with Peak() as peak: ...`, then `peak.seconds` and `peak.bytes`; memory is sampled every 20 ms.

    Pages of mapped files are not anonymous: the page cache may take them back at any time.
    """

    def __enter__(self) -> "Peak":
        self.bytes = anonymous_memory()
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
