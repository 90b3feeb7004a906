"""Draws: a sample is a function of its causes; the batches partition a split; errors are sentences."""

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from musegnn import Graph, InputError
from musegnn.sampling import Draws, FreeSampler, NeighborSampling, SeededSampler, ShadowKHop, UniformInduced
from musegnn.sampling.sample_store import StoredSamples
from musegnn.sampling.sequence import Samples
from strategies import graph_parts

NUM_NODES = 60
SAMPLERS = [
    pytest.param(ShadowKHop(fanouts=[3, 2]), id="shadow"),
    pytest.param(NeighborSampling(fanouts=[3, 2]), id="neighbor"),
    pytest.param(UniformInduced(p=0.4, num_samples=7), id="uniform"),
]


def a_graph(**changes):
    """A ring with chords; of ten nodes six are train, one each valid and test, two none."""
    nodes = np.arange(NUM_NODES)
    given = {
        "edge_index": np.array([[*nodes, *nodes], [*(nodes + 1) % NUM_NODES, *(nodes * nodes) % NUM_NODES]]),
        "num_nodes": NUM_NODES,
        "labels": nodes % 3,
        "split": np.resize([0, 0, 1, 0, -1, 0, 2, 0, -1, 0], NUM_NODES),
        "name": "ring",
    }
    return Graph.from_edges(**{**given, **changes})


@pytest.fixture(scope="module")
def graph():
    return a_graph()


def content(sample):
    """All bytes of a sample."""
    arrays = (sample.node_ids, sample.indptr, sample.indices, sample.bounds)
    return [(array.dtype.str, array.tobytes()) for array in arrays], sample.num_seeds


def contents(samples):
    return [content(sample) for sample in samples]


@dataclass(frozen=True)
class Returns(SeededSampler):
    """A user's own sampler: whatever this test wants it to return."""

    what: str

    def draw(self, graph, seeds, rng):
        return RETURNED[self.what]


RETURNED = {
    "floats": np.array([1.0, 2.0]),
    "bools": np.array([True, False]),
    "a list": [1, 2],
    "nothing": None,
    "a number": np.int64(3),
    "no dimension": np.array(3),
    "three rows": np.zeros((3, 4), int),
    "edges the other way": np.zeros((4, 2), int),
    "a cube": np.zeros((2, 2, 2), int),
    "objects": np.array([1, None]),
    "a negative id": np.array([0, -1]),
    "an id too large": np.array([0, NUM_NODES]),
    "a huge id": np.array([2**64 - 1, 0], dtype=np.uint64),
    "edges out of range": np.array([[0, 1], [1, NUM_NODES]]),
    "no ids": np.array([], dtype=np.int64),
    "no edges": np.empty((2, 0), dtype=np.int32),
    "repeats": np.array([5, 3, 5, 3, 3], dtype=np.uint8),
    "ascending repeats": np.array([3, 3, 5]),
    "loops and repeats": np.array([[7, 7, 8, 9, 8], [7, 8, 7, 8, 7]]),
    "seeds and others": np.array([59, 0, 31, 30], dtype=np.uint64),
    "rows of an array": np.arange(12)[::-2],
}


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_do_not_depend_on_what_was_asked_before(graph, sampler):
    def draws():
        return Draws(graph, sampler, batch_size=6, seed=5)

    expected = contents(draws())
    assert len(expected) == len(draws()) >= 6
    assert contents(reversed(draws())) == expected[::-1]
    assert [content(draws()[i]) for i in range(len(expected))] == expected
    one = draws()
    assert [content(one[i]) for i in (4, 4, 0, -1)] == [expected[i] for i in (4, 4, 0, -1)]
    assert contents(one[1:6:2]) == expected[1:6:2]
    assert contents(one[::-3]) == expected[::-3]
    # No two are equal.
    assert len({str(sample) for sample in expected}) == len(expected)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_samples_do_not_depend_on_threads(graph, sampler):
    expected = contents(Draws(graph, sampler, batch_size=6))
    shared = Draws(graph, sampler, batch_size=6)
    order = [*range(len(expected))] * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: content(shared[i]), order))
    assert found == [expected[i] for i in order]


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_graph_in_memory_and_the_same_graph_on_disk_give_the_same_samples(graph, tmp_path, sampler):
    graph.save(tmp_path / "graph")
    opened = Graph.open(tmp_path / "graph")
    assert opened.stored is not None
    for split in ("train", "test", "none"):
        assert contents(Draws(opened, sampler, split, batch_size=6)) == contents(
            Draws(graph, sampler, split, batch_size=6)
        )


