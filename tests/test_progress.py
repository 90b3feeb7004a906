"""A bar on a terminal, a line in a log, silence unless asked."""

import sys

import pytest

from musegnn import progress as module
from musegnn.progress import progress, show_progress


@pytest.fixture
def shown():
    show_progress(True)
    yield
    show_progress(False)


def test_a_library_call_is_silent(capsys):
    with progress("Sorting", 10) as advance:
        advance(10)
    assert capsys.readouterr().err == ""


def test_a_log_gets_a_line_now_and_then(shown, monkeypatch, capsys):
    monkeypatch.setattr(module, "LOG_SECONDS", 0)
    with progress("Sorting", 200) as advance:
        advance(50)
    assert capsys.readouterr().err.startswith("Sorting: 25 %, 0 s left")


@pytest.mark.parametrize("unit", ["", "B"])
def test_a_terminal_gets_a_bar(shown, monkeypatch, capsys, unit):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(module, "DELAY_SECONDS", -1)
    with progress("Sorting", 10, unit) as advance:
        advance(5)
    assert "Sorting" in capsys.readouterr().err


def test_a_narrow_terminal_gets_a_percentage(shown, monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(module, "DELAY_SECONDS", -1)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    with progress("Checking what is there", 1208, "samples") as advance:
        advance(604, note="3.2 GB/s")
    said = capsys.readouterr().err
    assert "Checking what is there  50%" in said
    assert "…" not in said


def test_after_a_resume_rate_and_time_left_are_those_of_the_fresh_part(shown, monkeypatch, capsys):
    """900 of 1,000 were there; 20 more in 10 s are 2 a second, and 40 s remain."""
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(module, "LOG_SECONDS", 10)
    with progress("Sampling", 1000, "samples", done=900) as advance:
        now[0] += 5
        advance(10)
        assert capsys.readouterr().err == ""
        now[0] += 5
        advance(10)
    assert capsys.readouterr().err == "Sampling: 92 %, 2.0 samples/s, 40 s left\n"


def test_after_a_resume_the_bar_begins_where_the_work_does(shown, monkeypatch):
    from rich.progress import Progress

    added, add_task = [], Progress.add_task

    def recorded(self, *args, **options):
        added.append(options)
        return add_task(self, *args, **options)

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(Progress, "add_task", recorded)
    with progress("Sampling", 1000, "samples", done=900) as advance:
        advance(10)
    assert added == [{"total": 1000, "completed": 900, "note": ""}]
