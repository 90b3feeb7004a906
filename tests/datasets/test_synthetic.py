import inspect
import math
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from musegnn.datasets.block_model import Crowd, PowerLaw, Shuffle, class_shares, feature_noise
from musegnn.datasets.synthetic import (
    BLOCK_ROWS,
    CHUNK_EDGES,
    DATASETS,
    PRESETS,
    BlockModel,
    Drawing,
    read,
    read_preset,
)
from musegnn.errors import InputError
from musegnn.graph import Graph, Topology

ORIGINALS = {
    "arxiv-shaped": (169_343, 1_166_243, 128, "float32", 40, (90_941, 29_799, 48_603)),
    "products-shaped": (2_449_029, 61_859_140, 100, "float32", 47, (196_615, 39_323, 2_213_091)),
    "papers100m-shaped": (111_059_956, 1_615_685_872, 128, "float16", 172, (1_207_179, 125_265, 214_338)),
}
"""Nodes, edges, features, their type, classes, split of the originals."""

NOTHING = Topology(np.zeros(1, np.int64), np.zeros(0, np.int32), lambda: np.zeros((0, 1), np.float32))


@lru_cache
def drawn(**options):
    return Graph.from_source(BlockModel(**options).source())


def undirected(graph):
    source = np.repeat(np.arange(graph.num_nodes), np.diff(graph.indptr))
    target = graph.indices.astype(np.int64)
    return source[source < target], target[source < target]


def homophily(graph):
    source, target = undirected(graph)
    return (graph.labels[source] == graph.labels[target]).mean()


def accuracy_of_class_means(graph):
    """Test accuracy of the nearest class mean, with prior; means and variance are of the train split."""
    features, train, test = graph.features.astype(np.float32), graph.split == 0, graph.split == 2
    classes = range(graph.num_classes)
    means = np.stack([features[train & (graph.labels == c)].mean(axis=0) for c in classes])
    variance = ((features[train] - means[graph.labels[train]]) ** 2).mean()
    prior = np.log(np.bincount(graph.labels[train]) / train.sum())
    scores = features[test] @ means.T - (means**2).sum(axis=1) / 2 + variance * prior
    return (scores.argmax(axis=1) == graph.labels[test]).mean()


def expected_degrees(drawing):
    """Of each node, by id."""
    layout = drawing.layout
    places = layout.ids.backward(np.arange(layout.num_nodes))
    labels = layout.class_of(places)
    degrees = np.empty(layout.num_nodes)
    for label in range(len(layout.sizes)):
        members = np.flatnonzero(labels == label)
        ranks = layout.ranks.forward(places[members] - layout.first[label], label)
        degrees[members] = drawing.law.degrees(label, ranks)
    return degrees


def test_a_seed_gives_one_graph_and_another_seed_another():
    model = BlockModel(num_nodes=2000, num_edges=14_000)
    digests = [Graph.from_source(replace(model, seed=seed).source()).digest for seed in (0, 0, 1)]
    assert digests[0] == digests[1] != digests[2]


def test_a_chunk_depends_on_nothing_but_the_model_and_its_number():
    model = BlockModel(num_nodes=5000, num_edges=35_000)
    drawing, other_drawing = Drawing(model), Drawing(model)
    in_order = [drawing.edge_chunk(number) for number in range(drawing.num_chunks)]
    with ThreadPoolExecutor(4) as pool:
        backwards = list(pool.map(other_drawing.edge_chunk, range(drawing.num_chunks - 1, -1, -1)))[::-1]
    assert len(in_order) == len(backwards) > 5
    for one, other in zip(in_order, backwards, strict=True):
        np.testing.assert_array_equal(one.source, other.source)
        np.testing.assert_array_equal(one.target, other.target)


def test_no_two_blocks_share_their_random_numbers():
    model = BlockModel(num_nodes=140_000, num_edges=140_000, num_features=4, homophily=0.2, label_noise=0.5)
    drawing = Drawing(model)
    blocks = [make() for make in drawing.features().blocks(NOTHING)]
    assert [len(block) for block in blocks] == [BLOCK_ROWS, BLOCK_ROWS, 140_000 - 2 * BLOCK_ROWS]
    assert abs(np.corrcoef(blocks[0].ravel(), blocks[1].ravel())[0, 1]) < 0.1

    classes = drawing.layout.class_of(drawing.layout.ids.backward(np.arange(model.num_nodes)))
    is_new = drawing.labels() != classes
    assert abs(np.corrcoef(is_new[:BLOCK_ROWS], is_new[BLOCK_ROWS : 2 * BLOCK_ROWS])[0, 1]) < 0.01


