"""`muse train` with another energy: on the embedded graph, and on the types of MAG240M."""

import re
from pathlib import Path

import layouts
import numpy as np
import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn.cli import show
from musegnn.cli.main import main
from musegnn.training.config import Config
from tiny_runs import strict_json

SMALL = ("--device", "cpu", "--epochs", "2", "--set", "fanouts=2", "--stores", "stores")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("energies")


@pytest.mark.parametrize("kind", ["predictive", "relational", "robust"])
def test_debian_with_another_energy(kind, place, monkeypatch, capsys):
    """`muse train debian --set energy.kind=predictive`, narrower and with fewer and larger samples."""
    monkeypatch.chdir(place)
    small = (*SMALL, "--set", "hidden=16", "--set", "batch_size=4000", "--set", "lr=0.02")
    assert main(["train", "debian", "--set", f"energy.kind={kind}", *small, "--out", kind]) == 0
    run = musegnn.load_run(kind)
    assert run.config.energy.kind == kind
    events = map(strict_json, Path(kind, "events.jsonl").read_text().splitlines())
    first, second = (event["loss"] for event in events if event["event"] == "epoch")
    assert second < first - 0.1
    energies = np.array(run.result["energies"][1:])
    assert len(energies) == 4
    assert (np.diff(energies) <= 1e-5 * energies[:-1]).all()
    out = capsys.readouterr().out
    assert re.search(r"error bound +\|Y - Y\*\| <= [\d.]+ %", out)
    assert ("; Y* is the minimizer of the quadratic" in out) == (kind == "robust")
    for command in ("evaluate", kind, "--splits", "test"), ("explain", kind, "curl"):
        assert main([*command]) == 0
        out = capsys.readouterr().out
        assert ("; Y* is the minimizer of the quadratic" in out) == (kind == "robust")
        assert ("weights       shares are exact with" in out) == (
            command[0] == "explain" and kind == "robust"
        )
    found = run.explain("curl")
    total = found.shares.sum(axis=0) + found.means.sum(axis=0) + found.bias
    np.testing.assert_allclose(total, found.logits, rtol=1e-3, atol=1e-4)
    page = Path(kind, "report.html").read_text()
    told = {"predictive": "runtime forward", "relational": ">runtime</th>", "robust": "edges count"}
    assert {name for name, words in told.items() if words in page} == {kind}


def test_mag240m_with_its_types(tmp_path, monkeypatch, capsys):
    """A matrix for each of writes, affiliated_with and cites; authors, institutions and papers told apart."""
    monkeypatch.chdir(tmp_path)
    layouts.write_mag240m(tmp_path / "raw")
    typed = "energy.kind=relational", "type_inputs=true", "gamma=0", "alpha=auto", "hidden=8", "batch_size=4"
    settings = [part for setting in typed for part in ("--set", setting)]
    assert main(["train", "mag240m", "--root", "raw", *SMALL, *settings, "--out", "run"]) == 0
    run = musegnn.load_run("run")
    names = ["writes", "affiliated_with", "cites"]
    assert run.model.energy.names_of_ways(run.graph.relation_names) == names
    assert run.record["model"] == {"in_dim": 768, "out_dim": 153, "num_relations": 3, "num_types": 3}
    g, sample = run.graph, run.around(0, hops=3).batch.sample
    assert {g.node_type_names[t] for t in g.node_type[sample.node_ids]} == {"author", "institution", "paper"}
    # Each relation is heard: what becomes of an author moves with the matrix of any of them.
    features = torch.randn(sample.num_nodes, 771, generator=torch.Generator().manual_seed(0))
    run.model.eval()
    embedded = run.model.embed(sample, features)
    (slope,) = torch.autograd.grad(embedded[:1].square().sum(), run.model.energy.mixings.W)
    assert all(part.abs().max() > 0 for part in slope)
    out = capsys.readouterr().out
    assert "valid         accuracy" in out


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, ""),
        ({"kind": "smoothness", "stages": 3}, ""),
        ({"kind": "predictive", "stages": 3}, "; Y* is the exact minimizer of the last stage's energy"),
    ],
)
def test_what_a_bound_is_the_distance_to(settings, said):
    energy = Config().with_settings(settings).energy
    more = ": more than all of it, so this says nothing of Y*"
    for value, beginning in ((0.5, ""), (1.5, more)):
        assert show.about_bound(value, energy.minimizer) == beginning + said


def test_an_energy_and_a_tighter_bound_are_told(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    typed = ("--set", "kind=predictive", "--set", "stages=3", "--set", "steps=3", "--set", "hidden=8")
    small = (*SMALL, *typed, "--set", "batch_size=20000", "--set", "lambda_=30")
    assert main(["train", "debian", *small, "--out", "staged"]) == 0
    out = capsys.readouterr().out
    assert "K = 3 steps of d = 8 on the predictive energy, 2 relations, 3 stages\n" in out
    steps = strict_json(Path("staged/analysis.json").read_text())["steps"]
    assert f"; of one of them more steps show: {show.bound(steps['tight_bound'])}, on the page" in out
    without = ("--without", "libcurl4") * 2
    analysis = Path("staged/analysis.json")
    kept = analysis.read_text()
    analysis.write_text("{")
    assert main(["info", "staged"]) == 2
    assert "analysis.json is not a valid file of a run" in capsys.readouterr().err
    analysis.write_text(kept)
    assert main(["explain", "staged", "curl", "--hops", "1", *without]) == 0
    out = capsys.readouterr().out
    assert "without libcurl4 it is" in out
    assert "; the margin of `" in out
    assert out.count("(forward: the node points to them)") == 1
