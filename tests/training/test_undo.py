"""The undo log brings mapped means back to any step, whatever a kill left at its end."""

from contextlib import closing

import numpy as np
import pytest
import torch

from musegnn import MeanEmbeddings
from musegnn.errors import StoreError
from musegnn.means.undo import UndoLog

N, DIM, STEPS = 20, 3, 5


@pytest.fixture(params=["float32", "bfloat16"])
def means(request, tmp_path):
    return MeanEmbeddings(N, DIM, home=tmp_path / "means", dtype=getattr(torch, request.param))


@pytest.fixture
def log(means, tmp_path):
    with closing(UndoLog(means, tmp_path / "undo.bin")) as log:
        yield log


def visited(means, log, steps=range(STEPS)):
    """Update some nodes at each step; what M and c were before each."""
    before = []
    for step in steps:
        rng = np.random.default_rng(step)
        ids = np.sort(rng.permutation(N)[:7]).astype(np.int32)
        before.append(state(means))
        log.note(step, ids)
        means.update(ids, torch.from_numpy(rng.normal(size=(7, DIM))).float())
    return [*before, state(means)]


def state(means):
    return means.M.clone(), means.count.clone()


def is_equal(state, other):
    return all(torch.equal(part, same) for part, same in zip(state, other, strict=True))


@pytest.mark.parametrize("step", range(STEPS + 1))
def test_back_to_any_step(means, log, tmp_path, step):
    """Records of steps before it are past; another process reads them."""
    states = visited(means, log)
    log.close()
    with closing(UndoLog(means, tmp_path / "undo.bin")) as again:
        again.roll_back(step)
        assert is_equal(state(means), states[step])
        assert (tmp_path / "undo.bin").stat().st_size == 0
        # And on from there.
        later = visited(means, again, range(step, STEPS))
        assert is_equal(later[-1], states[-1])
        again.roll_back(step)
        assert is_equal(state(means), states[step])


def test_a_torn_record_belongs_to_an_update_that_never_began(means, log, tmp_path):
    path = tmp_path / "undo.bin"
    states = visited(means, log, range(3))
    size = path.stat().st_size
    log.note(3, np.arange(4))
    whole, now = path.read_bytes(), state(means)
    for end in range(size, len(whole)):
        path.write_bytes(whole[:end])
        means.M.copy_(now[0])
        means.count.copy_(now[1])
        log.roll_back(1)
        assert is_equal(state(means), states[1])


def test_a_damaged_record_is_not_taken_for_a_torn_one(means, log, tmp_path):
    """Wherever it is: what follows it could not be undone, and M would be of no step."""
    path = tmp_path / "undo.bin"
    visited(means, log, range(3))
    whole, now = path.read_bytes(), state(means)
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        with pytest.raises(StoreError, match="damaged: M cannot be taken back"):
            log.roll_back(1)
        assert is_equal(state(means), now)


def test_a_roll_back_that_is_killed_is_done_again(means, log, monkeypatch):
    states, read, calls = visited(means, log), UndoLog._read, []

    def dying(self, begin, count):
        calls.append(begin)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return read(self, begin, count)

    with monkeypatch.context() as patch:
        patch.setattr(UndoLog, "_read", dying)
        with pytest.raises(KeyboardInterrupt):
            log.roll_back(0)
    assert not is_equal(state(means), states[0])
    log.roll_back(0)
    assert is_equal(state(means), states[0])


def test_cleared_and_empty(means, log, tmp_path):
    path = tmp_path / "undo.bin"
    log.note(0, np.arange(0))
    assert path.stat().st_size == 0
    log.roll_back(0)
    visited(means, log, range(2))
    log.clear()
    assert path.stat().st_size == 0
    states = visited(means, log, range(2, 4))
    log.roll_back(0)
    assert is_equal(state(means), states[0])
