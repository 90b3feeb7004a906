"""Order, read-ahead and arrays among tasks."""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest

from musegnn.graph.threads import in_order


@pytest.mark.parametrize("workers", [1, 3])
def test_results_come_in_the_order_of_their_tasks(workers):
    def slow_first(i):
        time.sleep(0.02 if i == 0 else 0)
        return i

    with ThreadPoolExecutor(workers) as pool:
        assert list(in_order(pool, (partial(slow_first, i) for i in range(20)), workers)) == list(range(20))


def test_an_array_is_taken_before_the_next_is_asked_for():
    """MAG240M's institutions are means of authors that must have been written by then."""
    taken = []

    def blocks():
        for i in range(5):
            yield partial(np.full, 3, i)
        for i in range(5, 8):
            yield np.full(3, i)
            assert taken == list(range(i + 1))
        yield partial(np.full, 3, 8)

    with ThreadPoolExecutor(2) as pool:
        for block in in_order(pool, blocks(), 2):
            taken.append(int(block[0]))
    assert taken == list(range(9))


def test_an_error_in_a_thread_reaches_the_caller():
    def broken():
        raise ZeroDivisionError

    with ThreadPoolExecutor(2) as pool, pytest.raises(ZeroDivisionError):
        list(in_order(pool, [broken], 2))
