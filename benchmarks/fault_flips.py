"""Bit flips: one bit in one file of each kind, then the command that reads it."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import small_runs
from fault_probe import Answer, Row, Workspace, contents, muse

import tiny_runs

REFUSED, SAME, UNNOTICED, BROKEN = "refused", "without effect", "NOT FOUND", "TRACEBACK"


@dataclass(frozen=True)
class Kind:
    """A kind of file, the command that reads it, and what must come of that."""

    name: str
    place: str
    """The folder or file that is put back before each flip."""
    files: str
    """In that place, as a pattern."""
    read: Callable[[Workspace], Answer]
    result: Callable[[Workspace, Answer], object]
    unguarded: str = ""
    """Why no digest covers it, where none does."""


def printed(work: Workspace, answer: Answer) -> object:
    return answer.out


def outcome(name: str) -> Callable[[Workspace, Answer], object]:
    def result(work: Workspace, answer: Answer) -> object:
        try:
            return small_runs.outcome(work.root / name)
        except ValueError as error:
            # A log that is no JSON any more.
            return str(error)

    return result


def table(work: Workspace, answer: Answer) -> object:
    return (work.root / "new.npy").read_bytes()


def predicting(name: str) -> Callable[[Workspace], Answer]:
    def read(work: Workspace) -> Answer:
        (work.root / "new.npy").unlink(missing_ok=True)
        return work.predict(work.root / name, work.root / "new.npy")

    return read


def verifying(name: str) -> Callable[[Workspace], Answer]:
    return lambda work: muse("info", work.root / name, "--verify")


def resuming(name: str) -> Callable[[Workspace], Answer]:
    return lambda work: work.resume(work.root / name)


def training_on_pack(work: Workspace) -> Answer:
    """From the beginning, with all hot and cold rows from the pack."""
    shutil.rmtree(work.root / "with_pack", ignore_errors=True)
    settings = tiny_runs.flags(features_home="packed", features_pack=work.root / "pack", epochs=1)
    return muse("train", work.graph, "--samples", work.samples, "--out", work.root / "with_pack", *settings)


def kinds() -> list[Kind]:
    """Every kind of file that musegnn writes and reads again."""
    graph, samples = verifying("graph"), verifying("samples")
    drawn = (lambda work: work.draw(), lambda work, answer: contents(work.drawn))
    parts = (lambda work: work.predict(work.run, work.parts), lambda work, _: work.parts.read_bytes())
    by_run, by_disk = (predicting("run"), table), (predicting("disk"), table)
    packed = (lambda work: work.pack(work.packed), lambda work, _: contents(work.packed))
    half, half_disk, half_shared, half_shared_disk = (
        (resuming(name), outcome(name))
        for name in ("half", "half_disk", "half_shared_memory", "half_shared_disk")
    )
    return [
        Kind("graph, header", "graph", "header.json", graph, printed),
        Kind("graph, arrays", "graph", "*.bin", graph, printed),
        Kind("samples, header", "samples", "header.json", samples, printed),
        Kind("samples, tables", "samples", "*s.bin", samples, printed),
        Kind("samples, shards", "samples", "*_shard_*.bin", samples, printed),
        Kind("unfinished samples, journal", "drawn.partial", "journal/*.json", *drawn),
        Kind("unfinished samples, shards", "drawn.partial", "store/*.bin", *drawn),
        Kind("pack, header", "pack", "header.json", verifying("pack"), printed),
        Kind("pack, arrays", "pack", "*.bin", verifying("pack"), printed),
        Kind("pack, arrays, training", "pack", "*.bin", training_on_pack, outcome("with_pack")),
        Kind("unfinished pack, journal", "packed.partial", "journal/*.json", *packed),
        Kind("unfinished pack, shards", "packed.partial", "store/*.bin", *packed),
        Kind("checkpoint to go on from, JSON", "half", "checkpoint/state.json", *half),
        Kind("checkpoint to go on from, tensors", "half", "checkpoint/state-*.safetensors", *half),
        Kind("best checkpoint, JSON", "run", "checkpoint/best.json", *by_run),
        Kind("best checkpoint, tensors", "run", "checkpoint/best-*.safetensors", *by_run),
        Kind("checkpoint of two ranks, shares to go on from", "half_shared_memory",
             "checkpoint/state.[01]-*.safetensors", *half_shared),
        Kind("checkpoint of two ranks, shares of the best", "shared_memory",
             "checkpoint/best.[01]-*.safetensors", predicting("shared_memory"), table),
        Kind("config.toml, going on", "half", "config.toml", *half),
        Kind("config.toml, predicting", "run", "config.toml", *by_run),
        Kind("run.json, going on", "half", "run.json", *half),
        Kind("run.json, predicting", "run", "run.json", *by_run),
        Kind("result.json", "run", "result.json", resuming("run"), printed),
        Kind("events.jsonl", "half", "events.jsonl", *half, unguarded="a log: nothing is computed from it"),
        Kind("means on disk, header", "disk", "means/means.json", *by_disk),
        Kind("means on disk, M.bin, count.bin", "disk", "means/[Mc]*.bin", *by_disk,
             unguarded="changes in place with every step"),
        Kind("means on disk, undo.bin", "half_disk", "means/undo.bin", *half_disk),
        Kind("means on disk of two ranks, headers", "shared_disk", "means-?-of-2/means.json",
             predicting("shared_disk"), table),
        Kind("means on disk of two ranks, undo.bin", "half_shared_disk", "means-?-of-2/undo.bin",
             *half_shared_disk),
        Kind("unfinished table, plan", "parts.npy.partial", "plan.json", *parts),
        Kind("unfinished table, parts", "parts.npy.partial", "part-*.npy", *parts),
    ]  # fmt: skip


def flips(root: Path, count: int) -> list[Row]:
    """`count` flips of each kind."""
    work, rng = Workspace(root / "work"), np.random.default_rng(count)
    shutil.copytree(work.root, root / "whole")
    rows = []
    for kind in kinds():
        answer = kind.read(work)
        assert answer.code == 0, (kind.name, answer)
        expected = kind.result(work, answer)
        verdicts, faults = [], []
        for _ in range(count):
            restore(root, kind)
            files = sorted((work.root / kind.place).glob(kind.files))
            path = files[rng.integers(len(files))]
            where = flip(path, rng)
            verdicts.append(judge(kind, work, expected, faults, f"{path.name}, {where}"))
        restore(root, kind)
        rows.append(Row(f"a bit flipped: {kind.name}", count, "found, or without effect",
                        told(verdicts, kind), tuple(faults)))  # fmt: skip
    return rows


def judge(kind: Kind, work: Workspace, expected: object, faults: list[str], where: str) -> str:
    answer = kind.read(work)
    if answer.is_refusal:
        return REFUSED
    if answer.code != 0:
        faults.append(f"{where}: {answer}")
        return BROKEN
    if kind.result(work, answer) == expected:
        return SAME
    if not kind.unguarded:
        faults.append(f"{where}: not found")
    return UNNOTICED


def told(verdicts: list[str], kind: Kind) -> str:
    """How often each verdict."""
    parts = [
        f"{verdicts.count(name)} {name}" for name in (REFUSED, SAME, UNNOTICED, BROKEN) if name in verdicts
    ]
    return ", ".join(parts) + (f" ({kind.unguarded})" if kind.unguarded and UNNOTICED in verdicts else "")


def restore(root: Path, kind: Kind) -> None:
    """Put back what a flip and the command behind it have changed."""
    for name in {kind.place, kind.place.removesuffix(".partial")}:
        now, whole = root / "work" / name, root / "whole" / name
        if now.is_dir():
            shutil.rmtree(now)
        elif now.exists():
            now.unlink()
        if whole.is_dir():
            shutil.copytree(whole, now)
        elif whole.exists():
            shutil.copy2(whole, now)


def flip(path: Path, rng: np.random.Generator) -> str:
    """Turn one bit, in place; where it was."""
    bit = int(rng.integers(8 * path.stat().st_size))
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))
        os.fsync(file.fileno())
    return f"bit {bit % 8} of byte {bit // 8}"
