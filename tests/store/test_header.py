"""The header: what is written comes back, and no text that somebody else wrote is trusted."""

import json
import re
import subprocess
import sys

import pytest

from musegnn.errors import StoreError
from musegnn.store import ArraySpec, Header
from musegnn.store import header as module
from musegnn.store.header import MAX_HEADER_BYTES

DIGEST = "0123456789abcdef" * 4
SPEC = {"dtype": "<f4", "shape": [3, 2], "digest": DIGEST}


def a_header(**changes):
    parts = {
        "kind": "graph",
        "attributes": {"num_nodes": 3, "class_names": ["a", "é", "日本"]},
        "arrays": {"features": ArraySpec(dtype="<f4", shape=(3, 2), digest=DIGEST)},
        "provenance": {"name": "x", "created": "now"},
    }
    return Header(**{**parts, **changes})


def body(**changes):
    """The JSON of a header that is right but for the changes, with a checksum that fits."""
    text = json.loads(a_header().to_json())
    text.pop("checksum")
    text.update(changes)
    return {**text, "checksum": module.checksum(text)}


def read(tmp_path, text):
    path = tmp_path / "header.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return Header.read(path, "graph")


def assert_refused(tmp_path, text, match):
    with pytest.raises(StoreError, match=match) as caught:
        read(tmp_path, text)
    assert "\n" not in str(caught.value)
    assert "header.json" in str(caught.value)


def test_a_header_comes_back_as_it_was(tmp_path):
    assert read(tmp_path, a_header().to_json()) == a_header()


def test_text_that_no_file_can_hold_comes_back_too(tmp_path):
    """A path with bytes that are no UTF-8, as Python reads it from the command line."""
    header = a_header(provenance={"name": "x", "command": "muse import caf\udce9.csv"})
    assert read(tmp_path, header.to_json()) == header


def test_blanks_do_not_matter(tmp_path):
    assert read(tmp_path, json.dumps(body(), indent=7)) == a_header()


def test_the_digest_is_of_the_content_alone():
    digest = a_header().digest
    assert a_header(provenance={}).digest == digest
    spec = ArraySpec(dtype="<f4", shape=(3, 2), digest=DIGEST[::-1])
    changes = [
        {"kind": "samples"},
        {"attributes": {}},
        {"arrays": {}},
        {"arrays": {"features": spec}},
        {"arrays": {"labels": a_header().arrays["features"]}},
    ]
    assert len({a_header(**change).digest for change in changes} | {digest}) == len(changes) + 1


def test_the_digest_is_the_one_the_format_describes():
    """Computed by `sha256sum` of the canonical JSON, written out by hand."""
    text = (
        '{"arrays":{"features":{"digest":"' + DIGEST + '","dtype":"<f4","shape":[3,2]}},'
        '"attributes":{"class_names":["a","é","日本"],"num_nodes":3},"kind":"graph","version":1}'
    )
    done = subprocess.run(["sha256sum"], input=text.encode(), capture_output=True, check=True)
    assert a_header().digest == done.stdout.split()[0].decode()


@pytest.mark.parametrize(
    "text",
    ["", " ", "{", "nothing", '{"format": }', "\x00" * 50, b"\xff\xfe{}", '{"a": 1}{"b": 2}', "1" * 5000],
)
def test_text_that_is_no_json_is_refused(tmp_path, text):
    assert_refused(tmp_path, text, r"is not a valid header \(.+\)\. Write the store again\.")


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, "[" * 100_000 + "]" * 100_000])
def test_deep_nesting_is_refused(tmp_path, text):
    assert_refused(tmp_path, text, "is not a valid header .*recursion")


def test_nesting_of_any_depth_is_an_answer_not_a_crash(tmp_path):
    """Around the recursion limit, where reading may succeed and the checksum fail."""
    limit = sys.getrecursionlimit()
    for depth in [*range(limit - 120, limit + 10), 5 * limit]:
        text = a_header().to_json().replace('"now"', "[" * depth + "]" * depth)
        assert_refused(tmp_path, text, "not a valid header|was changed")


def test_a_huge_file_is_not_read(tmp_path):
    path = tmp_path / "header.json"
    with path.open("wb") as file:
        file.truncate(MAX_HEADER_BYTES + 1)
    with pytest.raises(StoreError, match=r"larger than 67,108,864 bytes: not a header"):
        Header.read(path, "graph")


@pytest.mark.parametrize("value", [[], [1, 2], "text", 5, None, True])
def test_a_value_that_is_no_object_is_refused(tmp_path, value):
    assert_refused(tmp_path, json.dumps(value), "a JSON object is expected")


