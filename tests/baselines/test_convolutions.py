"""GCN, SAGE and GAT are the dense layers of their papers, and PyG's own, forward and backward."""

import dense_layers as dense
import pytest
import torch
from dense_layers import CLOSE, KINDS, TUNED, drawn, model_of, rows_of

from machine import one_thread as one_thread
from musegnn import Cluster, InputError, NeighborSampling, ShadowKHop
from musegnn.sampling.record import Sample

pyg = pytest.importorskip("torch_geometric").nn


@pytest.fixture(scope="module")
def graph():
    return dense.small_graph()


@pytest.mark.parametrize("settings", [{}, TUNED, {"norm": "batch", "layers": 2}, {"layers": 1}])
@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_by_the_dense_layers(graph, kind, settings):
    model = model_of(kind, graph, **settings)
    sample = drawn(graph, ShadowKHop([3, 2]), batch_size=4)[1]
    assert 0 < sample.num_seeds < sample.num_nodes < graph.num_nodes
    x = rows_of(graph, sample.node_ids)
    expected = dense.embed(kind, model, x, dense.matrix(sample))[-1]
    dense.check_equal(model, model(sample, x), expected[: sample.num_seeds])


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_by_our_kernel_is_that_of_pyg(graph, kind):
    """PyG's layer, untouched, with the same weights."""
    theirs = {"GCN": pyg.GCNConv, "SAGE": pyg.SAGEConv, "GAT": pyg.GATConv}[kind]
    settings = {"heads": 2, "concat": False} if kind == "GAT" else {}
    model, conv = model_of(kind, graph, layers=1), theirs(5, 3, **settings).double()
    conv.load_state_dict(model.layers[0].conv.state_dict())
    (sample,) = drawn(graph, Cluster(parts=1))
    x = rows_of(graph, sample.node_ids).requires_grad_()
    expected = conv(x, torch.from_numpy(sample.edge_index()))[: sample.num_seeds]
    found = model(sample, x)
    torch.testing.assert_close(found, expected, **CLOSE)
    slopes = [torch.autograd.grad(part.square().sum(), x)[0] for part in (found, expected)]
    torch.testing.assert_close(*slopes, **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_edges_that_were_not_drawn_do_not_count(graph, kind):
    model = model_of(kind, graph, layers=2)
    sample = drawn(graph, NeighborSampling([1, 1]), batch_size=8)[0]
    x = rows_of(graph, sample.node_ids)
    expected = dense.embed(kind, model, x, dense.matrix(sample))[-1]
    torch.testing.assert_close(model(sample, x), expected[: sample.num_seeds], **CLOSE)


@pytest.mark.parametrize("kind", KINDS)
def test_dropout_of_the_features_and_between_the_layers(graph, kind):
    model, seen = model_of(kind, graph, input_dropout=0.3, dropout=0.6, normalize=True), []
    (sample,) = drawn(graph, Cluster(parts=1))
    x = rows_of(graph, sample.node_ids)
    for part in (model.input_dropout, model.dropout):
        part.register_forward_hook(lambda one, given, out: seen.append((one.p, given[0], out)))
    model(sample, x)
    assert [p for p, _, _ in seen] == [0.3, 0.6, 0.6]
    torch.testing.assert_close(seen[0][1], x / x.abs().sum(dim=1, keepdim=True), **CLOSE)
    assert all((out == 0).sum() > (given == 0).sum() for _, given, out in seen)
    model.eval()
    assert torch.equal(model(sample, x), model(sample, x))
    if kind == "GAT":
        assert [layer.conv.dropout for layer in model.layers] == [0.6] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_one_node_or_none(graph, kind):
    """A batch norm has no statistics there, and takes those that it has."""
    model = model_of(kind, graph, norm="batch")
    for ids in ([7], []):
        nodes = torch.tensor(ids, dtype=torch.int32).numpy()
        starts, nothing = torch.zeros(len(ids) + 1, dtype=torch.int64).numpy(), nodes[:0]
        alone = {"indptr": starts, "indices": nothing, "bounds": torch.zeros(4).double().numpy()}
        sample = Sample(node_ids=nodes, num_seeds=len(ids), **alone)
        assert model(sample, rows_of(graph, nodes)).shape == (len(ids), 3)
    assert model.layers[0].norm.training
    assert not model.layers[0].norm.num_batches_tracked


def test_heads_that_do_not_divide_the_width(graph):
    with pytest.raises(InputError, match=r"got heads=4 and hidden=6\. Take hidden=4\."):
        model_of("GAT", graph, heads=4)
