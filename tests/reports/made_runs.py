"""Run folders with files of every kind, without a model behind them."""

import json

from musegnn.training.checkpoint import write_json
from musegnn.training.config import Config

HOSTILE = "</script><script>window.stolen = 1</script>\"'><img src=x onerror=window.stolen=1>&lt;"
"""As a name, it would be markup, close a script, or leave an attribute."""
NAMES = ["red", "green", "blue"]
SPLIT = {"low": 0, "high": 0, "nodes": 40, "accuracy": 0.5}


def result(**changes):
    return {
        "dataset": "tiny",
        **{"valid_accuracy": 0.75, "valid_macro_f1": 0.7, "test_accuracy": 0.72, "test_macro_f1": 0.68},
        **{"energies": [None, 9.0, 7.5], "error_bound": 0.031, "epochs": 3, "best_epoch": 2},
        **{"seconds": 75.0, "ranks": 1, "peak_rss_mb": 512.0, "seed": 0, "parameters": 1234, "threads": 2},
        **{"device": "cpu", "expected": {}, "musegnn": "0.1.0"},
    } | changes


def analysis(names=NAMES, **changes):
    matrix = [
        [30 if row == column else row + column for column in range(len(names))] for row in range(len(names))
    ]
    classes = [
        {
            "name": name,
            "nodes": sum(row),
            "answered": 30,
            "accuracy": 30 / sum(row),
            "precision": 0.5,
            "recall": 0.6,
        }
        for name, row in zip(names, matrix, strict=True)
    ]
    bins = [{"low": low, "high": 2 * low - 1, "nodes": 50, "accuracy": 0.9 - low / 20} for low in (1, 2, 4)]
    tenths = [{"low": k / 10, "high": (k + 1) / 10, "nodes": 50, "accuracy": 0.5 + k / 20} for k in range(3)]
    terms = {"fidelity": [0.0, 4.0, 3.0], "smoothness": [9.0, 3.0, 2.5], "penalty": [None, 0.0, 0.0]}
    counts = [
        {"low": low, "high": 2 * low - 1, "nodes": 9, "apart": 0.2 / low, "moved": 0.1 / low}
        for low in (1, 2)
    ]
    return {
        **{"version": 1, "split": "test", "nodes": 96, "classes": classes, "confusion": matrix},
        **{"by_degree": bins, "by_homophily": tenths},
        "steps": {"nodes": 60, "terms": terms, "error_bounds": [0.4, 0.03]},
        "error_bounds": {"samples": 3, "sorted": [0.01, 0.02, 0.031]},
        "means": {
            "apart": 0.15,
            "moved": 0.05,
            "by_count": counts,
            "nodes": [{"low": 0, "high": 0, "nodes": 7}],
        },
        "versions": {"musegnn": "0.1.0", "torch": "2.6"},
        "machine": {"system": "Linux", "cores": 2},
    } | changes


def relations(names=NAMES):
    """As two directions of a typed energy have it."""
    affinity = [[0.9 if row == column else -0.3 for column in range(len(names))] for row in range(len(names))]
    way = {"lambdas": [0.5, 0.75], "norm": 1.25, "dim": 4, "places": [1, 2, 4], "spectrum": [1.2, 1.0, 0.5]}
    ways = [{"name": name, **way, "affinity": affinity} for name in (HOSTILE, "uses, backward")]
    return {"classes": list(names), "ways": ways}


def epoch(number, **changes):
    return {
        **{"event": "epoch", "epoch": number, "step": 4 * number, "loss": 2.0 / number, "lr": 0.01},
        **{"train_accuracy": 0.5 + number / 20, "seconds": 5.0, "samples_per_second": 8.0, "waited": 0.1},
        **{"rss_mb": 400.0, "valid_accuracy": 0.6 + number / 20, "valid_loss": 1.5 / number},
        **{"best_epoch": number},
    } | changes


def made_run(folder, *, config=None, found=None, told=None, events=None, **record):
    """A run folder; what is None is as usual, and a result or an analysis of False is not there."""
    folder.mkdir(parents=True)
    config = Config(name="tiny", dataset="debian") if config is None else config
    (folder / "config.toml").write_text(config.to_toml())
    place = {"digest": "ab" * 32, "name": "tiny", "folder": "/data/tiny", "from_here": "../tiny"}
    body = {
        "graph": place,
        "samples": place,
        "labels": None,
        "model": {"in_dim": 4, "out_dim": 3},
        "is_of_seed": True,
        "musegnn": "0.1.0",
    }
    write_json(folder / "run.json", body | record)
    events = [epoch(1), epoch(2), epoch(3, best_epoch=2)] if events is None else events
    (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    if found is not False:
        write_json(folder / "result.json", result() if found is None else found)
    if told is not False:
        write_json(folder / "analysis.json", analysis() if told is None else told)
    return folder
