"""The notebooks run from top to bottom, as a person would run them, and are kept without what came out."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = {
    "explain_a_prediction": [
        "63436",
        "% of the test nodes",
        "stockfish is predicted `",
        "without ",
        "<iframe",
    ],
    "your_own_pyg_dataset": ["num_nodes=2000", "no-edges  ", "error bound:", "'report.html'"],
}
"""With what they must say."""

_RUNNER = """
import ast, json, sys

names = {"__name__": "__main__"}
for cell in json.load(open(sys.argv[1]))["cells"]:
    if cell["cell_type"] == "code":
        body = ast.parse("".join(cell["source"])).body
        is_shown = isinstance(body[-1], ast.Expr)
        last = [body.pop()] if is_shown else []
        exec(compile(ast.Module(body, []), cell["id"], "exec"), names)
        for shown in last:
            value = eval(compile(ast.Expression(shown.value), cell["id"], "eval"), names)
            print(value._repr_html_() if hasattr(value, "_repr_html_") else repr(value))
"""
"""Cell by cell in one process; the value of a last expression is shown. These notebooks need no more."""


def cells(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text())["cells"]


def test_all_notebooks_are_known():
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs(name, tmp_path):
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", _RUNNER, str(FOLDER / f"{name}.ipynb")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for part in NOTEBOOKS[name]:
        assert part in done.stdout
    assert not done.stderr


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_kept_without_outputs_and_without_this_machine(name):
    text = (FOLDER / f"{name}.ipynb").read_text()
    assert not re.search(r"/(home|root|tmp|work|Users|mnt)/|[A-Z]:\\\\", text)
    assert json.loads(text)["metadata"]["kernelspec"]["name"] == "python3"
    assert [cell["id"] for cell in cells(name)] == sorted({cell["id"] for cell in cells(name)})
    for cell in cells(name):
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_links_of_a_notebook_lead_somewhere(name):
    text = "".join(line for cell in cells(name) for line in cell["source"])
    for page in re.findall(r"`(docs/[\w.-]+)`", text):
        assert (FOLDER.parent / page).is_file(), page
