"""A sample in a shard: where each array lies, to the byte, and that reading gives back what was written."""

import struct
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musegnn import Sample
from musegnn.sampling import layout
from musegnn.store import ArrayWriter
from musegnn.store.arrays import map_array
from sample_stores import is_equal


def a_sample(num_nodes=0, num_entries=0, num_seeds=0, id_dtype=np.int32):
    return Sample(
        node_ids=np.arange(num_nodes, dtype=id_dtype) + 7,
        indptr=np.arange(num_nodes + 1, dtype=np.int64),
        indices=np.arange(num_entries, dtype=np.int32) + 3,
        num_seeds=num_seeds,
        bounds=np.array([0.5, 1.5, 2.5, 3.5]),
    )


@st.composite
def samples(draw, id_dtype):
    """Any values: what they mean is none of the layout's business."""
    num_nodes, num_entries = draw(st.integers(0, 60)), draw(st.integers(0, 60))
    largest = {np.int32: 2**31 - 1, np.int64: 2**62}
    return Sample(
        node_ids=draw(hnp.arrays(id_dtype, num_nodes, elements=st.integers(0, largest[id_dtype]))),
        indptr=draw(hnp.arrays(np.int64, num_nodes + 1, elements=st.integers(0, 2**62))),
        indices=draw(hnp.arrays(np.int32, num_entries, elements=st.integers(0, 2**31 - 1))),
        num_seeds=draw(st.integers(0, num_nodes)),
        bounds=draw(hnp.arrays(np.float64, 4)),
    )


def shards(id_dtype):
    return st.tuples(st.just(id_dtype), st.lists(samples(id_dtype), min_size=1, max_size=4))


@given(shards(np.int32) | shards(np.int64))
@example((np.int32, [a_sample()]))
@example((np.int32, [a_sample(), a_sample(1), a_sample()]))
@example((np.int32, [a_sample(42)]))  # 512 bytes: no padding, and the indices begin where the shard ends
@example((np.int64, [a_sample(1, 2, 1, np.int64), a_sample(3, 0, 0, np.int64)]))
def test_what_was_appended_is_read_back(shard):
    id_dtype, written = shard[0], shard[1]
    with tempfile.TemporaryDirectory() as folder:
        with ArrayWriter(Path(folder) / "shard", np.uint8) as writer:
            rows = [layout.append(writer, sample) for sample in written]
            spec = writer.finish()
        mapped = map_array(Path(folder) / "shard", spec)
        assert spec.shape == (sum(layout.size_of(sample) for sample in written),)
        for row, sample in zip(rows, written, strict=True):
            read = layout.read(mapped, row, sample.bounds, np.dtype(id_dtype))
            assert row[1:] == (sample.num_nodes, sample.num_entries, sample.num_seeds)
            assert row.offset % layout.ALIGNMENT == 0
            assert read.num_seeds == sample.num_seeds
            for name in ("node_ids", "indptr", "indices", "bounds"):
                assert getattr(read, name).dtype == getattr(sample, name).dtype
                assert getattr(read, name).tobytes() == getattr(sample, name).tobytes()


@pytest.mark.parametrize(("id_dtype", "code"), [(np.int32, "i"), (np.int64, "q")])
def test_the_bytes_are_those_of_the_description(id_dtype, code, tmp_path):
    """indptr, node ids, indices, zeros to 64 bytes; written out by hand."""
    sample = a_sample(2, 3, 1, id_dtype)
    expected = struct.pack(f"<3q2{code}3i", 0, 1, 2, 7, 8, 3, 4, 5)
    expected += bytes(-len(expected) % 64)
    with ArrayWriter(tmp_path / "shard", np.uint8) as writer:
        layout.append(writer, a_sample(2, 3, 1, id_dtype))
        row = layout.append(writer, sample)
        writer.finish()
    assert (tmp_path / "shard").read_bytes() == 2 * expected
    assert np.concatenate(layout.parts(sample)).tobytes() == expected
    assert row == (len(expected), 2, 3, 1)


@pytest.mark.parametrize("num_nodes", [0, 1, 4, 5, 41, 42, 43])
def test_a_sample_takes_the_next_multiple_of_64_bytes(num_nodes):
    for num_entries in range(20):
        content = 8 * (num_nodes + 1) + 4 * num_nodes + 4 * num_entries
        size = layout.num_bytes(num_nodes, num_entries, np.dtype("<i4"))
        assert size == layout.size_of(a_sample(num_nodes, num_entries))
        assert size % 64 == 0
        assert content <= size < content + 64


def test_a_sample_of_a_strided_array_is_written_as_its_values(tmp_path):
    whole = a_sample(4, 6)
    strided = Sample(
        node_ids=np.repeat(whole.node_ids, 2)[::2],
        indptr=np.repeat(whole.indptr, 2)[::2],
        indices=np.repeat(whole.indices, 2)[::2],
        num_seeds=0,
        bounds=whole.bounds,
    )
    for piece, expected in zip(layout.parts(strided), layout.parts(whole), strict=True):
        assert piece.tobytes() == expected.tobytes()
    assert is_equal(strided, whole)
