"""Tables of every format, against Python's csv module and NumPy."""

import csv
import gzip
import io
import itertools
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musegnn.datasets.raw import array_table, arrow, npy, parquet_table, text, text_table
from musegnn.datasets.raw.array_table import ArrayTable
from musegnn.datasets.raw.table import open_table, suffix
from musegnn.datasets.raw.text import is_number, is_whole
from musegnn.errors import InputError


@contextmanager
def small_blocks():
    """Blocks of about 24 bytes or 5 rows, which end inside a line or a table."""
    with (
        patch.object(text, "BLOCK_BYTES", 24),
        patch.object(text_table, "WORD_BLOCK_BYTES", 24),
        patch.object(parquet_table, "BATCH_ROWS", 5),
        patch.object(parquet_table, "WORD_BATCH_ROWS", 5),
        patch.object(array_table, "BLOCK_ROWS", 5),
        patch.object(array_table, "WORD_BLOCK_ROWS", 5),
        patch.object(npy, "BLOCK_BYTES", 112),
    ):
        yield


def write(path, content: str | bytes):
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def opened(path, *, header=False, blanks=True):
    return open_table(path, lambda fields: header, blanks=blanks)


def strings(table, columns) -> list[list[str]]:
    """Rows of strings, read both ways."""
    flat, pieces = [], []
    for block in table.blocks(columns, words=True):
        flat += block.strings(columns)
        fields = block.fields(columns)
        pieces += [fields[i] for i in range(len(fields))]
    assert flat == pieces
    return [flat[i : i + len(columns)] for i in range(0, len(flat), len(columns))]


def numbers(table, columns, dtype, **options) -> np.ndarray:
    return np.concatenate([block.numbers(columns, dtype, **options) for block in table.blocks(columns)])


# Without semicolons, which make columns of what has no comma.
characters = st.characters(exclude_characters="\n\r\0\t\x1f#%;\ufeff", exclude_categories=["Cs"])
words = st.text(st.sampled_from('ab", ') | characters, max_size=6).map(lambda word: word.strip(" "))
tables = st.integers(1, 4).flatmap(
    lambda width: st.lists(st.lists(words, min_size=width, max_size=width), min_size=1, max_size=12)
)


