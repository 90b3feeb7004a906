"""Accuracy of the recipes over seeds, and what each setting does to it.

    python benchmarks/accuracy.py recipes --root RAW [--record]
    python benchmarks/accuracy.py ablations --root RAW [--record]

RAW holds cora.npz, citeseer.npz and pubmed.npz. Each run is `muse train` in a process of its own, `--jobs` of
them at a time with `--threads` threads each. A figure is the mean over the seeds of the test accuracy at the
best validation epoch, in percent, beside its standard deviation.
With `--out` the runs are written down one by one, so that figures of another machine can be recorded here:
`--from FILE` takes them in place of running anything.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from record import hardware, record

Job = dict[str, Any]
PLANETOID = ("cora", "citeseer", "pubmed")
GAMMAS = (0.0, 0.1, 0.5, 1.0, 2.0, 3.0)
KEPT = ("test_accuracy", "valid_accuracy", "seconds", "epochs", "error_bound")
DEBIAN = {"hidden": 256, "epochs": 20}
"""Ablations start from the recipe with these."""


def recipes(seeds: int) -> Iterator[Job]:
    for name in (*PLANETOID, "debian", "debian-thorough"):
        for seed in range(seeds if name in PLANETOID else min(seeds, 5)):
            yield {
                "figure": "test accuracy",
                "data": f"recipe {name}",
                "target": name,
                "set": {},
                "seed": seed,
            }


def ablations(seeds: int) -> Iterator[Job]:
    """One setting at a time, the others as in the recipe with gamma 1 where M matters."""
    for target, base in (("debian", DEBIAN), ("pubmed", {})):
        changes: list[tuple[str, dict[str, Any]]] = []
        changes += [("gamma", {"gamma": gamma}) for gamma in GAMMAS]
        changes += [("rho", {"gamma": 1.0, "rho": rho}) for rho in (0.0, 0.9, 1.0)]
        changes += [("unseen", {"gamma": 1.0, "unseen": unseen}) for unseen in ("zero", "mask")]
        changes += [("steps", {"steps": steps}) for steps in (1, 2, 4, 8, 16)]
        changes += [("lambda_", {"lambda_": lambda_}) for lambda_ in (0.5, 1.0, 2.0, 4.0, 9.0, 20.0)]
        changes += [("prox", {"prox": prox}) for prox in ("relu", "none", "l1")]
        if target == "debian":
            changes += [("online", {"online": online}) for online in (False, True)]
        for name, change in changes:
            for seed in range(seeds):
                label = ", ".join(f"{key} {value}" for key, value in change.items())
                yield {
                    "figure": f"test accuracy, {label}",
                    "data": f"{target}, {name}",
                    "target": target,
                    "set": {**base, **change},
                    "seed": seed,
                }


def run(job: Job, options: argparse.Namespace, work: Path) -> Job:
    out = Path(tempfile.mkdtemp(dir=work)) / "run"
    command = [sys.executable, "-m", "musegnn", "--quiet", "train", job["target"], "--out", str(out)]
    command += ["--stores", str(work / "stores"), "--seed", str(job["seed"]), "--device", options.device]
    if job["target"] in PLANETOID:
        command += ["--root", str(options.root)]
    for key, value in job["set"].items():
        command += ["--set", f"{key}={value}"]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{job}: {done.stderr.strip().splitlines()[-1:]}", flush=True)
        return {**job, "failed": done.stderr[-2000:]}
    result = json.loads((out / "result.json").read_text())
    kept = {
        key: result[key] for key in ("test_accuracy", "valid_accuracy", "seconds", "epochs", "error_bound")
    }
    losses = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    kept["losses"] = [round(event["loss"], 5) for event in losses if event["event"] == "epoch"]
    print(f"{job['data']}, {job['figure']}, seed {job['seed']}: {kept['test_accuracy']:.4f}", flush=True)
    return {**job, **kept, "hardware": hardware()}


def run_all(jobs: list[Job], options: argparse.Namespace) -> list[Job]:
    with tempfile.TemporaryDirectory() as temporary:
        work = options.work or Path(temporary)
        work.mkdir(exist_ok=True, parents=True)
        # Stores are made once: two processes do not write one of them.
        for target in dict.fromkeys(job["target"] for job in jobs):
            run(
                {
                    "target": target,
                    "set": {"epochs": 1, "hidden": 8},
                    "seed": 0,
                    "data": target,
                    "figure": "stores",
                },
                options,
                work,
            )
        results = []
        with ThreadPoolExecutor(options.jobs) as pool:
            for result in pool.map(lambda job: run(job, options, work), jobs):
                results.append(result)
                if options.out:
                    with options.out.open("a") as file:
                        file.write(json.dumps(result) + "\n")
    return results


def figures(results: list[Job]) -> Iterator[dict[str, Any]]:
    groups: dict[tuple[str, str], list[Job]] = {}
    for result in results:
        if "failed" not in result:
            groups.setdefault((result["figure"], result["data"]), []).append(result)
    for (name, data), runs in groups.items():
        tests = [100 * one["test_accuracy"] for one in runs]
        spread = statistics.stdev(tests) if len(tests) > 1 else 0.0
        unit = f"% +- {spread:.2f}, {len(tests)} seeds"
        yield {"name": name, "data": data, "value": round(statistics.mean(tests), 2), "unit": unit}
        if name == "test accuracy":
            yield {
                "name": "seconds",
                "data": data,
                "value": round(statistics.median(one["seconds"] for one in runs), 1),
                "unit": "s a run, median; several at a time",
            }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["recipes", "ablations"])
    parser.add_argument("--root", type=Path, default=Path("raw"), help="cora.npz, citeseer.npz, pubmed.npz")
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--only", help="jobs whose data match this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    if options.source:
        results = [json.loads(line) for line in options.source.read_text().splitlines()]
    else:
        jobs = list(
            recipes(options.seeds or 10) if options.what == "recipes" else ablations(options.seeds or 3)
        )
        results = run_all([job for job in jobs if re.search(options.only or "", job["data"])], options)
    found = list(figures(results))
    for figure in found:
        print(f"{figure['data']:<28} {figure['name']:<40} {figure['value']:>8} {figure['unit']}")
    if options.record:
        record(found, f"python benchmarks/accuracy.py {options.what}", results[0]["hardware"])


if __name__ == "__main__":
    main()