def test_edges_can_be_read_twice_and_in_any_order():
    source = BlockModel(num_nodes=2000, num_edges=14_000).source()
    backwards = replace(source, edges=lambda: list(source.edges())[::-1])
    assert Graph.from_source(source).digest == Graph.from_source(backwards).digest


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_edges": 10_000},
        {"num_edges": 25_000, "homophily": 0.2},
        {"num_edges": 300_000},
        {"num_nodes": 1000, "num_edges": 20_000},
        {"num_nodes": 1000, "num_edges": 7000, "degree_exponent": 2.5},
        {"degree_exponent": 2.5, "homophily": 0.95},
        {"num_classes": 40, "homophily": 0.655, "community_size": 100, "label_noise": 0.1},
        {"community_size": 3},
        {"community_share": 1.0, "homophily": 1.0},
        {"num_classes": 2, "homophily": 0.55, "community_share": 0.0},
    ],
    ids=str,
)
def test_the_number_of_edges_and_the_homophily_are_as_chosen(options):
    model = BlockModel(num_features=2, **options)
    graph = drawn(num_features=2, **options)
    assert graph.num_edges / 2 == pytest.approx(model.num_edges, rel=0.02)
    assert homophily(graph) == pytest.approx(model.homophily, abs=0.02)


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_homophily_holds_with_noisy_labels_over_seeds(noise):
    # One hub with a new label moves a graph of this size by 0.01.
    options = {"homophily": 0.5, "label_noise": noise, "num_features": 2}
    assert np.mean([homophily(drawn(seed=seed, **options)) for seed in range(4)]) == pytest.approx(
        0.5, abs=0.01
    )


def test_label_noise_is_the_share_of_labels_that_leave_their_class():
    model = BlockModel(label_noise=0.3, homophily=0.5, num_features=2)
    drawing = Drawing(model)
    classes = drawing.layout.class_of(drawing.layout.ids.backward(np.arange(model.num_nodes)))
    shares = class_shares(model.num_classes)
    moved = (drawing.labels() != classes).mean()
    assert moved == pytest.approx(0.3 * (1 - shares @ shares), abs=0.01)
    np.testing.assert_allclose(np.bincount(drawing.labels()) / model.num_nodes, shares, atol=0.01)


@pytest.mark.parametrize("accuracy", [0.35, 0.6, 0.9])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_features_alone_are_right_as_often_as_chosen(accuracy, dtype):
    graph = drawn(num_nodes=20_000, num_edges=40_000, feature_accuracy=accuracy, feature_dtype=dtype)
    assert graph.features.dtype == dtype
    assert graph.features.astype(np.float32).std() == pytest.approx(1, abs=0.03)
    assert accuracy_of_class_means(graph) == pytest.approx(accuracy, abs=0.025)


def test_degrees_follow_the_power_law():
    for exponent in (2.5, 3.5):
        graph = drawn(num_nodes=20_000, num_edges=140_000, degree_exponent=exponent, num_features=2)
        degrees = np.sort(np.diff(graph.indptr))[::-1]
        # Hill's estimator on the first 2 %.
        tail = 1 / np.log(degrees[:400] / degrees[400]).mean()
        assert tail == pytest.approx(exponent - 1, rel=0.12)
        b = 1 - 1 / (exponent - 1)
        assert degrees[:200].sum() / degrees.sum() == pytest.approx(0.01**b, abs=0.05)
        if exponent == 2.5:
            assert degrees[0] > 100 * degrees.mean()
            assert np.median(degrees) < 0.7 * degrees.mean()


def test_nodes_have_the_degrees_they_were_meant_to_have():
    """Mean degree of each tenth of the nodes, and of the hubs, which repeats would destroy first."""
    model = BlockModel(num_nodes=20_000, num_edges=140_000, num_features=2)
    wanted = expected_degrees(Drawing(model))
    found = np.diff(drawn(num_nodes=20_000, num_edges=140_000, num_features=2).indptr)
    order = np.argsort(wanted)
    for tenth in np.array_split(order, 10):
        assert found[tenth].mean() == pytest.approx(wanted[tenth].mean(), rel=0.1)
    assert found[order[-50:]].sum() == pytest.approx(wanted[order[-50:]].sum(), rel=0.1)


