"""What goes wrong in a run, said with the place it went wrong in and with what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager

from musegnn.errors import DivergenceError, InputError, RankError
from musegnn.memory import is_out_of_memory
from musegnn.training.batches import Batch
from musegnn.training.config import Config
from musegnn.training.outcome import place_of


@contextmanager
def told_where(batch: Batch | None, epoch: int, config: Config) -> Iterator[None]:
    """What goes wrong in a step is said with the sample and the epoch it went wrong in."""
    where = f"Epoch {epoch + 1}, no sample" if batch is None else place_of(batch, epoch)
    size = "" if batch is None else f" of {batch.sample.num_nodes:,} nodes"
    memory = told_memory(where + size, config)
    with told_divergence(where), memory:
        yield


@contextmanager
def told_divergence(where: str) -> Iterator[None]:
    """A run that diverges is said with the place; with the same settings it would do so again."""
    try:
        yield
    except DivergenceError as error:
        raise DivergenceError(
            f"{where}: {error} A run keeps its settings: begin another, or this one with --overwrite. "
            "The last checkpoint is kept.",
            step=error.step,
            energy=error.energy,
        ) from error


@contextmanager
def told_memory(where: str, config: Config) -> Iterator[None]:
    """Out of memory is said with what to lower."""
    try:
        yield
    except RankError:
        # It is another rank's memory that it may speak of.
        raise
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"{where}: out of memory with hidden={config.model.hidden} and steps={config.model.steps}. "
            "Lower batch_size or fanouts (smaller samples), or hidden; "
            "with gamma > 0 and M too large for memory, --set means_home=disk."
        ) from error
