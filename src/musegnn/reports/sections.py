"""What a page says of one run: a section each, or None where the run has nothing to say about it."""

from dataclasses import dataclass
from math import sqrt
from typing import Any

from musegnn.graph.relation import NO_RELATIONS
from musegnn.reports import charts, words
from musegnn.reports.charts import Chart
from musegnn.reports.equation import equation
from musegnn.reports.markup import Html, table, tag
from musegnn.reports.reading import RunFiles

_METRICS = {"accuracy": "accuracy", "macro_f1": "macro F1", "roc_auc": "ROC-AUC"}
_FEW = 30
"""A bin with fewer nodes is no ground for a sentence."""
_WAYS = {
    "predictive": "A node is predicted from what its neighbors say, each through H\u1d63: forward from the "
    "nodes that it points to, backward from those that point to it.",
    "relational": "What a node says, seen through H\u1d63, is to be what the node says that it points to.",
}
_WITHOUT_DIRECTIONS = {
    "predictive": "A node is predicted from what its neighbors say, each through H\u1d63.",
    "relational": "What a node says, seen through H\u1d63, is to be what its neighbors say.",
}
_AFFINITIES = {
    "predictive": "Blue where row a meets column b: such a neighbor of class a makes class b likely; orange: "
    "unlikely.",
    "relational": "Blue where row a meets column b: nodes of class a go with such neighbors of class b; "
    "orange: they do not.",
}
_UNMOVED = 1e-5
"""What differs less from where it began was not learned."""
DEGREE, HOMOPHILY = "neighbors, at least", "neighbors of the same class, % from"


@dataclass(frozen=True)
class Section:
    """A part of the page, with its place in the table of contents."""

    id: str
    title: str
    content: list[Html | Chart]


def result(run: RunFiles) -> Section:
    """What was reached, and what was to be expected."""
    if run.result is None:
        text = f"This run is not finished: {len(run.epochs)} of {run.config.training.epochs} epochs are done."
        lines = [text] if run.failure is None else [text, f"It failed: {run.failure}"]
        return Section("result", "Result", [tag("p", line, class_="verdict") for line in lines])
    found = run.result
    tiles: list[Html] = []
    for split, text in (("test", "test"), ("valid", "validation")):
        scores = {name: found.get(f"{split}_{name}") for name in (run.config.training.metric, *_METRICS)}
        told = [_score(run, split, name, value) for name, value in scores.items() if value is not None]
        if told:
            (name, value, about), others = told[0], [f"{name} {value}" for name, value, _ in told[1:]]
            tiles.append(
                _tile(
                    f"{text} {name}", value, "; ".join([*filter(None, [about]), *others]), is_main=not tiles
                )
            )
    if found.get("error_bound") is not None:
        about, steps = "|Y \u2212 Y*| / |Y|, largest of the samples", (run.analysis or {}).get("steps") or {}
        if tight := steps.get("tight_bound"):
            about += f"; of one of them more steps show that it is at most {words.bound(tight)}"
        tiles.append(_tile("error bound", words.bound(found["error_bound"]), about))
    if found["best_epoch"]:
        epochs = f"of {found['epochs']}, chosen on the validation nodes"
        tiles.append(_tile("best epoch", words.whole(found["best_epoch"]), epochs))
    else:
        tiles.append(_tile("epochs", words.whole(found["epochs"]), "the last one is kept"))
    tiles.append(_tile("time", words.duration(found["seconds"]), f"on {found['device']}"))
    tiles.append(_tile("peak memory", words.megabytes(found["peak_rss_mb"]), ""))
    shape = f"width {run.config.model.hidden}"
    shape += "" if run.config.is_baseline else f", {run.config.model.steps} steps"
    tiles.append(_tile("parameters", words.whole(found["parameters"]), shape))
    return Section("result", "Result", [*_verdicts(run), tag("dl", *tiles, class_="tiles")])


