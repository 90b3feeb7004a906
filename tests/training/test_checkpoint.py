"""Checkpoints and run folders that are damaged, of another run, or somebody else's."""

import json
import os
import shutil

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from musegnn import ShadowKHop
from musegnn.errors import StoreError
from musegnn.store.header import checksum
from musegnn.training import checkpoint
from musegnn.training.folder import RunFolder
from musegnn.training.loop import Trainer

GRAPH = small_runs.graph()
SETTINGS = {"epochs": 2, "lr": 0.02}
STRIDE = 1 if "MUSEGNN_PROOF" in os.environ else 23


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s")


@pytest.fixture(scope="module")
def halfway(store, tmp_path_factory):
    """A run that was stopped in its second epoch."""
    folder = tmp_path_factory.mktemp("runs") / "halfway"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", stopping(9))
        with pytest.raises(Stopped):
            start(store, folder, checkpoint_seconds=0)
    return folder


@pytest.fixture
def run(halfway, tmp_path):
    """A copy to be spoiled."""
    return shutil.copytree(halfway, tmp_path / "run")


class Stopped(Exception):  # noqa: N818
    pass


def stopping(number):
    step = Trainer.step

    def call(trainer, batch):
        if trainer.state.position.step == number:
            raise Stopped
        step(trainer, batch)

    return call


def start(store, folder, *, graph=GRAPH, model=None, **options):
    model = small_runs.model() if model is None else model
    return musegnn.train(graph, store, model, folder, **{**SETTINGS, **options})


def files(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def refused(*words, **how):
    """One line, with all these words; the run stays as it was."""
    before = files(how["folder"])
    with pytest.raises(StoreError) as caught:
        start(**{"resume": True, **how})
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)
    assert files(how["folder"]) == before


def reads_the_same(damaged, whole):
    """The last of 17 digits of a number may be another, and the number the same."""
    try:
        return json.loads(damaged) == json.loads(whole)
    except ValueError:
        return False


def test_any_damaged_byte_of_a_checkpoint_is_found(run):
    folder = run / "checkpoint"
    names = [f"{name}{end}" for name in ("state", "best") for end in (".json", "-*.safetensors")]
    for path in [next(folder.glob(name)) for name in names]:
        whole, name = path.read_bytes(), path.name.split("-")[0].split(".")[0]
        for at in [*range(0, len(whole), STRIDE * (1 if path.suffix == ".json" else 7)), len(whole) - 2]:
            for damaged in (
                whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :],
                whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :],
            ):
                if path.suffix == ".json" and reads_the_same(damaged, whole):
                    continue
                path.write_bytes(damaged)
                with pytest.raises(StoreError) as caught:
                    checkpoint.load(folder, name)
                assert "\n" not in str(caught.value), at
                assert str(path) in str(caught.value), at
        path.write_bytes(whole[:-9])
        with pytest.raises(StoreError, match=path.name):
            checkpoint.load(folder, name)
        path.write_bytes(whole)
        checkpoint.load(folder, name)


def test_a_damaged_checkpoint_is_not_gone_on_with(run, store):
    path = next((run / "checkpoint").glob("state-*.safetensors"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused("is damaged", path.name, store=store, folder=run)
    path.unlink()
    refused("does not exist", path.name, store=store, folder=run)


def rewritten(path, **changes):
    body = {**json.loads(path.read_text()), **changes}
    del body["checksum"]
    path.write_text(json.dumps({**body, "checksum": checksum(body)}))


def test_another_format_is_refused(run, store):
    path = run / "checkpoint" / "state.json"
    rewritten(path, version=2)
    refused("format version 2", "reads version 1", store=store, folder=run)
    rewritten(path, version=1, format="something")
    refused("is not a checkpoint", store=store, folder=run)


def test_another_graph_or_samples_or_settings_are_refused(run, store, tmp_path):
    other = small_runs.graph(seed=1)
    samples = small_runs.store(tmp_path / "other", other)
    refused("with the graph", GRAPH.digest[:12], other.digest[:12], store=samples, graph=other, folder=run)
    refused("was drawn from the graph", store=samples, folder=run)
    samples = small_runs.store(tmp_path / "fresh", sampler=ShadowKHop([2]))
    refused("with the samples", samples.digest[:12], store=samples, folder=run)
    refused("lr = 0.02, now lr = 0.03", store=store, folder=run, lr=0.03)
    refused("epochs = 2, now epochs = 3", store=store, folder=run, epochs=3)
    refused("hidden = 8, now hidden = 9", store=store, folder=run, model=small_runs.model(hidden=9))
    refused("gamma = 0.5, now gamma = 0.25", store=store, folder=run, model=small_runs.model(0.25))
    refused("other labels", store=store, folder=run, labels=GRAPH.labels[::-1].copy())


def test_another_model_of_ones_own_is_refused(store, tmp_path, monkeypatch):
    """No config describes it: the weights have to fit."""

    def own(width):
        f = torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.Tanh(), torch.nn.Linear(width, 8))
        return small_runs.model(f=f)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "step", stopping(4))
        with pytest.raises(Stopped):
            start(store, tmp_path / "run", model=own(6), checkpoint_seconds=0)
    refused("another model", store=store, folder=tmp_path / "run", model=own(7))
    run = start(store, tmp_path / "run", model=own(6), resume=True)
    assert run.means.M.shape == (GRAPH.num_nodes, 8)


