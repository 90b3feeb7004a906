"""Where the time of a step goes: all parts, a trace, and a word when a run is too short."""

import json

import pytest
import small_runs

import musegnn
from musegnn.training.profile import PARTS, STEPS, WARM_UP


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s")


def profiled(store, folder, epochs, gamma=0.5):
    events = []
    model = small_runs.model(gamma)
    musegnn.train(small_runs.graph(), store, model, folder, epochs=epochs, profile=True, listen=events.append)
    (found,) = [event["milliseconds"] for event in events if event["event"] == "profile"]
    written = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    assert [one for one in written if one["event"] == "profile"][0]["milliseconds"] == found
    return found


def test_parts_add_up_to_about_a_step(store, tmp_path):
    found = profiled(store, tmp_path / "run", epochs=6)
    # Nothing is copied without a GPU.
    assert list(found) == [part for part in PARTS if part != "copy"] + ["step"]
    assert all(value >= 0 for value in found.values())
    parts = sum(value for part, value in found.items() if part != "step")
    assert 0.2 * found["step"] < parts < 1.2 * found["step"]
    trace = json.loads((tmp_path / "run" / "trace.json").read_text())
    assert trace["traceEvents"]


def test_without_means_there_are_none(store, tmp_path):
    found = profiled(store, tmp_path / "run", epochs=6, gamma=0.0)
    assert "M" not in found
    assert found["descent"] > 0


def test_a_run_that_ends_early_has_what_there_was(store, tmp_path):
    assert WARM_UP < 12 < WARM_UP + STEPS
    found = profiled(store, tmp_path / "run", epochs=2)
    assert found["step"] > 0
    # A profiler that goes on would be in the way of the next.
    assert profiled(store, tmp_path / "again", epochs=2)["step"] > 0


def test_too_short_a_run_has_none(store, tmp_path):
    assert profiled(store, tmp_path / "run", epochs=1) == {}
    assert not (tmp_path / "run" / "trace.json").exists()
