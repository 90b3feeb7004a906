"""Files of a run that were damaged, or made to hurt: refused in one line, and never half believed.

Of all kinds of files, and by commands: `benchmarks/faults.py`.
"""

import json
import os
import shutil
import struct

import numpy as np
import pytest
import small_runs
import torch

import musegnn
from machine import unchecked as unchecked
from musegnn.errors import InputError, StoreError
from musegnn.inference.tables import PredictionWriter
from musegnn.memory import is_out_of_memory
from musegnn.progress import ignore
from musegnn.store.arrays import file_digest
from musegnn.store.header import checksum
from musegnn.training import checkpoint
from musegnn.training.config import Config
from musegnn.training.folder import RunFolder
from sample_stores import Logged, a_graph, leave_unfinished

PROOF = "MUSEGNN_PROOF" in os.environ
GRAPH = small_runs.graph()
DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return small_runs.store(tmp_path_factory.mktemp("samples") / "s")


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "whole"
    musegnn.train(GRAPH, store, small_runs.model(), folder, epochs=1, checkpoint_seconds=0)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy to be spoiled."""
    return shutil.copytree(whole, tmp_path / "run")


def answer(folder, store):
    """All that a command reads of a finished run; a refusal is its one line."""
    try:
        run = musegnn.load_run(folder, graph=GRAPH, samples=store)
        weights = [part.tolist() for part in run.model.state_dict().values()]
        return run.result, weights, run.weights_digest
    except InputError as error:
        said = str(error)
    assert "\n" not in said
    return said


def resume(folder, store):
    return musegnn.train(
        GRAPH, store, small_runs.model(), folder, epochs=1, checkpoint_seconds=0, resume=True
    )


def rewrite(path, **changes):
    """Other values, with a checksum that fits."""
    body = json.loads(path.read_text()) | changes
    body.pop("checksum")
    checkpoint.write_json(path, body)


@pytest.mark.parametrize("name", ["config.toml", "run.json", "result.json"])
def test_any_flipped_bit_of_a_run_is_found(folder, store, name):
    """All of them with MUSEGNN_PROOF, 20 of each without."""
    path, expected = folder / name, answer(folder, store)
    text = path.read_bytes()
    bits = 8 * len(text)
    found = 0
    for bit in range(0, bits, 1 if PROOF else bits // 20):
        data = bytearray(text)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        told = answer(folder, store)
        assert isinstance(told, str) or told == expected, bit
        found += isinstance(told, str)
    assert found > 17


def test_a_changed_setting_is_not_predicted_with(folder, store):
    """As an editor would change it: the weights were trained with another energy."""
    path = folder / "config.toml"
    path.write_text(path.read_text().replace("lambda_ = 1.0", "lambda_ = 2.0"))
    assert "is of another run" in answer(folder, store)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "best.json", "", None, 7])
def test_a_checkpoint_names_no_file_but_its_own(folder, store, name):
    rewrite(folder / "checkpoint/best.json", file=name)
    assert "is not a valid checkpoint" in answer(folder, store)


def of(header, data=b"", length=None):
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def one(shape, offsets):
    return {"x": {"dtype": "F32", "shape": shape, "data_offsets": offsets}}


@pytest.mark.parametrize(
    "data",
    [
        of("{}", length=1 << 63),
        of(DEEP),
        of(one([1 << 40], [0, 1 << 42])),
        of(one([1], [4, 0]), bytes(4)),
        of(one([1 << 32, 1 << 32], [0, 4]), bytes(4)),
        of({**one([1], [0, 4]), "y": one([1], [0, 4])["x"]}, bytes(4)),
        b"",
    ],
)
def test_tensors_that_are_none(folder, store, data):
    path = folder / "checkpoint/best.json"
    tensors = path.with_name(json.loads(path.read_text())["file"])
    tensors.write_bytes(data)
    digest = file_digest(tensors, ignore, threads=1)
    tensors.rename(path.with_name(f"best-{digest[:16]}.safetensors"))
    rewrite(path, digest=digest, file=f"best-{digest[:16]}.safetensors")
    assert "holds no tensors that can be read" in answer(folder, store)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epoch", -1),
        ("epoch", "1"),
        ("step", 1.5),
        ("best", [[]]),
        ("best", 7),
        ("is_done", 0),
        ("events", -1),
    ],
)
def test_a_checkpoint_at_no_position(folder, store, name, value):
    (folder / "result.json").unlink()
    path = folder / "checkpoint/state.json"
    facts = json.loads(path.read_text())["facts"]
    (facts if name == "events" else facts["position"])[name] = value
    rewrite(path, facts=facts)
    with pytest.raises(StoreError, match="position of a run|bytes of events"):
        resume(folder, store)


@pytest.mark.parametrize("change", ["M", "Adam", "weight"])
def test_tensors_of_other_sizes(folder, store, change):
    (folder / "result.json").unlink()
    tensors, facts, *_ = checkpoint.load(folder / "checkpoint", "state")
    key = {"M": "means.M", "Adam": "optimizer.0.exp_avg", "weight": "model.f.layers.0.weight"}[change]
    key = key if key in tensors else next(name for name in tensors if name.startswith("model."))
    checkpoint.save(folder / "checkpoint", "state", tensors | {key: torch.zeros(3)}, facts)
    with pytest.raises(StoreError, match=r"^The checkpoint ") as caught:
        resume(folder, store)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["checkpoint/state.json", "result.json", "checkpoint/best.json"])
def test_a_link_to_nowhere_is_no_reason_to_begin_anew(folder, store, name):
    """It would be taken for a file that is not there yet, and all that was trained be thrown away."""
    weights = sorted(path.name for path in (folder / "checkpoint").iterdir())
    if name == "checkpoint/state.json":
        (folder / "result.json").unlink()
    (folder / name).unlink()
    (folder / name).symlink_to(folder / "nowhere")
    with pytest.raises(StoreError):
        resume(folder, store)
    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == weights


@pytest.mark.parametrize(
    "text", [f"a = {DEEP}".encode(), b"[training]\nepochs = " + b"9" * 100_000, b"\xff", b"#" * (1 << 21)]
)
def test_settings_that_are_none(folder, store, text):
    (folder / "config.toml").write_bytes(text)
    assert "config.toml" in answer(folder, store)
    with pytest.raises(InputError) as caught:
        Config.read(folder / "config.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["graph", "samples", "labels", "model"])
@pytest.mark.parametrize("value", [None, 7, [], {"digest": 1}, float("nan")])
def test_a_record_that_is_none(folder, store, name, value):
    if value is None and name in ("labels", "model"):
        return
    rewrite(folder / "run.json", **{name: value})
    assert "does not say what the run was trained on" in answer(folder, store)


@pytest.mark.parametrize(
    "changes", [{"seconds": None}, {"expected": True}, {"valid_accuracy": "x"}, {"error_bound": []}]
)
def test_a_result_that_is_none(folder, store, changes):
    rewrite(folder / "result.json", **changes)
    assert "is not the result of a run" in answer(folder, store)


@pytest.mark.parametrize("line", [b"{\n", DEEP.encode() + b"\n", b"\xff\n"])
def test_damaged_events_are_said(folder, line):
    (folder / "events.jsonl").write_bytes(line)
    with pytest.raises(StoreError, match=r"events\.jsonl is damaged"):
        RunFolder(folder).events()


def test_weights_that_are_replaced_while_they_are_read(folder, store, monkeypatch):
    """A run that trains beside us keeps a better one: we read that, and say so."""
    tensors, facts, *_ = checkpoint.load(folder / "checkpoint", "best")
    better = {name: torch.zeros_like(part) for name, part in tensors.items()}
    real = checkpoint.file_digest

    def late(path, *args, **kwargs):
        monkeypatch.setattr(checkpoint, "file_digest", real)
        checkpoint.save(folder / "checkpoint", "best", better, facts)
        return real(path, *args, **kwargs)

    monkeypatch.setattr(checkpoint, "file_digest", late)
    run = musegnn.load_run(folder, graph=GRAPH, samples=store)
    assert all(not part.any() for part in run.model.state_dict().values())
    digest = run.weights_digest
    assert digest == checkpoint.digest_of(folder / "checkpoint", "best")
    # What comes later is not what was loaded.
    checkpoint.save(folder / "checkpoint", "best", tensors, facts)
    assert run.weights_digest == digest


@pytest.mark.parametrize("content", ["objects", "floats", "other fields", "nothing"])
def test_a_part_of_a_table_that_is_none_is_made_again(tmp_path, content):
    """Its digest fits: it is ours, or of one who knows how we write."""
    writer = PredictionWriter(tmp_path / "t.npy", {}, num_batches=1, class_names=None, node_names=None)
    path = tmp_path / "data.npy"
    fields = [("probability", "<f4", (3,)), ("node", "<i8")]
    values = {
        "objects": np.array([{}], dtype=object),
        "floats": np.zeros(3),
        "other fields": np.zeros(2, fields),
    }.get(content)
    if values is None:
        path.write_bytes(b"")
    else:
        np.save(path, values, allow_pickle=True)
    with writer:
        data = path.read_bytes()
        writer._part(0).write_bytes(data + writer._digest(0, data))
        assert writer._read(0) is None
        writer._is_published = True


@pytest.mark.parametrize(("table", "value"), [("sizes", "x"), ("bounds", None), ("sizes", [[1, 2]])])
def test_a_journal_that_says_what_no_shard_is(tmp_path, table, value):
    graph, options = a_graph(60), {"batch_size": 8, "splits": "train"}
    leave_unfinished(graph, Logged(), tmp_path / "s", 2, **options)
    path = tmp_path / "s.partial/journal/train_shard_000001.json"
    body = json.loads(path.read_text())["body"]
    body["facts"][table] = value
    path.write_text(json.dumps({"body": body, "checksum": checksum({path.name: body})}))
    with pytest.raises(StoreError, match="is of no shard. Remove"):
        musegnn.sample(graph, Logged(), tmp_path / "s", **options)


def test_a_model_that_no_memory_holds(store):
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 62, 128)
    assert is_out_of_memory(caught.value)