def test_communities_get_their_share_of_the_edges():
    options = {"num_nodes": 20_000, "num_edges": 140_000, "community_size": 25, "num_features": 2}
    for share in (0.2, 0.6):
        model = BlockModel(community_share=share, **options)
        communities = Drawing(model).layout.community_of(np.arange(model.num_nodes))
        sizes = np.bincount(communities)
        assert len(sizes) == 800
        assert 23 <= sizes.min() <= sizes.max() <= 27
        source, target = undirected(drawn(community_share=share, **options))
        inside = (communities[source] == communities[target]).mean()
        assert inside == pytest.approx(share * model.tied, abs=0.01)


def test_a_community_is_of_one_class():
    model = BlockModel(num_features=2)
    communities = Drawing(model).layout.community_of(np.arange(model.num_nodes))
    labels = drawn(num_features=2).labels
    assert len(np.unique(communities * model.num_classes + labels)) == len(np.unique(communities))


def test_ids_reveal_neither_community_nor_class_nor_degree():
    model = BlockModel(num_nodes=20_000, num_edges=140_000)
    drawing = Drawing(model)
    ids = np.arange(model.num_nodes)
    communities, labels = drawing.layout.community_of(ids), drawing.labels()
    assert (communities[1:] == communities[:-1]).mean() < 0.01
    shares = class_shares(model.num_classes)
    degrees = np.log(expected_degrees(drawing))
    for part in np.array_split(ids, 20):
        np.testing.assert_allclose(np.bincount(labels[part], minlength=10) / len(part), shares, atol=0.02)
        assert degrees[part].mean() == pytest.approx(degrees.mean(), abs=0.05)


def test_splits_are_exact_and_alike_in_class_and_degree():
    model = BlockModel(num_nodes=20_000, num_edges=140_000, train_share=0.3, valid_share=0.1, test_share=0.2)
    drawing = Drawing(model)
    split, degrees = drawing.split(), np.log(expected_degrees(drawing))
    assert np.bincount(split + 1).tolist() == [8000, 6000, 2000, 4000]
    for part in range(3):
        labels = np.bincount(drawing.labels()[split == part], minlength=10) / (split == part).sum()
        np.testing.assert_allclose(labels, class_shares(10), atol=0.02)
    # In one class, since the orders of several would blur a relation of split and degree.
    largest = np.flatnonzero(drawing.labels() == 0)
    for tenth in np.array_split(largest[np.argsort(degrees[largest])], 10):
        np.testing.assert_allclose(
            # Four standard deviations of a share of 350 nodes.
            np.bincount(split[tenth] + 1) / len(tenth),
            [0.4, 0.3, 0.1, 0.2],
            atol=0.1,
        )


def test_no_more_than_one_node_in_a_hundred_is_isolated_even_in_the_sparsest_graph():
    graph = drawn(num_nodes=10_000, num_edges=10_000, num_features=2)
    assert (np.diff(graph.indptr) == 0).mean() < 0.01


@pytest.mark.parametrize("name", ORIGINALS)
def test_presets_have_the_sizes_of_the_originals(name):
    num_nodes, num_edges, dim, dtype, num_classes, split = ORIGINALS[name]
    full = PRESETS[name]
    shares = (full.train_share, full.valid_share, full.test_share)
    assert (full.num_nodes, full.num_edges) == (num_nodes, num_edges)
    assert tuple(round(share * num_nodes) for share in shares) == split

    source = next(entry for entry in DATASETS if entry.name == name).read(None, scale=0.01)
    assert source.num_nodes == round(num_nodes / 100)
    assert source.num_edges >= round(num_edges / 100)
    counts = np.bincount(source.split() + 1, minlength=4)[1:]
    np.testing.assert_allclose(counts, np.array(split) / 100, atol=1)
    assert (source.features.dim, source.features.dtype) == (dim, dtype)
    labels = source.labels()
    assert source.num_classes == num_classes == labels.max() + 1
    assert (labels >= 0).sum() == (counts.sum() if name == "papers100m-shaped" else len(labels))


@pytest.mark.parametrize(
    ("name", "scale"), [("arxiv-shaped", 0.05), ("products-shaped", 0.005), ("papers100m-shaped", 0.0004)]
)
def test_a_small_preset_has_its_share_of_the_edges(name, scale):
    graph = Graph.from_source(read_preset(name, features=False, scale=scale))
    assert graph.name == name
    assert graph.features is None
    assert graph.num_edges / 2 == pytest.approx(scale * ORIGINALS[name][1], rel=0.02)


