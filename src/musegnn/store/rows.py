"""Rows of a table by their numbers; what is not in memory is read in sorted, merged pieces, many at once."""

import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from jaxtyping import Int64, Integer, Shaped

from musegnn.errors import StoreError
from musegnn.memory import SHARE, free_memory

GAP = 1 << 14
"""Bytes between two rows that are read along: to ask for the second row apart would take longer."""
PIECE = 1 << 22
"""Bytes of a piece, at most."""
WINDOW, WINDOW_BYTES = 1024, 1 << 24
"""Pieces that the disk is told of before the first of them is waited for."""
PROBES = 32
Window = Int64[np.ndarray, " pieces_plus_1"]
"""Where its pieces begin among the rows that are asked for, ascending, and where the last one ends."""
Pieces = tuple[Int64[np.ndarray, " pieces"], Int64[np.ndarray, " pieces"]]


class Rows:
    """Rows of a table, in memory or mapped.

    The file behind a mapped table is read by system calls, with hints ahead of them, unless all rows that are
    looked at are in the page cache: a page fault waits for one page at a time, and a disk that fails would
    kill the process.
    """

    def __init__(self, table: Shaped[np.ndarray, "nodes in_dim"]) -> None:
        self.table = table
        self.row_bytes = table.shape[1] * table.itemsize
        self._file = _open(table) if is_mapped(table) and table.nbytes else None
        if self._file is not None:
            weakref.finalize(self, os.close, self._file)
            self._check_same()

    def gather(
        self,
        numbers: Integer[np.ndarray, " rows"],
        out: Shaped[np.ndarray, "rows in_dim"],
        threads: int = 1,
    ) -> None:
        """out[i] <- row `numbers[i]`; any order, repeats allowed."""
        if self._file is None or not len(numbers) or self._is_in_memory(numbers):
            # `take` lets other threads run.
            np.take(self.table, numbers, axis=0, out=out, mode="clip")
            return
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order].astype(np.int64)
        windows = list(_windows(ascending, self.row_bytes))

        def read(share: list[np.ndarray]) -> None:
            # The disk works on the next window while this one is waited for.
            told: deque[Pieces] = deque()
            for number, window in enumerate(share):
                while len(told) < min(2, len(share) - number):
                    told.append(self._announce(ascending, share[number + len(told)]))
                out[order[window[0] : window[-1]]] = self._read(ascending, window, told.popleft())

        if threads <= 1 or len(windows) <= threads:
            read(windows)
            return
        step = -(-len(windows) // threads)
        with ThreadPoolExecutor(threads, thread_name_prefix="musegnn-rows") as pool:
            list(pool.map(read, [windows[begin : begin + step] for begin in range(0, len(windows), step)]))

    def _announce(self, ascending: Int64[np.ndarray, " rows"], window: Window) -> Pieces:
        """Tell the disk of all pieces of a window, and do not wait: first row, number of rows of each."""
        assert self._file is not None
        firsts = ascending[window[:-1]]
        spans = ascending[window[1:] - 1] - firsts + 1
        size, offset, advice = self.row_bytes, self._offset, os.POSIX_FADV_WILLNEED
        for first, span in zip(firsts.tolist(), spans.tolist(), strict=True):
            os.posix_fadvise(self._file, offset + first * size, span * size, advice)
        return firsts, spans

    def _read(
        self, ascending: Int64[np.ndarray, " rows"], window: Window, pieces: Pieces
    ) -> Shaped[np.ndarray, "found in_dim"]:
        """The rows of a window."""
        assert self._file is not None
        firsts, spans = pieces
        ends = np.cumsum(spans)
        buffer = np.empty((int(ends[-1]), self.table.shape[1]), self.table.dtype)
        view, size = as_bytes(buffer), self.row_bytes
        begin = 0
        for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
            read_into(self._file, view[begin * size : end * size], self._offset + first * size, self._path)
            begin = end
        places = np.repeat(ends - spans - firsts, np.diff(window))
        found: np.ndarray = buffer[ascending[window[0] : window[-1]] + places]
        return found

    def _is_in_memory(self, numbers: Integer[np.ndarray, " rows"]) -> bool:
        """Whether all rows of a few are in the page cache."""
        assert self._file is not None
        row = bytearray(self.row_bytes)
        for number in numbers[:: -(-len(numbers) // PROBES)].tolist():
            try:
                where = self._offset + number * self.row_bytes
                if os.preadv(self._file, [row], where, os.RWF_NOWAIT) < len(row):
                    return False
            except BlockingIOError:
                return False
            except OSError:
                # A file system that does not say: what fits is taken to be there.
                return self.table.nbytes <= SHARE * free_memory()
        return True

    @property
    def _offset(self) -> int:
        return int(getattr(self.table, "offset", 0))

    @property
    def _path(self) -> Path:
        return Path(str(getattr(self.table, "filename", "")))

    def _check_same(self) -> None:
        """The mapping shows the file that was mapped, whatever has its name now."""
        assert self._file is not None
        row = np.empty((1, self.table.shape[1]), self.table.dtype)
        for number in (0, len(self.table) - 1):
            where = self._offset + number * self.row_bytes
            read_into(self._file, as_bytes(row), where, self._path)
            if row.tobytes() != self.table[number].tobytes():
                raise StoreError(f"{self._path} was replaced after it was opened. Open it again.")


def is_mapped(table: np.ndarray) -> bool:
    """Whether a table is all of a mapping, and not a part of one, whose place in the file is not known."""
    return (
        isinstance(table, np.memmap)
        and isinstance(table.base, mmap.mmap)
        and table.flags.c_contiguous
        and table.filename is not None
    )


def read_into(file: int, view: memoryview, offset: int, path: Path) -> None:
    """Fill all of `view` from a file; one that ends before is damaged."""
    done = 0
    while done < len(view):
        try:
            count = os.preadv(file, [view[done:]], offset + done)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}. Check the disk.") from error
        if count == 0:
            raise StoreError(f"{path} was cut off while it was in use. Write it again.")
        done += count


def as_bytes(array: np.ndarray) -> memoryview:
    """The bytes of a contiguous array, to be read or written."""
    return array.reshape(-1).view(np.uint8).data


def _open(table: np.ndarray) -> int:
    path = Path(str(table.filename))  # type: ignore[attr-defined]
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise StoreError(f"{path} cannot be opened: {error.strerror}. Open the graph again.") from error
    # Rows lie far apart: reading on behind one of them fetches what nobody wants.
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    return file


def _windows(ascending: Int64[np.ndarray, " rows"], row_bytes: int) -> Iterator[Window]:
    """Rows that lie close to each other make a piece, some pieces a window."""
    is_far = np.diff(ascending) * row_bytes > GAP + row_bytes
    run = np.concatenate([[0], np.cumsum(is_far)])
    run_first = ascending[np.concatenate([[0], np.flatnonzero(is_far) + 1])][run]
    begins = _changes(run, (ascending - run_first) * row_bytes // PIECE)
    spans = (ascending[np.append(begins[1:], len(ascending)) - 1] - ascending[begins] + 1) * row_bytes
    windows = _changes(np.arange(len(begins)) // WINDOW, np.cumsum(spans) // WINDOW_BYTES)
    ends = np.append(begins, len(ascending))
    for first, last in zip(windows, np.append(windows[1:], len(begins)), strict=True):
        yield ends[first : last + 1]


def _changes(*keys: np.ndarray) -> Int64[np.ndarray, " parts"]:
    """Where a new part begins: at 0, and where any of the keys is another than before."""
    is_new = np.any([np.diff(key) != 0 for key in keys], axis=0)
    return np.concatenate([[0], np.flatnonzero(is_new) + 1])
