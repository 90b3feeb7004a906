"""Where `muse` begins: what it takes to be interrupted before the commands are imported."""

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130


def main() -> int:
    """Import the commands, and run one."""
    before = signal.getsignal(signal.SIGINT)
    # A parent that ignores Ctrl-C, as nohup does, is followed.
    is_ours = before is signal.default_int_handler
    if is_ours:
        signal.signal(signal.SIGINT, _leave)
    from musegnn.cli.main import main as run

    if is_ours:
        signal.signal(signal.SIGINT, before)
    return run()


def _leave(number: int, frame: FrameType | None) -> None:
    """At once: there is nothing to clean up, and an exception would end in the middle of an import."""
    print("muse: interrupted; nothing was begun.", file=sys.stderr, flush=True)
    os._exit(INTERRUPTED)
