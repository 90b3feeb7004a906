"""Progress of long work: a bar on a terminal, a line every half minute in a log, silence when told so."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rich.progress import ProgressColumn


@runtime_checkable
class Advance(Protocol):
    """Tells a progress display that so many more units are done, and what there is to say."""

    def __call__(self, amount: int, note: str = "") -> None:
        """`note` is shown until the next one."""


DELAY_SECONDS = 1.0
"""Work that ends sooner shows nothing."""
LOG_SECONDS = 30.0
"""Without a terminal, one line at most this often."""
NARROW = 80
"""A terminal with fewer columns has no room for a bar."""

_enabled = False


def show_progress(enabled: bool) -> None:
    """Switch displays on or off for this process; a library call shows none unless asked to."""
    global _enabled
    _enabled = enabled


def ignore(amount: int, note: str = "") -> None:
    """Show nothing."""


@contextmanager
def progress(description: str, total: int, unit: str = "", done: int = 0) -> Iterator[Advance]:
    """Show how far a piece of work of `total` units is, of which some may be `done` already.

    "B" are printed as bytes, other units with a rate.
    """
    if not _enabled or total <= 0:
        yield ignore
    elif sys.stderr.isatty():
        with _bar(description, total, unit, done) as advance:
            yield advance
    else:
        yield _log_lines(description, total, unit, done)


@contextmanager
def _bar(description: str, total: int, unit: str, done: int) -> Iterator[Advance]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    amounts: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),)
    if unit == "B":
        amounts = (DownloadColumn(), TransferSpeedColumn())
    elif unit:
        amounts = (MofNCompleteColumn(), _rate_column(unit))
    shown = (BarColumn(), *amounts, TimeRemainingColumn(), TextColumn("{task.fields[note]}"))
    if console.width < NARROW:
        shown = (TaskProgressColumn(), TimeRemainingColumn())
    bar = Progress(TextColumn("{task.description}"), *shown, console=console, transient=True)
    task = bar.add_task(description, total=total, completed=done, note="")
    started = time.monotonic()
    live = False

    def advance(amount: int, note: str = "") -> None:
        nonlocal live
        bar.update(task, advance=amount, note=note)
        if not live and time.monotonic() - started > DELAY_SECONDS:
            live = True
            bar.start()

    try:
        yield advance
    finally:
        if live:
            bar.stop()


def _rate_column(unit: str) -> "ProgressColumn":
    from rich.progress import ProgressColumn, Task
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many units a second, over the last moments."""

        def render(self, task: Task) -> Text:
            return Text("" if task.speed is None else f"{task.speed:,.1f} {unit}/s")

    return Rate()


def _log_lines(description: str, total: int, unit: str, done: int) -> Advance:
    started = last = time.monotonic()
    fresh = 0
    lock = threading.Lock()

    def advance(amount: int, note: str = "") -> None:
        nonlocal last, fresh
        with lock:
            fresh += amount
            now = time.monotonic()
            if now - last < LOG_SECONDS or not fresh:
                return
            last = now
        rate = fresh / max(now - started, 1e-9)
        left = max(total - done - fresh, 0) / rate
        speed = f", {rate:,.1f} {unit}/s" if unit not in ("", "B") else ""
        line = f"{description}: {100 * (done + fresh) / total:.0f} %{speed}, {left:.0f} s left" + (
            f", {note}" if note else ""
        )
        print(line, file=sys.stderr, flush=True)

    return advance
