"""Messages between the ranks of a job."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from jaxtyping import Float64, Int64

from musegnn.errors import InputError, RankError
from musegnn.ranks.board import Board, sentence

if TYPE_CHECKING:
    import torch

Result = TypeVar("Result")


@dataclass(frozen=True)
class Ranks:
    """All ranks, seen from one of them."""

    rank: int = 0
    size: int = 1
    local: int = 0
    """Its number on this machine: that of its GPU."""
    restarts: int = 0
    """How often the launcher has started all ranks anew."""
    board: Board | None = field(default=None, repr=False)
    """Short notes for all; None if there is nobody else."""

    @property
    def is_first(self) -> bool:
        """Whether this is the rank that speaks, and writes what there is once."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """Whether there are no others."""
        return self.size == 1

    def share(self, count: int) -> range:
        """The items that are this rank's: every `size`-th."""
        return range(self.rank, count, self.size)

    def gather(self, body: bytes) -> list[bytes]:
        """What each rank has, in their order."""
        if self.is_alone:
            return [body]
        import torch

        sizes = self.gather_numbers(np.array([len(body)], dtype=np.int64))[:, 0]
        mine = torch.zeros(int(sizes.max()), dtype=torch.uint8)
        mine[: len(body)] = torch.frombuffer(bytearray(body), dtype=torch.uint8) if body else mine[:0]
        others = [torch.empty_like(mine) for _ in range(self.size)]
        with self.told():
            torch.distributed.all_gather(others, mine)
        return [part[:size].numpy().tobytes() for part, size in zip(others, sizes.tolist(), strict=True)]

    def gather_json(self, value: Any) -> list[Any]:
        """What each rank has, in their order: anything that JSON can say."""
        return [json.loads(body) for body in self.gather(json.dumps(value).encode())]

    def gather_arrays(
        self, facts: Any, arrays: Sequence[np.ndarray] = ()
    ) -> list[tuple[Any, list[np.ndarray]]]:
        """What each rank has, in their order: what JSON can say, and arrays of any kind."""
        if self.is_alone:
            return [(facts, list(arrays))]
        kinds = [[array.dtype.str, array.shape] for array in arrays]
        head = json.dumps([facts, kinds]).encode()
        parts = [len(head).to_bytes(8, "little"), head, *(array.tobytes() for array in arrays)]
        return [_unpacked(body) for body in self.gather(b"".join(parts))]

    def gather_numbers(self, numbers: np.ndarray) -> np.ndarray:
        """A row of numbers of each rank, as many of each."""
        if self.is_alone:
            return numbers[None]
        import torch

        mine = torch.from_numpy(np.ascontiguousarray(numbers))
        others = [torch.empty_like(mine) for _ in range(self.size)]
        with self.told():
            torch.distributed.all_gather(others, mine)
        return np.stack([part.numpy() for part in others])

    def add_up(self, numbers: Float64[np.ndarray, " count"]) -> Float64[np.ndarray, " count"]:
        """Their sum over the ranks, added up in their order: the same bits everywhere."""
        return numbers if self.is_alone else self.gather_numbers(numbers).sum(axis=0)

    def add_up_tensor(self, number: "torch.Tensor") -> "torch.Tensor":
        """The sum over the ranks, where the tensors are; nobody waits for a GPU."""
        if not self.is_alone:
            import torch

            with self.told():
                torch.distributed.all_reduce(number)
        return number

    def exchange(
        self, rows: "torch.Tensor", send: Int64[np.ndarray, " ranks"], receive: Int64[np.ndarray, " ranks"]
    ) -> "torch.Tensor":
        """Rows that lie in the order of the ranks they are for; those of the others, in their order."""
        import torch

        rows = rows.contiguous()
        got = rows.new_empty((int(receive.sum()), *rows.shape[1:]))
        # As bytes: not every backend knows every dtype.
        width = rows.element_size() * int(np.prod(rows.shape[1:], dtype=np.int64))
        # NumPy's empty arrays have strides that torch does not view.
        parts = (part.reshape(-1) if len(part) else part.new_empty(0) for part in (got, rows))
        into, given = (part.view(torch.uint8) for part in parts)
        with self.told():
            splits = [(width * counts).tolist() for counts in (receive, send)]
            torch.distributed.all_to_all_single(into, given, *splits)
        return got

    def once(self, work: Callable[[], object]) -> None:
        """Rank 0 does it, however long it takes, and the others wait.

        If it fails there, it fails everywhere, with the same sentence.
        """
        try:
            if self.is_first:
                work()
        except Exception as error:
            if self.board is not None:
                said = [isinstance(error, InputError), sentence(error)]
                self.board.put(self.board.next_turn(), json.dumps([None, said]))
            raise
        self.tell(None)

    def first(self, work: Callable[[], Result]) -> Result:
        """Rank 0 does it `once`; then the others do, and find it done."""
        found: list[Result] = []
        self.once(lambda: found.append(work()))
        return found[0] if found else work()

    def tell(self, value: Any) -> Any:
        """What rank 0 has to say, to all; they wait for it, however long."""
        if self.board is None:
            return value
        turn = self.board.next_turn()
        if self.is_first:
            self.board.put(turn, json.dumps([value, None]))
            return value
        self.board.wait_for([turn])
        value, failed = json.loads(self.board.get(turn))
        if failed is not None:
            is_input, message = failed
            raise InputError(message) if is_input else RankError(f"Rank 0 has stopped: {message}")
        return value

    def wait(self) -> None:
        """Until every rank is here, however long it takes."""
        if self.board is not None:
            turn = self.board.next_turn()
            self.board.put(f"{turn}/{self.rank}", "here")
            self.board.wait_for([f"{turn}/{rank}" for rank in range(self.size)])

    def check_same(self, facts: dict[str, Any]) -> None:
        """All ranks must say the same, or the first that does not is named."""
        if self.is_alone:
            return
        told = self.gather_json(facts)
        for rank, other in enumerate(told):
            for name, value in told[0].items():
                if other[name] != value:
                    here, there = _short(value), _short(other[name])
                    raise InputError(
                        f"Rank {rank} has {name} {there}, rank 0 has {here}; all must be alike. "
                        "Start the same command with the same files and versions everywhere."
                    )

    def told(self) -> AbstractContextManager[None]:
        """What goes wrong between ranks is said with the rank that is missing."""
        return nullcontext() if self.board is None else self.board.told()


# A launcher can start a single process anew, too.
ALONE = Ranks(restarts=int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))
_current = [ALONE]


def current() -> Ranks:
    """The ranks of this job; alone unless `join` is in effect."""
    return _current[0]


def set_current(ranks: Ranks) -> None:
    """For `join`."""
    _current[0] = ranks


def _unpacked(body: bytes) -> tuple[Any, list[np.ndarray]]:
    begin = 8 + int.from_bytes(body[:8], "little")
    facts, kinds = json.loads(body[8:begin])
    arrays = []
    for dtype, shape in kinds:
        count = int(np.prod(shape, dtype=np.int64))
        arrays.append(np.frombuffer(body, dtype, count, begin).reshape(shape).copy())
        begin += arrays[-1].nbytes
    return facts, arrays


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
