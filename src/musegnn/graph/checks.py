"""What a user may get wrong about a graph, one check each: what, got, allowed, next step."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int8, Int64
from numpy.typing import ArrayLike

from musegnn.errors import InputError
from musegnn.graph.source import EdgeChunk, stored_dtype
from musegnn.ops import MAX_NODES

SPLITS = ("train", "valid", "test")
"""Split names in the order of their numbers 0, 1, 2."""

_BLOCK_ROWS = 1 << 20


def as_array(values: ArrayLike, what: str) -> np.ndarray:
    """A NumPy view of an array, a tensor or a list; mapped arrays stay mapped."""
    if isinstance(values, np.ndarray):
        return values
    try:
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        first_line = str(error).partition("\n")[0]
        raise InputError(
            f"{what} cannot be read as an array ({first_line}). Pass a NumPy array or a CPU tensor."
        ) from error


def edge_index(values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets of a (2, edges) array of integers."""
    array = as_array(values, "edge_index")
    if array.ndim != 2 or array.shape[0] != 2:
        hint = (
            "Pass edge_index.T." if array.ndim == 2 and array.shape[1] == 2 else "Stack sources and targets."
        )
        raise InputError(f"edge_index must have shape (2, edges), got {array.shape}. {hint}")
    return array[0], array[1]


