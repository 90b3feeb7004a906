"""How ranks find each other."""

import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from musegnn.errors import RankError
from musegnn.ranks import board
from musegnn.ranks.ranks import ALONE, Ranks, current, set_current

_SIOCGIFADDR = 0x8915
_joined = [0]
"""How often this process has met the others."""


def is_launched() -> bool:
    """Whether a launcher such as torchrun has started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def job() -> str:
    """A name for all attempts of one launcher to start these ranks; empty without a launcher."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return ""
    parent = os.getppid()
    try:
        with open(f"/proc/{parent}/stat") as file:
            # Behind the name, which may have spaces: the 20th field is when it started.
            began = file.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        began = ""
    return f"{os.environ['TORCHELASTIC_RUN_ID']}/{parent}/{began}"


@contextmanager
def join() -> Iterator[Ranks]:
    """Meet the other ranks, if there are some; until the context ends, `current` are these."""
    if not is_launched() or not current().is_alone:
        yield current()
        return
    import torch.distributed as dist

    ranks = _meet()
    assert ranks.board is not None
    set_current(ranks)
    try:
        yield ranks
    except RankError:
        raise
    except KeyboardInterrupt as error:
        ranks.board.say_failed(board.INTERRUPTED)
        # A launcher that misses a rank interrupts the others.
        if ranks.board.is_one_silent():
            raise ranks.board.missing("the others were interrupted") from error
        raise
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code:
            ranks.board.say_failed(board.sentence(error))
        raise
    finally:
        set_current(ALONE)
        ranks.board.close()
        # Without the others this would wait for them.
        with suppress(Exception):
            dist.destroy_process_group()


def _meet() -> Ranks:
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    rank, size, local = (int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    board.check_timeout()
    limit = timedelta(seconds=board.TIMEOUT)
    _choose_interface(os.environ.get("MASTER_ADDR", ""))
    try:
        store, _, _ = next(rendezvous("env://", timeout=limit))
        restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        # The launcher's notes outlive a restart, and an earlier meeting.
        _joined[0] += 1
        store = PrefixStore(f"musegnn/{restarts}/{_joined[0]}", store)
        notes = board.Board(PrefixStore("notes", store), rank, size)
        # Before torch looks for them: it would not hear a signal meanwhile.
        notes.meet()
        has_gpu = dist.is_nccl_available() and torch.cuda.is_available()
        backend = "cpu:gloo,cuda:nccl" if has_gpu else "gloo"
        dist.init_process_group(
            backend, store=PrefixStore("group", store), rank=rank, world_size=size, timeout=limit
        )
    except RankError:
        raise
    except (RuntimeError, ValueError, TimeoutError) as error:
        raise RankError(
            f"Rank {rank} of {size} could not meet the others within {board.TIMEOUT:g} s "
            f"({board.reason(error)}). Start it with torchrun, and look whether every machine reaches the "
            "others (GLOO_SOCKET_IFNAME names the network interface)."
        ) from error
    return Ranks(rank, size, local, restarts, notes)


def _choose_interface(master: str) -> None:
    """Gloo takes the address that the host's own name has, often 127.0.1.1; the way to rank 0 is surer."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # This sends nothing.
        probe.connect((master, 9))
        address = probe.getsockname()[0]
        is_one_host = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
        if address.startswith("127.") and not is_one_host:
            return
        for _, name in socket.if_nameindex():
            # Some have no address.
            with suppress(OSError):
                found = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(found[20:24]) == address:
                    os.environ["GLOO_SOCKET_IFNAME"] = name
                    return
