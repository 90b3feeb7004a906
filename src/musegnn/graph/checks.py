"""What a user may get wrong about a graph, one check each: what, got, allowed, next step."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Int8, Int64
from numpy.typing import ArrayLike

from musegnn.errors import InputError
from musegnn.graph.source import EdgeChunk, stored_dtype
from musegnn.ops import MAX_NODES
from musegnn.progress import progress

SPLITS = ("train", "valid", "test")
"""Split names in the order of their numbers 0, 1, 2."""

MAX_NODE_TYPES = 255
"""Their numbers are single bytes, with one value to spare."""

_BLOCK_ROWS = 1 << 20


def as_array(values: ArrayLike, what: str) -> np.ndarray:
    """A NumPy view of an array, a tensor or a list; mapped arrays stay mapped."""
    # Not np.matrix, whose rows have two dimensions.
    if isinstance(values, np.ndarray) and not isinstance(values, np.matrix):
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


def edge_lengths(chunk: EdgeChunk) -> None:
    """Each edge has two ends and, where there are relations, one relation."""
    num_edges = len(chunk.source)
    if len(chunk.target) != num_edges:
        raise InputError(f"{num_edges} sources but {len(chunk.target)} targets. Each edge needs both ends.")
    if chunk.relation is not None:
        relations(chunk.relation, num_edges)


def relations(numbers: np.ndarray, num_edges: int) -> None:
    """One integer for each edge."""
    if numbers.shape != (num_edges,) or numbers.dtype.kind not in "iu":
        raise InputError(
            f"relation must be one integer per edge ({num_edges}), "
            f"got shape {numbers.shape} of {numbers.dtype}. Number the relations from 0."
        )


def node_ids(values: np.ndarray) -> None:
    """Integers; an empty list, which NumPy takes for floats, will do."""
    if len(values) and values.dtype.kind not in "iu":
        raise InputError(
            f"edge_index must hold integers, got {values.dtype}. Convert it with .astype(np.int64)."
        )


def edge_chunk(chunk: EdgeChunk, num_nodes: int, first_edge: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of some edges as int64, once they are integers inside [0, num_nodes)."""
    ends = []
    for what, values in (("source", chunk.source), ("target", chunk.target)):
        node_ids(values)
        if len(values):
            low, high = int(values.min()), int(values.max())
            if low < 0 or high >= num_nodes:
                at = int(np.flatnonzero((values < 0) | (values >= num_nodes))[0])
                raise InputError(
                    f"edge {first_edge + at} has the {what} {int(values[at])}; node ids must lie in "
                    f"[0, {num_nodes - 1}]. Check the ids, and that features and labels have a row a node."
                )
        ends.append(values.astype(np.int64, copy=False))
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


def num_rows(values: Any, what: str) -> int:
    """The length of something that has one row for each node."""
    try:
        return len(values)
    except TypeError as error:
        raise InputError(f"{what} must have one row for each node ({error}). Pass an array.") from error


def memory(budget: Any) -> int:
    """A number of bytes."""
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise InputError(f"memory must be a whole number of bytes, got {budget!r}. Leave it out for 1 GiB.")
    return budget


