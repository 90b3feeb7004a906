"""Generated graphs at scale: time and memory of drawing and importing a shaped graph.

    python benchmarks/synthetic.py [--name papers100m-shaped] [--scale 0.01] [--features] [--record]

Runs `muse import NAME --set scale=SCALE` in a process of its own and reads what the store says of itself. The
full papers100m-shaped graph without features needs 40 GB of disk while it is sorted, 14 GB of which stay.
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from measure import Peak
from record import record


def import_(name: str, scale: float, features: bool, folder: Path) -> dict[str, float]:
    """Draw, import and look at one graph."""
    from musegnn.datasets import catalog
    from musegnn.graph import Graph
    from musegnn.graph.statistics import statistics

    with Peak() as peak:
        source = catalog.source(name, features=features, scale=scale)
        graph = Graph.from_source(source, folder)
    figures = statistics(graph)
    assert graph.stored is not None
    return {
        "seconds": peak.seconds,
        "peak": peak.bytes,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges // 2,
        "store": graph.stored.num_bytes,
        "degree_max": figures.degree_max,
        "homophily": figures.homophily or 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--name", default="papers100m-shaped")
    parser.add_argument("--scale", type=float, default=0.01)
    parser.add_argument("--features", action="store_true", help="with features (28 GB at full scale)")
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    out = arguments.folder / "synthetic"
    if arguments.only:
        print(json.dumps(import_(arguments.name, arguments.scale, arguments.features, out)))
        return
    shutil.rmtree(out, ignore_errors=True)
    child = subprocess.run(
        [sys.executable, *sys.argv, "--only"], check=True, stdout=subprocess.PIPE, text=True
    )
    shutil.rmtree(out)
    measured = json.loads(child.stdout)
    with_features = "with" if arguments.features else "without"
    data = (
        f"{arguments.name} at scale {arguments.scale:g}: {measured['nodes']:,} nodes, {measured['edges']:,} "
        f"undirected edges, {with_features} features"
    )
    rows = [
        ("draw and import: time", measured["seconds"], "s"),
        ("draw and import: edges", measured["edges"] / 1e6 / measured["seconds"], "M undirected edges/s"),
        ("draw and import: peak anonymous memory", measured["peak"] / 2**20, "MiB"),
        ("draw and import: store", measured["store"] / 1e9, "GB"),
        ("largest degree", measured["degree_max"], "neighbors"),
        ("edge homophily", measured["homophily"], "share"),
    ]
    figures = [
        {"name": name, "data": data, "value": round(value, 3), "unit": unit} for name, value, unit in rows
    ]
    for figure in figures:
        print(f"{figure['name']:<40}  {figure['value']:>14,} {figure['unit']}")
    if arguments.record:
        options = f"--name {arguments.name} --scale {arguments.scale:g}" + " --features" * arguments.features
        record(figures, f"python benchmarks/synthetic.py {options}")


if __name__ == "__main__":
    main()
