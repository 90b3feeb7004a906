"""Hostile files: made to hurt whoever reads them, with every checksum in order."""

import copy
import itertools
import json
import math
import os
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from fault_flips import training_on_pack
from fault_probe import Answer, Row, Workspace, muse

from musegnn.progress import ignore
from musegnn.store.arrays import file_digest
from musegnn.store.header import checksum

DEEP = "[" * 100_000
OUTSIDE = ("../../etc/passwd", "/etc/passwd")
GROWN = 512 << 20
"""Bytes of memory that no refusal needs."""

Case = tuple[str, Callable[[Workspace], Any]]
"""What is done, and how; what it returns is called behind it."""


# How files are changed.


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    """Change an object of a JSON file and put its checksum in order, of whichever form it is."""
    body = json.loads(path.read_text())
    if set(body) == {"body", "checksum"}:
        inner = change(body["body"])
        body = {"body": inner, "checksum": checksum({path.name: inner})}
    else:
        is_sealed = body.pop("checksum", None) is not None
        body = change(body)
        if isinstance(body, dict) and is_sealed:
            body["checksum"] = checksum(body)
    path.write_text(json.dumps(body))


def set_to(place: list[Any], value: object) -> Callable[[Any], Any]:
    def change(body: Any) -> Any:
        inner = body
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = value
        return body

    return change


def tensors(folder: Path, name: str, data: bytes) -> None:
    """Other bytes for the tensors of a checkpoint, with their digest and name."""
    path = folder / "checkpoint" / f"{name}.json"
    old = path.with_name(json.loads(path.read_text())["file"])
    old.write_bytes(data)
    digest = file_digest(old, ignore, threads=1)
    old.rename(path.with_name(f"{name}-{digest[:16]}.safetensors"))
    rewrite(path, lambda body: body | {"digest": digest, "file": f"{name}-{digest[:16]}.safetensors"})


