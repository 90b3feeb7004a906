"""`.npy` and `.npz` in blocks, against NumPy reading them whole."""

import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musegnn.datasets.raw import npy
from musegnn.errors import InputError

SAVE = {"compressed": np.savez_compressed, "plain": np.savez}


class Trap:
    """Says so when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Blocks of 64 bytes, so that small arrays take many."""
    monkeypatch.setattr(npy, "BLOCK_BYTES", 64)
    return tmp_path


@pytest.mark.parametrize("save", SAVE.values(), ids=SAVE)
@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<i8", ">i4", "u1"])
@pytest.mark.parametrize("shape", [(0,), (1,), (100,), (0, 3), (37, 3), (5, 100), (9, 1), (6, 2, 5)])
def test_rows_in_blocks_are_the_rows_of_the_array(save, dtype, shape, folder):
    array = np.random.default_rng(0).integers(0, 100, size=shape).astype(dtype)
    save(folder / "a.npz", values=array)
    member = npy.NpzMember(folder / "a.npz", "values")
    blocks = list(member.rows())
    assert (member.shape, member.dtype, len(member)) == (shape, np.dtype(dtype), shape[0])
    assert all(len(block) == 1 or block.nbytes <= 64 for block in blocks)
    np.testing.assert_array_equal(np.concatenate([np.empty((0, *shape[1:]), dtype), *blocks]), array)
    np.testing.assert_array_equal(member.read(), array)


@pytest.mark.parametrize("save", SAVE.values(), ids=SAVE)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("num_pairs", [0, 1, 2, 3, 8, 9, 101])
@pytest.mark.parametrize("across", [True, False], ids=["(2, n)", "(n, 2)"])
def test_pairs_match_however_the_array_lies(save, order, num_pairs, across, folder):
    ends = np.random.default_rng(1).integers(0, 1000, size=(2, num_pairs))
    # A (2, 2) array is taken as two rows.
    across = across or num_pairs == 2
    save(folder / "a.npz", edges=np.asarray(ends if across else ends.T, order=order))
    blocks = list(npy.NpzMember(folder / "a.npz", "edges").pairs())
    assert all(len(first) == len(second) for first, second in blocks)
    assert num_pairs < 20 or len(blocks) > 1
    for end in (0, 1):
        parts = [block[end] for block in blocks]
        np.testing.assert_array_equal(np.concatenate([np.empty(0, int), *parts]), ends[end])


@given(array=hnp.arrays(hnp.integer_dtypes(), hnp.array_shapes(max_dims=2)), order=st.sampled_from("CF"))
def test_a_whole_member_is_the_array(array, order, tmp_path_factory):
    path = tmp_path_factory.mktemp("npz") / "a.npz"
    np.savez_compressed(path, a=np.asarray(array, order=order))
    np.testing.assert_array_equal(npy.NpzMember(path, "a").read(), array)


def test_an_npy_is_mapped_and_not_read(folder):
    np.save(folder / "a.npy", np.arange(12).reshape(3, 4))
    mapped = npy.open_npy(folder / "a.npy")
    assert isinstance(mapped, np.memmap)
    assert not mapped.flags.writeable
    np.testing.assert_array_equal(mapped, np.arange(12).reshape(3, 4))


def test_an_npy_with_objects_is_refused_and_nothing_runs(folder):
    np.save(folder / "a.npy", np.array([Trap(folder / "ran")]), allow_pickle=True)
    with pytest.raises(InputError, match=r"a.npy holds Python objects, which are never loaded"):
        npy.open_npy(folder / "a.npy")
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("save", SAVE.values(), ids=SAVE)
def test_an_npz_with_objects_is_refused_and_nothing_runs(save, folder):
    save(folder / "a.npz", trap=np.array([Trap(folder / "ran")]), plain=np.arange(3))
    with pytest.raises(InputError, match=r"a.npz, member trap holds Python objects, which are never loaded"):
        npy.NpzMember(folder / "a.npz", "trap")
    assert npy.NpzMember(folder / "a.npz", "plain").read().tolist() == [0, 1, 2]
    assert not (folder / "ran").exists()


