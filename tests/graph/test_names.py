"""Node names: a sequence of strings over bytes, and finding one among them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musegnn import Graph, InputError
from musegnn.graph import names as module
from musegnn.graph.names import Names

TEXT = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=6)


@given(names=st.lists(TEXT))
def test_names_are_the_sequence_they_were_made_of(names):
    stored = Names.of(names)
    assert list(stored) == names
    assert len(stored) == len(names)
    assert [stored[i] for i in range(-len(names), 0)] == names
    assert stored[1:-1:2] == names[1:-1:2]
    assert stored[::-1] == names[::-1]
    assert (stored.text.dtype, stored.offsets.dtype) == (np.uint8, np.int64)
    assert stored.text.tobytes() == "".join(name + "\n" for name in names).encode()


@given(names=st.lists(TEXT, min_size=1), piece=st.integers(1, 20), data=st.data())
def test_every_name_is_found_wherever_the_text_is_cut(names, piece, data):
    """The first of its name, also across the border of two pieces."""
    stored = Names.of(names)
    name = data.draw(st.sampled_from(names) | TEXT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PIECE", piece)
        if name in names:
            assert stored.find(name) == names.index(name)
        else:
            with pytest.raises(InputError, match="No node is called"):
                stored.find(name)


@pytest.mark.parametrize("name", ["a", "ab\nc", "b", "ab\n", "\nc", "\n", "\udcff", "AB", ""])
def test_what_is_no_name_is_not_found(name):
    """Neither a part of one, nor two in a row, nor bytes that are no text."""
    with pytest.raises(InputError, match=r"Names are case-sensitive; try the node's number\.") as caught:
        Names.of(["ab", "c", "d"]).find(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "offsets", "expected"),
    [
        (b"\xff\xfe\n\xc3\n", [0, 3, 5], ["\ufffd\ufffd", "\ufffd"]),
        (b"ab\ncd\n", [0, 2**62, 6], ["ab\ncd\n", ""]),
        (b"ab\ncd\n", [0, -(2**63), 6], ["", "ab\ncd"]),
    ],
    ids=["bytes that are no text", "offsets too large", "offsets below zero"],
)
def test_names_of_a_damaged_store_are_wrong_but_no_crash(text, offsets, expected):
    names = Names(np.frombuffer(text, dtype=np.uint8), np.array(offsets))
    assert list(names) == expected


def test_an_index_out_of_range_is_an_index_error():
    names = Names.of(["a", "b"])
    for index in (2, -3):
        with pytest.raises(IndexError, match=f"node {index} of 2"):
            names[index]


def test_a_newline_is_refused():
    with pytest.raises(InputError, match=r"node_names\[1\] holds a newline: 'b\\n'\. Take it out\."):
        Names.of(["a", "b\n"])


def test_names_are_made_once():
    names = Names.of(["a"])
    assert Names.of(names) is names


def test_names_in_a_store_stay_there(tmp_path):
    Graph.from_edges([[0], [1]], node_names=["first", "zweiter ü"]).save(tmp_path / "g")
    names = Graph.open(tmp_path / "g").node_names
    assert isinstance(names.text, np.memmap)
    assert (names[1], names.find("zweiter ü")) == ("zweiter ü", 1)
