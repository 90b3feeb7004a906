"""Strings as pieces of a text, and their numbers, against Python's str and dict."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from musegnn.datasets.raw.fields import Fields
from musegnn.datasets.raw.name_index import NameIndex
from musegnn.errors import InputError
from musegnn.graph.names import Names

# Short alphabets make repeats and common beginnings, lengths around 8 and 16 the ends of words.
names = st.text("ab\u00e9\U0001f600", max_size=5) | st.integers(0, 20).map(lambda size: "a" * size)
lines = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20)


@given(st.lists(names | lines, max_size=30))
def test_fields_are_the_strings_they_were_made_of(strings):
    fields = Fields.of(strings)
    assert [fields[i] for i in range(len(fields))] == strings
    assert fields.lines().tobytes().decode() == "".join(f"{string}\n" for string in strings)
    backwards = fields.take(np.arange(len(strings))[::-1])
    assert [backwards[i] for i in range(len(strings))] == strings[::-1]


@given(st.lists(st.tuples(names, names), max_size=30))
def test_fields_are_equal_if_all_strings_are(pairs):
    left, right = Fields.of([pair[0] for pair in pairs]), Fields.of([pair[1] for pair in pairs])
    assert left.equal(right) == all(a == b for a, b in pairs)
    same_hash = left.hashes(3) == right.hashes(3)
    assert same_hash.tolist() == [a == b for a, b in pairs]


def dict_numbers(batches, known):
    return [[known.setdefault(name, len(known)) for name in batch] for batch in batches]


@given(st.lists(st.lists(names | lines, max_size=30), max_size=6))
def test_names_are_numbered_as_a_dict_would(batches):
    index, known = NameIndex(), {}
    for batch, expected in zip(batches, dict_numbers(batches, known), strict=True):
        assert index.numbers(Fields.of(batch), add=True).tolist() == expected
    assert list(Names(index.text, index.offsets)) == list(known)
    unknown = index.numbers(Fields.of([*known, "\x00 not a name"]), add=False)
    assert unknown.tolist() == [*range(len(known)), -1]
    assert len(index) == len(known)


def test_a_hundred_thousand_names_are_found_again():
    """The table grows many times, within a batch and between batches."""
    rng = np.random.default_rng(0)
    batches = [[f"node {i}" for i in rng.integers(0, 100_000, 30_000).tolist()] for _ in range(10)]
    index, known = NameIndex(), {}
    for batch, expected in zip(batches, dict_numbers(batches, known), strict=True):
        np.testing.assert_array_equal(index.numbers(Fields.of(batch), add=True), expected)


@settings(max_examples=30)
@given(batches=st.lists(st.lists(names, max_size=20), max_size=5), collisions=st.sampled_from([1, 2]))
def test_names_of_one_hash_are_told_apart(batches, collisions):
    """The first seeds hash all names to one of two values; the table then takes the next seed."""
    hashes = Fields.hashes

    def weak_hashes(fields: Fields, seed: int) -> np.ndarray:
        strong = hashes(fields, seed)
        return strong % np.uint64(2) if seed < collisions else strong

    index, known = NameIndex(), {}
    with patch.object(Fields, "hashes", weak_hashes):
        for batch, expected in zip(batches, dict_numbers(batches, known), strict=True):
            assert index.numbers(Fields.of(batch), add=True).tolist() == expected
    assert list(Names(index.text, index.offsets)) == list(known)


def test_a_name_with_a_line_break_is_refused():
    with pytest.raises(InputError, match=r"'two\\nlines' holds a line break"):
        NameIndex().numbers(Fields.of(["one", "two\nlines"]), add=True)
