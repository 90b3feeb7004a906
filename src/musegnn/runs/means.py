"""M of a run: where it lies, in how many shares, and how they change with the number of ranks."""

from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch

from musegnn.errors import InputError, StoreError
from musegnn.features.homes import fits
from musegnn.means import MeanEmbeddings
from musegnn.means.sharded import Means, Movable, ShardedMeans, copy_share
from musegnn.means.undo import UndoLog
from musegnn.ranks import Ranks, current
from musegnn.training.config import Config
from musegnn.training.folder import RunFolder


def make_means(config: Config, num_nodes: int, folder: RunFolder, device: torch.device) -> Movable | None:
    """M, where the config says; None if gamma is 0. Of several ranks, each has a share."""
    ranks, settings = current(), config.means
    if not config.has_means:
        return None
    dtype: torch.dtype = getattr(torch, settings.means_dtype)
    num_own = ShardedMeans.num_own(num_nodes, ranks)
    fits_here = device.type != "cpu" and fits(num_own * config.model.hidden * dtype.itemsize, device)
    # Rows go from GPU to GPU, or from memory to memory.
    is_on_device = all(ranks.gather_json(fits_here))
    home: Any = "device" if is_on_device else "host"
    if settings.means_home == "disk":
        home = folder.share_of_means(ranks.rank, ranks.size)
    # Made where it stays: it may not fit anywhere else.
    with device if home == "device" else nullcontext():
        own = MeanEmbeddings(num_own, config.model.hidden, settings.rho, home=home, dtype=dtype)
    return own if ranks.is_alone else ShardedMeans(own, num_nodes, ranks)


def homes_of(folder: RunFolder, size: int) -> list[Path]:
    """Where `size` ranks have written their shares of a mapped M; the first that is missing is refused."""
    homes = []
    # A checkpoint may say any number: none is believed beyond the folders that are there.
    for rank in range(size):
        homes.append(folder.share_of_means(rank, size))
        if not (homes[-1] / "M.bin").is_file():
            raise StoreError(f"{homes[-1]} has lost the means of this run. Put them back, or train again.")
    return homes


def mapped_means(config: Config, num_nodes: int, folder: RunFolder, size: int) -> list[MeanEmbeddings]:
    """The shares of a mapped M that `size` ranks have written."""
    shares = []
    for rank, home in enumerate(homes_of(folder, size)):
        num_own = ShardedMeans.num_own(num_nodes, Ranks(rank, size))
        dtype: torch.dtype = getattr(torch, config.means.means_dtype)
        shares.append(MeanEmbeddings(num_own, config.model.hidden, config.means.rho, home=home, dtype=dtype))
    return shares


def own_part(means: Movable) -> MeanEmbeddings:
    """The rows of M that this process holds."""
    return means.own if isinstance(means, ShardedMeans) else means


def share_out(
    shares: list[MeanEmbeddings], means: Movable, folder: RunFolder, step: int, ranks: Ranks
) -> None:
    """Fill the own rows from the shares of those who wrote them, as they were before `step`.

    The old ones stay until a checkpoint says that there are new ones.
    """

    def undo() -> None:
        for number, share in enumerate(shares):
            log = UndoLog(share, folder.share_of_means(number, len(shares)) / "undo.bin")
            log.roll_back(step)
            log.close()

    ranks.once(undo)
    own = own_part(means)
    for number, share in enumerate(shares):
        copy_share(own, (ranks.rank, ranks.size), share.M, share.count, (number, len(shares)))
    own.flush()


def moving_copy(means: Means | None, how: str, run: Path) -> MeanEmbeddings:
    """A copy of M that an evaluation may move."""
    option = "update_means=True (--update-means)"
    if how != "stored":
        raise InputError(f"{option} is for stored samples, got how={how!r}. Leave one of the two out.")
    if means is None:
        raise InputError(f"{run} has no M, since gamma is 0. Leave {option} out.")
    if not current().is_alone:
        raise InputError(f"{option} is for one process, got {current().size} ranks. Leave it out.")
    if isinstance(means.home, Path):
        raise InputError(
            f"M of {run} lies on disk (means_home=disk), and {option} needs a copy of it in memory. "
            "Leave it out."
        )
    assert isinstance(means, MeanEmbeddings)
    return deepcopy(means)
