"""Several ranks: what a message costs, what a step costs, and what that says of larger machines.

    python benchmarks/scaling.py messages [--record]   all-reduce and exchange between 2, 3 and 4 ranks
    python benchmarks/scaling.py steps [--record]      a step of debian on 1 and 2 ranks, and the model's
    python benchmarks/scaling.py predict [--record]    MAG240M and IGB-full on 1, 8 and 64 GPUs

The model, for a step of N ranks with P weights, n_s nodes a sample and embeddings of d numbers of b bytes:

    T = t_sample + [N > 1] (L + 4 P / B)  +  [N > 1, gamma > 0] (4 L' + 2 n_s d b / B')

t_sample is the time of one sample on one rank; then come the gradients, and the rows of M, there and back. L
and B are those of an all-reduce, L' and B' of an exchange, fitted to what `messages` measures for that N.
Ranks of one machine share its memory: t_sample is that of as many processes at once. `steps` compares T with
steps that were measured. `predict` puts in the batches of one H200 (papers100m_shaped.py) and assumed rates.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from record import record

SIZES = (1 << 12, 1 << 18, 1 << 22, 1 << 25)
RANKS = (2, 3, 4)
REPEATS = 12
EPOCHS, HIDDEN, FANOUTS = 2, 256, "10,5"
GPU_BATCH = {"MAG240M": (1_112_392, 0.0485, 369_000), "IGB-full": (136_000_000, 0.0509, 369_000)}
"""Training seeds; seconds of a batch of 1000 on one H200, 768 or 1024 columns from host memory; n_s."""
GPU_WEIGHTS, GPU_DIM = 1_000_000, 256
NVLINK, NETWORK = 300e9, 40e9
"""Bytes a second and GPU, between GPUs of one machine and of several: assumed, not measured."""

Figure = dict[str, Any]


def worker() -> None:
    """One rank of `messages`: seconds of an all-reduce and of an exchange of so many bytes."""
    import torch

    from musegnn.ranks import join

    torch.set_num_threads(1)
    with join() as ranks:
        for size in SIZES:
            numbers = torch.zeros(size // 4)
            counts = np.full(ranks.size, size // 4 // ranks.size, dtype=np.int64)
            rows = torch.zeros(int(counts.sum()), 1)
            works = {
                "all-reduce": lambda numbers=numbers: ranks.add_up_tensor(numbers),
                "exchange": lambda rows=rows, counts=counts: ranks.exchange(rows, counts, counts),
            }
            for name, work in works.items():
                times = []
                for _ in range(REPEATS):
                    ranks.gather(b"")
                    began = time.perf_counter()
                    work()
                    times.append(time.perf_counter() - began)
                if ranks.is_first:
                    print(json.dumps([name, ranks.size, size, float(np.median(times))]), flush=True)


def launch(size: int, *arguments: str, **environment: str) -> str:
    """What the first of some ranks prints."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={size}", *arguments]
    settings = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=settings).stdout


def messages() -> list[Figure]:
    """Times, and the line through them: seconds = L + bytes / B."""
    figures = []
    for size in RANKS:
        told = [json.loads(line) for line in launch(size, __file__, "worker").splitlines()]
        for name in ("all-reduce", "exchange"):
            rows = [(number, seconds) for kind, _, number, seconds in told if kind == name]
            latency, rate = fit(rows)
            data = f"{size} ranks on one machine, Gloo"
            figures += [
                {"name": f"{name}: of {number:,} bytes", "data": data, "value": 1e3 * seconds, "unit": "ms"}
                for number, seconds in rows
            ]
            figures.append({"name": f"{name}: L", "data": data, "value": 1e3 * latency, "unit": "ms"})
            figures.append(
                {"name": f"{name}: B", "data": data, "value": rate / 1e9, "unit": "GB/s of payload"}
            )
    return figures


def fit(rows: list[tuple[int, float]]) -> tuple[float, float]:
    """L and B that are nearest to all times, in proportion."""
    numbers, seconds = np.array(rows).T
    matrix = np.stack([np.ones_like(numbers), numbers], axis=1) / seconds[:, None]
    (latency, slope), *_ = np.linalg.lstsq(matrix, np.ones(len(rows)), rcond=None)
    return max(float(latency), 0.0), 1 / max(float(slope), 1e-15)


