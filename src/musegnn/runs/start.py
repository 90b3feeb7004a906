"""`musegnn.train`: a graph, its samples and a model in, a run out."""

import math
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike

from musegnn.baselines.contract import AnyModel, Baseline
from musegnn.errors import InputError, StoreError
from musegnn.graph import Graph
from musegnn.means.sharded import Movable
from musegnn.means.undo import UndoLog
from musegnn.memory import Peak
from musegnn.ranks import Ranks, current, join
from musegnn.reports.analysis import Tally
from musegnn.reports.page import write_report
from musegnn.runs.alike import check_alike
from musegnn.runs.beginning import (
    as_restarted,
    begin,
    check_given,
    check_settings,
    is_of_seed,
    record_of,
    with_step,
)
from musegnn.runs.data import Data
from musegnn.runs.means import make_means, mapped_means, own_part, share_out
from musegnn.runs.run import Run
from musegnn.sampling import SampleStore
from musegnn.sampling.catalog import SAMPLERS
from musegnn.training import checkpoint
from musegnn.training.building import describe_model, gamma_of, probe
from musegnn.training.config import Config
from musegnn.training.evaluation import Evaluation, evaluate
from musegnn.training.expectation import expecting
from musegnn.training.folder import RunFolder
from musegnn.training.forward import device_of, inputs_of, matrices_of, relations_of
from musegnn.training.loop import BEST, STATE, Listener, Trainer
from musegnn.training.losses import Loss, check_learnable, class_weights_of, make_loss
from musegnn.training.profile import Profile
from musegnn.training.schedule import learning_rate, num_steps
from musegnn.training.signals import stop_on_signals
from musegnn.training.state import Position, State
from musegnn.training.targets import check_targets, digest_of


def train(
    graph: Graph,
    store: SampleStore,
    model: AnyModel,
    out: str | Path,
    *,
    labels: ArrayLike | None = None,
    config: Config | None = None,
    threads: int | None = None,
    checkpoint_seconds: float = 120.0,
    resume: bool = False,
    overwrite: bool = False,
    listen: Listener = lambda event: None,
    began: float | None = None,
    profile: bool = False,
    **settings: Any,
) -> Run:
    """Train a model on stored samples (algorithm 1) into a run folder; called again with `resume`, go on.

        M, c <- 0;  each epoch, each sample s in a new order:
            Y_s <- K descent steps from f(X_s), with mu_s = M_s;  Adam on sum_seeds D(g(Y_i), t_i)  (eq. 10)
            M_s <- rho c/(c+1) M_s + ((1-rho) c + 1)/(c+1) Y_s,   c_s <- c_s + 1                    (eq. 9)

    The same seed gives the same bits on the same machine, whatever the number of loader threads and however
    often the run was killed and resumed.

    Args:
        graph: With features, labels and a split.
        store: Samples of this graph; "train", and "valid" and "test" if it has them.
        model: Trained in place, on the device it is on; in the end it has the best weights.
        out: The run folder.
        labels: In place of the graph's: a class number for each node, or a row of 0, 1 and NaN (loss="bce").
        config: Settings to start from.
        threads: That read samples and features ahead; 1 unless given, or as many as feed a GPU.
        checkpoint_seconds: At most this much work is lost by a kill; 0 writes a checkpoint behind each step.
        resume: Go on with the run at `out`, from its last checkpoint, inside the epoch.
        overwrite: Replace a run at `out`.
        listen: Called with each event of events.jsonl.
        began: The `time.monotonic()` from which the seconds of result.json count, if not from now.
        profile: Write where the time of 20 steps goes to events.jsonl, and a trace of them to trace.json.
        settings: Those of the tables means and training (`musegnn.training.config`), such as `epochs=20`.
    """
    check_given(graph, store, model)
    with join() as ranks, ExitStack() as stack:
        resume, overwrite = as_restarted(Path(out), resume, overwrite, ranks)
        started = config or Config(name=graph.name, dataset=graph.name)
        check_settings(settings)
        config, sizes = describe_model(model, with_samples(started.with_settings(settings), store))
        config = replace(config, expected={}) if sizes is None else expecting(config, started)
        config = with_step(config, Path(out) if resume else None, ranks)
        targets = check_targets(graph, labels, config.training.loss)
        needs = relations_of(model), matrices_of(model), inputs_of(model, graph, targets)
        data = Data(graph, store, targets, config, threads, resume, *needs)
        # Before the folder is made: what is refused leaves no run behind.
        config, num_outputs = _checked(data, model, config, is_described=sizes is not None)
        data, loss = replace(data, config=config), _loss(data, config, num_outputs, device_of(model))
        record = {
            **record_of(graph, store, Path(out)),
            "labels": None if labels is None else digest_of(targets),
            "model": sizes,
            "is_of_seed": is_of_seed(model, config, sizes, graph),
        }
        check_alike(config, record, device_of(model), ranks)
        peak = stack.enter_context(Peak())
        folder = stack.enter_context(RunFolder(Path(out), is_there=resume, is_read=not ranks.is_first))
        ranks.first(lambda: begin(folder, config, record, resume=resume, overwrite=overwrite))
        was_finished = ranks.tell(folder.result() is not None)
        if not was_finished:
            how: dict[str, Any] = {"checkpoint_seconds": checkpoint_seconds}
            if ranks.is_first:
                timed = Profile(device_of(model), folder.path / "trace.json") if profile else None
                how |= {"listen": listen, "profile": timed}
            trainer = stack.enter_context(_trainer(folder, data, model, loss, **how))
            trainer.count_from(time.monotonic() if began is None else began)
            stack.enter_context(torch.random.fork_rng())
            trainer.run()
            _finish(trainer, data, peak, record)
        elif ranks.is_first and not (folder.path / "report.html").exists():
            write_page(folder.path)
        run = Run(Path(out), graph=graph, samples=store, model=model, labels=labels, device=device_of(model))
        if was_finished:
            # The model has not seen these weights yet.
            _ = run.model
        return run


