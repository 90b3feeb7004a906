"""CSV and Markdown, letter by letter, from records that nobody ran."""

import pytest

from musegnn.benches import figures
from musegnn.benches.contenders import Contender
from musegnn.benches.figures import Line, Panel, draw
from musegnn.benches.tables import Measure, Table

ORIGIN = {"hardware": "a machine", "versions": "musegnn 9", "date": "2030-01-02"}


def contender(**given):
    return Contender(**({"about": "", "reference": "", "settings": {}} | given))


def record(row, seed, accuracy=None, data="toy", **given):
    return {"row": row, "data": data, "seed": seed, "epochs": 7, "accuracy": accuracy, **ORIGIN, **given}


def table(**given):
    rows = {name: contender() for name in ("good", "stopped", "large", "broken", "half", "late")}
    rows["system"] = contender(settings=None, reason="it is no model")
    records = [
        *(record("good", seed, value) for seed, value in enumerate((80.0, 82.0, 84.0))),
        *(record("stopped", seed, 70.0, note="stopped after 9 s", epochs=3 + seed) for seed in (2, 1, 0)),
        *(record("large", seed, error="OOM") for seed in range(3)),
        *(record("broken", seed, error="pymetis | is missing") for seed in range(3)),
        record("half", 0, 82.004),
        record("half", 1, error="OOM"),
        record("half", 2, 82.0),
    ]
    measures = [Measure("accuracy, %", lambda one: one["accuracy"], 2, "most")]
    facts = {"name": "test", "about": "About it.", "command": "muse bench test", "seeds": [0, 1, 2]}
    return Table(
        **(facts | {"rows": rows, "datas": ["toy"], "measures": measures, "records": records} | given)
    )


def test_markdown_says_what_happened_in_each_cell():
    assert table().to_markdown() == (
        "# test\n\nAbout it.\n\n"
        "| | toy |\n|---|---|\n"
        "| good | **82.00 +- 2.00** |\n"
        "| stopped | 70.00 +- 0.00 [1] |\n"
        "| large | OOM |\n"
        "| broken | [2] |\n"
        "| half | **82.00 +- 0.00** (2 of 3 seeds) OOM |\n"
        "| late | - |\n"
        "| system | [3] |\n\n"
        "[1] stopped after 9 s, epoch 3 to 5  \n"
        "[2] pymetis | is missing  \n"
        "[3] it is no model  \n\n"
        "Mean +- standard deviation over the seeds 0, 1, 2; the best of a column is bold.  \n"
        "Command: `muse bench test`  \n"
        "Hardware: a machine  \nVersions: musegnn 9  \nDate: 2030-01-02  \n"
    )


def test_the_csv_has_a_line_for_each_measure_row_and_graph():
    assert table().to_csv() == (
        "data,row,measure,mean,spread,seeds,note\n"
        'toy,good,"accuracy, %",82,2,3,\n'
        'toy,stopped,"accuracy, %",70,0,3,"stopped after 9 s, epoch 3 to 5"\n'
        'toy,large,"accuracy, %",,,0,OOM\n'
        'toy,broken,"accuracy, %",,,0,pymetis | is missing\n'
        'toy,half,"accuracy, %",82.002,0.00282843,2,OOM\n'
        'toy,late,"accuracy, %",,,0,\n'
        'toy,system,"accuracy, %",,,0,it is no model\n'
    )


def test_several_measures_and_graphs_are_columns_of_their_own():
    least = Measure("epoch, s", lambda one: one["accuracy"], 1, "least")
    hidden = Measure("other", lambda one: 1.0, is_shown=False)
    records = [record("a", 0, 2.0), record("b", 0, 1.0), record("a", 0, 3.0, data="big")]
    given = {"datas": ["toy", "big"], "measures": [least, hidden, Measure("n", lambda one: 5.0, 0)]}
    rows = {"a": contender(), "b": contender()}
    lines = table(rows=rows, records=records, seeds=[0], **given).to_markdown().splitlines()
    assert lines[4:8] == [
        "| | toy: epoch, s | toy: n | big: epoch, s | big: n |",
        "|---|---|---|---|---|",
        "| a | 2.0 | 5 | **3.0** | 5 |",
        "| b | **1.0** | 5 | - | - |",
    ]
    assert lines[9] == "Seed 0; the best of a column is bold.  "


def test_json_has_the_same_lines_and_where_they_come_from():
    found = table().to_json()
    assert found["lines"][0] | {"note": ""} == {
        **{"data": "toy", "row": "good", "measure": "accuracy, %"},
        **{"mean": 82.0, "spread": pytest.approx(2.0), "seeds": 3, "note": ""},
    }
    assert (found["hardware"], found["command"], found["seeds"]) == (
        ["a machine"],
        "muse bench test",
        [0, 1, 2],
    )


def test_a_figure_is_the_same_file_twice(tmp_path):
    line: Line = [(2.0, 1.0, 0.1), (1.0, 2.0, 0.0)]
    panels = [
        Panel(title="dots", x="accuracy", dots=[("one", 80.0, 1.0), ("other", 82.0, 0.0)]),
        Panel(title="lines", x="K", y="s", lines={"a line": line}, is_log=True),
        Panel(title="nothing"),
    ]
    for name in ("first.svg", "second.svg"):
        draw(panels, tmp_path / name)
    text = (tmp_path / "first.svg").read_text()
    assert text == (tmp_path / "second.svg").read_text()
    assert all(word in text for word in ("accuracy", "other", "a line", "lines", "nothing"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first.svg", "second.svg"]


def test_a_single_row_is_seen():
    """Inside the axes, whatever its value."""
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    figures._dots(axes, Panel(x="accuracy", dots=[("one", 51.0, 0.0)]))
    (dot,) = axes.lines[0].get_xydata()
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    assert left < dot[0] < right
    assert top < dot[1] < bottom