def steps() -> list[Figure]:
    """Seconds of a step on one rank and on two, with and without M, beside the model's."""
    reduce_, exchange = (
        fit([(number, seconds) for kind, _, number, seconds in told() if kind == name])
        for name in ("all-reduce", "exchange")
    )
    figures = []
    with tempfile.TemporaryDirectory() as folder:
        for gamma in (0.0, 0.5):
            one, nodes, weights = trained(Path(folder), 1, gamma)
            # Two at once, which share the machine, and say nothing to each other.
            both = trained(Path(folder), 1, gamma, at_once=2)[0]
            found = trained(Path(folder), 2, gamma)[0]
            said = reduce_[0] + 4 * weights / reduce_[1]
            if gamma:
                said += 4 * exchange[0] + 2 * nodes * HIDDEN * 4 / exchange[1]
            sizes = f"mean n_s {nodes:,.0f}, {weights:,} weights"
            data = f"debian, d {HIDDEN}, gamma {gamma:g}, {sizes}, one thread a rank"
            for name, value, unit in (
                ("one rank: a sample", 1e3 * one, "ms"),
                ("one rank, two such processes at once: a sample", 1e3 * both, "ms"),
                ("two ranks: a step of two samples", 1e3 * found, "ms"),
                ("two ranks: as the model says", 1e3 * (both + said), "ms"),
                ("two ranks: measured / model", found / (both + said), "ratio of times"),
                ("two ranks: samples a second / one rank", 2 * one / found, "ratio of rates"),
            ):
                figures.append({"name": name, "data": data, "value": value, "unit": unit})
    return figures


def told() -> list[list[Any]]:
    """The messages of two ranks."""
    return [json.loads(line) for line in launch(2, __file__, "worker").splitlines()]


def trained(folder: Path, size: int, gamma: float, at_once: int = 1) -> tuple[float, float, int]:
    """Seconds of a step in the last epoch, mean nodes of a sample, weights."""
    out = [folder / f"{size}-{gamma}-{at_once}-{number}" for number in range(at_once)]
    settings = {"hidden": HIDDEN, "gamma": gamma, "fanouts": FANOUTS, "evaluate_every": 99}
    flags = [flag for name, value in settings.items() for flag in ("--set", f"{name}={value}")]
    flags += ["--epochs", str(EPOCHS), "--stores", str(folder / "stores"), "--overwrite"]
    launcher = ["-m", "torch.distributed.run", f"--nproc-per-node={size}", "-m", "musegnn"]
    command = [sys.executable, *(launcher if size > 1 else ["-m", "musegnn"]), "train", "debian", *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([*command, "--out", str(one)], stdout=subprocess.DEVNULL, env=environment)
        for one in out
    ]
    assert not any(process.wait() for process in started)
    import musegnn

    run = musegnn.load_run(out[0])
    last = [event for event in run.events if event["event"] == "epoch"][-1]
    count = len(run.samples["train"])
    return (
        last["seconds"] / -(-count // size),
        float(run.samples["train"].num_nodes.mean()),
        run.result["parameters"],
    )


def predict() -> list[Figure]:
    """What the model says of machines that nobody here has."""
    figures = []
    for name, (seeds, seconds, nodes) in GPU_BATCH.items():
        for gpus in (1, 8, 64):
            rate = NVLINK if gpus <= 8 else NETWORK
            # Rows of M come in bfloat16 and are told of Y in float32.
            moved = (gpus - 1) / gpus * (2 * 4 * GPU_WEIGHTS + nodes * GPU_DIM * (2 + 4))
            epoch = -(-seeds // 1000) / gpus * (seconds + moved / rate)
            data = f"{gpus} GPUs, gamma > 0, d {GPU_DIM}, bfloat16"
            figures.append(
                {"name": f"{name}: an epoch", "data": data, "value": epoch, "unit": "s, predicted"}
            )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["messages", "steps", "predict", "worker"])
    parser.add_argument("--record", action="store_true", help="put the figures into results.json")
    options = parser.parse_args()
    if options.command == "worker":
        return worker()
    figures = {"messages": messages, "steps": steps, "predict": predict}[options.command]()
    for figure in figures:
        figure["value"] = float(f"{figure['value']:.4g}")
        print(f"{figure['data']}: {figure['name']}: {figure['value']:,} {figure['unit']}")
    if options.record:
        record(figures, f"python benchmarks/scaling.py {options.command}")


if __name__ == "__main__":
    main()
