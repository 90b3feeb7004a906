"""Load and faults: what is done, what must hold, what happened; written into docs/reliability.md.

    python benchmarks/faults.py [NAME ...] [--count N] [--out FILE] [--record]

    soak           1,000 epochs of a small graph, M in memory and on disk: memory, files, threads stay flat
    kills          200 random kill -9 over sampling, packing, training and prediction, each gone on with
    flips          40 times one bit of each kind of file that we write
    hostile        files made to hurt: sizes, offsets, paths, depth; 400 values anywhere in JSON files
    concurrency    two trainings, samplers or predictions, and readers beside writers, 10 times each
    ranks          one of several is killed, stopped, full, unlike the others or cut off, 5 times each

`--count` replaces these numbers. A table takes the place of the one that FILE has of the same experiment; the
command fails if anything did not hold. All of it takes about twenty-five minutes on two cores. Commands run
in forks of one process, with a limit on their memory (`fault_probe.py`).
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

# First: it says where the helpers of the tests lie.
import fault_probe
import torch
from fault_flips import flips
from fault_hostile import hostile
from fault_kills import kills
from fault_load import concurrency, soak
from fault_ranks import ranks
from record import commit, record

EXPERIMENTS: dict[str, tuple[Callable[[Path, int], list[fault_probe.Row]], int]] = {
    "soak": (soak, 1000),
    "kills": (kills, 200),
    "flips": (flips, 40),
    "hostile": (hostile, 400),
    "concurrency": (concurrency, 10),
    "ranks": (ranks, 5),
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- faults: {} -->", "<!-- end of {} -->"


def table(name: str, rows: list[fault_probe.Row], command: str, seconds: float) -> str:
    """One experiment, as it stands in the page."""
    lines = [f"`{command}`, {seconds:.0f} s, commit {commit()}.", ""]
    lines += ["| what was done | times | what must hold | what happened |", "|---|---:|---|---|"]
    lines += [f"| {row.done} | {row.times:,} | {row.must} | {row.happened} |" for row in rows]
    return "\n".join([BEGIN.format(name), *lines, END.format(name)])


def put(page: Path, name: str, text: str) -> None:
    """In place of what stands between the markers."""
    before = page.read_text() if page.exists() else ""
    begin, end = BEGIN.format(name), END.format(name)
    if begin in before:
        text = before[: before.index(begin)] + text + before[before.index(end) + len(end) :]
    else:
        text = before + text + "\n\n"
    page.write_text(text)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", choices=[*EXPERIMENTS, []], help="all if none is given"
    )
    parser.add_argument("--count", type=int, help="in place of each experiment's own number")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page; docs/reliability.md")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    num_faults = 0
    for name in options.names or EXPERIMENTS:
        experiment, usual = EXPERIMENTS[name]
        count, started = options.count or usual, time.monotonic()
        with tempfile.TemporaryDirectory() as root:
            rows = experiment(Path(root), count)
        command = f"python benchmarks/faults.py {name}" + f" --count {count}" * (count != usual)
        put(options.out, name, table(name, rows, command, time.monotonic() - started))
        for row in rows:
            print(f"{row.done} | {row.times:,} | {row.must} | {row.happened}", flush=True)
            for fault in row.faults:
                print(f"    {' '.join(fault.split())}", flush=True)
        num_faults += sum(len(row.faults) for row in rows)
        if options.record:
            record([figure for row in rows for figure in figures(row)], command)
    print(f"{num_faults} faults" if num_faults else "All of it held.")
    return int(num_faults > 0)


def figures(row: fault_probe.Row) -> list[dict[str, object]]:
    return [
        {"name": "times", "data": row.done, "value": row.times, "unit": ""},
        {"name": "times that it did not hold", "data": row.done, "value": len(row.faults), "unit": ""},
    ]


if __name__ == "__main__":
    sys.exit(main())
