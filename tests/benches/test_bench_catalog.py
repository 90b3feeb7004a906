"""What each bench makes of its cells: measures and figures, from records that nobody ran."""

import pytest

from musegnn.benches.catalog import BENCHES
from musegnn.benches.figures import Panel
from musegnn.benches.tables import Table

ORIGIN = {"hardware": "a machine", "versions": "musegnn 9", "date": "2030-01-02"}


def record(row, seed=0, **given):
    facts = {"row": row, "data": "toy", "seed": seed, "note": "", "epochs": 2, **ORIGIN}
    facts |= {"test_accuracy": 0.75, "valid_accuracy": 0.7, "seconds": 4.0, "error_bound": 0.01}
    facts |= {"epoch_seconds": 0.5, "waited": 0.25, "sampling_seconds": 2.0, "memory_mb": 90.0, "nodes": 1024}
    facts |= {"kept_mb": 1.0, "energies": [None, 3.0, 2.0], "curve": [[1, 3.0, 0.5], [2, 2.0, None]]}
    return facts | given


def table(name, records, rows=None):
    bench = BENCHES[name]
    facts = {"name": name, "about": bench.about, "command": "", "seeds": [0], "datas": ["toy"]}
    rows = bench.rows if rows is None else {row: bench.rows[row] for row in rows}
    return Table(rows=rows, measures=bench.measures(records), records=records, **facts)


def shown(name, records, row):
    found = table(name, records)
    return {line["measure"]: line["mean"] for line in found.lines() if line["row"] == row}


def test_accuracy_is_that_of_test_nodes_or_of_validation_nodes_where_these_have_no_labels():
    assert shown("accuracy", [record("MLP")], "MLP") == {
        **{"test accuracy, %": 75.0, "validation accuracy, %": 70.0, "training, s": 4.0}
    }
    only_valid = table("accuracy", [record("MLP", test_accuracy=None)], ["MLP"])
    assert "| MLP | **70.00** |" in only_valid.to_markdown()
    [panel] = BENCHES["accuracy"].panels(table("accuracy", [record("MLP"), record("SGC", error="OOM")]))
    assert panel == Panel(title="toy", x="test accuracy, %", dots=[("MLP", 75.0, 0.0)])


def test_speed_shows_sampling_in_a_column_of_its_own_and_evaluates_once():
    assert shown("speed", [record("MLP")], "MLP") == {
        **{"epoch, s": 0.5, "of it waiting, %": 25.0, "sampling, s": 2.0}
    }
    settings = BENCHES["speed"].settings
    assert settings["evaluate_every"] == settings["epochs"] > 2
    assert BENCHES["speed"].times_sampling


def test_gamma_is_a_line_for_each_graph():
    rows = {name: row.settings for name, row in BENCHES["gamma"].rows.items()}
    assert list(rows.values()) == [{"gamma": gamma} for gamma in (0.0, 0.1, 0.5, 1.0, 2.0, 3.0)]
    records = [record("gamma 0.5", seed, test_accuracy=value) for seed, value in ((0, 0.7), (1, 0.9))]
    [panel] = BENCHES["gamma"].panels(table("gamma", [*records, record("gamma 3", error="OOM")]))
    assert panel.lines == {"toy": [(0.5, 80.0, pytest.approx(10 * 2**0.5))]}


def test_samplers_are_all_there_stored_and_online():
    from musegnn.sampling.catalog import SAMPLERS

    rows = BENCHES["sampler"].rows
    assert set(rows) == {f"{name} {way}" for name in SAMPLERS for way in ("stored", "online")}
    assert rows["ShadowKHop online"].settings == {"sampler": "ShadowKHop", "online": True}
    assert [name for name, row in rows.items() if row.settings is None] == ["Cluster online"]


def test_offline_and_online_are_rows_of_the_same_three_convolutions():
    rows = BENCHES["baseline-sampler"].rows
    assert list(rows) == [f"{name} {way}" for way in ("offline", "online") for name in ("GCN", "GAT", "SAGE")]


def test_energies_are_told_of_each_step_where_they_are_finite():
    found = shown("energy", [record("gamma 1")], "gamma 1")
    assert found == {
        **{"error bound": 0.01, "E(Y^1) above E(Y^2), %": pytest.approx(50.0)},
        **{"E(Y^0)": None, "E(Y^1)": 3.0, "E(Y^2)": 2.0},
    }
    [panel] = BENCHES["energy"].panels(table("energy", [record("gamma 1")]))
    assert panel.lines == {"gamma 1": [(1, 3.0, 0.0), (2, 2.0, 0.0)]}


def test_losses_are_told_of_each_epoch():
    found = shown("loss", [record("MuseGNN")], "MuseGNN")
    assert found == {
        **{"loss of the first epoch": 3.0, "of the last": 2.0, "validation accuracy, %": 70.0},
        **{"loss, epoch 1": 3.0, "loss, epoch 2": 2.0},
        **{"validation accuracy, epoch 1": 0.5, "validation accuracy, epoch 2": None},
    }
    loss, valid = BENCHES["loss"].panels(table("loss", [record("MuseGNN")]))
    assert loss.lines == {"MuseGNN": [(1, 3.0, 0.0), (2, 2.0, 0.0)]}
    assert valid.lines == {"MuseGNN": [(1, 0.5, 0.0)]}
    assert BENCHES["loss"].rows["MuseGNN gamma 1"].settings == {"gamma": 1.0}


def test_what_is_kept_is_counted_n_d_for_means_and_n_d_k_for_histories():
    ours, theirs = "K 16, MuseGNN", "K 16, GCN GAS"
    records = [record(ours), record(theirs, kept_mb=15 / 4)]
    # 1024 nodes of 64 float32 are a quarter of a MiB.
    assert shown("scaling", records, ours)["counted, MiB"] == 1 / 4 + 1 / 256
    assert shown("scaling", records, theirs)["counted, MiB"] == 15 / 4
    panels = BENCHES["scaling"].panels(table("scaling", records))
    assert [(panel.x, panel.y) for panel in panels if panel.lines] == [
        ("K", "epoch, s"),
        ("K", "kept between steps, MiB"),
    ]
    assert panels[-2].lines == {"MuseGNN": [(16, 1.0, 0.0)], "GCN GAS": [(16, 3.75, 0.0)]}
    wide = BENCHES["scaling"].rows["nodes x 8, GCN GAS"]
    assert (wide.growth, wide.settings["layers"]) == ({"nodes": 8.0}, 4)