def test_nodes_and_edges_are_never_held_whole():
    model = BlockModel(num_nodes=200_000, num_edges=4_000_000, num_classes=2, label_all=False)
    source = model.source()
    assert source.labels().nbytes + source.split().nbytes == 3 * model.num_nodes
    tracemalloc.start()
    sizes = [len(make().source) for make in source.edges()]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(sizes) == pytest.approx(source.num_edges, rel=0.01)
    assert max(sizes) < 1.2 * CHUNK_EDGES
    assert peak < 110 * CHUNK_EDGES
    assert max(len(make()) for make in source.features.blocks(NOTHING)) <= 1 << 16


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_classes": 1}, "num_classes is 1; it must be a whole number from 2 to 1000"),
        (
            {"num_nodes": 99},
            "num_nodes is 99; it must be a whole number from 100 to 2147483648 with 10 classes",
        ),
        ({"num_classes": 100, "num_nodes": 700}, "num_nodes is 700; .* from 800 to"),
        ({"num_edges": 9999}, "num_edges is 9999; .* from 10000 to 2500000 with num_nodes=10000"),
        ({"num_edges": 2_500_001}, "num_edges is 2500001"),
        ({"num_features": 0}, "num_features is 0; .* from 1 to 65536"),
        ({"community_size": 2}, "community_size is 2; .* from 3 to 500"),
        ({"community_share": 1.1}, "community_share is 1.1; it must be a number from 0.0 to 1.0"),
        ({"label_noise": -0.1}, "label_noise is -0.1; .* from 0.0 to 0.9"),
        ({"degree_exponent": 2.0}, "degree_exponent is 2.0; .* from 2.5 to 10.0"),
        ({"homophily": 0.1}, r"homophily is 0.1; .* from 0.1106 to 1.0 with 10 classes and label_noise=0.0"),
        ({"homophily": 0.7, "label_noise": 0.3}, r"homophily is 0.7; .* from 0.1106 to 0.5463 with .*=0.3"),
        ({"homophily": float("nan")}, "homophily is nan"),
        ({"feature_accuracy": 0.1}, "feature_accuracy is 0.1; .* from 0.1706 to 1.0 with 10 classes"),
        ({"train_share": 1.2}, "train_share is 1.2; .* from 0.0 to 1.0"),
        ({"valid_share": -1.0}, "valid_share is -1.0"),
        ({"test_share": 0.5}, "train_share, valid_share and test_share add up to 1.2; at most 1 is allowed"),
        ({"seed": -1}, "seed is -1; .* from 0 to"),
        ({"feature_dtype": "float64"}, "feature_dtype is 'float64'; pass 'float16' or 'float32'"),
        (
            {"num_nodes": 1000, "num_edges": 20_000, "num_classes": 40},
            "A node would have 27.6 neighbors in its class; the smallest class has room for 9.3",
        ),
    ],
    ids=str,
)
def test_a_model_that_cannot_be_drawn_is_refused_in_one_line(options, message):
    with pytest.raises(InputError, match=message) as error:
        BlockModel(**options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "value", "kind"), [("seed", 1.5, "a whole number"), ("homophily", "x", "a number")]
)
def test_a_value_of_another_type_is_refused_in_one_line(name, value, kind):
    # Made by hand: in tests, the constructor's types are checked before ours.
    model = object.__new__(BlockModel)
    for field in fields(BlockModel):
        object.__setattr__(model, field.name, value if field.name == name else field.default)
    with pytest.raises(InputError, match=f"{name} is {value!r}; it must be {kind} from"):
        model.__post_init__()


def test_bounds_named_in_a_message_are_allowed():
    assert BlockModel(homophily=0.1106, label_noise=0.3).tied == pytest.approx(0, abs=1e-3)
    assert BlockModel(homophily=0.5463, label_noise=0.3).tied == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("scale", [0.0, -1.0, 1.5, float("nan")])
def test_a_scale_outside_0_to_1_is_refused(scale):
    with pytest.raises(InputError, match=r"scale is .*; it must lie in \(0, 1\]"):
        read_preset("arxiv-shaped", scale=scale)


def test_a_scale_that_leaves_too_few_nodes_is_refused_with_the_reason():
    message = "arxiv-shaped cannot be drawn with scale=0.001 and seed=0. num_nodes is 169; .* from 320"
    with pytest.raises(InputError, match=message) as error:
        read_preset("arxiv-shaped", scale=0.001)
    assert "\n" not in str(error.value)


