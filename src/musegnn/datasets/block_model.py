"""The arithmetic of the block model: where a node stands, and how many edges each level gives it.

`musegnn.datasets.synthetic` says what the model is, and draws from it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Float64, Int64

GRID = 64
"""Degrees per class that stand for all where a sum over pairs of nodes is estimated."""
FEATURE_SAMPLE = 1 << 14
"""Nodes on which the noise of the features is set: their accuracy is then known to 0.4 %."""


def class_shares(num_classes: int) -> Float64[np.ndarray, " classes"]:
    """Share of the nodes in each class: the first of 40 has six times the nodes of the last."""
    weights: np.ndarray = np.arange(3, num_classes + 3) ** -0.7
    shares: np.ndarray = weights / weights.sum()
    return shares


def solve_increasing(function: Callable[[float], float], value: float, low: float, high: float) -> float:
    """The x in [low, high] at which an increasing function has a value, or the nearer end; to 11 digits."""
    for _ in range(45):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if function(middle) < value else (low, middle)
    return math.sqrt(low * high)


class Shuffle:
    """x -> (multiplier x + shift) mod size, a one-to-one map of [0, size), for each of several sizes.

    Neighbors land about size * ratio apart. An irrational ratio spreads any run of x evenly, and independent
    ratios give unrelated orders.
    """

    def __init__(self, sizes: Int64[np.ndarray, " sizes"], ratio: float, rng: np.random.Generator) -> None:
        factors = [_coprime(int(size), ratio % 1) for size in sizes]
        self.sizes = sizes
        self.multiplier = np.array(factors)
        self.inverse = np.array([pow(f, -1, int(size)) for f, size in zip(factors, sizes, strict=True)])
        self.shift = rng.integers(sizes)

    # Products stay below 2**62: there are at most 2**31 nodes.
    def forward(self, x: Int64[np.ndarray, " n"], which: int | np.ndarray = 0) -> Int64[np.ndarray, " n"]:
        """Where x goes in the size number `which`, one for all or one for each x."""
        image: np.ndarray = (x * self.multiplier[which] + self.shift[which]) % self.sizes[which]
        return image

    def backward(self, x: Int64[np.ndarray, " n"], which: int | np.ndarray = 0) -> Int64[np.ndarray, " n"]:
        """What goes to x."""
        origin: np.ndarray = (x - self.shift[which]) * self.inverse[which] % self.sizes[which]
        return origin


def _coprime(size: int, ratio: float) -> int:
    factor = max(1, round(size * ratio))
    while math.gcd(factor, size) != 1:
        factor += 1
    return factor


class Layout:
    """Places 0, 1, ... in which classes, and communities inside them, are runs; ids are places, shuffled."""

    def __init__(
        self, num_nodes: int, num_classes: int, community_size: int, rng: np.random.Generator
    ) -> None:
        ends = np.rint(num_nodes * np.cumsum(class_shares(num_classes))).astype(np.int64)
        self.num_nodes = num_nodes
        self.sizes = np.diff(ends, prepend=0)
        self.first = ends - self.sizes
        self.num_communities = np.maximum(1, np.rint(self.sizes / community_size).astype(np.int64))
        self.others = self.sizes / self.num_communities - 1
        self.ids = Shuffle(np.array([num_nodes]), math.sqrt(2), rng)
        self.ranks = Shuffle(self.sizes, (math.sqrt(5) - 1) / 2, rng)

    def class_of(self, places: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Class at each place."""
        return np.searchsorted(self.first, places, side="right") - 1

    def bounds(self, label: int, first: int, last: int) -> Int64[np.ndarray, " bounds"]:
        """Where the communities number first, ..., last - 1 of a class begin in it, and where they end."""
        bounds: np.ndarray = np.arange(first, last + 1) * self.sizes[label] // self.num_communities[label]
        return bounds

    def community_of(self, node_ids: Int64[np.ndarray, " n"]) -> Int64[np.ndarray, " n"]:
        """Number of each node's community, counted through all classes."""
        places = self.ids.backward(node_ids)
        label = self.class_of(places)
        inside = ((places - self.first[label] + 1) * self.num_communities[label] - 1) // self.sizes[label]
        communities: np.ndarray = inside + (np.cumsum(self.num_communities) - self.num_communities)[label]
        return communities