def test_each_cause_changes_the_sample(graph):
    """The nodes of a free sampler depend on nothing but the random numbers, so they tell."""
    sampler = UniformInduced(p=0.5, num_samples=9)

    @dataclass(frozen=True)
    class Another(UniformInduced):
        """The same draws under another name."""

    causes = {
        "the base": Draws(graph, sampler, "train", seed=0),
        "seed": Draws(graph, sampler, "train", seed=1),
        "negative seed": Draws(graph, sampler, "train", seed=-1),
        "split": Draws(graph, sampler, "valid", seed=0),
        "ids": Draws(graph, sampler, np.flatnonzero(graph.split == 0), seed=0),
        "other ids": Draws(graph, sampler, [0, 1], seed=0),
        "setting": Draws(graph, replace(sampler, num_samples=10), "train", seed=0),
        "name": Draws(graph, Another(p=0.5, num_samples=9), "train", seed=0),
        "graph": Draws(a_graph(labels=np.zeros(NUM_NODES, int)), sampler, "train", seed=0),
    }
    nodes = {cause: tuple(sorted(draws[0].node_ids.tolist())) for cause, draws in causes.items()}
    nodes["index"] = tuple(sorted(causes["the base"][1].node_ids.tolist()))
    assert len(set(nodes.values())) == len(nodes)
    # What the batches hold is the same free sample.
    larger = Draws(graph, sampler, "train", seed=0, batch_size=3)
    assert tuple(sorted(larger[0].node_ids.tolist())) == nodes["the base"]


def test_the_order_of_the_seeds_changes_with_each_cause(graph):
    sampler = ShadowKHop(fanouts=[2])
    others = [
        Draws(graph, sampler, batch_size=36, seed=1),
        Draws(graph, ShadowKHop(fanouts=[3]), batch_size=36),
        Draws(a_graph(labels=np.zeros(NUM_NODES, int)), sampler, batch_size=36),
    ]
    orders = [Draws(graph, sampler, batch_size=36), *others]
    assert len({tuple(draws._order.tolist()) for draws in orders}) == 4
    assert len({tuple(draws.seeds(0).tolist()) for draws in orders}) == 1


@settings(max_examples=50)
@given(
    parts=graph_parts(),
    batch_size=st.integers(1, 50),
    seed=st.integers(0, 99),
    split=st.sampled_from(["train", "valid", "test", "none"]),
)
def test_the_batches_partition_the_split(parts, batch_size, seed, split):
    graph = parts.graph()
    code = {"train": 0, "valid": 1, "test": 2, "none": -1}[split]
    ids = np.flatnonzero(parts.split == code).tolist()
    draws = Draws(graph, ShadowKHop(fanouts=[2]), split, batch_size=batch_size, seed=seed)
    assert draws.ids.tolist() == ids
    assert draws.ids.dtype == graph.indices.dtype
    batches = [draws.seeds(i).tolist() for i in range(len(draws))]
    cause = (graph, "ShadowKHop", {"fanouts": [2]}, seed, split, "order")
    assert batches == (oracles.batches(ids, batch_size, oracles.sample_key(*cause)) if ids else [])
    assert sorted(sum(batches, [])) == ids
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert all(0 < len(batch) <= batch_size for batch in batches[-1:])
    assert all(batch == sorted(batch) for batch in batches)
    assert [sample.seeds.tolist() for sample in draws] == batches
    assert draws.ids.tolist() == ids


