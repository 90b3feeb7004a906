"""The plan decides every byte: splits, shard sizes; the estimate draws a few samples and comes near."""

import numpy as np
import pytest

from musegnn import Draws, Graph, InputError, ShadowKHop, UniformInduced, sample
from musegnn.sampling import layout
from musegnn.sampling import plan as module
from musegnn.sampling.plan import Plan, estimate
from sample_stores import Logged, Overlapping, a_graph, refused


@pytest.fixture(scope="module")
def graph():
    return a_graph()


def a_plan(graph, sampler=None, splits=("train",), batch_size=10, seed=0):
    return Plan(graph, sampler or ShadowKHop([2]), splits, batch_size=batch_size, seed=seed)


def shards_of(plan):
    return [(name, split, list(indices)) for name, split, indices in plan.shards()]


def test_the_plan_is_a_function_of_its_arguments(graph):
    first, second = (a_plan(graph, splits=("train", "test")) for _ in range(2))
    assert first.attributes == second.attributes
    assert shards_of(first) == shards_of(second)


def test_every_sample_is_in_one_shard_in_its_place(graph):
    plan = a_plan(graph, splits=("valid", "train"), batch_size=3)
    for split in ("valid", "train"):
        shards = [(name, indices) for name, of, indices in shards_of(plan) if of == split]
        assert [name for name, _ in shards] == [f"{split}_shard_{i:06d}" for i in range(len(shards))]
        assert sum((indices for _, indices in shards), []) == list(range(len(plan.draws[split])))
        sizes = [len(indices) for _, indices in shards]
        assert set(sizes[:-1]) <= {plan.attributes["splits"][split]["shard_size"]}
        assert 0 < sizes[-1] <= plan.attributes["splits"][split]["shard_size"]
    assert plan.num_samples == len(plan.draws["train"]) + len(plan.draws["valid"])


def test_a_shard_holds_what_fits_and_no_more(graph, monkeypatch):
    monkeypatch.setattr(module, "MIN_SHARDS", 1)
    first = layout.size_of(Draws(graph, ShadowKHop([2]), "train", batch_size=10)[0])
    for shard_bytes, shard_size in ((1, 1), (first, 1), (3 * first - 1, 2), (3 * first, 3)):
        monkeypatch.setattr(module, "SHARD_BYTES", shard_bytes)
        assert a_plan(graph).attributes["splits"]["train"]["shard_size"] == shard_size


