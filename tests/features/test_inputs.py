"""Columns behind the features: what they are, and whose classes are hidden."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import musegnn
from musegnn.errors import InputError
from musegnn.features.inputs import Inputs
from tiny_runs import tiny_graph


def by_hand(graph, targets, node_ids, num_seeds, num_types, num_classes):
    """Node by node."""
    rows = []
    for place, node in enumerate(node_ids):
        types, classes = np.zeros(num_types), np.zeros(num_classes)
        if num_types:
            types[graph.node_type[node]] = 1
        if num_classes and place >= num_seeds and graph.split[node] == 0 and targets[node] >= 0:
            classes[targets[node]] = 1
        rows.append(np.concatenate([graph.features[node], types, classes]))
    return torch.from_numpy(np.array(rows, dtype=np.float32))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(0, 150),
    st.integers(0, 150),
    st.sampled_from([0, 3]),
    st.booleans(),
)
def test_each_node_is_seen_as_it_is(seed, count, num_seeds, num_types, sees_classes):
    rng = np.random.default_rng(seed)
    types = {"node_type": rng.integers(0, 3, 150), "node_type_names": ["a", "b", "c"]}
    graph = tiny_graph(seed=seed % 7, **types)
    targets = np.where(rng.random(150) < 0.2, -1, graph.labels)
    num_classes = 3 if sees_classes else 0
    inputs = Inputs(graph, targets, num_types=num_types, num_classes=num_classes)
    node_ids, num_seeds = rng.permutation(150)[:count], min(num_seeds, count)
    rows = torch.from_numpy(graph.features[node_ids])
    seen = inputs.extend(rows, torch.from_numpy(inputs.columns(node_ids, num_seeds)))
    assert seen.shape == (count, 6 + inputs.width)
    if count:
        expected = by_hand(graph, targets, node_ids, num_seeds, num_types, num_classes)
        torch.testing.assert_close(seen, expected, rtol=0, atol=0)


def test_a_graph_without_a_split_tells_no_class():
    graph = tiny_graph(split=None)
    columns = Inputs(graph, graph.labels, num_classes=3).columns(np.arange(150), 0)
    assert (columns == -1).all()


def test_what_does_not_fit_is_refused():
    graph = tiny_graph()
    with pytest.raises(InputError, match=r"sees 2 types of nodes, .* has 0"):
        Inputs(graph, None, num_types=2)
    with pytest.raises(InputError, match="sees 2 classes, .* has the class 2"):
        Inputs(graph, graph.labels, num_classes=2)
    large = np.where(graph.labels == 0, 2**16, graph.labels)
    with pytest.raises(InputError, match="has the class 65536"):
        Inputs(graph, large, num_classes=3)
    more = tiny_graph(node_type=np.arange(150) % 4)
    with pytest.raises(InputError, match="sees 3 types of nodes, .* has 4"):
        Inputs(more, None, num_types=3)


def test_the_public_graph_has_types():
    graph = musegnn.Graph.from_edges(np.array([[0], [1]]), num_nodes=2, node_type=[0, 1])
    assert graph.node_type_names == ("type 0", "type 1")