def test_the_batches_are_in_random_order(graph):
    ids = np.flatnonzero(graph.split == 0)
    draws = Draws(graph, ShadowKHop(fanouts=[2]), batch_size=12)
    assert [len(draws.seeds(i)) for i in range(3)] == [12, 12, 12]
    assert draws.seeds(0).tolist() != ids[:12].tolist()
    assert len(Draws(graph, ShadowKHop(fanouts=[2]), batch_size=35)) == 2
    assert len(Draws(graph, ShadowKHop(fanouts=[2]))) == 1


def test_ids_in_place_of_a_split_are_cut_as_they_are(graph):
    ids = np.arange(0, NUM_NODES, 4)
    draws = Draws(graph, ShadowKHop(fanouts=[2]), ids, batch_size=4)
    assert [draws.seeds(i).tolist() for i in range(len(draws))] == [
        ids[:4].tolist(),
        ids[4:8].tolist(),
        ids[8:12].tolist(),
        ids[12:].tolist(),
    ]
    assert [sample.seeds.tolist() for sample in draws] == [draws.seeds(i).tolist() for i in range(4)]
    assert draws.split.startswith("ids ")
    for same in (ids.tolist(), ids.astype(np.uint8), ids.astype(np.uint64)):
        assert contents(Draws(graph, ShadowKHop(fanouts=[2]), same, batch_size=4)) == contents(draws)


def test_no_ids_have_no_samples(graph):
    for nothing in (np.array([], dtype=np.int64), np.array([], dtype=np.int32)):
        draws = Draws(graph, ShadowKHop(fanouts=[2]), nothing)
        assert (len(draws), list(draws)) == (0, [])
        sample = Draws(graph, UniformInduced(p=1, num_samples=1), nothing)[0]
        assert (sample.num_nodes, sample.num_seeds) == (NUM_NODES, 0)


def test_an_empty_list_is_a_list_of_ids(graph):
    """NumPy takes it for floats."""
    assert len(Draws(graph, ShadowKHop(fanouts=[2]), [])) == 0


def test_a_split_without_nodes_has_no_samples():
    graph = a_graph(split=np.zeros(NUM_NODES, int))
    for split in ("valid", "test", "none"):
        draws = Draws(graph, ShadowKHop(fanouts=[2]), split)
        assert (len(draws), draws.ids.tolist()) == (0, [])
        with pytest.raises(IndexError, match="^sample 0 of 0$"):
            draws[0]


def test_a_graph_without_a_split_has_all_its_nodes_in_none():
    graph = a_graph(split=None)
    draws = Draws(graph, ShadowKHop(fanouts=[2]), "none", batch_size=25)
    assert draws.ids.tolist() == list(range(NUM_NODES))
    assert [sample.num_seeds for sample in draws] == [25, 25, 10]
    for split in ("train", "valid", "test"):
        with pytest.raises(InputError, match=r"^ring has no split\. Give it one .*: the split 'none'\.$"):
            len(Draws(graph, ShadowKHop(fanouts=[2]), split))


def test_the_nodes_of_no_split_are_those_of_none(graph):
    assert Draws(graph, ShadowKHop(fanouts=[2]), "none").ids.tolist() == [
        node for node in range(NUM_NODES) if node % 10 in (4, 8)
    ]


