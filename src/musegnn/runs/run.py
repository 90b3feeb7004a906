"""A run that is there: its settings, its result, its model."""

from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Float32
from numpy.typing import ArrayLike

from musegnn.baselines.contract import AnyModel
from musegnn.errors import InputError, StoreError
from musegnn.explaining import Explanation
from musegnn.graph import Graph
from musegnn.inference.full import Embeddings, embed_graph
from musegnn.inference.tables import Predictions
from musegnn.means import MeanEmbeddings
from musegnn.means.sharded import MappedShares, Means, ShardedMeans
from musegnn.models import MuseGNN
from musegnn.ranks import current
from musegnn.runs.evaluation import (
    Drawing,
    How,
    evaluate_full,
    evaluate_split,
    fresh_samples,
    splits_of,
)
from musegnn.runs.explanation import Neighborhood, Node
from musegnn.runs.means import homes_of, make_means, mapped_means, moving_copy
from musegnn.runs.places import find, find_graph
from musegnn.runs.prediction import AnyGraph, Predictor, joined, open_graph, places_of
from musegnn.sampling import SampleStore
from musegnn.sampling.base import FreeSampler
from musegnn.sampling.draws import check_split
from musegnn.sampling.sequence import Samples
from musegnn.store.header import checksum
from musegnn.training import checkpoint
from musegnn.training.building import build_model
from musegnn.training.config import Config
from musegnn.training.evaluation import Evaluation
from musegnn.training.folder import RunFolder
from musegnn.training.loop import BEST, STATE
from musegnn.training.state import load_prediction
from musegnn.training.targets import check_targets, digest_of


