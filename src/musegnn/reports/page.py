"""report.html: one file, no network, for a screen, a phone and a printer."""

import os
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path

from musegnn.errors import MissingExtraError
from musegnn.reports import costs, sections
from musegnn.reports.charts import Chart
from musegnn.reports.markup import Html, data_block, join, script, tag
from musegnn.reports.reading import RunFiles, told_damage
from musegnn.reports.sections import Section
from musegnn.store import file_errors

_SECTIONS: tuple[Callable[[RunFiles], Section | None], ...] = (
    sections.result,
    sections.training,
    sections.energy,
    sections.relations,
    sections.means,
    sections.structure,
    sections.classes,
    costs.costs,
    costs.reproduce,
)


def write_report(folder: str | Path) -> Path:
    """Write report.html into the folder of a run; the same files there give the same bytes."""
    run = RunFiles.read(folder)
    out = run.path / "report.html"
    write(out, run_page(run))
    return out


def run_page(run: RunFiles) -> list[str]:
    """The page of a run, in parts."""
    with told_damage(run.path):
        found = [section for make in _SECTIONS if (section := make(run)) is not None]
        about = [run.config.baseline.architecture, f"on {run.record['graph'].get('name') or 'a graph'}"]
        if run.config.about:
            about.append(f"\u00b7 {run.config.about}")
        return page(run.name, " ".join(about), found)


def page(title: str, about: str, content: list[Section]) -> list[str]:
    """A whole page; scripts and styles are inside, and its policy lets nothing else in.

    In parts: the library, five megabytes, is copied by nobody but the disk.
    """
    charts = [part for section in content for part in section.content if isinstance(part, Chart)]
    library, library_digest = _library(plotly())
    code, code_digest = script(_asset("page.js"))
    policy = f"default-src 'none'; script-src {library_digest} {code_digest}; "
    policy += "style-src 'unsafe-inline'; img-src data: blob:"
    head = join(
        Html('<meta charset="utf-8">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{title} \u00b7 musegnn"),
        Html(f"<style>{_asset('page.css')}</style>"),
    )
    links = [tag("a", section.title, href=f"#{section.id}") for section in content]
    button = tag("button", "Dark", id="theme", type="button", title="Change between light and dark")
    top = tag("header", tag("div", tag("h1", title), tag("p", about)), button)
    body = join(
        top,
        tag("nav", *links, aria_label="Contents"),
        tag("noscript", tag("p", "Charts need JavaScript; tables and numbers do not.")),
        tag("main", *(_section(section) for section in content)),
        tag("footer", "Written by musegnn. Nothing on this page is loaded from elsewhere."),
        data_block({chart.id: chart.spec() for chart in charts}),
    )
    opened = f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>{body}'
    return [opened, library, f"{code}</body></html>\n"]


@cache
def plotly() -> str:
    """The script that draws; it comes with the package plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingExtraError(
            "A report needs the package plotly, which is not installed. "
            "Install it with: pip install 'plotly>=6'"
        ) from error
    return str(get_plotlyjs())


@cache
def _library(code: str) -> tuple[Html, str]:
    """As `script`, once for all pages."""
    return script(code)


def write(path: Path, parts: list[str]) -> None:
    """Whole or not at all."""
    fresh = path.with_name(path.name + ".partial")
    with file_errors(path):
        # A name that is no UTF-8 has no place in a page.
        with fresh.open("wb") as file:
            file.writelines(part.encode(errors="replace") for part in parts)
        os.replace(fresh, path)


def _section(section: Section) -> Html:
    parts = [_figure(part) if isinstance(part, Chart) else part for part in section.content]
    grid = tag("div", *parts, class_="grid")
    return tag("section", tag("h2", section.title), grid, id=section.id)


def _figure(chart: Chart) -> Html:
    tools = Html("")
    if chart.id == "confusion":
        tools = Html(
            '<p class="tools"><label>Order <select id="order"><option value="size">by size'
            '<option value="accuracy">by accuracy<option value="name">by name<option value="given">as given'
            '</select></label> <label>Show <select id="shown"><option value="share">shares of the true class'
            '<option value="count">counts</select></label></p>'
        )
    plot = tag(
        "div", class_="plot", id=f"plot-{chart.id}", style=f"height:{chart.height}px", data_chart=chart.id
    )
    note = tag("figcaption", chart.note) if chart.note else Html("")
    return tag("figure", tag("h3", chart.title), note, tools, plot, class_="wide" if chart.is_wide else "")


def _asset(name: str) -> str:
    return (files("musegnn.reports") / name).read_text(encoding="utf-8")