_NOTHING = Evaluation({}, 0, math.nan, math.nan)


@contextmanager
def _trainer(folder: RunFolder, data: Data, model: AnyModel, loss: Loss, **how: Any) -> Iterator[Trainer]:
    """All that a run needs, where it was stopped if it is resumed; `how` goes to the trainer as it is."""
    config, device, ranks = data.config, device_of(model), current()
    settings = config.training
    batches = data.loader("train", device)
    assert batches is not None
    saved = _saved(folder, config, data.graph.num_nodes, ranks)
    means = make_means(config, data.graph.num_nodes, folder, device)
    optimizer = torch.optim.Adam(
        model.parameters(), lr=settings.lr, weight_decay=settings.weight_decay, fused=device.type == "cuda"
    )
    state = State(model, optimizer, means, Position())
    with ExitStack() as stack:
        undo = None
        if means is not None and isinstance(means.home, Path):
            undo = UndoLog(own_part(means), means.home / "undo.bin")
            stack.callback(undo.close)
        stop = stack.enter_context(stop_on_signals())
        if saved is not None:
            state.load(saved)
            # M is not held twice.
            saved.tensors.clear()
        trainer = Trainer(
            folder=folder,
            config=config,
            state=state,
            train=batches,
            valid=data.loader("valid", device),
            loss=loss,
            stop=stop,
            undo=undo,
            ranks=ranks,
            **how,
        )
        if saved is not None:
            _go_back(folder, saved, config, means, undo, ranks)
            if saved.num_ranks != ranks.size:
                trainer.save()
            folder.drop_other_means(ranks.size)
        else:
            trainer.listen(folder.log("start", **_facts(trainer)))
            trainer.save()
        yield trainer


def _facts(trainer: Trainer) -> dict[str, Any]:
    """What there is to say of a run before its first step."""
    features, means = trainer.train.features, trainer.state.means
    return {
        "epochs": trainer.config.training.epochs,
        "samples": len(trainer.train),
        "ranks": trainer.ranks.size,
        "device": str(device_of(trainer.state.model)),
        "features": features.home,
        "features_about": features.about,
        "means": means.place if means is not None else None,
    }


