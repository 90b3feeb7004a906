"""The table of what each architecture heeds, against models that are built with it and without."""

from typing import get_args

import pytest
import torch

import musegnn
from musegnn.training.building import build_model
from musegnn.training.config import Architecture, Config, settings_of_tables
from musegnn.training.heeded import _DIFFERING, _OF_MUSEGNN, ARCHITECTURES, ignored
from tiny_runs import tiny_graph

GRAPH = tiny_graph(45)
USUAL = {"hidden": 8, "layers": 2, "steps": 3, "heads": 2, "momentum": 0.4, "restart": 0.2}
OTHER = {
    **{"hidden": 6, "layers": 3, "steps": 2, "heads": 1, "momentum": 0.9, "restart": 0.5, "history": "gas"},
    **{"dropout": 0.5, "input_dropout": 0.5, "normalize": True, "norm": "layer", "residual": True},
}
PEERS = sorted(set(ARCHITECTURES) - {"MuseGNN"})


def outputs(architecture, **settings):
    """Of two samples and the first one again, in training: histories and dropout take part."""
    config = Config().with_settings({**USUAL, "architecture": architecture, **settings})
    model = build_model(config, GRAPH.features.shape[1], GRAPH.num_classes, GRAPH)
    draws = musegnn.Draws(GRAPH, musegnn.ShadowKHop(fanouts=[2]), "train", batch_size=5, seed=0)
    torch.manual_seed(0)
    with torch.no_grad():
        found = [
            model(s, torch.from_numpy(GRAPH.features[s.node_ids])) for s in map(draws.__getitem__, (0, 1, 0))
        ]
    return torch.cat(found)


def test_every_setting_that_differs_is_tried():
    assert set(OTHER) == _DIFFERING
    assert set(ARCHITECTURES) == set(get_args(Architecture))
    known = {one.name for _, one in settings_of_tables()}
    assert _DIFFERING | _OF_MUSEGNN <= known


@pytest.mark.parametrize("architecture", PEERS)
def test_what_is_said_to_be_heeded_changes_a_model_and_nothing_else_does(architecture):
    pytest.importorskip("torch_geometric")
    before = outputs(architecture)
    is_relational = architecture == "RSAGE"
    for name, value in OTHER.items():
        if is_relational and name == "history":
            # Refused.
            continue
        # A momentum is that of a history, if that of anything.
        with_history = {"history": "graphfm"} if name == "momentum" and not is_relational else {}
        usual = outputs(architecture, **with_history) if with_history else before
        is_same = torch.equal(usual, outputs(architecture, **with_history, **{name: value}))
        assert is_same == (name not in ARCHITECTURES[architecture]), name


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"architecture": "GCN", "gamma": 0.5, "hidden": 8}, {"gamma": "architecture=GCN"}),
        ({"architecture": "GCN", "energy.gamma": 0.5}, {"gamma": "architecture=GCN"}),
        ({"heads": 8, "fanouts": [3], "lr": 0.1}, {"heads": "architecture=MuseGNN"}),
        ({"correct_and_smooth": True}, {"correct_and_smooth": "architecture=MuseGNN"}),
        ({"architecture": "MLP", "restart": 0.5}, {"restart": "architecture=MLP"}),
        ({"architecture": "MLP", "restart": 0.5, "correct_and_smooth": True}, {}),
        ({"rho": 0.5}, {"rho": "gamma=0"}),
        ({"rho": 0.5, "gamma": 1.0}, {}),
        ({"average": "symmetric"}, {"average": "kind=smoothness"}),
        ({"average": "symmetric", "kind": "predictive"}, {}),
        ({"architecture": "GCN", "update_means": True}, {"update_means": "architecture=GCN"}),
    ],
)
def test_what_is_given_and_not_heeded_is_named(settings, said):
    assert ignored(Config().with_settings(settings), settings) == said
