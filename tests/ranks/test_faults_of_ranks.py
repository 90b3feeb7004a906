"""A rank that dies, stops, fails or differs ends the others with a sentence that names it; a run goes on."""

import os
import shutil
import signal
import time

import numpy as np
import pytest
import small_runs
import torch
from rank_faults import (
    GRAPH,
    assert_close,
    full_checkpoint,
    full_undo_log,
    left,
    said,
    train,
)
from together import at_call, die, results, start, together

from musegnn.errors import InputError, StoreError
from musegnn.ranks import ALONE, Ranks
from musegnn.runs import alike
from musegnn.runs import start as starting
from musegnn.training import checkpoint, state
from musegnn.training.folder import RunFolder
from musegnn.training.loop import Trainer
from musegnn.training.outcome import Outcome

PROOF = pytest.mark.skipif("MUSEGNN_PROOF" not in os.environ, reason="MUSEGNN_PROOF is not set")
HOMES = ["disk", pytest.param("memory", marks=PROOF)]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s", GRAPH)


@pytest.fixture(scope="module")
def undisturbed(store, tmp_path_factory):
    """By where M is: weights, M and counts of one process that takes two samples a step."""
    folder = tmp_path_factory.mktemp("undisturbed")
    found = {}
    for home in ("memory", "disk") if "MUSEGNN_PROOF" in os.environ else ("disk",):
        train(store, folder / home, samples_per_step=2, means_home=home)
        found[home] = left(store, folder / home)
    return found


@pytest.mark.parametrize(
    ("size", "victim", "launched", "words"),
    [
        (3, 1, True, "Rank 1 of 3 does not answer: killed, stuck or cut off"),
        pytest.param(2, 0, True, "Rank 0 of 2 does not answer: killed, stuck or cut off", marks=PROOF),
        pytest.param(2, 0, False, "Rank 1 does not reach rank 0 any more", marks=PROOF),
    ],
)
def test_a_rank_that_is_killed_is_named_within_seconds(store, tmp_path, size, victim, launched, words):
    def work(ranks):
        if ranks.rank == victim:
            at_call(Trainer, "_move_means", 5, die)
        train(store, tmp_path / "run")

    started = start(size, work, has_launcher=launched)
    started[victim][0].join()
    died = time.monotonic()
    for sentence in said(results(started), victim):
        assert sentence.startswith(words)
        assert "--resume" in sentence
    assert time.monotonic() - died < 8


def test_a_rank_that_is_stopped_is_named_after_the_timeout(store, tmp_path):
    def work(ranks):
        if ranks.rank == 1:
            at_call(Trainer, "step", 3, lambda _: os.kill(os.getpid(), signal.SIGSTOP))
        train(store, tmp_path / "run")

    found = results(start(3, work, timeout=1.5), seconds=20, without=[1])
    for sentence in said(found, 1):
        assert sentence.startswith("Rank 1 of 3 does not answer: killed, stuck or cut off")


@PROOF
def test_a_rank_that_is_slow_is_told_from_a_dead_one(store, tmp_path):
    def work(ranks):
        if ranks.rank == 1:
            at_call(Trainer, "step", 3, lambda _: time.sleep(5))
        train(store, tmp_path / "run")

    found = results(start(2, work, timeout=1.5), seconds=20, without=[1])
    assert said(found, 1)[0].startswith("Rank 1 of 2 did not come in time")
    assert "alive, but slow or stuck. MUSEGNN_RANK_TIMEOUT, now 1.5 s" in said(found, 1)[0]


def diverging(rank):
    def diverge(_):
        Outcome.read = lambda self: (float("nan"), 1.0, 0, 0, True)

    at_call(Trainer, "_settle", 4, diverge)


FAULTS = {
    "a full disk, checkpoint": (full_checkpoint, StoreError, "The disk is full", {"checkpoint_seconds": 0}),
    "a full disk, undo log": (full_undo_log, StoreError, "The disk is full", {"means_home": "disk"}),
    "divergence": (diverging, InputError, "The loss is nan", {}),
}