def _score(run: RunFiles, split: str, name: str, value: float) -> tuple[str, str, str]:
    """Its name, its value, and how sure a share of so many nodes is."""
    about, analysis = "", run.analysis or {}
    if name == "accuracy" and analysis.get("split") == split and analysis["nodes"]:
        half = 1.96 * sqrt(value * (1 - value) / analysis["nodes"])
        about = f"\u00b1 {100 * half:.2f} (95 %) for {analysis['nodes']:,} nodes"
    return _METRICS[name], words.percent(value), about


def _tile(name: str, value: str, more: str, *, is_main: bool = False) -> Html:
    parts = [tag("dt", name), tag("dd", value)]
    if more:
        parts.append(tag("dd", more, class_="more"))
    return tag("div", *parts, class_="tile main" if is_main else "tile")


def _verdicts(run: RunFiles) -> list[Html]:
    """A line for each expectation: met, above or below."""
    assert run.result is not None
    lines, expected = [], run.result.get("expected") or {}
    for split in ("test", "valid"):
        wanted, value = expected.get(f"{split}_accuracy"), run.result.get(f"{split}_accuracy")
        if wanted is None or value is None:
            continue
        # Runs differ by their seed; where nobody says by how much, by half a point.
        slack = max(2 * expected.get("spread", 0.0), 0.005)
        points = 100 * (value - wanted)
        mark, text = ("\u25cf", "as expected") if abs(value - wanted) <= slack else ("\u25b2", "above")
        if value - wanted < -slack:
            mark, text = "\u25bc", "below"
        spread = f" \u00b1 {100 * expected['spread']:.2f}" if "spread" in expected else ""
        chip = tag("b", f"{mark} {text}", class_=f"chip {text.split()[-1]}")
        told = (
            f" {split} accuracy {words.percent(value)} against {words.percent(wanted)}{spread} "
            f"({points:+.2f} points), expected from {expected.get('source', 'the recipe')}."
        )
        lines.append(tag("p", chip, told, class_="verdict"))
    return lines


def training(run: RunFiles) -> Section | None:
    """Loss and metric by epoch."""
    epochs = run.epochs
    if not epochs:
        return None
    numbers, metric = [one["epoch"] for one in epochs], run.config.training.metric
    losses = [charts.line("training", numbers, [one.get("loss") for one in epochs], 0)]
    valid = [one.get("valid_loss") for one in epochs]
    if any(value is not None for value in valid):
        losses.append(charts.line("validation", numbers, valid, 1))
    scores = [charts.line("training accuracy", numbers, _percents(epochs, "train_accuracy"), 0, unit=" %")]
    reached = _percents(epochs, f"valid_{metric}")
    if any(value is not None for value in reached):
        name = f"validation {_METRICS[metric]}"
        scores.append(charts.line(name, numbers, reached, 1, unit=" %"))
    note, best = "", epochs[-1].get("best_epoch")
    if best is not None and best in numbers:
        at = epochs[numbers.index(best)]
        note = f"Best on the validation nodes in epoch {best} of {numbers[-1]}"
        note += "." if best != numbers[-1] else ", the last: it may go on to improve with more epochs."
        if (gap := _gap(at)) is not None:
            side = "above" if gap >= 0 else "below"
            note += f" Training accuracy is {abs(gap):.1f} points {side} validation accuracy then."
    loss_note = f"From {epochs[0]['loss']:.3f} to " if len(epochs) > 1 else ""
    loss_note += f"{epochs[-1]['loss']:.3f} on the training nodes."
    if run.config.model.dropout:
        loss_note += " Dropout and the epoch's changing weights are in the training curve, not in the other."
    return Section(
        "training",
        "Training",
        [
            charts.by_epoch("loss", "Loss by epoch", loss_note, losses, "mean loss of a sample"),
            charts.by_epoch("score", "Accuracy by epoch", note, scores, "%"),
        ],
    )


def _percents(epochs: list[dict[str, Any]], key: str) -> list[float | None]:
    return [None if one.get(key) is None else 100 * one[key] for one in epochs]


