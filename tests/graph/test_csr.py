"""csr_rows in next to no memory: cut chunks, cut buckets and split buckets change nothing."""

import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import Graph, ops
from musegnn.graph import EdgeChunk, csr
from musegnn.graph.csr import BYTES_PER_EDGE, BYTES_PER_ENTRY, Spill, csr_rows
from musegnn.graph.threads import default_workers, in_order
from strategies import edge_lists

MEMORIES = [1, 2 * 3 * BYTES_PER_EDGE, 2 * 40 * BYTES_PER_ENTRY, 1 << 30]


def whole(blocks):
    """indptr, columns and codes of blocks of rows."""
    blocks = list(blocks)
    lengths = np.concatenate([block.lengths for block in blocks])
    columns = np.concatenate([block.columns for block in blocks])
    codes = None if blocks[0].codes is None else np.concatenate([block.codes for block in blocks])
    return np.concatenate([[0], np.cumsum(lengths)]), columns, codes


def assert_same(blocks, source, target, relation, num_nodes):
    indptr, columns, codes = whole(blocks)
    expected = oracles.symmetric_csr(source, target, num_nodes)
    assert indptr.tolist() == expected.indptr.tolist()
    assert columns.tolist() == expected.indices.tolist()
    assert (codes is None) == (relation is None)
    if codes is not None:
        bits = oracles.relation_bits(source, target, relation)
        assert codes.tolist() == [bits[entry] for entry in oracles.entries(indptr, columns)]


def chunks_of(source, target, relation, size):
    for start in range(0, len(source), size):
        part = slice(start, start + size)
        yield EdgeChunk(source[part], target[part], None if relation is None else relation[part])


@settings(max_examples=60)
@given(
    edges=edge_lists(),
    coded=st.booleans(),
    on_disk=st.booleans(),
    memory=st.sampled_from(MEMORIES),
    workers=st.sampled_from([1, 3]),
    max_buckets=st.sampled_from([2, 3, 1024]),
    size=st.integers(1, 50),
)
def test_any_edges_in_any_chunks_and_memory(edges, coded, on_disk, memory, workers, max_buckets, size):
    relation = edges.relation if coded else None
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(csr, "MAX_BUCKETS", max_buckets)
        blocks = csr_rows(
            chunks_of(edges.source, edges.target, relation, size),
            edges.num_nodes,
            coded=coded,
            scratch=Path(folder) if on_disk else None,
            memory=memory,
            workers=workers,
        )
        assert_same(blocks, edges.source, edges.target, relation, edges.num_nodes)
        assert [path for path in Path(folder).rglob("*") if path.is_file()] == []


def a_hub(num_nodes=1500, num_edges=2000):
    """One node with half of the edges, which leads nowhere near a bucket's share of the memory."""
    rng = np.random.default_rng(5)
    source, target = rng.integers(0, num_nodes, (2, num_edges))
    source[::2] = 713
    return source, target, rng.integers(0, 16, num_edges)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("on_disk", [False, True])
@pytest.mark.parametrize("small", [0, ops.SMALL], ids=["compiled", "reference"])
def test_a_hub_with_buckets_split_again_and_again(tmp_path, monkeypatch, workers, on_disk, small):
    """1,500 rows in 3 buckets, split in 4, each again in 4, ... down to single rows."""
    monkeypatch.setattr(ops, "SMALL", small)
    monkeypatch.setattr(csr, "MAX_BUCKETS", 4)
    depths, split = [], Spill._split

    def counted(self, b, first, rows):
        depths.append(len(self.folder.relative_to(tmp_path).parts))
        return split(self, b, first, rows)

    monkeypatch.setattr(Spill, "_split", counted)
    source, target, relation = a_hub()
    blocks = csr_rows(
        chunks_of(source, target, relation, 999),
        1500,
        coded=True,
        scratch=tmp_path if on_disk else None,
        memory=(workers + 1) * 20 * BYTES_PER_ENTRY,
        workers=workers,
        num_edges=len(source),
    )
    assert_same(blocks, source, target, relation, 1500)
    assert max(depths, default=0) == (4 if on_disk else 0)