@PROOF
@pytest.mark.parametrize("fault", FAULTS)
def test_what_one_rank_fails_with_is_what_the_others_say(store, tmp_path, undisturbed, fault):
    broken, kind, words, options = FAULTS[fault]
    options = {"samples_per_step": 2, **options}

    def work(ranks):
        if ranks.rank == 1:
            broken(ranks.rank)
        train(store, tmp_path / "run", **options)

    found = results(start(3, work))
    own = found[1][1]
    assert isinstance(own, kind)
    assert words in str(own)
    assert said(found, 1) == [f"Rank 1 has stopped: {own}"] * 2
    together(2, lambda ranks: train(store, tmp_path / "run", resume=True, **options))
    assert_close(left(store, tmp_path / "run"), undisturbed[options.get("means_home", "memory")])


def differing(store, other, folder):
    """What is said of ranks that differ, by what differs; all in one job."""

    def attempt(rank, **options):
        with pytest.raises(InputError) as error:
            train(options.pop("samples", store), folder, **options)
        assert not folder.exists()
        return str(error.value)

    def work(ranks):
        is_other = ranks.rank == 1
        found = {
            "setting": attempt(ranks.rank, lr=0.03 if is_other else 0.02),
            "samples": attempt(ranks.rank, samples=other if is_other else store),
        }
        for name, value in {"code_digest": lambda: "d" * 64, "__version__": "9.9"}.items():
            with pytest.MonkeyPatch.context() as patch:
                if is_other:
                    patch.setattr(alike, name, value)
                found[name] = attempt(ranks.rank)
        return found

    return work


def test_ranks_that_differ_are_refused_before_anything_is_written(store, tmp_path):
    other = small_runs.store(tmp_path / "other", GRAPH, seed=1)
    found = together(2, differing(store, other, tmp_path / "run"))
    assert found[0] == found[1]
    begins = {
        "setting": "Rank 1 has the setting lr 0.03, rank 0 has 0.02; all must be alike.",
        "samples": f"Rank 1 has samples with the digest {other.digest[:57]}",
        "code_digest": "Rank 1 has code with the digest ddd",
        "__version__": "Rank 1 has musegnn 9.9, rank 0 has ",
    }
    for name, begin in begins.items():
        assert found[0][name].startswith(begin)


@pytest.mark.parametrize("home", HOMES)
def test_a_run_goes_on_with_another_number_of_ranks(store, tmp_path, undisturbed, home):
    """Killed on 2 in the middle of a step, stopped by one of 3, finished by 1."""
    options = {"means_home": home, "samples_per_step": 2}

    def killed(ranks):
        at_call(Trainer, "step", 3, Trainer.save)
        if ranks.rank == 1:
            at_call(Trainer, "_move_means", 6, die)
        train(store, tmp_path / "run", **options)

    def stopped(ranks):
        if ranks.rank == 2:
            at_call(Trainer, "step", 4, lambda trainer: setattr(trainer.stop, "is_asked", True))
        with pytest.raises(KeyboardInterrupt):
            train(store, tmp_path / "run", resume=True, **options)
        return sorted(path.name for path in (tmp_path / "run").glob("means*"))

    results(start(2, killed))
    assert checkpoint.facts_of(tmp_path / "run/checkpoint", "state")["position"]["step"] == 2
    shares = [f"means-{rank}-of-3" for rank in range(3)] if home == "disk" else []
    assert together(3, stopped) == [shares] * 3
    facts = checkpoint.facts_of(tmp_path / "run/checkpoint", "state")
    assert (facts["position"]["step"], facts["ranks"]) == (6, 3)
    train(store, tmp_path / "run", resume=True, **options)
    assert not list((tmp_path / "run").glob("means-*"))
    assert_close(left(store, tmp_path / "run"), undisturbed[home])


