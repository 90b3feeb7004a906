"""Ctrl-C and SIGTERM end a run behind a step and a checkpoint, not in the middle of one."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether somebody asked to stop."""

    def __init__(self) -> None:
        self.is_asked = False


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """The first signal asks; the second interrupts at once. Outside the main thread, signals are not ours."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_asked:
            raise KeyboardInterrupt
        stop.is_asked = True

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