def _saved(folder: RunFolder, config: Config, num_nodes: int, ranks: Ranks) -> checkpoint.Loaded | None:
    """The checkpoint to go on from, and what it needs; None if there is none yet."""
    if not ranks.tell(checkpoint.exists(folder.checkpoints, STATE)):
        # Of a run that was killed before its first checkpoint nothing is worth keeping.
        ranks.once(folder.empty)
        return None
    saved = checkpoint.load(folder.checkpoints, STATE)
    if saved.facts.get("belongs_to") != folder.identity():
        raise StoreError(
            f"The checkpoint in {folder.path} is of another run: graph, samples, labels or "
            "config.toml have changed since. Put back what belongs to it, or begin a new run."
        )
    if config.has_mapped_means:
        # Or what is lost would be made anew, of zeros.
        mapped_means(config, num_nodes, folder, saved.num_ranks)
        if saved.num_ranks != ranks.size:
            folder.drop_share(ranks.rank, ranks.size)
    return saved


def _go_back(
    folder: RunFolder,
    saved: checkpoint.Loaded,
    config: Config,
    means: Movable | None,
    undo: UndoLog | None,
    ranks: Ranks,
) -> None:
    """What lies in files is as it was at the checkpoint."""
    step, size = Position.read(saved.facts.get("position")).step, saved.num_ranks
    if undo is not None and means is not None:
        if size == ranks.size:
            undo.roll_back(step)
        else:
            share_out(mapped_means(config, means.shape[0], folder, size), means, folder, step, ranks)
    folder.rewind_events(saved.facts["events"])


def _checked(data: Data, model: AnyModel, config: Config, *, is_described: bool) -> tuple[Config, int]:
    """Refuse what cannot be trained. The config with what M needs to know of the model, and its outputs."""
    batches = data.loader("train", device_of(model))
    if batches is None:
        raise InputError(f"{data.store.stored.folder} has no training samples. Draw them: `muse sample`.")
    check_learnable(data.targets_of("train"))
    settings = config.training
    if isinstance(model, Baseline) and not current().is_alone:
        raise InputError(f"{model.architecture} needs one process, got {current().size} ranks.")
    if settings.update_means and not current().is_alone:
        raise InputError(f"update_means=true needs one process, got {current().size} ranks. Leave M alone.")
    has_valid = data.loader("valid", device_of(model)) is not None
    # Unknown labels are -1 or NaN.
    if settings.patience and not (has_valid and (data.targets_of("valid") >= 0).any()):
        raise InputError(
            f"patience={settings.patience} looks at the validation nodes, but no node of the split 'valid' "
            "has a label and a sample. Take patience=0, or give the graph such a split."
        )
    learning_rate(
        0,
        total=num_steps(settings.epochs, len(batches), settings.samples_per_step),
        lr=settings.lr,
        schedule=settings.schedule,
        warmup=settings.warmup,
    )
    _check_step_size(data, model)
    width, num_outputs = probe(model, batches.first_row())
    needed = data.targets.shape[1] if data.targets.ndim == 2 else int(data.targets.max()) + 1
    if needed > num_outputs or (data.targets.ndim == 2 and needed != num_outputs):
        raise InputError(
            f"The model has {num_outputs} outputs, but the labels need {needed}. "
            f"Make it with out_dim={needed}."
        )
    if not is_described and not isinstance(model, Baseline):
        gamma = gamma_of(model.energy, config.energy.gamma)
        config = replace(
            config,
            energy=replace(config.energy, gamma=gamma),
            model=replace(
                config.model,
                hidden=width,
                label_inputs=bool(model.label_inputs),
                type_inputs=bool(model.type_inputs),
            ),
        )
    return config, num_outputs


def _check_step_size(data: Data, model: AnyModel) -> None:
    """Refuse an alpha that diverges on the samples with the largest eigenvalues, as far as they are known."""
    # Stored samples do not tell relations.
    if isinstance(model, Baseline) or model.alpha == "auto" or model.energy.num_relations:
        return
    for samples in data.store.values():
        for index in {int(samples.bounds[:, theta].argmax()) for theta in (0, 2)}:
            sample = samples.sample(index)
            rows = torch.zeros(len(sample.node_ids), 1, device=device_of(model))
            model.energy.on(sample, rows, None, like=rows, alpha=model.alpha)


