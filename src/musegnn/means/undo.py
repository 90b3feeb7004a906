"""What mapped means were before the last updates, so that a killed run can go back to its checkpoint.

A copy of M for each checkpoint would be as large as M. Instead, the rows that an update is about to change
are appended to a file. A record that is cut off belongs to an update that never began; one that is whole
and does not have its checksums is damaged, and then M cannot be taken back. Records carry the number of
their step; those before the checkpoint's are past.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from musegnn.errors import StoreError
from musegnn.means.embeddings import MeanEmbeddings
from musegnn.store import file_errors

_HEAD = struct.Struct("<qq")
_SUM = struct.Struct("<I")
_KEPT = "The last complete checkpoint is kept; free some space, then go on with `muse train --resume`."


class UndoLog:
    """`note` before an update, `clear` behind a checkpoint, `roll_back` to return to it."""

    def __init__(self, means: MeanEmbeddings, path: Path) -> None:
        self.means, self.path = means, path
        with file_errors(path):
            self._file = path.open("ab")

    def note(self, step: int, node_ids: np.ndarray) -> None:
        """Keep what these nodes have now; `step` is the number of the update that follows."""
        if not len(node_ids):
            return
        places = torch.from_numpy(np.asarray(node_ids, dtype=np.int64))
        head = _HEAD.pack(step, len(places))
        # Its own checksum: with a damaged count, whatever follows would look cut off.
        parts = [head, _SUM.pack(zlib.crc32(head))]
        parts += [_bytes(part) for part in (places, self.means.count[places], self.means.M[places])]
        total = 0
        with file_errors(self.path, _KEPT):
            for part in parts:
                total = zlib.crc32(part, total)
                self._file.write(part)
            self._file.write(_SUM.pack(total))
            # The page cache outlives a kill.
            self._file.flush()

    def clear(self) -> None:
        """All that was noted is past: a checkpoint holds."""
        with file_errors(self.path):
            self._file.truncate(0)

    @torch.no_grad()
    def roll_back(self, step: int) -> None:
        """Undo the updates from number `step` on, the newest first."""
        records = [record for record in self._records() if record[0] >= step]
        for _, begin, count in reversed(records):
            places, counts, rows = self._read(begin, count)
            self.means.count[places] = counts
            self.means.M[places] = rows
        self.means.flush()
        self.clear()

    def close(self) -> None:
        """Let go of the file. What could not be written was told by `note`; it is tried again in vain."""
        with suppress(OSError):
            self._file.close()

    def _records(self) -> Iterator[tuple[int, int, int]]:
        """Step, offset of the content and number of nodes of each whole record."""
        size = self.path.stat().st_size
        row = self.means.M.shape[1] * self.means.M.dtype.itemsize
        with self.path.open("rb") as file:
            while file.tell() + _HEAD.size + _SUM.size <= size:
                head, known = file.read(_HEAD.size), file.read(_SUM.size)
                self._check(known, zlib.crc32(head))
                (step, count), begin = _HEAD.unpack(head), file.tell()
                length = count * (8 + 4 + row)
                if begin + length + _SUM.size > size:
                    return
                total = zlib.crc32(file.read(length), zlib.crc32(head + known))
                self._check(file.read(_SUM.size), total)
                yield step, begin, count

    def _check(self, known: bytes, total: int) -> None:
        if known != _SUM.pack(total):
            raise StoreError(
                f"{self.path} is damaged: M cannot be taken back to its checkpoint. Train again."
            )

    def _read(self, begin: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        with self.path.open("rb") as file:
            file.seek(begin)
            places = torch.frombuffer(bytearray(file.read(8 * count)), dtype=torch.int64)
            counts = torch.frombuffer(bytearray(file.read(4 * count)), dtype=torch.int32)
            dim, dtype = self.means.M.shape[1], self.means.M.dtype
            rows = torch.frombuffer(bytearray(file.read(count * dim * dtype.itemsize)), dtype=dtype)
        return places, counts, rows.view(count, dim)


def _bytes(part: Tensor) -> bytes:
    return part.contiguous().view(torch.uint8).numpy().tobytes()
