"""Where the batches of a run come from."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from musegnn.features.homes import Features
from musegnn.features.inputs import Inputs
from musegnn.graph import Graph
from musegnn.runs.evaluation import Drawing
from musegnn.sampling import Draws, SampleStore
from musegnn.sampling.draws import split_nodes
from musegnn.sampling.record import Sample
from musegnn.training.batches import Loader, default_threads
from musegnn.training.building import build_features
from musegnn.training.config import Config
from musegnn.training.schedule import epoch_seed
from musegnn.unfolding.resident import Matrix


@dataclass(frozen=True)
class Data:
    """Where batches come from."""

    graph: Graph
    store: SampleStore
    targets: np.ndarray
    config: Config
    threads: int | None
    is_resumed: bool
    relations: int
    matrices: Callable[[Sample], Sequence[Matrix]]
    inputs: Inputs
    _features: dict[torch.device, Features] = field(default_factory=dict)

    def loader(self, split: str, device: torch.device) -> Loader | None:
        """The batches of a split; None if the store has no samples of it or none of its seeds has a label."""
        if split not in self.store or not len(self.store[split]):
            return None
        if self.graph.features is not None and device not in self._features:
            given = self.config, self.graph, self.store, device
            self._features[device] = build_features(*given, is_resumed=self.is_resumed)
        return Loader(
            self.store[split],
            self.graph,
            self.targets,
            threads=self.threads or default_threads(device),
            device=device,
            features=self._features.get(device),
            counts_once=self.store.is_free and split != "train",
            relations=self.relations,
            matrices=self.matrices,
            inputs=self.inputs,
            fresh=self._draws if self.config.sampling.online and split == "train" else None,
        )

    def _draws(self, epoch: int) -> Draws:
        """The training samples of an epoch, drawn for it alone."""
        drawing = Drawing.of_store(self.store)
        seed = epoch_seed(drawing.seed, epoch)
        return Draws(self.graph, drawing.sampler(), "train", batch_size=drawing.batch_size, seed=seed)

    def targets_of(self, split: str) -> np.ndarray:
        """Of the nodes of a split."""
        targets: np.ndarray = self.targets[split_nodes(self.graph, split)]
        return targets
