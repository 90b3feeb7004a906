"""local_ids: the reference and the compiled kernel against list.index."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musegnn import ops
from musegnn.ops.local_ids import numba
from strategies import node_lists

IMPLEMENTATIONS = [
    pytest.param(partial(ops.local_ids, compiled=False), id="reference"),
    pytest.param(partial(ops.local_ids, compiled=True), id="numba"),
]


def check(local, node_ids, ids):
    assert local.dtype == np.int64
    assert local.tolist() == [node_ids.tolist().index(node) for node in ids.tolist()]


@pytest.mark.parametrize("local_ids", IMPLEMENTATIONS)
@given(num_nodes=st.integers(1, 200), data=st.data())
def test_each_id_is_found_where_it_stands(local_ids, num_nodes, data):
    node_ids = data.draw(node_lists(num_nodes, min_size=1))
    wanted = st.lists(st.sampled_from(node_ids.tolist()), max_size=50)
    ids = np.array(data.draw(wanted), dtype=data.draw(st.sampled_from([np.int32, np.int64])))
    check(local_ids(node_ids, ids, num_nodes), node_ids, ids)


@pytest.mark.parametrize("local_ids", IMPLEMENTATIONS)
@pytest.mark.parametrize("num_nodes", [1, 63, 64, 65, 128, 129, 1000])
def test_graphs_at_the_borders_of_a_word(local_ids, num_nodes):
    node_ids = np.random.default_rng(0).permutation(num_nodes)
    check(local_ids(node_ids, np.arange(num_nodes), num_nodes), node_ids, np.arange(num_nodes))
    last = np.array([num_nodes - 1])
    assert local_ids(last, last, num_nodes).tolist() == [0]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("num_nodes", [0, 3])
def test_no_ids_have_no_positions(compiled, num_nodes):
    nothing = np.empty(0, dtype=np.int32)
    local = ops.local_ids(nothing, nothing, num_nodes, compiled=compiled)
    assert (local.dtype, local.shape) == (np.int64, (0,))


def test_the_kernel_writes_all_of_its_memory(on_poison):
    node_ids = np.array([70, 3, 64, 0])
    assert on_poison(numba._local_ids)(node_ids, np.array([0, 70, 3, 64, 3]), 71).tolist() == [3, 0, 1, 2, 1]


@pytest.mark.parametrize("compiled", [True, False])
def test_the_caller_chooses_the_kernel(calls, compiled):
    made = calls(numba, "local_ids")
    node_ids, ids = np.array([7, 2, 5]), np.array([5, 7])
    check(ops.local_ids(node_ids, ids, 8, compiled=compiled), node_ids, ids)
    assert len(made) == compiled
