"""RSAGE is the sum of its docstring, SAGE where there are no relations, and PyG's R-GCN, forth and back."""

from dataclasses import replace

import dense_layers as dense
import numpy as np
import pytest
import torch
from dense_layers import CLOSE, PLAIN, TUNED, drawn, model_of, rows_of
from hypothesis import given
from hypothesis import strategies as st

from machine import one_thread as one_thread
from musegnn import Cluster, Graph, InputError, NeighborSampling, ShadowKHop, load_run, sample, train
from musegnn.baselines.relational import RSAGE, RelationalConv
from musegnn.graph.relation import codes_of
from musegnn.training.building import build_model
from musegnn.training.config import Config
from musegnn.training.forward import relations_of
from musegnn.unfolding.subgraph import as_sample
from musegnn.unfolding.ties import ties
from strategies import edge_lists

SIZES = [(3, 5), (5, 3), (4, 4)]
"""The mean first, the matrix first, and of equal widths the matrix."""


def typed(edges, relation, relations, num_nodes, dim=5):
    """A graph with edges of some relations, and A_r of each of them and its transpose, by the edges alone."""
    rng = np.random.default_rng(0)
    graph = Graph.from_edges(
        edges, num_nodes=num_nodes, relation=relation, relation_names=[f"r{r}" for r in range(relations)],
        features=rng.normal(size=(num_nodes, dim)).astype(np.float32),
        labels=rng.integers(0, 3, num_nodes), split=np.arange(num_nodes) % 3,
    )  # fmt: skip
    A = torch.zeros(relations, 2, num_nodes, num_nodes, dtype=torch.float64)
    for u, v, r in zip(*edges.tolist(), relation.tolist(), strict=True):
        if u != v:
            A[r, 0, u, v] = A[r, 1, v, u] = 1
    return graph, A.flatten(0, 1)


def some(seed=0, nodes=40, relations=3):
    """Three relations, the second without edges; a hub that every third edge leaves."""
    rng = np.random.default_rng(seed)
    edges, relation = rng.integers(0, nodes, (2, 4 * nodes)), rng.integers(0, relations, 4 * nodes)
    edges[0, ::3] = 7
    relation[relation == 1] = 0
    return typed(edges, relation, relations, nodes)


def made(graph, **settings):
    torch.manual_seed(0)
    return RSAGE(graph, 3, replace(PLAIN, **settings)).double().train()


def told(graph, one):
    """A sample as a loader hands it over."""
    return replace(one, relation=codes_of(graph, one.node_ids, one.indptr, one.indices))


def inside(A, one):
    """The matrices among the nodes of a sample, without edges that it does not have."""
    ids = np.array(one.node_ids)
    return A[:, ids][:, :, ids] * dense.matrix(one)


@given(edge_lists(max_nodes=9), st.integers(0, 2), st.sampled_from(SIZES))
def test_a_layer_by_its_docstring(edges, empty, sizes):
    """Also with relations that no edge has, hubs, edges of several relations, and nodes without neighbors."""
    relations = min(16, int(edges.relation.max(initial=0)) + 1 + empty)
    graph, A = typed(edges.index, edges.relation, relations, edges.num_nodes, dim=sizes[0])
    torch.manual_seed(0)
    conv = RelationalConv(*sizes, 2 * relations).double()
    x = rows_of(graph, np.arange(graph.num_nodes))
    ways = [way for tie in ties(as_sample(graph, graph.num_nodes), relations) for way in (tie, tie.back)]
    for has_gradient in (False, True):
        x.requires_grad_(has_gradient)
        found, expected = conv(x, ways), dense.convolve("RSAGE", conv, x, A, None)
        dense.check_equal(conv, found, expected)
    slopes = [torch.autograd.grad(part.square().sum(), x)[0] for part in (found, expected)]
    torch.testing.assert_close(*slopes, **CLOSE)


@pytest.mark.parametrize("sizes", SIZES)
def test_gradients_by_differences(sizes):
    graph, _ = some(nodes=8)
    conv = RelationalConv(*sizes, 6).double()
    ways = [way for tie in ties(as_sample(graph, 8), 3) for way in (tie, tie.back)]
    x = torch.randn(8, sizes[0], dtype=torch.float64, requires_grad=True)
    names, weights = zip(*conv.named_parameters(), strict=True)

    def layer(rows, *parts):
        return torch.func.functional_call(conv, dict(zip(names, parts, strict=True)), (rows, ways))

    assert torch.autograd.gradcheck(layer, (x, *weights), fast_mode=True)
    # Features have no gradient.
    assert torch.autograd.gradcheck(lambda *parts: layer(x.detach(), *parts), weights, fast_mode=True)


@pytest.mark.parametrize(
    "settings", [{}, TUNED, {"norm": "batch", "layers": 2}, {"layers": 1}, {"hidden": 2}]
)
@pytest.mark.parametrize("sampler", [ShadowKHop([3, 2]), NeighborSampling([2, 1]), Cluster(parts=1)])
def test_a_sample_by_the_dense_layers(sampler, settings):
    """Of neighbor samples, whatever edges were drawn."""
    graph, A = some()
    model, one = made(graph, **settings), told(graph, drawn(graph, sampler, batch_size=4)[0])
    x = rows_of(graph, one.node_ids)
    expected = dense.embed("RSAGE", model, x, inside(A, one))[-1]
    dense.check_equal(model, model(one, x), expected[: one.num_seeds])


