"""Some ranks of one job, as forks of the test: `together(3, work)` gives what `work(ranks)` made on each."""

import multiprocessing
import os
import signal
import socket
import traceback
from multiprocessing.connection import wait

import torch

from musegnn.ranks import board, join


class RankFailedError(Exception):
    """What went wrong, on which rank."""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start(size, work, *, timeout=30.0, restarts=0):
    """A process and a pipe for each rank; what comes through is (result, None) or (None, error)."""
    context, port, started = multiprocessing.get_context("fork"), free_port(), []
    for rank in range(size):
        here, there = context.Pipe(duplex=False)
        environment = {
            "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port), "TORCHELASTIC_RESTART_COUNT": str(restarts),
        }  # fmt: skip
        process = context.Process(target=_child, args=(work, there, environment, timeout), daemon=True)
        process.start()
        there.close()
        started.append((process, here))
    return started


def _child(work, pipe, environment, timeout):
    os.environ |= environment
    board.TIMEOUT = timeout
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    try:
        with join() as ranks:
            pipe.send((work(ranks), None))
    except BaseException as error:
        traceback.print_exc()
        pipe.send((None, error))
    pipe.close()
    # Not the clean-up of the tests that this is a fork of.
    os._exit(0)


def results(started, seconds=60.0):
    """(result, error) of each rank; (None, None) of one that was killed."""
    found = [(None, None)] * len(started)
    waiting = {here: rank for rank, (_, here) in enumerate(started)}
    try:
        while waiting:
            ready = wait(list(waiting), seconds)
            assert ready, f"ranks {sorted(waiting.values())} hang"
            for here in ready:
                rank = waiting.pop(here)
                try:
                    found[rank] = here.recv()
                except EOFError:
                    pass
    finally:
        for process, _ in started:
            process.kill()
            process.join()
    return found


def together(size, work, **options):
    """What each rank made of it; the first error that was no answer to another's."""
    found = results(start(size, work, **options))
    errors = {rank: error for rank, (_, error) in enumerate(found) if error is not None}
    if errors:
        rank = min(errors, key=lambda rank: (type(errors[rank]).__name__ == "RankError", rank))
        raise RankFailedError(f"rank {rank}: {errors[rank]}") from errors[rank]
    return [result for result, _ in found]
