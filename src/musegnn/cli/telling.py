"""What a run tells on the terminal: a line for each epoch, and in the end what it has reached."""

import shlex
import time
from pathlib import Path
from typing import Any

from musegnn.cli import show

LONG_SECONDS = 60.0
"""An epoch that takes so long is hardly longer for the kernels that were compiled in it."""


class EpochTable:
    """A line for each epoch, and once how long the others will take.

    The first epoch also compiles kernels, for some seconds: where it is short, the second one tells.
    """

    def __init__(self, epochs: int, metric: str) -> None:
        self.epochs, self.metric = epochs, metric
        self.began = time.monotonic()
        self.num_told = 0
        self.is_estimated = False
        # Five numbers and a star.
        self.is_wide = show.fits(55)

    def tell(self, event: dict[str, Any]) -> None:
        """What is worth a line of an event."""
        if event["event"] == "start":
            _print_homes(event)
        if event["event"] == "profile":
            _print_profile(event["milliseconds"])
        if event["event"] != "epoch":
            return
        if not self.num_told:
            self.line("\n  epoch", "loss", "train", "valid", speed=("samples/s", "waited"))
        valid = event.get(f"valid_{self.metric}")
        shown = "" if valid is None else f"{100 * valid:.2f}"
        best = " *" if event.get("best_epoch") == event["epoch"] else ""
        speed = f"{event['samples_per_second']:.2f}", f"{100 * event['waited']:.0f}%"
        numbers = f"{event['loss']:.4f}", f"{100 * event['train_accuracy']:.2f}", shown
        self.line(f"{event['epoch']:>7}", *numbers, speed=speed, star=best)
        self.num_told += 1
        self.estimate(self.epochs - event["epoch"])

    def estimate(self, num_left: int) -> None:
        """How long so many epochs will take, by the last one."""
        now = time.monotonic()
        took, self.began = now - self.began, now
        is_fit = self.num_told > 1 or took > LONG_SECONDS or num_left == 1
        if is_fit and num_left and not self.is_estimated:
            print(f"         about {show.duration(took * num_left)} for {show.count(num_left, 'more epoch')}")
            self.is_estimated = True

    def line(self, epoch: str, *numbers: str, speed: tuple[str, str], star: str = "") -> None:
        """How fast it was is left out where the terminal is narrow."""
        told = [epoch, *(f"{number:>7}" for number in numbers)]
        told += [f"{speed[0]:>9}", f"{speed[1]:>6}"] if self.is_wide else []
        print("  ".join(told) + star, flush=True)


def _print_homes(event: dict[str, Any]) -> None:
    """Where the large things lie, where that was a choice: with a GPU, with M, or past memory."""
    homes = {"gpu": "on the GPU", "ram": "in memory", "mapped": "on disk", "cached": "", "packed": ""}
    places = {"device": "on the GPU", "host": "in memory", "disk": "on disk"}
    if event["device"] != "cpu" or event["features_about"]:
        show.line("features", homes[event["features"]] or f"{event['features']}: {event['features_about']}")
    if event["means"] is not None:
        show.line("means", places[event["means"]])


def _print_profile(milliseconds: dict[str, float]) -> None:
    if not milliseconds:
        print("\n  --profile begins behind the tenth step, and there were no more. Take --epochs.")
        return
    print("\n  where the time of a step goes, ms")
    for part, value in milliseconds.items():
        print(f"  {part:<10}{value:>9.2f}")
    beside = "copy runs beside the others; " if "copy" in milliseconds else ""
    print(f"  {beside}the steps one by one are in trace.json (https://ui.perfetto.dev)")


def following(folder: Path) -> str:
    """What to do with a finished run."""
    name = shlex.quote(str(folder))
    return f"muse evaluate {name}, or muse predict {name} --nodes all --out predictions.csv"


def tell_result(folder: Path, result: dict[str, Any]) -> None:
    """What a finished run has reached."""
    print()
    for split in ("valid", "test"):
        if all(result.get(f"{split}_{name}") is not None for name in ("accuracy", "macro_f1")):
            parts = [f"{name} {100 * result[f'{split}_{name}']:.2f} %" for name in ("accuracy", "macro_f1")]
            show.line(split, ", ".join(parts))
    expected = result.get("expected") or {}
    for split in ("test", "valid"):
        if f"{split}_accuracy" in expected:
            show.line(
                "expected",
                f"{split} accuracy {100 * expected[f'{split}_accuracy']:.2f} %",
                expected.get("source", ""),
            )
    # Without steps there is none.
    if result["error_bound"] is not None:
        from musegnn.reports.reading import RunFiles

        bound, run = result["error_bound"], RunFiles.read(folder)
        told = f"|Y - Y*| <= {show.bound(bound)} on every test sample"
        told += show.about_bound(bound, run.config.energy.minimizer)
        if tight := ((run.analysis or {}).get("steps") or {}).get("tight_bound"):
            told += f"; of one of them more steps show: {show.bound(tight)}, on the page"
        show.line("error bound", told)
    show.line(
        "took", f"{show.duration(result['seconds'])}, {result['peak_rss_mb']:,.0f} MB of memory at its peak"
    )
    if (folder / "report.html").is_file():
        show.line("report", f"{folder / 'report.html'} (open it in a browser)")