@pytest.mark.parametrize("settings", [{}, TUNED])
def test_without_relations_it_is_sage(settings):
    pytest.importorskip("torch_geometric")
    graph = dense.small_graph()
    sage, model = model_of("SAGE", graph, **settings), made(graph, **settings)
    names = {"own.bias": "lin_l.bias", "own.weight": "lin_r.weight", "others.0.weight": "lin_l.weight"}
    theirs, own = sage.state_dict(), {}
    for name in model.state_dict():
        head, conv, tail = name.partition("conv.")
        own[name] = theirs[head + conv + names.get(tail, tail)]
    model.load_state_dict(own)
    assert relations_of(model) == 0
    one = drawn(graph, ShadowKHop([3, 2]), batch_size=4)[1]
    x = rows_of(graph, one.node_ids)
    torch.testing.assert_close(model(one, x), sage(one, x), **CLOSE)
    torch.testing.assert_close(
        model.float()(one, x.float()), sage.float()(one, x.float()), rtol=1e-6, atol=1e-6
    )


def test_the_sum_is_that_of_pygs_relational_convolution():
    """Relation and direction are type 2r or 2r + 1 of R-GCN; PyG's messages go from source to target."""
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, A = some()
    model = made(graph, layers=1)
    theirs, ours = pyg.RGCNConv(5, 3, num_relations=6, aggr="mean").double(), model.layers[0].conv
    with torch.no_grad():
        theirs.weight.copy_(torch.stack([other.weight.T for other in ours.others]))
        theirs.root.copy_(ours.own.weight.T)
        theirs.bias.copy_(ours.own.bias)
    kind, row, column = A.nonzero().T
    x = rows_of(graph, np.arange(40)).requires_grad_()
    expected = theirs(x, torch.stack([column, row]), kind)
    found = model(as_sample(graph, 40), x)
    torch.testing.assert_close(found, expected, **CLOSE)
    slopes = [torch.autograd.grad(part.square().sum(), x)[0] for part in (found, expected)]
    torch.testing.assert_close(*slopes, **CLOSE)


def test_a_direction_alone_is_one_relation():
    edges = np.array([[0, 1, 0], [1, 2, 2]])
    features = np.eye(3, dtype=np.float32)
    graph = Graph.from_edges(edges, num_nodes=3, features=features, keep_direction=True)
    model = made(graph, layers=1)
    assert relations_of(model) == 1
    own, (along, against) = model.layers[0].conv.own, model.layers[0].conv.others
    W, out, back = own.weight.T + own.bias, along.weight.T, against.weight.T
    expected = W + torch.stack([(out[1] + out[2]) / 2, out[2] + back[0], (back[0] + back[1]) / 2])
    torch.testing.assert_close(model(as_sample(graph, 3), rows_of(graph, np.arange(3))), expected, **CLOSE)


def test_half_precision_is_nearly_the_same():
    graph, _ = some()
    one = told(graph, drawn(graph, ShadowKHop([3, 2]), batch_size=4)[0])
    x, found = rows_of(graph, one.node_ids).float(), []
    for enabled in (False, True):
        model = made(graph, **TUNED).float()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            logits = model(one, x).float()
        logits.square().sum().backward()
        assert all(part.grad.isfinite().all() for part in model.parameters())
        found.append(logits.detach().softmax(1))
    torch.testing.assert_close(*found, rtol=0, atol=0.03)


@pytest.mark.parametrize("history", ["gas", "graphfm", "freshgnn"])
def test_histories_are_refused(history):
    with pytest.raises(InputError, match=f"history of RSAGE must be 'none'.*got '{history}'. Take .*SAGE"):
        made(some()[0], history=history)


def test_a_sample_that_tells_no_relations_is_refused():
    graph, _ = some()
    (one,) = drawn(graph, Cluster(parts=1))
    with pytest.raises(InputError, match="has 3 relations, but this subgraph does not tell them"):
        made(graph)(one, rows_of(graph, one.node_ids))


@pytest.mark.parametrize("online", [False, True])
def test_a_run_reads_relations_and_is_loaded_again(online, tmp_path):
    graph, A = some()
    config = Config().with_settings(
        {"architecture": "RSAGE", "hidden": 6, "layers": 2, "epochs": 2, "online": online, **TUNED}
        | {"sampler": "NeighborSampling", "fanouts": [2, 2], "batch_size": 5}
    )
    splits = {"batch_size": 5, "splits": ("train", "valid", "test")}
    store = sample(graph, config.sampling.build(), tmp_path / "samples", workers=1, **splits)
    run = train(graph, store, build_model(config, 5, 3, graph), tmp_path / "run", config=config)
    again = load_run(tmp_path / "run", graph=graph)
    assert again.evaluate("test")["test"].metrics["accuracy"] == run.test_accuracy
    hits, model = [], again.model.double().eval()
    for one in store["test"]:
        logits = dense.embed("RSAGE", model, rows_of(graph, one.node_ids), inside(A, one))[-1]
        hits += (logits[: one.num_seeds].argmax(1).numpy() == graph.labels[one.seeds]).tolist()
    assert np.mean(hits) == pytest.approx(run.test_accuracy)