def safetensors(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(*shape: int, offsets: tuple[int, int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def npy(dtype: str, shape: str, data: bytes = b"") -> bytes:
    head = f"{{'descr': {dtype}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data


# What is done, and the command that meets it.


def predict(work: Workspace, name: str = "run") -> Answer:
    (work.root / "new.npy").unlink(missing_ok=True)
    return work.predict(work.root / name, work.root / "new.npy")


def headers() -> Iterator[Case]:
    """Of stores."""
    shape, dtype = ["arrays", "features", "shape"], ["arrays", "features", "dtype"]
    changes: list[tuple[str, list[Any], object]] = [
        *((f"an array of shape {value}", shape, value)
          for value in ([2**61], [-1], [2**80, 0], [math.inf], [[1]])),
        *((f"an array of dtype {value}", dtype, value) for value in ("|O", "<U9", "", None)),
        *((f"an array called {value}", ["arrays", value], {"dtype": "<u1", "shape": [1], "digest": "0" * 64})
          for value in (*OUTSIDE, "", "a\0b", "x" * 5000)),
        *((f"num_nodes = {value}", ["attributes", "num_nodes"], value)
          for value in (-1, 2**63, math.nan, "1", None)),
    ]  # fmt: skip
    for name, place, value in changes:
        yield (
            f"graph header, {name[:60]}",
            lambda work, place=place, value=value: (
                rewrite(work.graph / "header.json", set_to(place, value)),
                lambda: muse("info", work.graph, "--verify"),
            ),
        )
    for kind in ("graph", "samples", "pack"):
        for name, write in raw_files():
            yield (
                f"{kind} header, {name}",
                lambda work, kind=kind, write=write: (
                    write(work.root / kind / "header.json"),
                    lambda: muse("info", work.root / kind, "--verify"),
                ),
            )
    for name, write in (*raw_files(), ("a folder", lambda path: (path.unlink(), path.mkdir()))):
        yield (
            f"graph array, {name}",
            lambda work, write=write: (
                write(work.graph / "features.bin"),
                lambda: muse("info", work.graph, "--verify"),
            ),
        )


def raw_files() -> list[tuple[str, Callable[[Path], Any]]]:
    """In place of any file."""

    def link(target: str) -> Callable[[Path], Any]:
        return lambda path: (path.unlink(), path.symlink_to(target))

    return [
        ("100,000 brackets", lambda path: path.write_text(DEEP)),
        ("a number of 100,000 digits", lambda path: path.write_text('{"format": ' + "9" * 100_000 + "}")),
        ("one terabyte of holes", lambda path: os.truncate(path, 1 << 40)),
        ("a link to /dev/zero", link("/dev/zero")),
        ("a link to /etc/passwd", link("/etc/passwd")),
        ("a link to itself", lambda path: (path.unlink(), path.symlink_to(path))),
        ("a pipe that nobody writes", lambda path: (path.unlink(), os.mkfifo(path))),
        ("nothing", lambda path: path.write_bytes(b"")),
        ("bytes that are no text", lambda path: path.write_bytes(b"\xff" * 1000)),
    ]


def run_files() -> Iterator[Case]:
    """Of runs: what predicts and what goes on reads them."""
    names = ["config.toml", "run.json", "result.json", "checkpoint/best.json", "checkpoint/state.json"]
    for name in (*names, "means/means.json"):
        for what, write in raw_files():
            # Nobody trains with a result, and a run without its config is none.
            reads = "disk" if name.startswith("means") else "half" if "state" in name else "run"
            yield (
                f"{name}, {what}",
                lambda work, name=name, write=write, reads=reads: (
                    write(work.root / reads / name),
                    lambda: (
                        work.resume(work.root / reads)
                        if name in ("checkpoint/state.json", "result.json")
                        else predict(work, reads)
                    ),
                ),
            )
    for value in (*OUTSIDE, "", "state.json"):
        yield (
            f"a checkpoint of the file {value!r}",
            lambda work, value=value: (
                rewrite(work.run / "checkpoint/best.json", set_to(["file"], value)),
                lambda: predict(work),
            ),
        )
    for place, value in [
        *((["graph", "folder"], value) for value in (*OUTSIDE, "a\0b", 7)),
        *((["model", "in_dim"], value) for value in (-1, 2**62, 10**9, "6")),
    ]:
        yield (
            f"run.json, {place[1]} = {value!r}",
            lambda work, place=place, value=value: (
                rewrite(work.run / "run.json", set_to(place, value)),
                (place[1] == "folder")
                and rewrite(work.run / "run.json", set_to(["graph", "from_here"], value)),
                lambda: predict(work),
            ),
        )
    for name, value in (("epoch", -1), ("epoch", "1"), ("step", 1.5), ("best", [[]]), ("seconds", None)):
        yield (
            f"a checkpoint at {name} = {value!r}",
            lambda work, name=name, value=value: (
                rewrite(work.half / "checkpoint/state.json", set_to(["facts", "position", name], value)),
                lambda: work.resume(work.half),
            ),
        )


def tensor_files() -> Iterator[Case]:
    """Of checkpoints."""
    one = {"model.f.layers.0.weight": tensor(1, offsets=(0, 4))}
    files = {
        "a header of 2^63 bytes": safetensors("{}", length=1 << 63),
        "a header of 2^40 bytes": safetensors("{}", length=1 << 40),
        "a header that is no JSON": safetensors("{"),
        "a header of 100,000 brackets": safetensors(DEEP),
        "offsets beyond the end": safetensors({"x": tensor(1 << 40, offsets=(0, 1 << 42))}),
        "offsets that fall": safetensors({"x": tensor(1, offsets=(4, 0))}, bytes(4)),
        "negative offsets": safetensors({"x": tensor(1, offsets=(-4, 0))}, bytes(4)),
        "offsets that overlap": safetensors(
            {"x": tensor(1, offsets=(0, 4)), "y": tensor(1, offsets=(0, 4))}, bytes(4)
        ),
        "a shape of 2^64 values": safetensors({"x": tensor(1 << 32, 1 << 32, offsets=(0, 4))}, bytes(4)),
        "a dtype of objects": safetensors({"x": tensor(1, offsets=(0, 4), dtype="O")}, bytes(4)),
        "a weight of another shape": safetensors(one, bytes(4)),
        "no tensors": safetensors({}),
        "nothing": b"",
    }
    for what, data in files.items():
        yield (
            f"tensors with {what}",
            lambda work, data=data: (
                tensors(work.run, "best", data),
                lambda: predict(work),
            ),
        )


def packs() -> Iterator[Case]:
    """Read by training, which takes their rows for features."""
    changes: list[tuple[str, list[Any], object]] = [
        *((f"num_hot = {value}", ["attributes", "num_hot"], value) for value in (-1, 2**63, math.nan, "1")),
        *((f"num_nodes = {value}", ["attributes", "num_nodes"], value) for value in (-1, 1, 2**80, None)),
        *((f"{name} = {value}", ["attributes", "splits", "train", name], value)
          for name in ("num_samples", "shard_size") for value in (-1, 0, 2**63, math.inf)),
        *((f"a split called {value}", ["attributes", "splits", value], {"num_samples": 1, "shard_size": 1})
          for value in (*OUTSIDE, "", "trian")),
        *((f"hot rows of shape {value}", ["arrays", "hot_rows", "shape"], value)
          for value in ([2**61, 6], [-1, 6], [15], [15, 0])),
        *((f"hot rows of dtype {value}", ["arrays", "hot_rows", "dtype"], value) for value in ("|O", "<U9")),
        ("features of another digest", ["attributes", "features"], "0" * 64),
        ("samples of another digest", ["attributes", "samples"], "0" * 64),
    ]  # fmt: skip
    for name, place, value in changes:
        yield (
            f"pack header, {name}",
            lambda work, place=place, value=value: (
                rewrite(work.root / "pack/header.json", set_to(place, value)),
                lambda: training_on_pack(work),
            ),
        )
    for name, row in (("beyond the shard", (2**62, 1)), ("of 2^62 rows", (0, 2**62)), ("of no rows", (0, 0))):
        yield (
            f"pack places, a sample {name}",
            lambda work, row=row: (
                misplace(work.root / "pack", "train_places", row),
                lambda: training_on_pack(work),
            ),
        )
    for name, write in raw_files():
        yield (
            f"pack shard, {name}",
            lambda work, write=write: (
                write(work.root / "pack/train_shard_000000.bin"),
                lambda: training_on_pack(work),
            ),
        )


def misplace(pack: Path, name: str, row: tuple[int, int]) -> None:
    """Other places for all samples, with their digest."""
    path = pack / f"{name}.bin"
    places = np.fromfile(path, np.uint64).reshape(-1, 3)
    places[:, :2] = row
    path.write_bytes(places.tobytes())
    digest = file_digest(path, ignore, threads=1)
    rewrite(pack / "header.json", set_to(["arrays", name, "digest"], digest))


def shares() -> Iterator[Case]:
    """Of M, of a run of two ranks: files of a checkpoint, or folders."""
    for value in (
        [],
        [["a", "b"]] * 3,
        [[]],
        "x",
        [[OUTSIDE[0], "0" * 64]] * 2,
        [[OUTSIDE[1], "0" * 64]] * 2,
    ):
        yield (
            f"a checkpoint with the shares {str(value)[:40]}",
            lambda work, value=value: (
                rewrite(work.root / "shared_memory/checkpoint/best.json", set_to(["shares"], value)),
                lambda: predict(work, "shared_memory"),
            ),
        )
    for run, value in itertools.product(
        ("shared_disk", "half_shared_disk"), (-1, 0, 3, 2**40, 1.5, "2", None)
    ):
        yield (
            f"a checkpoint of {value} ranks, {run}",
            lambda work, run=run, value=value: (
                rewrite(work.root / run / "checkpoint/state.json", set_to(["facts", "ranks"], value)),
                lambda: work.resume(work.root / run) if run.startswith("half") else predict(work, run),
            ),
        )
    for what, write in raw_files():
        yield (
            f"the header of a share on disk, {what}",
            lambda work, write=write: (
                write(work.root / "shared_disk/means-1-of-2/means.json"),
                lambda: predict(work, "shared_disk"),
            ),
        )
        # All bytes are hashed before any is read, and a terabyte takes its time.
        if "terabyte" in what:
            continue
        yield (
            f"a share of a checkpoint, {what}",
            lambda work, write=write: (
                write(next((work.root / "shared_memory/checkpoint").glob("best.1-*"))),
                lambda: predict(work, "shared_memory"),
            ),
        )


def settings() -> Iterator[Case]:
    """A recipe of a stranger."""
    texts = {
        "100,000 brackets": f"a = {DEEP}",
        "10,000 tables in each other": "[" + ".".join(["a"] * 10_000) + "]",
        "a number of 100,000 digits": f"[training]\nepochs = {'9' * 100_000}",
        "lr = nan": "[training]\nlr = nan",
        "lr = inf": "[training]\nlr = inf",
        "hidden = -1": "[model]\nhidden = -1",
        "hidden = 2^62": f'dataset = "debian"\n[model]\nhidden = {1 << 62}',
        "a key twice": "[model]\nhidden = 1\nhidden = 2",
        "bytes of NUL": "\0" * 100,
        "an unknown setting": "[model]\n__class__ = 1",
        "a dataset outside": 'dataset = "../../etc/passwd"',
    }
    for what, text in texts.items():
        yield (
            f"recipe, {what}",
            lambda work, text=text: (
                (work.root / "own.toml").write_text(text),
                lambda: muse(
                    "train", work.root / "own.toml", "--out", work.root / "x", "--stores", work.root / "y"
                ),
            ),
        )
    for what, write in raw_files():
        yield (
            f"recipe, {what}",
            lambda work, write=write: (
                (work.root / "own.toml").touch(),
                write(work.root / "own.toml"),
                lambda: muse(
                    "train", work.root / "own.toml", "--out", work.root / "x", "--stores", work.root / "y"
                ),
            ),
        )


class Bomb:
    """What a pickle could do: leave a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (f"touch {self.path}",)


def inputs() -> Iterator[Case]:
    """To be imported."""

    def importing(name: str, write: Callable[[Path], Any]) -> Callable[[Workspace], Any]:
        return lambda work: (
            write(work.root / name),
            lambda: muse("import", work.root / name, "--out", work.root / "imported"),
        )

    def pickled(path: Path) -> None:
        np.save(path, np.array([Bomb(path.with_name("canary"))], dtype=object), allow_pickle=True)

    yield "an .npy of pickled objects", importing("e.npy", pickled)
    for what, data in {
        "2^60 edges": npy("'<i8'", f"(2, {1 << 60})", bytes(64)),
        "a negative shape": npy("'<i8'", "(2, -5)", bytes(64)),
        "a shape that is a call": npy("'<i8'", "(2, len([]))", bytes(64)),
        "a descr of objects": npy("'|O'", "(2, 3)", bytes(64)),
        "a header of 60,000 brackets": npy("[" * 60_000, "(2, 3)"),
    }.items():
        yield f"an .npy with {what}", importing("e.npy", lambda path, data=data: path.write_bytes(data))
    yield (
        "an .npz whose member says 2^40 edges",
        importing("e.npz", zip_of(npy("'<i8'", f"(2, {1 << 40})"), 1 << 28)),
    )
    yield (
        "an .npz without its end",
        importing("e.npz", lambda path: path.write_bytes(b"PK\x03\x04" + bytes(99))),
    )
    texts: dict[str, bytes] = {
        "a line of 64 MB": b"1" * (64 << 20),
        "bytes of NUL": b"\0" * 4096,
        "a quote that never ends": b'0,1\n"' + b"x,\n" * 10_000,
        "ids below 0": b"0,1\n-1,2\n",
        "ids beyond 2^63": b"0,1\n99999999999999999999,2\n",
        "three columns, then one": b"0,1,2\n3\n",
        "nothing": b"",
        "text in UTF-16": "0,1\n2,3\n".encode("utf-16"),
    }
    for what, data in texts.items():
        yield f"a .csv with {what}", importing("e.csv", lambda path, data=data: path.write_bytes(data))
    for what, text in (("beyond the graph", "151\n"), ("below 0", "-1\n"), ("100,000 digits", "9" * 100_000)):
        yield (
            f"nodes to predict, {what}",
            lambda work, text=text: (
                (work.root / "ids.txt").write_text(text),
                lambda: muse(
                    "predict", work.run, "--nodes", work.root / "ids.txt", "--out", work.root / "new.csv"
                ),
            ),
        )


def zip_of(head: bytes, num_bytes: int) -> Callable[[Path], None]:
    """A member that unpacks to very much more than the file has."""
    import zipfile

    def write(path: Path) -> None:
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("edge_index.npy", "w") as file,
        ):
            file.write(head)
            for _ in range(num_bytes >> 24):
                file.write(bytes(1 << 24))

    return write


GROUPS: dict[str, Callable[[], Iterator[Case]]] = {
    "store headers and arrays": headers,
    "files of a run": run_files,
    "tensors of a checkpoint": tensor_files,
    "packs": packs,
    "shares of M of two ranks": shares,
    "recipes": settings,
    "tables and arrays to import": inputs,
}


def hostile(root: Path, count: int) -> list[Row]:
    """All of them, and `count` values at random places of every JSON file."""
    work = Workspace(root / "work")
    shutil.copytree(work.root, root / "whole")
    rows = []
    for group, cases in GROUPS.items():
        faults, peak, listed = [], 0, list(cases())
        for name, prepare in listed:
            restore(root)
            answer = prepare(work)[-1]()
            peak = max(peak, answer.grown)
            if not answer.is_refusal or answer.grown > GROWN or (work.root / "canary").exists():
                faults.append(f"{name}: {answer}, {answer.grown >> 20} MB")
        happened = f"{len(listed) - len(faults)} refused; at most {peak >> 20} MB more memory"
        rows.append(
            Row(f"hostile: {group}", len(listed), "exit 2, one line, no code run", happened, tuple(faults))
        )
    rows.append(anywhere(root, work, count))
    return rows


VALUES = [
    -1,
    0,
    2**31,
    2**63,
    2**80,
    1e308,
    math.nan,
    math.inf,
    None,
    True,
    "",
    "x" * 100,
    *OUTSIDE,
    [],
    {},
    [[]],
    "\ud800",
]
FILES: dict[str, Callable[[Workspace], Answer]] = {
    "graph/header.json": lambda work: muse("info", work.graph, "--verify"),
    "pack/header.json": lambda work: muse("info", work.root / "pack", "--verify"),
    "samples/header.json": lambda work: muse("info", work.samples, "--verify"),
    "half/run.json": lambda work: work.resume(work.half),
    "half/checkpoint/state.json": lambda work: work.resume(work.half),
    "run/run.json": predict,
    "run/checkpoint/best.json": predict,
    "run/result.json": lambda work: work.resume(work.run),
    "disk/means/means.json": lambda work: predict(work, "disk"),
    "shared_memory/checkpoint/best.json": lambda work: predict(work, "shared_memory"),
    "half_shared_memory/checkpoint/state.json": lambda work: work.resume(work.root / "half_shared_memory"),
    "shared_disk/checkpoint/state.json": lambda work: predict(work, "shared_disk"),
    "shared_disk/means-1-of-2/means.json": lambda work: predict(work, "shared_disk"),
    "packed.partial/journal/plan.json": lambda work: work.pack(work.packed),
    "drawn.partial/journal/plan.json": lambda work: work.draw(),
    "drawn.partial/journal/train_shard_000001.json": lambda work: work.draw(),
    "parts.npy.partial/plan.json": lambda work: work.predict(work.run, work.parts),
}


def anywhere(root: Path, work: Workspace, count: int) -> Row:
    """A value that does not belong there, somewhere in a JSON file whose checksum fits."""
    rng, codes, faults, peak = np.random.default_rng(count), [], [], 0
    for number in range(count):
        restore(root)
        name = list(FILES)[number % len(FILES)]
        path = work.root / name
        body = json.loads(path.read_text())
        places = [
            place for place in leaves(body.get("body", body)) if place[-1] not in ("checksum", "format")
        ]
        place, value = places[rng.integers(len(places))], copy.deepcopy(VALUES[rng.integers(len(VALUES))])
        rewrite(path, set_to(place, value))
        answer = FILES[name](work)
        codes.append(answer.code)
        peak = max(peak, answer.grown)
        if not (answer.is_refusal or answer.code == 0) or answer.grown > GROWN:
            faults.append(f"{name}, {place} = {value!r}: {answer}, {answer.grown >> 20} MB")
    happened = f"{codes.count(2)} refused, {codes.count(0)} harmless; at most {peak >> 20} MB more memory"
    must = "one line, or no harm; never a traceback"
    return Row(
        "hostile: any value of any JSON file, checksums in order", count, must, happened, tuple(faults)
    )


def leaves(body: Any, place: tuple[Any, ...] = ()) -> Iterator[list[Any]]:
    """The place of everything inside an object."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in items:
        yield [*place, key]
        yield from leaves(value, (*place, key))


def restore(root: Path) -> None:
    shutil.rmtree(root / "work")
    shutil.copytree(root / "whole", root / "work", symlinks=True)