@pytest.mark.parametrize("split", ["training", "", "None", "Train"])
def test_an_unknown_split_is_refused(graph, split):
    message = f"There is no split {split!r}; allowed are train, valid, test, none."
    with pytest.raises(InputError, match=rf"^{re.escape(message)}( Did you mean \w+\?)?$"):
        Draws(graph, ShadowKHop(fanouts=[2]), split)


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([3, 3], "Seeds must ascend and be distinct: 3 is followed by 3. Pass np.unique(seeds)."),
        ([1, 5, 4, 9], "Seeds must ascend and be distinct: 5 is followed by 4. Pass np.unique(seeds)."),
        ([0, 60], "Seed 60 is no node of ring, which has 0 to 59."),
        ([-1, 3], "Seed -1 is no node of ring, which has 0 to 59."),
        ([5, 99, -7], "Seed 99 is no node of ring, which has 0 to 59."),
        ([0.0, 1.0], "Seeds must be a list of node ids, got float64[2]."),
        ([[0, 1]], "Seeds must be a list of node ids, got int64[1, 2]."),
        (np.ones(60, bool), "Seeds must be a list of node ids, got bool[60]."),
        (7, "Seeds must be a list of node ids, got int64[]."),
        (np.array([2**64 - 1], dtype=np.uint64), f"Seed {2**64 - 1} is no node of ring, which has 0 to 59."),
    ],
    ids=str,
)
def test_other_seeds_are_refused(graph, seeds, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Draws(graph, ShadowKHop(fanouts=[2]), seeds)


def test_the_last_node_may_be_a_seed(graph):
    assert Draws(graph, ShadowKHop(fanouts=[2]), [0, 59])[0].seeds.tolist() == [0, 59]


@pytest.mark.parametrize("batch_size", [0, -1, 2.5, True, None, "4"], ids=repr)
def test_other_batch_sizes_are_refused(graph, unchecked, batch_size):
    with pytest.raises(InputError, match=r"^batch_size must be a positive integer below 2\*\*63, got ") as it:
        Draws(graph, ShadowKHop(fanouts=[2]), batch_size=batch_size)
    assert str(it.value).endswith(f"got {batch_size!r}.")


@pytest.mark.parametrize("seed", [1.0, True, None, "4"], ids=repr)
def test_other_seeds_of_the_random_numbers_are_refused(graph, unchecked, seed):
    with pytest.raises(InputError, match=rf"^seed must be an integer, got {re.escape(repr(seed))}\.$"):
        Draws(graph, ShadowKHop(fanouts=[2]), seed=seed)


def test_numpys_integers_are_integers(graph, unchecked):
    ours = Draws(graph, ShadowKHop(fanouts=[2]), batch_size=np.int32(6), seed=np.uint8(5))
    assert contents(ours) == contents(Draws(graph, ShadowKHop(fanouts=[2]), batch_size=6, seed=5))


def test_a_samplers_settings_may_be_numpys_integers(graph, unchecked):
    free = Draws(graph, UniformInduced(p=0.4, num_samples=np.int64(7)))
    assert contents(free) == contents(Draws(graph, UniformInduced(p=0.4, num_samples=7)))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_numpys_integers_are_indices(graph, unchecked, sampler):
    """As they come from a permutation of the samples."""
    draws = Draws(graph, sampler, batch_size=6)
    assert content(draws[np.int64(3)]) == content(draws[3])


@pytest.mark.parametrize(
    "sampler", ["shadow", None, ShadowKHop, object()], ids=["name", "none", "class", "object"]
)
def test_what_is_no_sampler_is_refused(graph, unchecked, sampler):
    with pytest.raises(
        InputError, match=r"^A sampler is a SeededSampler or a FreeSampler, got .* Pass one such as"
    ):
        Draws(graph, sampler)


@pytest.mark.parametrize("index", [6, 7, -7, 10**9])
def test_samples_that_are_not_there(graph, index):
    with pytest.raises(IndexError, match=f"^sample {index} of 6$"):
        Draws(graph, ShadowKHop(fanouts=[2]), batch_size=6)[index]
    with pytest.raises(IndexError, match=f"^sample {index} of 6$"):
        Draws(graph, ShadowKHop(fanouts=[2]), batch_size=6).seeds(index)


def test_seeds_are_counted_from_the_end_as_samples_are(graph):
    draws = Draws(graph, ShadowKHop(fanouts=[2]), batch_size=7)
    for index in range(-len(draws), 0):
        assert draws.number(index) == index + len(draws)
        assert draws.seeds(index).tolist() == draws.seeds(index + len(draws)).tolist()
        assert draws.seeds(index).tolist() == draws[index].seeds.tolist()
    assert len({draws.seeds(index).tobytes() for index in range(-len(draws), 0)}) == len(draws)


def test_the_ids_are_not_held_but_their_number_is(graph):
    """8 bytes for each node of a large split, which nobody reads twice."""
    draws = Draws(graph, ShadowKHop(fanouts=[2]))
    first = draws.ids
    assert draws.ids is not first
    assert draws.num_ids == len(first)
    assert {name for name in vars(draws) if name in ("ids", "num_ids")} == {"num_ids"}
    first[:] = 0
    assert draws.ids.tolist() == np.flatnonzero(graph.split == 0).tolist()


def test_a_sequence_of_samples_says_how_one_is_got():
    assert issubclass(Draws, Samples)
    assert issubclass(StoredSamples, Samples)
    with pytest.raises(TypeError, match="abstract"):
        Samples()


@pytest.mark.parametrize(
    ("what", "got"),
    [
        ("floats", "float64[2]"),
        ("bools", "bool[2]"),
        ("a list", "[1, 2]"),
        ("nothing", "None"),
        ("a number", "np.int64(3)"),
        ("no dimension", "int64[]"),
        ("three rows", "int64[3, 4]"),
        ("edges the other way", "int64[4, 2]"),
        ("a cube", "int64[2, 2, 2]"),
        ("objects", "object[2]"),
    ],
)
def test_a_sampler_that_returns_no_ids_is_told_so(graph, unchecked, what, got):
    message = f"Returns.draw must return an array of integers, node ids or edges as (2, edges); got {got}."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Draws(graph, Returns(what))[0]


@pytest.mark.parametrize(
    ("what", "low", "high"),
    [
        ("a negative id", -1, 0),
        ("an id too large", 0, NUM_NODES),
        ("a huge id", 0, 2**64 - 1),
        ("edges out of range", 0, NUM_NODES),
    ],
)
def test_a_sampler_that_returns_nodes_out_of_range_is_told_so(graph, what, low, high):
    message = f"Returns.draw returned node ids from {low} to {high}; ring has 0 to 59."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Draws(graph, Returns(what))[0]


@pytest.mark.parametrize(
    ("what", "nodes", "edges"),
    [
        ("no ids", [], None),
        ("repeats", [3, 5], None),
        ("ascending repeats", [3, 5], None),
        ("seeds and others", [0, 30, 31, 59], None),
        ("rows of an array", range(1, 12, 2), None),
        ("no edges", [], set()),
        ("loops and repeats", [7, 8, 9], {(7, 8), (8, 7), (8, 9), (9, 8)}),
    ],
)
def test_nodes_may_come_in_any_order_and_the_seeds_are_added(graph, what, nodes, edges):
    """Seed 30 is among them or not; 0 and 59 lie at the ends."""
    for seeds in ([30], [0, 59], [2, 40]):
        sample = Draws(graph, Returns(what), seeds)[0]
        inside = {*nodes, *seeds}
        oracles.check_sample(
            sample, graph, seeds, inside, oracles.induced(graph, inside) if edges is None else edges
        )


class Windows(SeededSampler):
    """A user's own, as a plain class: the nodes next to the seeds by their number."""

    def __init__(self, width):
        self.width = width

    def draw(self, graph, seeds, rng):
        window = seeds[:, None] + np.arange(self.width)
        return (window % graph.num_nodes).reshape(-1)


@dataclass
class RandomHalf(SeededSampler):
    """A user's own, as a dataclass; not frozen."""

    share: float = 0.5

    def draw(self, graph, seeds, rng):
        return np.flatnonzero(rng.random(graph.num_nodes) < self.share)


@dataclass
class Parity(FreeSampler):
    """A user's own free sampler: even nodes, then odd ones."""

    num_samples: int = 2

    def draw(self, graph, index, rng):
        return np.arange(index, graph.num_nodes, 2)


def test_a_users_own_samplers_work(graph):
    windows = Draws(graph, Windows(3), [0, 58])[0]
    inside = [0, 1, 2, 58, 59]
    oracles.check_sample(windows, graph, [0, 58], inside, oracles.induced(graph, inside))
    halves = list(Draws(graph, RandomHalf(), batch_size=6))
    assert contents(halves) == contents(Draws(graph, RandomHalf(), batch_size=6))
    assert len({half.num_nodes for half in halves}) > 1
    assert contents(halves) != contents(Draws(graph, RandomHalf(share=0.51), batch_size=6))
    even, odd = Draws(graph, Parity(), "test")
    assert sorted([*even.node_ids, *odd.node_ids]) == list(range(NUM_NODES))
    assert even.seeds.tolist() == [6, 16, 26, 36, 46, 56]
    assert odd.num_seeds == 0


def test_a_plain_classs_settings_are_a_cause(graph):
    class Plain(SeededSampler):
        def __init__(self, unused):
            self.unused = unused

        def draw(self, graph, seeds, rng):
            return np.flatnonzero(rng.random(graph.num_nodes) < 0.5)

    same, other = (contents(Draws(graph, Plain(i), [0])) for i in (1, 2))
    assert same == contents(Draws(graph, Plain(1), [0]))
    assert same != other


@pytest.mark.parametrize("num_samples", [None, 0, 1.5], ids=repr)
def test_a_free_sampler_says_how_many(graph, unchecked, num_samples):
    class Silent(FreeSampler):
        def draw(self, graph, index, rng):
            return np.arange(3)

    sampler = Silent()
    if num_samples is not None:
        sampler.num_samples = num_samples
    message = f"num_samples of Silent must be a positive integer below 2**63, got {num_samples!r}."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Draws(graph, sampler)


@pytest.mark.parametrize("split", [[], [0], [59], [0, 59], [*range(60)]], ids=len)
def test_a_free_samplers_seeds_are_the_splits_nodes_inside(graph, split):
    ids = np.array(split, dtype=np.int64)
    for i, sample in enumerate(Draws(graph, Parity(), ids)):
        nodes = range(i, NUM_NODES, 2)
        seeds = set(split) & set(nodes)
        oracles.check_sample(sample, graph, seeds, nodes, oracles.induced(graph, nodes))


def test_a_free_sample_without_nodes(graph):
    sample = Draws(graph, UniformInduced(p=1e-12, num_samples=1))[0]
    oracles.check_sample(sample, graph, [], [], set())


def test_a_sampler_gets_the_seeds_ascending_and_a_generator_of_its_own(graph):
    seen = []

    class Looks(SeededSampler):
        def draw(self, graph, seeds, rng):
            seen.append((seeds.tolist(), rng.integers(1 << 62), type(rng)))
            return seeds

    list(Draws(graph, Looks(), batch_size=10))
    assert [len(seeds) for seeds, _, _ in seen] == [10, 10, 10, 6]
    assert all(seeds == sorted(seeds) for seeds, _, _ in seen)
    assert len({number for _, number, _ in seen}) == 4
    assert {kind for _, _, kind in seen} == {np.random.Generator}


def test_ids_of_a_large_graph_stay_wide(graph):
    """int64 ids, as above 2**31 nodes."""
    wide = replace(graph, indices=graph.indices.astype(np.int64))
    for sampler in (ShadowKHop(fanouts=[3, 2]), NeighborSampling(fanouts=[3, 2])):
        sample = Draws(wide, sampler, [5, 50])[0]
        assert Draws(wide, sampler, [5, 50]).split == Draws(graph, sampler, [5, 50]).split
        assert sample.node_ids.dtype == np.int64
        assert sample.indices.dtype == np.int32
        nodes = sample.node_ids.tolist()
        edges = oracles.induced(wide, nodes) if isinstance(sampler, ShadowKHop) else oracles.edges_of(sample)
        oracles.check_sample(sample, wide, [5, 50], nodes, edges)