def _gap(epoch: dict[str, Any]) -> float | None:
    pair = epoch.get("train_accuracy"), epoch.get("valid_accuracy")
    return None if pair[0] is None or pair[1] is None else 100 * (pair[0] - pair[1])


def energy(run: RunFiles) -> Section | None:
    """What the K steps did; a peer has none."""
    if run.analysis is None or not run.analysis["steps"]:
        return None
    steps, bounds = run.analysis["steps"], run.analysis["error_bounds"]
    terms = steps["terms"]
    totals = [None if None in one else sum(one) for one in zip(*terms.values(), strict=True)]
    content: list[Html | Chart] = [tag("p", equation(run), class_="equation")]
    note = f"Of one sample with {steps['nodes']:,} nodes."
    known = [(k, value) for k, value in enumerate(totals) if value is not None]
    if len(known) > 1:
        (first, start), (last, end) = known[0], known[-1]
        note += f" Steps {first} to {last} lower it by {100 * (1 - end / start):.1f} %." if start else ""
        before = totals[last - 1]
        if before and last - first > 1:
            note += f" The last one still by {100 * (1 - end / before):.2f} %."
    if totals[0] is None:
        note += " Where the descent begins, Y = Z, the penalty is infinite: that term is not drawn."
    if fallen := _by_stage(steps.get("stages", [])):
        note += f" Each stage lowers an energy of its own: {fallen}, which is drawn."
    if trust := steps.get("trust"):
        note += f" Behind the last step half of its edges count for {trust['median']:.2g} or less, where 1 is"
        note += (
            f" in full; {words.percent(trust['share_below'], 1)} of them for less than {trust['below']:g}."
        )
        if trust["share_below"] > 0.5:
            note += " That is hardly a graph any more: take a larger robust_scale."
    label = "step k of the last stage" if run.config.energy.is_staged else "step k"
    content.append(charts.energies(terms, note, label))
    if steps["error_bounds"]:
        final = words.bound(steps["error_bounds"][-1])
        where = run.config.energy.minimizer or "exact minimizer"
        note = f"Proven: after the last step, Y is at most {final} of its size away from the {where}."
        if steps["error_bounds"][-1] > 1:
            note += " That is more than all of it, and says nothing."
            if (tight := steps.get("tight_bound")) is not None and tight < steps["error_bounds"][-1]:
                note += f" More steps from there, for the proof alone, show: at most {words.bound(tight)}."
            fewer = ", fewer stages" * run.config.energy.is_staged
            note += f" More steps{fewer} or a smaller lambda come nearer."
        if len(steps["error_bounds"]) > 1:
            content.append(charts.bounds_by_step({"error bound": steps["error_bounds"]}, note, label))
        else:
            content.append(tag("figure", tag("h3", "Error bound"), tag("p", note)))
    if bounds and bounds["samples"] > 1:
        note = f"The largest of {bounds['samples']:,} samples is {words.bound(bounds['sorted'][-1])}."
        content.append(charts.bounds_by_sample(bounds["sorted"], bounds["samples"], note))
    return Section("energy", "Energy and error bound", content)


def _by_stage(stages: list[list[float | None]]) -> str:
    """By how much each lowers its energy; that of Z is infinite if it violates the penalty."""
    told = [
        f"stage {number} from infinity, since Z violates the penalty"
        if start is None or end is None
        else f"stage {number} by {100 * (1 - end / (start or 1)):.3g} %"
        for number, (start, end) in enumerate(stages, start=1)
    ]
    return ", ".join(told) if len(told) > 1 else ""


