"""What must hold before a run begins, or goes on, and what is noted of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from musegnn.baselines.contract import AnyModel
from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph
from musegnn.ranks import Ranks, current, job
from musegnn.runs.places import place_of
from musegnn.sampling import SampleStore
from musegnn.store.header import checksum
from musegnn.training.building import build_model
from musegnn.training.config import Config, settings_of_tables
from musegnn.training.folder import RunFolder
from musegnn.version import __version__


def as_restarted(out: Path, resume: bool, overwrite: bool, ranks: Ranks) -> tuple[bool, bool]:
    """A launcher that starts all ranks anew does so with the command that began the run."""
    return (True, False) if ranks.tell(is_of_job(out)) else (resume, overwrite)


def is_of_job(folder: Path) -> bool:
    """Whether an earlier attempt of the same launcher has begun this run."""
    if not current().restarts or not (folder / "run.json").is_file():
        return False
    return bool(job()) and RunFolder(folder).record().get("job") == job()


def with_step(config: Config, resumed: Path | None, ranks: Ranks) -> Config:
    """The config with the number of samples in a step: as the run began, or one of each rank."""
    if config.training.samples_per_step:
        return config
    size = ranks.size
    if resumed is not None and (resumed / "config.toml").is_file():
        size = RunFolder(resumed).config().training.samples_per_step
    return replace(config, training=replace(config.training, samples_per_step=size))


def begin(
    folder: RunFolder, config: Config, record: dict[str, Any], *, resume: bool, overwrite: bool
) -> None:
    """The folder is there, and is that of this run."""
    if folder.is_read or (resume and not folder.is_half_made(config)):
        _check_same(folder, config, record)
    else:
        folder.create(config, record, overwrite=overwrite)


def check_given(graph: Graph, store: SampleStore, model: AnyModel) -> None:
    """They are what `musegnn.train` takes, and the samples are of this graph."""
    if not isinstance(model, AnyModel):
        raise InputError(f"model must be a musegnn.MuseGNN, got {type(model).__name__}.")
    if not isinstance(store, SampleStore):
        raise InputError(
            f"store must be a musegnn.SampleStore, got {store!r}. Take SampleStore.open(folder)."
        )
    store.check_graph(graph)
    if model.label_inputs and "train" in store and len(store["train"]) == 1:
        raise InputError(
            "label_inputs=true needs training nodes that are no seeds; got one sample, of which all are. "
            "Draw smaller ones: batch_size below the number of training nodes."
        )


def check_settings(settings: dict[str, Any]) -> None:
    """What the model or the samples say is theirs to say."""
    owners = {
        "sampling": "the samples",
        "energy": "the model's energy",
        "model": "the model",
        "baseline": "the model",
    }
    tables = {setting.name: table for table, setting in settings_of_tables()}
    for name in settings:
        owner = owners.get(tables.get(name, ""))
        if owner is not None and name != "online":
            raise InputError(f"{name} is a setting of {owner}, which were made before. Set it there.")


def _check_same(folder: RunFolder, config: Config, record: dict[str, Any]) -> None:
    """Refuse to go on with another graph, other samples, labels or settings."""
    before = folder.record()
    for part in ("graph", "samples"):
        was, now = before[part]["digest"], record[part]["digest"]
        if was != now:
            raise StoreError(
                f"{folder.path} was trained with the {part} {was[:12]}, now they are {now[:12]}. "
                "Resume with those it began with, or begin a new run."
            )
    if before["labels"] != record["labels"]:
        raise StoreError(f"{folder.path} was trained with other labels. Pass those it began with.")
    # What is hoped for changes no step.
    was_config, config = (replace(one, expected={}) for one in (folder.config(), config))
    if checksum({"config": was_config.to_toml()}) != checksum({"config": config.to_toml()}):
        raise StoreError(
            f"{folder.path} was begun with other settings ({_first_difference(was_config, config)}). "
            "Resume without changing them, or begin a new run."
        )


def _first_difference(was: Config, now: Config) -> str:
    pairs = zip(was.to_toml().splitlines(), now.to_toml().splitlines(), strict=False)
    old, new = next(((a, b) for a, b in pairs if a != b), ("", ""))
    return f"{old.split('  #')[0]}, now {new.split('  #')[0]}"


def record_of(graph: Graph, store: SampleStore, out: Path) -> dict[str, Any]:
    """Graph and samples of a run at `out`, and where they lie."""
    return {
        "musegnn": __version__,
        "job": job(),
        "graph": {"digest": graph.digest, "name": graph.name, **place_of(graph.stored, out)},
        "samples": {
            "digest": store.digest,
            "sampler": store.sampler["name"],
            **place_of(store.stored, out),
        },
    }


def is_of_seed(model: AnyModel, config: Config, sizes: dict[str, int] | None, graph: Graph) -> bool:
    """Whether its weights are those that the config's seed makes: then a command can begin with them, too."""
    if sizes is None:
        return False
    own = model.state_dict()
    made = build_model(config, **sizes, graph=graph).state_dict()
    return own.keys() == made.keys() and all(_is_same(own[name], made[name]) for name in made)


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())
