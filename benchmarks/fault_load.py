"""Load: a thousand epochs in one process, and several processes at one folder."""

import itertools
import os
import shutil
import time
from pathlib import Path

import numpy as np
import small_runs
from fault_probe import Answer, Command, Row, Workspace, muse

import musegnn
from musegnn.errors import StoreError
from musegnn.memory import anonymous_memory, keep_freed_memory

SLOPE = 256 << 10
"""Bytes in 100 epochs that are no growth: the allocator's own noise."""
HOMES, EPOCHS = ("memory", "disk"), 20


def soak(root: Path, count: int) -> list[Row]:
    """`count` epochs with gamma > 0, M in memory and on disk; the first fifth warms up."""
    graph, store = small_runs.graph(), small_runs.store(root / "samples")
    keep_freed_memory()
    rows = []
    for home in ("memory", "disk"):
        # Made and touched before: a list would grow itself.
        seen, number = np.ones((count, 3), dtype=np.int64), itertools.count()

        def listen(event, seen=seen, number=number):
            if event["event"] == "epoch":
                threads, files = (len(os.listdir(f"/proc/self/{name}")) for name in ("task", "fd"))
                seen[next(number)] = anonymous_memory(), files, threads

        options = {"epochs": count, "evaluate_every": 10, "checkpoint_seconds": 1, "means_home": home}
        musegnn.train(graph, store, small_runs.model(0.5), root / home, listen=listen, lr=0.01, **options)
        memory, files, threads = seen[count // 5 :].T
        slope = 100 * np.polyfit(np.arange(len(memory)), memory, 1)[0] if len(memory) > 2 else 0.0
        faults = [f"memory grows by {slope / 1024:.0f} kB in 100 epochs"] if slope > SLOPE else []
        # A reader of the epoch just over may be about to end: what stays is there in most epochs.
        tenth = max(1, len(memory) // 10)
        (few, many), (before, after) = (
            (int(np.median(part[:tenth])), int(np.median(part[-tenth:]))) for part in (files, threads)
        )
        faults += ["files are left open"] if many > few else []
        faults += ["threads stay"] if after > before else []
        happened = (
            f"{slope / 1024:+.1f} kB in 100 epochs at {memory[-1] / 2**20:.0f} MB; files {few} to "
            f"{many}, threads {before} to {after}"
        )
        rows.append(Row(f"soak: epochs with M {'in memory' if home == 'memory' else 'on disk'}", count,
                        "memory, open files and threads stay flat", happened, tuple(faults)))  # fmt: skip
    return rows


def concurrency(root: Path, count: int) -> list[Row]:
    """Each meeting `count` times."""
    work = Workspace(root / "work")
    for home in HOMES:
        assert work.training(work.root / f"alone-{home}", home, epochs=EPOCHS).wait().code == 0
    meetings = {
        "two trainings on one sample store": (two_trainings, "both as if alone"),
        "two trainings into one run folder": (one_folder, "one refused, the other as if alone"),
        "two samplers into one folder": (two_samplers, "one refused, or both find it complete; same bytes"),
        "a reader while a sampler writes": (a_reader, "refused in one line, or the whole store"),
        "prediction while the run trains": (a_predictor, "refused in one line, or a whole table"),
        "two predictions into one table": (two_tables, "one refused, or both find it complete; same bytes"),
    }
    rows = []
    for name, (meet, must) in meetings.items():
        faults, told = [], []
        for number in range(count):
            told.append(meet(work, number, faults))
        happened = f"held; {sum(told)} refusals" if not faults else f"{len(faults)} times not so"
        rows.append(Row(f"at once: {name}", count, must, happened, tuple(faults)))
    return rows


def training(work: Workspace, home: str, *, fresh: bool = True) -> Command:
    """A run beside us, with a checkpoint behind each step."""
    if fresh:
        shutil.rmtree(work.root / f"run-{home}", ignore_errors=True)
    return work.training(work.root / f"run-{home}", home, epochs=EPOCHS)


def disturbed(work: Workspace, home: str) -> list[str]:
    """What is not as in the run that was alone."""
    alone, found = (small_runs.outcome(work.root / f"{name}-{home}") for name in ("alone", "run"))
    return [f"{home}: {name} differs" for name in small_runs.differences(found, alone)]


def refusals(answers: list[Answer], faults: list[str]) -> int:
    """How many were refused; whatever else is not done is a fault."""
    faults += [str(answer) for answer in answers if answer.code and not answer.is_refusal]
    return sum(answer.is_refusal for answer in answers)


def two_trainings(work: Workspace, number: int, faults: list[str]) -> int:
    answers = [one.wait() for one in [training(work, home) for home in HOMES]]
    faults += [str(answer) for answer in answers if answer.code]
    faults += [fault for home in HOMES for fault in disturbed(work, home)]
    return 0


def one_folder(work: Workspace, number: int, faults: list[str]) -> int:
    answers = [one.wait() for one in [training(work, "memory", fresh=not number) for number in range(2)]]
    refused = refusals(answers, faults)
    faults += disturbed(work, "memory") + [f"{refused} refused"] * (refused != 1)
    return refused


def two_samplers(work: Workspace, number: int, faults: list[str]) -> int:
    drawn = [work.root / name for name in ("drawn", "drawn.partial")]
    for path in drawn:
        shutil.rmtree(path, ignore_errors=True)
    draw = ["sample", work.graph, "--out", drawn[0], "--set", "fanouts=4,3", "--batch-size", 5]
    answers = [one.wait() for one in [Command(*draw, "--workers", 1 + i) for i in range(2)]]
    refused = refusals(answers, faults)
    if refused == 2:
        faults.append("both refused")
    if muse("info", drawn[0], "--verify").code or drawn[1].exists():
        faults.append("the store is not whole")
    return refused


def a_reader(work: Workspace, number: int, faults: list[str]) -> int:
    """Opens as often as it can until the store is there."""
    folder, refused = work.root / "read", 0
    shutil.rmtree(folder, ignore_errors=True)
    draw = ["--set", "fanouts=4,3", "--batch-size", 2, "--workers", 1]
    writer = Command("sample", work.graph, "--out", folder, *draw)
    while True:
        is_over = writer.is_over()
        try:
            musegnn.SampleStore.open(folder).verify()
        except StoreError as error:
            refused += 1
            faults += [f"several lines: {error}"] * ("\n" in str(error))
            if is_over:
                faults.append(str(error))
                break
        else:
            break
    refusals([writer.wait()], faults)
    return refused


def a_predictor(work: Workspace, number: int, faults: list[str]) -> int:
    """By turns with M in memory and on disk; the run keeps a checkpoint behind each step."""
    home, table, refused = HOMES[number % 2], work.root / "while.npy", 0
    writer = training(work, home)
    while not writer.is_over():
        answer = muse("predict", work.root / f"run-{home}", "--nodes", "all", "--out", table, "--overwrite")
        refused += refusals([answer], faults)
        if answer.code == 0:
            total = np.load(table)["probability"].sum(axis=1)
            if len(total) != 150 or abs(total - 1).max() > 1e-5:
                faults.append("probabilities do not add up")
        time.sleep(0.01)
    refusals([writer.wait()], faults)
    faults += disturbed(work, home)
    return refused


def two_tables(work: Workspace, number: int, faults: list[str]) -> int:
    table = work.root / "both.npy"
    predict = ["predict", work.run, "--nodes", "all", "--out", table]
    answers = [one.wait() for one in [Command(*predict) for _ in range(2)]]
    refused = refusals(answers, faults)
    first = table.read_bytes()
    if refused != 1 or muse(*predict, "--overwrite").code or table.read_bytes() != first:
        faults.append(f"{refused} refused")
    table.unlink()
    return refused
