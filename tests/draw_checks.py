"""What must hold of the samples of any sampler, checked by the most obvious means."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np


def content(sample):
    """All bytes of a sample."""
    arrays = (sample.node_ids, sample.indptr, sample.indices, sample.bounds)
    return [(array.dtype, array.tobytes()) for array in arrays], sample.num_seeds


def check_order_and_threads(make_draws):
    """Forwards, backwards, and from four threads at once, with a sampler of its own each time."""
    expected = [content(sample) for sample in make_draws()]
    backwards, together = make_draws(), make_draws()
    assert [content(backwards[i]) for i in reversed(range(len(expected)))] == expected[::-1]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda i: content(together[i]), range(len(expected)))) == expected


def check_induced(graph, sample):
    """The edges are those of the dense matrix, cut out with the sample's nodes."""
    n, ids = sample.num_nodes, sample.node_ids
    assert len(set(ids.tolist())) == n
    assert np.array_equal(
        _dense(sample.indptr, sample.indices, n),
        _dense(graph.indptr, graph.indices, graph.num_nodes)[np.ix_(ids, ids)],
    )


def check_seeds(sample, split_ids):
    """The seeds are exactly the split's nodes inside; both halves ascend."""
    inside = sorted(set(sample.node_ids.tolist()) & set(np.asarray(split_ids).tolist()))
    others = sample.node_ids[sample.num_seeds :].tolist()
    assert sample.seeds.tolist() == inside
    assert others == sorted(others)


def _dense(indptr, indices, num_nodes):
    dense = np.zeros((num_nodes, num_nodes), dtype=int)
    np.add.at(dense, (np.repeat(np.arange(num_nodes), np.diff(indptr)), indices), 1)
    return dense