@pytest.mark.parametrize("min_shards", [1, 2, 5, 16, 1000])
def test_a_small_split_has_several_shards(graph, monkeypatch, min_shards):
    monkeypatch.setattr(module, "MIN_SHARDS", min_shards)
    plan = a_plan(graph)
    assert plan.attributes["splits"]["train"]["shard_size"] == -(-plan.num_samples // min_shards)
    assert len(shards_of(plan)) <= min_shards


def test_the_attributes_say_how_the_samples_are_drawn(graph, unchecked):
    sampler = ShadowKHop([4, 3])
    plan = a_plan(graph, sampler, splits=("valid",), batch_size=np.int64(7), seed=np.int32(5))
    assert plan.attributes == {
        "graph": graph.digest,
        "num_nodes": 600,
        "id_dtype": "<i4",
        "sampler": {"name": "ShadowKHop", "settings": {"fanouts": [4, 3]}},
        "contract": "seeded",
        "seed": 5,
        "batch_size": 7,
        "splits": {
            "valid": {
                "num_nodes": int((graph.split == 1).sum()),
                "num_samples": len(plan.draws["valid"]),
                "shard_size": -(-len(plan.draws["valid"]) // module.MIN_SHARDS),
            }
        },
    }
    assert type(plan.attributes["seed"]) is type(plan.attributes["batch_size"]) is int


def test_the_plan_says_whether_the_sampler_is_free(graph):
    assert a_plan(graph, Overlapping()).attributes["contract"] == "free"


def test_the_expected_bytes_are_those_of_the_first_samples(graph):
    plan = a_plan(graph, splits=("train", "valid"))
    assert plan.num_bytes == sum(
        len(draws) * layout.size_of(draws[0])
        for draws in (Draws(graph, ShadowKHop([2]), split, batch_size=10) for split in ("train", "valid"))
    )


def test_a_split_named_twice_is_drawn_once(graph):
    assert list(a_plan(graph, splits=("valid", "train", "valid")).draws) == ["valid", "train"]


def test_one_name_is_one_split(graph):
    assert a_plan(graph, splits="train").attributes == a_plan(graph, splits=("train",)).attributes


def test_no_split_is_refused(graph):
    with refused("splits is empty. Name at least one", InputError):
        a_plan(graph, splits=())


def test_an_unknown_split_is_refused(graph):
    with refused("no split 'training'; allowed are train, valid, test, none", InputError):
        a_plan(graph, splits=("train", "training"))


def test_a_split_without_nodes_is_refused(graph):
    with refused("random 0 has no nodes in the split 'none'. Leave it out", InputError):
        a_plan(graph, splits=("train", "none"))
    with refused("random 0 has no nodes in the split 'none'", InputError):
        a_plan(graph, UniformInduced(), splits=("none",))


def test_a_graph_without_a_split_is_drawn_from_whole():
    graph = Graph.from_edges(np.array([[0, 1], [1, 2]]), num_nodes=5)
    assert a_plan(graph, splits="none", batch_size=2).num_samples == 3
    with refused("has no split", InputError):
        a_plan(graph)


def test_an_estimate_draws_a_few_samples_from_everywhere(graph, tmp_path, monkeypatch):
    monkeypatch.setenv("MUSEGNN_TEST_LOG", str(tmp_path / "log"))
    plan = a_plan(graph, Logged(), splits=("train", "valid"), batch_size=5)
    (tmp_path / "log").unlink()
    estimates = estimate(plan, workers=1)
    assert len((tmp_path / "log").read_text().split()) == 8
    assert list(estimates) == ["train", "valid"]
    drawn = (tmp_path / "log").read_text().split()[:4]
    places = [(2 * i + 1) * len(plan.draws["train"]) // 8 for i in range(4)]
    assert drawn == [str(plan.draws["train"].seeds(place)[0]) for place in places]


@pytest.mark.parametrize("sampler", [ShadowKHop([3, 2]), UniformInduced(p=0.2, num_samples=40)])
def test_an_estimate_comes_near_the_truth(graph, tmp_path, sampler):
    plan = a_plan(graph, sampler, splits=("train", "valid"), batch_size=20)
    estimates = estimate(plan, workers=2)
    store = sample(graph, sampler, tmp_path / "s", batch_size=20, splits=("train", "valid"))
    for split, guess in estimates.items():
        samples = store[split]
        num_bytes = sum(spec.shape[0] for name, spec in store.stored.header.arrays.items()
                        if name.startswith(f"{split}_shard"))  # fmt: skip
        assert guess.num_samples == len(samples)
        assert guess.num_seeds == samples.num_split_nodes
        assert 0.7 < guess.num_bytes / num_bytes < 1.4
        assert 0.7 < guess.mean_nodes / samples.num_nodes.mean() < 1.4
        assert 0.7 < guess.mean_entries / samples.num_entries.mean() < 1.4
        assert guess.seconds > 0


def test_an_estimate_of_all_samples_is_exact(graph):
    plan = a_plan(graph, Overlapping(), splits="train")
    guess = estimate(plan, workers=1, tries=5)["train"]
    samples = list(plan.draws["train"])
    assert guess.num_bytes == sum(layout.size_of(sample) for sample in samples)
    assert guess.mean_nodes == np.mean([sample.num_nodes for sample in samples])
    assert guess.mean_entries == np.mean([sample.num_entries for sample in samples])


def test_an_estimate_counts_on_all_workers_but_not_on_a_faster_disk(graph, monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(clock)))
    plan = a_plan(graph, Overlapping(), splits="train")
    alone, together = (estimate(plan, workers=workers, tries=5)["train"].seconds for workers in (1, 4))
    assert alone == 1.0
    assert together == 0.25
    monkeypatch.setattr(module, "DISK_SPEED", 10.0)
    slow = estimate(plan, workers=4, tries=5)["train"]
    assert slow.seconds == slow.num_bytes / 10.0
