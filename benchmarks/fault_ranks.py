"""One of several ranks is killed, stopped, full, unlike the others or cut off: a sentence, and it goes on."""

import io
import os
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import launched
import small_runs
from fault_probe import Row
from rank_faults import GRAPH, assert_close, full_checkpoint, full_undo_log, left, said, train
from together import alone, at_call, die, results, start

import tiny_runs
from musegnn.errors import InputError
from musegnn.runs import alike
from musegnn.training.loop import Trainer

WITHIN = 30
"""Seconds within which a job must end that a rank is missing in."""
TIMEOUT, ROLL_CALL = 5.0, 5.0
"""Of the jobs here: MUSEGNN_RANK_TIMEOUT is 300 unless set, a roll call takes 5 s anywhere."""
SETTINGS = tiny_runs.flags(batch_size=5, epochs=60)


class Jobs:
    """What the attempts share: samples, what an undisturbed run leaves, and the folder of the next one."""

    def __init__(self, root: Path) -> None:
        self.root, self.store = root, small_runs.store(root / "samples", GRAPH)
        self.undisturbed = {}
        for home in ("memory", "disk"):
            train(self.store, root / home, samples_per_step=2, means_home=home)
            self.undisturbed[home] = left(self.store, root / home)
        (root / "launched").mkdir()
        with redirect_stdout(io.StringIO()):
            self.place = alone(root / "launched", SETTINGS)

    def marked(self, act: Callable[[], object]) -> Callable[[object], object]:
        """The same act, which first says when."""
        return lambda _: ((self.root / "when").write_text(str(time.monotonic())), act())

    def since(self) -> float:
        """Seconds since the act."""
        return time.monotonic() - float((self.root / "when").read_text())