def test_a_pickle_under_the_name_of_an_array_is_refused(folder):
    np.array([Trap(folder / "ran")]).dump(folder / "a.npy")
    with pytest.raises(InputError, match=r"a.npy is not a readable NumPy file"):
        npy.open_npy(folder / "a.npy")
    assert not (folder / "ran").exists()


def test_a_missing_file_is_named(folder):
    for read in (npy.open_npy, npy.npz_names, lambda path: npy.NpzMember(path, "a")):
        with pytest.raises(InputError, match=r"none.npz does not exist"):
            read(folder / "none.npz")


def test_a_missing_member_is_answered_with_those_there_are(folder):
    np.savez(folder / "a.npz", x=np.arange(3), y=np.arange(3))
    assert npy.npz_names(folder / "a.npz") == {"x", "y"}
    with pytest.raises(InputError, match=r"a.npz has no member z; it has: x, y\."):
        npy.NpzMember(folder / "a.npz", "z")


@pytest.mark.parametrize("kept", [0, 5, 100, -1])
def test_a_truncated_npy_is_refused(kept, folder):
    np.save(folder / "a.npy", np.arange(100))
    data = (folder / "a.npy").read_bytes()
    (folder / "a.npy").write_bytes(data[:kept])
    with pytest.raises(InputError, match=r"a.npy is not a readable NumPy file"):
        npy.open_npy(folder / "a.npy")


def read_all(path, name):
    member = npy.NpzMember(path, name)
    return [*member.rows(), *(member.pairs() if len(member.shape) == 2 else []), member.read()]


@pytest.mark.parametrize("save", SAVE.values(), ids=SAVE)
def test_a_truncated_npz_is_refused(save, folder):
    save(folder / "a.npz", a=np.random.default_rng(0).random((50, 2)))
    data = (folder / "a.npz").read_bytes()
    for kept in range(0, len(data), 37):
        (folder / "a.npz").write_bytes(data[:kept])
        with pytest.raises(InputError, match=r"a.npz is not a readable NumPy file"):
            read_all(folder / "a.npz", "a")


@pytest.mark.parametrize("save", SAVE.values(), ids=SAVE)
def test_a_flipped_byte_is_found(save, folder):
    """By the archive's checksum: no block is yielded as the end of the array that was not verified."""
    save(folder / "a.npz", a=np.random.default_rng(0).random((50, 2)))
    data = bytearray((folder / "a.npz").read_bytes())
    data[len(data) // 2] ^= 0x10
    (folder / "a.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"a.npz is not a readable NumPy file"):
        list(npy.NpzMember(folder / "a.npz", "a").rows())


@pytest.mark.parametrize("method", ["rows", "pairs", "read"])
def test_a_member_shorter_than_its_header_says_is_cut_off(method, folder):
    np.save(folder / "a.npy", np.zeros((2, 50)))
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("a.npy", (folder / "a.npy").read_bytes()[:-8])
    with pytest.raises(InputError, match=r"a.npz, member a is cut off. Download it again"):
        list(getattr(npy.NpzMember(folder / "a.npz", "a"), method)())


def test_rows_of_an_array_stored_by_columns_are_refused(folder):
    np.savez(folder / "a.npz", a=np.asfortranarray(np.zeros((5, 3))))
    with pytest.raises(InputError, match=r"a.npz, member a is stored by columns. Save it with np.ascontig"):
        list(npy.NpzMember(folder / "a.npz", "a").rows())


@pytest.mark.parametrize("shape", [(7,), (3, 4), (2, 5, 1)])
def test_pairs_of_another_shape_are_refused(shape, folder):
    np.savez(folder / "a.npz", a=np.zeros(shape))
    with pytest.raises(InputError, match=r"must have shape \(2, edges\), got"):
        list(npy.NpzMember(folder / "a.npz", "a").pairs())