def relations(run: RunFiles) -> Section | None:
    """What was learned of each relation, in each direction."""
    if run.analysis is None or not run.analysis.get("relations"):
        return None
    found = run.analysis["relations"]
    ways, classes = found["ways"], found["classes"]
    rows = [
        [way["name"], words.ends(*way["lambdas"]), f"{way['norm']:.4g}", f"{way['spectrum'][-1]:.3g}"]
        for way in ways
    ]
    head = ["relation", "\u03bb\u1d63", "|H\u1d63| at most", "least singular value"]
    figure = tag("figure", tag("h3", "Weights and norms"), table(head, rows, sort=True))
    content: list[Html | Chart] = [figure]
    part = run.config.energy
    if text := (_WAYS if ways[0]["name"] != NO_RELATIONS else _WITHOUT_DIRECTIONS).get(part.kind):
        text += f" What follows is of the last of {part.stages} stages." * run.config.energy.is_staged
        if unmoved := [way["name"] for way in ways if way.get("moved", 1.0) < _UNMOVED]:
            text += f" Nothing was learned of {', '.join(unmoved)}, as where no sample has such an edge."
        content.insert(0, tag("p", text, class_="wide"))
    begin = "identity, with all of them 1" if part.limit > 1 else f"identity, scaled below {part.limit:g}"
    note = f"H\u1d63 begins as the {begin}."
    content.append(charts.spectra({way["name"]: (way["places"], way["spectrum"]) for way in ways}, note))
    shown = [
        (k, way) for k, way in enumerate(ways) if way.get("affinity") and way.get("moved", 1.0) >= _UNMOVED
    ]
    if shown and part.kind in _AFFINITIES:
        note = f"Affinities of classes: {_AFFINITIES[part.kind]} "
        note += "It is the cosine of y H\u1d63 and y\u2032, the mean "
        note += (
            "embeddings of both, less the mean of all shown. In the beginning each class goes with itself."
        )
        note += f" The {len(classes)} most frequent classes."
        content.append(tag("p", note, class_="wide"))
    for k, way in shown:
        content.append(charts.affinity(f"affinity-{k}", f"Affinity: {way['name']}", way["affinity"], classes))
    return Section("relations", "Relations", content)


def means(run: RunFiles) -> Section | None:
    """How far Y is from mu, and how M settles."""
    if run.analysis is None or not run.analysis["means"]:
        return None
    found = run.analysis["means"]
    bins = found["by_count"]
    note = f"Y is {words.percent(found['apart'], 1)} of its size away from \u03bc"
    if len(bins) > 1:
        seldom, often = (words.percent(bins[k]["apart"], 1) for k in (0, -1))
        note += f": {seldom} where a node was seen {words.times(bins[0]['low'], bins[0]['high'])}"
        note += f", {often} at {words.span(bins[-1]['low'], bins[-1]['high'])}"
    note += f". One more update would move \u03bc by {words.percent(found['moved'], 1)}."
    content: list[Html | Chart] = [charts.settling(bins, note)]
    if counts := found.get("nodes"):
        never = counts[0]["nodes"] if counts[0]["high"] == 0 else 0
        total = sum(one["nodes"] for one in counts)
        note = f"{never:,} of {total:,} nodes ({words.percent(never / max(total, 1), 1)}) were never seen."
        content.append(charts.node_counts(counts, note))
    return Section("means", "Mean embeddings", content)


def structure(run: RunFiles) -> Section | None:
    """Accuracy by degree and by homophily."""
    if run.analysis is None or not run.analysis["by_degree"]:
        return None
    split, bins = run.analysis["split"], without_tail(run.analysis["by_degree"])
    overall = sum(one["nodes"] * one["accuracy"] for one in bins) / sum(one["nodes"] for one in bins)
    note = _weakest(bins, "a degree of ")
    content: list[Html | Chart] = [charts.by_bin("degree", "Accuracy by degree", note, bins, DEGREE, overall)]
    if bins := run.analysis["by_homophily"]:
        bins, title = in_percent(bins), "Accuracy by local homophily"
        note = _weakest(bins, "this share of neighbors of their own class: ", " %")
        content.append(charts.by_bin("homophily", title, note, bins, HOMOPHILY, overall))
    lead = f"Accuracy on the {split} nodes. Numbers in bars count nodes; whiskers are 95 % intervals."
    return Section("structure", "Where it is weak", [tag("p", lead), *content])