@dataclass(frozen=True, kw_only=True, slots=True)
class PowerLaw:
    """Expected degrees mean * b q^(b - 1) at rank q in (0, 1]; the first q of the nodes hold q^b of them all.

    If every class followed it alike, no hub would be larger than its class allows. So the first nodes of the
    classes follow the law once more among themselves: `extra` is what each has beyond its part of q.
    """

    mean: float
    exponent: float
    sizes: Int64[np.ndarray, " classes"]

    @property
    def b(self) -> float:
        """Exponent of the cumulated degrees."""
        return 1 - 1 / (self.exponent - 1)

    @property
    def extra(self) -> Float64[np.ndarray, " classes"]:
        """As a share of the degrees of the class; of three or more, the third has the largest hub."""
        order = np.argsort(np.argsort((0.71 + math.sqrt(7) * np.arange(len(self.sizes))) % 1))
        factors = self.b * ((order + 0.5) / len(self.sizes)) ** (self.b - 1)
        return (factors - 1) * self.sizes**-self.b

    def degrees(self, label: int, ranks: Int64[np.ndarray, " n"]) -> Float64[np.ndarray, " n"]:
        """Of the nodes number 0, 1, ... of a class: the mean over each one's part of q."""
        size = self.sizes[label]
        shares = ((ranks + 1) / size) ** self.b - (ranks / size) ** self.b
        degrees: np.ndarray = self.mean * size * (shares + self.extra[label] * (ranks == 0))
        return degrees

    def draw(self, labels: Int64[np.ndarray, " n"], rng: np.random.Generator) -> Int64[np.ndarray, " n"]:
        """A node of each of these classes, in proportion to the degrees there."""
        extra = self.extra[labels]
        share = np.maximum(rng.random(len(labels)) * (1 + extra) - extra, 0)
        ranks: np.ndarray = (share ** (1 / self.b) * self.sizes[labels]).astype(np.int64)
        return ranks


class Crowd:
    """Some degrees that stand for all of each class or part, ascending, and how many nodes have each."""

    def __init__(self, law: PowerLaw) -> None:
        ranks = np.geomspace(1 / law.sizes, 1, GRID, axis=1)
        ranks = np.pad(ranks, ((0, 0), (1, 0)))[:, ::-1]
        self.counts: np.ndarray = -np.diff(ranks) * law.sizes[:, None]
        self.degrees: np.ndarray = -np.diff(ranks**law.b) * law.sizes[:, None] * law.mean / self.counts
        self.degrees[:, -1] += law.mean * law.sizes * law.extra

    def linked(self, rate: Float64[np.ndarray, " parts"]) -> Float64[np.ndarray, "parts grid grid"]:
        """1 - exp(-rate degree_i degree_j)."""
        scaled = rate[:, None] * self.degrees
        probability: np.ndarray = -np.expm1(-scaled[:, :, None] * self.degrees[:, None, :])
        return probability

    def distinct(
        self,
        draws: Float64[np.ndarray, " parts"],
        sources: Float64[np.ndarray, "parts grid"],
        linked: Float64[np.ndarray, "parts grid grid"] | float = 0.0,
    ) -> Float64[np.ndarray, " parts"]:
        """Expected number of linked or drawn pairs in each part, each counted once and loops not at all.

        sum over i < j of 1 - (1 - linked_ij) exp(-draws (out_i in_j + out_j in_i))

        where i is the source of a share out_i of the draws and the target of a share in_i.
        """
        out = draws[:, None] * sources / (sources * self.counts).sum(axis=1, keepdims=True)
        into = self.degrees / (self.degrees * self.counts).sum(axis=1, keepdims=True)
        rate = out[:, :, None] * into[:, None, :]
        hit = 1 - (1 - linked) * np.exp(-rate - rate.transpose(0, 2, 1))
        loops = np.einsum("kii,ki->k", hit, self.counts)
        pairs = np.einsum("kij,ki,kj->k", hit, self.counts, self.counts, optimize=True)
        expected: np.ndarray = (pairs - loops) / 2
        return expected


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """What the three levels contribute."""

    link_rate: float
    """k, times the number of other nodes in a community."""
    degrees: Float64[np.ndarray, "classes grid"]
    """Some degrees of each class, ascending, ..."""
    draws: Float64[np.ndarray, "classes grid"]
    """... and how many edges a node of that degree draws."""
    far_share: float
    """Share of these that go to the whole graph, not to the class."""
    num_edges: float
    """Edges in all, repeats included."""


