"""Several runs on one page."""

import pytest
from made_runs import HOSTILE, analysis, epoch, made_run, result
from test_report_page import Page, no_library  # noqa: F401

from machine import unchecked  # noqa: F401
from musegnn.errors import InputError, StoreError
from musegnn.reports import charts, words
from musegnn.reports.compare import write_comparison
from musegnn.training.config import Config


def compare(*folders):
    return Page(write_comparison(folders, folders[0].parent / "page.html").read_text())


def test_runs_stand_side_by_side(tmp_path):
    first = made_run(tmp_path / "first")
    changed = Config(name="tiny", dataset="debian").with_settings({"lambda_": 7.5, "fanouts": [3, 2]})
    told = analysis(steps=None)
    told["classes"][1]["accuracy"] = 0.11
    # A bound is to the minimum of a run's own energy: none is the best.
    found = result(test_accuracy=0.81, seconds=20.0, error_bound=0.001)
    second = made_run(
        tmp_path / "second", config=changed, told=told, found=found, events=[epoch(1), epoch(2)]
    )
    page = compare(first, second)
    assert page.sections == ["results", "training", "energy", "structure", "classes", "settings"]
    assert [line["name"] for line in page.charts["score"]["data"]] == ["first", "second"]
    assert page.charts["score"]["data"][1]["y"] == pytest.approx([65.0, 70.0])
    # A run has the same color everywhere, also where another has nothing to show.
    assert [line["name"] for line in page.charts["bounds"]["data"]] == ["first"]
    third = made_run(tmp_path / "third")
    bounds = compare(first, second, third).charts["bounds"]["data"]
    assert [line["name"] for line in bounds] == ["first", "third"]
    assert bounds[1]["line"]["color"] == "@green"
    best = [name for name, attributes in page.tags if attributes.get("class") == "best"]
    assert len(best) == 2
    assert "lambda_1.07.5" in page.text
    assert "fanouts10, 53, 2" in page.text
    assert "gamma" not in page.text
    # Of the classes, only those that differ most, and that first.
    classes = page.text[page.text.index("Accuracy of the classes") :]
    assert classes.index("green") < classes.index("red")


def test_runs_of_one_name_are_told_apart(tmp_path):
    folders = [made_run(tmp_path / part / "run") for part in ("a", "b")]
    page = compare(*folders, folders[0])
    assert [line["name"] for line in page.charts["loss"]["data"]] == ["a/run (1)", "b/run", "a/run (2)"]
    assert "All settings are the same." in page.text


def test_other_graphs_and_unfinished_runs_are_said(tmp_path):
    other = {"digest": "cd" * 32, "name": "other", "folder": None, "from_here": None}
    bare = made_run(tmp_path / "bare", found=False, told=False, events=[], graph=other)
    page = compare(made_run(tmp_path / "run"), bare)
    assert "not the same graph" in page.text
    assert "Not finished: bare." in page.text
    assert "digest of the graph" + "ab" * 6 + "cd" * 6 in page.text
    page = compare(bare, made_run(tmp_path / "bare-too", found=False, told=False, events=[]))
    assert page.sections == ["results", "settings"]


def test_names_of_others_stay_text_here_too(tmp_path):
    names = [HOSTILE, "b", "c"]
    runs = [made_run(tmp_path / f"<b>{k}", told=analysis(names)) for k in range(2)]
    changed = analysis(names)
    changed["classes"][0]["accuracy"] = 0.0
    runs.append(made_run(tmp_path / "third", told=changed))
    page = compare(*runs)
    assert "b" not in [name for name, attributes in page.tags if not attributes]
    assert HOSTILE in page.text
    assert page.charts["loss"]["data"][0]["name"] == "&lt;b&gt;0"


def test_a_comparison_needs_two(tmp_path):
    with pytest.raises(InputError, match="needs two runs or more, got 1"):
        write_comparison([made_run(tmp_path / "run")], tmp_path / "page.html")


def test_bounds_of_robust_and_staged_energies_are_said_to_be_of_something_else(tmp_path):
    settings = {
        "plain": {},
        "sturdy": {"kind": "robust"},
        "steps": {"kind": "predictive", "stages": 3, "steps": 3},
        "whole": {"kind": "relational"},
        "peer": {"architecture": "SAGE"},
    }
    runs = [
        made_run(tmp_path / name, config=Config(name="tiny").with_settings(chosen))
        for name, chosen in settings.items()
    ]
    page = compare(*runs)
    text = " ".join(page.text.split())
    assert "to the exact minimizer of its own energy; of sturdy to the minimizer of the quadratic" in text
    assert "; of steps to the exact minimizer of the last stage's energy." in text
    assert "of whole to" not in text
    for model in ("MuseGNN, robust", "MuseGNN, predictive, 3 stages", "MuseGNN, relational", "SAGE"):
        assert model in text


def test_bins_of_two_widths_are_told_by_both_ends():
    def bins(*spans):
        return [{"low": low, "high": high, "nodes": 50, "accuracy": 0.5} for low, high in spans]

    chart = charts.lines_by_bin(
        "degree", "", "", {"a": bins((1, 7), (8, 90)), "b": bins((1, 7), (8, 15))}, ""
    )
    assert chart.layout["xaxis"]["ticktext"] == ["1\u20137", "8\u201315", "8\u201390"]
    assert [trace["x"] for trace in chart.data] == [[0, 2], [0, 1]]
    alike = charts.lines_by_bin("degree", "", "", {"a": bins((1, 7), (8, 15))}, "")
    assert alike.layout["xaxis"]["ticktext"] == ["1", "8"]


@pytest.mark.parametrize(
    ("share", "said"),
    [(None, "\u2013"), (0.0127, "1.27\u00a0%"), (11.19, "11.2\u00a0times"), (1e20, "over 1e9\u00a0times")],
)
def test_a_bound_is_told_as_on_the_terminal(share, said):
    assert words.bound(share) == said


@pytest.mark.parametrize("name", ["result.json", "run.json", "analysis.json"])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_what_is_damaged_is_called_what_it_is(tmp_path, name, text):
    first, second = (made_run(tmp_path / one) for one in ("first", "second"))
    (second / name).write_text(text)
    with pytest.raises(StoreError, match=rf"second/{name} is not a valid file of a run \(.*\)\. \w+ .*\."):
        compare(first, second)
