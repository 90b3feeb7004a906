"""`muse explain`: why a run gives a node its class."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.runs import Device, check_page, check_run, pick_device
from musegnn.store import file_errors

if TYPE_CHECKING:
    from musegnn.explaining import Change
    from musegnn.runs.explanation import Neighborhood

DISAGREEING = 5


def explain(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    node: Annotated[str, typer.Argument(help="A node: its id, or its name.")],
    top: Annotated[int, typer.Option(min=1, help="Shares to list.")] = 10,
    without: Annotated[
        list[str] | None,
        typer.Option(help="What if it had no edge to this node? May be repeated.", metavar="NODE"),
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(help="Draw its neighborhood into this HTML file.", metavar="FILE")
    ] = None,
    hops: Annotated[
        int | None, typer.Option(min=1, help="Take all neighbors up to this many hops, draw none.")
    ] = None,
    graph: Annotated[Path | None, typer.Option(help="The run's graph store, if it was moved.")] = None,
    device: Device = "cpu",
) -> Answer:
    """Split a node's logits into exact shares: of its own features, of each neighbor, of the means.

    They add up to the margin between its class and the next. Examples: `muse explain runs/debian curl`,
    `muse explain runs/debian curl --hops 1 --without libcurl4 --draw curl.html`.
    """
    check_run(run)
    if draw is not None:
        check_page(draw, "--draw")
    from musegnn.runs import load_run

    opened = load_run(run, graph=graph, device=pick_device(device))
    around = opened.around(node, hops=hops)
    found, tense = around.explain(), around.tension()
    apart = [] if tense is None else tense.suspicious_edges(DISAGREEING, node=around.node)
    change = around.what_if([(node, other) for other in without]) if without else None
    if draw is not None:
        with file_errors(draw):
            draw.write_text(around.draw(), encoding="utf-8")
    record: dict[str, Any] = found.to_json() | {"disagrees_with": apart}
    if change is not None:
        record["without"] = {"nodes": without, "logits": change.after.tolist()}

    def tell() -> None:
        show.text(found.sentence())
        print(f"\n{found.table(top, show.columns())}\n")
        bound = f"|Y - Y*| <= {found.error_bound:.3g} in its sample of {len(found.nodes):,} nodes"
        show.line("error bound", bound)
        if apart:
            _tell_disagreement(around, apart)
        if without and change is not None:
            _tell_change(around, without, change)
        if draw is not None:
            show.line("drawing", f"{draw} (open it in a browser)")

    return Answer(record, tell)


def _tell_change(around: "Neighborhood", without: list[str], change: "Change") -> None:
    predicted = change.predicted[0]
    before, after = (around.class_name(number) for number in change.predicted)
    gained = change.after[predicted] - change.before[predicted]
    told = f"`{after}`, as before" if before == after else f"`{after}` in place of `{before}`"
    show.line("what if", f"without {', '.join(without)} it is {told}; its logit moves by {gained:+.3g}")


def _tell_disagreement(around: "Neighborhood", apart: list[tuple[int, int, float]]) -> None:
    others = [(v if u == around.node else u, value) for u, v, value in apart]
    told = ", ".join(f"{around.name(other)} ({value:.2f})" for other, value in others)
    show.line("disagrees", f"most with {told}; 0: same direction of Y, 1: none in common")