def test_no_more_than_a_share_of_the_memory_is_merged_at_once(tmp_path, monkeypatch):
    """Blocks hold at most max_entries, but for the row of a hub, which is never split."""
    monkeypatch.setattr(csr, "MAX_BUCKETS", 16)
    source, target, _ = a_hub()
    loaded, merge_entries = [], ops.merge_entries

    def counted(keys, codes, first_row, num_rows, **options):
        loaded.append((len(keys), num_rows))
        return merge_entries(keys, codes, first_row, num_rows, **options)

    monkeypatch.setattr(ops, "merge_entries", counted)
    chunks = chunks_of(source, target, None, 10_000)
    list(csr_rows(chunks, 1500, coded=False, scratch=tmp_path, memory=2 * 50 * BYTES_PER_ENTRY))
    too_large = [num_rows for num_entries, num_rows in loaded if num_entries > 50]
    assert too_large == [1]


def test_chunks_are_cut_to_a_share_of_the_memory(monkeypatch):
    sizes, partition_edges = [], ops.partition_edges

    def counted(source, *args, **options):
        sizes.append(len(source))
        return partition_edges(source, *args, **options)

    monkeypatch.setattr(ops, "partition_edges", counted)
    source, target, _ = a_hub()
    chunks = chunks_of(source, target, None, 10_000)
    list(csr_rows(chunks, 1500, coded=False, memory=2 * 300 * BYTES_PER_EDGE))
    assert sizes == [300] * 6 + [200]


def test_only_a_few_chunks_are_read_ahead():
    """What has been read and not yet taken is at most one chunk a worker, and the one in hand."""
    read = 0

    def chunks():
        nonlocal read
        for _ in range(30):
            read += 1
            yield EdgeChunk(np.array([0]), np.array([1]))

    with csr.ThreadPoolExecutor(3) as pool:
        pieces = csr._pieces(chunks(), 10)
        for done, _ in enumerate(in_order(pool, (piece.make for piece in pieces), 3)):
            assert read <= done + 3
    assert read == 30


@pytest.mark.parametrize("num_nodes", [1, 2, 3, 1023, 1024, 1025, 2048, 2049, 1024 * 1024 + 1, (1 << 32) - 1])
def test_buckets_cover_all_rows_and_are_at_most_1024(num_nodes):
    spill = Spill(num_nodes, coded=False, folder=None, max_entries=10)
    assert 1 <= spill.num_buckets <= csr.MAX_BUCKETS
    buckets = [(bucket.first_row, bucket.num_rows) for bucket in spill.buckets()]
    assert buckets[0][0] == 0
    assert all(a[0] + a[1] == b[0] for a, b in zip(buckets, buckets[1:], strict=False))
    assert sum(buckets[-1]) == num_nodes
    assert num_nodes < 1024 or spill.num_buckets > csr.MAX_BUCKETS // 2


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_in_the_middle_stops_the_threads(tmp_path, workers):
    def chunks():
        yield EdgeChunk(np.array([0]), np.array([1]))
        raise OSError("the raw file is gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        list(csr_rows(chunks(), 2, coded=False, scratch=tmp_path, workers=workers))
    assert threading.active_count() == before


def test_the_graph_does_not_depend_on_memory_or_threads(tmp_path):
    source, target, relation = a_hub()
    expected = Graph.from_edges([source, target], num_nodes=1500, relation=relation)
    for memory, workers in ((200_000, 1), (200_000, 3), (1 << 20, 2)):
        blocks = csr_rows(
            [EdgeChunk(source, target, relation)],
            1500,
            coded=True,
            scratch=tmp_path,
            memory=memory,
            workers=workers,
        )
        indptr, columns, codes = whole(blocks)
        assert np.array_equal(indptr, expected.indptr)
        assert np.array_equal(columns, expected.indices)
        assert np.array_equal(codes, expected.relation)
        for path in tmp_path.iterdir():
            path.rmdir()


def test_there_is_a_worker_for_each_core():
    assert default_workers() >= 1


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_of_a_chunk_that_is_made_is_the_readers(workers):
    def make():
        raise OSError("the raw file is gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="gone"):
        list(csr_rows([make] * 5, 2, coded=False, workers=workers))
    assert threading.active_count() == before


@pytest.mark.parametrize("workers", [1, 3])
def test_chunks_may_be_made_by_the_threads_that_take_them(workers):
    source, target, relation = a_hub()
    made = [lambda chunk=chunk: chunk for chunk in chunks_of(source, target, relation, 100)]
    blocks = csr_rows(made, 1500, coded=True, workers=workers)
    assert_same(blocks, source, target, relation, 1500)
