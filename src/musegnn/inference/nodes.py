"""Which nodes are meant: `muse predict --nodes all|SPLIT|FILE|ID|NAME`."""

import csv
import difflib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Bool, Integer

from musegnn.datasets.raw.npy import open_npy
from musegnn.datasets.raw.text import BYTE_ORDER_MARK, decode, is_whole, open_text
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.graph.checks import SPLITS
from musegnn.sampling.draws import NO_SPLIT, split_nodes
from musegnn.store import file_errors

ALL = "all"
SUFFIXES = (".npy", ".csv", ".txt")
"""What a spec ends with that is a file before it is a name."""

Reading = Literal["id", "name"]
"""What a whole number in a list is."""
_PREFIXES: dict[str, Reading] = {"id": "id", "name": "name"}
_HEADERS: dict[str, Reading] = {**_PREFIXES, "node": "id"}

_BLOCK = 1 << 20
"""Ids, lines or names that are held at once."""
_MAX_LINE = 1 << 20
_MAX_NEAR = 20_000
"""Names that are compared with a misspelled one."""


def read_nodes(spec: str, graph: Graph) -> Integer[np.ndarray, " ids"]:
    """The ids, ascending and each once, of the nodes that a text means.

    - `all`, or a split: `train`, `valid`, `test`, `none`.
    - A file. `.npy`: ids, or a mask of all nodes. `.csv`: the first column, with or without a header. Any
      other is text with a node on each line. Blank lines and lines that begin with `#` are skipped.
    - The id of a node, or its name. `id:17` and `name:17` say which of them a number is; `name:all` is a node
      called all, and `./curl` a file where a node is called curl.

    In a list, whole numbers are ids or names, whichever fits all of them. If both do and mean other nodes,
    the list is refused: a `.csv` with the header `id` (or `node`) or `name` says it.
    """
    if spec == ALL:
        return np.arange(graph.num_nodes, dtype=graph.indices.dtype)
    if spec in (*SPLITS, NO_SPLIT):
        ids = split_nodes(graph, spec)
        if not len(ids):
            raise InputError(f"{graph.name} has no nodes in the split {spec!r}. {_allowed(graph)}")
        return ids
    kind, _, text = spec.partition(":")
    if kind in _PREFIXES and kind != spec:
        node = _one(text, graph, (_PREFIXES[kind],))
        if node is None:
            raise InputError(f"{_unknown(text, graph, _PREFIXES[kind])} {_allowed(graph)}")
        return np.array([node], dtype=graph.indices.dtype)
    is_like_file = os.sep in spec or spec.lower().endswith(SUFFIXES)
    if is_like_file and os.path.exists(spec):
        return _read_file(Path(spec), graph)
    node = _one(spec, graph, ("id", "name"))
    if node is not None:
        return np.array([node], dtype=graph.indices.dtype)
    if os.path.exists(spec):
        return _read_file(Path(spec), graph)
    if is_like_file:
        raise InputError(f"{spec} does not exist. Check the path. {_allowed(graph)}")
    raise InputError(f"{_unknown(spec, graph, words=(ALL, *SPLITS, NO_SPLIT))} {_allowed(graph)}")


def _one(text: str, graph: Graph, readings: tuple[Reading, ...]) -> int | None:
    """The node of this id or name, if there is one."""
    found: dict[Reading, int] = {}
    if "id" in readings and is_whole(text) and 0 <= _number(text) < graph.num_nodes:
        found["id"] = _number(text)
    if "name" in readings and graph.node_names is not None:
        place = _find_names({text.encode(errors="surrogatepass"): 0}, graph)
        if len(place):
            found["name"] = int(place[0])
    if len(set(found.values())) > 1:
        raise InputError(
            f"{text} is the id of one node and the name of another ({found['name']}). "
            f"Pass id:{text} or name:{text}."
        )
    return next(iter(found.values()), None)