def edge_chunk(chunk: EdgeChunk, num_nodes: int, first_edge: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of some edges as int64, once they are integers inside [0, num_nodes)."""
    ends = []
    for what, values in (("source", chunk.source), ("target", chunk.target)):
        if values.dtype.kind not in "iu":
            raise InputError(
                f"edge_index must hold integers, got {values.dtype}. Convert it with .astype(np.int64)."
            )
        if len(values):
            low, high = int(values.min()), int(values.max())
            if low < 0 or high >= num_nodes:
                at = int(np.flatnonzero((values < 0) | (values >= num_nodes))[0])
                raise InputError(
                    f"edge {first_edge + at} has the {what} {int(values[at])}; node ids must lie in "
                    f"[0, {num_nodes - 1}]. Check the ids, or pass a larger num_nodes."
                )
        ends.append(values.astype(np.int64, copy=False))
    if len(ends[0]) != len(ends[1]):
        raise InputError(f"{len(ends[0])} sources but {len(ends[1])} targets. Each edge needs both ends.")
    return ends[0], ends[1]


def num_nodes(count: Any) -> int:
    """A graph has at least one node."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise InputError(f"num_nodes must be an integer, got {count!r}.")
    if not 1 <= count < MAX_NODES:
        raise InputError(
            f"num_nodes is {count}; a graph must have between 1 and {MAX_NODES - 1:,} nodes. Check the input."
        )
    return int(count)


def features(values: ArrayLike, count: int) -> np.ndarray:
    """A (nodes, dim) matrix, one row for each node; float16 stays, other numbers become float32."""
    array = as_array(values, "features")
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise InputError(
            f"features must be a (nodes, dim) matrix of numbers, got shape {array.shape} of {array.dtype}. "
            "Give each node one row."
        )
    if len(array) != count:
        raise InputError(
            f"features has {len(array)} rows, but the graph has {count} nodes. Give each node one row."
        )
    return array.astype(stored_dtype(array.dtype), copy=False)


def finite(rows: np.ndarray, first_row: int) -> None:
    """No NaN and no infinity, or the row that has one."""
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows[start : start + _BLOCK_ROWS]
        # A sum is finite if every term is: one pass without a mask. Overflow falls through to the exact test.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum(dtype=np.float64)):
                continue
        is_bad = ~np.isfinite(block).all(axis=1)
        if is_bad.any():
            row = int(np.flatnonzero(is_bad)[0])
            column = int(np.flatnonzero(~np.isfinite(block[row]))[0])
            raise InputError(
                f"features row {first_row + start + row} has {block[row, column]} in column {column}; every "
                "feature must be finite. Replace or drop such values before importing."
            )


def labels(values: ArrayLike, count: int, num_classes: int | None) -> Iterator[np.ndarray]:
    """Class numbers in blocks of int32; -1 and NaN mean unlabelled."""
    array = as_array(values, "labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InputError(
            f"labels must be one class number per node, got shape {array.shape} of {array.dtype}. "
            "Number the classes from 0 and pass -1 for unlabelled nodes."
        )
    if len(array) != count:
        raise InputError(
            f"labels has {len(array)} values, but the graph has {count} nodes. Give each node one."
        )
    limit = np.iinfo(np.int32).max if num_classes is None else num_classes
    for start in range(0, count, _BLOCK_ROWS):
        block = array[start : start + _BLOCK_ROWS]
        whole = np.where(np.isnan(block), -1, block) if block.dtype.kind == "f" else block
        is_bad = (whole < -1) | (whole >= limit) | (whole != np.floor(whole))
        if is_bad.any():
            row = int(np.flatnonzero(is_bad)[0])
            raise InputError(
                f"labels[{start + row}] is {block[row]}; a label must be a whole number in [0, {limit - 1}], "
                "or -1 for an unlabelled node. Number the classes from 0."
            )
        yield whole.astype(np.int32)


def split(values: ArrayLike | dict[str, ArrayLike], count: int) -> Int8[np.ndarray, " nodes"]:
    """0 train, 1 valid, 2 test, -1 none for each node, from such an array or from ids or masks by name."""
    if isinstance(values, dict):
        return _split_from_ids(values, count)
    array = as_array(values, "split")
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InputError(
            f"split must be one integer per node ({count}), got shape {array.shape} of {array.dtype}. "
            "Use 0 train, 1 valid, 2 test, -1 none."
        )
    is_bad = (array < -1) | (array >= len(SPLITS))
    if is_bad.any():
        node = int(np.flatnonzero(is_bad)[0])
        raise InputError(f"split[{node}] is {array[node]}; it must be 0 train, 1 valid, 2 test or -1 none.")
    return array.astype(np.int8)


def _split_from_ids(parts: dict[str, ArrayLike], count: int) -> Int8[np.ndarray, " nodes"]:
    unknown = sorted(set(parts) - set(SPLITS))
    if unknown:
        raise InputError(f"split has the part {unknown[0]!r}; allowed are {', '.join(SPLITS)}.")
    result = np.full(count, -1, dtype=np.int8)
    for name, values in parts.items():
        ids = _split_ids(as_array(values, f"split {name!r}"), name, count)
        taken = ids[result[ids] >= 0]
        if len(taken):
            other = SPLITS[result[taken[0]]]
            raise InputError(
                f"node {taken[0]} is in the splits {other!r} and {name!r}; a node may be in one. "
                "Remove it from one of them."
            )
        result[ids] = SPLITS.index(name)
    return result


def _split_ids(array: np.ndarray, name: str, count: int) -> Int64[np.ndarray, " ids"]:
    if array.dtype == bool and array.shape == (count,):
        return np.flatnonzero(array)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InputError(
            f"split {name!r} must be node ids or a mask of {count} nodes, "
            f"got shape {array.shape} of {array.dtype}."
        )
    if len(array) and not 0 <= array.min() <= array.max() < count:
        bad = int(array.min()) if array.min() < 0 else int(array.max())
        raise InputError(f"split {name!r} names node {bad}; node ids must lie in [0, {count - 1}].")
    return array.astype(np.int64)


def train_is_labelled(labels: np.ndarray | None, split: np.ndarray | None) -> None:
    """If there is a train split, at least one of its nodes has a label."""
    if split is None or not (split == 0).any():
        return
    if labels is None or not (labels[split == 0] >= 0).any():
        raise InputError(
            "The train split has no labelled node: there is nothing to learn from. "
            "Pass labels for its nodes, or leave the split out."
        )


def names(values: Sequence[str], count: int, what: str) -> None:
    """One name for each."""
    if len(values) != count:
        raise InputError(f"{what} has {len(values)} names for {count}. Give each exactly one.")
