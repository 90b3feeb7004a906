"""UniformInduced: the operator of Proposition 3.1."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Integer

from musegnn import ops
from musegnn.errors import InputError
from musegnn.graph import Graph
from musegnn.sampling.base import FreeSampler, check_positive, key_of

_BLOCK = 1 << 20


@dataclass(frozen=True)
class UniformInduced(FreeSampler):
    """Each node is inside with probability p, independently of all others; all edges among those inside.

    With the means as the only unknown, the expected energy of m such samples is m p times the energy of the
    whole graph with lambda replaced by p lambda (Proposition 3.1). Seeds that are forced in would void that,
    hence a free sampler.
    """

    p: float = 0.1
    num_samples: int = 100

    def __post_init__(self) -> None:
        if isinstance(self.p, bool) or not (isinstance(self.p, int | float) and 0 < self.p <= 1):
            raise InputError(f"p of UniformInduced must lie in (0, 1], got {self.p!r}.")
        object.__setattr__(self, "p", float(self.p))
        num_samples = check_positive(self.num_samples, "num_samples of UniformInduced")
        object.__setattr__(self, "num_samples", num_samples)

    def draw(self, graph: Graph, index: int, rng: np.random.Generator) -> Integer[np.ndarray, " nodes"]:
        """The nodes whose own random number, in [0, 1), is below p."""
        key = key_of(rng)
        # 53 bits, so that p = 1 and the numbers themselves are exact.
        threshold = np.uint64(round(self.p * 2**53))
        blocks = []
        for first in range(0, graph.num_nodes, _BLOCK):
            nodes = np.arange(first, min(first + _BLOCK, graph.num_nodes), dtype=np.uint64)
            blocks.append(nodes[ops.random_bits(key, nodes) >> np.uint64(11) < threshold])
        return np.concatenate(blocks).astype(graph.indices.dtype)
