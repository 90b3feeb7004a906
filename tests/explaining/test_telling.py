"""How an explanation is told: as a sentence, a table, JSON and a drawing."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from explained_cases import Case

from musegnn.explaining import Explanation, draw, explain, tension


def small(**changes) -> Explanation:
    """Numbers that can be checked by hand: the margin is 2 = 1.5 + 1 - 0.5 + 0.5 - 0.5."""
    values = {
        "node": 10,
        "predicted": 1,
        "runner_up": 0,
        "logits": np.array([0.5, 2.5, 0.0]),
        "nodes": np.array([10, 20, 30]),
        "hops": np.array([0, 1, -1]),
        "shares": np.array([[0.0, 1.5, 7.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]),
        "means": np.array([[0.5, 0.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]),
        "bias": np.array([0.0, -0.5, -7.0]),
        "rest": np.zeros(3),
        "error_bound": 0.25,
        "node_name": {10: "curl", 20: "libcurl4", 30: "far"}.__getitem__,
        "class_name": ["net", "web", "doc"].__getitem__,
    }
    return Explanation(**(values | changes))


def test_a_sentence():
    assert small().sentence(3) == (
        "curl is predicted `web` (margin 2 over `net`). Of all that is for it, and against it (-): "
        "38 % own features, 25 % libcurl4, -12 % own mean, 12 % from 1 other share, -12 % from 1 other share."
    )
    assert small().sentence(4).endswith("12 % mean of libcurl4, -12 % from 1 other share.")
    assert small().sentence(9).endswith("12 % mean of libcurl4, -12 % bias.")


def test_a_table_that_adds_up():
    assert small().table(2).splitlines() == [
        "share of                   hop    margin  percent",
        "own features                 0    +1.500   +37.5 %",
        "libcurl4                     1    +1.000   +25.0 %",
        "1 other share for it              +0.500   +12.5 %",
        "2 other shares against it         -1.000   -25.0 %",
        "sum = margin                      +2.000",
    ]


def test_a_long_name_has_a_line_of_its_own_in_a_narrow_table():
    names = {10: "curl", 20: "a-library-with-a-long-name"}
    lines = small(node_name=names.__getitem__).table(2, columns=37).splitlines()
    assert lines[1:4] == [
        "own features    0    +1.500   +37.5 %",
        "a-library-with-a-long-name",
        "                1    +1.000   +25.0 %",
    ]
    assert max(map(len, lines)) <= 37


def test_percentages_are_of_the_sum_of_absolute_values():
    parts = small().parts
    assert [part.kind for part in parts] == ["own", "neighbor", "own mean", "mean", "bias"]
    assert [part.percent for part in parts] == [37.5, 25.0, -12.5, 12.5, -12.5]


def test_what_is_for_the_class_never_hides_what_is_against_it():
    hops = {hop: [tuple(one) for one in some] for hop, some in small().by_hop().items()}
    assert hops == {0: [(1, 1.5, 37.5), (1, -0.5, -12.5)], 1: [(2, 1.5, 37.5)]}
    many = small(shares=np.array([[0.0, 1.5, 7.0], [0.0, 4.0, 0.0], [0.0, -4.0, 0.0]]))
    assert [(label, rest.share) for label, rest in many.others(0)] == [
        ("3 other shares for it", 6.0),
        ("3 other shares against it", -5.0),
    ]
    assert many.others(6) == []


def test_influence_is_how_far_probabilities_move():
    tiny = 1e-3 * np.array([[0.3, -1.0, 0.2], [2.0, 2.0, 2.0], [0.0, 0.5, 0.0]])
    logits = np.array([0.5, 2.5, 0.0])
    p = np.exp(logits) / np.exp(logits).sum()
    others = np.exp(logits - tiny) / np.exp(logits - tiny).sum(axis=1, keepdims=True)
    divergence = (p * np.log(p / others)).sum(axis=1)
    influence = small(shares=tiny).influence
    np.testing.assert_allclose(influence**2 / 2, divergence, rtol=5e-3, atol=1e-12)
    assert influence[1] < 1e-12


def test_support_is_how_far_the_log_probability_moves():
    tiny = 1e-5 * np.array([[0.3, -1.0, 0.2], [2.0, 2.0, 2.0], [0.0, 0.5, 0.0]])
    logits = np.array([0.5, 2.5, 0.0])
    p, without = (np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True) for z in (logits, logits - tiny))
    moved = np.log(p[1]) - np.log(without[:, 1])
    np.testing.assert_allclose(small(shares=tiny).support, moved, rtol=1e-3, atol=1e-12)


def test_the_constant_of_a_penalty_is_a_part_and_rounding_is_none():
    assert small(rest=np.array([0.0, 1e-7, 0.0])).parts == small().parts
    parts = small(rest=np.array([0.0, 0.25, 0.0]), logits=np.array([0.5, 2.75, 0.0])).parts
    assert ("penalty", 0.25) in [(part.kind, part.share) for part in parts]


def test_json_says_everything():
    facts = json.loads(json.dumps(small().to_json(), allow_nan=False))
    assert facts["name"] == "curl"
    assert (facts["predicted_name"], facts["runner_up_name"]) == ("web", "net")
    assert facts["margin"] == 2
    assert [node["name"] for node in facts["nodes"]] == ["curl", "libcurl4"]
    assert facts["nodes"][0]["logits"] == [0.0, 1.5, 7.0]
    logits = np.sum([np.add(node["logits"], node["mean_logits"]) for node in facts["nodes"]], axis=0)
    np.testing.assert_allclose(logits + facts["bias"] + facts["penalty"], facts["logits"])
    assert facts["parts"][0] == {
        "kind": "own", "node": 10, "hop": 0, "share": 1.5, "percent": 37.5, "label": "own features",
    }  # fmt: skip
    assert facts["by_hop"][1] == {"hop": 0, "num_parts": 1, "share": -0.5, "percent": -12.5}
    assert small(error_bound=float("inf")).to_json()["error_bound"] is None


class Page(HTMLParser):
    """Its tags, and what stands in its scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        if self.tags and self.tags[-1][0] == "script":
            self.scripts.append(data)