def _read_file(path: Path, graph: Graph) -> Integer[np.ndarray, " ids"]:
    with file_errors(path):
        if not path.is_file():
            raise InputError(f"{path} is not a regular file. Pass a file with a node on each line.")
    # A byte for each node and not a sorted copy of the list: bounded by the graph, however long the file.
    chosen = _read_npy(path, graph) if path.suffix.lower() == ".npy" else _read_list(path, graph)
    ids = np.empty(np.count_nonzero(chosen), dtype=graph.indices.dtype)
    if not len(ids):
        raise InputError(f"{path} lists no nodes. Write at least one into it, or pass --nodes all.")
    end = 0
    for start in range(0, len(chosen), _BLOCK):
        found = np.flatnonzero(chosen[start : start + _BLOCK]) + start
        ids[end : end + len(found)] = found
        end += len(found)
    return ids


def _read_npy(path: Path, graph: Graph) -> Bool[np.ndarray, " nodes"]:
    array = open_npy(path)
    if array.dtype == bool and array.shape == (graph.num_nodes,):
        return np.array(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"{path} must hold node ids, or a mask of the {graph.num_nodes} nodes of {graph.name}; got "
            f"{array.dtype}{list(array.shape)}."
        )
    chosen = np.zeros(graph.num_nodes, dtype=bool)
    for start in range(0, len(array), _BLOCK):
        block = np.asarray(array[start : start + _BLOCK])
        if not (0 <= int(block.min()) and int(block.max()) < graph.num_nodes):
            at = int(np.flatnonzero((block < 0) | (block >= graph.num_nodes))[0])
            raise InputError(f"{path}[{start + at}]: {_unknown(str(block[at]), graph, 'id')}")
        chosen[block] = True
    return chosen


class _LineError(InputError):
    """Something is wrong with a line of a list."""

    def __init__(self, path: Path, line: int, message: str) -> None:
        super().__init__(f"{path}, line {line}: {message}")
        self.line = line


def _read_list(path: Path, graph: Graph) -> Bool[np.ndarray, " nodes"]:
    readings, skip = _header(path, graph)
    found: list[np.ndarray] = []
    faults: list[_LineError] = []
    for reading in readings:
        try:
            found.append(_mark(path, skip, graph, reading))
        except _LineError as fault:
            faults.append(fault)
    if not found:
        # The reading that went further is the one that was meant.
        raise max(faults, key=lambda fault: fault.line)
    if not (found[0] == found[-1]).all():
        raise InputError(
            f"The numbers in {path} are ids and also names of other nodes. "
            "Make it a .csv file with the header id or name."
        )
    return found[0]


def _header(path: Path, graph: Graph) -> tuple[tuple[Reading, ...], int]:
    """What numbers may be, and how many entries are no nodes but a header."""
    readings: tuple[Reading, ...] = ("id",) if graph.node_names is None else ("id", "name")
    if not _is_csv(path):
        return readings, 0
    line, first = next(_entries(path), (0, "0"))
    said = _HEADERS.get(first.lower())
    if said == "name" and graph.node_names is None:
        raise _LineError(path, line, f"{graph.name} has no node names. List ids from 0 to {_last(graph)}.")
    if said is not None:
        return (said,), 1
    is_node = is_whole(first) or _one(first, graph, readings) is not None
    return readings, 0 if is_node else 1


def _mark(path: Path, skip: int, graph: Graph, numbers: Reading) -> Bool[np.ndarray, " nodes"]:
    """The nodes of a list, its whole numbers read as ids or as names."""
    chosen = np.zeros(graph.num_nodes, dtype=bool)
    entries = islice(_entries(path), skip, None)
    while block := list(islice(entries, _BLOCK)):
        is_id = [numbers == "id" and is_whole(text) for _, text in block]
        ids = np.array([_number(text) if yes else 0 for (_, text), yes in zip(block, is_id, strict=True)])
        # Backwards, so that the first line of a repeated name stays.
        names = {
            text.encode(): line
            for (line, text), yes in zip(reversed(block), reversed(is_id), strict=True)
            if not yes
        }
        is_bad = (ids < 0) | (ids >= graph.num_nodes)
        place = _find_names(names, graph)
        faults = [block[at] for at in np.flatnonzero(is_bad)[:1]]
        faults += [(line, name.decode()) for name, line in names.items()]
        if faults:
            line, text = min(faults)
            raise _LineError(path, line, _unknown(text, graph))
        chosen[ids[is_id]] = True
        chosen[place] = True
    return chosen


