"""Some ranks of one job, as forks of the test: `together(3, work)` gives what `work(ranks)` made on each."""

import multiprocessing
import os
import signal
import socket
import traceback
from contextlib import nullcontext
from datetime import timedelta
from multiprocessing.connection import wait

import torch
from torch.distributed import TCPStore

import tiny_runs
from musegnn.cli.main import main
from musegnn.ranks import Ranks, board, join


class RankFailedError(Exception):
    """What went wrong, on which rank."""


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Started(list):
    """A process and a pipe for each rank; what comes through is (result, None) or (None, error)."""

    launcher = None


def start(size, work, *, timeout=30.0, roll_call=1.0, restarts=0, has_launcher=True, joins=True):
    """The ranks, with this process as their launcher; without one, rank 0 keeps the notes.

    `work` gets the ranks, or joins them itself.
    """
    context, port, started = multiprocessing.get_context("fork"), free_port(), Started()
    for rank in range(size):
        here, there = context.Pipe(duplex=False)
        environment = {
            "RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "tests",
            "TORCHELASTIC_RESTART_COUNT": restarts, "TORCHELASTIC_USE_AGENT_STORE": has_launcher,
        }  # fmt: skip
        given = work, there, environment, timeout, roll_call, joins
        process = context.Process(target=_child, args=given)
        process.start()
        there.close()
        started.append((process, here))
    if has_launcher:
        limit = timedelta(seconds=30)
        started.launcher = TCPStore("127.0.0.1", port, None, True, limit, wait_for_workers=False)
    return started


def _child(work, pipe, environment, timeout, roll_call, joins):
    os.environ |= {name: str(value) for name, value in environment.items()}
    board.TIMEOUT, board.ROLL_CALL = timeout, roll_call
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    torch.set_num_threads(1)
    try:
        with join() if joins else nullcontext(Ranks(environment["RANK"])) as ranks:
            pipe.send((work(ranks), None))
    except BaseException as error:
        traceback.print_exc()
        pipe.send((None, error))
    pipe.close()
    # Not the clean-up of the tests that this is a fork of.
    os._exit(0)


def results(started, seconds=60.0, without=()):
    """(result, error) of each rank; (None, None) of one that was killed, or is not waited for."""
    found = [(None, None)] * len(started)
    waiting = {here: rank for rank, (_, here) in enumerate(started) if rank not in without}
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
        started.launcher = None
    return found


def together(size, work, *, roll_call=5.0, **options):
    """What each rank made of it; the first error that was no answer to another's.

    Nobody is to be missed: a slow machine has the time that a user's has.
    """
    found = results(start(size, work, roll_call=roll_call, **options))
    errors = {rank: error for rank, (_, error) in enumerate(found) if error is not None}
    if errors:
        rank = min(errors, key=lambda rank: (type(errors[rank]).__name__ == "RankError", rank))
        raise RankFailedError(f"rank {rank}: {errors[rank]}") from errors[rank]
    return [result for result, _ in found]


def at_call(owner, name, number, act):
    """In this process, `act` at one of the calls of a function; it gets the first argument."""
    before, calls = getattr(owner, name), []

    def patched(*given, **named):
        calls.append(0)
        if len(calls) == number:
            act(given[0] if given else None)
        return before(*given, **named)

    setattr(owner, name, patched)


def die(_=None):
    os.kill(os.getpid(), signal.SIGKILL)


def alone(folder, settings):
    """A graph, and what one process makes of it that takes two samples a step."""
    tiny_runs.tiny_graph().save(folder / "graph")
    given = "train", folder / "graph", *settings, "--stores", folder / "stores"
    assert main([*map(str, given), "--set", "samples_per_step=2", "--out", str(folder / "one")]) == 0
    return folder