def test_the_good_one_goes_on(run, store, tmp_path):
    start(store, tmp_path / "whole")
    start(store, run, resume=True)
    assert small_runs.differences(small_runs.outcome(run), small_runs.outcome(tmp_path / "whole")) == []


def test_a_finished_run_gives_its_weights(store, tmp_path):
    """Asked to go on, there is nothing to do but to tell the model."""
    first, again = small_runs.model(), small_runs.model(seed=5)
    start(store, tmp_path / "run", model=first)
    before = small_runs.outcome(tmp_path / "run")
    run = start(store, tmp_path / "run", model=again, resume=True)
    assert small_runs.outcome(tmp_path / "run") == before
    assert run.model is again
    for part, other in zip(first.parameters(), again.parameters(), strict=True):
        assert torch.equal(part, other)


def test_nothing_to_go_on_with(store, tmp_path):
    with pytest.raises(StoreError, match="does not exist. Pass the folder of a run"):
        start(store, tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="is not a run"):
        start(store, tmp_path / "empty", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="file"):
        start(store, tmp_path / "file")


def test_a_folder_is_written_by_one_process(run, store):
    with RunFolder(run):
        refused("is being written by another process", store=store, folder=run)
        refused("is being written by another process", store=store, folder=run, resume=False, overwrite=True)
    start(store, run, resume=True)


def test_a_run_is_not_replaced_unless_asked(run, store, tmp_path):
    refused("an unfinished run", "--resume", "overwrite=True", store=store, folder=run, resume=False)
    # A kill may leave this.
    (run / "result.json.partial").write_text("{")
    start(store, run, overwrite=True)
    refused("a finished run", "overwrite=True", store=store, folder=run, resume=False)
    start(store, tmp_path / "whole")
    assert small_runs.differences(small_runs.outcome(run), small_runs.outcome(tmp_path / "whole")) == []
    (run / "notes.txt").write_text("mine")
    refused("notes.txt", store=store, folder=run, resume=False, overwrite=True)


def test_a_run_killed_while_it_was_begun(store, tmp_path, halfway):
    """config.toml is there and run.json is not: both to begin and to go on begin it."""
    for resume in (True, False):
        folder = tmp_path / f"run {resume}"
        folder.mkdir()
        shutil.copy(halfway / "config.toml", folder)
        (folder / "run.json.partial").write_text("{")
        start(store, folder, resume=resume)
        assert small_runs.outcome(folder)["events"][0]["event"] == "start"
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "config.toml").write_text("[my]\nsettings = 3\n")
    refused("overwrite=True", store=store, folder=tmp_path / "own", resume=False)


@pytest.mark.parametrize("home", ["memory", "disk"])
def test_a_deleted_run_folder_is_said(store, tmp_path, home):
    def listen(event):
        if event["event"] == "epoch":
            shutil.rmtree(tmp_path / "run")

    with pytest.raises(StoreError, match="does not exist") as caught:
        start(store, tmp_path / "run", listen=listen, checkpoint_seconds=0, means_home=home)
    assert "\n" not in str(caught.value)


def test_what_is_no_number_is_no_json(store, tmp_path):
    """Readers other than Python refuse Infinity, which is the first energy if Z is not feasible."""

    def refuse(text):
        raise AssertionError(text)

    start(store, tmp_path / "run", model=small_runs.model(steps=0))
    for path in tmp_path.glob("run/*.json*"):
        for line in path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]:
            json.loads(line, parse_constant=refuse)


def test_tensors_come_back_as_they_were(tmp_path):
    tensors = {
        "a": torch.arange(12.0).view(3, 4).t(),
        "b": torch.tensor(3, dtype=torch.int32),
        "c": torch.zeros(0, 2, dtype=torch.bfloat16),
        "d": torch.from_numpy(np.array([np.nan, np.inf])),
    }
    checkpoint.save(tmp_path, "x", tensors, {"position": {"step": 3}})
    (tmp_path / ".tmp123").write_text("left by a kill")
    checkpoint.save(tmp_path, "x", tensors, {"position": {"step": 4}})
    found, facts, *_ = checkpoint.load(tmp_path, "x")
    assert facts == {"position": {"step": 4}}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0, equal_nan=True)
    assert len(list(tmp_path.iterdir())) == 2
