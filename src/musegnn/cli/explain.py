"""`muse explain`: why a run gives a node its class."""

from collections.abc import Iterable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from musegnn.cli import show
from musegnn.cli.answer import Answer
from musegnn.cli.runs import Device, check_page, check_run, pick_device
from musegnn.errors import InputError
from musegnn.store import file_errors

if TYPE_CHECKING:
    from musegnn.explaining import Disagreement, Explanation, Tension
    from musegnn.explaining.explanation import Sum
    from musegnn.runs.explanation import Neighborhood
    from musegnn.training.config import EnergyConfig

DISAGREEING, RELATIONS = 5, 4
"""How many neighbors and ways of being joined are told."""
APART = 0.05
"""Who is nearer to what the energy wants does not disagree."""


def explain(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    node: Annotated[str, typer.Argument(help="A node: its id, or its name.")],
    top: Annotated[int, typer.Option(min=1, help="Shares to list.")] = 10,
    without: Annotated[
        list[str] | None,
        typer.Option(help="What if it had no edge to this node? May be repeated.", metavar="NODE"),
    ] = None,
    like: Annotated[
        str | None, typer.Option(help="What if it had the features of this node?", metavar="NODE")
    ] = None,
    draw: Annotated[
        Path | None, typer.Option(help="Draw its neighborhood into this HTML file.", metavar="FILE")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a drawing that is there.")] = False,
    hops: Annotated[
        int | None,
        typer.Option(min=1, help="Take all neighbors up to this many hops, in place of a sample of them."),
    ] = None,
    graph: Annotated[Path | None, typer.Option(help="The run's graph store, if it was moved.")] = None,
    device: Device = "cpu",
) -> Answer:
    """Split a node's logits into exact shares: of its own features, of each neighbor, of the means.

    They add up to the margin between its class and the next. Examples: `muse explain runs/debian curl`,
    `muse explain runs/debian curl --hops 1 --without libcurl4 --draw curl.html`.
    """
    check_run(run)
    _check_drawing(draw, overwrite)
    from musegnn import explaining
    from musegnn.runs import load_run

    opened = load_run(run, graph=graph, device=pick_device(device))
    around = opened.around(node, hops=hops)
    without = list(dict.fromkeys(without or ()))
    found, tense = around.explain(), around.tension()
    record = found.to_json() | _energy(around, tense)
    if without or like is not None:
        record["what_if"] = _what_if(around, found, without, like)
    if draw is not None:
        with file_errors(draw):
            draw.write_text(explaining.draw(found, around.batch.sample, tense), encoding="utf-8")

    def tell() -> None:
        show.text(found.sentence())
        print(f"\n{found.table(top, show.columns())}\n")
        _tell(found, record, opened.config.energy)
        if draw is not None:
            what = ", of the graph as it is" * ("what_if" in record)
            show.line("drawing", f"{draw} (open it in a browser{what})")

    return Answer(record, tell)


def _check_drawing(draw: Path | None, overwrite: bool) -> None:
    if draw is None:
        if overwrite:
            raise InputError("--overwrite belongs to --draw, which is not given. Leave it out.")
        return
    check_page(draw, "--draw")
    if draw.exists() and not overwrite:
        raise InputError(f"{draw} exists. Name another file with --draw, or replace it with --overwrite.")


def _energy(around: "Neighborhood", tense: "Tension | None") -> dict[str, Any]:
    """What the energy says of the node and its edges; nothing of one that does not say."""
    if tense is None:
        return {"anomaly": None, "energy": None, "disagrees_with": []}
    anomaly, contradiction = tense.scores_of(around.node)
    edges = tense.suspicious_edges(DISAGREEING, node=around.node)
    return {
        "anomaly": anomaly,
        "anomaly_rank": 1 + int((tense.anomaly > anomaly).sum()),
        "contradiction": contradiction,
        "energy": tense.of_node(around.node),
        "disagrees_with": [_disagreement(around, edge) for edge in edges],
    }


def _disagreement(around: "Neighborhood", edge: "Disagreement") -> dict[str, Any]:
    other = edge.v if edge.u == around.node else edge.u
    found = {"node": other, "name": around.name(other), "contrast": edge.contrast}
    return found if edge.trust is None else found | {"trust": edge.trust}


def _what_if(
    around: "Neighborhood", found: "Explanation", without: list[str], like: str | None
) -> dict[str, Any]:
    features_of: dict[int | str, Any] = {} if like is None else {around.node: around.features(like)}
    change = around.what_if([(around.node, other) for other in without], features_of)
    before, after = change.predicted
    return {
        "without": without,
        "like": like,
        "logits": change.after.tolist(),
        "predicted": after,
        "predicted_name": around.class_name(after),
        "logit_change": float(change.after[before] - change.before[before]),
        "margin": float(found.of_margin(change.after)),
    }


def _tell(found: "Explanation", record: dict[str, Any], energy: "EnergyConfig") -> None:
    signed = {hop: " ".join(f"{one.percent:+.0f} %" for one in some) for hop, some in found.by_hop().items()}
    show.line("by hop", ", ".join(f"{hop}: {told}" for hop, told in signed.items()))
    if found.relations:
        show.line("by relation", _by_relation(found))
    bound = f"|Y - Y*| <= {show.bound(found.error_bound)} in its sample of {len(found.nodes):,} nodes"
    bound += show.about_bound(found.error_bound, energy.minimizer)
    show.line("error bound", bound if isfinite(found.error_bound) else show.NO_STEPS)
    if energy.kind == "robust":
        show.line(
            "weights", "shares are exact with the weights that edges had in each step; a what-if has new ones"
        )
    if record["anomaly"] is not None:
        # A relation that the node has no part in costs nothing, and says nothing.
        terms = ", ".join(f"{term} {value:.3g}" for term, value in record["energy"].items() if value)
        rank = f"number {record['anomaly_rank']:,} of {len(found.nodes):,} in its sample"
        show.line("anomaly", f"|Y - Z| = {record['anomaly']:.3g}, {rank}; its energy: {terms or 'none'}")
    if apart := [one for one in record["disagrees_with"] if one["contrast"] >= APART]:
        legend = "0: as the energy wants it, 1: nothing in common, 2: the opposite"
        legend += "; trust 1: counts in full" * ("trust" in apart[0])
        show.line("disagrees", f"most with {', '.join(map(_told, apart))}; {legend}")
    if "what_if" in record:
        _tell_change(record)


def _by_relation(found: "Explanation") -> str:
    """The ways of being joined that count most."""
    ways = sorted(found.by_relation().items(), key=lambda way: -sum(abs(one.percent) for one in way[1]))
    told = [f"{way}: {_percents(sums)}" for way, sums in ways[:RELATIONS]]
    if rest := ways[RELATIONS:]:
        told.append(f"{show.count(len(rest), 'other')}: {_percents(one for _, sums in rest for one in sums)}")
    has_ways = any("forward" in way or "backward" in way for way, _ in ways)
    legend = " (forward: the node points to them)" * has_ways
    return "; ".join(told) + legend if told else "no neighbor has a share"


def _percents(sums: Iterable["Sum"]) -> str:
    """What is for the class, and what is against it."""
    both = [0.0, 0.0]
    for one in sums:
        both[one.percent < 0] += one.percent
    return " ".join(f"{percent:+.0f} %" for percent in both if percent)


def _told(other: dict[str, Any]) -> str:
    trust = f", trust {other['trust']:.2g}" if "trust" in other else ""
    return f"{other['name']} ({other['contrast']:.2f}{trust})"


def _tell_change(record: dict[str, Any]) -> None:
    change, before = record["what_if"], record["predicted_name"]
    after = change["predicted_name"]
    changes = [f"without {', '.join(change['without'])}"] if change["without"] else []
    changes += [] if change["like"] is None else [f"with the features of {change['like']}"]
    told = f"`{after}`, as before" if before == after else f"`{after}` in place of `{before}`"
    over = f"margin of `{before}`"
    over += f" over `{record['runner_up_name']}`" if record.get("runner_up_name") else ""
    margin = f"the {over} goes from {record['margin']:.3g} to {change['margin']:.3g}"
    moved = f"the logit of `{before}` moves by {change['logit_change']:+.3g}"
    show.line("what if", f"{' and '.join(changes)} it is {told}; {margin}, {moved}")
