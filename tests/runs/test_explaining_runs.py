"""`Run.explain` and `muse explain`: the shares of a run's own predictions, by id or name."""

import json

import numpy as np
import pytest
import small_runs

import musegnn
from musegnn import Cluster, Predictive
from musegnn.cli.main import main
from musegnn.errors import InputError
from tiny_runs import strict_json, tiny_run, train_on


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("explained"))


@pytest.mark.parametrize("hops", [None, 2])
def test_shares_add_up_to_what_is_predicted(run, hops):
    for node in (3, 77):
        found = run.explain(f"node {node}", hops=hops)
        assert found.node == node
        # Without the rest, which is what they would not add up to.
        logits = found.shares.sum(0) + found.means.sum(0) + found.bias
        np.testing.assert_allclose(logits, found.logits, rtol=1e-4, atol=1e-5)
        predicted = run.predict([node], hops=hops)
        exp = np.exp(logits - logits.max())
        np.testing.assert_allclose(exp / exp.sum(), predicted.probabilities[0], rtol=1e-3, atol=1e-5)
        assert found.class_name(found.predicted) == ["red", "green", "blue"][predicted.classes[0]]
        assert found.sentence().startswith(f"node {node} is predicted `")
        np.testing.assert_array_equal(run.explain(node, hops=hops).shares, found.shares)


def test_what_if_is_what_a_graph_without_the_edge_would_say(run):
    around = run.around(3, hops=2)
    neighbor = int(run.graph.indices[run.graph.indptr[3]])
    change = around.what_if(without=[(3, f"node {neighbor}")])
    np.testing.assert_allclose(change.before, around.explain().logits, rtol=1e-4, atol=1e-5)
    assert np.abs(change.after - change.before).max() > 1e-6
    short = around.what_if(without=[f"node {neighbor}"])
    np.testing.assert_array_equal(short.after, change.after)
    np.testing.assert_array_equal(around.what_if(without=[[3, neighbor]]).after, change.after)
    assert repr(around).startswith("Neighborhood(of node 3: ")
    assert repr(around.explain()) == f"Explanation({around.explain().sentence()})"
    with pytest.raises(musegnn.InputError, match="hops must be a whole number, 1 or more, or None; got 0"):
        run.around(3, hops=0)
    other = run.around(3, hops=2).what_if(features_of={"node 3": np.zeros(6)})
    assert np.abs(other.after - other.before).max() > 1e-6
    assert "<svg" in around.draw()


def test_a_node_that_is_none_or_elsewhere_is_refused(run):
    with pytest.raises(musegnn.InputError, match="No node .*'node 999'"):
        run.explain("node 999")
    with pytest.raises(musegnn.InputError, match="No node .* is called 'test'"):
        run.explain("test")
    with pytest.raises(
        musegnn.InputError, match="There is no edge between node 3 and node 3. Name neighbors"
    ):
        run.around(3, hops=1).what_if(without=[(3, 3)])
    far = next(n for n in range(150) if n not in run.around(3, hops=1).batch.sample.node_ids)
    with pytest.raises(
        musegnn.InputError, match=f"node {far} is not in the sample that was drawn around node 3"
    ):
        run.around(3, hops=1).what_if(features_of={far: np.zeros(6)})


