"""What a page says, leaves out, and does not let in."""

import ast
import json
import re
import shlex
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from made_runs import HOSTILE, analysis, epoch, made_run, relations, result

import musegnn
from machine import one_thread, unchecked  # noqa: F401
from musegnn.cli.main import main
from musegnn.errors import InputError, MissingExtraError
from musegnn.recipes import finding
from musegnn.reports import costs, page
from musegnn.reports.markup import data_block, join, script, tag
from musegnn.reports.page import write_report
from musegnn.reports.reading import RunFiles
from musegnn.training.checkpoint import write_json
from musegnn.training.config import Config
from tiny_runs import bytes_of, tiny_run

SECTIONS = ["result", "training", "energy", "means", "structure", "classes", "costs", "reproduce"]
CHARTS = [
    *("loss", "score", "energy", "bounds", "samples", "settling", "seen", "degree", "homophily"),
    *("confusion", "rare", "time", "memory"),
]


class Page(HTMLParser):
    """A page as a browser takes it: sections, charts, scripts, attributes, and the text that is seen."""

    def __init__(self, text):
        super().__init__()
        self.sections, self.tags, self.text, self.data, self.scripts = [], [], "", "", []
        self._inside = []
        self.feed(text)
        self.charts = json.loads(self.data)

    def handle_starttag(self, name, attributes):
        self.tags.append((name, dict(attributes)))
        if name == "section":
            self.sections.append(dict(attributes)["id"])
        if name in ("script", "style"):
            self._inside.append(dict(attributes).get("id", name))
            self.scripts += [""] if name == "script" else []

    def handle_endtag(self, name):
        if name in ("script", "style"):
            self._inside.pop()

    def handle_data(self, data):
        if not self._inside:
            self.text += data
        elif self._inside[-1] == "data":
            self.data += data
        if self._inside and self._inside[-1] != "style":
            self.scripts[-1] += data


@pytest.fixture(autouse=True)
def no_library(monkeypatch):
    """Five megabytes that are the same in every page."""
    monkeypatch.setattr(page, "plotly", lambda: "window.Plotly = {}; // </script> <!--")


def read(folder):
    return Page(write_report(folder).read_text())


def test_a_page_has_every_part(tmp_path):
    found = read(made_run(tmp_path / "run"))
    assert found.sections == SECTIONS
    assert list(found.charts) == CHARTS
    assert [dict(a)["data-chart"] for _, a in found.tags if "data-chart" in a] == CHARTS
    text = " ".join(found.text.split())
    for said in (
        "72.00 %",
        "75.00 %",
        "macro F1 68.00 %",
        "3.10 %",
        "1 min 15 s",
        "512 MB",
        "1,234",
        "ab" * 32,
    ):
        assert said in text, said
    assert "Best on the validation nodes in epoch 2 of 3." in text
    assert "Never predicted" not in text
    again = f"OMP_NUM_THREADS=2 muse train {tmp_path}/run/config.toml --samples /data/tiny --out"
    assert f"{again} {tmp_path}/run-again" in text
    assert 'loss = "cross_entropy"  # bce' in found.text


def test_a_real_run_has_a_page(tmp_path):
    run = tiny_run(tmp_path)
    before = bytes_of(run.folder.path)
    found = read(run.folder.path)
    assert found.sections == [
        *("result", "training", "energy", "means", "structure", "classes", "costs", "reproduce")
    ]
    assert f"{100 * run.test_accuracy:.2f}\u00a0%" in found.text
    # It names no dataset, so that its config is no recipe: what differs from the defaults is spelled out.
    assert (
        f"muse train {tmp_path}/graph --set fanouts=4,3 --set batch_size=20 --set lambda_=2.0" in found.text
    )
    assert bytes_of(run.folder.path) == before | {"report.html": bytes_of(run.folder.path)["report.html"]}


def test_the_command_of_a_page_gives_the_same_run(tmp_path):
    """With samples that lie elsewhere, and settings that `muse train FOLDER` would have chosen otherwise."""
    run = tiny_run(tmp_path, dropout=0.0, epochs=1)
    command = shlex.split(costs.commands(RunFiles.read(run.folder.path))[0])
    assert command[1:3] == ["muse", "train"]
    assert main(command[2:]) == 0
    again = musegnn.load_run(tmp_path / "run-again")
    assert again.weights_digest == run.weights_digest
    assert set(costs.OF_A_FOLDER) == set(finding._OWN)


def test_samples_that_a_command_would_draw_again_are_not_named(tmp_path):
    drawn = {"digest": "ab" * 32, "folder": "/data/samples-0123abcd", "from_here": ".."}
    assert "--samples" not in costs.commands(RunFiles.read(made_run(tmp_path / "run", samples=drawn)))[0]


def test_a_graph_that_is_no_dataset_is_named_by_its_folder(tmp_path):
    folder = made_run(tmp_path / "run", config=Config(name="mine", dataset="mine"))
    assert "muse train /data/tiny --set " in costs.commands(RunFiles.read(folder))[0]