@pytest.mark.parametrize("value", ["musegnn samples", "", None, 7, ["musegnn graph"], "MUSEGNN GRAPH"])
def test_another_format_is_refused(tmp_path, value):
    message = f"its format is {value!r}. Pass the folder of a graph store."
    assert_refused(tmp_path, json.dumps(body(format=value)), re.escape(message))


def test_a_header_without_format_is_refused(tmp_path):
    assert_refused(tmp_path, "{}", "its format is None")


@pytest.mark.parametrize("value", [0, 2, -1, "1", None, 10**30])
def test_another_version_is_refused(tmp_path, value):
    message = f"has format version {value!r}, this musegnn reads version 1."
    assert_refused(tmp_path, json.dumps(body(version=value)), re.escape(message))


@pytest.mark.parametrize("value", [None, "", "0" * 64, 5, []])
def test_a_wrong_checksum_is_refused(tmp_path, value):
    assert_refused(tmp_path, json.dumps({**body(), "checksum": value}), "was changed after it was written")


def test_a_missing_checksum_is_refused(tmp_path):
    text = body()
    text.pop("checksum")
    assert_refused(tmp_path, json.dumps(text), "was changed after it was written")


@pytest.mark.parametrize("old", ['"num_nodes": 3', '"shape', "<f4", "now", "\\u65e5"])
def test_a_change_anywhere_is_noticed(tmp_path, old):
    text = a_header().to_json()
    assert text.count(old) == 1
    assert_refused(tmp_path, text.replace(old, old[:-1] + "0"), "was changed after it was written")


@pytest.mark.parametrize(
    "size", [-1, 1.0, 1.5, True, None, "3", [3], {}, 1e400, float("nan"), 2**62, 2**63, 2**70, 10**4000]
)
def test_a_size_that_no_array_can_have_is_refused(tmp_path, size):
    for shape in ([size], [3, size], [0, size], [size, 0]):
        spec = {**SPEC, "shape": shape}
        assert_refused(tmp_path, json.dumps(body(arrays={"x": spec})), "is not a valid header")


@pytest.mark.parametrize(
    "shape", [[], None, 3, {}, "33", [10**4000] * 2, [1] * 33, [2**31] * 2], ids=lambda shape: str(shape)[:20]
)
def test_a_shape_that_no_array_can_have_is_refused(tmp_path, shape):
    spec = {**SPEC, "shape": shape}
    assert_refused(tmp_path, json.dumps(body(arrays={"x": spec})), "is not a valid header")


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a/b",
        "a\\b",
        "A",
        "9",
        "_x",
        "x" * 65,
        "x\n",
        "x\0",
        "é",
        "header.json",
    ],
)
def test_a_name_that_could_be_a_path_is_refused(tmp_path, name):
    assert_refused(tmp_path, json.dumps(body(arrays={name: SPEC})), "is not a valid header")


@pytest.mark.parametrize(
    "dtype", ["<c8", "O", "|O", ">i4", "i4", "<U5", "<b1", "<f16", "", None, 4, ["<i4"], "<i4,<i4"]
)
def test_an_unknown_type_is_refused(tmp_path, dtype):
    spec = {**SPEC, "dtype": dtype}
    assert_refused(tmp_path, json.dumps(body(arrays={"x": spec})), "is not a valid header")


@pytest.mark.parametrize(
    "digest", ["", "0" * 63, "0" * 65, "g" * 64, "A" * 64, "0" * 64 + "\n", None, 5, ["0" * 64]]
)
def test_a_digest_that_is_no_digest_is_refused(tmp_path, digest):
    spec = {**SPEC, "digest": digest}
    assert_refused(tmp_path, json.dumps(body(arrays={"x": spec})), "is not a valid header")


@pytest.mark.parametrize("spec", [None, 5, "text", [], {}, {"dtype": "<f4", "shape": [1]}])
def test_a_description_that_lacks_something_is_refused(tmp_path, spec):
    assert_refused(tmp_path, json.dumps(body(arrays={"x": spec})), "is not a valid header")


@pytest.mark.parametrize("part", ["attributes", "arrays", "provenance"])
@pytest.mark.parametrize("value", [None, 5, "text", [1]])
def test_a_part_that_is_no_object_is_refused(tmp_path, part, value):
    assert_refused(tmp_path, json.dumps(body(**{part: value})), "is not a valid header")


@pytest.mark.parametrize("part", ["attributes", "arrays", "provenance"])
def test_a_part_that_is_missing_is_named(tmp_path, part):
    text = body()
    del text[part], text["checksum"]
    text["checksum"] = module.checksum(text)
    assert_refused(tmp_path, json.dumps(text), rf"is not a valid header \('{part}'\)")