def test_a_free_sampler_and_another_energy_are_explained(tmp_path):
    graph = small_runs.graph()
    store = small_runs.store(tmp_path / "s", sampler=Cluster(3))
    model = small_runs.model(energy=Predictive(small_runs.HIDDEN, rank=2))
    made = musegnn.train(graph, store, model, tmp_path / "run", epochs=1)
    found = made.explain(50)
    logits = found.shares.sum(0) + found.means.sum(0) + found.bias
    np.testing.assert_allclose(logits, found.logits, rtol=1e-4, atol=1e-5)
    assert "all edges" in made.around(50).tension().by_node
    assert "<svg" in made.around(50).draw()


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A run on a graph with two relations, and its edges with their relations."""
    rng = np.random.default_rng(0)
    edges, relation = rng.integers(0, 150, (2, 600)), rng.integers(0, 2, 600)
    kept = edges[0] != edges[1]
    edges, relation = edges[:, kept], relation[kept]
    graph = musegnn.Graph.from_edges(
        edges, num_nodes=150, relation=relation, relation_names=["uses", "owns"],
        features=rng.normal(size=(150, 6)).astype(np.float32), labels=rng.integers(0, 3, 150),
        split=np.arange(150) % 3, class_names=["red", "green", "blue"],
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("typed")
    graph.save(folder / "graph")
    settings = {"kind": "predictive", "steps": 4, "stages": 2, "gamma": 0.5}
    run = train_on(musegnn.Graph.open(folder / "graph"), folder, **settings)
    return run, edges, relation


def test_how_neighbors_are_joined_is_told(typed, capsys):
    run, edges, relation = typed
    expected = {}
    for (i, j), r in zip(edges.T.tolist(), relation.tolist(), strict=True):
        for node, other, bit in ((i, j, 2 * r), (j, i, 2 * r + 1)):
            expected.setdefault((node, other), set()).add(bit)
    ways = ["uses forward", "uses backward", "owns forward", "owns backward"]
    assert main(["explain", str(run.folder.path), "7", "--hops", "1", "--json"]) == 0
    body = strict_json(capsys.readouterr().out)
    near = [node for node in body["nodes"] if node["hop"] == 1]
    assert len(near) > 5
    for node in near:
        bits = sorted(expected[7, node["node"]])
        assert node["relation"] == ", ".join(ways[bit] for bit in bits)
    assert all(node["relation"] is None for node in body["nodes"] if node["hop"] != 1)
    by_relation = {}
    for one in body["by_relation"]:
        by_relation[one["relation"]] = by_relation.get(one["relation"], 0) + one["share"]
    sums = dict.fromkeys(by_relation, 0.0)
    for node in near:
        sums[node["relation"]] += node["margin"] + node["mean_margin"]
    assert by_relation == pytest.approx(sums)
    assert list(body["energy"]) == ["fidelity", *ways, "consensus"]
    assert body["energy"]["uses forward"] > 0
    assert body["disagrees_with"]
    page = str(run.around(7, hops=1).draw())
    facts = json.loads(page.split('id="data">')[1].split("</script>")[0])
    near = {str(node["node"]): node["relation"] for node in near}
    assert facts["nodes"][0]["joined"] is None
    assert {node["name"]: node["joined"] for node in facts["nodes"] if node["hop"] == 1} == near
    assert main(["explain", str(run.folder.path), "7", "--hops", "1", "--top", "30"]) == 0
    told = capsys.readouterr().out
    assert "percent   joined by\n" in told
    assert any(line.endswith(f"%  {next(iter(near.values()))}") for line in told.splitlines())
    assert "\nby relation   " in told
    assert "uses backward" in told.split("by relation")[1]


def test_where_relations_do_not_fit_they_are_left_out(typed, capsys, monkeypatch):
    run, *_ = typed
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["explain", str(run.folder.path), "7", "--hops", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    assert not any("joined by" in line for line in lines)
    assert any(line.startswith("by relation") for line in lines)


def test_a_graph_without_relations_tells_none(run, capsys):
    assert main(["explain", str(run.folder.path), "node 3", "--json"]) == 0
    body = strict_json(capsys.readouterr().out)
    assert body["by_relation"] == []
    assert not any(node["relation"] for node in body["nodes"])
    assert main(["explain", str(run.folder.path), "node 3"]) == 0
    assert "relation" not in capsys.readouterr().out


def test_the_command_prints_draws_and_speaks_json(run, tmp_path, capsys):
    folder, neighbor = str(run.folder.path), f"node {run.graph.indices[run.graph.indptr[3]]}"
    page = tmp_path / "n3.html"
    assert main(["explain", folder, "node 3", "--hops", "1", "--without", neighbor, "--draw", str(page)]) == 0
    out = capsys.readouterr().out
    for text in (
        "node 3 is predicted `",
        "sum = margin",
        "error bound",
        "disagrees",
        f"without {neighbor} it is `",
    ):
        assert text in out
    assert "<svg" in page.read_text()
    assert main(["explain", folder, "node 3", "--json", "--without", neighbor, "--hops", "1"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert body["name"] == "node 3"
    assert body["what_if"]["without"] == [neighbor]
    assert sum(part["share"] for part in body["parts"]) == pytest.approx(body["margin"], rel=1e-3, abs=1e-5)
    for mistake in (["node 3x"], ["node 3", "--draw", "n3.png"]):
        assert main(["explain", folder, *mistake]) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_graph_that_lacks_a_relation_says_so_or_is_refused(typed):
    run, edges, relation = typed
    kept = {"num_nodes": 150, "features": np.asarray(run.graph.features)}
    uses, numbers = edges[:, relation == 0], np.zeros((relation == 0).sum(), dtype=int)
    declared = musegnn.Graph.from_edges(uses, relation=numbers, relation_names=["uses", "owns"], **kept)
    assert np.isfinite(run.predict([7], graph=declared).probabilities).all()
    silent = musegnn.Graph.from_edges(uses, relation=numbers, relation_names=["uses"], **kept)
    said = "relations uses, the run was .* relations uses, owns, .* `muse import --relations uses,owns`"
    with pytest.raises(InputError, match=said):
        run.predict([7], graph=silent)