def test_an_unknown_option_is_refused_with_those_there_are():
    with pytest.raises(InputError, match="synthetic has no option 'nodes'. Allowed: num_nodes, num_edges, "):
        read(nodes=1000)


def test_the_catalog_has_the_model_and_the_presets():
    assert [entry.name for entry in DATASETS] == ["synthetic", *ORIGINALS]
    assert all(entry.raw is None for entry in DATASETS)
    source = DATASETS[0].read(None, num_nodes=1000, features=False, seed=3)
    assert source.features is None
    assert source.provenance["options"].items() >= {"num_nodes": 1000, "num_edges": 7000, "seed": 3}.items()
    assert set(inspect.signature(DATASETS[1].read).parameters) == {"root", "features", "scale", "seed"}


def test_the_whole_model_is_in_the_provenance():
    source = BlockModel().source("mine")
    assert source.name == source.provenance["source"] == "mine"
    assert set(source.provenance["options"]) == {"features", *(field.name for field in fields(BlockModel))}


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=4), st.floats(0, 3), st.integers(0, 2**32))
def test_a_shuffle_is_one_to_one_and_can_be_undone(sizes, ratio, seed):
    shuffle = Shuffle(np.array(sizes), ratio, np.random.default_rng(seed))
    for which, size in enumerate(sizes):
        image = shuffle.forward(np.arange(size), which)
        assert np.array_equal(np.sort(image), np.arange(size))
        assert np.array_equal(shuffle.backward(image, which), np.arange(size))


def test_a_draw_hits_each_node_in_proportion_to_its_degree():
    law = PowerLaw(mean=10.0, exponent=2.7, sizes=np.array([50, 80, 20]))
    labels = np.full(200_000, 1)
    counts = np.bincount(law.draw(labels, np.random.default_rng(0)), minlength=80)
    degrees = law.degrees(1, np.arange(80))
    expected = degrees / degrees.sum() * len(labels)
    assert len(counts) == 80
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("draws", [500.0, 20_000.0])
def test_the_expected_number_of_different_pairs_is_that_of_a_sum_over_all_pairs(draws):
    law = PowerLaw(mean=10.0, exponent=2.7, sizes=np.array([300, 700]))
    degrees = [law.degrees(label, np.arange(size)) for label, size in enumerate(law.sizes)]
    exact = []
    for degree in degrees:
        into, out = degree / degree.sum(), degree**1.2 / (degree**1.2).sum()
        rate = draws * np.outer(out, into)
        linked = 1 - np.exp(-1e-3 * np.outer(degree, degree))
        hit = 1 - (1 - linked) * np.exp(-rate - rate.T)
        exact.append(np.triu(hit, 1).sum())
    crowd = Crowd(law)
    found = crowd.distinct(np.full(2, draws), crowd.degrees**1.2, crowd.linked(np.full(2, 1e-3)))
    np.testing.assert_allclose(found, exact, rtol=0.005)


@pytest.mark.parametrize("accuracy", [0.56, 0.7, 0.95])
def test_the_noise_of_features_is_that_of_the_closed_form_for_two_classes(accuracy):
    """Means a distance 2 apart: the best threshold lies noise^2 log(share_0 / share_1) / 2 off the middle."""
    noise = feature_noise(np.array([[0.0], [2.0]], np.float32), accuracy, np.random.default_rng(0))
    shares = class_shares(2)
    shift = noise * np.log(shares[0] / shares[1]) / 2
    below = [(1 + math.erf(x / math.sqrt(2))) / 2 for x in (1 / noise + shift, 1 / noise - shift)]
    assert shares @ below == pytest.approx(accuracy, abs=0.01)


@pytest.mark.parametrize("accuracy", [0.1, 0.4])
def test_the_best_classifier_is_as_good_on_other_nodes(accuracy):
    """log P(class | x) = -|x - mean|^2 / (2 noise^2) + log share, up to a constant."""
    rng = np.random.default_rng(1)
    means, shares = rng.standard_normal((40, 32)).astype(np.float32), class_shares(40)
    noise = feature_noise(means, accuracy, rng)
    labels = rng.choice(40, 20_000, p=shares)
    rows = means[labels] + noise * rng.standard_normal((20_000, 32))
    distances = np.stack([((rows - mean) ** 2).sum(axis=1) for mean in means], axis=1)
    best = (np.log(shares) - distances / (2 * noise**2)).argmax(axis=1)
    assert (best == labels).mean() == pytest.approx(accuracy, abs=0.008)
