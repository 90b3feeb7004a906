"""Cells: run once, gone on with, found again; what goes wrong in one is a row, not the end."""

import json
from functools import partial

import numpy as np
import pytest
import torch
from small_runs import differences, outcome

import musegnn
from machine import one_thread as one_thread
from musegnn import Graph
from musegnn.benches import cells, figures, machine, running
from musegnn.benches.catalog import BENCHES
from musegnn.benches.cells import Cell, find, run_cell
from musegnn.benches.contenders import Contender
from musegnn.benches.data import Data
from musegnn.benches.running import Request, run_bench
from musegnn.errors import DivergenceError, InputError, MissingExtraError, StoreError
from musegnn.memory import is_out_of_memory
from musegnn.training.config import Config
from musegnn.training.loop import Trainer
from tiny_runs import SETTINGS, tiny_graph

CONFIG = Config(name="tiny").with_settings(SETTINGS)
TIMES = ("took", "seconds", "epoch_seconds", "waited", "memory_mb", "checksum")


@pytest.fixture(autouse=True)
def unswept(monkeypatch):
    """The collector takes half a second in a process as large as that of all tests."""
    monkeypatch.setattr(cells, "forget", lambda: None)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A graph store, and where samples go."""
    folder = tmp_path_factory.mktemp("bench")
    tiny_graph().save(folder / "graph")
    return folder


@pytest.fixture
def cell(place):
    graph = Graph.open(place / "graph")
    return lambda row="MuseGNN", **given: Cell(
        **({"row": row, "data": "tiny", "graph": graph, "config": CONFIG} | given)
    )


def timeless(record):
    return {name: value for name, value in record.items() if name not in TIMES}


def without_training(monkeypatch):
    def train(*given, **named):
        raise AssertionError("trained again")

    monkeypatch.setattr(cells, "train", train)


def test_a_cell_is_run_once_and_its_run_is_that_of_the_library(cell, place, tmp_path, monkeypatch):
    record = run_cell(cell(times_sampling=True), tmp_path, place)
    run = musegnn.load_run(tmp_path / cell(times_sampling=True).name / "run")
    assert record["test_accuracy"] == run.test_accuracy
    assert record["valid_accuracy"] == run.valid_accuracy
    assert record["energies"] == run.result["energies"]
    assert [point[0] for point in record["curve"]] == [1, 2]
    assert record["curve"][1][1] == run.events[2]["loss"]
    # Warm: of two epochs, the second.
    assert record["epoch_seconds"] == run.events[2]["seconds"]
    assert record["sampling_seconds"] > 0
    # M in float32, and a count for each of 150 nodes.
    assert record["kept_mb"] == pytest.approx(150 * (8 * 4 + 4) / 2**20, abs=1e-3)
    assert (record["seed"], record["nodes"], record["note"]) == (0, 150, "")
    without_training(monkeypatch)
    assert timeless(run_cell(cell(times_sampling=True), tmp_path, place)) == timeless(record)


def test_all_that_matters_is_in_the_key(cell):
    seed = {"config": CONFIG.with_settings({"seed": 1})}
    deeper = {"config": CONFIG.with_settings({"steps": 4})}
    peer = {"config": CONFIG.with_settings({"norm": "layer"})}
    others = [{"seconds": 5.0}, {"device": "cuda"}, {"times_sampling": True}, seed, deeper, peer]
    keys = [cell(**given).key for given in ({}, *others, {"graph": tiny_graph(seed=1)})]
    assert len(set(keys)) == len(keys)
    assert cell(row="other").key == keys[0]


def test_a_cell_that_was_stopped_goes_on_from_its_checkpoint(cell, place, tmp_path, monkeypatch):
    undisturbed = run_cell(cell(), tmp_path / "a", place)
    steps, before = [], Trainer.step

    def step(self, batches):
        steps.append(0)
        if len(steps) == 3:
            raise KeyboardInterrupt
        before(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", step)
        patch.setattr(cells, "train", partial(cells.train, checkpoint_seconds=0))
        with pytest.raises(KeyboardInterrupt):
            run_cell(cell(), tmp_path / "b", place)
        assert find(cell(), tmp_path / "b") is None
        # Its time so far will count.
        assert cells._spent(tmp_path / "b" / cell().name / "run") > 0
    monkeypatch.setattr(Trainer, "step", lambda self, batches: (steps.append(0), before(self, batches))[1])
    assert timeless(run_cell(cell(), tmp_path / "b", place)) == timeless(undisturbed)
    # Two epochs of two samples: two steps, the one that was stopped, and the two that were left.
    assert len(steps) == 5
    runs = [tmp_path / part / cell().name / "run" for part in "ab"]
    assert differences(outcome(runs[1]), outcome(runs[0])) == []


def test_time_that_is_up_leaves_the_best_epoch_so_far(cell, place, tmp_path):
    config = CONFIG.with_settings({"epochs": 50})
    record = run_cell(cell(config=config, seconds=0.0), tmp_path, place)
    assert (record["note"], record["epochs"]) == ("stopped after 0 s", 1)
    first = run_cell(cell(config=CONFIG.with_settings({"epochs": 1})), tmp_path, place)
    assert record["test_accuracy"] == first["test_accuracy"]
    assert record["valid_accuracy"] == first["valid_accuracy"]
    assert record["error_bound"] == pytest.approx(first["error_bound"])
    assert cells._Watch(10.0, spent=20.0).spent >= 20
    assert find(cell(config=config, seconds=0.0), tmp_path)["note"] == record["note"]


@pytest.mark.parametrize(
    ("error", "said", "is_kept"),
    [
        (MemoryError(), "OOM", True),
        (RuntimeError("CUDA out of memory. Tried"), "OOM", True),
        (InputError("Epoch 1: out of memory with hidden=8."), "OOM", True),
        (DivergenceError("The loss is nan."), "The loss is nan.", True),
        (MissingExtraError("It needs\npymetis."), "It needs pymetis.", False),
    ],
)
def test_what_goes_wrong_is_the_record_and_kept_if_it_would_again(
    error, said, is_kept, cell, place, tmp_path, monkeypatch
):
    def run(*given):
        raise error

    monkeypatch.setattr(cells, "_run", run)
    record = run_cell(cell(), tmp_path, place)
    assert record["error"] == said
    assert (find(cell(), tmp_path) is not None) == is_kept


@pytest.mark.parametrize("error", [StoreError("The disk is full."), RuntimeError("our own fault")])
def test_what_says_nothing_about_a_contender_ends_the_bench(error, cell, place, tmp_path, monkeypatch):
    def run(*given):
        raise error

    monkeypatch.setattr(cells, "_run", run)
    with pytest.raises(type(error), match=str(error)):
        run_cell(cell(), tmp_path, place)
    assert find(cell(), tmp_path) is None


def test_what_the_machine_has_no_memory_for_fails_and_the_limit_is_lifted_again(monkeypatch):
    monkeypatch.setattr(machine, "free_memory", lambda: 1 << 28)
    with machine.limited_memory("cpu"):
        np.empty(1 << 24, dtype=np.uint8)
        with pytest.raises(MemoryError) as error:
            np.empty(1 << 29, dtype=np.uint8)
        with pytest.raises(RuntimeError, match="allocate memory") as of_torch:
            torch.empty(1 << 29, dtype=torch.uint8)
    assert is_out_of_memory(error.value)
    assert is_out_of_memory(of_torch.value)
    np.empty(1 << 29, dtype=np.uint8)


def test_a_record_that_was_changed_is_refused(cell, tmp_path):
    path = tmp_path / cell().name / "cell.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"test_accuracy": 1.0, "checksum": "0"}))
    with pytest.raises(StoreError, match="Remove it: the cell will be run again"):
        find(cell(), tmp_path)


# A whole bench, with runs that nobody trains.


def fake(test, valid):
    """A run whose accuracies follow from its settings."""

    def run(cell, folder, stores):
        settings = cell.config.energy.lambda_, cell.config.training.seed
        record = {"test_accuracy": test(*settings), "valid_accuracy": valid(*settings), "seconds": 1.0}
        return {**record, "note": "", "epochs": 1, "lambda_": settings[0]}

    return run


def request(place, out, rows, **given):
    data = Data("tiny", CONFIG, Graph.open(place / "graph"))
    given = {"name": "accuracy", "bench": BENCHES["accuracy"], "datas": [data], "rows": rows, **given}
    return Request(**({"seeds": [0, 1], "out": out, "stores": place, "command": "muse bench"} | given))


def test_a_search_looks_at_validation_and_its_best_is_run_with_all_seeds(place, tmp_path, monkeypatch):
    # What is best on validation nodes is worst on test nodes.
    monkeypatch.setattr(cells, "_run", fake(lambda x, seed: 1 - x / 10, lambda x, seed: x / 10))
    monkeypatch.setattr(figures, "draw", lambda panels, path: None)
    space = {"lambda_": [0.5, 1.0, 3.0, 4.0]}
    row = Contender(about="", reference="", settings={"lambda_": 2.0}, space=space)
    told = []
    table = run_bench(request(place, tmp_path, {"ours": row}, tries=8), told.append)
    assert [record["lambda_"] for record in table.records] == [4.0, 4.0]
    tuned = json.loads((tmp_path / "tuned.json").read_text())["tiny"]["ours"]
    assert tuned["settings"] == {"lambda_": 4.0}
    assert tuned["tries"][0]["valid_accuracy"] == 0.2
    assert tuned["tries"][tuned["number"]]["valid_accuracy"] == 0.4
    assert "| ours | **60.00 +- 0.00** |" in (tmp_path / "accuracy.md").read_text()
    # Eight tries and two seeds, the first of which was tried already.
    assert told[0].text == "10 cells, 0 of them done"
    assert told[1].text == "[1/10] tiny, ours, seed 0, try 1: validation accuracy, % 20.00"
    assert told[-2].took is None
    assert told[-1].left is None
    # Once more with a third seed: one cell is left, whatever was done before.
    del told[:]
    monkeypatch.setattr(running.statistics, "mean", lambda took: 1.0)
    run_bench(request(place, tmp_path, {"ours": row}, tries=8, seeds=[0, 1, 2]), told.append)
    assert told[0].text == "11 cells, 8 of them done"
    # What the seeds are left with is known behind the search alone.
    assert [one.left for one in told] == [3.0] * 9 + [2.0, 1.0, None]


def test_one_cell_that_fails_is_a_row_and_the_others_go_on(place, tmp_path, monkeypatch):
    def run(cell, folder, stores):
        if cell.row == "broken":
            raise InputError("heads must divide hidden.")
        return fake(lambda x, seed: 0.5, lambda x, seed: 0.5)(cell, folder, stores)

    monkeypatch.setattr(cells, "_run", run)
    rows = {name: Contender(about="", reference="", settings={}) for name in ("broken", "whole")}
    run_bench(request(place, tmp_path, rows))
    page = (tmp_path / "accuracy.md").read_text()
    assert "| broken | [1] |\n| whole | **50.00 +- 0.00** |\n\n[1] heads must divide hidden.  \n" in page
    assert (tmp_path / "accuracy.svg").is_file()


def test_where_all_cells_are_refused_no_table_is_replaced(place, tmp_path, monkeypatch):
    rows = {name: Contender(about="", reference="", settings={}) for name in ("one", "other")}
    (tmp_path / "accuracy.md").write_text("a table of before")
    monkeypatch.setattr(cells, "_run", fails(InputError("heads must divide hidden.")))
    with pytest.raises(InputError, match="no table is written. The first: heads must divide hidden"):
        run_bench(request(place, tmp_path, rows))
    assert (tmp_path / "accuracy.md").read_text() == "a table of before"
    # What does not fit is a result, and so is what diverges.
    for number, (error, said) in enumerate(((MemoryError(), "OOM"), (DivergenceError("It rises."), "[1]"))):
        monkeypatch.setattr(cells, "_run", fails(error))
        run_bench(request(place, tmp_path / str(number), rows))
        assert f"| one | {said} |" in (tmp_path / str(number) / "accuracy.md").read_text()


def fails(error):
    def run(cell, folder, stores):
        raise error

    return run


def test_what_cannot_be_asked_for_is_told_before_the_first_cell(place, tmp_path, monkeypatch):
    monkeypatch.setattr(running, "_Work", None)
    row = {"ours": Contender(about="", reference="", settings={})}
    for given, message in [
        ({"settings": {"sampler": "Cluster"}}, "sampler is what the rows of accuracy are about"),
        ({"settings": {"gama": 1}}, "Did you mean 'gamma'"),
        ({"name": "gamma", "bench": BENCHES["gamma"], "tries": 2}, "--tune belongs to accuracy"),
    ]:
        with pytest.raises(InputError, match=message):
            run_bench(request(place, tmp_path, row, **given))
