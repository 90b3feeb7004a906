"""The page in a real browser: it opens without a complaint, draws, answers clicks, and can be printed.

Five megabytes of script are read for each page that is opened, so that one is opened for all tests.
"""

import pytest
from browser import CHROMIUM, Browser
from explained_cases import Case
from made_runs import HOSTILE, analysis, made_run, relations

from musegnn.explaining import draw, explain, tension
from musegnn.reports.compare import write_comparison
from musegnn.reports.page import write_report

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt install chromium")
PLOTS = "[...document.querySelectorAll('.plot')]"
MARKS = ".trace path, .points path, .hm image, .js-line"
CLASSES = [HOSTILE, "__proto__", "<b>bold</b>", "2020-01-01"]
LIGHT, DARK = ["rgb(27, 31, 36)", "rgb(246, 247, 249)"], ["rgb(232, 235, 238)", "rgb(20, 23, 27)"]


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    with Browser() as one:
        one.prefer("light")
        one.resize(1280, 900)
        told = analysis(CLASSES, relations=relations(CLASSES))
        one.open(write_report(made_run(folder / "run", told=told)))
        yield one


def ink(browser):
    """The color of the text on a chart, and of the page."""
    return browser.run(
        "[getComputedStyle(document.querySelector('#plot-loss .xtitle')).fill,"
        " getComputedStyle(document.body).backgroundColor]"
    )


def choose(browser, name, value):
    found = f"document.getElementById('{name}')"
    browser.run(f"(s => (s.value = '{value}', s.dispatchEvent(new Event('change'))))({found})")


def test_every_chart_is_drawn(browser):
    assert browser.problems == []
    drawn = browser.run(f"{PLOTS}.map(p => [p.dataset.chart, p.querySelectorAll('{MARKS}').length])")
    assert len(drawn) == 16
    assert all(count > 0 for _, count in drawn), drawn
    assert browser.run("window.stolen === undefined && !document.querySelector('main img, .plot b')")


def test_it_answers_clicks(browser):
    assert ink(browser) == LIGHT
    browser.click("#theme")
    assert ink(browser) == DARK
    browser.click("#theme")
    assert ink(browser) == LIGHT

    lines = "[...document.querySelectorAll('#classes .sortable tbody tr')]"
    rows = f"{lines}.map(r => parseInt(r.cells[1].textContent))"
    before = browser.run(rows)
    browser.click("#classes .sortable thead th:nth-child(2) button")
    assert browser.run(rows) == sorted(before, reverse=True)
    browser.click("#classes .sortable thead th:nth-child(2) button")
    assert browser.run(rows) == sorted(before) != before

    ticks = "[...document.querySelectorAll('#plot-confusion .ytick text')].map(t => t.textContent)"
    by_size = browser.run(ticks)
    choose(browser, "order", "given")
    assert browser.run(ticks) == CLASSES != by_size
    bar = "document.querySelector('#plot-confusion .colorbar .cbtitle').textContent"
    assert "share" in browser.run(bar)
    choose(browser, "shown", "count")
    assert browser.run(bar) == "nodes"
    assert browser.problems == []


def test_dark_where_the_system_is_and_light_on_paper(browser):
    browser.run("delete document.documentElement.dataset.theme")
    browser.prefer("dark")
    assert ink(browser) == DARK
    width = "document.querySelector('#plot-loss .main-svg').clientWidth"
    note = f"window.paper = [document.documentElement.dataset.theme, {width}]"
    browser.run(f"void addEventListener('beforeprint', () => {{ {note} }})")
    assert browser.print().startswith(b"%PDF")
    theme, width = browser.run("paper")
    assert theme == "light"
    assert width < 340
    assert ink(browser) == DARK
    assert browser.problems == []


def test_a_phone_needs_no_sideways_scrolling(browser, tmp_path):
    browser.resize(390, 800, is_phone=True)
    runs = [made_run(tmp_path / name, told=analysis(CLASSES)) for name in ("a" * 40, "b")]
    browser.open(write_comparison(runs, tmp_path / "both.html"))
    assert browser.run("document.documentElement.scrollWidth") == 390
    assert browser.run(f"{PLOTS}.every(p => p.querySelector('.main-svg').clientWidth < 390)")
    assert browser.problems == []


def test_a_neighborhood_is_drawn_and_answers(browser, tmp_path):
    browser.prefer("light")
    # So high that the drawing has no room to spare on its left and right.
    browser.resize(1280, 1400)
    case = Case(seed=0)
    found = explain(*case.given, seen=case.seen, node_name=lambda node: f"{'W' * 20} {node} {HOSTILE}")
    page = tmp_path / "drawing.html"
    page.write_text(draw(found, case.sample, tension(*case.given, seen=case.seen)), encoding="utf-8")
    browser.open(page)
    assert browser.problems == []
    assert browser.run("window.stolen === undefined && !document.querySelector('img')")
    nodes, lines, apart = (
        f"document.querySelectorAll('{one}').length" for one in (".node", ".edge", ".apart")
    )
    assert browser.run(f"[{nodes} > 10, {lines} > 10, {apart} === 10]") == [True] * 3

    # No name is cut, neither one that is shown nor one that is shown when its node is pointed at.
    cut = (
        "(b => [...document.querySelectorAll('#drawing text')].filter(t => (t.style.display = '',"
        " (r => r.left < b.left || r.right > b.right || r.top < b.top || r.bottom > b.bottom)"
        "(t.getBoundingClientRect()))).length)(document.getElementById('drawing').getBoundingClientRect())"
    )
    assert browser.run(cut) == 0

    chosen = "[...document.querySelectorAll('.chosen')].map(g => g.getAttribute('aria-label'))"
    name, dim = "document.getElementById('name').textContent", "document.querySelectorAll('.dim').length"
    assert browser.run(f"[{chosen}.length, {dim}]") == [0, 0]
    before = browser.run(name)
    browser.click(".node:nth-of-type(5)")
    # The mouse goes elsewhere, and what was clicked stays.
    paper = "getComputedStyle(document.body).backgroundColor"
    assert browser.run(paper) == "rgb(252, 252, 250)"
    browser.click("#theme")
    assert browser.run(paper) == "rgb(21, 23, 26)"
    assert browser.run(name) != before
    assert browser.run(f"{chosen}[0].startsWith({name})")
    assert browser.run(f"{dim} > 0")
    browser.click("#parts tr[data-node]:not([data-node='0'])")
    assert browser.run(f"{chosen}.length") == 1
    browser.click("#theme")
    assert browser.run(paper) == "rgb(252, 252, 250)"
    assert browser.problems == []
