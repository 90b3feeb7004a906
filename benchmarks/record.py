"""Figures with their origin: `results.json` holds them, `RESULTS.md` is made from it by `render.py`."""

import json
import os
import platform
import subprocess
from datetime import date
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results.json"


def hardware() -> str:
    """Processor, cores and memory, in words."""
    model = next(
        (line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"


@cache
def commit() -> str:
    """The commit measured; a tree with changes is marked. MUSEGNN_COMMIT names it where there is no git.

    Asked for once: what a benchmark writes into a page later is no change to what it measures.
    """
    git = ["git", "-C", str(FOLDER)]
    done = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    if done.returncode:
        return os.environ["MUSEGNN_COMMIT"]
    # The figures recorded a moment ago are no change to what is measured.
    others = [*git, "status", "--porcelain", "--", ":/", ":!results.json", ":!RESULTS.md", ":!plots"]
    changed = subprocess.run(others, capture_output=True, text=True, check=True).stdout
    return done.stdout.strip() + "-dirty" * bool(changed)


def record(figures: list[dict[str, object]], command: str, measured_on: str | None = None) -> None:
    """Put figures (name, data, value, unit) into results.json, in place of older ones of that data.

    They were measured on this machine unless `measured_on` says otherwise.
    """
    origin = {
        "command": command,
        "hardware": measured_on or hardware(),
        "commit": commit(),
        "date": date.today().isoformat(),
    }
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    fresh = {(figure["name"], figure["data"]) for figure in figures}
    kept = [figure for figure in known if (figure["name"], figure["data"]) not in fresh]
    RESULTS.write_text(json.dumps(kept + [figure | origin for figure in figures], indent=1) + "\n")