def _entries(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and node, as it is written, of each line that has one."""
    with open_text(path) as file, _csv_errors(path):
        lines = _lines(path, iter(lambda: file.readline(_MAX_LINE), b""))
        if _is_csv(path):
            rows = csv.reader(lines)
            found = ((rows.line_num, row[0].strip()) for row in rows if row)
        else:
            found = ((number, line.strip()) for number, line in enumerate(lines, start=1))
        yield from ((number, text) for number, text in found if text)


def _lines(path: Path, lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        if len(line) == _MAX_LINE:
            raise _LineError(path, number, f"longer than {_MAX_LINE:,} bytes. Write a node on each line.")
        if b"\0" in line:
            raise _LineError(path, number, "not text. Lists of nodes are .npy, .csv or .txt files.")
        text = decode(line.removeprefix(BYTE_ORDER_MARK) if number == 1 else line, path, number)
        # Here, since a quote in a comment would be one to the CSV reader.
        yield "\n" if text.lstrip().startswith("#") else text


@contextmanager
def _csv_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except csv.Error as error:
        raise InputError(f"{path} is not a readable CSV file ({error}). Write it again.") from error


def _is_csv(path: Path) -> bool:
    return path.name.lower().removesuffix(".gz").endswith(".csv")


def _number(text: str) -> int:
    """A whole number; one that no array of ids can hold becomes one that no node has."""
    return int(text) if len(text) <= 18 else -1


def _find_names(wanted: dict[bytes, int], graph: Graph) -> Integer[np.ndarray, " found"]:
    """The nodes of these names, in one pass over all names; what was found is taken out of `wanted`."""
    found: list[int] = []
    names, step = graph.node_names, _BLOCK >> 4
    for start in range(0, 0 if names is None else len(names), step):
        if not wanted:
            break
        assert names is not None
        offsets = names.offsets[start : start + step + 1]
        text = names.text[int(offsets[0]) : int(offsets[-1])].tobytes()
        for node, name in zip(range(start, start + len(offsets) - 1), text.split(b"\n"), strict=False):
            # Taken out, so that of nodes of one name the first is meant, as by `Names.find`.
            if name in wanted:
                del wanted[name]
                found.append(node)
    return np.array(found, dtype=np.int64)


def _unknown(text: str, graph: Graph, reading: Reading | None = None, words: Sequence[str] = ()) -> str:
    shown, names = repr(text[:60]), graph.node_names
    if reading == "id" or (reading is None and is_whole(text) and not 0 <= _number(text) < graph.num_nodes):
        called = "" if names is None or reading == "id" else ", nor is a node called so"
        return f"{shown} is no id of {graph.name}, whose ids are 0 to {_last(graph)}{called}."
    near = _nearest(text, graph, words)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    if names is None:
        return f"{shown} cannot be found: {graph.name} has no node names, only ids.{hint}"
    return f"No node of {graph.name} is called {shown}.{hint}"


def _nearest(text: str, graph: Graph, words: Sequence[str]) -> list[str]:
    """Up to two of some words, and of the names of about its length, that are much like a text."""
    if len(text) > 200:
        return []
    known = list(words)
    if graph.node_names is not None:
        lengths = np.diff(graph.node_names.offsets[: _BLOCK + 1]) - 1
        about = np.abs(lengths - len(text.encode(errors="surrogatepass"))) <= 2
        known += [graph.node_names[int(node)] for node in np.flatnonzero(about)[:_MAX_NEAR]]
    return difflib.get_close_matches(text, known, n=2, cutoff=0.75)


def _allowed(graph: Graph) -> str:
    return (
        f"Nodes are {ALL}, {', '.join(SPLITS)}, {NO_SPLIT}, a file ({', '.join(SUFFIXES)}), an id from 0 to "
        f"{_last(graph)}" + (", or a name." if graph.node_names is not None else ".")
    )


def _last(graph: Graph) -> int:
    return graph.num_nodes - 1