def drawn(case, top=40, **names):
    explanation = explain(*case.given, seen=case.seen, **names)
    found = tension(*case.given, seen=case.seen)
    page = draw(explanation, case.sample, found, top=top)
    return explanation, page, json.loads(Page(page).scripts[0])


def test_a_drawing_has_the_largest_shares_and_ways_to_them():
    case = Case(seed=0)
    explanation, _, data = drawn(case, top=8)
    names = [node["name"] for node in data["nodes"]]
    assert len(set(names)) == len(names)
    shares = np.abs(explanation.of_margin(explanation.shares + explanation.means))
    largest = explanation.nodes[np.argsort(-shares)[:8]]
    assert {str(node) for node in largest.tolist()} <= set(names)
    assert names[0] == str(explanation.node)
    place = {name: node for name, node in zip(names, data["nodes"], strict=True)}
    for edge in data["edges"]:
        assert edge["u"] != edge["v"]
        assert edge["contrast"] >= 0
    for i, node in enumerate(data["nodes"]):
        ends = [edge["u"] + edge["v"] - i for edge in data["edges"] if i in (edge["u"], edge["v"])]
        nearer = [other for other in ends if data["nodes"][other]["hop"] == node["hop"] - 1]
        assert bool(nearer) == (node["hop"] > 0)
    # Area is the share.
    a, b = (place[str(node)] for node in largest[:2].tolist())
    assert (a["radius"] / b["radius"]) ** 2 == pytest.approx(abs(a["share"] / b["share"]), rel=0.05)


def test_each_node_has_its_own_place():
    case = Case(seed=0)
    _, _, data = drawn(case)
    places = [(node["x"], node["y"]) for node in data["nodes"]]
    assert len(set(places)) == len(places) > 10
    assert places[0] == (0, 0)
    # All the way around.
    quarters = {(x > 0, y > 0) for x, y in places[1:]}
    assert len(quarters) == 4


def test_a_page_needs_nothing_else_and_names_are_never_markup():
    evil = "</script><img src=x onerror=alert(1)>&\"'"
    _, page, data = drawn(Case(seed=0), node_name=lambda node: f"{evil}{node}", class_name=lambda c: evil)
    parsed = Page(page)
    assert data["for"] == evil
    assert not [tag for tag, _ in parsed.tags if tag == "img"]
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    assert not re.search(r"(src|href)=\"(?!data:)", page.replace(evil, ""))
    # The only address is the name of SVG itself.
    assert set(re.findall(r"https?://[^\"]+", page)) == {"http://www.w3.org/2000/svg"}


def test_a_notebook_shows_the_drawing_in_a_frame_that_cannot_reach_it():
    case = Case(seed=0)
    page = draw(explain(*case.given, seen=case.seen), case.sample)
    [(tag, attributes)] = Page(page._repr_html_()).tags
    assert tag == "iframe"
    assert attributes["sandbox"] == "allow-scripts"
    assert attributes["srcdoc"] == page


def test_a_drawing_without_tensions_has_edges_all_the_same():
    case = Case(seed=0)
    explanation = explain(*case.given, seen=case.seen)
    data = json.loads(Page(draw(explanation, case.sample)).scripts[0])
    assert data["edges"]
    assert all(edge["contrast"] is None and not edge["stands_out"] for edge in data["edges"])


def test_a_node_alone_is_a_drawing_too():
    case = Case(seed=0, steps=0)
    explanation = explain(*case.given, seen=case.seen)
    assert len(json.loads(Page(draw(explanation, case.sample)).scripts[0])["nodes"]) == 1
