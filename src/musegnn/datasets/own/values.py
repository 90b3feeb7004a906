"""Labels, splits and types: numbers or words, of all nodes or of some."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float, Int8, Int32, UInt8

from musegnn.datasets.own.columns import Column
from musegnn.datasets.own.ids import Ids, node_rows
from musegnn.datasets.raw.table import Block
from musegnn.datasets.raw.text import is_number, is_whole
from musegnn.errors import InputError
from musegnn.graph.checks import MAX_NODE_TYPES, SPLITS

UNLABELED = ("", "-1", "nan", "NaN")
SPLIT_WORDS = {
    **{name: number for number, name in enumerate(SPLITS)},
    **dict.fromkeys(("val", "validation", "dev"), SPLITS.index("valid")),
    # pandas writes whole numbers with gaps between them as 0.0, 1.0, ...
    **{f"{number}{point}": number for number in (-1, 0, 1, 2) for point in ("", ".0")},
    **dict.fromkeys(("", "none", "nan"), -1),
}

Labels = tuple[Int32[np.ndarray, " nodes"], list[str] | None]
"""Class numbers, -1 where there is none; and the names of the classes if the labels were words."""


def read_labels(column: Column, ids: Ids, num_nodes: int) -> Labels:
    """Labels of a column: numbers if the first label is one, else words, numbered in sorted order."""
    is_numeric = _is_numeric(column)
    labels = np.full(num_nodes, -1, dtype=np.int32)
    words = WordNumbers()
    for nodes, block in node_rows(
        column.table, column.key, column.columns, ids, num_nodes, words=not is_numeric
    ):
        if is_numeric:
            labels[nodes] = _class_numbers(block, column.number)
        else:
            labels[nodes] = words.of(block.strings([column.number]))
    return (labels, None) if is_numeric else words.sort(labels)


def word_labels(array: np.ndarray) -> Labels:
    """Labels of an array of words."""
    words = WordNumbers()
    return words.sort(words.of(array.reshape(-1).astype(str).tolist()))


class WordNumbers:
    """Numbers words as they come, and in sorted order once all are known."""

    def __init__(self) -> None:
        self._numbers: defaultdict[str, int] = defaultdict(None, dict.fromkeys(UNLABELED, -1))
        self._numbers.default_factory = lambda: len(self._numbers) - len(UNLABELED)

    def of(self, words: list[str]) -> Int32[np.ndarray, " words"]:
        """The number of each word, -1 for those that mean unlabeled."""
        return np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int32, count=len(words))

    def sort(self, labels: Int32[np.ndarray, " nodes"]) -> Labels:
        """The same labels with words numbered in sorted order, and these words."""
        words = list(self._numbers)[len(UNLABELED) :]
        # One place more: label -1 is the last one.
        place = np.full(len(words) + 1, -1, dtype=np.int32)
        place[sorted(range(len(words)), key=words.__getitem__)] = np.arange(len(words))
        return place[labels], sorted(words)


def read_split(column: Column, ids: Ids, num_nodes: int) -> Int8[np.ndarray, " nodes"]:
    """0 train, 1 valid, 2 test, -1 none."""
    split = np.full(num_nodes, -1, dtype=np.int8)
    for nodes, block in node_rows(column.table, column.key, column.columns, ids, num_nodes, words=True):
        words = list(map(str.lower, block.strings([column.number])))
        try:
            split[nodes] = list(map(SPLIT_WORDS.__getitem__, words))
        except KeyError as error:
            where = block.where(words.index(error.args[0]))
            raise InputError(
                f"{where}: unknown split {error.args[0]!r}; allowed are train, valid (val, validation, dev), "
                "test, none, or 0, 1, 2, -1. Correct that line."
            ) from None
    return split


def read_types(column: Column, ids: Ids, num_nodes: int) -> tuple[UInt8[np.ndarray, " nodes"], list[str]]:
    """The type of every node, and the names of the types: sorted, as numbers if all of them are.

    The table of nodes, of which the column is, lists each node once.
    """
    found: dict[str, int] = {}
    types = np.zeros(num_nodes, dtype=np.uint8)
    for nodes, block in node_rows(column.table, column.key, column.columns, ids, num_nodes, words=True):
        words = block.strings([column.number])
        for word in dict.fromkeys(words):
            row = words.index(word)
            if word in UNLABELED:
                raise InputError(
                    f"{block.where(row)}: {word!r} is no type. Give each node one; those whose type is not "
                    "known may have one of their own, such as 'other'."
                )
            found.setdefault(word, len(found))
            if len(found) > MAX_NODE_TYPES:
                shown = ", ".join(list(found)[:3])
                raise InputError(
                    f"{block.where(row)}: more than {MAX_NODE_TYPES} types ({shown}, ...). Merge some, or "
                    "rename that column if it is no type."
                )
        types[nodes] = list(map(found.__getitem__, words))
    names = _sorted_types(found)
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[name] for name in found], dtype=np.uint8)[types], names


def _sorted_types(names: Iterable[str]) -> list[str]:
    # Longer digits are names; Python does not read thousands of them as a number.
    if all(is_whole(name) and len(name) < 20 for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def _is_numeric(column: Column) -> bool:
    """By the first label; true if there is none."""
    for block in column.table.blocks([column.number], words=True):
        for word in block.strings([column.number]):
            if word not in UNLABELED:
                return is_number(word)
    return True


def _class_numbers(block: Block, column: int) -> Float[np.ndarray, " rows"]:
    hint = "The first label is a number; use numbers throughout, or words throughout."
    values = block.numbers([column], np.float64, missing=True, hint=hint)[:, 0]
    numbers = np.where(np.isnan(values), -1, values)
    is_bad = (numbers < -1) | (numbers > np.iinfo(np.int32).max) | (numbers != np.floor(numbers))
    if is_bad.any():
        row = int(np.flatnonzero(is_bad)[0])
        raise InputError(
            f"{block.where(row)}: label {values[row]:g}; a label must be a whole number from 0, -1 or empty "
            "for an unlabeled node, or a word. Number the classes from 0."
        )
    return numbers