def killed(jobs: Jobs, number: int, run: Path) -> float:
    """By turns each of three ranks, in a step, while means move, or while a checkpoint is written."""
    victim, where = number % 3, ("step", "_move_means", "save")[number // 3 % 3]

    def work(ranks):
        if ranks.rank == victim:
            at_call(Trainer, where, 2 + number % 4, jobs.marked(die))
        train(jobs.store, run, checkpoint_seconds=0)

    found = results(start(3, work, roll_call=ROLL_CALL))
    took = jobs.since()
    for sentence in said(found, victim):
        assert sentence.startswith(f"Rank {victim} of 3 does not answer"), sentence
    return took


def stopped(jobs: Jobs, number: int, run: Path) -> float:
    victim = number % 3

    def work(ranks):
        if ranks.rank == victim:
            at_call(
                Trainer, "step", 2 + number % 4, jobs.marked(lambda: os.kill(os.getpid(), signal.SIGSTOP))
            )
        train(jobs.store, run)

    found = results(start(3, work, timeout=TIMEOUT, roll_call=ROLL_CALL), without=[victim])
    took = jobs.since()
    for sentence in said(found, victim):
        assert sentence.startswith(f"Rank {victim} of 3 does not answer"), sentence
    return took


def full(jobs: Jobs, number: int, run: Path) -> float:
    """By turns in a checkpoint, with M in memory, and in the undo log of M on disk; then it goes on."""
    home, fill = (("memory", full_checkpoint), ("disk", full_undo_log))[number % 2]
    options = {
        "samples_per_step": 2,
        "means_home": home,
        "checkpoint_seconds": 0 if home == "memory" else 120,
    }

    def work(ranks):
        if ranks.rank == 1:
            fill(ranks.rank)
        train(jobs.store, run, **options)

    started = time.monotonic()
    found = results(start(3, work, roll_call=ROLL_CALL))
    took = time.monotonic() - started
    own = str(found[1][1])
    assert "The disk is full" in own, own
    assert said(found, 1) == [f"Rank 1 has stopped: {own}"] * 2, found
    train(jobs.store, run, resume=True, **options)
    assert_close(left(jobs.store, run), jobs.undisturbed[home])
    return took


def refused(jobs: Jobs, run: Path, words: str, differ: Callable[[], dict[str, object]]) -> float:
    """All ranks say the same of rank 1, which differs, and nothing was written."""

    def work(ranks):
        train(jobs.store, run, **(differ() if ranks.rank == 1 else {}))

    started = time.monotonic()
    found = results(start(3, work, roll_call=ROLL_CALL))
    took = time.monotonic() - started
    errors = [error for _, error in found]
    assert all(isinstance(error, InputError) for error in errors), errors
    assert len({str(error) for error in errors}) == 1, errors
    assert str(errors[0]).startswith(words), errors[0]
    assert not run.exists(), "a run folder was made"
    return took


def unlike_config(jobs: Jobs, number: int, run: Path) -> float:
    name, value = (("lr", 0.03), ("epochs", 4), ("seed", 7), ("rho", 0.5), ("clip", 1.0))[number % 5]
    return refused(jobs, run, f"Rank 1 has the setting {name} {value}, rank 0 has", lambda: {name: value})


def unlike_code(jobs: Jobs, number: int, run: Path) -> float:
    """Of another version, and by turns of the same one with another line of code."""
    name, value, words = (
        ("__version__", "9.9", "Rank 1 has musegnn 9.9"),
        ("code_digest", lambda: "d" * 64, "Rank 1 has code with the digest ddd"),
    )[number % 2]

    def differ():
        setattr(alike, name, value)
        return {}

    return refused(jobs, run, words, differ)


def started_anew(jobs: Jobs, number: int, run: Path) -> float:
    """Killed twice at other moments; the same command each time, as a launcher gives it."""
    home = ("memory", "disk")[number % 2]
    options = {"means_home": home, "samples_per_step": 2, "checkpoint_seconds": 0}

    def work(ranks, at=None):
        if at is not None and ranks.rank == number % 2:
            at_call(Trainer, "step", at, jobs.marked(die))
        train(jobs.store, run, **options)

    results(start(2, partial(work, at=2 + number % 3)))
    results(start(2, partial(work, at=1 + number % 2), restarts=1))
    took = time.monotonic()
    found = results(start(2, work, restarts=2))
    assert [error for _, error in found] == [None, None], found
    assert_close(left(jobs.store, run), jobs.undisturbed[home])
    return time.monotonic() - took


def restarted(jobs: Jobs, number: int, run: Path) -> float:
    """By torchrun itself."""
    given = launched.training(SETTINGS, jobs.place, run)
    with launched.ending(launched.torchrun(jobs.place, *given, restarts=1)) as process:
        launched.kill_in_training(process, run, number % 2)
        took = time.monotonic()
        code, out, errors = launched.end(process, launched.PATIENCE)
    assert code == 0, errors
    launched.assert_started_twice(out, errors)
    launched.assert_same_run(run, jobs.place / "one")
    return time.monotonic() - took


def cut_off(jobs: Jobs, number: int, run: Path) -> float:
    """In the middle of training; when the cable is mended, `--resume` goes on."""
    with launched.two_hosts() as hosts:
        started = launched.launch(hosts, jobs.place, *launched.training(SETTINGS, jobs.place, run))
        launched.wait_for_epochs(started[0], run, 3)
        with launched.while_cut(hosts):
            took = time.monotonic()
            found = launched.ended(started, 60)
            took = time.monotonic() - took
        (first,), (second,) = (launched.sentences(errors) for _, errors in found)
        assert "Rank 1 of 2 does not answer: killed, stuck or cut off" in first, first
        assert "does not reach the launcher on the first machine any more" in second, second
        found = launched.ended(
            launched.launch(hosts, jobs.place, "train", "--resume", run), launched.PATIENCE
        )
        assert [code for code, _ in found] == [0, 0], found
    launched.assert_same_run(run, jobs.place / "one")
    return took


NAMED = f"the others name it within {WITHIN} s"
ALIKE = "refused by all ranks alike, nothing written"
SAME = "the weights and M of an undisturbed run"
ATTEMPTS: dict[str, tuple[Callable[[Jobs, int, Path], float], str]] = {
    "kill -9 of one of three": (killed, NAMED),
    f"SIGSTOP of one of three, timeout {TIMEOUT:g} s": (stopped, NAMED),
    "a full disk on one of three": (full, f"the others say what it said; gone on with, {SAME}"),
    "another setting on one of three": (unlike_config, ALIKE),
    "other code on one of three": (unlike_code, ALIKE),
    "kill -9 twice, started anew each time": (started_anew, SAME),
    "kill -9 under torchrun --max-restarts=1": (restarted, SAME),
    f"the cable between two hosts cut, timeout {launched.TIMEOUT} s": (
        cut_off,
        f"a sentence of each; mended and gone on with, {SAME}",
    ),
}
LAUNCHED = (restarted, cut_off)
"""With launchers, which take ten times as long: a fifth as often."""


def ranks(root: Path, count: int) -> list[Row]:
    """`count` of each, with ranks that are forks of this process."""
    jobs, rows = Jobs(root), []
    for name, (attempt, must) in ATTEMPTS.items():
        if attempt is cut_off and not launched.HAS_HOSTS:
            rows.append(Row(f"ranks: {name}", 0, must, "not tried: needs root and `ip`"))
            continue
        times, faults, seconds = -(-count // 5) if attempt in LAUNCHED else count, [], [0.0]
        for number in range(times):
            try:
                # What a rank says comes through its pipe.
                with redirect_stderr(io.StringIO()):
                    seconds.append(attempt(jobs, number, root / f"{attempt.__name__}-{number}"))
            except (AssertionError, ValueError) as error:
                faults.append(f"time {number}: {type(error).__name__}: {_short(str(error))}")
        if must == NAMED and max(seconds) > WITHIN:
            faults.append(f"{max(seconds):.0f} s")
        what = "done" if must == SAME else "the sentence"
        held = "held" if not faults else f"{len(faults)} times not so"
        happened = f"{held}; {what} after {max(seconds):.1f} s at most"
        rows.append(Row(f"ranks: {name}", times, must, happened, tuple(faults)))
    return rows


def _short(text: str) -> str:
    """A launcher says first what happened to a rank, and last what came of the job."""
    return text if len(text) <= 2400 else f"{text[:400]} [...] {text[-2000:]}"
