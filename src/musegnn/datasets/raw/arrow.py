"""Arrow arrays, which Parquet is read into, as numbers and strings. Needs the extra `parquet`."""

from typing import Any

import numpy as np

from musegnn.datasets.raw.fields import PADDING, Fields
from musegnn.extras import require


def decoded(array: Any) -> Any:
    """Plain values instead of indices into a dictionary."""
    return array.dictionary_decode() if hasattr(array, "dictionary_decode") else array


def is_list(array: Any) -> bool:
    """Whether each value is a list."""
    types = require("pyarrow.types", "Reading Parquet")
    return bool(
        types.is_list(array.type) or types.is_large_list(array.type) or types.is_fixed_size_list(array.type)
    )


def as_strings(array: Any) -> list[str]:
    """Each value as text, empty for a null."""
    arrow = require("pyarrow", "Reading Parquet")
    try:
        texts = array.cast(arrow.string())
    except arrow.ArrowException:
        # Lists, records, bytes that are no text: to be shown, if at all.
        return ["" if value is None else str(value) for value in array.to_pylist()]
    fields: list[str] = texts.fill_null("").to_numpy(zero_copy_only=False).tolist()
    return fields


def as_fields(array: Any) -> Fields:
    """As `as_strings`, as pieces of Arrow's own text."""
    arrow = require("pyarrow", "Reading Parquet")
    array = array.cast(arrow.large_string()).fill_null("")
    _, offsets, text = array.buffers()
    ends = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    # Without a single letter, Arrow has no buffer for them.
    letters = np.frombuffer(text or b"", dtype=np.uint8)
    return Fields(np.concatenate([letters, np.zeros(PADDING, np.uint8)]), ends[:-1], np.diff(ends))


def without_gaps(array: Any) -> Any:
    """Nulls and empty strings as NaN."""
    arrow, compute = require("pyarrow", "Reading Parquet"), require("pyarrow.compute", "Reading Parquet")
    if arrow.types.is_string(array.type) or arrow.types.is_large_string(array.type):
        return compute.if_else(compute.equal(array, ""), "nan", array).fill_null("nan")
    return array.cast(arrow.float64(), safe=False).fill_null(float("nan"))


def as_numbers(array: Any, dtype: np.dtype[Any]) -> np.ndarray | None:
    """As numbers, or None if some value is none."""
    arrow = require("pyarrow", "Reading Parquet")
    if array.null_count:
        return None
    try:
        cast = array.cast(arrow.from_numpy_dtype(dtype), safe=dtype.kind in "iu")
    except arrow.ArrowException:
        return None
    values: np.ndarray = cast.to_numpy(zero_copy_only=False)
    return values


def first_no_number(array: Any, dtype: np.dtype[Any]) -> int:
    """The first value for which `as_numbers` gives None."""
    start, stop = 0, len(array)
    while stop - start > 1:
        middle = (start + stop) // 2
        if as_numbers(array.slice(start, middle - start), dtype) is None:
            stop = middle
        else:
            start = middle
    return start