def divide(law: PowerLaw, layout: Layout, *, tied: float, community_share: float) -> Levels:
    """Give the classes a share `tied` of the edges, and `community_share` of this to their communities.

    Communities get less where half their pairs would be linked, or where nodes would be left with less than
    one edge each to draw elsewhere; their classes get the rest.
    """
    num_edges = law.mean * layout.num_nodes / 2
    filled = float(layout.sizes @ layout.others) / 4
    near = min(community_share * tied, filled / num_edges, 1 - layout.num_nodes / num_edges)
    crowd = Crowd(law)

    def linked(rate: float) -> np.ndarray:
        """Of two nodes of a class; they are in one community in others / size of the cases."""
        together = layout.others / layout.sizes
        probability: np.ndarray = crowd.linked(rate / layout.others) * together[:, None, None]
        return probability

    def links(rate: float) -> np.ndarray:
        expected: np.ndarray = np.einsum("kij,kj->ki", linked(rate), crowd.counts)
        return expected

    rate = solve_increasing(lambda rate: (links(rate) * crowd.counts).sum(), 2 * near * num_edges, 1e-9, 1e3)
    # Others draw (1 - near) / 2 of its degree to a node. What is neither that nor linked, it draws itself.
    wanted = np.maximum((1 + near) / 2 * crowd.degrees - links(rate), 1e-9)
    draws = wanted
    for _ in range(3):
        far, close = _draws(law, layout, crowd, draws, linked(rate), tied)
        draws = _scale(wanted, crowd.counts, far + close)
    return Levels(
        link_rate=rate,
        degrees=crowd.degrees,
        draws=draws,
        far_share=far / (far + close),
        num_edges=near * num_edges + far + close,
    )


def _scale(wanted: np.ndarray, counts: np.ndarray, total: float) -> np.ndarray:
    """In proportion to what is wanted, but at least 1, and so many in all."""

    def drawn(scale: float) -> np.ndarray:
        draws: np.ndarray = np.maximum(1, scale * wanted)
        return draws

    return drawn(solve_increasing(lambda scale: (drawn(scale) * counts).sum(), total, 1e-3, 1e3))


def _draws(
    law: PowerLaw, layout: Layout, crowd: Crowd, draws: np.ndarray, linked: np.ndarray, tied: float
) -> tuple[float, float]:
    """How many edges to draw from the graph and from the classes, given how they are spread over degrees."""
    num_edges = law.mean * layout.num_nodes / 2
    whole = Crowd(replace(law, sizes=np.array([layout.num_nodes])))
    widest = int(crowd.degrees[:, -1].argmax())
    whole_sources = np.interp(whole.degrees, crowd.degrees[widest], draws[widest])
    targets = layout.sizes / layout.num_nodes
    sources = (draws * crowd.counts).sum(axis=1) / (draws * crowd.counts).sum()

    def apart(far: float) -> float:
        inside = crowd.distinct(far * sources * targets, draws)
        return float(whole.distinct(np.array([far]), whole_sources).sum() - inside.sum())

    def inside(close: float) -> float:
        return float(crowd.distinct(close * sources + far * sources * targets, draws, linked).sum())

    num_apart = (1 - tied) * float(1 - targets @ targets) * num_edges
    far = _reach(num_apart, apart)
    before = inside(0.0)
    return far, _reach(num_edges - num_apart - before, lambda close: inside(close) - before)


def _reach(wanted: float, found: Callable[[float], float]) -> float:
    """The number of draws of which `found(draws)` = wanted edges are new."""
    draws = max(0.0, wanted)
    for _ in range(8 if draws else 0):
        draws *= wanted / found(draws)
    return draws


def feature_noise(
    means: Float[np.ndarray, "classes dim"], accuracy: float, rng: np.random.Generator
) -> float:
    """Standard deviation of the noise at which the best classifier of mean + noise is right that often.

    The best is the argmax over c of <x, mean_c> - |mean_c|^2 / 2 + noise^2 log share_c, here on a sample.
    """
    shares = class_shares(len(means))
    labels = rng.choice(len(means), FEATURE_SAMPLE, p=shares)
    products = means @ means.T
    clean = (products - np.diag(products) / 2)[labels]
    random = rng.standard_normal((FEATURE_SAMPLE, means.shape[1]), dtype=np.float32) @ means.T

    def error(noise: float) -> float:
        best = (clean + noise * random + noise**2 * np.log(shares)).argmax(axis=1)
        return float((best != labels).mean())

    return solve_increasing(error, 1 - accuracy, 1e-3, 1e3)
