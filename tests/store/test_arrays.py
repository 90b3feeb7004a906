"""One array, one file: round trips, digests, and files that are not what their header says."""

import hashlib
import os
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musegnn.errors import StoreError
from musegnn.store import ArraySpec, ArrayWriter, arrays, digest_array
from musegnn.store.arrays import DTYPES, BlockDigest, dtype_name, file_digest, map_array

NUMBERS = [f"{order}{name[1:]}" for name in sorted(DTYPES) for order in "<>"]
BLOCK = 64


def write(path, values, cuts=()):
    with ArrayWriter(path, values.dtype, values.shape[1:]) as writer:
        for rows in np.split(values, cuts):
            writer.append(rows)
        return writer.finish()


def digest_by_hand(data, block):
    """As docs/formats.md says it."""
    blocks = [data[start : start + block] for start in range(0, len(data), block)]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in blocks)).hexdigest()


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(arrays, "BLOCK_BYTES", BLOCK)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0,), (0, 4), (4, 0), (1,)], ids=str)
def test_values_of_every_type_come_back(tmp_path, dtype, shape):
    values = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    spec = write(tmp_path / "a.bin", values)
    back = map_array(tmp_path / "a.bin", spec)
    assert (spec.dtype, spec.shape) == ("<" + dtype[1:], shape)
    assert back.dtype.newbyteorder("<").str[1:] == dtype[1:]
    assert np.array_equal(back, values)
    assert spec.num_bytes == os.path.getsize(tmp_path / "a.bin") == values.nbytes
    assert isinstance(back, np.memmap) == (values.nbytes > 0)
    assert spec.digest == digest_array(values) == digest_by_hand(back.tobytes(), 1 << 24)


def test_a_mapped_array_cannot_be_written(tmp_path):
    back = map_array(tmp_path / "a.bin", write(tmp_path / "a.bin", np.arange(3)))
    with pytest.raises(ValueError, match="read-only"):
        back[0] = 1


def test_strides_and_byte_order_are_no_part_of_the_content():
    values = np.arange(24, dtype=np.int32).reshape(4, 6)
    same = [np.asfortranarray(values), values.astype(">i4"), np.repeat(values, 2, axis=1)[:, ::2]]
    assert {digest_array(other) for other in same} == {digest_array(values)}
    assert digest_array(values.T) != digest_array(values)


def test_names_of_types_are_those_of_the_format():
    types = [np.int8, np.uint8, np.int64, ">f4", np.float16]
    assert [dtype_name(dtype) for dtype in types] == ["<i1", "<u1", "<i8", "<f4", "<f2"]


@given(data=st.data(), values=hnp.arrays(np.uint16, st.tuples(st.integers(0, 150), st.integers(0, 3))))
def test_the_digest_does_not_depend_on_how_rows_are_appended(tmp_path_factory, data, values):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(values)), max_size=5)))
    path = tmp_path_factory.mktemp("digest") / "a.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "BLOCK_BYTES", BLOCK)
        spec = write(path, values, cuts)
        assert spec.digest == digest_array(values) == digest_by_hand(values.tobytes(), BLOCK)
    assert np.array_equal(map_array(path, spec), values)


@given(parts=st.lists(st.binary(max_size=200), max_size=6))
def test_the_digest_of_a_stream_does_not_depend_on_its_cuts(parts):
    digest = BlockDigest()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "BLOCK_BYTES", BLOCK)
        for part in parts:
            digest.update(memoryview(part))
        assert digest.hexdigest() == digest_by_hand(b"".join(parts), BLOCK)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 1, 3 * BLOCK, 10 * BLOCK + 7]
)
@pytest.mark.usefixtures("small_blocks")
def test_a_file_is_digested_as_the_array_in_it(tmp_path, size, threads):
    values = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    (tmp_path / "a.bin").write_bytes(values.tobytes())
    done, lock = [], threading.Lock()

    def advance(amount):
        with lock:
            done.append(amount)

    assert file_digest(tmp_path / "a.bin", advance, threads) == digest_array(values)
    assert sum(done) == size


def test_a_file_around_the_real_block_size_is_digested_as_the_array_in_it(tmp_path):
    values = np.arange((arrays.BLOCK_BYTES + 5) // 2, dtype=np.uint16)
    spec = write(tmp_path / "a.bin", values)
    assert file_digest(tmp_path / "a.bin", lambda amount: None, 3) == spec.digest
    assert spec.digest == digest_by_hand(values.tobytes(), 1 << 24)


@pytest.mark.usefixtures("small_blocks")
def test_every_flipped_byte_changes_the_digest(tmp_path):
    values = np.arange(40, dtype=np.int32)
    spec = write(tmp_path / "a.bin", values)
    for at in range(values.nbytes):
        data = bytearray(values.tobytes())
        data[at] ^= 1
        (tmp_path / "a.bin").write_bytes(data)
        assert file_digest(tmp_path / "a.bin", lambda amount: None, 1) != spec.digest


def test_rows_written_so_far_can_be_read(tmp_path):
    with ArrayWriter(tmp_path / "a.bin", np.float32, (2,)) as writer:
        assert writer.written().shape == (0, 2)
        writer.append(np.ones((3, 2)))
        assert np.array_equal(writer.written(), np.ones((3, 2)))
        writer.append(np.zeros((1, 2)))
        assert np.array_equal(writer.written(), [[1, 1]] * 3 + [[0, 0]])
        assert writer.finish().shape == (4, 2)


def test_rows_of_another_shape_are_our_own_fault(tmp_path):
    with ArrayWriter(tmp_path / "a.bin", np.float32, (2,)) as writer, pytest.raises(AssertionError):
        writer.append(np.ones((3, 3)))


def test_a_file_is_never_written_over(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        ArrayWriter(tmp_path / "a.bin", np.int8)
    assert (tmp_path / "a.bin").read_bytes() == b"precious"


@pytest.mark.parametrize("size", [0, 1, 39, 41, 80])
def test_a_file_of_another_size_is_refused(tmp_path, size):
    (tmp_path / "a.bin").write_bytes(bytes(size))
    spec = ArraySpec(dtype="<i4", shape=(10,), digest="")
    with pytest.raises(
        StoreError, match=rf"a\.bin has {size} bytes, but its header says 40: .*cut off"
    ) as caught:
        map_array(tmp_path / "a.bin", spec)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StoreError, match=r"a\.bin is missing: the store is damaged\. Write it again\."):
        map_array(tmp_path / "a.bin", ArraySpec(dtype="<i4", shape=(1,), digest=""))


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_what_is_no_file_is_refused_even_for_an_empty_array(tmp_path, make):
    make(tmp_path / "a.bin")
    with pytest.raises(StoreError, match=r"a\.bin is not a regular file"):
        map_array(tmp_path / "a.bin", ArraySpec(dtype="<i4", shape=(0,), digest=""))
