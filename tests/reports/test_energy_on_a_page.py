"""The equation of a page is that of the run, and what was learned of relations is what the weights say."""

import json

import numpy as np
import pytest
import torch
from made_runs import HOSTILE, analysis, made_run
from test_report_page import no_library, read  # noqa: F401

import musegnn
from machine import one_thread  # noqa: F401
from musegnn import Graph, Predictive, Relational
from musegnn.ranks import Ranks
from musegnn.reports import words
from musegnn.reports.analysis import Tally
from musegnn.reports.relations import relations_of
from musegnn.training.batches import Loader
from musegnn.training.config import Config
from musegnn.training.evaluation import score
from tiny_runs import strict_json, tiny_graph, tiny_run, train_on

NAMES = ["red", "green", "blue"]
RNG = np.random.default_rng(3)
PLAIN = tiny_graph(class_names=NAMES)
GRAPH = Graph.from_edges(
    RNG.integers(0, 150, (2, 600)),
    num_nodes=150,
    relation=RNG.integers(0, 2, 600),
    relation_names=["uses", HOSTILE],
    class_names=NAMES,
    features=PLAIN.features,
    labels=PLAIN.labels,
    split=PLAIN.split,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A matrix of any kind that no limit touches, so that it is H itself."""
    folder = tmp_path_factory.mktemp("typed")
    sampler = musegnn.ShadowKHop(fanouts=[3, 2])
    store = musegnn.sample(GRAPH, sampler, folder / "s", batch_size=20, splits=("train", "test"))
    energy = Predictive(8, 2, lambda_=0.5, prox="none", limit=50.0)
    model = musegnn.MuseGNN(6, 3, hidden=8, energy=energy, steps=2)
    return musegnn.train(GRAPH, store, model, folder / "run", epochs=2, lr=0.05)


def test_relations_are_those_of_a_dense_computation(run):
    found = json.loads((run.folder.path / "analysis.json").read_text())["relations"]
    targets = np.asarray(GRAPH.labels)
    loader = Loader(run.samples["test"], GRAPH, targets, threads=1, device=torch.device("cpu"), relations=2)
    rows = {}
    for one in score(run.model, None, loader, run.config, bounds=0):
        count = one.batch.sample.num_seeds
        for row, label in zip(one.Y[:count].double().numpy(), one.batch.targets.tolist(), strict=True):
            rows.setdefault(label, []).append(row)
    order = sorted(rows, key=lambda label: (-len(rows[label]), label))
    assert found["classes"] == [NAMES[label] for label in order]
    means = [np.mean(rows[label], axis=0) for label in order]
    names = [f"{name} {way}" for name in ("uses", HOSTILE) for way in ("forward", "backward")]
    assert [way["name"] for way in found["ways"]] == names
    weights = run.model.state_dict()
    for k, way in enumerate(found["ways"]):
        H = run.model.energy.mixings.matrices()[k].double().numpy()
        (weight,) = weights["energy.raw_lambda"][k].reshape(-1).tolist()
        assert way["lambdas"] == pytest.approx([np.log1p(np.exp(weight))] * 2)
        values = np.sqrt(np.linalg.eigvalsh(H.T @ H))[::-1]
        assert (way["spectrum"], way["places"]) == (pytest.approx(values, rel=1e-3), list(range(1, 9)))
        assert values[0] <= way["norm"] <= 1.03 * values[0]
        apart = means - np.mean(means, axis=0)
        for row, y in zip(way["affinity"], apart, strict=True):
            said = y @ H
            cosines = [said @ z / np.linalg.norm(said) / np.linalg.norm(z) for z in apart]
            assert row == pytest.approx(cosines, abs=1e-3)
    assert len({tuple(way["spectrum"]) for way in found["ways"]}) == 4


def test_a_typed_run_has_its_relations_on_the_page(run):
    found = read(run.folder.path)
    assert found.sections.index("relations") == found.sections.index("energy") + 1
    assert [name for name in found.charts if name.startswith(("spectra", "affinity"))] == [
        "spectra",
        *(f"affinity-{k}" for k in range(4)),
    ]
    assert [line["name"] for line in found.charts["spectra"]["data"]][:2] == [
        "uses forward",
        "uses backward",
    ]
    assert f"{HOSTILE} backward" in found.text
    assert "<script" not in json.dumps(found.charts)
    assert "H\u1d63" in found.text
    assert "0.5 tr(" not in found.text
    assert "forward from the nodes that it points to" in found.text


def test_sums_of_classes_add_up_over_ranks(run):
    parts = [Tally(GRAPH, GRAPH.labels, model=run.model) for _ in range(3)]
    Y, labels = torch.randn(9, 8), torch.tensor([0, 1, 2, -1, 0, 1, 2, 2, 0])
    for part, some in zip(parts[:2], (slice(0, 4), slice(4, 9)), strict=True):
        part.add_classes(Y[some], labels[some], 3)

    class Three(Ranks):
        """One of them has had no batch."""

        def gather_arrays(self, facts, arrays):
            each = [[one.by_degree, one.by_homophily, one.by_count, one.class_sums] for one in parts]
            return [([[], None, 0], own) for own in each]

    sums = parts[2].add_up(Three(rank=2, size=3)).class_sums
    assert sums[:, 0].tolist() == [3, 2, 3]
    for label in range(3):
        assert sums[label, 1:] == pytest.approx(Y[labels == label].double().sum(0).numpy())


def test_many_classes_and_relations_stay_few_numbers():
    sums = np.ones((500, 9))
    sums[:, 0] = np.arange(500)
    found = relations_of(Predictive(8, 16, rank=0), GRAPH, sums)
    assert len(found["ways"]) == 32
    assert found["ways"][3]["name"] == "relation 1 backward"
    assert len(found["classes"]) == 15
    one = relations_of(Relational(8), GRAPH, sums)
    assert [way["name"] for way in one["ways"]] == ["all edges"]
    channels = Relational(8, lambda_=1.0, lambda_per="channel")
    with torch.no_grad():
        channels.raw_lambda[0, 3] += 1
    least, most = relations_of(channels, GRAPH, sums)["ways"][0]["lambdas"]
    assert (least, most) == (pytest.approx(1.0), pytest.approx(np.log1p(np.e * np.expm1(1.0))))
    assert one["classes"] == [f"class {number}" for number in range(499, 469, -1)]
    assert [way["name"] for way in relations_of(Relational(8, 2), GRAPH, sums)["ways"]] == ["uses", HOSTILE]
    # Of a split without labels.
    assert "affinity" not in relations_of(Relational(8), GRAPH, np.zeros((0, 0)))["ways"][0]
    assert len(relations_of(Relational(200), GRAPH, np.zeros((0, 0)))["ways"][0]["spectrum"]) == 64


@pytest.mark.parametrize(
    ("settings", "said", "names"),
    [
        (
            {"lambda_": 3.0, "gamma": 0.5, "prox": "relu"},
            "|Y \u2212 Z|\u00b2 + 3 tr(Y\u1d40 L Y) + 0.5 |Y \u2212 \u03bc|\u00b2 + \u03b6(Y), \u03b6: relu",
            "fidelity, smoothness, consensus, penalty; normalized Laplacian, 8 steps",
        ),
        (
            {"kind": "predictive", "prox": "none", "rank": 4, "acceleration": "chebyshev"},
            "\u03a3\u1d63 \u03bb\u1d63 |h\u1d63 \u2218 (Y \u2212 P\u1d63 Y H\u1d63)|\u00b2",
            "fidelity, relations; P\u1d63: the mean over neighbors",
        ),
        (
            {"kind": "relational", "laplacian": "combinatorial", "prox": "none"},
            "|s\u1d62 Y\u1d62 H\u1d63 \u2212 s\u2c7c Y\u2c7c|\u00b2",
            "fidelity, relations; s = 1; \u03bb\u1d63 and H\u1d63 are learned, H\u1d63: any matrix",
        ),
        (
            {"kind": "robust", "lambda_": 3.0, "prox": "none"},
            "+ 3 \u03a3 over edges of c \u03c1(|s\u1d62 Y\u1d62 \u2212 s\u2c7c Y\u2c7c|\u00b2 / c)",
            "fidelity, robust; \u03c1(t) = (2 / p) ((1 + t)^(p/2) \u2212 1), p = -2, c = 1, s = ",
        ),
        (
            {"kind": "robust", "robust_power": 0.0, "robust_cutoff": 3.0, "robust_scale": 0.5},
            "\u03a3 over edges of c \u03c1(",
            "\u03c1(t) = log(1 + t), constant from t = 3 on, c = 0.5",
        ),
    ],
)
def test_the_equation_is_that_of_the_run(tmp_path, settings, said, names):
    config = Config(name="tiny", dataset="debian").with_settings(settings)
    text = read(made_run(tmp_path / "run", config=config)).text
    assert said in text
    assert names in text
    assert ("tr(Y" in text) == ("kind" not in settings)
    assert ("8 steps with chebyshev" in text) == ("acceleration" in settings)
    assert ("diagonal + rank 4" in text) == ("rank" in settings)


def test_of_an_energy_of_ones_own_the_terms_are_named(tmp_path):
    steps = {"nodes": 9, "terms": {"fidelity": [0.0, 1.0], "surprise": [4.0, 2.0]}, "error_bounds": [0.1]}
    text = read(made_run(tmp_path / "run", told=analysis(steps=steps), model=None)).text
    assert "E(Y) = fidelity + surprise" in text
    assert "tr(Y" not in text


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_a_page_says_how_much_edges_count_for(tmp_path, scale):
    """With a scale that is too small it is an MLP, and would look fine."""
    run = tiny_run(tmp_path, kind="robust", robust_scale=scale, gamma=0.0, epochs=1)
    trust = json.loads((run.folder.path / "analysis.json").read_text())["steps"]["trust"]
    sample = run.samples["test"][0]
    with torch.no_grad():
        Z = run.model.f(torch.from_numpy(np.array(run.graph.features[sample.node_ids])))
        Y = musegnn.unfold(Z, sample, run.model.energy, 3)
    w = run.model.energy.trust(Y.double(), sample)
    assert trust["median"] == pytest.approx(float(w.median()), rel=1e-3)
    assert trust["share_below"] == pytest.approx(float((w < 0.1).double().mean()), abs=0.01)
    text = " ".join(read(run.folder.path).text.split())
    assert f"half of its edges count for {trust['median']:.2g} or less" in text
    assert ("take a larger robust_scale" in text) == (scale < 1)


def test_a_bound_that_says_nothing_has_a_tight_one_beside_it(tmp_path):
    run = tiny_run(tmp_path, lambda_=100.0, gamma=0.0, steps=1, prox="none", epochs=1)
    steps = json.loads((run.folder.path / "analysis.json").read_text())["steps"]
    sample = run.samples["test"][0]
    with torch.no_grad():
        Z = run.model.f(torch.from_numpy(np.array(run.graph.features[sample.node_ids])))
        Y = musegnn.unfold(Z, sample, run.model.energy, 1)
    away = float((Y - musegnn.solve(Z, sample, run.model.energy)).norm() / Y.norm())
    assert 1 < steps["error_bounds"][-1]
    assert away <= steps["tight_bound"] * (1 + 1e-5)
    assert steps["tight_bound"] <= min(3.1 * away, steps["error_bounds"][-1])
    text = " ".join(read(run.folder.path).text.split())
    assert f"for the proof alone, show: at most {100 * steps['tight_bound']:.3g}" in text
    assert f"of one of them more steps show that it is at most {100 * steps['tight_bound']:.3g}" in text
    # A single bound is a sentence, not a chart.
    assert "bounds" not in read(run.folder.path).charts
    # There was one step, which is told once.
    assert "Steps 0 to 1 lower it by" in text
    assert "The last one still by" not in text


@pytest.mark.parametrize("prox", ["none", "relu"])
def test_each_stage_is_said_to_lower_its_own_energy(tmp_path, prox):
    made = {"kind": "predictive", "steps": 4, "stages": 3, "gamma": 0.0, "prox": prox, "epochs": 1}
    run = tiny_run(tmp_path, **made)
    steps = json.loads((run.folder.path / "analysis.json").read_text())["steps"]
    sample = run.samples["test"][0]
    with torch.no_grad():
        Y = Z = run.model.f(torch.from_numpy(np.array(run.graph.features[sample.node_ids])))
        for (start, end), stage in zip(steps["stages"], run.model.energy.stages(4), strict=True):
            problem = stage.energy.problem(Z.double(), sample)
            before, Y = Y, musegnn.unfold(Z, sample, stage.energy, stage.steps, init=Y)
            assert end == pytest.approx(float(problem.value(Y.double(), Z.double())), rel=1e-5)
            if start is None:
                assert prox == "relu"
                assert before is Z
            else:
                assert start == pytest.approx(float(problem.value(before.double(), Z.double())), rel=1e-5)
                assert end < start
    percents = [
        f"stage {number} from infinity, since Z violates the penalty"
        if start is None
        else f"stage {number} by {100 * (1 - end / start):.3g} %"
        for number, (start, end) in enumerate(steps["stages"], start=1)
    ]
    text = " ".join(read(run.folder.path).text.split())
    assert f"Each stage lowers an energy of its own: {', '.join(percents)}, which is drawn." in text
    page = read(run.folder.path)
    for chart in ("bounds", "energy"):
        assert page.charts[chart]["layout"]["xaxis"]["title"]["text"] == "step k of the last stage"


def test_one_stage_is_not_told_as_several(tmp_path):
    run = tiny_run(tmp_path, epochs=1)
    assert "Each stage" not in read(run.folder.path).text
    assert read(run.folder.path).charts["bounds"]["layout"]["xaxis"]["title"]["text"] == "step k"


def test_a_relation_without_edges_is_not_shown_as_if_it_were_learned(tmp_path):
    rng, n = np.random.default_rng(0), PLAIN.num_nodes
    edges = rng.integers(0, n, (2, 600))
    graph = musegnn.Graph.from_edges(
        edges, num_nodes=n, relation=np.zeros(600, dtype=int), relation_names=["likes", "hates"],
        features=PLAIN.features, labels=PLAIN.labels, split=PLAIN.split,
    )  # fmt: skip
    run = train_on(graph, tmp_path, kind="relational", gamma=0.0, limit=0.8, stages=2, steps=2, epochs=2)
    found = {way["name"]: way for way in strict_json(analysis_of(run))["relations"]["ways"]}
    assert found["hates"]["moved"] < 1e-6 < 1e-3 < found["likes"]["moved"]
    page = read(run.folder.path)
    text = " ".join(page.text.split())
    assert "Nothing was learned of hates, as where no sample has such an edge." in text
    assert "What follows is of the last of 2 stages." in text
    assert "begins as the identity, scaled below 0.8." in text
    assert [name for name in page.charts if name.startswith("affinity")] == ["affinity-0"]


def test_a_graph_without_relations_has_no_directions(tmp_path):
    run = tiny_run(tmp_path, kind="predictive", gamma=0.0, epochs=1)
    text = read(run.folder.path).text
    assert "A node is predicted from what its neighbors say" in text
    assert "forward from the nodes" not in text


def analysis_of(run):
    return (run.folder.path / "analysis.json").read_text()


def test_a_lambda_of_one_size_is_one_number():
    assert words.ends(9.00001, 9.00002) == "9"
    assert words.ends(0.31, 0.7249) == "0.31\u20130.725"
