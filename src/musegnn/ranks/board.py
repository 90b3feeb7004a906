"""Short notes that all ranks read, kept by the launcher: what was decided, who is alive, who has failed."""

import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import TYPE_CHECKING, TypeVar

from musegnn.errors import InputError, RankError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

_WANTED = os.environ.get("MUSEGNN_RANK_TIMEOUT", "300")
TIMEOUT = float(_WANTED) if re.fullmatch(r"\d+(\.\d+)?", _WANTED) else 300.0
"""Seconds that a rank waits for another one in the middle of common work."""
ROLL_CALL = 5.0
"""Seconds within which a rank shows that it is alive."""
_BEATS = 10
"""How often it shows that in this time."""
_LOOK = 0.2
_OF_RANKS = re.compile(r"gloo|nccl|c10d|DistBackend|connection|timed out|socket|broken pipe", re.IGNORECASE)
"""What torch's errors say when it is another rank that is missing, all of them plain RuntimeErrors."""
_GO_ON = "The last checkpoint is kept: start the same command again to go on, for `train` with --resume."
INTERRUPTED = "It was interrupted."
Result = TypeVar("Result")


class Board:
    """The notes, seen from one rank. The launcher may be out of reach: no call waits for it for ever."""

    def __init__(self, store: "Store", rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self._ended, self._turn = Event(), 0
        self._beat(0)
        self._pulse = Thread(target=self._show_alive, daemon=True)
        self._pulse.start()

    def close(self) -> None:
        """Show no longer that this rank is alive."""
        self._ended.set()
        self._pulse.join(_LOOK)

    def next_turn(self) -> str:
        """A name for the next note that all ranks know of."""
        self._turn += 1
        return f"turn/{self._turn}"

    def put(self, key: str, value: str) -> None:
        """A note for all."""
        self._ask(lambda: self.store.set(key, value))

    def get(self, key: str) -> str:
        """A note that is there."""
        return self._ask(lambda: self._read([key])[0])

    def say_failed(self, message: str) -> None:
        """Leave a sentence for the others, who would wait in vain."""
        with suppress(Exception):
            _within(ROLL_CALL, lambda: self.store.set(f"failed/{self.rank}", message))

    def is_said_by_first(self, error: Exception) -> bool:
        """Whether rank 0 fails with this very sentence, so that nobody needs to hear it twice."""
        deadline = time.monotonic() + ROLL_CALL / 2
        with suppress(Exception):
            while self.rank and time.monotonic() < deadline:
                if 0 in _within(ROLL_CALL, self._failed):
                    return self.get("failed/0") == sentence(error)
                time.sleep(_LOOK)
        return False

    def meet(self) -> None:
        """Until all ranks are there; at most `TIMEOUT` seconds."""
        deadline, absent = time.monotonic() + TIMEOUT, [0]
        while absent:
            if time.monotonic() > deadline:
                raise RankError(
                    f"{_ranks(absent, self.size)} did not come within {TIMEOUT:g} s. "
                    "Start torchrun on every machine, with the same --nnodes and --master-addr."
                )
            absent = self._ask(self._absent)
            time.sleep(_LOOK if absent else 0)

    def wait_for(self, keys: list[str]) -> None:
        """Until somebody has put them all, however long; not if a rank has failed, or is silent."""
        beats, heard = [""] * self.size, [time.monotonic()] * self.size
        while True:
            # Read first: who has failed by now may have put its note before.
            failed = self._ask(self._failed)
            if self._ask(lambda: self.store.check(keys)):
                return
            if failed:
                raise self.missing("it has failed")
            now = time.monotonic()
            for rank, beat in enumerate(self._ask(self._beats)):
                heard[rank] = heard[rank] if beat == beats[rank] else now
                beats[rank] = beat
            if now - min(heard) > TIMEOUT:
                raise self.missing(f"silent for {TIMEOUT:g} s")
            time.sleep(_LOOK)

    @contextmanager
    def told(self) -> Iterator[None]:
        """What goes wrong between ranks is said with the rank that is missing."""
        try:
            yield
        except RuntimeError as error:
            if not _OF_RANKS.search(f"{type(error).__name__} {error}"):
                raise
            raise self.missing(reason(error)) from error

    def missing(self, why: str) -> RankError:
        """Call the roll: which rank failed, and with what, or does not answer at all."""
        try:
            failed, late, silent = _within(2 * ROLL_CALL, self._call_roll)
        except Exception:
            # Without torchrun it is rank 0 that keeps the notes.
            is_kept_apart = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            lost = "the launcher on the first machine" if is_kept_apart else "rank 0"
            return RankError(f"Rank {self.rank} does not reach {lost} any more ({why}). {_GO_ON}")
        if silent:
            named, verb = _ranks(silent, self.size), "does" if len(silent) == 1 else "do"
            return RankError(f"{named} {verb} not answer: killed, stuck or cut off ({why}). {_GO_ON}")
        if failed:
            rank, message = min(failed.items(), key=lambda one: one[1] == INTERRUPTED)
            return RankError(f"Rank {rank} has stopped: {message}")
        if late:
            return RankError(
                f"{_ranks(late, self.size)} did not come in time ({why}): alive, but slow or stuck. "
                f"MUSEGNN_RANK_TIMEOUT, now {TIMEOUT:g} s, lets the others wait longer. {_GO_ON}"
            )
        return RankError(f"The ranks have lost touch with each other ({why}). {_GO_ON}")

    def is_one_silent(self) -> bool:
        """Whether a rank is gone without a word."""
        with suppress(Exception):
            return bool(_within(2 * ROLL_CALL, self._call_roll)[2])
        return False

    def _call_roll(self) -> tuple[dict[int, str], list[int], list[int]]:
        """Who has failed, and how; who has not come to the roll call; who of them shows no sign of life."""
        others = [rank for rank in range(self.size) if rank != self.rank]
        self.store.set(f"here/{self.rank}", "yes")
        before, deadline = self._beats(), time.monotonic() + ROLL_CALL
        while True:
            failed = {r: self._read([f"failed/{r}"])[0] for r in self._failed() if r != self.rank}
            late = [r for r in others if r not in failed and not self.store.check([f"here/{r}"])]
            # Who was interrupted may be so because another one is gone.
            if any(message != INTERRUPTED for message in failed.values()):
                return failed, late, []
            if not late or time.monotonic() > deadline:
                beats = self._beats()
                return failed, late, [rank for rank in late if beats[rank] == before[rank]]
            time.sleep(_LOOK)

    def _ask(self, call: Callable[[], Result]) -> Result:
        try:
            return _within(ROLL_CALL, call)
        except Exception as error:
            raise self.missing(reason(error)) from error

    def _show_alive(self) -> None:
        number = 0
        while not self._ended.wait(ROLL_CALL / _BEATS):
            number += 1
            with suppress(Exception):
                self._beat(number)

    def _beat(self, number: int) -> None:
        self.store.set(f"alive/{self.rank}", str(number))

    def _beats(self) -> list[str]:
        return self._read([f"alive/{rank}" for rank in range(self.size)])

    def _absent(self) -> list[int]:
        return [rank for rank in range(self.size) if not self.store.check([f"alive/{rank}"])]

    def _failed(self) -> list[int]:
        return [rank for rank in range(self.size) if self.store.check([f"failed/{rank}"])]

    def _read(self, keys: list[str]) -> list[str]:
        return [bytes(part).decode(errors="replace") for part in self.store.multi_get(keys)]


def check_timeout() -> None:
    """Refuse a timeout that is no number."""
    if not re.fullmatch(r"\d+(\.\d+)?", _WANTED):
        raise InputError(f"MUSEGNN_RANK_TIMEOUT must be a number of seconds, such as 300; got {_WANTED!r}.")


def reason(error: BaseException) -> str:
    """The first sentence of what a library says."""
    text = str(error).split("\n")[0].split(". ")[0]
    # Gloo begins with the place in its own source.
    return text.split("] ", 1)[-1].rstrip(".") or type(error).__name__


def sentence(error: BaseException) -> str:
    """What the others are told."""
    told = error.__cause__ if isinstance(error, SystemExit) and error.__cause__ else error
    if isinstance(told, KeyboardInterrupt):
        return INTERRUPTED
    return str(told) if isinstance(told, InputError) else f"{type(told).__name__}: {reason(told)}"


def _ranks(ranks: list[int], size: int) -> str:
    return f"{'Rank' if len(ranks) == 1 else 'Ranks'} {', '.join(map(str, ranks))} of {size}"


def _within(seconds: float, call: Callable[[], Result]) -> Result:
    """What it returns. On a line that was cut, torch's sockets wait for an answer until the end of time."""
    found: Future[Result] = Future()

    def work() -> None:
        try:
            found.set_result(call())
        except BaseException as error:
            found.set_exception(error)

    Thread(target=work, daemon=True).start()
    return found.result(seconds)
