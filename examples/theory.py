"""Draw the figures of docs/: `python examples/theory.py`, some minutes on two cores."""

import argparse
import time
from pathlib import Path

import theory_descent
import theory_samples

DOCS = Path(__file__).parents[1] / "docs"


def main() -> None:
    """Each figure says how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=DOCS / "figures", help="a folder for the SVG files")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for draw in (*theory_descent.FIGURES, *theory_samples.FIGURES):
        started = time.perf_counter()
        draw(out)
        print(f"{draw.__name__}: {time.perf_counter() - started:.1f} s", flush=True)
    print(f"Wrote {out}")


if __name__ == "__main__":
    main()
