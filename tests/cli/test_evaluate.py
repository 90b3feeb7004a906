"""`muse evaluate`: a table or JSON, the same each time."""

import shutil
from pathlib import Path

import pytest

import musegnn
from musegnn.cli.main import main
from tiny_runs import bytes_of, strict_json, tiny_run
from tiny_runs import one_thread as one_thread


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("run")).folder.path


@pytest.fixture(autouse=True)
def _inside(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)


def call(capsys, *arguments, code=0):
    assert main(["evaluate", *arguments]) == code
    captured = capsys.readouterr()
    if code == 2:
        assert captured.err.count("\n") == 1
        assert captured.err.startswith("muse: ")
    return captured.err if code else captured.out


HOWS = {
    "stored": ([], {}),
    "online": (["--online", "--seed", "7"], {"seed": 7}),
    "hops": (["--hops", "1"], {"hops": 1}),
    "full": (["--full", "--scratch", "."], {}),
}


@pytest.mark.parametrize("how", HOWS)
def test_the_table_is_what_the_library_says(folder, capsys, how):
    flags, settings = HOWS[how]
    before = bytes_of(folder)
    record = strict_json(call(capsys, "run", *flags, "--json"))
    assert record == strict_json(call(capsys, "run", *flags, "--json"))
    assert (record["run"], record["how"], record["is_finished"]) == ("run", how, True)
    wanted = musegnn.load_run(folder).evaluate(how=how, **settings)
    for split in ("valid", "test"):
        one = {**wanted[split].metrics, "error_bound": wanted[split].error_bound}
        assert record[split] == {**one, "num_labeled": wanted[split].num_labeled}
    out = call(capsys, "run", *flags)
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.startswith("  ")}
    assert rows["split"][:3] == ["split", "nodes", "accuracy"]
    for split in ("valid", "test"):
        assert rows[split][1:3] == [
            str(record[split]["num_labeled"]),
            f"{100 * record[split]['accuracy']:.2f}",
        ]
    assert "not finished" not in out
    assert bytes_of(folder) == before


def test_stored_is_what_training_said(folder, capsys):
    record, result = strict_json(call(capsys, "run", "--json")), musegnn.load_run(folder).result
    for split in ("valid", "test"):
        for name in ("accuracy", "macro_f1"):
            assert record[split][name] == result[f"{split}_{name}"]


def test_splits(capsys):
    assert list(strict_json(call(capsys, "run", "--splits", "train, test", "--json")))[3:] == [
        "train",
        "test",
    ]
    assert list(strict_json(call(capsys, "run", "--splits", "none", "--full", "--json")))[3:] == ["none"]


def test_a_run_that_is_not_finished_says_so(folder, capsys, tmp_path):
    shutil.copytree(folder, tmp_path / "run")
    (tmp_path / "run/result.json").unlink()
    out = call(capsys, str(tmp_path / "run"))
    assert "It is not finished: these are its best weights so far." in out
    assert strict_json(call(capsys, str(tmp_path / "run"), "--json"))["is_finished"] is False
    shutil.rmtree(tmp_path / "run/checkpoint")
    assert "has no checkpoint" in call(capsys, str(tmp_path / "run"), code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not a run"),
        (["graph"], "graph is not a run"),
        (
            ["run", "--full", "--online"],
            "Choose one of --online, --hops and --full, got",
        ),
        (["run", "--seed", "1"], "pass it with --online"),
        (["run", "--hops", "0"], "--hops"),
        (["run", "--splits", "tset"], "no samples of the split 'tset'; it has train, valid, test"),
        (["run", "--splits", "tset", "--full"], "Did you mean test?"),
        (["run", "--splits", ","], "no splits to evaluate"),
        (["run", "--full", "--scratch", "nowhere"], "nowhere is no folder"),
    ],
)
def test_a_mistake_is_answered_in_one_line(capsys, arguments, said):
    before = sorted(Path.cwd().rglob("*"))
    assert said in call(capsys, *arguments, code=2)
    assert sorted(Path.cwd().rglob("*")) == before