class Run:
    """What `musegnn.train` and `musegnn.load_run` return; graph, samples and model load when needed."""

    def __init__(
        self,
        folder: str | Path,
        *,
        graph: AnyGraph | None = None,
        samples: SampleStore | str | Path | None = None,
        model: AnyModel | None = None,
        labels: ArrayLike | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        self.folder = RunFolder(Path(folder))
        self.config: Config = self.folder.config()
        self.record: dict[str, Any] = self.folder.record()
        self.labels = labels
        self.device = torch.device(device)
        self._given = graph, samples, model

    @property
    def result(self) -> dict[str, Any]:
        """result.json; refused as long as the run is not finished."""
        result = self.folder.result()
        if result is None:
            raise StoreError(
                f"{self.folder.path} is not finished. Go on: muse train --resume {self.folder.path}"
            )
        return result

    @property
    def valid_accuracy(self) -> float:
        """Of the weights that are kept, with the M that is kept."""
        return self._accuracy("valid")

    @property
    def test_accuracy(self) -> float:
        """Of the weights that are kept, with the M that is kept."""
        return self._accuracy("test")

    def _accuracy(self, split: str) -> float:
        accuracy = self.result.get(f"{split}_accuracy")
        if accuracy is None:
            raise InputError(
                f"{self.folder.path} has no {split}_accuracy: no node of the split {split!r} has a label and "
                f"a sample. Draw samples of it (muse sample --splits {split}) and train again."
            )
        return float(accuracy)

    @property
    def events(self) -> list[dict[str, Any]]:
        """events.jsonl."""
        return self.folder.events()

    @cached_property
    def graph(self) -> Graph:
        """The graph it was trained on, found again and compared by its digest."""
        facts, given = self.record["graph"], self._given[0]
        graph = find_graph(facts, self.folder.path) if given is None else open_graph(given)
        if graph.digest != facts["digest"]:
            raise StoreError(
                f"{self.folder.path} was trained on the graph {facts['digest'][:12]}, but {graph.name} is "
                f"{graph.digest[:12]}. Pass the one it was trained on: graph=... (--graph FOLDER)."
            )
        return graph

    @cached_property
    def samples(self) -> SampleStore:
        """The samples it was trained with."""
        facts, samples = self.record["samples"], self._given[1]
        if not isinstance(samples, SampleStore):
            folder = find("samples", facts, self.folder.path) if samples is None else samples
            _ = self.graph  # If it is another one, too, that is to be said.
            samples = SampleStore.open(folder)  # Not of this graph: of another, nothing is drawn again.
        if samples.digest != facts["digest"]:
            raise StoreError(
                f"{samples.stored.folder} holds other samples than {self.folder.path} was trained with. "
                "Pass those: samples=... (--samples FOLDER); the same `muse sample` draws the same bytes."
            )
        return samples

    @cached_property
    def drawing(self) -> Drawing:
        """How its samples were drawn; they are opened only if the config does not say it."""
        settings = self.config.sampling
        is_said = self.record["samples"].get("sampler") == settings.sampler
        # What was passed is compared, even if it need not be read.
        is_read = self._given[1] is not None or not is_said
        return Drawing.of_store(self.samples) if is_read else Drawing.of_config(settings)

    @cached_property
    def model(self) -> AnyModel:
        """The model with its best weights."""
        model = self._given[2]
        if model is None:
            if self.record["model"] is None:
                raise InputError(
                    f"{self.folder.path} has a model of your own, which no config describes. "
                    "Pass it: musegnn.load_run(folder, model=...)."
                )
            model = self._build()
        try:
            load_prediction(model, self._empty_means, self._best)
        except StoreError:
            if checkpoint.digest_of(self.folder.checkpoints, self._best_name) == self._best.digest:
                raise
            # Training has replaced the shares of M since their names were read.
            del self._best
            load_prediction(model, self._empty_means, self._best)
        return model.to(self.device).eval()

    def untrained(self) -> AnyModel:
        """The model as it was before the first step, for a run that goes on."""
        if self.record["model"] is None:
            raise InputError(
                f"{self.folder.path} has a model of your own, which no config describes. "
                "Go on with musegnn.train(..., resume=True)."
            )
        if checkpoint.exists(self.folder.checkpoints, STATE):
            self._check_unchanged()
        return self._build().to(self.device)

    def _build(self) -> AnyModel:
        graph = self.graph if self.config.is_baseline else None
        return build_model(self.config, **self.record["model"], graph=graph)

    @cached_property
    def means(self) -> Means | None:
        """M at the best epoch; where it lies on disk, that of the last."""
        means = self._empty_means
        _ = self.model
        return means

    @cached_property
    def _empty_means(self) -> Means | None:
        config, num_nodes = self.config, self.graph.num_nodes
        if not config.has_mapped_means:
            return make_means(config, num_nodes, self.folder, self.device)
        size = checkpoint.ranks_of(checkpoint.facts_of(self.folder.checkpoints, STATE))
        shares = mapped_means(config, num_nodes, self.folder, size)
        return shares[0] if size == 1 else MappedShares(shares)

    @property
    def weights_digest(self) -> str:
        """SHA-256 of the file with the best weights, and means that lie in memory."""
        return self._best.digest

    @property
    def means_digest(self) -> str | None:
        """Tells one mapped M from another without reading it; None unless M lies on disk.

        It is that of the last checkpoint, moved on by the updates that the undo log has noted since.
        """
        if not self.config.has_mapped_means:
            return None
        size = checkpoint.ranks_of(checkpoint.facts_of(self.folder.checkpoints, STATE))
        logs = [home / "undo.bin" for home in homes_of(self.folder, size)]
        moved = sum(log.stat().st_size for log in logs if log.is_file())
        return checksum({"state": checkpoint.digest_of(self.folder.checkpoints, STATE), "moved": moved})

    @cached_property
    def _best(self) -> checkpoint.Loaded:
        self._check_unchanged()
        return checkpoint.load(self.folder.checkpoints, self._best_name)

    @property
    def _best_name(self) -> str:
        return BEST if checkpoint.exists(self.folder.checkpoints, BEST) else STATE

    def _check_unchanged(self) -> None:
        """Before anything is made of them: settings and sizes are those of the checkpoint."""
        if checkpoint.facts_of(self.folder.checkpoints, STATE).get("belongs_to") != self.folder.identity():
            raise StoreError(
                f"The checkpoint in {self.folder.path} is of another run: graph, samples, labels or "
                "config.toml have changed since. Put back what belongs to it, or train again."
            )

    def evaluate(
        self,
        splits: str | tuple[str, ...] | None = None,
        how: How = "stored",
        *,
        hops: int = 2,
        seed: int | None = None,
        threads: int = 1,
        scratch: Path | None = None,
        update_means: bool = False,
        correct_and_smooth: bool = False,
    ) -> dict[str, Evaluation]:
        """Metrics and error bounds of the best weights; the run stays as it is: twice gives the same bits.

        Args:
            splits: Whose seeds; of valid and test those that have samples, unless given.
            how: "stored" samples; "online", fresh ones of the same sampler; "hops", whole neighborhoods; or
                "full", descent on the whole graph, with Y in mapped files.
            hops: Of "hops".
            seed: Of "online"; the next one after that of the stored samples unless given.
            threads: That read ahead.
            scratch: Where "full" has its files; beside the run folder unless given.
            update_means: Move M by each sample (eq. 9), one split after the other, as the authors' code does;
                a copy of it, in memory. Otherwise M is read only.
            correct_and_smooth: Move the predictions of "full" by the classes of training nodes.
        """
        if how not in get_args(How):
            raise InputError(f"how must be one of {', '.join(get_args(How))}; got {how!r}.")
        if correct_and_smooth and how != "full":
            raise InputError(f"correct_and_smooth needs all nodes: take how='full' (--full), not {how!r}.")
        splits, targets = self._splits(splits, how), self.targets()
        current().check_same(
            {
                "weights with the digest": self.weights_digest,
                "graph with the digest": self.graph.digest,
                "splits": splits,
                "how": how,
                "hops": hops,
                "seed": seed,
                "update_means": update_means,
                "correct_and_smooth": correct_and_smooth,
            }
        )
        if how == "full":
            beside = self.folder.path.parent if scratch is None else scratch
            whole = self._whole_means("how='full' (--full)")
            given = self._unfolded("how='full' (--full)"), whole, self.graph, targets, list(splits)
            return evaluate_full(*given, self.config, beside, corrects=correct_and_smooth)
        means = moving_copy(self.means, how, self.folder.path) if update_means else self.means
        found = {}
        for split in splits:
            samples: Samples
            if how == "stored":
                samples, is_free = self.samples[split], self.samples.is_free
            else:
                samples = fresh_samples(self.graph, self.drawing, split, how, hops=hops, seed=seed)
                is_free = isinstance(samples.sampler, FreeSampler)
            here = self.model, means, self.graph, samples, targets, self.config
            told: dict[str, Any] = {"is_free": is_free, "threads": threads, "update_means": update_means}
            found[split] = evaluate_split(*here, **told, label=f"Evaluating {split}")
        return found

    def _splits(self, splits: str | tuple[str, ...] | None, how: How) -> tuple[str, ...]:
        if splits is None:
            is_read = how == "stored" or self._given[1] is not None
            splits = splits_of(self.samples if is_read else self.graph)
        if not splits:
            raise InputError("There are no splits to evaluate. Pass some of train, valid and test.")
        splits = (splits,) if isinstance(splits, str) else splits
        for split in splits:
            check_split(split)
        return splits

    def _unfolded(self, option: str) -> MuseGNN:
        """The model, for what only descent steps can do."""
        if not isinstance(self.model, MuseGNN):
            name = self.config.baseline.architecture
            raise InputError(
                f"{option} is for MuseGNN, but {self.folder.path} has trained {name}. Pass a run of MuseGNN."
            )
        return self.model

    def _whole_means(self, option: str) -> MeanEmbeddings | MappedShares | None:
        """M, for what one process does alone."""
        if not current().is_alone:
            raise InputError(
                f"{option} is for one process, got {current().size} ranks. Start it without torchrun."
            )
        assert not isinstance(self.means, ShardedMeans)
        return self.means

    def targets(self) -> np.ndarray:
        """Of all nodes."""
        targets = check_targets(self.graph, self.labels, self.config.training.loss)
        if self.record["labels"] != (None if self.labels is None else digest_of(targets)):
            raise InputError(
                f"{self.folder.path} was trained with other labels than these. "
                "Pass those: musegnn.load_run(folder, labels=...)."
            )
        return targets

    def predict(
        self, node_ids: ArrayLike, *, graph: AnyGraph | None = None, hops: int | None = None, threads: int = 1
    ) -> Predictions:
        """Class, probabilities and error bound of each of these nodes, in their order.

        Samples are drawn around them as those of the training were, or with `hops` all neighbors taken.
        `graph`, or its folder, may be another with the same features, whose nodes have no means.
        """
        self._whole_means("Run.predict")
        predictor = Predictor(self, graph=graph, hops=hops, threads=threads)
        ids, places = places_of(node_ids)
        return joined([part for _, part in predictor.batches(ids)], places)

    def embed(
        self, node_ids: ArrayLike, *, graph: AnyGraph | None = None, hops: int | None = None, threads: int = 1
    ) -> Float32[np.ndarray, "nodes dim"]:
        """Y of these nodes, in their order, from the samples that `predict` draws."""
        self._whole_means("Run.embed")
        self._unfolded("Run.embed")
        predictor = Predictor(self, graph=graph, hops=hops, threads=threads)
        ids, places = places_of(node_ids)
        Y: np.ndarray = predictor.embed(ids)[places]
        return Y

    def embed_graph(self, folder: str | Path, *, bound: bool = False) -> Embeddings:
        """Y of all nodes by descent on the whole graph, kept as `embeddings.bin` in an existing folder.

        Y lies in mapped files, so that a graph whose embeddings exceed the memory gets them, too.
        With `label_inputs`, training nodes see their own classes.
        """
        given = self._unfolded("embed_graph"), self.graph, self._whole_means("embed_graph"), Path(folder)
        how: dict[str, Any] = {"inputs": Predictor(self).inputs, "bound": bound, "keep": True}
        return embed_graph(*given, unseen=self.config.means.unseen, **how)

    def explain(self, node: Node, *, hops: int | None = None) -> Explanation:
        """Why a node, by id or name, gets its class: exact shares that add up to its logits.

        The sample is the one that `predict` draws, or with `hops` all neighbors.
        """
        return self.around(node, hops=hops).explain()

    def around(self, node: Node, *, hops: int | None = None) -> Neighborhood:
        """A node, by id or name, and what the model is given of it: to explain, draw, or change."""
        self._whole_means("An explanation")
        return Neighborhood.of(self, self._unfolded("An explanation"), node, hops)

    def __repr__(self) -> str:
        result = self.folder.result()
        state = (
            "unfinished"
            if result is None
            else f"test_accuracy={result.get('test_accuracy', float('nan')):.4f}"
        )
        return f"Run({str(self.folder.path)!r}, {self.config.name}, {state})"


def load_run(
    folder: str | Path,
    *,
    graph: AnyGraph | None = None,
    samples: SampleStore | str | Path | None = None,
    model: AnyModel | None = None,
    labels: ArrayLike | None = None,
    device: str | torch.device = "cpu",
) -> Run:
    """Open a run.

    Graph and samples, or their folders, are passed if they were moved; otherwise they are found where they
    were. Either way they must have the digests that the run was trained with.
    """
    return Run(folder, graph=graph, samples=samples, model=model, labels=labels, device=device)
