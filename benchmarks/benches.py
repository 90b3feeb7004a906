"""Tables of `muse bench`, recorded.

    muse bench accuracy --data cora --root RAW --seeds 3 --json > accuracy.json
    python benchmarks/benches.py accuracy.json [...]

A figure is a mean over seeds; rows without one (out of memory, not run) and what is drawn epoch by epoch are
in the bench's own table only. What the command has set or tuned is part of a figure's name.
"""

import argparse
import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

from record import record


def figures(body: dict[str, Any]) -> list[dict[str, object]]:
    """The lines of a bench that have a figure."""
    found, words = [], shlex.split(body["command"])
    asked = [
        f", {what} {value}"
        for what, value in itertools.pairwise(words)
        if what in ("--tune", "--set", "--seconds")
    ]
    for line in body["lines"]:
        if line["mean"] is None or re.search(r", epoch \d+$|^E\(Y\^\d+\)$", line["measure"]):
            continue
        measure, _, unit = line["measure"].rpartition(", ")
        seeds = (
            f"mean of {line['seeds']} seeds, spread {line['spread']:.3g}" if line["seeds"] > 1 else "one seed"
        )
        note = f"; {line['note']}" if line["note"] else ""
        found.append(
            {
                "name": f"{line['row']}: {measure or line['measure']}",
                "data": f"{line['data']}, muse bench {body['name']}" + "".join(asked),
                "value": float(f"{line['mean']:.4g}"),
                "unit": f"{unit} ({seeds}{note})".strip() if measure else f"({seeds}{note})",
            }
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="what --json has printed")
    for file in parser.parse_args().files:
        body = json.loads(file.read_text())
        record(figures(body), body["command"], "; ".join(body["hardware"]))


if __name__ == "__main__":
    main()
