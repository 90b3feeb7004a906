"""Work done by several threads, taken in order, a few pieces ahead."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, overload

import numpy as np

Result = TypeVar("Result")


@overload
def in_order(
    pool: ThreadPoolExecutor, tasks: Iterable[np.ndarray | Callable[[], np.ndarray]], ahead: int
) -> Iterator[np.ndarray]: ...
@overload
def in_order(
    pool: ThreadPoolExecutor, tasks: Iterable[Callable[[], Result]], ahead: int
) -> Iterator[Result]: ...
def in_order(pool: ThreadPoolExecutor, tasks: Iterable[Any], ahead: int) -> Iterator[Any]:
    """The results of tasks in their order, at most `ahead` of them under way, so that memory stays bounded.

    An array among them is a result already. It waits for all before it and is handed on before the next is
    asked for, so that whoever yields it may rely on it having been taken.
    """
    pending: deque[Future[Any]] = deque()
    for task in tasks:
        if callable(task):
            pending.append(pool.submit(task))
        while len(pending) >= ahead or (pending and not callable(task)):
            yield pending.popleft().result()
        if not callable(task):
            yield task
    while pending:
        yield pending.popleft().result()


def default_workers() -> int:
    """One thread for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