@PROOF
@pytest.mark.parametrize("moment", ["copied", "said"])
def test_a_kill_while_the_means_are_shared_out_anew_loses_nothing(store, tmp_path, undisturbed, moment):
    """Before a checkpoint says so, and before the old shares are removed."""
    options = {"means_home": "disk", "samples_per_step": 2}

    def killed(ranks):
        at_call(Trainer, "step", 3, Trainer.save)
        at_call(Trainer, "step", 5, die)
        train(store, tmp_path / "run", **options)

    def killed_again(ranks):
        if moment == "copied":
            at_call(starting, "share_out", 1, lambda _: at_call(Trainer, "save", 1, die))
        elif ranks.is_first:
            at_call(RunFolder, "drop_other_means", 1, die)
        train(store, tmp_path / "run", resume=True, **options)

    results(start(3, killed))
    results(start(2, killed_again))
    assert len(list((tmp_path / "run").glob("means-*"))) == 5
    size = {"copied": 1, "said": 2}[moment]
    together(size, lambda ranks: train(store, tmp_path / "run", resume=True, **options))
    assert len(list((tmp_path / "run").glob("means*"))) == size
    assert_close(left(store, tmp_path / "run"), undisturbed["disk"])


@PROOF
@pytest.mark.parametrize("home", ["memory", "disk"])
def test_ranks_that_are_started_anew_go_on(store, tmp_path, undisturbed, home):
    """The same call as before, first killed while the first checkpoint is written, then in the middle."""
    options = {"means_home": home, "samples_per_step": 2}

    def killed_at_once(ranks):
        at_call(checkpoint, "write_json", 1, die)
        train(store, tmp_path / "run", **options)

    def killed(ranks):
        at_call(Trainer, "step", 3, Trainer.save)
        at_call(Trainer, "step", 5, lambda _: ranks.rank == 1 and die())
        train(store, tmp_path / "run", **options)

    results(start(2, killed_at_once))
    assert (tmp_path / "run/run.json").exists()
    results(start(2, killed, restarts=1))
    together(2, lambda ranks: train(store, tmp_path / "run", **options), restarts=2)
    assert_close(left(store, tmp_path / "run"), undisturbed[home])


def test_shares_that_are_replaced_while_they_are_read_are_read_again(store, tmp_path, monkeypatch):
    """By one process that goes on with what two began; shares that are lost are still missed."""
    together(2, lambda ranks: train(store, tmp_path / "run", epochs=1))
    shutil.copytree(tmp_path / "run", tmp_path / "lost")
    folder, expected = tmp_path / "run/checkpoint", left(store, tmp_path / "run")
    before = checkpoint.load(folder, "best")
    count = torch.from_numpy(np.arange(GRAPH.num_nodes, dtype=np.int32))
    whole = before.tensors | {"means.M": expected["mu"] + 1, "means.count": count}

    def replaced(path, digest):
        monkeypatch.undo()
        checkpoint.save(folder, "best", whole, before.facts, None, ALONE)
        return checkpoint.load_share(path, digest)

    monkeypatch.setattr(state, "load_share", replaced)
    assert torch.equal(left(store, tmp_path / "run")["mu"], expected["mu"] + 1)
    next((tmp_path / "lost/checkpoint").glob("best.1-*")).unlink()
    with pytest.raises(StoreError, match="does not exist"):
        left(store, tmp_path / "lost")


def test_without_means_nothing_is_exchanged(store, tmp_path):
    """With them, ids and rows; each rank keeps its share of them, and only that."""

    def work(ranks):
        calls = []
        before = Ranks.exchange
        Ranks.exchange = lambda *given: (calls.append(0), before(*given))[1]
        train(store, tmp_path / "without", gamma=0.0, epochs=1)
        num_without = len(calls)
        train(store, tmp_path / "with", epochs=1)
        return num_without, len(calls) > num_without

    assert together(2, work) == [(0, True)] * 2
    shares = checkpoint.load(tmp_path / "with/checkpoint", "state").shares
    rows = [len(checkpoint.load_share(*share)["means.M"]) for share in shares]
    assert rows == [GRAPH.num_nodes // 2] * 2
    assert checkpoint.load(tmp_path / "without/checkpoint", "state").shares == []
