"""How the commands print: sizes, durations, aligned lines and small bars, on a terminal and in a pipe."""

import sys

from musegnn.memory import size as size

BAR_WIDTH = 30


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


def line(label: str, *values: str) -> None:
    """One aligned line."""
    print(f"{label:<12}  {'  '.join(values)}".rstrip())


def table(rows: list[tuple[str, ...]]) -> None:
    """Columns as wide as they must be: the first to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        first = f"  {row[0]:<{widths[0]}}"
        print(first + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)))


def bars(rows: list[tuple[str, int]]) -> None:
    """A bar for each row, the longest one full width; zero draws none."""
    largest = max((count for _, count in rows), default=0)
    width = max((len(label) for label, _ in rows), default=0)
    mark = "█" if "utf" in (sys.stdout.encoding or "").lower() else "#"
    for label, count in rows:
        length = -(-BAR_WIDTH * count // largest) if largest else 0
        print(f"  {label:>{width}}  {mark * length:<{BAR_WIDTH}}  {count:,}")