def num_workers(count: Any) -> int:
    """At least one thread works."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"workers must be a whole number, 1 or more, got {count!r}.")
    return count


def num_classes(count: Any, class_names: Sequence[str] | None) -> int | None:
    """As given, or as many as there are names; None if the labels are to say it."""
    if count is None:
        return None if class_names is None else len(class_names)
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
        raise InputError(f"num_classes must be a whole number, 0 or more, got {count!r}. Leave it out.")
    if class_names is not None:
        names(class_names, int(count), "class_names")
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
    # What float32 cannot hold becomes infinite, and `finite` finds it.
    with np.errstate(over="ignore"):
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
                f"feature must be finite as {block.dtype}. Replace or drop such values before importing."
            )


def labels(values: ArrayLike, count: int, num_classes: int | None) -> Iterator[np.ndarray]:
    """Class numbers in blocks of int32; -1 and NaN mean unlabeled."""
    array = as_array(values, "labels")
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InputError(
            f"labels must be one class number per node, got shape {array.shape} of {array.dtype}. "
            "Number the classes from 0 and pass -1 for unlabeled nodes."
        )
    if len(array) != count:
        raise InputError(
            f"labels has {len(array)} values, but the graph has {count} nodes. Give each node one."
        )
    # More classes than nodes are no classes: statistics and models have a row for each.
    limit = max(count, 1_000_000) if num_classes is None else num_classes
    for start in range(0, count, _BLOCK_ROWS):
        block = array[start : start + _BLOCK_ROWS]
        # float64, since float16 cannot hold the limit.
        is_float = block.dtype.kind == "f"
        whole = np.where(np.isnan(block), -1, block.astype(np.float64)) if is_float else block
        is_bad = (whole < -1) | (whole >= limit) | (whole != np.floor(whole))
        if is_bad.any():
            row = int(np.flatnonzero(is_bad)[0])
            raise InputError(
                f"labels[{start + row}] is {block[row]}; a label must be a whole number in [0, {limit - 1}], "
                "or -1 for an unlabeled node. Number the classes from 0."
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
    unknown = [name for name in parts if name not in SPLITS]
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
    # An empty list is an array of floats to NumPy.
    if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
        raise InputError(
            f"split {name!r} must be node ids or a mask of {count} nodes, "
            f"got shape {array.shape} of {array.dtype}."
        )
    if len(array) and not 0 <= array.min() <= array.max() < count:
        bad = int(array.min()) if array.min() < 0 else int(array.max())
        raise InputError(f"split {name!r} names node {bad}; node ids must lie in [0, {count - 1}].")
    return array.astype(np.int64)


def node_types(values: ArrayLike, count: int, num_types: int) -> Iterator[np.ndarray]:
    """Numbers of node types, one for each node and below `num_types`, in blocks of uint8."""
    array = as_array(values, "node_type")
    if array.shape != (count,) or array.dtype.kind not in "iu":
        raise InputError(
            f"node_type must be one integer per node ({count}), got shape {array.shape} of {array.dtype}. "
            "Number the types from 0."
        )
    for start in range(0, count, _BLOCK_ROWS):
        block = array[start : start + _BLOCK_ROWS]
        is_bad = (block < 0) | (block >= num_types)
        if is_bad.any():
            row = int(np.flatnonzero(is_bad)[0])
            raise InputError(
                f"node_type[{start + row}] is {block[row]}; it must lie in [0, {num_types - 1}]. "
                "Number the types from 0, and if they have names, name each."
            )
        yield block.astype(np.uint8, copy=False)


def node_type_names(values: Sequence[str] | None) -> list[str] | None:
    """Between 1 and 255 different names."""
    found = texts(values, "node_type_names")
    if found is None:
        return None
    if not 1 <= len(found) <= MAX_NODE_TYPES:
        raise InputError(
            f"node_type_names has {len(found)} names; between 1 and {MAX_NODE_TYPES} are allowed. "
            "Merge some types."
        )
    if len(set(found)) < len(found):
        twice = next(name for i, name in enumerate(found) if name in found[:i])
        raise InputError(f"node_type_names has {twice!r} twice. Give each type a name of its own.")
    return found


def train_is_labeled(labels: np.ndarray | None, split: np.ndarray | None) -> None:
    """If there is a train split, at least one of its nodes has a label."""
    if split is None or not (split == 0).any():
        return
    if labels is None or not (labels[split == 0] >= 0).any():
        raise InputError(
            "The train split has no labeled node: there is nothing to learn from. "
            "Pass labels for its nodes, or leave the split out."
        )


def parts(
    features: np.ndarray | None,
    labels_: np.ndarray | None,
    split_: np.ndarray | None,
    count: int,
    num_classes: int,
) -> None:
    """What is known about the nodes, read whole: finite features, labels and split in range."""
    with progress("Checking features", 0 if features is None else count) as advance:
        for start in range(0, count if features is not None else 0, _BLOCK_ROWS):
            block = features[start : start + _BLOCK_ROWS]  # type: ignore[index]
            finite(block, start)
            advance(len(block))
    if labels_ is not None:
        for _ in labels(labels_, count, num_classes):
            pass
    if split_ is not None:
        split(split_, count)


def names(values: Sequence[str], count: int, what: str) -> None:
    """One name for each."""
    if len(values) != count:
        raise InputError(f"{what} has {len(values)} names for {count}. Give each exactly one.")


def texts(values: Sequence[str] | None, what: str) -> list[str] | None:
    """Names that the header can hold."""
    if values is None:
        return None
    for i, value in enumerate(values):
        if not isinstance(value, str):
            raise InputError(f"{what}[{i}] is {value!r}; a name must be a str. Convert it with str().")
    return [str(value) for value in values]
