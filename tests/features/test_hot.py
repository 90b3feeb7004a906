"""Hot rows: the counts are those of a loop, the rows those that are read most often, and none gets lost."""

import numpy as np
import pytest
import small_runs
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from musegnn.features import hot
from musegnn.features.hot import HotRows, appearances, most_read


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("hot") / "s")


def counted(store, reads):
    """One by one."""
    counts = [0] * small_runs.NUM_NODES
    for split in store:
        for sample in store[split]:
            for node in sample.node_ids.tolist():
                counts[node] += reads.get(split, 0)
    return counts


@pytest.mark.parametrize(
    "reads",
    [{"train": 1}, {"train": 20, "valid": 3, "test": 1}, {"train": 70000, "none": 5}, {"test": 0}, {}],
)
def test_counts_are_exact(store, reads):
    counts = appearances(store, small_runs.NUM_NODES, reads)
    assert counts.tolist() == counted(store, reads)
    # The smallest numbers that hold a node of all samples.
    total = sum(reads.get(split, 0) * len(store[split]) for split in store)
    assert counts.dtype == np.min_scalar_type(total)


def test_reads_beyond_counting_keep_their_proportions(store):
    reads = {"train": 10**12, "valid": 10**11}
    counts = appearances(store, small_runs.NUM_NODES, reads)
    assert counts.dtype == np.uint32
    exact = np.array(counted(store, reads), dtype=np.float64)
    np.testing.assert_allclose(counts / counts.max(), exact / exact.max(), rtol=1e-4)


@given(
    hnp.arrays(st.sampled_from([np.uint8, np.uint32]), st.integers(0, 40), elements=st.integers(0, 9)),
    st.integers(0, 50),
    st.integers(1, 50),
)
def test_the_most_read_rows_are_chosen(counts, num_rows, block):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot, "_BLOCK", block)
        chosen = most_read(counts, num_rows)
    order = sorted(range(len(counts)), key=lambda node: (-int(counts[node]), node))
    assert chosen.tolist() == sorted(node for node in order[:num_rows] if counts[node])


@given(st.data())
def test_hot_and_cold_rows_come_together_in_their_order(data):
    # No two numbers are the same.
    shape = data.draw(st.tuples(st.integers(1, 30), st.integers(1, 4)))
    table = np.arange(np.prod(shape), dtype=data.draw(st.sampled_from([np.float16, np.float32]))).reshape(
        shape
    )
    nodes = np.array(sorted(data.draw(st.sets(st.integers(0, len(table) - 1)))), dtype=np.int32)
    ids = np.array(data.draw(st.lists(st.integers(0, len(table) - 1), unique=True)), dtype=np.int32)
    held, asked = HotRows(len(table), nodes, table[nodes]), []

    def read_cold(cold, out):
        asked.append(cold.tolist())
        out[:] = table[cold]

    out = np.full((len(ids), table.shape[1]), -1000, table.dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hot, "_CHUNK", data.draw(st.integers(1, 5)))
        held.fill(ids, out, read_cold)
    assert out.tobytes() == table[ids].tobytes()
    assert asked == [[node for node in ids.tolist() if node not in set(nodes.tolist())]]
