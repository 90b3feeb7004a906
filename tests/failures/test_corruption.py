"""A damaged store is never taken for a whole one, and never answered by anything but a StoreError."""

import faulthandler
import json
import os
import shutil

import numpy as np
import pytest

from musegnn import Graph
from musegnn.errors import StoreError

PROOF = "MUSEGNN_PROOF" in os.environ
NUM_CORRUPTIONS = 500 if PROOF else 50
SECONDS = 60


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    """A store with something of everything, an empty array included."""
    folder = tmp_path_factory.mktemp("pristine") / "g"
    rng = np.random.default_rng(0)
    Graph.from_edges(
        rng.integers(0, 97, (2, 400)),
        num_nodes=100,
        features=rng.random((100, 7)),
        labels=rng.integers(-1, 5, 100),
        split=rng.integers(-1, 3, 100),
        relation=rng.integers(0, 5, 400),
        node_type=rng.integers(0, 3, 100),
        class_names=["a", "b", "c", "d", "é"],
        node_names=[f"node {i}" for i in range(100)],
    ).save(folder)
    return folder


@pytest.fixture
def damaged(pristine, tmp_path):
    """A copy to damage; a test that hangs is ended, with its traceback."""
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    shutil.copytree(pristine, tmp_path / "g")
    yield tmp_path / "g"
    faulthandler.cancel_dump_traceback_later()


def flip_a_bit(rng, folder, path):
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def cut_off(rng, folder, path):
    os.truncate(path, rng.integers(path.stat().st_size))


def extend(rng, folder, path):
    with path.open("ab") as file:
        file.write(rng.bytes(rng.integers(1, 100)))


def delete(rng, folder, path):
    path.unlink()


def swap(rng, folder, path):
    other = rng.choice(sorted(folder.iterdir()))
    path.rename(folder / "between")
    if other != path:
        other.rename(path)
    (folder / "between").rename(other)


def overwrite_by_zeros(rng, folder, path):
    _overwrite(rng, path, np.zeros)


def overwrite_by_noise(rng, folder, path):
    _overwrite(rng, path, lambda size: np.frombuffer(rng.bytes(size), dtype=np.uint8))


def _overwrite(rng, path, values):
    data = np.frombuffer(path.read_bytes(), dtype=np.uint8).copy()
    start, stop = np.sort(rng.integers(0, len(data) + 1, 2))
    data[start:stop] = values(stop - start)
    path.write_bytes(data)


def edit_the_header(rng, folder, path):
    header = folder / "header.json"
    lines = header.read_text().splitlines()
    i, j = rng.integers(len(lines), size=2)
    kind = rng.integers(4)
    if kind == 0:
        del lines[i]
    elif kind == 1:
        lines[i], lines[j] = lines[j], lines[i]
    elif kind == 2:
        lines.insert(i, lines[j])
    else:
        lines[i] = lines[i].translate(str.maketrans("0123456789", "1234567890"))
    header.write_text("\n".join(lines))


def replace_by_a_folder(rng, folder, path):
    path.unlink()
    path.mkdir()


def replace_by_a_link_to_nowhere(rng, folder, path):
    path.unlink()
    path.symlink_to(folder / "nowhere")


def replace_by_a_link_to_itself(rng, folder, path):
    path.unlink()
    path.symlink_to(path)


def replace_by_a_device(rng, folder, path):
    path.unlink()
    path.symlink_to("/dev/zero")


CORRUPTIONS = [
    flip_a_bit,
    cut_off,
    extend,
    delete,
    swap,
    overwrite_by_zeros,
    overwrite_by_noise,
    edit_the_header,
    replace_by_a_folder,
    replace_by_a_link_to_nowhere,
    replace_by_a_link_to_itself,
    replace_by_a_device,
]


def means_the_same(folder, pristine):
    """The arrays byte by byte, the header as JSON: a blank for a tab is no damage."""
    for path in pristine.iterdir():
        ours, theirs = path.read_bytes(), (folder / path.name).read_bytes()
        if ours != theirs and (path.suffix != ".json" or json.loads(ours) != json.loads(theirs)):
            return False
    return True


def is_refused(folder, pristine):
    """Whether it is refused, by a StoreError of one line; what is accepted must not be damaged at all."""
    message = ""
    try:
        graph = Graph.open(folder)
        graph.verify()
    except StoreError as error:
        message = str(error)
    assert "\n" not in message
    assert message or (means_the_same(folder, pristine) and graph.digest == Graph.open(pristine).digest)
    return bool(message)


@pytest.mark.parametrize("seed", range(NUM_CORRUPTIONS))
def test_a_random_corruption_is_found(pristine, damaged, seed):
    rng = np.random.default_rng(seed)
    path = rng.choice(sorted(damaged.iterdir()))
    CORRUPTIONS[seed % len(CORRUPTIONS)](rng, damaged, path)
    assert is_refused(damaged, pristine) or means_the_same(damaged, pristine)


def test_an_unharmed_store_is_accepted(pristine, damaged):
    assert not is_refused(damaged, pristine)


@pytest.mark.parametrize("corruption", CORRUPTIONS, ids=lambda corruption: corruption.__name__)
def test_each_kind_of_corruption_is_one(pristine, damaged, corruption):
    """Of the largest file, so that nothing is unchanged by luck."""
    corruption(np.random.default_rng(0), damaged, damaged / "features.bin")
    assert is_refused(damaged, pristine)


@pytest.mark.parametrize("corruption", [flip_a_bit, cut_off, extend, delete], ids=lambda one: one.__name__)
def test_damaged_types_are_found(pristine, damaged, corruption):
    corruption(np.random.default_rng(0), damaged, damaged / "node_type.bin")
    assert is_refused(damaged, pristine)


def test_any_flipped_bit_of_the_header_is_found(pristine, damaged):
    """All of them with MUSEGNN_PROOF, one in 29 without."""
    header = damaged / "header.json"
    text = header.read_bytes()
    found = 0
    positions = range(0, 8 * len(text), 1 if PROOF else 29)
    for bit in positions:
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        data = bytearray(text)
        data[bit // 8] ^= 1 << bit % 8
        header.write_bytes(data)
        found += is_refused(damaged, pristine)
    # The rest are blanks that became other blanks.
    assert found > 0.9 * len(positions)


def test_a_header_cut_off_anywhere_is_found(pristine, damaged):
    header = damaged / "header.json"
    text = header.read_bytes()
    for size in range(0, len(text) - 1, 1 if PROOF else 17):
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        header.write_bytes(text[:size])
        assert is_refused(damaged, pristine)


def test_the_files_of_another_graph_are_found(pristine, damaged, tmp_path):
    """Of the same sizes, so that only the digests can tell."""
    graph = Graph.open(pristine)
    features = np.asarray(graph.features)[::-1].copy()
    (damaged / "features.bin").write_bytes(features.tobytes())
    with pytest.raises(StoreError, match=r"features\.bin is damaged"):
        Graph.open(damaged).verify()
