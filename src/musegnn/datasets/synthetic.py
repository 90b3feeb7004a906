"""Graphs drawn from a degree-corrected block model, of any size and in the shapes of well-known ones.

A node has a class, a small community inside it, and a rank q in (0, 1] in its class that sets its degree:

    degree(q) = mean degree * b q^(b - 1),    b = 1 - 1 / (degree_exponent - 1)

Its edges come from three levels:

    community   two of its nodes are linked with probability 1 - exp(-k degree_i degree_j)
    class       i draws j from its class, in proportion to degree_j
    graph       i draws j from all nodes, in proportion to degree_j

Two nodes of a community are linked at most once, so a hub fills its community and has the rest of its degree
from the other levels. There some pairs are drawn twice; as many more are drawn, so that `num_edges` different
edges remain, to within 2 %. Features are the mean of the label's class plus Gaussian noise.

Every chunk is a function of the model and the chunk's number. Where a node stands is computed from its id, so
labels and split, 3 bytes per node, are all that is held beside one chunk of edges (0.1 GB).
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int8, Int16, Int64

from musegnn.datasets.base import Dataset
from musegnn.datasets.block_model import Layout, PowerLaw, class_shares, divide, feature_noise
from musegnn.errors import InputError
from musegnn.graph import EdgeChunk, FeatureSource, GraphSource, Topology

BLOCK_ROWS = 1 << 16
"""Nodes per block of labels, split and features."""
CHUNK_EDGES = 1 << 20
"""Edges per chunk, about."""
STREAMS = ("layout", "edges", "labels", "means", "features", "split")
"""What random numbers are drawn for, each independent of the others."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockModel:
    """What to draw; equal models give equal graphs, as long as NumPy's generators stay as they are."""

    num_nodes: int = 10_000
    """Nodes."""
    num_edges: int = 70_000
    """Undirected edges without repeats, met to within 2 %."""
    num_classes: int = 10
    """Classes, mildly skewed in size."""
    num_features: int = 64
    """Columns of the features."""
    feature_dtype: str = "float32"
    """How features are stored: float16 or float32."""
    community_size: int = 40
    """Nodes of a community, about."""
    community_share: float = 0.6
    """Share of the edges of classes that stay in the community; less where they would fill half of it."""
    homophily: float = 0.7
    """Share of the edges whose ends have the same label, chance included."""
    feature_accuracy: float = 0.6
    """How often the best classifier that sees only a node's features is right."""
    label_noise: float = 0.0
    """Share of the nodes whose label is drawn anew; homophily and features go by the labels after that."""
    degree_exponent: float = 2.8
    """The number of nodes of degree d falls as d^-exponent."""
    train_share: float = 0.5
    """Share of the nodes that is for training."""
    valid_share: float = 0.2
    """Share of the nodes that is for validation."""
    test_share: float = 0.3
    """Share of the nodes that is for testing; what is left is in no split."""
    label_all: bool = True
    """False leaves nodes in no split unlabeled."""
    seed: int = 0
    """Another seed gives another graph of the same kind."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def tied(self) -> float:
        """Share of the edges that classes get.

        homophily = chance + tied (1 - label_noise)^2 (1 - chance),    chance = sum of squared class shares
        """
        chance = float(class_shares(self.num_classes) @ class_shares(self.num_classes))
        return (self.homophily - chance) / ((1 - self.label_noise) ** 2 * (1 - chance))

    def source(self, name: str = "synthetic", *, features: bool = True) -> GraphSource:
        """The graph, to be drawn chunk by chunk."""
        drawing = Drawing(self)
        split = cache(drawing.split)
        return GraphSource(
            name=name,
            edges=lambda: (partial(drawing.edge_chunk, i) for i in range(drawing.num_chunks)),
            num_nodes=self.num_nodes,
            num_edges=round(drawing.levels.num_edges),
            features=drawing.features() if features else None,
            labels=lambda: drawing.labels(None if self.label_all else split() >= 0),
            split=split,
            num_classes=self.num_classes,
            provenance={"source": name, "options": {"features": features, **asdict(self)}},
        )


class Drawing:
    """Draws the parts of one model's graph."""

    def __init__(self, model: BlockModel) -> None:
        self.model = model
        self.layout = Layout(model.num_nodes, model.num_classes, model.community_size, self._rng("layout"))
        mean = 2 * model.num_edges / model.num_nodes
        self.law = PowerLaw(mean=mean, exponent=model.degree_exponent, sizes=self.layout.sizes)
        self.levels = divide(self.law, self.layout, tied=model.tied, community_share=model.community_share)
        # A pair that is tried for a link takes a quarter of the memory of an edge.
        per_node = max(model.num_edges / model.num_nodes, model.community_size / 8)
        self.chunk_communities = max(1, int(CHUNK_EDGES / (per_node * model.community_size)))
        self.chunk_ends = np.cumsum(-(-self.layout.num_communities // self.chunk_communities))

    @property
    def num_chunks(self) -> int:
        """Number of chunks of edges."""
        return int(self.chunk_ends[-1])

    def edge_chunk(self, number: int) -> EdgeChunk:
        """The edges that start in some communities of one class."""
        rng = self._rng("edges", number)
        layout = self.layout
        label = int(np.searchsorted(self.chunk_ends, number, side="right"))
        number_in_class = number - (int(self.chunk_ends[label - 1]) if label else 0)
        first = number_in_class * self.chunk_communities
        last = min(first + self.chunk_communities, int(layout.num_communities[label]))
        bounds = layout.bounds(label, first, last)
        ranks = layout.ranks.forward(np.arange(bounds[0], bounds[-1]), label)
        degrees = self.law.degrees(label, ranks)

        one, other = self._link(label, bounds, degrees, rng)
        source, target = self._draw(label, degrees, rng)
        start = layout.first[label]
        sources = np.concatenate([start + one, start + bounds[0] + source])
        targets = np.concatenate([start + other, target])
        return EdgeChunk(layout.ids.forward(sources), layout.ids.forward(targets))

    def _link(
        self, label: int, bounds: np.ndarray, degrees: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Links inside communities: the places of both ends in their class."""
        sizes = np.diff(bounds)
        column = np.arange(sizes.max())
        at = np.minimum(bounds[:-1, None] - bounds[0] + column, len(degrees) - 1)
        # A community one node smaller than the largest is filled up with degree 0, which has no links.
        table = np.where(column < sizes[:, None], degrees[at], 0).astype(np.float32)
        i, j = np.triu_indices(len(column), 1)
        rate = np.float32(self.levels.link_rate / self.layout.others[label]) * table[:, i] * table[:, j]
        # 1 - exp(-rate) is the probability that an exponential variable is below the rate.
        which, pair = np.nonzero(rng.standard_exponential(rate.shape, dtype=np.float32) < rate)
        return bounds[which] + i[pair], bounds[which] + j[pair]

    def _draw(
        self, label: int, degrees: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Edges from class and graph: number of the source in the chunk, place of the target."""
        layout, levels = self.layout, self.levels
        expected = np.interp(degrees, levels.degrees[label], levels.draws[label])
        source = np.repeat(np.arange(len(degrees)), (expected + rng.random(len(degrees))).astype(np.int64))
        labels = np.full(len(source), label)
        is_far = rng.random(len(source)) < levels.far_share
        labels[is_far] = layout.class_of(rng.integers(layout.num_nodes, size=int(is_far.sum())))
        ranks = self.law.draw(labels, rng)
        return source, layout.first[labels] + layout.ranks.backward(ranks, labels)

    def split(self) -> Int8[np.ndarray, " nodes"]:
        """0 train, 1 valid, 2 test, -1 none: so many nodes of each, in random order."""
        model = self.model
        shares = np.array([model.train_share, model.valid_share, model.test_share])
        ends = np.rint(np.cumsum(shares) * model.num_nodes).astype(np.int64)
        split = np.full(model.num_nodes, -1, dtype=np.int8)
        for part, (start, end) in enumerate(itertools.pairwise([0, *ends])):
            split[start:end] = part
        self._rng("split").shuffle(split)
        return split

    def labels(self, known: np.ndarray | None = None) -> Int16[np.ndarray, " nodes"]:
        """Labels, or -1 where they are not known."""
        labels = self._whole(np.int16, self._labels)
        if known is not None:
            labels[~known] = -1
        return labels

    def features(self) -> FeatureSource:
        """Mean of the label's class + noise, scaled to variance 1; unlabeled nodes have it, too."""
        model = self.model
        return FeatureSource(dim=model.num_features, dtype=model.feature_dtype, blocks=self._feature_blocks)

    def _feature_blocks(self, topology: Topology) -> Iterator[Callable[[], np.ndarray]]:
        model, rng = self.model, self._rng("means")
        means = rng.standard_normal((model.num_classes, model.num_features), dtype=np.float32)
        noise = np.float32(feature_noise(means, model.feature_accuracy, rng))
        return (partial(self._feature_block, means, noise, number) for number in range(self._num_blocks))

    def _feature_block(
        self, means: Float[np.ndarray, "classes dim"], noise: np.float32, number: int
    ) -> Float[np.ndarray, "rows dim"]:
        rows: np.ndarray = means[self._labels(number)]
        rows += noise * self._rng("features", number).standard_normal(rows.shape, dtype=np.float32)
        rows /= np.sqrt(1 + noise**2)
        return rows.astype(self.model.feature_dtype)

    def _labels(self, number: int) -> Int16[np.ndarray, " rows"]:
        rng = self._rng("labels", number)
        labels = self.layout.class_of(self._places(number)).astype(np.int16)
        is_new = rng.random(len(labels)) < self.model.label_noise
        # The class of a random place is a class in proportion to its size.
        labels[is_new] = self.layout.class_of(rng.integers(self.model.num_nodes, size=int(is_new.sum())))
        return labels

    @property
    def _num_blocks(self) -> int:
        return -(-self.model.num_nodes // BLOCK_ROWS)

    def _places(self, number: int) -> Int64[np.ndarray, " rows"]:
        first = number * BLOCK_ROWS
        return self.layout.ids.backward(np.arange(first, min(first + BLOCK_ROWS, self.model.num_nodes)))

    def _whole(self, dtype: type[np.generic], block: Callable[[int], np.ndarray]) -> np.ndarray:
        result = np.empty(self.model.num_nodes, dtype)
        for number in range(self._num_blocks):
            result[number * BLOCK_ROWS : (number + 1) * BLOCK_ROWS] = block(number)
        return result

    def _rng(self, stream: str, number: int = 0) -> np.random.Generator:
        key = (STREAMS.index(stream), number)
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence(self.model.seed, spawn_key=key)))


def _check(model: BlockModel) -> None:
    """Refuse what is out of range, or does not go together."""
    _in_range(model, "num_classes", 2, 1000)
    shares = class_shares(model.num_classes)
    chance = float(shares @ shares)
    with_classes, with_nodes = f" with {model.num_classes} classes", f" with num_nodes={model.num_nodes}"
    _in_range(model, "num_nodes", max(100, 8 * model.num_classes), 1 << 31, with_classes)
    _in_range(model, "num_edges", model.num_nodes, model.num_nodes**2 // 40, with_nodes)
    for name, low, high in (
        ("num_features", 1, 1 << 16),
        ("community_size", 3, 500),
        ("community_share", 0.0, 1.0),
        ("label_noise", 0.0, 0.9),
        ("degree_exponent", 2.5, 10.0),
        ("train_share", 0.0, 1.0),
        ("valid_share", 0.0, 1.0),
        ("test_share", 0.0, 1.0),
        ("seed", 0, (1 << 63) - 1),
    ):
        _in_range(model, name, low, high)
    most = chance + (1 - model.label_noise) ** 2 * (1 - chance)
    _in_range(model, "homophily", chance, most, f"{with_classes} and label_noise={model.label_noise}")
    _in_range(model, "feature_accuracy", float(shares[0]), 1.0, with_classes)
    if model.feature_dtype not in ("float16", "float32"):
        raise InputError(f"feature_dtype is {model.feature_dtype!r}; pass 'float16' or 'float32'.")
    total = model.train_share + model.valid_share + model.test_share
    if total > 1 + 1e-9:
        raise InputError(
            f"train_share, valid_share and test_share add up to {total:.4g}; at most 1 is allowed. Lower one."
        )
    inside = 2 * model.num_edges / model.num_nodes * model.tied
    allowed = 0.75 * model.num_nodes * float(shares[-1])
    if inside > allowed:
        raise InputError(
            f"A node would have {inside:.1f} neighbors in its class; the smallest class has room for "
            f"{allowed:.1f}. Lower num_edges, num_classes or homophily, or pass more nodes."
        )


def _in_range(model: BlockModel, name: str, low: float, high: float, why: str = "") -> None:
    value, is_whole = getattr(model, name), isinstance(high, int)
    if not is_whole:
        # Rounded inwards, so that the bounds in the message are allowed themselves.
        low, high = math.ceil(low * 1e4) / 1e4, math.floor(high * 1e4) / 1e4
    if not isinstance(value, Integral if is_whole else Real) or not low <= float(value) <= high:
        kind = "a whole number" if is_whole else "a number"
        raise InputError(
            f"{name} is {value!r}; it must be {kind} from {low} to {high}{why}. Pass such a one."
        )


PRESETS = {
    "arxiv-shaped": BlockModel(
        num_nodes=169_343,
        num_edges=1_166_243,
        num_classes=40,
        num_features=128,
        community_share=0.5,
        homophily=0.655,
        label_noise=0.1,
        feature_accuracy=0.55,
        degree_exponent=2.6,
        train_share=90_941 / 169_343,
        valid_share=29_799 / 169_343,
        test_share=48_603 / 169_343,
    ),
    "products-shaped": BlockModel(
        num_nodes=2_449_029,
        num_edges=61_859_140,
        num_classes=47,
        num_features=100,
        community_size=80,
        homophily=0.81,
        label_noise=0.05,
        feature_accuracy=0.61,
        degree_exponent=3.4,
        train_share=196_615 / 2_449_029,
        valid_share=39_323 / 2_449_029,
        test_share=2_213_091 / 2_449_029,
    ),
    "papers100m-shaped": BlockModel(
        num_nodes=111_059_956,
        num_edges=1_615_685_872,
        num_classes=172,
        num_features=128,
        feature_dtype="float16",
        community_size=60,
        homophily=0.6,
        label_noise=0.1,
        feature_accuracy=0.48,
        degree_exponent=3.5,
        train_share=1_207_179 / 111_059_956,
        valid_share=125_265 / 111_059_956,
        test_share=214_338 / 111_059_956,
        label_all=False,
    ),
}
"""Sizes and splits of the originals; homophily and the accuracy of features alone about theirs."""


def read(root: Path | None = None, features: bool = True, **options: Any) -> GraphSource:
    """A graph of the fields of `BlockModel`; seven edges per node where only `num_nodes` is given."""
    allowed = [field.name for field in fields(BlockModel)]
    for option in options:
        if option not in allowed:
            raise InputError(f"synthetic has no option {option!r}. Allowed: {', '.join(allowed)}.")
    if isinstance(options.get("num_nodes"), int):
        options.setdefault("num_edges", 7 * options["num_nodes"])
    return BlockModel(**options).source(features=features)


def read_preset(
    name: str, root: Path | None = None, features: bool = True, scale: float = 1.0, seed: int = 0
) -> GraphSource:
    """A preset with `scale` times its nodes, edges and splits."""
    if not isinstance(scale, int | float) or not 0 < scale <= 1:
        raise InputError(f"scale is {scale!r}; it must lie in (0, 1]. Pass 1 for the full size.")
    full = PRESETS[name]
    num_nodes, num_edges = round(scale * full.num_nodes), round(scale * full.num_edges)
    try:
        model = replace(full, num_nodes=num_nodes, num_edges=num_edges, seed=seed)
    except InputError as error:
        raise InputError(f"{name} cannot be drawn with scale={scale} and seed={seed}. {error}") from error
    return model.source(name, features=features)


DATASETS = (
    Dataset(name="synthetic", about="Block model with the sizes you choose: 10 k nodes if none", read=read),
    *(
        Dataset(
            name=name,
            about=f"Block model in the shape of {like}: {model.num_nodes:,} nodes, {model.num_edges:,} edges",
            read=partial(read_preset, name),
        )
        for (name, model), like in zip(
            PRESETS.items(), ("ogbn-arxiv", "ogbn-products", "ogbn-papers100M"), strict=True
        )
    ),
)
