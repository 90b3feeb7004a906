"""Text tables in blocks, against NumPy's own slow reader."""

import gzip

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musegnn.datasets.raw import text
from musegnn.errors import InputError


def write(path, content: bytes):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(path, dtype, num_columns=None, skip_lines=0) -> np.ndarray:
    blocks = list(text.number_rows(path, dtype, num_columns, skip_lines))
    assert all(block.dtype == dtype for block in blocks)
    return np.concatenate(blocks)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Blocks of about 16 bytes, which end inside a line."""
    monkeypatch.setattr(text, "BLOCK_BYTES", 16)
    return tmp_path


@pytest.mark.parametrize("file", ["table.csv", "table.csv.gz"])
@pytest.mark.parametrize("num_columns", [1, 2, 7])
@pytest.mark.parametrize("num_rows", [1, 2, 100])
def test_a_table_of_integers_is_what_numpy_reads(file, num_columns, num_rows, folder):
    table = np.random.default_rng(0).integers(-(2**62), 2**62, size=(num_rows, num_columns))
    lines = "".join(",".join(map(str, row)) + "\n" for row in table.tolist())
    path = write(folder / file, lines.encode())
    np.testing.assert_array_equal(np.loadtxt(path, dtype=np.int64, delimiter=",", ndmin=2), table)
    np.testing.assert_array_equal(read(path, np.int64), table)
    np.testing.assert_array_equal(read(path, np.int64, num_columns=num_columns), table)


@given(
    table=hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.floats(allow_nan=True, width=64),
    )
)
def test_a_table_of_floats_comes_back_to_the_last_bit(table, tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "table.csv"
    path.write_text("".join(",".join(map(repr, row)) + "\n" for row in table.tolist()))
    np.testing.assert_array_equal(read(path, np.float64), table)


@pytest.mark.parametrize(
    "content",
    [b"1,2\n3,4\n5,6\n", b"1,2\n3,4\n5,6", b"1,2\r\n3,4\r\n5,6\r\n", b"1, 2\n 3,4 \n5,\t6\n"],
    ids=["plain", "no newline at the end", "DOS", "spaces"],
)
def test_line_ends_and_spaces_do_not_matter(content, folder):
    assert read(write(folder / "table.csv", content), np.int64).tolist() == [[1, 2], [3, 4], [5, 6]]


def test_an_empty_file_has_no_blocks(folder):
    assert list(text.number_rows(write(folder / "table.csv", b""), np.int64)) == []


def test_skipped_lines_are_not_parsed_but_counted(folder):
    path = write(folder / "table.csv", b"source,target\n1,2\n3,4\n5,x\n")
    with pytest.raises(InputError, match=r"table.csv, line 4: .* got '5,x'"):
        read(path, np.int64, skip_lines=1)


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"7",
        b"7,8,9",
        b"7,",
        b",7",
        b"7,x",
        b"7;8",
        b"7 8",
        b"7.5,8",
        b"# 7,8",
        b"0x7,8",
        b"7,,8",
        b"nan,8",
    ],
)
@pytest.mark.parametrize("line", [1, 2, 57, 100])
def test_a_bad_line_is_named_by_its_number(bad, line, folder):
    lines = [b"%d,%d" % (n, 2 * n) for n in range(100)]
    lines[line - 1] = bad
    path = write(folder / "table.csv.gz", b"\n".join(lines) + b"\n")
    with pytest.raises(InputError) as caught:
        read(path, np.int64, num_columns=2)
    shown = repr(bad.decode())
    assert str(caught.value) == (
        f"{path}, line {line}: expected 2 whole numbers separated by commas, got {shown}. "
        "Correct or remove that line."
    )


def test_a_long_line_does_not_make_up_for_a_short_one(folder):
    path = write(folder / "table.csv", b"1,2\n3\n4,5,6\n7,8\n")
    with pytest.raises(InputError, match=r"line 2: expected 2 whole numbers .* got '3'"):
        read(path, np.int64)


def test_the_first_line_fixes_the_number_of_columns_for_all_blocks(folder):
    path = write(folder / "table.csv", b"1,2\n" * 50 + b"1,2,3\n" * 50)
    with pytest.raises(InputError, match=r"line 51: expected 2 whole numbers"):
        read(path, np.int64)


@pytest.mark.parametrize("kept", [5, 15, -9, -4, -1])
def test_a_truncated_gzip_is_refused(kept, folder):
    path = write(folder / "table.csv.gz", b"".join(b"%d,%d\n" % (n, n * n) for n in range(200)))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(
        InputError, match=r"table.csv.gz is not a complete gzip file .*Write or download it again"
    ):
        read(path, np.int64)


def test_a_damaged_gzip_is_refused(folder):
    path = write(folder / "table.csv.gz", b"".join(b"%d,%d\n" % (n, n * n) for n in range(200)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x10
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"table.csv.gz"):
        read(path, np.int64)


def test_a_file_that_is_no_gzip_is_refused(folder):
    path = folder / "table.csv.gz"
    path.write_bytes(b"1,2\n")
    with pytest.raises(InputError, match=r"table.csv.gz .*Not a gzipped file"):
        read(path, np.int64)


def test_a_missing_file_is_named(folder):
    with pytest.raises(InputError, match=r"none.csv.gz does not exist"):
        read(folder / "none.csv.gz", np.int64)


def test_several_gzip_members_are_one_file(folder):
    path = folder / "table.csv.gz"
    path.write_bytes(gzip.compress(b"1,2\n3,") + gzip.compress(b"4\n5,6\n"))
    assert read(path, np.int64).tolist() == [[1, 2], [3, 4], [5, 6]]