def test_the_same_files_give_the_same_bytes(tmp_path):
    folder = made_run(tmp_path / "run")
    first = write_report(folder).read_bytes()
    assert write_report(folder).read_bytes() == first
    assert not list(folder.glob("*.partial"))


@pytest.mark.parametrize(
    ("value", "spread", "said"),
    [(0.72, 0.01, "as expected"), (0.70, 0.02, "as expected"), (0.80, 0.01, "above"), (0.60, 0.01, "below")],
)
def test_the_result_is_held_against_the_expectation(tmp_path, value, spread, said):
    expected = {"test_accuracy": 0.73, "spread": spread, "source": "a table"}
    found = read(made_run(tmp_path / "run", found=result(test_accuracy=value, expected=expected)))
    chip = next(
        attributes["class"] for name, attributes in found.tags if "chip" in attributes.get("class", "")
    )
    assert chip == f"chip {said.split()[-1]}"
    assert f"{said} test accuracy {100 * value:.2f}\u00a0% against 73.00\u00a0%" in found.text
    assert f"({100 * (value - 0.73):+.2f} points), expected from a table." in found.text


def test_one_epoch_and_one_time_are_said_as_one(tmp_path):
    counts = [{"low": low, "high": low, "nodes": 9, "apart": 0.2, "moved": 0.1} for low in (1, 2)]
    seen = {"apart": 0.15, "moved": 0.05, "by_count": counts, "nodes": counts}
    found = read(made_run(tmp_path / "run", events=[epoch(1, loss=3.655)], told=analysis(means=seen)))
    assert "3.655 on the training nodes." in found.text
    assert "From 3.655" not in found.text
    assert "was seen 1 time, " in found.text
    assert found.charts["seen"]["data"][0]["customdata"] == ["1 time", "2 times"]
    assert "From 2.000 to 0.667 on" in read(made_run(tmp_path / "more")).text


def test_a_peer_has_no_energy(tmp_path):
    config = Config(name="tiny", dataset="debian").with_settings({"architecture": "GAT"})
    told = analysis(steps=None, means=None, error_bounds=None)
    found = read(made_run(tmp_path / "run", config=config, told=told, found=result(error_bound=None)))
    assert found.sections == [name for name in SECTIONS if name not in ("energy", "means")]
    assert found.text.count("error bound") == 0
    assert "GAT on tiny" in found.text


def test_without_steps_there_is_an_energy_and_no_bound(tmp_path):
    steps = {
        "nodes": 9,
        "terms": {"fidelity": [0.0], "smoothness": [4.0], "penalty": [None]},
        "error_bounds": [],
    }
    found = read(made_run(tmp_path / "run", told=analysis(steps=steps, error_bounds=None)))
    assert "energy" in found.charts
    assert not {"bounds", "samples"} & set(found.charts)


def test_a_run_without_analysis_or_result(tmp_path):
    found = read(made_run(tmp_path / "run", told=False))
    assert found.sections == ["result", "training", "costs", "reproduce"]
    config = Config().with_settings({"epochs": 9})
    found = read(made_run(tmp_path / "begun", config=config, told=False, found=False))
    assert "not finished: 3 of 9 epochs" in found.text
    assert f"muse train --resume {tmp_path / 'begun'}" in found.text
    failed = [epoch(1), {"event": "failed", "message": "The loss is <inf>."}]
    found = read(made_run(tmp_path / "failed", config=config, told=False, found=False, events=failed))
    assert "1 of 9 epochs are done.It failed: The loss is <inf>." in found.text
    assert "--resume" not in found.text
    found = read(made_run(tmp_path / "fresh", told=False, found=False, events=[]))
    assert found.sections == ["result", "reproduce"]
    assert found.charts == {}


def test_tasks_have_rates_and_no_matrix(tmp_path):
    found = read(made_run(tmp_path / "run", told=analysis(confusion=None)))
    assert "confusion" not in found.charts
    assert "recall" in found.text


def test_names_of_others_stay_text(tmp_path):
    config = Config(name=HOSTILE, about=HOSTILE, dataset="debian", expected={})
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    expected = {"test_accuracy": 0.5, "source": HOSTILE}
    place = {"digest": HOSTILE, "name": HOSTILE, "folder": HOSTILE, "from_here": HOSTILE}
    told = analysis([HOSTILE, "__proto__", "2020-01-01"], versions={HOSTILE: HOSTILE})
    given = {"config": config, "told": told, "found": result(expected=expected, device=HOSTILE)}
    found = read(made_run(folder, graph=place, **given))
    clean = read(made_run(tmp_path / "clean", told=analysis()))
    kinds = [
        [name for name, _ in one.tags if name not in ("dt", "dd", "div", "code", "b", "p")]
        for one in (found, clean)
    ]
    assert kinds[0] == kinds[1]
    assert len(found.scripts) == 3
    assert not any(key.startswith("on") for _, attributes in found.tags for key in attributes)
    assert found.text.count(HOSTILE) >= 6
    # Plotly reads tags and entities in the texts of a chart.
    shown = json.dumps(found.charts)
    assert "<script" not in shown
    assert "&lt;/script&gt;" in shown


