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
