"""Help texts are pinned: a new option is a decision. MUSEGNN_WRITE_HELP=1 writes them anew."""

import os
from pathlib import Path

import pytest

from musegnn.cli.main import main

FOLDER = Path(__file__).parent / "help"


COMMANDS = [
    *("muse", "import", "sample", "pack", "train", "evaluate", "predict", "explain"),
    *("report", "bench", "recipes", "info", "doctor"),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_help_text_is_as_pinned(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    arguments = ["--help"] if command == "muse" else [command, "--help"]
    assert main(arguments) == 0
    text = "\n".join(line.rstrip() for line in capsys.readouterr().out.splitlines()) + "\n"
    path = FOLDER / f"{command}.txt"
    if os.environ.get("MUSEGNN_WRITE_HELP"):
        path.write_text(text)
    assert text == path.read_text()