def test_the_policy_lets_only_our_scripts_run(tmp_path):
    found = read(made_run(tmp_path / "run"))
    policy = next(a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    for code in found.scripts[1:]:
        assert script(code)[1] in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]


def test_markup_is_escaped_by_construction():
    assert tag("td", "<b>", tag("i", "&"), class_='a"b', hidden=True) == (
        '<td class="a&quot;b" hidden>&lt;b&gt;<i>&amp;</i></td>'
    )
    assert join("<", tag("b")) == "&lt;<b></b>"
    assert "<" not in data_block(HOSTILE).removeprefix("<script").removesuffix("</script>")[1:]
    assert script("'</script>'")[0] == "<script>'<\\/script>'</script>"


def test_every_chart_is_one_that_plotly_knows(tmp_path):
    objects = pytest.importorskip("plotly.graph_objects")
    profile = {"event": "profile", "milliseconds": {"f": 1.0, "step": 2.0}}
    told = analysis(relations=relations())
    found = read(made_run(tmp_path / "run", events=[epoch(1), profile, epoch(2)], told=told))
    assert {"profile", "spectra", "affinity-1"} < set(found.charts)
    assert "0.5\u20130.75" in found.text
    for spec in found.charts.values():
        plain = json.loads(re.sub(r'"@\w+"', '"#000000"', json.dumps(spec)))
        for trace in plain["data"]:
            # Sorting is the script's: it puts these texts on the axes.
            trace.pop("text", None)
        objects.Figure(plain)
        titles = [plain["layout"][axis].get("title") for axis in ("xaxis", "yaxis")]
        assert any(title["text"] for title in titles if title)


def test_both_kinds_of_dark_are_the_same():
    css = page._asset("page.css")
    blocks = re.findall(r"\{\s*(--background: #1[^}]+)\}", css)
    assert len(blocks) == 2
    assert blocks[0].split() == blocks[1].split()


def test_without_plotly_one_line_says_so(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(page, "plotly", page.plotly.__wrapped__)
    monkeypatch.setitem(sys.modules, "plotly.offline", None)
    folder = made_run(tmp_path / "run")
    with pytest.raises(MissingExtraError, match=r"needs the package plotly.*pip install 'plotly>=6'$"):
        write_report(folder)
    assert not (folder / "report.html").exists()


def test_plotly_is_imported_only_for_a_page():
    for path in Path(page.__file__).parent.glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            assert "plotly" not in ast.unparse(node) or not isinstance(node, ast.Import | ast.ImportFrom), (
                path
            )


@pytest.mark.parametrize(
    "broken",
    [
        {"relations": {"ways": [{}]}},
        {"classes": 7},
        {"steps": {"terms": {}}},
        {"by_degree": [{}]},
        {"confusion": [["a"]]},
        {"means": [1]},
    ],
)
def test_what_is_no_analysis_is_refused_in_one_line(tmp_path, broken):
    folder = made_run(tmp_path / "run", told=analysis(**broken))
    with pytest.raises(InputError, match="does not hold what musegnn writes there") as caught:
        write_report(folder)
    assert "\n" not in str(caught.value)
    assert not (folder / "report.html").exists()


def test_a_text_among_the_numbers_is_refused(tmp_path):
    events = [epoch(1), epoch(2, loss="<b>2</b>"), epoch(3)]
    with pytest.raises(InputError, match="'<b>2</b>' is not a number"):
        write_report(made_run(tmp_path / "run", events=events))
    with pytest.raises(InputError, match="does not hold what"):
        write_report(made_run(tmp_path / "other", found=result(threads="1; rm -r x;")))


def test_without_validation_nodes_the_last_epoch_counts(tmp_path):
    keys = {"valid_accuracy", "valid_loss", "best_epoch"}
    events = [{key: value for key, value in epoch(k).items() if key not in keys} for k in (1, 2)]
    facts = {key: value for key, value in result(best_epoch=0).items() if not key.startswith("valid")}
    found = read(made_run(tmp_path / "run", events=events, found=facts))
    assert "the last one is kept" in found.text
    assert len(found.charts["loss"]["data"]) == len(found.charts["score"]["data"]) == 1


def test_damaged_and_missing_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        RunFiles.read(tmp_path / "nowhere")
    folder = made_run(tmp_path / "run")
    path = folder / "analysis.json"
    path.write_text(path.read_text().replace("0.031", "0.001"))
    with pytest.raises(InputError, match="its checksum does not fit"):
        write_report(folder)
    write_json(folder / "result.json", result(seconds="long"))
    with pytest.raises(InputError, match="is not the result of a run"):
        write_report(folder)
