"""The page in a real browser: it opens without a complaint, draws, answers clicks, and can be printed.

Five megabytes of script are read for each page that is opened, so that one is opened for all tests.
"""

import pytest
from browser import CHROMIUM, Browser
from made_runs import HOSTILE, analysis, made_run

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
        one.open(write_report(made_run(folder / "run", told=analysis(CLASSES))))
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
    assert len(drawn) == 13
    assert all(count > 0 for _, count in drawn), drawn
    assert browser.run("window.stolen === undefined && !document.querySelector('main img, .plot b')")


def test_it_answers_clicks(browser):
    assert ink(browser) == LIGHT
    browser.click("#theme")
    assert ink(browser) == DARK
    browser.click("#theme")
    assert ink(browser) == LIGHT

    rows = "[...document.querySelectorAll('.sortable tbody tr')].map(r => parseInt(r.cells[1].textContent))"
    before = browser.run(rows)
    browser.click(".sortable thead th:nth-child(2) button")
    assert browser.run(rows) == sorted(before, reverse=True)
    browser.click(".sortable thead th:nth-child(2) button")
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
