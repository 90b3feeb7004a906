"""A damaged sample store is never taken for a whole one, answered by a StoreError only, and mended."""

import faulthandler
import json
import os
import shutil
import warnings
from contextlib import suppress

import jaxtyping
import numpy as np
import pytest
from test_corruption import CORRUPTIONS, means_the_same

from musegnn import SampleStore, sample
from musegnn.errors import StoreError
from musegnn.sampling import plan
from sample_stores import Logged, a_graph, contents, drawn_in_few_shards, leave_unfinished, names

PROOF = "MUSEGNN_PROOF" in os.environ
NUM_CORRUPTIONS = 500 if PROOF else 36
NUM_FLIPS = 50 if PROOF else 6
SECONDS = 60
OPTIONS = {"batch_size": 20, "splits": ("train", "valid")}


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch):
    """Several shards; no sample is looked at by the type checker; a test that hangs is ended."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)
    monkeypatch.setattr(plan, "MIN_SHARDS", 4)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def graph():
    return a_graph(300)


@pytest.fixture(scope="module")
def pristine(graph, tmp_path_factory):
    return drawn_in_few_shards(graph, tmp_path_factory.mktemp("pristine") / "s", **OPTIONS)


@pytest.fixture
def damaged(pristine, tmp_path):
    shutil.copytree(pristine, tmp_path / "s")
    return tmp_path / "s"


def refusal(action):
    """What it was refused with, if it was: a StoreError of one line."""
    try:
        action()
    except StoreError as error:
        return str(error)
    return ""


def read_all(folder):
    """Open, touch every sample, verify."""
    store = SampleStore.open(folder)
    for samples in store.values():
        for one in samples:
            assert len(one.node_ids) == len(one.indptr) - 1
    store.verify()


def is_readable(folder, pristine):
    """Every file is one, and not a folder, a device or a link to nowhere."""
    return all((folder / path.name).is_file() for path in pristine.iterdir())


def mended(graph, folder, **options):
    """Whether anything was said to be damaged."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sample(graph, Logged(), folder, workers=2, **OPTIONS, **options)
    assert all("files are missing or damaged (" in str(warning.message) for warning in caught)
    return len(caught)


@pytest.mark.parametrize("seed", range(NUM_CORRUPTIONS))
def test_a_random_corruption_is_found_and_mended(graph, pristine, damaged, seed):
    rng = np.random.default_rng(seed)
    path = rng.choice(sorted(damaged.iterdir()))
    CORRUPTIONS[seed % len(CORRUPTIONS)](rng, damaged, path)
    is_harmless = False
    with suppress(ValueError):
        is_harmless = is_readable(damaged, pristine) and means_the_same(damaged, pristine)
    message = refusal(lambda: read_all(damaged))
    assert "\n" not in message
    assert is_harmless != bool(message)
    message = refusal(lambda: mended(graph, damaged))
    if message:
        # Nothing but the header keeps it from being mended.
        assert "\n" not in message
        header = damaged / "header.json"
        assert not header.is_file() or header.read_bytes() != (pristine / "header.json").read_bytes()
        message = refusal(lambda: mended(graph, damaged, overwrite=True))
        if message:
            assert "is not a store" in message or "is a " in message
            return
    if is_harmless:
        assert means_the_same(damaged, pristine)
    else:
        assert contents(damaged) == contents(pristine)
    assert names(damaged) == names(pristine)
    assert names(damaged.parent) == ["s"]


@pytest.mark.parametrize("seed", range(NUM_FLIPS))
def test_a_flipped_bit_of_a_shard_is_found_and_mended(graph, pristine, damaged, seed):
    rng = np.random.default_rng(seed)
    path = rng.choice(sorted(damaged.glob("*_shard_*.bin")))
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)
    message = f"{path.name} is damaged: its bytes do not have the digest"
    assert message in refusal(SampleStore.open(damaged).verify)
    split, _, number = path.stem.split("_")
    samples = SampleStore.open(damaged)[split]
    first = int(number) * samples._shard_size
    assert message in refusal(lambda: samples[first])
    # It is not taken for checked after it was refused.
    assert message in refusal(lambda: samples[first])
    with pytest.warns(UserWarning, match=rf"1 of 10 files are missing or damaged \({path.stem}\.bin\)"):
        sample(graph, Logged(), damaged, **OPTIONS)
    assert contents(damaged) == contents(pristine)


def test_any_flipped_bit_of_the_header_is_found(graph, pristine, damaged):
    """All of them with MUSEGNN_PROOF, one in 97 without; one in 31 of those is then drawn over."""
    header = damaged / "header.json"
    text = header.read_bytes()
    positions = range(0, 8 * len(text), 1 if PROOF else 97)
    found = 0
    for number, bit in enumerate(positions):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        data = bytearray(text)
        data[bit // 8] ^= 1 << bit % 8
        header.write_bytes(data)
        message = refusal(lambda: read_all(damaged))
        assert "\n" not in message
        assert message or json.loads(header.read_bytes()) == json.loads(text)
        found += bool(message)
        if message and number % 31 == 0 and bit > 8 * 60:
            assert "pass overwrite=True" in refusal(lambda: mended(graph, damaged))
            assert not refusal(lambda: mended(graph, damaged, overwrite=True))
            assert contents(damaged) == contents(pristine)
            text = header.read_bytes()
    assert found > 0.9 * len(positions)


@pytest.mark.parametrize("seed", range(NUM_CORRUPTIONS))
def test_a_random_corruption_of_an_unfinished_store_leaves_no_trace(graph, pristine, tmp_path, seed):
    """Of a shard, of the journal, of anything that lies there; never wrong bytes, and never a traceback."""
    folder, partial = tmp_path / "s", tmp_path / "s.partial"
    leave_unfinished(graph, Logged(), folder, 3, **OPTIONS)
    rng = np.random.default_rng(seed)
    place = partial / rng.choice(["store", "journal"])
    path = rng.choice(sorted(place.iterdir()))
    corruption = CORRUPTIONS[seed % len(CORRUPTIONS)]
    if corruption.__name__ != "edit_the_header":
        corruption(rng, place, path)
    assert "is not complete" in refusal(lambda: SampleStore.open(folder))
    message = refusal(lambda: sample(graph, Logged(), folder, workers=2, **OPTIONS))
    assert message == ""
    assert contents(folder) == contents(pristine)
    assert names(tmp_path) == ["s"]


def test_any_changed_byte_of_the_journal_leaves_no_trace(graph, pristine, tmp_path):
    """One in 11 places of an entry, or all of them with MUSEGNN_PROOF."""
    leave_unfinished(graph, Logged(), tmp_path / "u", 3, **OPTIONS)
    entry = "journal/train_shard_000001.json"
    text = (tmp_path / "u.partial" / entry).read_bytes()
    for place in range(0, len(text), 1 if PROOF else 11):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        folder, partial = tmp_path / "s", tmp_path / "s.partial"
        shutil.copytree(tmp_path / "u.partial", partial)
        (partial / entry).write_bytes(text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :])
        sample(graph, Logged(), folder, **OPTIONS)
        assert contents(folder) == contents(pristine), (place, text[place - 9 : place + 9])
        shutil.rmtree(folder)