def without_tail(bins: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The last bins together, until they hold enough nodes to say something."""
    bins = list(bins)
    while len(bins) > 1 and bins[-1]["nodes"] < _FEW:
        last, before = bins.pop(), bins.pop()
        nodes = last["nodes"] + before["nodes"]
        right = sum(one["nodes"] * one["accuracy"] for one in (last, before))
        bins.append({"low": before["low"], "high": last["high"], "nodes": nodes, "accuracy": right / nodes})
    return bins


def in_percent(bins: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Bins of shares."""
    return [{**one, "low": round(100 * one["low"]), "high": round(100 * one["high"])} for one in bins]


def _weakest(bins: list[dict[str, Any]], what: str, unit: str = "") -> str:
    some = [one for one in bins if one["nodes"] >= _FEW]
    if len(some) < 2:
        return ""
    # What is surely weak or good, not what a few nodes happen to be.
    least = min(some, key=lambda one: charts.wilson(one["accuracy"], one["nodes"])[1])
    most = max(some, key=lambda one: charts.wilson(one["accuracy"], one["nodes"])[0])
    if least is most or least["accuracy"] >= most["accuracy"]:
        return "No bin is surely weaker than another."
    return (
        f"Of bins with {_FEW} nodes or more, "
        f"weakest for {what}{words.span(least['low'], least['high'])}{unit} "
        f"({words.percent(least['accuracy'], 1)} of {least['nodes']:,} nodes), best at "
        f"{words.span(most['low'], most['high'])}{unit} ({words.percent(most['accuracy'], 1)})."
    )


def classes(run: RunFiles) -> Section | None:
    """Who is taken for whom, and how each class does."""
    if run.analysis is None or not run.analysis["classes"]:
        return None
    found, matrix = run.analysis["classes"], run.analysis["confusion"]
    content: list[Html | Chart] = []
    if matrix is not None:
        note = "Sort it, drag to zoom, double-click to see all of it again."
        content.append(charts.confusion(matrix, found, note))
        content.append(_mistakes(found, matrix))
    weak = [one["name"] for one in found if one["nodes"] and not one["answered"]]
    more = f" and {len(weak) - 8} more" if len(weak) > 8 else ""
    note = f"Never predicted: {', '.join(weak[:8])}{more}." if weak else ""
    if matrix is not None:
        content.append(charts.by_class(found, note))
    content.append(_rates(found, has_recall=matrix is None))
    return Section("classes", "Classes", content)


def _mistakes(found: list[dict[str, Any]], matrix: list[list[int]]) -> Html:
    """The most frequent ones."""
    cells = [
        (count, truth, answer)
        for truth, row in enumerate(matrix)
        for answer, count in enumerate(row)
        if truth != answer and count
    ]
    rows = [
        [
            found[truth]["name"],
            found[answer]["name"],
            f"{count:,}",
            words.percent(count / sum(matrix[truth]), 1),
        ]
        for count, truth, answer in sorted(cells, key=lambda cell: (-cell[0], cell[1:]))[:10]
    ]
    head = ["class", "taken for", "nodes", "of the class"]
    return tag("figure", tag("h3", "Most frequent mistakes"), table(head, rows, class_="second-name"))


def _rates(found: list[dict[str, Any]], *, has_recall: bool) -> Html:
    rows = []
    for one in sorted(found, key=lambda one: -one["nodes"]):
        share = one["accuracy"]
        width = f"{100 * (share or 0):.1f}"
        bar = tag("meter", words.percent(share, 1), min="0", max="100", value=width)
        accuracy = tag("span", words.percent(share, 1), bar, class_="rate")
        row = [one["name"], f"{one['nodes']:,}", accuracy, words.percent(one["precision"], 1)]
        rows.append([*row, words.percent(one["recall"], 1)] if has_recall else row)
    head = ["class", "nodes", "accuracy", "precision", *(["recall"] if has_recall else [])]
    return tag("figure", tag("h3", "Class by class"), table(head, rows, sort=True), class_="tall")