def with_samples(config: Config, store: SampleStore) -> Config:
    """The config with how these samples were drawn, as far as a config can say it."""
    if store.sampler["name"] not in SAMPLERS:
        return config
    sampling = replace(
        config.sampling,
        sampler=store.sampler["name"],
        settings=dict(store.sampler["settings"]),
        batch_size=store.batch_size or config.sampling.batch_size,
        sample_seed=store.seed,
    )
    return expecting(replace(config, sampling=sampling), config)


def _loss(data: Data, config: Config, num_outputs: int, device: torch.device) -> Loss:
    settings = config.training
    weights = None
    if settings.class_weights and settings.loss == "cross_entropy":
        weights = class_weights_of(data.targets_of("train"), num_outputs).to(device, torch.float32)
    return make_loss(settings.loss, class_weights=weights, label_smoothing=settings.label_smoothing)


def _look(trainer: Trainer, data: Data) -> dict[str, Evaluation]:
    """Metrics of both splits; of the last one also error bounds, and analysis.json."""
    state, found = trainer.state, dict[str, Evaluation]()
    loaders = {split: data.loader(split, device_of(state.model)) for split in ("valid", "test")}
    there = {split: loader for split, loader in loaders.items() if loader is not None}
    for split, loader in there.items():
        tally = Tally(
            data.graph,
            data.targets,
            split=split,
            model=state.model,
            means=state.means,
            precision=trainer.config.training.precision,
        )
        is_last = split == list(there)[-1]
        found[split] = evaluate(
            state.model,
            state.means,
            loader,
            trainer.config,
            bounds=None if is_last else 0,
            is_stopped=lambda: trainer.stop.is_asked,
            watch=tally.watch if is_last else lambda scored: None,
            label=f"Evaluating {split}",
        )
        if is_last:
            body = tally.add_up(trainer.ranks).body()
            if trainer.ranks.is_first:
                checkpoint.write_json(trainer.folder.path / "analysis.json", checkpoint.finite(body))
    return found


def _finish(trainer: Trainer, data: Data, peak: Peak, record: dict[str, Any]) -> None:
    """The best weights, what they reach, result.json."""
    folder, config, state = trainer.folder, trainer.config, trainer.state
    if trainer.ranks.tell(checkpoint.exists(folder.checkpoints, BEST)):
        state.load_prediction(checkpoint.load(folder.checkpoints, BEST))
    else:
        given = state.prediction_tensors(), {"position": state.facts()}, state.share(), trainer.ranks
        checkpoint.save(folder.checkpoints, BEST, *given)
    found = _look(trainer, data)
    trainer.save()
    position = state.position
    result: dict[str, Any] = {
        "dataset": data.graph.name,
        **{f"{split}_{name}": value for split, one in found.items() for name, value in one.metrics.items()},
        "energies": next((one.energies for one in found.values() if one.energies), []),
        "error_bound": (found.get("test") or found.get("valid") or _NOTHING).error_bound,
        "epochs": position.epoch,
        "best_epoch": position.best_epoch + 1,
        "seconds": round(position.seconds, 2),
        "ranks": trainer.ranks.size,
        "peak_rss_mb": round(max(trainer.ranks.gather_json(peak.bytes)) / 2**20, 1),
        "seed": config.training.seed,
        "parameters": sum(part.numel() for part in state.model.parameters()),
        "threads": torch.get_num_threads(),
        "device": str(device_of(state.model)),
        "expected": config.expected,
        **{key: record[key] for key in ("graph", "samples", "musegnn")},
    }
    trainer.listen(folder.log("end", **{k: v for k, v in result.items() if isinstance(v, int | float | str)}))
    if trainer.ranks.is_first:
        checkpoint.write_json(folder.path / "result.json", checkpoint.finite(result))
        write_page(folder.path)
    trainer.ranks.gather(b"")


def write_page(folder: Path) -> None:
    """report.html; a run that is finished does not fail for want of it."""
    try:
        write_report(folder)
    except Exception as error:
        reason = (" ".join(str(error).split()) or type(error).__name__).rstrip(".")
        warnings.warn(
            f"{folder} is finished, but has no report.html: {reason}. Later: muse report {folder}",
            stacklevel=4,
        )
