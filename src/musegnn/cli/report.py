"""`muse report`: the page of a run, or of several side by side."""

from pathlib import Path
from typing import Annotated

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.runs import check_page, check_run
from musegnn.errors import InputError


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders; several are compared on one page.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Of a comparison; comparison.html if not given.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a comparison that is there.")
    ] = False,
) -> Answer:
    """Write report.html into a run folder, or compare several runs: one file, which needs no network.

    `muse train` has written it already; after an update, this writes it anew. Examples:
    `muse report runs/debian`, `muse report runs/debian runs/debian-2 --out both.html`.
    """
    for run in runs:
        check_run(run)
    if len(runs) == 1:
        _check_alone(runs[0], out, overwrite)
    if out is not None:
        check_page(out, "--out")
    from musegnn.reports.compare import write_comparison
    from musegnn.reports.page import write_report

    if len(runs) > 1:
        page = out or Path("comparison.html")
        if page.exists() and not overwrite:
            raise InputError(f"{page} exists. Name another file with --out, or replace it with --overwrite.")
        write_comparison(runs, page)
    else:
        write_report(runs[0])
        page = runs[0] / "report.html"
    return Answer({"report": str(page)}, lambda: show.line("report", f"{page} (open it in a browser)"))


def _check_alone(run: Path, out: Path | None, overwrite: bool) -> None:
    given = [option for option, is_given in (("--out", out), ("--overwrite", overwrite)) if is_given]
    if given:
        raise InputError(
            f"{given[0]} belongs to a comparison; the page of {run} lies in it, report.html, and is always "
            f"written anew. Leave {given[0]} out."
        )
