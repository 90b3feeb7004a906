"""Numbers as people read them."""

from typing import Any


def percent(share: float | None, digits: int = 2) -> str:
    """0.6801 -> '68.01 %'."""
    return "\u2013" if share is None else f"{100 * share:.{digits}f}\u00a0%"


def bound(share: float | None) -> str:
    """Of |Y - Y*| / |Y|: '1.27 %', and of what says nothing '12 times'."""
    if share is None or share < 9.995:
        return percent(share)
    return f"{share:.3g}\u00a0times" if share < 1e9 else "over 1e9\u00a0times"


def short(number: float) -> str:
    """1234 -> '1.2k'."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}".removesuffix(".0") + unit
    return f"{number:.0f}"


def tick(number: float) -> str:
    """Powers of two as they are called: 4096 -> '4k'."""
    return f"{number // 1024:.0f}k" if number >= 1024 else f"{number:.0f}"


def whole(number: float) -> str:
    """1234 -> '1,234'."""
    return f"{number:,.0f}"


def duration(seconds: float) -> str:
    """75 -> '1 min 15 s'."""
    if seconds < 10:
        return f"{seconds:.1f}\u00a0s"
    if seconds < 60:
        return f"{seconds:.0f}\u00a0s"
    if seconds < 3600:
        return f"{seconds // 60:.0f}\u00a0min {seconds % 60:.0f}\u00a0s"
    return f"{seconds // 3600:.0f}\u00a0h {seconds % 3600 // 60:.0f}\u00a0min"


def megabytes(value: float) -> str:
    """1532 -> '1.5 GB'."""
    return f"{value:,.0f}\u00a0MB" if value < 1000 else f"{value / 1000:,.1f}\u00a0GB"


def span(low: float, high: float) -> str:
    """Of a bin: '4-7'."""
    return f"{low:,}" if low == high else f"{low:,}\u2013{high:,}"


def times(low: float, high: float) -> str:
    """Of a bin: '1 time', '4-7 times'."""
    return f"{span(low, high)} time" + "s" * (high != 1)


def ends(least: float, most: float) -> str:
    """Of some numbers: '0.5', or '0.31-0.72'."""
    first, last = f"{least:.3g}", f"{most:.3g}"
    return f"{least:.4g}" if first == last else f"{first}\u2013{last}"


def setting(value: Any) -> str:
    """As a config spells it, roughly."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
