"""One thread: the matrices are small, and the tests already share the cores."""

from machine import one_thread as one_thread
