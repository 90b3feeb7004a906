"""Kernels side by side in threads; Numba's own threading layers must not be entered by two at once."""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any


def run(function: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], threads: int) -> None:
    """Call the function with each of the tasks, which must not depend on one another."""
    if threads == 1:
        for task in tasks:
            function(*task)
        return
    pending = [_pool(threads).submit(function, *task) for task in tasks]
    for future in pending:
        future.result()


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="musegnn-kernel")


# The threads of a pool do not survive a fork.
os.register_at_fork(after_in_child=_pool.cache_clear)