@settings(max_examples=60)
@given(
    rows=tables,
    header=st.booleans(),
    ending=st.sampled_from(["\n", "\r\n"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    file=st.sampled_from(["t.csv", "t.csv.gz", "t.CSV"]),
    start=st.sampled_from(["", "\ufeff", "# one\n%two\n", "\ufeff# comment\r\n"]),
)
def test_strings_are_what_the_csv_module_writes(rows, header, ending, quoting, file, start, tmp_path_factory):
    written = io.StringIO()
    names = [f"column {i}" for i in range(len(rows[0]))]
    csv.writer(written, quoting=quoting, lineterminator=ending).writerows([names] * header + rows)
    path = write(tmp_path_factory.mktemp("table") / file, start + written.getvalue())
    with small_blocks():
        table = opened(path, header=header, blanks=False)
        got = strings(table, range(len(names)))
    assert got == rows
    assert table.columns == (tuple(names) if header else None)
    assert table.head == rows[:2]
    assert table.num_rows() == table.estimate_rows() == len(rows)


@settings(max_examples=60)
@given(
    values=hnp.arrays(
        np.int64, st.tuples(st.integers(1, 20), st.integers(1, 5)), elements=st.integers(-(2**63), 2**63 - 1)
    ),
    separator=st.sampled_from([",", "\t", ";", " ", ", ", " , ", "; ", "   ", " \t ", "\t\t "]),
    data=st.data(),
)
def test_any_columns_are_read_as_numbers(values, separator, data, tmp_path_factory):
    width = values.shape[1]
    lines = [separator.join(map(str, row)) for row in values.tolist()]
    if not separator.strip("\t "):
        lines = [data.draw(st.sampled_from(["", " "])) + line + " " * (len(line) % 3) for line in lines]
    if separator == "\t\t ":
        # Tabs in a table that a blank separates: such a table's first line has none.
        lines[0] = " ".join(map(str, values[0].tolist()))
        lines = lines if width > 1 else lines[:1]
    path = write(tmp_path_factory.mktemp("table") / "t.txt", "\n".join(lines))
    columns = sorted(data.draw(st.sets(st.integers(0, width - 1), min_size=1)))
    with small_blocks():
        table = opened(path)
        np.testing.assert_array_equal(numbers(table, columns, np.int64), values[: len(lines), columns])
        assert strings(table, columns) == [list(map(str, row)) for row in values[: len(lines), columns]]


def test_a_column_of_words_is_no_obstacle_to_its_neighbors(tmp_path):
    rows = [[str(i), f"word {i}", str(i / 8)] for i in range(50)]
    path = write(tmp_path / "t.csv", "".join(",".join(row) + "\n" for row in rows))
    with small_blocks():
        table = opened(path)
        np.testing.assert_array_equal(numbers(table, [0], np.int64)[:, 0], np.arange(50))
        np.testing.assert_array_equal(numbers(table, [0, 2], np.float32), [[i, i / 8] for i in range(50)])
        assert strings(table, [1, 2]) == [row[1:] for row in rows]


@pytest.mark.parametrize("file", ["t.csv", "t.tsv", "t.txt"])
def test_empty_fields_are_missing_numbers(file, tmp_path):
    separator = "," if file == "t.csv" else "\t"
    fields = ["1", "", "", "", "2.5", "nan", "", "-1", ""]
    path = write(tmp_path / file, "".join(f"x{separator}{field}{separator}y\n" for field in fields))
    with small_blocks():
        got = numbers(opened(path), [1], np.float64, missing=True)[:, 0]
    np.testing.assert_array_equal(got, [float(field or "nan") for field in fields])


@pytest.mark.parametrize(
    ("line", "file", "blanks", "expected"),
    [
        ("a,b c", "t.csv", True, ["a", "b c"]),
        ("a b", "t.csv", True, ["a", "b"]),
        ("a b", "t.csv", False, ["a b"]),
        ("a b", "t.tsv.gz", False, ["a b"]),
        ("a b", "t.txt", False, ["a", "b"]),
        ("1 -2.5", "t.csv", False, ["1", "-2.5"]),
        ("1 x", "t.csv", False, ["1 x"]),
        ("Smith, J\tx y", "t.tsv", True, ["Smith, J", "x y"]),
        ("Smith, J\tx y", "t.txt", True, ["Smith, J", "x y"]),
        ('a,"b\tc"', "t.csv", True, ["a", "b\tc"]),
        ("  a  \t b ", "t.txt", True, ["a", "b"]),
        ('5" disk\tb', "t.tsv", True, ['5" disk', "b"]),
        ('a"b"\tc', "t.tsv", True, ['a"b"', "c"]),
        ('"a ""b""", "c"', "t.csv", True, ['a "b"', "c"]),
        ('"a" b', "t.txt", True, ['"a"', "b"]),
        ("a;b c", "t.csv", True, ["a", "b c"]),
        ("a; b", "t.txt", True, ["a", "b"]),
        ("a;b,c", "t.csv", True, ["a;b", "c"]),
        ("a;b\tc", "t.tsv", True, ["a;b", "c"]),
        ('"a;b";c', "t.csv", True, ["a;b", "c"]),
    ],
)
def test_the_first_line_shows_what_separates_columns(line, file, blanks, expected, tmp_path):
    table = opened(write(tmp_path / file, line), blanks=blanks)
    assert table.head == [expected]
    assert strings(table, range(len(expected))) == [expected]


def test_one_name_with_a_semicolon_is_no_row_of_a_table(tmp_path):
    table = opened(write(tmp_path / "t.csv", "good; bad\nugly\n"), blanks=False)
    assert (table.num_columns, strings(table, [0])) == (1, [["good; bad"], ["ugly"]])


@pytest.mark.parametrize("file", ["t.txt", "t.txt.gz"])
def test_the_number_of_rows_is_estimated_from_the_first_megabyte(file, tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{a} {b}\n" for a, b in rng.integers(0, 10**6, (200_000, 2)).tolist()]
    table = opened(write(tmp_path / file, "# comment\n" + "".join(lines)))
    assert table.estimate_rows() == pytest.approx(len(lines), rel=0.05)
    assert table.num_rows() == len(lines)


@pytest.fixture
def parquet(tmp_path):
    return lambda columns: _write_parquet(tmp_path / "t.parquet", columns)


def _write_parquet(path, columns):
    pq.write_table(pa.table(columns), path, row_group_size=7)
    return path


def test_parquet_has_the_columns_that_were_written(parquet):
    ids = np.arange(20, dtype=np.uint32)
    names = [f"n{i}" for i in range(19)] + [None]
    vectors = np.random.default_rng(0).random((20, 3), dtype=np.float32)
    columns = {
        "ID": ids,
        "Name": names,
        "sort": pa.array(["a", "b"] * 10).dictionary_encode(),
        "x": pa.array([0.5] * 19 + [None]),
        "list": vectors.tolist(),
        "fixed": pa.FixedSizeListArray.from_arrays(vectors.astype(np.float64).ravel(), 3),
        "digits": [str(i) for i in range(19)] + [""],
        "unreadable": [b"\xff"] * 20,
        "record": [{"a": 1}] * 20,
    }
    with small_blocks():
        table = opened(parquet(columns))
        assert table.columns == ("id", "name", "sort", "x", "list", "fixed", "digits", "unreadable", "record")
        assert table.num_rows() == table.estimate_rows() == 20
        assert table.width([0, 4, 5]) == 7
        assert [row[:4] for row in table.head] == [["0", "n0", "a", "0.5"], ["1", "n1", "b", "0.5"]]
        np.testing.assert_array_equal(numbers(table, [0], np.int64)[:, 0], ids)
        np.testing.assert_array_equal(
            numbers(table, [0, 4, 5], np.float32), np.hstack([ids[:, None], vectors, vectors])
        )
        for column, last in ((3, [0.5] * 19), (6, range(19))):
            got = numbers(table, [column], np.float64, missing=True)[:, 0]
            np.testing.assert_array_equal(got, [*last, np.nan])
        assert strings(table, [0, 1]) == [[str(i), name or ""] for i, name in enumerate(names)]
        assert strings(table, [2]) == [["a"], ["b"]] * 10


def test_parquet_without_a_letter_is_a_column_of_empty_strings(parquet):
    assert strings(opened(parquet({"a": ["", None], "b": [None, ""]})), [0, 1]) == [["", ""]] * 2


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_a_slice_of_an_arrow_array_has_its_own_strings(kind):
    words = ["zero", "one", "two", "three"]
    fields = arrow.as_fields(pa.array(words, kind).slice(1, 2))
    assert [fields[i] for i in range(len(fields))] == words[1:3]


def _npz(path, **arrays):
    np.savez_compressed(path, **arrays)
    return path


def _csr(edges: np.ndarray) -> dict[str, np.ndarray]:
    source, target = edges[:, np.argsort(edges[0], kind="stable")]
    return {"indptr": np.concatenate([[0], np.cumsum(np.bincount(source, minlength=30))]), "indices": target}


@pytest.mark.parametrize("num_edges", [0, 1, 5, 83])
def test_arrays_of_edges_are_tables_with_a_source_and_a_target(num_edges, tmp_path):
    edges = np.random.default_rng(num_edges).integers(0, 30, (2, num_edges)).astype(np.int32)
    edges = edges[:, np.argsort(edges[0], kind="stable")]
    relation = np.arange(num_edges, dtype=np.uint8) % 3
    for name, array in (("rows", edges), ("columns", edges.T), ("fortran", np.asfortranarray(edges))):
        np.save(tmp_path / f"{name}.npy", array)
        _npz(tmp_path / f"{name}.npz", edge_index=array, relation=relation, num_nodes=31)
    _npz(tmp_path / "csr.npz", **_csr(edges), relation=relation)
    for path in tmp_path.iterdir():
        if num_edges == 0 and path.stem == "columns":
            continue
        with small_blocks():
            table = ArrayTable(path)
            columns = [0, 1, 2] if path.suffix == ".npz" else [0, 1]
            blocks = [block.numbers(columns, np.int64) for block in table.blocks()]
            got = np.concatenate([np.empty((0, len(columns)), np.int64), *blocks])
            expected = np.vstack([edges, relation] if path.suffix == ".npz" else [edges]).T
            np.testing.assert_array_equal(got, expected, err_msg=path.name)
            assert strings(table, [0, 1]) == [list(map(str, row)) for row in edges.T.tolist()]
        assert table.num_rows() == table.estimate_rows() == num_edges
        assert table.num_nodes == {".npy": None, ".npz": 30 if path.stem == "csr" else 31}[path.suffix]


@pytest.mark.parametrize(("kind", "dtype"), [(int, np.int64), (float, np.float64)])
def test_the_block_parser_reads_what_python_reads_and_nothing_else(kind, dtype):
    """NumPy alone takes "-" for 0 and " " for -1.0."""
    for letters in (letter for size in range(5) for letter in itertools.product("1-+.e \t_", repeat=size)):
        field = "".join(letters)
        try:
            expected = None if "_" in field else [7, kind(field), 8]
        except ValueError:
            expected = None
        values = text.parse_numbers(f"7,{field},8\n".encode(), dtype)
        assert (None if values is None else values.tolist()) == expected, field


@pytest.mark.parametrize(
    ("field", "whole", "number"),
    [
        ("12", True, True),
        ("-1", True, True),
        ("1.5", False, True),
        ("nan", False, True),
        ("", False, False),
        ("-", False, False),
        ("1_0", False, False),
        ("\u0661", False, False),
        ("\u00b2", False, False),
        ("x", False, False),
    ],
)
def test_a_field_is_a_number_if_the_block_parser_reads_it(field, whole, number):
    assert (is_whole(field), is_number(field)) == (whole, number)
    for known, dtype in ((whole, np.int64), (number, np.float64)):
        values = text.parse_numbers(field.encode() + b"\n", dtype)
        assert known == (values is not None and len(values) == 1)


def test_formats_are_known_by_their_suffix(tmp_path):
    assert [suffix(tmp_path / name) for name in ("a.b.CSV.gz", "x.parquet", "a.npz")] == [
        ".csv",
        ".parquet",
        ".npz",
    ]
    with pytest.raises(InputError, match=r"x\.xlsx has an unknown format\. Allowed are \.npy, .*\.csv\.gz"):
        suffix(tmp_path / "x.xlsx")
