"""Accuracy of the recipes over seeds, and what each setting does to it.

    python benchmarks/accuracy.py recipes ablations --root RAW [--record]
    python benchmarks/accuracy.py recipes ablations plot --from FILE [--record]

RAW holds cora.npz, citeseer.npz and pubmed.npz. Each run is `muse train` in a process of its own, `--jobs` of
them at a time with `--threads` threads each, the longest first. A figure is the mean over the seeds of the
test accuracy at the best validation epoch, in percent, beside its standard deviation. Settings that come to
the same run are run once.

With `--out` each run is written down as it ends, and what is written there already is not run again. `--from`
takes the runs of such a file, perhaps of another machine, and runs nothing. `plot` draws plots/loss.svg and
plots/ablations.svg.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from record import hardware, record

from musegnn import recipes
from musegnn.training.config import TABLES

Settings = dict[str, Any]
Result = dict[str, Any]
Groups = dict[tuple[str, str], list[Result]]
"""The runs of each figure, by its name and data."""
PLANETOID = ("cora", "citeseer", "pubmed")
KEPT = ("test_accuracy", "valid_accuracy", "seconds", "epochs", "error_bound")
BASES: dict[str, Settings] = {"debian": {"epochs": 20}, "pubmed": {}}
"""What the ablations change in the recipe, all of them."""
SECONDS = {"cora": 30, "citeseer": 70, "pubmed": 170, "debian": 180, "debian-thorough": 1000}
"""Of a run with two threads, roughly: they only order the jobs."""


@dataclass(frozen=True)
class Job:
    """One seed of one figure."""

    figure: str
    data: str
    target: str
    settings: Settings
    seed: int

    @cached_property
    def key(self) -> str:
        """Digest of all settings, so that a changed recipe is run again and one run may serve two figures."""
        recipe = recipes.load(self.target).with_settings({**self.settings, "seed": self.seed})
        facts = [recipe.dataset, recipe.options, [asdict(getattr(recipe, table)) for table in TABLES]]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    @cached_property
    def cost(self) -> float:
        recipe = recipes.load(self.target)
        changed = recipe.with_settings(self.settings)
        epochs = changed.training.epochs / recipe.training.epochs
        # Sampling, f and g take about as long as four steps.
        return SECONDS[self.target] * epochs * (4 + changed.model.steps) / (4 + recipe.model.steps)

    def __str__(self) -> str:
        return f"{self.data}, {self.figure}, seed {self.seed}"


def of_recipes(seeds: int | None) -> Iterator[Job]:
    """Ten seeds of the small graphs, five of debian, unless told otherwise."""
    for name in (*PLANETOID, "debian", "debian-thorough"):
        for seed in range(seeds or (10 if name in PLANETOID else 5)):
            yield Job("test accuracy", f"recipe {name}", name, {}, seed)


def of_ablations(seeds: int | None) -> Iterator[Job]:
    """One setting at a time, the others as in the recipe; gamma 1 where M must matter."""
    for target, base in BASES.items():
        changes: dict[str, list[Settings]] = {
            "gamma": [{"gamma": gamma} for gamma in (0.0, 0.1, 0.5, 1.0, 2.0, 3.0)],
            "rho": [{"gamma": 1.0, "rho": rho} for rho in (0.0, 0.9, 1.0)],
            "unseen": [{"gamma": 1.0, "unseen": unseen} for unseen in ("zero", "mask")],
            "steps": [{"steps": steps} for steps in (1, 2, 4, 8, 16)],
            "lambda_": [{"lambda_": lambda_} for lambda_ in (0.5, 1.0, 2.0, 4.0, 9.0, 20.0)],
            "prox": [{"prox": prox} for prox in ("relu", "none", "l1")],
        }
        if target == "debian":
            changes["online"] = [{"online": online} for online in (False, True)]
            changes["loss curve"] = [{"gamma": 1.0, "epochs": 20}]
        for name, values in changes.items():
            for change in values:
                label = ", ".join(f"{key} {value}" for key, value in change.items())
                for seed in range(seeds or 3):
                    figure = f"test accuracy, {label}"
                    yield Job(figure, f"{target}, {name}", target, {**base, **change}, seed)


SETS = {"recipes": of_recipes, "ablations": of_ablations}


# Running.


def run(job: Job, options: argparse.Namespace, work: Path) -> Result:
    out = Path(tempfile.mkdtemp(dir=work)) / "run"
    command = [sys.executable, "-m", "musegnn", "--quiet", "train", job.target, "--out", str(out)]
    command += ["--stores", str(work / "stores"), "--seed", str(job.seed), "--device", options.device]
    if job.target in PLANETOID:
        command += ["--root", str(options.root)]
    for name, value in job.settings.items():
        command += ["--set", f"{name}={str(value).lower()}"]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return {"job": str(job), "failed": lines[-1]}
    result = json.loads((out / "result.json").read_text())
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    shutil.rmtree(out.parent)
    return {
        "job": str(job),
        "key": job.key,
        **{name: result[name] for name in KEPT},
        "losses": [round(event["loss"], 5) for event in events if event["event"] == "epoch"],
        "hardware": machine(options.device),
        "how": f"{options.jobs} at a time, --threads {options.threads}",
        "command": options.command,
    }


def machine(device: str) -> str:
    if device == "cpu":
        return hardware()
    import torch

    return f"{hardware()}, {torch.cuda.get_device_name()}"


def run_all(jobs: list[Job], options: argparse.Namespace) -> Iterator[Result]:
    """The results as they come."""
    ends = time.monotonic() + options.budget

    def start(job: Job) -> Result | None:
        return run(job, options, work) if time.monotonic() < ends else None

    with tempfile.TemporaryDirectory() as temporary, ThreadPoolExecutor(options.jobs) as pool:
        work = options.work or Path(temporary)
        work.mkdir(exist_ok=True, parents=True)
        # Stores are made once: two processes do not write one of them.
        targets = {recipes.load(job.target).dataset: job.target for job in jobs}
        first = [Job("stores", name, name, {"epochs": 1, "hidden": 8}, 0) for name in targets.values()]
        for dataset, made in zip(targets, pool.map(lambda job: run(job, options, work), first), strict=True):
            if "failed" in made:
                yield made
                jobs = [job for job in jobs if recipes.load(job.target).dataset != dataset]
        try:
            for done in as_completed([pool.submit(start, job) for job in jobs]):
                if (result := done.result()) is not None:
                    yield result
        finally:
            # After Ctrl-C no further job starts.
            pool.shutdown(cancel_futures=True)


def run_missing(jobs: list[Job], options: argparse.Namespace) -> tuple[dict[str, Result], list[Result]]:
    """All runs by their key, those of an earlier call included, and those that failed."""
    results = read(options.out) if options.out and options.out.exists() else {}
    missing = {job.key: job for job in jobs if job.key not in results}
    failed = []
    for result in run_all(sorted(missing.values(), key=lambda job: -job.cost), options):
        print(f"{result['job']}: {result.get('failed') or result['test_accuracy']}", flush=True)
        if "failed" in result:
            failed.append(result)
            continue
        results[result["key"]] = result
        if options.out:
            with options.out.open("a") as file:
                file.write(json.dumps(result) + "\n")
    return results, failed


def read(path: Path) -> dict[str, Result]:
    return {result["key"]: result for result in map(json.loads, path.read_text().splitlines())}


# Figures.


def group(jobs: list[Job], results: dict[str, Result]) -> Groups:
    """What is there."""
    groups: Groups = {}
    for job in jobs:
        if job.key in results:
            groups.setdefault((job.figure, job.data), []).append(results[job.key])
    return groups


def figures(groups: Groups) -> Iterator[dict[str, Any]]:
    for (name, data), runs in groups.items():
        origin = {"hardware": runs[-1]["hardware"], "command": runs[-1]["command"]}
        if any(one["hardware"] != origin["hardware"] for one in runs):
            raise SystemExit(f"{data}, {name}: runs of several machines. Give each a file of its own.")
        mean, spread = mean_and_spread(runs)
        count = f"{len(runs)} seeds" if len(runs) > 1 else "1 seed"
        unit = f"% +- {spread:.2f}, {count}" if len(runs) > 1 else f"%, {count}"
        yield {"name": name, "data": data, "value": round(mean, 2), "unit": unit, **origin}
        if data.startswith("recipe "):
            seconds = round(statistics.median(one["seconds"] for one in runs), 1)
            unit = f"s a run, median; {' or '.join(sorted({one['how'] for one in runs}))}"
            yield {"name": "seconds", "data": data, "value": seconds, "unit": unit, **origin}
        if data.endswith("loss curve"):
            for epoch in (1, len(runs[0]["losses"])):
                loss = round(statistics.mean(one["losses"][epoch - 1] for one in runs), 3)
                label = name.replace("test accuracy", f"training loss of epoch {epoch}")
                yield {"name": label, "data": data, "value": loss, "unit": f"mean of {count}", **origin}


def mean_and_spread(runs: list[Result]) -> tuple[float, float]:
    tests = [100 * one["test_accuracy"] for one in runs]
    return statistics.mean(tests), statistics.stdev(tests) if len(tests) > 1 else 0.0


def record_all(found: list[dict[str, Any]]) -> None:
    """Under the command that measured them, which is not the one that reads them from a file."""
    for origin in dict.fromkeys((one["command"], one["hardware"]) for one in found):
        rows = [one for one in found if (one["command"], one["hardware"]) == origin]
        kept = ("name", "data", "value", "unit")
        record([{name: row[name] for name in kept} for row in rows], *origin)


# The command line.


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="+", choices=[*SETS, "plot"])
    parser.add_argument("--root", type=Path, default=Path("raw"), help="cora.npz, citeseer.npz, pubmed.npz")
    parser.add_argument("--seeds", type=int, help="in place of 10 of cora, citeseer, pubmed; 5 of debian; 3")
    parser.add_argument("--only", help="jobs whose data match this")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="of each job")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--work", type=Path, help="keeps the stores; a temporary folder if not given")
    parser.add_argument("--budget", type=float, default=float("inf"), help="seconds; no job starts later")
    parser.add_argument("--out", type=Path, help="a line of JSON for each run")
    parser.add_argument("--from", dest="source", type=Path, help="a file that --out wrote")
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    sets = [name for name in SETS if name in options.what]
    if not sets:
        parser.error("plot needs to know of what: recipes, ablations, or both.")
    # As it was run, without paths of this machine and what does not matter to the figures.
    words = ["python benchmarks/accuracy.py", *sets, "--root RAW"]
    for name in ("seeds", "only", "jobs", "threads", "device"):
        value = getattr(options, name)
        if value != parser.get_default(name) or name == "threads":
            words.append(f"--{name} '{value}'" if name == "only" else f"--{name} {value}")
    options.command = " ".join(words)
    return options


def main() -> None:
    options = parse()
    jobs = [job for name in SETS if name in options.what for job in SETS[name](options.seeds)]
    jobs = [job for job in jobs if re.search(options.only or "", job.data)]
    results, failed = (read(options.source), []) if options.source else run_missing(jobs, options)
    groups = group(jobs, results)
    found = list(figures(groups))
    for figure in found:
        print(f"{figure['data']:<24} {figure['name']:<44} {figure['value']:>8} {figure['unit']}")
    if options.record:
        record_all(found)
    if "plot" in options.what:
        import accuracy_plot

        for path in accuracy_plot.draw(groups):
            print(f"Wrote {path}")
    missing = {job.key for job in jobs} - set(results)
    if missing:
        print(f"{len(missing)} of {len({job.key for job in jobs})} runs are not there.")
    for result in failed:
        print(f"failed: {result['job']}: {result['failed']}", file=sys.stderr)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
