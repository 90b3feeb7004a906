"""`muse train`, as a person would call it, be interrupted, and go on."""

import importlib.util
import itertools
import json
import shutil
import sys
from pathlib import Path

import pytest
import torch

import musegnn
from machine import one_thread as one_thread
from musegnn import Graph, ShadowKHop
from musegnn.cli import telling
from musegnn.cli.main import main
from musegnn.training.checkpoint import write_json
from musegnn.training.config import Config
from musegnn.training.folder import RunFolder
from musegnn.training.loop import Trainer
from tiny_runs import TIMES, bytes_of, flags, interrupted, strict_json, tiny_graph

SHORT = [*flags(epochs=1), "--device", "cpu"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a graph, its samples, and a run that was trained by the command."""
    place = tmp_path_factory.mktemp("place")
    tiny_graph().save(place / "g")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        assert main(["train", "g", *flags(), "--device", "cpu"]) == 0
    return place


@pytest.fixture
def place(trained, tmp_path, monkeypatch):
    """A copy that a test may spoil; stores and graph are the same."""
    monkeypatch.chdir(tmp_path)
    for name in ("g", "stores"):
        (tmp_path / name).symlink_to(trained / name)
    shutil.copytree(trained / "runs", tmp_path / "runs")
    return tmp_path


def call(capsys, *arguments, code=0):
    assert main(["train", *arguments]) == code, capsys.readouterr().err
    captured = capsys.readouterr()
    if code == 2:
        assert captured.err.count("\n") == 1, captured.err
        assert captured.err.startswith("muse: ")
    return captured.err if code else captured.out


def times(folder):
    return {path: path.stat().st_mtime_ns for path in sorted(folder.rglob("*")) if path.is_file()}


def timeless(folder):
    """All bits that a run leaves, but how long it took and where the data lay."""
    result = strict_json((folder / "result.json").read_text())
    for part in ("graph", "samples"):
        del result[part]["folder"]
    events = [strict_json(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    names = ("event", "epoch", "step", "loss", "valid_accuracy")
    curve = [{name: event.get(name) for name in names} for event in events]
    weights = {name: digest for name, digest in bytes_of(folder).items() if name.endswith(".safetensors")}
    return {name: value for name, value in result.items() if name not in TIMES}, curve, weights


def test_it_says_what_a_person_wants_to_know_and_leaves_a_run(place, capsys):
    before = times(Path("stores").resolve())
    out = call(capsys, "g", *flags(), "--device", "cpu")
    for part in ("Training g", "6 samples of", "2 samples an epoch, 2 epochs", "run folder    runs/g-2"):
        assert part in out
    for part in (
        "valid         accuracy",
        "test          accuracy",
        "error bound",
        "Next: muse evaluate runs/g-2",
    ):
        assert part in out
    assert len([line for line in out.splitlines() if line.split()[:1] in (["1"], ["2"])]) == 2
    # Nothing was drawn again, and the same seed gives the same bits.
    assert times(Path("stores").resolve()) == before
    assert timeless(place / "runs/g-2") == timeless(place / "runs/g")
    result = strict_json(Path("runs/g-2/result.json").read_text())
    assert {"dataset", "valid_accuracy", "test_accuracy", "epochs", "error_bound", *TIMES} <= set(result)
    assert 0 < result["test_accuracy"] <= 1
    assert f"accuracy {100 * result['test_accuracy']:.2f} %" in out


def test_settings_are_those_that_were_asked_for(place, capsys):
    settings = flags(skip="false")
    at = settings.index("epochs=2")
    settings[at - 1 : at + 1] = ["--epochs", "1"]
    call(capsys, "g", *settings, "--seed", "5", "--out", "r", "--device", "cpu")
    config = Config.from_toml(Path("r/config.toml").read_text(), "config.toml")
    assert (config.training.epochs, config.training.seed, config.model.skip) == (1, 5, False)
    assert config.sampling.settings == {"fanouts": [4, 3]}
    assert (config.energy.gamma, config.model.hidden) == (0.5, 8)
    run = musegnn.load_run("r")
    assert (run.result["epochs"], run.result["seed"]) == (1, 5)
    assert not torch.equal(run.model.f.layers[0].weight, musegnn.load_run("runs/g").model.f.layers[0].weight)


def test_a_recipe_of_ones_own_on_a_dataset_of_the_catalog(place, capsys):
    Path("my.toml").write_text(
        'name = "mine"\ndataset = "synthetic"\n[options]\nnum_nodes = 200\nnum_edges = 600\nnum_classes = 3\n'
        "num_features = 6\n[sampling]\nfanouts = [3]\nbatch_size = 50\n[model]\nhidden = 8\nsteps = 2\n"
    )
    out = call(capsys, "my.toml", "--epochs", "1", "--stores", "here", "--device", "cpu")
    assert "here/synthetic/graph imported: 200 nodes" in out
    assert strict_json(Path("runs/mine/result.json").read_text())["dataset"] == "synthetic"
    out = call(capsys, "my.toml", "--epochs", "1", "--stores", "here", "--device", "cpu")
    assert "here/synthetic/graph is there" in out
    assert timeless(place / "runs/mine") == timeless(place / "runs/mine-2")


@pytest.mark.filterwarnings("always:--set")
def test_samples_that_were_drawn_before(place, capsys):
    musegnn.sample(Graph.open("g"), ShadowKHop([2]), "s", batch_size=38)
    assert main(["train", "g", *SHORT, "--samples", "s", "--out", "r"]) == 0
    out, err = capsys.readouterr()
    assert err.splitlines() == [
        f"muse: warning: --set {name} changes nothing, since the samples of s were drawn with {name}={value}."
        " Leave it out, or leave --samples out."
        for name, value in (("batch_size", 38), ("fanouts", [2]))
    ]
    assert "1 sample an epoch" in out
    assert musegnn.load_run("r").samples.stored.folder == place / "s"
    assert "fanouts = [2]" in Path("r/config.toml").read_text()


@pytest.fixture(scope="module")
def cut_off(trained, tmp_path_factory):
    """Runs that got a signal in step 5 of 8, SIGKILL and SIGINT; their exit codes and stderr."""
    place = tmp_path_factory.mktemp("killed")
    for name in ("g", "stores"):
        (place / name).symlink_to(trained / name)
    train = ["train", "g", *flags(epochs=4), "--device", "cpu"]
    commands = [
        ("SIGKILL", 5, *train, "--out", "killed", "--checkpoint-seconds", "0"),
        ("SIGINT", 5, *train, "--out", "my run"),
    ]
    return place, *interrupted("step", commands, place)


def test_a_killed_run_goes_on_and_ends_with_the_same_bits(cut_off, monkeypatch, capsys):
    place, codes, err = cut_off
    monkeypatch.chdir(place)
    assert codes == [-9, 130]
    told = [line for line in err.splitlines() if line.startswith("muse:")]
    assert told == [
        "muse: interrupted; the last checkpoint is kept. Go on with: muse train --resume 'my run'"
    ]
    call(capsys, "g", *flags(epochs=4), "--device", "cpu", "--out", "whole")
    for name in ("killed", "my run"):
        assert not Path(name, "result.json").exists()
        out = call(capsys, "--resume", name, "--device", "cpu")
        assert "Training" not in out
        assert timeless(place / name) == timeless(place / "whole"), name
        assert not list(place.rglob("*.partial"))
    # A second time there is nothing left to do.
    before = bytes_of(place / "killed")
    page = Path("killed/report.html")
    page.unlink()
    assert "killed is finished" in call(capsys, "--resume", "killed")
    assert page.stat().st_size > 1_000_000
    assert bytes_of(place / "killed") == before


def test_a_run_folder_that_is_taken(place, capsys):
    before = bytes_of(place / "runs/g")
    err = call(capsys, "g", *SHORT, "--out", "runs/g", code=2)
    assert err.endswith("holds a finished run: choose another folder, or pass --overwrite.\n")
    assert bytes_of(place / "runs/g") == before
    with RunFolder(place / "busy"):
        assert "busy is being written by another process" in call(
            capsys, "g", *SHORT, "--out", "busy", code=2
        )
    call(capsys, "g", *SHORT, "--out", "runs/g", "--overwrite")
    assert strict_json(Path("runs/g/result.json").read_text())["epochs"] == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Pass what to train on, or --resume RUN"),
        (["g", "--resume", "runs/g"], "Pass what to train on, or --resume RUN"),
        (["debain"], "Did you mean debian?"),
        (["my.toml"], "my.toml does not exist"),
        (["cora"], "--root"),
        (["cora", "--root", "nowhere"], "nowhere is no folder"),
        (["g", "--root", "g"], "--root belongs to a dataset"),
        (["runs/g"], "runs/g is a run. Go on with it: muse train --resume runs/g"),
        (["g", "--set", "hiden=8"], "there is no setting 'hiden'. Did you mean 'hidden'?"),
        (["g", "--set", "hidden=0"], "hidden must be a whole number at least 1; got 0."),
        (["g", "--set", "skip=maybe"], "skip must be true or false; got 'maybe'."),
        (["g", "--set", "lr=-1"], "lr must be a number above 0; got -1."),
        (["g", "--set", "gamma"], "--set takes KEY=VALUE"),
        (["g", "--set", "gamma=inf"], "gamma must be"),
        (["g", "--epochs", "0"], "'--epochs': Input should be greater than or equal to 1; got '0'."),
        (["g", "--epochs", "two"], "got 'two'."),
        (["g", "--graph", "g"], "--graph belongs to --resume. Pass the folder alone: muse train FOLDER."),
        (["g", "--device", "tpu"], "--device must be cpu, cuda or auto; got 'tpu'"),
        (["g", "--out", "."], "--out is the current folder"),
        (["g", "--out", "file"], "--out file is a file"),
        (["g", "--log", "tensorbord"], "--log knows tensorboard, wandb; got 'tensorbord'"),
        (["g", "--samples", "g"], "Pass the folder of a samples store"),
        (["--resume", "nowhere"], "nowhere"),
        (["--resume", "g"], "is not a run"),
        (["--resume", "runs/g", "--epochs", "9"], "--resume goes on with a run as it is"),
        (["--resume", "runs/g", "--set", "lr=1"], "--resume goes on with a run as it is"),
        (["--resume", "runs/g", "--overwrite"], "--resume goes on with a run as it is"),
        (["--resume", "runs/g", "--out", "x"], "--resume goes on with a run as it is"),
        (["--resume", "runs/g", "--stores", "stores"], "Leave --out, --overwrite, --root, --stores,"),
    ],
)
def test_a_mistake_is_answered_in_one_line_and_leaves_nothing(place, capsys, monkeypatch, arguments, said):
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)
    Path("file").touch()
    before = bytes_of(place)
    assert said in call(capsys, *arguments, code=2)
    assert bytes_of(place) == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_not_there(place, capsys):
    assert "--device cuda is not there" in call(capsys, "g", "--device", "cuda", code=2)


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_logger_that_is_not_installed_is_told_before_the_work(place, capsys, name):
    if importlib.util.find_spec(name):
        pytest.skip(f"{name} is installed")
    err = call(capsys, "g", *SHORT, "--log", name, "--out", "r", "--stores", "new", code=2)
    assert f"needs the package {name}" in err
    assert "pip install 'musegnn[log]'" in err
    assert not Path("new").exists()
    assert not Path("r").exists()


def test_a_graph_that_cannot_be_learned_from(place, capsys):
    tiny_graph(features=None).save("bare")
    assert "has no features" in call(capsys, "bare", *SHORT, code=2)
    other = tiny_graph(seed=1)
    musegnn.sample(other, ShadowKHop([2]), "s")
    assert "was drawn from the graph" in call(capsys, "g", *SHORT, "--samples", "s", code=2)
    assert not Path("runs/bare").exists()
    assert sorted(path.name for path in Path("runs").iterdir()) == ["g"]


@pytest.mark.parametrize(
    ("took", "behind", "said"),
    [
        # Kernels are compiled in the first epoch: the second one tells.
        ([12, 2, 2, 2], 2, "about 4 s for 2 more epochs"),
        ([90, 70, 70], 1, "about 3 min 0 s for 2 more epochs"),
        ([12, 2], 1, "about 12 s for 1 more epoch"),
        ([12], None, ""),
    ],
)
def test_the_time_left_is_told_once(took, behind, said, monkeypatch, capsys):
    clock = iter([0.0, *itertools.accumulate(map(float, took))])
    monkeypatch.setattr(telling.time, "monotonic", lambda: next(clock))
    table = telling.EpochTable(len(took), "accuracy")
    event = {"event": "epoch", "loss": 1.0, "train_accuracy": 0.5, "samples_per_second": 1.0, "waited": 0.0}
    told = []
    for epoch in range(1, len(took) + 1):
        table.tell({**event, "epoch": epoch})
        told += [
            (epoch, line.strip()) for line in capsys.readouterr().out.splitlines() if "more epoch" in line
        ]
    assert told == ([(behind, said)] if said else [])


@pytest.mark.filterwarnings("always:--set")
def test_a_setting_that_is_not_heeded_is_named(place, capsys):
    assert main(["train", "g", *flags(epochs=1, heads=8), "--device", "cpu", "--out", "r"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        "muse: warning: --set heads changes nothing, since architecture=MuseGNN does not heed it. "
        "Leave it out."
    ]


def test_a_run_without_steps_says_no_bound(place, capsys):
    out = call(capsys, "g", *flags(steps=0, epochs=1), "--device", "cpu", "--out", "r")
    assert "error bound" not in out
    assert json.loads(Path("r/result.json").read_text())["test_accuracy"] >= 0


def test_stores_that_were_moved_are_passed_to_go_on(place, capsys, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_end_epoch", _interrupt)
        with pytest.raises(SystemExit):
            main(["train", "g", *SHORT, "--out", "r"])
    record = RunFolder(Path("r")).record()
    samples = record["samples"]["folder"]
    for part in ("graph", "samples"):
        record[part] |= {"folder": "/gone", "from_here": "gone"}
    write_json(Path("r/run.json"), record)
    capsys.readouterr()
    assert "Pass --graph FOLDER" in call(capsys, "--resume", "r", "--device", "cpu", code=2)
    call(capsys, "--resume", "r", "--device", "cpu", "--graph", "g", "--samples", samples)
    assert strict_json(Path("r/result.json").read_text())["epochs"] == 1


def _interrupt(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    "arguments",
    [
        ["train", "nosuch"],
        ["train", "debian", "--set", "gama=1"],
        ["train", "--resume", "nosuch"],
        ["evaluate", "nosuch"],
        ["predict", "nosuch", "--nodes", "all", "--out", "x.csv"],
    ],
)
def test_a_mistake_does_not_wait_for_torch(place, capsys, monkeypatch, arguments):
    # What imports torch anew fails; what tests have imported before is taken out for a while.
    rooms = ("torch", "musegnn.runs", "musegnn.models", "musegnn.recipes.pipeline", "musegnn.training.folder")
    for name in [name for name in sys.modules if name.startswith(rooms)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(arguments) == 2
    assert "nosuch" in capsys.readouterr().err or "gama" in arguments[-1]


def test_features_on_a_gpu_that_is_not_there_are_refused_at_once(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "debian", "--device", "cpu", "--set", "features_home=gpu"]) == 2
    assert "features_home=gpu needs a GPU" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
