"""`muse explain`: what it says of a node's energy, of another graph, and of what it cannot do."""

import re

import numpy as np
import pytest

import musegnn
from musegnn.cli import show
from musegnn.cli.main import main
from musegnn.runs.explanation import find_node
from tiny_runs import strict_json, tiny_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("told"))


@pytest.fixture
def explained(run, capsys):
    """The answer of `muse explain RUN "node 3" ...`: for people, and for machines."""

    def ask(*options):
        command = ["explain", str(run.folder.path), "node 3", *options]
        assert main(command) == 0, capsys.readouterr().err
        told = capsys.readouterr().out
        assert main([*command, "--json"]) == 0
        return told, strict_json(capsys.readouterr().out)

    return ask


def refusal(run, capsys, *arguments):
    assert main(["explain", str(run.folder.path), *arguments]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


def test_the_energy_of_the_node_is_told(run, explained):
    told, body = explained("--hops", "1")
    around = run.around(3, hops=1)
    tense, row = around.tension(), 0
    assert around.batch.sample.node_ids[row] == 3
    assert body["anomaly"] == pytest.approx(tense.anomaly[row])
    assert body["anomaly_rank"] == 1 + sorted(-tense.anomaly).index(-tense.anomaly[row])
    assert body["contradiction"] == pytest.approx(tense.contradiction[row])
    own = (tense.edges == row).any(axis=0)
    expected = {
        "fidelity": tense.by_node["fidelity"][row],
        "smoothness": tense.by_edge[own].sum() / 2,
        "consensus": tense.by_node["consensus"][row],
    }
    assert body["energy"] == pytest.approx(expected)
    anomaly = next(line for line in told.splitlines() if line.startswith("anomaly"))
    rank = f"number {body['anomaly_rank']} of {len(tense.anomaly)} in its sample"
    assert f"|Y - Z| = {body['anomaly']:.3g}, {rank}" in anomaly
    assert f"smoothness {body['energy']['smoothness']:.3g}" in anomaly
    others = body["disagrees_with"]
    assert {one["name"] for one in others} <= {f"node {node}" for node in run.graph.indices}
    assert [one["contrast"] for one in others] == sorted((one["contrast"] for one in others), reverse=True)
    assert all(one["name"] == f"node {one['node']}" and one["node"] != 3 for one in others)
    assert f"most with {others[0]['name']} ({others[0]['contrast']:.2f})" in told
    contrasts = re.findall(r"\((0\.\d\d)\)", told.split("disagrees")[1])
    assert len(contrasts) == sum(one["contrast"] >= 0.05 for one in others) > 0


def test_the_error_bound_is_that_of_the_prediction(run, explained):
    """The same quantity wherever it is told: |Y - Y*| / |Y|."""
    told, body = explained()
    assert body["error_bound"] == pytest.approx(float(run.predict([3]).error_bounds[0]), rel=1e-4)
    assert f"error bound   |Y - Y*| <= {show.bound(body['error_bound'])} in its sample of" in told
    assert "% of |Y| in" in told


@pytest.mark.parametrize(
    ("value", "said"),
    [
        *((0.00127, "0.127 % of |Y|"), (0.9, "90 % of |Y|"), (9.99, "999 % of |Y|"), (12, "12 times |Y|")),
        (1e20, "over 1e9 times |Y|, which is next to 0"),
    ],
)
def test_a_bound_is_a_share_or_a_multiple(value, said):
    assert show.bound(value) == said
    assert show.bound(float("inf")) == show.bound(float("nan")) == "none"


def test_without_steps_there_is_no_bound(tmp_path, capsys):
    tiny_run(tmp_path, steps=0)
    assert main(["explain", str(tmp_path / "run"), "node 3"]) == 0
    assert "error bound   none: there are no steps\n" in capsys.readouterr().out


def test_hops_are_told_for_and_against(run, explained):
    told, body = explained("--hops", "2")
    assert {one["hop"] for one in body["by_hop"]} == {0, 1, 2}
    total = sum(one["share"] for one in body["by_hop"])
    bias = next(part["share"] for part in body["parts"] if part["kind"] == "bias")
    assert total + bias == pytest.approx(body["margin"], rel=1e-3, abs=1e-5)
    first = " ".join(f"{one['percent']:+.0f} %" for one in body["by_hop"] if one["hop"] == 0)
    assert f"\nby hop        0: {first}, 1: " in told


def test_what_if_it_had_the_features_of_another(run, explained):
    neighbor = f"node {run.graph.indices[run.graph.indptr[3]]}"
    told, body = explained("--hops", "1", "--like", "node 77", "--without", neighbor)
    row = np.asarray(run.graph.features[77], dtype=np.float32)
    expected = run.around(3, hops=1).what_if([(3, neighbor)], {3: row})
    changed = body["what_if"]
    assert changed["logits"] == pytest.approx(expected.after.tolist())
    assert changed["predicted"] == expected.predicted[1]
    assert changed["predicted_name"] == ["red", "green", "blue"][changed["predicted"]]
    assert (changed["without"], changed["like"]) == ([neighbor], "node 77")
    first = body["predicted"]
    assert changed["logit_change"] == pytest.approx(expected.after[first] - expected.before[first])
    over = body["predicted"], body["runner_up"]
    assert changed["margin"] == pytest.approx(expected.after[over[0]] - expected.after[over[1]])
    assert f"goes from {body['margin']:.3g} to {changed['margin']:.3g}" in " ".join(told.split())
    words = f"what if       without {neighbor} and with the features of node 77 it is "
    assert f"{words}`{changed['predicted_name']}`" in told
    assert explained("--like", "node 3")[1]["what_if"]["logit_change"] == 0


def test_a_drawing_is_not_written_over(run, tmp_path, capsys):
    page = tmp_path / "mine.html"
    page.write_text("mine")
    err = refusal(run, capsys, "node 3", "--draw", str(page))
    assert f"{page} exists. Name another file with --draw, or replace it with --overwrite." in err
    assert page.read_text() == "mine"
    assert main(["explain", str(run.folder.path), "node 3", "--draw", str(page), "--overwrite"]) == 0
    assert "<svg" in page.read_text()
    err = refusal(run, capsys, "node 3", "--draw", str(tmp_path / "no" / "page.html"))
    assert f"there is no folder {tmp_path / 'no'}. Make it, or name another." in err
    err = refusal(run, capsys, "node 3", "--overwrite")
    assert "--overwrite belongs to --draw, which is not given. Leave it out." in err


def test_a_name_of_no_node_is_answered_with_the_nearest(run, capsys):
    err = refusal(run, capsys, "nod 149")
    name = run.graph.name
    assert (
        f"No node of {name} is called 'nod 149'. Did you mean node 149? Pass a name, or an id from 0 to"
        in err
    )
    assert "Did you mean node 14?" in refusal(run, capsys, "NODE 14")
    assert "Did you mean" not in refusal(run, capsys, "x" * 300)
    for word in ("test", "all", "9999", "id:9999", "name:9999"):
        assert f"No node of {name} is called '{word}'" in refusal(run, capsys, word)
    assert "No node of" in refusal(run, capsys, "node 3", "--like", "nosuch")


def test_a_node_is_an_id_or_a_name():
    edges = np.array([[0, 1], [1, 2]])
    names = ["1", "id", "all"]
    graph = musegnn.Graph.from_edges(edges, num_nodes=3, node_names=names)
    assert [find_node(node, graph) for node in (1, "id:1", "name:1", "id", "all", "2")] == [1, 1, 0, 1, 2, 2]
    with pytest.raises(
        musegnn.InputError, match="1 is the id of one node and the name of another. Pass id:1"
    ):
        find_node("1", graph)
    bare = musegnn.Graph.from_edges(edges, num_nodes=3)
    assert find_node("2", bare) == 2
    with pytest.raises(
        musegnn.InputError, match="'b' is no node of .*: its nodes have no names. Pass 0 to 2"
    ):
        find_node("b", bare)


@pytest.mark.parametrize("given", [["--overwrite"], ["--out", "x.html"]])
def test_what_belongs_to_a_comparison_is_refused_of_one_run(run, given, capsys):
    assert main(["report", str(run.folder.path), *given]) == 2
    err = capsys.readouterr().err
    assert f"{given[0]} belongs to a comparison; the page of {run.folder.path} lies in it, report.html" in err
    assert err.count("\n") == 1
