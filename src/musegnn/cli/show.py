"""How the commands print: sizes, durations, aligned lines and small bars, on a terminal and in a pipe."""

import math
import os
import shutil
import sys
import textwrap

from musegnn.memory import size as size

BAR_WIDTH = 30
LABEL_WIDTH = 14
NO_STEPS = "none: there are no steps"
"""In the place of an error bound."""


def columns() -> int | None:
    """How wide the terminal is, or what COLUMNS says; a pipe and a file have lines of any length."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return None


def fits(width: int) -> bool:
    """Whether so many characters are one line."""
    limit = columns()
    return limit is None or width <= limit


def count(number: int, noun: str) -> str:
    """2, 'sample' -> '2 samples'."""
    return f"{number:,} {noun}" + "s" * (number != 1)


def duration(seconds: float) -> str:
    """75 -> '1 min 15 s'."""
    if seconds < 1:
        return "a second"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def bound(value: float) -> str:
    """Of |Y - Y*|, from its share of |Y|: 0.0127 -> '1.27 % of |Y|', 12 -> '12 times |Y|'."""
    if not math.isfinite(value):
        return "none"
    if value > 1e9:
        return "over 1e9 times |Y|, which is next to 0"
    return f"{100 * value:.3g} % of |Y|" if value < 9.995 else f"{value:.3g} times |Y|"


def about_bound(bound: float, minimizer: str | None) -> str:
    """Behind a bound: what Y* is, if not simply the exact minimizer, and that of more than all of Y."""
    what = "" if minimizer is None else f"; Y* is the {minimizer}"
    is_more = math.isfinite(bound) and bound > 1
    return ": more than all of it, so this says nothing of Y*" * is_more + what


def text(words: str, indent: int = 0) -> None:
    """Words, broken between them where the terminal ends; further lines are indented."""
    if not fits(len(words)):
        wrapper = textwrap.TextWrapper(max(columns() or 0, 1), subsequent_indent=" " * indent)
        # Paths and options stay whole.
        wrapper.break_long_words = wrapper.break_on_hyphens = False
        words = wrapper.fill(words)
    print(words, flush=True)


def line(label: str, *values: str, width: int = LABEL_WIDTH) -> None:
    """One aligned line."""
    text(f"{label:<{width - 2}}  {'  '.join(values)}".rstrip(), indent=width)


def lines(words: dict[str, str]) -> None:
    """A name and what it is, aligned; the words below it where the terminal is narrow."""
    width = max(map(len, words)) + 4
    for name, about in words.items():
        if fits(2 * width):
            line(f"  {name}", about, width=width)
        else:
            print(f"  {name}")
            text(f"    {about}", indent=4)


def table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as they must be, numbers to the right; where they do not fit, rows are paragraphs."""
    head, widths = rows[0], [max(map(len, column)) for column in zip(*rows, strict=True)]
    if not fits(sum(widths) + 2 * len(widths)):
        for first, *cells in rows[1:]:
            print(f"  {first}")
            named = zip(head[1:], cells, strict=True)
            text("    " + "; ".join(f"{name} {cell}" for name, cell in named if cell), indent=4)
        return
    for row in rows:
        first = f"  {row[0]:<{widths[0]}}"
        print(first + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)))


def bars(rows: list[tuple[str, int]]) -> None:
    """A bar for each row, the longest one full width; zero draws none."""
    largest = max((count for _, count in rows), default=0)
    label_width = max((len(label) for label, _ in rows), default=0)
    left = (columns() or 1000) - label_width - len(f"{largest:,}") - 6
    width = max(min(BAR_WIDTH, left), 1)
    mark = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    for label, count in rows:
        length = -(-width * count // largest) if largest else 0
        print(f"  {label:>{label_width}}  {mark * length:<{width}}  {count:,}")
